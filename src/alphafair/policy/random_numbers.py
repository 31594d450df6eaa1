"""A policy's own random numbers."""

from typing import Any, Self

from alphafair import validate
from alphafair.errors import InvalidArgument


class RandomNumbers:
    """`generator.random()` one by one, drawn a block at a time for speed; `block` is what is left of one, reversed."""

    BLOCK = 256

    def __init__(self, seed: int | None) -> None:
        self.seed = seed
        self._generator = validate.random_generator("seed", seed)
        self._refill()

    def _refill(self) -> None:
        self._start = self._generator.bit_generator.state
        self.block: list[float] = self._generator.random(self.BLOCK)[::-1].tolist()

    def random(self) -> float:
        """The first number of a new block, where the last is used up."""
        self._refill()
        return self.block.pop()

    def state(self) -> dict[str, Any]:
        """All that is needed to go on from here."""
        return {"seed": self.seed, "generator": self._start, "used": self.BLOCK - len(self.block)}

    @classmethod
    def at(cls, state: Any) -> Self:
        """Going on from there."""
        try:
            numbers = cls(state["seed"])
            numbers._generator.bit_generator.state = state["generator"]
            numbers._refill()
            used = validate.integer("used", state["used"], low=0, high=cls.BLOCK)
            del numbers.block[cls.BLOCK - used :]
            return numbers
        except (TypeError, KeyError, ValueError) as problem:
            repair = "The snapshot is damaged."
            raise InvalidArgument("state.rng", "the state of a PCG64 generator", state, repair) from problem
