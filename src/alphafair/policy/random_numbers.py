"""The random numbers of a policy: one uniform number per decision, drawn in blocks."""

from __future__ import annotations

from typing import Any, Self

from alphafair import validate
from alphafair.errors import InvalidArgument
from alphafair.policy.memory import DAMAGED


class RandomNumbers:
    """The random numbers of a policy, drawn in blocks for speed; `block` is the unused rest of one, reversed."""

    BLOCK = 256

    def __init__(self, seed: int | None) -> None:
        self.seed = seed
        self._generator = validate.random_generator("seed", seed)
        self._refill()

    def _refill(self) -> None:
        self._start = self._generator.bit_generator.state
        self.block: list[float] = self._generator.random(self.BLOCK)[::-1].tolist()

    def random(self) -> float:
        """Return the first number of a new block."""
        self._refill()
        return self.block.pop()

    def next(self) -> float:
        """Return the next number."""
        return self.block.pop() if self.block else self.random()

    def state(self) -> dict[str, Any]:
        """Return the state, for a snapshot."""
        return {"seed": self.seed, "generator": self._start, "used": self.BLOCK - len(self.block)}

    @classmethod
    def at(cls, state: Any) -> Self:
        """Continue from a state."""
        try:
            numbers = cls(state["seed"])
            numbers._generator.bit_generator.state = state["generator"]
            numbers._refill()
            used = validate.integer("used", state["used"], low=0, high=cls.BLOCK)
            del numbers.block[cls.BLOCK - used :]
            return numbers
        except (TypeError, KeyError, ValueError, OverflowError) as problem:
            raise InvalidArgument("state.rng", "the state of a PCG64 generator", state, DAMAGED) from problem
