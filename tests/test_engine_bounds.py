"""Bounded work: what a request costs depends on the request, not on how much is in the file or how many labels."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from alphafair import Engine
from alphafair.engine import Refused

ARMS = tuple(f"arm {k}" for k in range(400))


class CountingLabel(str):
    """A label that counts how often it is compared."""

    comparisons = 0

    def __eq__(self, other: object) -> bool:
        CountingLabel.comparisons += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with Engine.open(tmp_path / "shop.db", seed=1) as engine:
        yield engine


def counting() -> list[CountingLabel]:
    CountingLabel.comparisons = 0
    return [CountingLabel(arm) for arm in ARMS]


def test_available_arms_are_found_without_going_through_all_arms(engine: Engine) -> None:
    engine.create("home", arms=ARMS, policy="uniform")
    assert engine.decide("home", "v", available=counting()).arm in ARMS
    assert CountingLabel.comparisons <= 2 * len(ARMS)


def test_rewards_by_label_are_found_without_going_through_all_arms(engine: Engine) -> None:
    engine.create("home", arms=ARMS, policy="hedge")
    receipt = engine.decide("home", "v")
    assert engine.reward(receipt.id, dict.fromkeys(counting(), 0.5)).outcome == "applied"
    assert CountingLabel.comparisons <= 4 * len(ARMS)
    with pytest.raises(Refused, match="Missing"):
        engine.reward(receipt.id, dict.fromkeys(counting()[:-1], 0.5))
    assert CountingLabel.comparisons <= 4 * len(ARMS)


def test_masks_know_arms_that_left_and_those_that_come(engine: Engine) -> None:
    """Against sets of labels, while arms come, go, and are masked."""
    rng = random.Random(3)
    engine.create("home", arms=ARMS[:5], policy="uniform")
    here, masked = set(ARMS[:5]), set[str]()
    for arm in ARMS[5:40]:
        engine.add_arm("home", arm)
        here.add(arm)
        if len(here) > 4 and rng.random() < 0.7:
            left = rng.choice(sorted(here))
            engine.retire_arm("home", left)
            here.discard(left)
        toggled = rng.choice(sorted(here))
        (engine.unmask_arm if toggled in masked else engine.mask_arm)("home", toggled)
        masked ^= {toggled}
        asked = rng.sample(ARMS[: int(arm.split()[1]) + 1], 4)
        playable = {*asked} & here - masked
        mask_of = engine._experiments["home"].mask
        if playable:
            mask = mask_of(asked)
            assert mask is not None
            assert {ARMS[k] for k in np.flatnonzero(mask)} == playable
        else:
            with pytest.raises(Refused, match="at least one arm"):
                mask_of(asked)
        if masked & here and here - masked:
            mask = mask_of(None)
            assert mask is not None
            assert {ARMS[k] for k in np.flatnonzero(mask)} == here - masked


@pytest.mark.parametrize("available", [[3], ["arm 1", None], [["arm 1"]], [{}], ["arm 400"], ["arm 1", "x" * 100_000]])
def test_an_available_arm_that_is_none_is_named_in_short(engine: Engine, available: Any) -> None:
    engine.create("home", arms=["é" * 199 + chr(97 + k) for k in range(20)])
    with pytest.raises(Refused) as refusal:
        engine.decide("home", "v", available=available)
    assert refusal.value.code == "unknown_arm"
    assert len(str(refusal.value)) < 500
