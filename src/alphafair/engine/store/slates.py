"""Slates, decisions of several arms, as the event log has them.

`decision.slate` is the number of arms that was asked for, as int32, and per slot the arm, as int32, and its probability
to be in the slate, as float64. Rewards are a float64 per slot, NaN where there is none.
"""

from __future__ import annotations

import math
import struct
from typing import Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from alphafair.errors import Mismatch

_ASKED: Final = struct.Struct("<i")
_SLOT: Final = np.dtype([("arm", "<i4"), ("propensity", "<f8")])


class Slate(NamedTuple):
    """The shown arms in the order of their slots, and the probability of each to be among them."""

    asked: int  # how many arms were asked for; fewer are shown where fewer were available
    arms: tuple[int, ...]
    propensities: tuple[float, ...]

    def to_bytes(self) -> bytes:
        slots = np.array([*zip(self.arms, self.propensities, strict=True)], dtype=_SLOT)
        return _ASKED.pack(self.asked) + slots.tobytes()

    @classmethod
    def from_bytes(cls, blob: bytes) -> Self:
        if len(blob) <= _ASKED.size or (len(blob) - _ASKED.size) % _SLOT.itemsize:
            raise Mismatch(f"A slate of {len(blob)} bytes is not one that was written.")
        slots = np.frombuffer(blob, _SLOT, offset=_ASKED.size)
        (asked,) = _ASKED.unpack_from(blob)
        return cls(asked, tuple(slots["arm"].tolist()), tuple(slots["propensity"].tolist()))

    @property
    def without_rewards(self) -> Rewards:
        """Rewards of a slate before any has arrived."""
        return np.full(len(self.arms), np.nan)


Rewards = NDArray[np.float64]


class SlateEvent(NamedTuple):
    """What an event did to a slate: its decision, its activation, or a settlement."""

    slate: Slate
    rewards: Rewards | None = None  # that a settlement brought
    before: Rewards | None = None  # that had arrived before a settlement

    @property
    def paid(self) -> list[tuple[int, float]]:
        """The arms that got a reward, and their rewards."""
        if self.rewards is None:
            return []
        found = zip(self.slate.arms, self.rewards.tolist(), strict=True)
        return [(arm, reward) for arm, reward in found if not math.isnan(reward)]

    def about(self, *, paid: bool, unpaid: bool) -> list[tuple[int, float, float]]:
        """The arms, their probabilities and rewards; only those with a reward, or only those without one before."""
        rewards = [math.nan] * len(self.slate.arms) if self.rewards is None else self.rewards.tolist()
        found = list(zip(self.slate.arms, self.slate.propensities, rewards, strict=True))
        if paid:
            return [each for each in found if not math.isnan(each[2])]
        return [found[slot] for slot in self.unpaid] if unpaid else found

    @property
    def is_first(self) -> bool:
        """Whether no reward had arrived before."""
        return self.before is None or bool(np.isnan(self.before).all())

    @property
    def unpaid(self) -> list[int]:
        """The slots that were without a reward before the event."""
        return [*range(len(self.slate.arms))] if self.before is None else np.flatnonzero(np.isnan(self.before)).tolist()


def rewards_of(slate: Slate, blob: bytes | None) -> Rewards:
    """Return rewards as they are stored; NaN for all arms of a slate that was closed without any."""
    if blob is None:
        return slate.without_rewards
    if len(blob) != 8 * len(slate.arms):
        raise Mismatch(f"Rewards of {len(blob)} bytes are not those of a slate of {len(slate.arms)} arms.")
    return np.frombuffer(blob, dtype="<f8")


def joined(first: Rewards, second: Rewards) -> Rewards:
    """Return the rewards that either has."""
    return np.where(np.isnan(first), second, first)


def packed(rewards: Rewards) -> bytes:
    """Return rewards as they are stored."""
    return rewards.astype("<f8").tobytes()
