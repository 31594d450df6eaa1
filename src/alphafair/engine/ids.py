"""Names for decisions whose callers give none."""

from __future__ import annotations

import itertools
import random
import secrets
import time

STAMP, SIZE, BLOCK = 4, 12, 512  # bytes of an id that follow the clock and that are random, and ids made at a time


class NewIds:
    """Ids of 32 hexadecimal digits: eight that follow the clock, and 96 random bits, which nobody can guess.

    Ids that are made together begin alike, so that they are neighbours in the index of ids, and a commit writes few
    pages of it; random ones are all over it. The random numbers are the system's, not those that draw arms, which could
    be inferred from many ids. A `seed` makes ids repeatable, for tests: they follow a counter then.
    """

    def __init__(self, seed: int | None = None) -> None:
        self._bytes = secrets.token_bytes if seed is None else random.Random(f"ids of {seed}").randbytes  # noqa: S311 - for tests
        self._blocks = None if seed is None else itertools.count()
        self._ready: list[str] = []

    def next(self) -> str:
        if not self._ready:
            moment = time.time_ns() >> 20 if self._blocks is None else next(self._blocks)  # about a millisecond
            stamp = f"{moment % 256**STAMP:0{2 * STAMP}x}"
            digits = self._bytes(SIZE * BLOCK).hex(" ", SIZE)
            self._ready = (stamp + digits.replace(" ", f" {stamp}")).split(" ")
        return self._ready.pop()
