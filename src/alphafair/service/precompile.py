"""Compile the kernels of policies before the first request needs them.

Machine code on disk (`NUMBA_CACHE_DIR`) is loaded, the rest is compiled. A kind of policy that comes into use later
starts interpreted while another process compiles it: see `alphafair.jit`. `python -m alphafair.service.precompile`
compiles all kinds, with and without groups; an image is built with it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from alphafair import jit
from alphafair.algorithms import POLICIES, BasePolicy
from alphafair.engine import Engine, Mismatch, Unavailable
from alphafair.groups import Groups
from alphafair.values import Feedback

ARMS = ("a", "b")


class Kind(NamedTuple):
    """Policies that share their kernels."""

    policy: str
    feedback: str
    with_groups: bool


DEFAULT = Kind("alpha-fair-adaptive", Feedback.BANDIT.value, with_groups=False)


def kinds_in_use(engine: Engine) -> set[Kind]:
    """The default kind and those of the experiments, if the file can be read."""
    found = {DEFAULT}
    with suppress(Mismatch, Unavailable):
        for status in map(engine.experiment, engine.experiments()):
            found.add(Kind(status.policy, status.feedback, status.groups is not None))
    return found


def every_kind() -> Iterator[Kind]:
    """All kinds of the registered policies."""
    for name, registered in POLICIES.items():
        some = registered(1, len(ARMS), **next(iter(registered.traits.variants(1, len(ARMS)).values())))
        for feedback in registered.traits.feedbacks or (some.feedback,):
            for with_groups in (False,) if some.groups is None else (False, True):
                yield Kind(name, feedback.value, with_groups)


def precompile(kinds: Iterable[Kind] = (DEFAULT,)) -> None:
    """Decide and learn once with each registered kind, in a temporary file."""
    if jit.mode() == "off":
        return
    with tempfile.TemporaryDirectory() as folder, Engine.open(Path(folder) / "precompile.db") as engine:
        for kind in kinds:
            for number, policy in enumerate(_policies(kind)):
                policy._bundle.switch()
                name = f"{'-'.join(map(str, kind))} {number}"
                engine.create(name, arms=ARMS, start=policy.snapshot(), contexts=["anybody"])
                reward = dict.fromkeys(ARMS, 0.5) if policy.feedback is Feedback.FULL else 0.5
                engine.reward(engine.decide(name, "anybody").id, reward)
                engine.decide(name, "anybody", available=ARMS[:1])


def _policies(kind: Kind) -> Iterator[BasePolicy]:
    """Small policies of a kind, one per variant that may have kernels of its own."""
    registered: Any = POLICIES.get(kind.policy)
    groups = {"groups": Groups(ARMS, pull_floor={ARMS[0]: 0.1})} if kind.with_groups else {}
    for settings in registered.traits.variants(1, len(ARMS)).values() if registered is not None else ():
        policy = registered(1, len(ARMS), **settings, **groups)
        if policy.feedback.value == kind.feedback:
            yield policy


if __name__ == "__main__":
    precompile(every_kind())
