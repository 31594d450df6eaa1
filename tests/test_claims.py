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
    FOUND,
    HOLDS,
    OPEN,
    PAPER,
    PUBLISHED,
    RIVALS_A,
    SCALE_FREE,
    THEOREM,
    UNIFORM,
    Lead,
    claims,
    joint_leads,
    verdict,
)
from alphafair.experiments.paper import FLOORS
from alphafair.types import Vector

N_SEEDS = 5
SOURCES = (PAPER, THEOREM, FOUND)
RANDOM = {"FairCB (bandit)", ALPHA_FAIR_BANDIT, SCALE_FREE, PUBLISHED, UNIFORM, *(f"bandit {nu:g}" for nu in FLOORS)}
BEST_FIRST = {
    "A": (ALPHA_FAIR, UNIFORM, *reversed(RIVALS_A)),
    "B": (ALPHA_FAIR_BANDIT, UNIFORM, SCALE_FREE),
    "floor_sweep": (ALPHA_FAIR, ALPHA_FAIR_BANDIT, *(f"{kind} {nu:g}" for kind in ("full", "bandit") for nu in FLOORS)),
    "sign": (ALPHA_FAIR_BANDIT, UNIFORM, PUBLISHED),
    "readings": ("before", "next_visit", "after"),
}


def by_seed(label: str, random: bool, level: float, own: float, shared: Vector) -> Vector:
    """Two recorded rounds around a level: one row where nothing is random, else seeds that a noise tells apart."""
    if not random:
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

            random = label in RANDOM and (name, label) != ("A", UNIFORM)

            def made(level: float, label: str = label, random: bool = random) -> Vector:
                return by_seed(label, random, level, own, common)

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
    exact = {"A6", "A7", "C1", "C2", "F1", "I1", "R1"}
    assert {name for name, word in found.items() if word == HOLDS} == exact
    assert {word for name, word in found.items() if name not in exact} == {OPEN}


def test_luck_of_the_seed_is_no_noise() -> None:
    """The same draws move both policies together: bands overlap widely, differences seed by seed do not."""
    found = verdicts(*results(own=0.001, shared=100.0))
    assert [found[name] for name in ("B1", "B2", "B3", "B5", "F2", "S2")] == [HOLDS] * 6
    assert found["A1"] == OPEN, "against a policy that is not random there is nothing to pair"


def test_a_lead_is_the_interval_of_the_paired_t_test() -> None:
    """With 95%; of three of which two are random, those with 97.5% each."""
    rng = np.random.default_rng(5)
    one, other = rng.normal(1.0, 1.0, 12), rng.normal(0.0, 1.0, 12)
    for level, more in ((0.95, {}), (0.975, {"second": one, "exact": np.array([2.0])})):
        first, *rest = joint_leads({"": one - other, **more})
        interval = stats.ttest_rel(one, other).confidence_interval(level)
        assert (first.low, first.high) == pytest.approx((interval.low, interval.high), rel=1e-9)
    assert rest[-1] == Lead("exact", 2.0, 2.0, 2.0)


def test_many_rounds_are_no_proof_by_luck() -> None:
    """250 differences that are noise around a small lead: one interval of 95% lies below zero, all together do not."""
    sections, samples = results()
    sections["B"] |= {"rounds": [*range(1, 501)], "n_rounds": 500}
    noise = np.random.default_rng(3).normal(0.001, 0.01, (20, 500))
    samples["B"][ALPHA_FAIR_BANDIT]["jain_index"] = 0.5 + noise
    samples["B"][SCALE_FREE]["jain_index"] = np.full((20, 500), 0.5)
    assert (stats.ttest_1samp(noise[:, 250:], 0.0).confidence_interval(0.95).high < 0.0).any()
    assert verdicts(sections, samples)["B3"] == OPEN
    samples["B"][ALPHA_FAIR_BANDIT]["jain_index"][:, 300] -= 0.1
    assert verdicts(sections, samples)["B3"] == FAILS


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
    found = {claim["id"]: claim for claim in claims(sections, samples, "x")}
    assert (found["C1"]["verdict"], found["C2"]["verdict"]) == (FAILS, HOLDS)
    assert found["C1"]["measured"].endswith("largest step back 5.9% of the range")  # 0.05 of 0.85
    assert found["C2"]["measured"].endswith("largest step back 0.1% of the range")  # 0.01 of 8.01


def test_leads_are_kept_as_numbers() -> None:
    """And the words say what they say: who is closest, by how much, on which data."""
    found = {claim["id"]: claim for claim in claims(*results(own=0.001), "ratings")}
    assert [one["what"] for one in found["A1"]["leads"]] == [f"{ALPHA_FAIR} above {rival}" for rival in RIVALS_A]
    assert [round(one["mean"], 1) for one in found["A1"]["leads"]] == [4.0, 3.0, 2.0]
    assert f"closest: {ALPHA_FAIR} above FairCB (full) by 2.00" in found["A1"]["measured"]
    assert {name for name, claim in found.items() if claim["data"] == "made here"} == {"I1", "S1"}
    assert {claim["data"] for claim in found.values()} == {"made here", "ratings"}


def test_every_claim_has_a_source_and_none_is_counted_twice() -> None:
    found = claims(*results(), "x")
    by_source = {source: [claim["id"] for claim in found if claim["source"] == source] for source in SOURCES}
    assert by_source == {
        PAPER: ["A1", "A2", "A3", "A4", "A5", "B1", "B2", "B3", "C1", "C2"],
        THEOREM: ["A6", "B4", "I1", "R1"],
        FOUND: ["A7", "B5", "F1", "F2", "S1", "S2"],
    }
    assert [claim["id"] for claim in found if not claim["independent"]] == ["A2", "A3"]


@pytest.mark.parametrize("identity", ["A6", "B4", "R1"])
def test_what_uniform_play_passes_too_is_said(identity: str) -> None:
    """It stands beside the theorem's claims when it ends below the limit, and not when it does not."""
    for ratio, passes in ((1.1, True), (1.3, False)):
        sections, samples = results()
        for name in ("A", "B"):
            samples[name][UNIFORM]["ratio"][:] = ratio
        (claim,) = (claim for claim in claims(sections, samples, "x") if claim["id"] == identity)
        assert claim["verdict"] == HOLDS
        assert f"{UNIFORM} {ratio:.4f}" in claim["measured"]
        assert claim["measured"].endswith("; uniform play passes this too") == passes


def test_floors_are_those_that_were_tried() -> None:
    found = {claim["id"]: claim["claim"] for claim in claims(*results(), "x")}
    for identity in ("F1", "F2"):
        assert f"at each of the {len(FLOORS)} floors" in found[identity]
        assert found[identity].endswith("from 0.05/N up to 0.999/N.")
