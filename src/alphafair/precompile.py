"""Compile kernels ahead of time: what `alphafair compile` does, and the helper of a process that runs interpreted."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import as_completed
from itertools import combinations
from typing import Any, cast

import numpy as np

from alphafair import jit, validate
from alphafair.errors import InvalidArgument
from alphafair.executors import ProcessPool
from alphafair.groups import Groups
from alphafair.jit import Kernels
from alphafair.values import Policy

NEEDED: dict[str, dict[str, Any]] = {  # settings of policies that need the branches of a flag
    "groups": {"groups": Groups(["a", "a", "b"], pull_floor={"a": 0.1})},
    "features": {"n_features": 2},
    "welfare": {"alpha": 2.0},
    "sides": {"context_weight": 0.25},
}
# flags of kernels that are compiled only where they are used: decisions of several arms, decisions of others, and
# contexts as a second side
SLATES, OTHERS, SIDES = "slates", "others", "sides"


def parse(name: str, *, slates: bool = False, others: bool = False) -> list[Kernels]:
    """Read `POLICY`, all kernels of a policy, or `POLICY+FEEDBACK[+FLAG-FLAG...]`, some of them.

    >>> parse("alpha-fair+full+groups")
    [Kernels(policy='alpha-fair', feedback='full', flags=frozenset({'groups'}))]
    """
    policy, _, rest = name.partition("+")
    feedback, _, listed = rest.partition("+")
    known = kernels_of(policy)
    if not rest:
        return kernels_of(policy, slates=slates, others=others)
    validate.choice(f"feedback in {name!r}", feedback, dict.fromkeys(each.feedback for each in known))
    flags = sorted({flag for each in known for flag in each.flags if each.feedback == feedback})
    flags += [SLATES] if _kind(policy).traits.slates else []
    flags += [flag for flag in (OTHERS, SIDES) if flag.upper() in _algorithm(policy, feedback).flags]
    for flag in listed.split("-") if listed else ():
        if not flags:
            raise InvalidArgument(f"flags in {name!r}", f"left out: {policy} has none", flag, f"Pass {policy}.")
        validate.choice(f"flag in {name!r}", flag, flags)
    return [Kernels(policy, feedback, frozenset(listed.split("-")) if listed else frozenset())]


def kernels_of(policy: str, *, slates: bool = False, others: bool = False) -> list[Kernels]:
    """Return the kernels of a policy: of every kind of feedback, with every combination of flags but the three above.

    With `slates` those of slates too, with `others` those of policies that have observed decisions of others.
    """
    kind: Any = _kind(policy)
    found = []
    for feedback in kind.traits.feedbacks or (kind.feedback,):
        flags = sorted({flag.lower() for flag in _algorithm(policy, feedback).flags} & {*NEEDED} - {SIDES})
        for n in range(len(flags) + 1):
            found += [Kernels(policy, feedback.value, frozenset(chosen)) for chosen in combinations(flags, n)]
    if others:
        found += [
            each._replace(flags=each.flags | {OTHERS})
            for each in found
            if OTHERS.upper() in _algorithm(policy, each.feedback).flags
        ]
    if slates and kind.traits.slates:
        found += [each._replace(flags=each.flags | {SLATES}) for each in found]
    return found


def _kind(policy: str) -> type[Policy]:
    """Return a class by its name; those of `alphafair.notions` are imported only where they are asked for."""
    from alphafair import POLICIES

    if policy in POLICIES:
        return POLICIES[policy]
    from alphafair.notions import find

    return find(policy)


def _algorithm(policy: str, feedback: str) -> Any:
    """Return the algorithm of a policy for one kind of feedback."""
    chosen: Any = cast(Any, _kind(policy)).algorithm
    return chosen[feedback] if isinstance(chosen, Mapping) else chosen


def every_kernel(*, slates: bool = False, others: bool = False) -> list[Kernels]:
    """Return the kernels of all registered policies."""
    from alphafair import POLICIES

    return [kernels for policy in POLICIES for kernels in kernels_of(policy, slates=slates, others=others)]


def small_policy(kernels: Kernels) -> Any:
    """Return a policy of one context and three arms that runs on these kernels."""
    kind: Any = _kind(kernels.policy)
    settings = dict(next(iter(kind.traits.variants(1, 3).values())))
    if kind.traits.feedbacks:
        settings["feedback"] = kernels.feedback
    for flag in kernels.flags - {SLATES, OTHERS}:
        settings |= NEEDED[flag]
    if {SLATES, "groups"} <= kernels.flags:  # which floors of groups do not go with
        settings["groups"] = Groups(["a", "a", "b"], pull_floor=0.1)
    policy = kind(1, 3, **settings)
    if OTHERS in kernels.flags:
        policy.observe(0, 0, 0.5, np.zeros(policy.feature_shape) if policy.n_features else None)
    return policy


def compile_kernels(kernels: Kernels) -> None:
    """Compile the kernels for decisions, updates, simulations and logs, in this process and into the disk cache."""
    from alphafair import simulate
    from alphafair.run import over_full_log, over_log
    from alphafair.values import Feedback, Stream

    if jit.mode() == "off":
        return
    policy = small_policy(kernels)
    policy.stepper.bundle.switch()
    if SLATES in kernels.flags:
        compile_slates(policy)
        return
    contexts, rewards = np.zeros(3, dtype=np.int32), np.array([[0.2, 0.4, 0.6]] * 3)
    full, features, shown = policy.feedback is Feedback.FULL, None, dict[str, Any]()
    if policy.n_features:
        features = np.zeros((3, *policy.feature_shape))
        shown = {"features": features[0]}
    stream = Stream.from_arrays(contexts, rewards, features=features)
    policy.update(policy.choose(0, **shown), rewards[0] if full else 0.5)
    late = policy.choose(0, available=[True, True, False], **shown)
    policy.expect(late)
    policy.forgo(late)
    policy.update(late, rewards[0] if full else 0.5)
    policy.probabilities(0, **shown)
    if OTHERS in kernels.flags:
        policy.observe(0, 0, 0.5, **shown)
    trace = simulate(policy, stream, log=True)
    simulate(policy, stream, delay=1)
    if full:
        over_full_log(policy, contexts, np.full((3, 3), 1 / 3), rewards, features)
    elif trace.log is not None:
        over_log(policy, trace.log)
    policy.stepper.bundle.mark_on_disk()


def compile_slates(policy: Any) -> None:
    """The same for decisions of several arms."""
    from alphafair import simulate
    from alphafair.run import over_log
    from alphafair.values import Feedback, Stream

    policy.stepper.slate_bundle.switch()
    contexts, rewards = np.zeros(3, dtype=np.int32), np.array([[0.2, 0.4, 0.6]] * 3)
    features = np.zeros((3, *policy.feature_shape)) if policy.n_features else None
    described = {} if features is None else {"features": features[0]}
    full = policy.feedback is Feedback.FULL
    policy.update(policy.choose(0, k=2, **described), rewards[0] if full else [0.5, 0.5])
    late = policy.choose(0, k=2, available=[True, True, False], **described)
    policy.expect(late)
    policy.forgo(late)
    policy.update(late, rewards[0] if full else {late.arms[0]: 0.5})
    policy.probabilities(0, k=2, **described)
    trace = simulate(policy, Stream.from_arrays(contexts, rewards, features=features), k=2, log=True)
    if not full and trace.log is not None:
        over_log(policy, trace.log)
    policy.stepper.slate_bundle.mark_on_disk()


def compile_all(wanted: Sequence[Kernels], advance: Callable[[int], None] = lambda n: None) -> None:
    """Compile into the disk cache, in one process per core, and call `advance(1)` after each.

    What is cached already is only loaded.
    """
    if len(wanted) == 1:
        compile_kernels(wanted[0])
        advance(1)
        return
    with ProcessPool(min(len(wanted), os.cpu_count() or 1)) as pool:
        for done in as_completed([pool.submit(compile_kernels, kernels) for kernels in wanted]):
            done.result()
            advance(1)
