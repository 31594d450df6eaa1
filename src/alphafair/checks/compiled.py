"""Whole runs in compiled code, where a policy offers them: the same to the last bit as its steps.

Run as a module it is the other process of `interpreted_equals_compiled`.
"""

import hashlib
import importlib
import json
import os
import subprocess
import sys
from typing import Any

import numpy as np

from alphafair.checks.subject import NOT_HERE, Subject, memory, rounds
from alphafair.simulation import simulate
from alphafair.types import Decision, Feedback


def run_digest(subject: Subject, *, compiled: bool) -> str:
    policy = subject.make(3, 5)
    trace = simulate(policy, rounds(400, 3, 5), seed=2, record_every=7, compiled=compiled)
    digest = hashlib.sha256(trace.accounts.tobytes() + trace.pulls.tobytes())
    digest.update(memory(policy).encode())
    return digest.hexdigest()


def stepwise_equals_compiled(subject: Subject) -> str | None:
    if subject.make().kernels is None:
        return f"{NOT_HERE}: the policy offers no compiled run"
    assert run_digest(subject, compiled=True) == run_digest(subject, compiled=False), "they differ in some bit"
    return None


def interpreted_equals_compiled(subject: Subject) -> str | None:
    if subject.make().kernels is None:
        return f"{NOT_HERE}: the policy offers no compiled run"
    module, name = subject.policy_class.__module__, subject.policy_class.__qualname__
    if module == "__main__" or "<locals>" in name:
        return f"{NOT_HERE}: the class cannot be imported by another process"
    other_mode = "0" if os.environ.get("NUMBA_DISABLE_JIT") == "1" else "1"
    settings = subject.settings(3, 5) if callable(subject.settings) else subject.settings
    answer = subprocess.run(  # noqa: S603 - this Python, and the class that it was asked to check
        [sys.executable, "-m", "alphafair.checks.compiled", module, name, json.dumps(dict(settings))],
        env={**os.environ, "NUMBA_DISABLE_JIT": other_mode, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert answer.returncode == 0, f"the other process failed: {answer.stderr[-500:]}"
    assert answer.stdout.strip() == run_digest(subject, compiled=True), "they differ in some bit"
    return None


def one_compiled_signature(subject: Subject) -> str | None:
    policy = subject.trained()
    found: list[Any] = [policy.kernels.draw, policy.kernels.learn] if policy.kernels else []
    kernels = [kernel for kernel in found if hasattr(kernel, "signatures")]
    if not kernels:
        return f"{NOT_HERE}: the policy has no kernels, or they run interpreted"
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
