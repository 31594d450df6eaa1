"""Names for decisions whose callers give none."""

from __future__ import annotations

import random
import secrets

SIZE, BLOCK = 12, 512  # bytes of an id, and ids made at a time


class NewIds:
    """Ids of 96 random bits, 24 hexadecimal digits: nobody can guess one, and none comes twice.

    Random numbers of the system are behind them, not those that draw arms, which could be inferred from many ids. A
    `seed` makes them repeatable, for tests.
    """

    def __init__(self, seed: int | None = None) -> None:
        self._bytes = secrets.token_bytes if seed is None else random.Random(f"ids of {seed}").randbytes  # noqa: S311 - for tests
        self._ready: list[str] = []

    def next(self) -> str:
        if not self._ready:
            digits = self._bytes(SIZE * BLOCK).hex()
            self._ready = [digits[k : k + 2 * SIZE] for k in range(0, len(digits), 2 * SIZE)]
        return self._ready.pop()
