"""What random searches have in common: numbered cases, the story of each, and a command line.

The same number gives the same case. Whatever is refused is refused by the name of an argument that was passed, and no
other error and no warning of NumPy escapes.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

import numpy as np

from alphafair import InvalidArgument

LEAST = 5e-324  # the smallest positive float


class Failure(AssertionError):
    """What was found, with the calls that lead there."""


def log_uniform(rng: np.random.Generator, low: float, high: float, size: Any = None) -> Any:
    return np.exp(rng.uniform(math.log(low), math.log(high), size))


class Case:
    """Random arguments, what is made of them, and what must be true of it; a subclass has its kinds."""

    kinds: ClassVar[Mapping[str, Callable[[Any], None]]]

    def __init__(self, number: int, kind: str | None = None, *, size: float = 1.0, verbose: bool = False) -> None:
        self.number, self.size, self.verbose = number, size, verbose
        self.rng = np.random.default_rng([number, 21])
        names = [*self.kinds]
        self.kind = kind or names[number % len(names)]
        self.story: list[str] = []

    def run(self) -> None:
        """Failure if anything is wrong."""
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                self.kinds[self.kind](self)
            except Failure:
                raise
            except Exception as problem:
                raise self.failure(f"{type(problem).__name__}: {problem}\n{traceback.format_exc(limit=-5)}") from None

    def failure(self, what: str) -> Failure:
        calls = "\n".join(f"  {k}: {line}" for k, line in enumerate(self.story))
        return Failure(f"case {self.number}, {self.kind}\n{calls}\n{what}")

    def expect(self, holds: Any, what: str) -> None:
        if not bool(holds):
            raise self.failure(what)

    def note(self, line: str) -> None:
        self.story.append(line)
        if self.verbose:
            print(f"{len(self.story) - 1}: {line}", flush=True)

    def ask(self, call: Callable[[], Any], *named: str) -> Any:
        """What a call returns; None where it is refused by one of these names."""
        try:
            return call()
        except InvalidArgument as refusal:
            self.expect(refusal.argument.split("[")[0] in named, f"refused for no good reason: {refusal}")
            self.story[-1] += f" -> {refusal}"
            return None


def cases(first: int, count: int | None, seconds: float) -> Iterator[int]:
    started, number = time.monotonic(), first
    while (count is None or number < first + count) and time.monotonic() - started < seconds:
        yield number
        number += 1


def search(
    case: type[Case], first: int, count: int | None, seconds: float, kind: str | None, size: float, *, verbose: bool
) -> int:
    """Try cases one after the other; print what fails. How many did."""
    started, n_tried, n_failed = time.monotonic(), 0, 0
    for number in cases(first, count, seconds):
        n_tried += 1
        try:
            case(number, kind, size=size, verbose=verbose).run()
        except Exception as failure:
            n_failed += 1
            print(f"{failure if isinstance(failure, Failure) else traceback.format_exc()}\n", flush=True)
    print(f"{n_tried} cases from {first} on, {n_failed} failed, {time.monotonic() - started:.0f} s", flush=True)
    return n_failed


def main(case: type[Case], description: str | None) -> None:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="stop after so many seconds")
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--count", type=int, help="so many cases; by default as many as there is time for")
    parser.add_argument("--size", type=float, default=1.0, help="times as large cases")
    parser.add_argument("--kind", choices=[*case.kinds], help="one kind; by default all by turns")
    parser.add_argument("--verbose", "-v", action="store_true", help="print every call before it is made")
    said = parser.parse_args()
    failed = search(case, said.first, said.count, said.seconds, said.kind, said.size, verbose=said.verbose)
    sys.exit(1 if failed else 0)
