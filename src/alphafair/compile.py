"""Machine code made beforehand: `python -m alphafair.compile NAME ...`, the same as `alphafair compile`.

A name is that of a policy, or the one under which a process that runs interpreted has asked for it, with its feedback
and what its kernels must be able to do: `alpha-fair-adaptive`, `alpha-fair-adaptive+bandit`, `alpha-fair+full+groups`.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from alphafair import jit


def compile_policy(name: str) -> None:
    """Compile what decisions, updates, simulations and logs of one kind of policy need, and keep it on disk."""
    from alphafair import simulate
    from alphafair.run import over_full_log, over_log
    from alphafair.values import Feedback, Stream

    contexts = np.zeros(3, dtype=np.int32)
    rewards = np.array([[0.2, 0.4, 0.6]] * 3)
    for policy in _policies(name):
        full = policy.feedback is Feedback.FULL
        features = None
        shown: dict[str, Any] = {}
        if policy.n_features:
            features = np.zeros((3, *policy.feature_shape))
            shown = {"features": features[0]}
        stream = Stream.from_arrays(contexts, rewards, features=features)
        policy.update(policy.choose(0, **shown), rewards[0] if full else 0.5)
        trace = simulate(policy, stream, log=True)
        simulate(policy, stream, delay=1)
        if full:
            over_full_log(policy, contexts, np.full((3, 3), 1 / 3), rewards, features)
        elif trace.log is not None:
            over_log(policy, trace.log)
        policy._bundle.mark_on_disk()


def _policies(name: str) -> Iterator[Any]:
    """Those that a name stands for."""
    from alphafair import POLICIES, Groups
    from alphafair.values import Feedback

    kind_name, _, rest = name.partition("+")
    feedback, _, flags = rest.partition("+")
    kind: Any = POLICIES[kind_name]
    wanted = {*flags.split("-")} if flags else set()
    settings: dict[str, Any] = {}
    if "groups" in wanted:
        settings["groups"] = Groups(["a", "a", "b"], pull_floor={"a": 0.1})
    if "features" in wanted:
        settings["n_features"] = 2
    if "readings" in wanted:
        settings["marginal"] = "after"
    if kind_name == "fair-cb":
        settings["horizon"] = 1000
    for each in kind.traits.feedbacks or (None,):
        if each is None or not feedback or Feedback(feedback) is each:
            yield kind(1, 3, **settings, **({} if each is None else {"feedback": each.value}))


def names(policies: Iterable[str] = ()) -> list[str]:
    """What to compile for some policies, or for all: one name per kind of feedback."""
    from alphafair import POLICIES, validate

    found = []
    for policy in policies or POLICIES:
        kind = validate.choice("policy", policy.partition("+")[0], POLICIES)
        feedbacks = [each.value for each in POLICIES[kind].traits.feedbacks]
        found += [policy] if "+" in policy or not feedbacks else [f"{policy}+{each}" for each in feedbacks]
    return found


def compile_all(names: Iterable[str], advance: Callable[[int], None] = lambda names: None) -> None:
    """Compile them into the cache; `advance` is told of each. Machine code that is there already is only loaded."""
    with jit.using_mode("now"):
        for name in names:
            compile_policy(name)
            advance(1)


def _give_up() -> None:
    os._exit(1)  # a thread cannot end the process otherwise; files are written whole or not at all


if __name__ == "__main__":
    limit = threading.Timer(jit.HELPER_LIMIT, _give_up)
    limit.daemon = True
    limit.start()
    compile_all(sys.argv[1:])
