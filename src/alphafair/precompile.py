"""Compile policies ahead of time: `python -m alphafair.precompile NAME ...`, the same as `alphafair compile`.

A name is a policy, optionally followed by its feedback and by flags of its kernels: `alpha-fair-adaptive`,
`alpha-fair-adaptive+bandit`, `alpha-fair+full+groups`. A process that still runs interpreted starts this module in a
helper process under such a name.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from alphafair import jit


def compile_policy(name: str) -> None:
    """Compile the kernels for decisions, updates, simulations and logs of one kind of policy, into the disk cache."""
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


class Target(NamedTuple):
    """What a name stands for: a policy class, a kind of feedback ("" for all), and flags of its kernels."""

    kind: Any
    feedback: str
    flags: frozenset[str]


def parse(name: str) -> Target:
    """Read `POLICY[+FEEDBACK[+FLAG-FLAG...]]`.

    >>> parse("alpha-fair+full+groups").flags
    frozenset({'groups'})
    """
    from alphafair import POLICIES, validate
    from alphafair.errors import InvalidArgument

    policy, _, rest = name.partition("+")
    feedback, _, listed = rest.partition("+")
    kind: Any = POLICIES[validate.choice("policy", policy, POLICIES)]
    feedbacks = [each.value for each in kind.traits.feedbacks or (kind.feedback,)]
    if rest:
        validate.choice(f"feedback in {name!r}", feedback, feedbacks)
    algorithms = kind.algorithm.values() if isinstance(kind.algorithm, Mapping) else [kind.algorithm]
    known = sorted({flag.lower() for algorithm in algorithms for flag in algorithm.flags})
    flags = frozenset(listed.split("-")) if listed else frozenset()
    for flag in sorted(flags):
        if not known:
            raise InvalidArgument(f"flags in {name!r}", f"left out: {policy} has none", flag, f"Pass {policy}.")
        validate.choice(f"flag in {name!r}", flag, known)
    return Target(kind, feedback, flags)


def _policies(name: str) -> Iterator[Any]:
    """Make a small policy for every kind of feedback that a name stands for."""
    from alphafair import Groups

    kind, feedback, flags = parse(name)
    settings: dict[str, Any] = {}
    if "groups" in flags:
        settings["groups"] = Groups(["a", "a", "b"], pull_floor={"a": 0.1})
    if "features" in flags:
        settings["n_features"] = 2
    if "welfare" in flags:
        settings["alpha"] = 2.0
    if "readings" in flags:
        settings["marginal"] = "after"
    if kind.name == "fair-cb":
        settings["horizon"] = 1000
    for each in kind.traits.feedbacks or (None,):
        if each is None or feedback in ("", each.value):
            yield kind(1, 3, **settings, **({} if each is None else {"feedback": each.value}))


def names(policies: Iterable[str] = ()) -> list[str]:
    """Return what to compile for some policies, or for all: one name per kind of feedback."""
    from alphafair import POLICIES

    found = []
    for policy in policies or POLICIES:
        feedbacks = [each.value for each in parse(policy).kind.traits.feedbacks]
        found += [policy] if "+" in policy or not feedbacks else [f"{policy}+{each}" for each in feedbacks]
    return found


def compile_all(names: Iterable[str], advance: Callable[[int], None] = lambda n: None) -> None:
    """Compile into the disk cache, and call `advance(1)` after each; what is cached already is only loaded."""
    with jit.using_mode("now"):
        for name in names:
            compile_policy(name)
            advance(1)


def _give_up() -> None:
    os._exit(1)  # a thread cannot end the process otherwise; cache files are written atomically


if __name__ == "__main__":
    limit = threading.Timer(jit.HELPER_LIMIT, _give_up)
    limit.daemon = True
    limit.start()
    compile_all(sys.argv[1:])
