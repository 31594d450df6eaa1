"""Whole runs in compiled code, where a policy offers them: the same to the last bit as its steps.

Run as a module it is the other process of `interpreted_equals_compiled`.
"""

import hashlib
import importlib
import json
import math
import os
import subprocess
import sys
from typing import Any, cast

import numpy as np

from alphafair import jit
from alphafair.checks.subject import NOT_HERE, Subject, memory, rounds
from alphafair.policy import BasePolicy
from alphafair.run import has_whole_runs
from alphafair.simulation import simulate
from alphafair.types import Decision, Feedback

NO_RUNS = f"{NOT_HERE}: the policy offers no compiled run"


def run_digest(subject: Subject, *, compiled: bool) -> str:
    policy = subject.make(3, 5)
    trace = simulate(policy, rounds(400, 3, 5), seed=2, record_every=7, compiled=compiled)
    digest = hashlib.sha256(trace.accounts.tobytes() + trace.pulls.tobytes())
    digest.update(memory(policy).encode())
    return digest.hexdigest()


def machine_code_of(subject: Subject) -> bool:
    """Whether this process may run machine code: then policies of this kind do so from now on."""
    policy = cast(BasePolicy, subject.make())
    return policy._bundle.use_machine_code(math.inf)


def stepwise_equals_compiled(subject: Subject) -> str | None:
    if not has_whole_runs(subject.make()):
        return NO_RUNS
    machine_code_of(subject)
    assert run_digest(subject, compiled=True) == run_digest(subject, compiled=False), "they differ in some bit"
    return None


def interpreted_equals_compiled(subject: Subject) -> str | None:
    if not has_whole_runs(subject.make()):
        return NO_RUNS
    module, name = subject.policy_class.__module__, subject.policy_class.__qualname__
    if module == "__main__" or "<locals>" in name:
        return f"{NOT_HERE}: the class cannot be imported by another process"
    other_mode = "off" if machine_code_of(subject) else "now"
    environment = {key: value for key, value in os.environ.items() if key != "NUMBA_DISABLE_JIT"}
    path = os.pathsep.join(entry for entry in sys.path if entry)
    settings = subject.settings(3, 5) if callable(subject.settings) else subject.settings
    answer = subprocess.run(  # noqa: S603 - this Python, and the class that it was asked to check
        [sys.executable, "-m", "alphafair.checks.compiled", module, name, json.dumps(dict(settings))],
        env={**environment, "ALPHAFAIR_JIT": other_mode, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert answer.returncode == 0, f"the other process failed: {answer.stderr[-500:]}"
    assert answer.stdout.strip() == run_digest(subject, compiled=True), "they differ in some bit"
    return None


def one_compiled_signature(subject: Subject) -> str | None:
    if not has_whole_runs(subject.make()) or not machine_code_of(subject):
        return f"{NOT_HERE}: the policy has no kernels, or they run interpreted"
    policy = cast(BasePolicy, subject.trained())
    algorithm, flags = policy._algorithm, policy._flags()
    kernels = [jit.compiled(kernel, **flags) for kernel in (algorithm.draw, algorithm.learn)]
    policy._draw, policy._learn = kernels  # which look at the types of their arguments, as machine code does not
    decision = policy.choose(np.int64(1))  # type: ignore[arg-type]
    policy.choose(1, available=np.array([True, True, True, False]))
    rewards: Any = [1, 0, 1, 0] if policy.feedback is Feedback.FULL else 1
    policy.update(Decision(np.int32(1), np.int64(0), np.float32(0.25), np.full(4, 0.25)), rewards)  # type: ignore[arg-type]
    frozen = np.array([0.1, 0.2, 0.3, 0.4])
    frozen.setflags(write=False)
    policy.update(decision, frozen[::1] if policy.feedback is Feedback.FULL else np.float32(0.5))
    for kernel in kernels:
        n = len(kernel.signatures)
        assert n == 1, f"{kernel.__name__} was compiled for {n} signatures: some argument changed its type"
    return None


if __name__ == "__main__":
    module_name, class_name, settings_text = sys.argv[1:4]
    found: Any = importlib.import_module(module_name)
    for part in class_name.split("."):
        found = getattr(found, part)
    print(run_digest(Subject(found, json.loads(settings_text)), compiled=True))
