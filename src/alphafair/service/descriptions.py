"""Descriptions of experiments: each is made on its own, and one that cannot be made takes no other with it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TypeVar

from alphafair.engine import Mismatch, RequestError, Unavailable
from alphafair.engine.live import reason_of
from alphafair.errors import PolicyFailed
from alphafair.service.logs import log

Result = TypeVar("Result")


class Descriptions:
    """What cannot be described, and why, until it can be."""

    def __init__(self) -> None:
        self._problems: dict[tuple[str, str], str] = {}  # by experiment and what was made of it

    @property
    def problems(self) -> dict[str, str]:
        """By experiment, the reason why something cannot be made of it."""
        return {name: f"describing it failed: {reason}" for (name, _), reason in list(self._problems.items())}

    def of(self, name: str, kind: str, describe: Callable[[str], Result]) -> Result:
        """Describe one experiment; what fails is logged once, and kept as its problem until it succeeds."""
        try:
            found = describe(name)
        except Exception as problem:
            if _is_its_own(problem):
                if (name, kind) not in self._problems:
                    fields = {"experiment": name, "kind": kind}
                    log(logging.ERROR, "an experiment cannot be described", exc_info=problem, **fields)
                self._problems[name, kind] = reason_of(problem)
            raise
        self._problems.pop((name, kind), None)
        return found

    def of_all(self, names: Iterable[str], kind: str, describe: Callable[[str], Result]) -> dict[str, Result | None]:
        """Describe many, by name; None stands for those that cannot be described."""
        found: dict[str, Result | None] = {}
        for name in names:
            try:
                found[name] = self.of(name, kind, describe)
            except Exception as problem:
                if not _is_its_own(problem):
                    raise
                found[name] = None
        return found


def _is_its_own(problem: Exception) -> bool:
    """Whether a problem is that of one experiment: not of the store, and no refusal by a closed engine."""
    if isinstance(problem, RequestError):
        return isinstance(problem, PolicyFailed)
    return not isinstance(problem, Unavailable | Mismatch | MemoryError)
