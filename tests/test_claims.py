"""Claims: every one can hold, fail and stay open, and what decides is the difference seed by seed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from alphafair.experiments.claims import (
    ALPHA_FAIR,
    ALPHA_FAIR_BANDIT,
    FAILS,
    HOLDS,
    OPEN,
    PUBLISHED,
    RIVALS_A,
    SCALE_FREE,
    UNIFORM,
    Lead,
    claims,
    lead,
    verdict,
)
from alphafair.experiments.paper import FLOORS
from alphafair.types import Vector

N_SEEDS = 5
RANDOM = {"FairCB (bandit)", ALPHA_FAIR_BANDIT, SCALE_FREE, PUBLISHED, UNIFORM, *(f"bandit {nu:g}" for nu in FLOORS)}
BEST_FIRST = {
    "A": (ALPHA_FAIR, *reversed(RIVALS_A)),
    "B": (ALPHA_FAIR_BANDIT, SCALE_FREE),
    "floor_sweep": (ALPHA_FAIR, ALPHA_FAIR_BANDIT, *(f"{kind} {nu:g}" for kind in ("full", "bandit") for nu in FLOORS)),
    "sign": (ALPHA_FAIR_BANDIT, UNIFORM, PUBLISHED),
    "readings": ("before", "next_visit", "after"),
}


def by_seed(label: str, level: float, own: float, shared: Vector) -> Vector:
    """Two recorded rounds around a level: one row where nothing is random, else seeds that a noise tells apart."""
    if label not in RANDOM:
        return np.full((1, 2), level)
    noise = np.random.default_rng([len(label), *label.encode()]).normal(size=N_SEEDS)
    seeds = level + shared + own * noise
    return np.column_stack([seeds, seeds])


def results(*, turned: bool = False, own: float = 0.0, shared: float = 0.0) -> tuple[dict[str, Any], dict[str, Any]]:
    """Sections and samples: what the paper says, or all of it turned round; noise of each policy, and of each seed."""
    common = shared * np.random.default_rng(0).normal(size=N_SEEDS)
    samples: dict[str, Any] = {}
    for name, labels in BEST_FIRST.items():
        samples[name] = {}
        for rank, label in enumerate(labels):
            good = rank if turned else -rank

            def made(level: float, label: str = label) -> Vector:
                return by_seed(label, level, own, common)

            samples[name][label] = {
                "alpha_performance": made(9.0 + good),
                "jain_index": made(0.5 + good / 10),
                "standard_regret": made(5.0 - good),
                "approximate_regret": made(5.0 - good),
                "ratio": made(1.5 if turned else 1.1),
            }
    best, worst = np.array([0.9, 0.05, 0.05]), np.array([0.01, 0.02, 0.97])
    ours, theirs = (worst, best) if turned else (best, worst)
    noise = np.random.default_rng(1).normal(size=(N_SEEDS, 1))
    samples["toy"] = {
        ALPHA_FAIR_BANDIT: {"pull_shares": ours + own * noise},
        PUBLISHED: {"pull_shares": theirs + own * noise},
    }
    way = -1 if turned else 1
    sections = {
        "A": {"alpha": 0.9},
        "B": {"alpha": 0.9, "rounds": [5, 10], "n_rounds": 10},
        "C": {
            "alphas": [0.0, 0.5, 0.9],
            "jain_index": [0.1, 0.5, 0.9][::way],
            "average_reward": [9.0, 5.0, 1.0][::way],
        },
        "impossibility": {"ratios": [[1.1, 1.09 if turned else 1.03]], "limits": [1.03], "halves": [1, 2]},
        "sign": {"toy": {"arms": [0.9, 0.5, 0.1]}},
        "readings": {"alpha": 0.9},
    }
    return sections, samples


def verdicts(sections: dict[str, Any], samples: dict[str, Any]) -> dict[str, str]:
    return {claim["id"]: claim["verdict"] for claim in claims(sections, samples, "x")}


def test_every_claim_can_hold_and_fail() -> None:
    assert set(verdicts(*results()).values()) == {HOLDS}
    assert set(verdicts(*results(turned=True)).values()) == {FAILS}


def test_noise_leaves_open_what_is_random_and_nothing_else() -> None:
    found = verdicts(*results(own=100.0))
    exact = {"A6", "C1", "C2", "F1", "I1", "R1"}
    assert {name for name, word in found.items() if word == HOLDS} == exact
    assert {word for name, word in found.items() if name not in exact} == {OPEN}


def test_luck_of_the_seed_is_no_noise() -> None:
    """The same draws move both policies together: bands overlap widely, differences seed by seed do not."""
    found = verdicts(*results(own=0.001, shared=100.0))
    assert [found[name] for name in ("B1", "B2", "B3", "F2", "S2")] == [HOLDS] * 5
    assert found["A1"] == OPEN, "against a policy that is not random there is nothing to pair"


def test_a_lead_is_the_interval_of_the_paired_t_test() -> None:
    rng = np.random.default_rng(5)
    one, other = rng.normal(1.0, 1.0, 12), rng.normal(0.0, 1.0, 12)
    found = lead("", one - other)
    interval = stats.ttest_rel(one, other).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), rel=1e-12)
    assert lead("", [2.0]) == Lead("", 2.0, 2.0, 2.0)


@pytest.mark.parametrize(
    ("intervals", "word"),
    [
        ([(1.0, 2.0), (0.1, 0.2)], HOLDS),
        ([(1.0, 2.0), (-0.1, 0.2)], OPEN),
        ([(1.0, 2.0), (0.0, 0.2)], OPEN),
        ([(-1.0, 2.0), (-0.2, -0.1)], FAILS),
        ([(0.0, 0.0)], FAILS),
        ([(1e-300, 1e-300)], HOLDS),
    ],
)
def test_three_verdicts(intervals: list[tuple[float, float]], word: str) -> None:
    assert verdict(Lead("", (low + high) / 2, low, high) for low, high in intervals) == word


def test_scale_free_may_lead_early_but_not_late() -> None:
    for place, word in ((0, HOLDS), (1, FAILS)):
        sections, samples = results()
        samples["B"][SCALE_FREE]["jain_index"][:, place] = 0.95
        (claim,) = (claim for claim in claims(sections, samples, "x") if claim["id"] == "B3")
        assert claim["verdict"] == word
        assert f"its mean leads up to round {sections['B']['rounds'][place]}" in claim["measured"]
        assert len(claim["leads"]) == 1


def test_a_setback_is_not_monotone() -> None:
    sections, samples = results()
    sections["C"] |= {"jain_index": [0.1, 0.05, 0.9], "average_reward": [9.0, 9.01, 1.0]}
    found = verdicts(sections, samples)
    assert (found["C1"], found["C2"]) == (FAILS, HOLDS)


def test_leads_are_kept_as_numbers() -> None:
    """And the words say what they say: who is closest, by how much, on which data."""
    found = {claim["id"]: claim for claim in claims(*results(own=0.001), "ratings")}
    assert [one["what"] for one in found["A1"]["leads"]] == [f"{ALPHA_FAIR} above {rival}" for rival in RIVALS_A]
    assert [round(one["mean"], 1) for one in found["A1"]["leads"]] == [3.0, 2.0, 1.0]
    assert f"closest: {ALPHA_FAIR} above FairCB (full) by 1.00" in found["A1"]["measured"]
    assert {name for name, claim in found.items() if claim["data"] == "made here"} == {"I1", "S1"}
    assert {claim["data"] for claim in found.values()} == {"made here", "ratings"}
