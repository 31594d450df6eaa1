"""Claims: each can hold, fail and stay undecided, by the differences paired by seed."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
from scipy import stats

from alphafair.lab.claims import (
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
    claims,
    undecidable,
    verdict,
)
from alphafair.lab.measure import Samples, joint_intervals
from alphafair.lab.paper import FLOORS
from alphafair.lab.results import Claim, Experiments
from alphafair.values import Interval, Matrix, Vector
from tests.made_up_results import made_up_results, value

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


class Given(NamedTuple):
    """What claims are made from."""

    experiments: Experiments
    samples: dict[str, Samples]

    def claims(self, data: str = "x") -> dict[str, Claim]:
        return {claim.id: claim for claim in claims(*self, data)}

    def verdicts(self) -> dict[str, str]:
        return {name: claim.verdict for name, claim in self.claims().items()}


def given(*, turned: bool = False, own: float = 0.0, shared: float = 0.0) -> Given:
    """What the paper says, or all of it turned round; noise of each policy, and of each seed."""
    common = shared * np.random.default_rng(0).normal(size=N_SEEDS)
    samples: dict[str, Samples] = {}
    for name, labels in BEST_FIRST.items():
        samples[name] = {}
        for rank, label in enumerate(labels):
            good = rank if turned else -rank
            random = label in RANDOM and (name, label) != ("A", UNIFORM)

            def made(level: float, label: str = label, random: bool = random) -> Vector:
                return by_seed(label, random, level, own, common)

            samples[name][label] = {
                "pull_shares": np.full((N_SEEDS, 19), 1 / 19),
                "alpha_performance": made(999.0 + good),
                "jain_index": made(0.5 + good / 10),
                "average_reward": made(0.0),
                "standard_regret": made(5.0 - good),
                "approximate_regret": made(5.0 - good),
                "ratio": made(1.5 if turned else 1.1),
            }
    best, worst = np.array([0.9, 0.05, 0.05]), np.array([0.01, 0.02, 0.97])
    ours, theirs = (worst, best) if turned else (best, worst)
    noise = np.random.default_rng(1).normal(size=(N_SEEDS, 1))
    shares = {ALPHA_FAIR_BANDIT: ours + own * noise, PUBLISHED: theirs + own * noise}
    samples["toy"] = {label: {"pull_shares": each} for label, each in shares.items()}
    way = -1 if turned else 1
    base = value(made_up_results()).experiments
    experiments = replace(
        base,
        B=replace(base.B, rounds=(5, 10), n_rounds=10),
        C=replace(
            base.C,
            alphas=(0.0, 0.5, 0.9),
            jain_index=np.array([0.1, 0.5, 0.9])[::way],
            average_reward=np.array([9.0, 5.0, 1.0])[::way],
        ),
        impossibility=replace(
            base.impossibility,
            ratios=np.array([[1.1, 1.09 if turned else 1.03]]),
            limits=np.array([1.03]),
            halves=(1, 2),
        ),
    )
    return Given(experiments, samples)


def changed(found: Given, name: str, label: str, **metrics: Matrix) -> None:
    """With other numbers of one policy."""
    found.samples[name][label] |= metrics


RIVALS_END = "Hedge 995.00, FairCB (bandit) 996.00, FairCB (full) 997.00"
MEASURED = {  # of `given()`: the best of each experiment at 999, others one point apart, and no noise
    "A1": f"{ALPHA_FAIR} 999.00, {RIVALS_END}; closest: {ALPHA_FAIR} above FairCB (full) by 2.00",
    "A2": f"{ALPHA_FAIR} 5.00, Hedge 9.00, FairCB (bandit) 8.00, FairCB (full) 7.00; closest: {ALPHA_FAIR} below "
    "FairCB (full) by 2.00",
    "A4": f"{ALPHA_FAIR} 0.500, Hedge 0.100, FairCB (bandit) 0.200, FairCB (full) 0.300; closest: {ALPHA_FAIR} above "
    "FairCB (full) by 0.200",
    "A5": "closest: Hedge below FairCB (bandit) in \u03b1-performance by 1.00; closest: Hedge below FairCB (bandit) in "
    "Jain's index by 0.100",
    "A6": f"c_\u03b1 1.2589; OPT/ALG: {ALPHA_FAIR} 1.1000, uniform 1.1000; uniform play satisfies this too",
    "B3": f"its mean leads at none of the 2 recorded rounds; in the second half, {ALPHA_FAIR_BANDIT} above "
    f"{SCALE_FREE} at round 10 by 0.200",
    "C1": "from 0.100 at \u03b1 = 0 to 0.900 at \u03b1 = 0.9; largest step back 0.0% of the range",
    "C2": "from 9.000 at \u03b1 = 0 to 1.000 at \u03b1 = 0.9; largest step back 0.0% of the range",
    "F1": f"{ALPHA_FAIR} 999.00; closest: above \u03bd = 0.05/N by 2.00",
    "I1": "after 4 rounds OPT/ALG is within 0.0e+00 of the limit, as a part of it",
    "S1": "share of pulls of the worst of three arms: ours 5.0%, published sign 97.0%",
}
NO_WIDTH = re.compile(r" \((95%: (\S+) to \2|\u00b1: 95% over 5 seeds)\)")


def test_measurements_in_words() -> None:
    found = given().claims()
    for name, text in MEASURED.items():
        assert NO_WIDTH.sub("", found[name].measured) == text, name


def test_every_claim_can_hold_and_fail() -> None:
    assert set(given().verdicts().values()) == {HOLDS}
    assert set(given(turned=True).verdicts().values()) == {FAILS}


def test_noise_leaves_open_what_is_random_and_nothing_else() -> None:
    found = given(own=100.0).verdicts()
    exact = {"A6", "A7", "C1", "C2", "F1", "I1", "R1"}
    assert {name for name, word in found.items() if word == HOLDS} == exact
    assert {word for name, word in found.items() if name not in exact} == {OPEN}


def test_differences_are_paired_by_seed() -> None:
    """The same draws move both policies together: bands overlap widely, differences seed by seed do not."""
    found = given(own=0.001, shared=100.0).verdicts()
    assert [found[name] for name in ("B1", "B2", "B3", "B5", "F2", "S2")] == [HOLDS] * 6
    assert found["A1"] == OPEN, "against a policy that is not random there is nothing to pair"


def test_a_lead_is_the_interval_of_the_paired_t_test() -> None:
    """With 95%; of three of which two are random, those with 97.5% each."""
    rng = np.random.default_rng(5)
    one, other = rng.normal(1.0, 1.0, 12), rng.normal(0.0, 1.0, 12)
    for level, more in ((0.95, {}), (0.975, {"second": one, "exact": np.array([2.0])})):
        first, *rest = joint_intervals({"": one - other, **more}).values()
        interval = stats.ttest_rel(one, other).confidence_interval(level)
        assert (first.low, first.high) == pytest.approx((interval.low, interval.high), rel=1e-9)
    assert rest[-1] == Interval.exact(2.0)


def test_leads_over_many_rounds_are_tested_together() -> None:
    """250 differences that are noise around a small lead: one interval of 95% lies below zero, all together do not."""
    found = given()
    run = replace(found.experiments.B, rounds=tuple(range(1, 501)), n_rounds=500)
    found = found._replace(experiments=replace(found.experiments, B=run))
    noise = np.random.default_rng(3).normal(0.001, 0.01, (20, 500))
    changed(found, "B", ALPHA_FAIR_BANDIT, jain_index=0.5 + noise)
    changed(found, "B", SCALE_FREE, jain_index=np.full((20, 500), 0.5))
    assert (stats.ttest_1samp(noise[:, 250:], 0.0).confidence_interval(0.95).high < 0.0).any()
    assert found.verdicts()["B3"] == OPEN
    found.samples["B"][ALPHA_FAIR_BANDIT]["jain_index"][:, 300] -= 0.1
    assert found.verdicts()["B3"] == FAILS


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
    assert verdict(Interval((low + high) / 2, low, high) for low, high in intervals) == word


def test_scale_free_may_lead_early_but_not_late() -> None:
    for place, word in ((0, HOLDS), (1, FAILS)):
        found = given()
        found.samples["B"][SCALE_FREE]["jain_index"][:, place] = 0.95
        claim = found.claims()["B3"]
        assert claim.verdict == word
        assert f"its mean leads up to round {found.experiments.B.rounds[place]}" in claim.measured
        assert len(claim.leads) == 1


def test_a_setback_is_not_monotone() -> None:
    found = given()
    curves = {"jain_index": np.array([0.1, 0.05, 0.9]), "average_reward": np.array([9.0, 9.01, 1.0])}
    run = replace(found.experiments.C, **curves)
    first, second, *_ = (
        claim
        for name, claim in found._replace(experiments=replace(found.experiments, C=run)).claims().items()
        if name.startswith("C")
    )
    assert (first.verdict, second.verdict) == (FAILS, HOLDS)
    assert first.measured.endswith("largest step back 5.9% of the range")  # 0.05 of 0.85
    assert second.measured.endswith("largest step back 0.1% of the range")  # 0.01 of 8.01


def test_leads_are_kept_as_numbers() -> None:
    """And the words say what they say: who is closest, by how much, on which data."""
    found = given(own=0.001).claims("ratings")
    assert [*found["A1"].leads] == [f"{ALPHA_FAIR} above {rival}" for rival in RIVALS_A]
    assert [round(lead.value, 1) for lead in found["A1"].leads.values()] == [4.0, 3.0, 2.0]
    assert f"closest: {ALPHA_FAIR} above FairCB (full) by 2.00" in found["A1"].measured
    assert {name for name, claim in found.items() if claim.data == "synthetic"} == {"I1", "S1"}
    assert {claim.data for claim in found.values()} == {"synthetic", "ratings"}


def test_a_failed_claim_states_by_how_much() -> None:
    """Below by 1, not above by -1; the interval is turned with it, and the leads keep their signs."""
    found = given(turned=True, own=0.001).claims()
    assert found["A7"].measured.endswith(f"; {ALPHA_FAIR} below {UNIFORM} by 1.00")
    assert f"closest: {ALPHA_FAIR} below {RIVALS_A[0]} by 4.00" in found["A1"].measured
    assert f"{ALPHA_FAIR} above {RIVALS_A[0]} by 4.00" in found["A3"].measured
    assert found["F1"].measured.endswith(f"closest: below \u03bd = {FLOORS[-1]:g}/N by {len(FLOORS) + 1:.2f}")
    assert f"published sign above {UNIFORM} by 1.00 (95%: 1.00 to 1.00)" in found["S2"].measured
    assert not [name for name, claim in found.items() if "\N{MINUS SIGN}" in claim.measured.rpartition(" by ")[2]]
    assert [lead.value for lead in found["A7"].leads.values()] == [-1.0]


def test_a_clipped_band_is_stated_by_its_ends() -> None:
    """Jain's index of 19 arms is never below 1/19, whatever Student's t says of five seeds."""
    found, seeds = given(), [0.06, 0.055, 0.06, 0.055, 0.5]
    changed(found, "B", SCALE_FREE, jain_index=np.column_stack([seeds, seeds]))
    assert f"{SCALE_FREE} 0.146 (0.053 to 0.392) (\u00b1: 95% over 5 seeds)" in found.claims()["B2"].measured


def test_every_claim_has_a_source_and_none_is_counted_twice() -> None:
    found = given().claims()
    by_source = {source: [name for name, claim in found.items() if claim.source == source] for source in SOURCES}
    assert by_source == {
        PAPER: ["A1", "A2", "A3", "A4", "A5", "B1", "B2", "B3", "C1", "C2"],
        THEOREM: ["A6", "B4", "I1", "R1"],
        FOUND: ["A7", "B5", "F1", "F2", "S1", "S2"],
    }
    assert [name for name, claim in found.items() if not claim.independent] == ["A2", "A3"]


@pytest.mark.parametrize("identity", ["A6", "B4", "R1"])
def test_claims_that_uniform_play_also_passes_are_marked(identity: str) -> None:
    """It stands beside the theorem's claims when it ends below the limit, and not when it does not."""
    for ratio, passes in ((1.1, True), (1.3, False)):
        found = given()
        for name in ("A", "B"):
            changed(found, name, UNIFORM, ratio=np.full_like(found.samples[name][UNIFORM]["jain_index"], ratio))
        claim = found.claims()[identity]
        assert claim.verdict == HOLDS
        assert f"{UNIFORM} {ratio:.4f}" in claim.measured
        assert claim.measured.endswith("; uniform play satisfies this too") == passes


def test_floors_are_those_that_were_tried() -> None:
    found = given().claims()
    for identity in ("F1", "F2"):
        assert f"at each of the {len(FLOORS)} floors" in found[identity].claim
        assert found[identity].claim.endswith("from 0.05/N up to 0.999/N.")


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    ("n_rounds", "n_contexts", "n_arms", "decided"),
    [
        (2, 1, 2, False),
        (99, 1, 2, False),
        (100, 1, 2, True),
        (100, 4, 5, True),
        (100, 3, 7, False),
        (104, 3, 7, False),
        (105, 3, 7, True),
        (4999, 33, 19, True),  # of the paper
        (4999, 100, 19, False),
    ],
)
def test_too_few_rounds_decide_nothing(
    turned: bool, n_rounds: int, n_contexts: int, n_arms: int, decided: bool
) -> None:
    """About A's rounds, and about C's, each about its own; instances made here are not touched."""
    sizes = {"n_rounds": n_rounds, "n_contexts": n_contexts, "n_arms": n_arms}
    found = given(turned=turned)
    word = FAILS if turned else HOLDS
    for short, ids in (
        ({"A": replace(found.experiments.A, **sizes)}, "ABFSR"),
        ({"C": replace(found.experiments.C, **sizes)}, "C"),
    ):
        claims = found._replace(experiments=replace(found.experiments, **short)).claims()
        for name, claim in claims.items():
            touched = name[0] in ids and name != "S1" and not decided
            assert claim.verdict == (OPEN if touched else word), name
            assert ("too few rounds to decide" in claim.measured) == touched


def test_without_anything_to_learn_claims_are_undecidable() -> None:
    """An optimum within its certificate of uniform play; a curve that alpha does not move."""
    experiments = given().experiments
    a, c = experiments.A, experiments.C
    level = a.contenders[UNIFORM].alpha_performance.last.value
    for above, gap, words in ((1e-3, 1e-9, ""), (1e-4, 1e-3, "nothing to learn"), (1e-9, 0.0, "nothing to learn")):
        optimum = replace(a.optimum, values=np.array([level + above]), gaps=np.array([gap]))
        assert words in undecidable(replace(a, optimum=optimum))
        assert bool(words) == bool(undecidable(replace(a, optimum=optimum)))
    assert not undecidable(c)
    assert "changes nothing" in undecidable(replace(c, final_accounts=c.final_accounts[[0, 0, 0]]))
