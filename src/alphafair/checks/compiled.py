"""Machine code, where a policy has kernels: the same to the last bit as its steps, and as plain Python."""

import hashlib
from typing import Any

import numpy as np

from alphafair import jit
from alphafair.checks.subject import NOT_HERE, Subject, memory, rounds
from alphafair.run import has_whole_runs, simulate
from alphafair.values import Decision, Feedback

NO_KERNELS = f"{NOT_HERE}: the policy offers no compiled run"
TURNED_OFF = f"{NOT_HERE}: kernels run interpreted, as NUMBA_DISABLE_JIT says"


def run_digest(subject: Subject, *, compiled: bool) -> str:
    """Of all that a run leaves: whole runs in one call, or step by step."""
    policy = subject.make(3, 5)
    trace = simulate(policy, rounds(400, 3, 5), seed=2, record_every=7, compiled=compiled)
    digest = hashlib.sha256(trace.accounts.tobytes() + trace.pulls.tobytes())
    digest.update(memory(policy).encode())
    return digest.hexdigest()


def stepwise_equals_compiled(subject: Subject) -> str | None:
    if not has_whole_runs(subject.make()):
        return NO_KERNELS
    with jit.using_mode("now"):
        assert run_digest(subject, compiled=True) == run_digest(subject, compiled=False), "they differ in some bit"
    return None


def interpreted_equals_compiled(subject: Subject) -> str | None:
    if not has_whole_runs(subject.make()):
        return NO_KERNELS
    if not _can_compile():
        return TURNED_OFF
    for compiled in (True, False):
        digests = set()
        for mode in ("now", "off"):
            with jit.using_mode(mode):
                digests.add(run_digest(subject, compiled=compiled))
        assert len(digests) == 1, "they differ in some bit"
    return None


def _can_compile() -> bool:
    with jit.using_mode("now"):
        return jit.mode() == "now"


def one_compiled_signature(subject: Subject) -> str | None:
    if not has_whole_runs(subject.make()) or not _can_compile():
        return f"{NOT_HERE}: the policy has no kernels, or they run interpreted"
    with jit.using_mode("now"):
        policy: Any = subject.trained()
        decision = policy.choose(np.int64(1))
        policy.choose(1, available=np.array([True, True, True, False]))
        rewards: Any = [1, 0, 1, 0] if policy.feedback is Feedback.FULL else 1
        policy.update(Decision(np.int32(1), np.int64(0), np.float32(0.25), np.full(4, 0.25)), rewards)  # type: ignore[arg-type]
        frozen = np.array([0.1, 0.2, 0.3, 0.4])
        frozen.setflags(write=False)
        policy.update(decision, frozen[::1] if policy.feedback is Feedback.FULL else np.float32(0.5))
        kernels = (policy._algorithm.draw, policy._algorithm.learn, policy._algorithm.prepare)
        for kernel in filter(None, kernels):
            n = len(jit.compiled(kernel, **policy._flags()).signatures)
            assert n <= 1, f"{kernel.__name__} was compiled for {n} signatures: some argument changed its type"
    return None
