"""Machine code made beforehand: `python -m alphafair.compile NAME ...`, the same as `alphafair compile`.

A name is that of a policy, or the one under which a process that runs interpreted has asked for it, with its feedback
and what its kernels must be able to do: `alpha-fair-adaptive`, `alpha-fair-adaptive+bandit`, `alpha-fair+full+groups`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

GROUPS = {"labels": ["a", "a", "b"], "pull_floor": {"a": 0.1}}


def compile_policy(name: str) -> None:
    """Compile what decisions, updates, simulations and logs of one kind of policy need, and keep it on disk."""
    from alphafair import simulate
    from alphafair.run import over_full_log, over_log
    from alphafair.types import Feedback, Stream

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
    from alphafair.types import Feedback

    kind_name, _, rest = name.partition("+")
    feedback, _, flags = rest.partition("+")
    kind = POLICIES[kind_name]
    wanted = {*flags.split("-")} if flags else set()
    settings: dict[str, Any] = {}
    if "groups" in wanted:
        settings["groups"] = Groups(**GROUPS)
    if "features" in wanted:
        settings["n_features"] = 2
    if "readings" in wanted:
        settings["marginal"] = "after"
    if kind_name == "fair-cb":
        settings["horizon"] = 1000
    for each in kind.feedbacks or (None,):
        if each is None or not feedback or Feedback(feedback) is each:
            yield kind(1, 3, **settings, **({} if each is None else {"feedback": each.value}))


if __name__ == "__main__":
    os.environ["ALPHAFAIR_JIT"] = "now"
    for each in sys.argv[1:]:
        compile_policy(each)
