"""Descriptions of experiments: each is made on its own, and one that cannot be made takes no other with it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from alphafair.engine import Mismatch, RequestError, Unavailable
from alphafair.engine.memory import reason_of
from alphafair.errors import PolicyFailed
from alphafair.service.errors import Failure
from alphafair.service.logs import log
from alphafair.service.messages import Problem

Result = TypeVar("Result")
KEPT: Final = 60.0  # seconds until a problem is forgotten, if nobody meets it again
REPAIR: Final = "It is a defect: the service's log has the details, please report it. Decisions and rewards are served."


class NotDescribed(Failure):
    """The failure of a request for what cannot be made of an experiment."""

    def __init__(self, name: str, reason: str) -> None:
        message = f"The experiment {name!r} cannot be described: {reason}."
        super().__init__(503, Problem("not_described", message, "experiment", REPAIR))


class Descriptions:
    """What cannot be described, and why, until it can be."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._problems: dict[tuple[str, str], tuple[str, float]] = {}  # by experiment and kind: the reason, and when

    @property
    def problems(self) -> dict[str, str]:
        """By experiment, the reason why something cannot be made of it."""
        after = self._clock() - KEPT
        known = list(self._problems.items())
        return {name: f"describing it failed: {reason}" for (name, _), (reason, at) in known if at > after}

    def of(self, name: str, kind: str, describe: Callable[[str], Result]) -> Result:
        """Describe one experiment; what fails is logged once, and is its problem for a while or until it succeeds."""
        try:
            found = describe(name)
        except Exception as problem:
            if not _is_its_own(problem):
                raise
            now, reason = self._clock(), reason_of(problem)
            before = self._problems.get((name, kind))
            if before is None or now - before[1] >= KEPT:
                fields = {"experiment": name, "kind": kind}
                log(logging.ERROR, "an experiment cannot be described", exc_info=problem, **fields)
            self._problems[name, kind] = reason, now
            raise NotDescribed(name, reason) from problem
        self._problems.pop((name, kind), None)
        return found

    def of_all(self, names: Iterable[str], kind: str, describe: Callable[[str], Result]) -> dict[str, Result | None]:
        """Describe many, by name; None stands for those that cannot be described."""
        found: dict[str, Result | None] = {}
        for name in names:
            try:
                found[name] = self.of(name, kind, describe)
            except NotDescribed:
                found[name] = None
        return found


def _is_its_own(problem: Exception) -> bool:
    """Whether a problem is that of one experiment: not of the store, and no refusal by a closed engine."""
    if isinstance(problem, RequestError):
        return isinstance(problem, PolicyFailed)
    return not isinstance(problem, Unavailable | Mismatch | MemoryError)
