"""Units and sides: the hash, the report against reference values, and how often its intervals miss."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from alphafair.engine.state import sides
from tests import ROOT

GOLDEN = json.loads((ROOT / "tests" / "fixtures" / "golden-adoption.json").read_text())
UNITS = [f"visitor-{k}" for k in range(2_000)]


# units


@pytest.mark.parametrize("case", GOLDEN["units"], ids=lambda case: f"{case['salt']} {case['unit']!r}")
def test_units_have_the_places_of_the_reference(case: dict[str, Any]) -> None:
    assert sides.place_of(case["unit"], case["salt"]) == (case["u"], case["bucket"])


def test_a_larger_share_moves_units_to_us_alone() -> None:
    u = np.array([sides.place_of(unit, "home").u for unit in UNITS])
    few, many = u < 0.05, u < 0.2
    assert not (few & ~many).any()
    assert abs(many.mean() - 0.2) < 0.04  # 4.5 standard errors
    other = np.array([sides.place_of(unit, "home-2").u for unit in UNITS]) < 0.2
    assert abs((many & other).mean() - 0.04) < 0.02  # another experiment splits independently


def test_buckets_are_used_alike_and_independent_of_sides() -> None:
    places = [sides.place_of(unit, "home") for unit in UNITS]
    counts = np.bincount([place.bucket for place in places if place.u < 0.5], minlength=64)
    assert ((counts - counts.mean()) ** 2 / counts.mean()).sum() < 120.0  # chi-squared with 63 degrees: 1e-5


def test_a_salt_counts_up_to_64_bytes() -> None:
    assert sides.place_of("a", "é" * 32 + "x") == sides.place_of("a", "é" * 32)
    assert sides.place_of("a", "é" * 31 + "x") != sides.place_of("a", "é" * 31)


# the report


def with_counts(table: list[list[float]]) -> Any:
    """A table of the reference, in which all decisions are rewarded."""
    rows = np.array(table)
    return np.column_stack([rows, rows[:, -1]])


@pytest.mark.parametrize("case", GOLDEN["sides"], ids=lambda case: f"alpha {case['alpha']}")
def test_sides_are_measured_as_in_the_reference(case: dict[str, Any]) -> None:
    tables = [with_counts(table) for table in GOLDEN["sides"][0]["tables"]]
    traffic = sum(table[:, 3].sum() for table in tables)
    found = [sides.measure(table, traffic, case["entitlements"], float(case["alpha"])) for table in tables]
    for k, side in enumerate(found):
        near(side.values, case["values"][k])
        near(side.variances, case["variances"][k])
        near(sides.half_width(side.variances, side.rewarded), case["alone"][k])
        assert side.buckets == 64
    more, half = sides.difference(found[1], found[0])
    near(more, case["difference"])
    near(half, case["half_width"])


def near(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def naive_measures(table: Any, traffic: float, s: Any, alpha: float) -> list[float]:
    """Mean, log welfare and Jain's index of one side, term by term."""
    n, d = len(s), sum(row[-2] for row in table)
    earned = [sum(row[g] for row in table) for g in range(n)]
    q = [(1.0 + traffic * earned[g] / d) / s[g] for g in range(n)]
    if alpha == math.inf:
        welfare = math.log(min(q))
    elif alpha == 1.0:
        welfare = sum(s[g] * math.log(q[g]) for g in range(n)) / sum(s)
    else:
        welfare = math.log(sum(s[g] * q[g] ** (1.0 - alpha) for g in range(n)) / sum(s)) / (1.0 - alpha)
    return [sum(earned) / d, welfare, sum(q) ** 2 / (n * sum(each**2 for each in q))]


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0, 30.0, math.inf])
def test_the_variance_is_that_of_the_derivatives_by_every_bucket(alpha: float) -> None:
    """psi_b is what a little more weight of bucket b changes: the infinitesimal jackknife."""
    rng, s = np.random.default_rng(3), np.array([1.0, 2.0, 0.5])
    table = np.column_stack([rng.integers(0, 9, (64, 3)), rng.integers(20, 40, 64), rng.integers(40, 60, 64)])
    table = table.astype(float)
    found = sides.measure(table, 4_000.0, s, alpha)
    near(found.values, naive_measures(table, 4_000.0, s, alpha))
    slopes = np.zeros((64, 3))
    for b in range(64):
        more, less = table.copy(), table.copy()
        more[b] *= 1.0 + 1e-4
        less[b] *= 1.0 - 1e-4
        up, down = (np.array(naive_measures(each, 4_000.0, s, alpha)) for each in (more, less))
        slopes[b] = (up - down) / 2e-4
    np.testing.assert_allclose(found.variances, 64 / 63 * (slopes**2).sum(axis=0), rtol=1e-5)


def test_tables_of_arms_become_tables_of_groups() -> None:
    table = np.arange(10.0).reshape(2, 5)
    groups = sides.by_group(table, np.array([1, 0, 1]), 2)
    assert groups.tolist() == [[1.0, 2.0, 3.0, 4.0], [6.0, 12.0, 8.0, 9.0]]


# how often intervals miss

RUNS, LOOKS, N_UNITS, ARMS, CLICKS = 200, 20, 160, 3, 0.04


def counted(seed: int, share: float) -> Any:
    """Tables of both sides by look and run: units of different activity, of which some click more than others."""
    rng = np.random.default_rng(seed)
    bucket, theirs = rng.integers(64, size=(RUNS, N_UNITS)), rng.random((RUNS, N_UNITS)) >= share
    shown = rng.poisson(20.0 * rng.gamma(1.0, 1.0, (RUNS, 1, N_UNITS)), (RUNS, LOOKS, N_UNITS))
    taste = CLICKS * rng.gamma(1.0, 1.0, (RUNS, 1, N_UNITS, 1))
    clicks = rng.poisson(taste * shown[..., None] / ARMS, (RUNS, LOOKS, N_UNITS, ARMS))
    cells = ((np.arange(RUNS)[:, None] * 2 + theirs) * 64 + bucket).ravel()
    columns = np.concatenate([clicks, shown[..., None], shown[..., None]], axis=-1).cumsum(axis=1)
    tables = np.zeros((LOOKS, RUNS * 2 * 64, ARMS + 2))
    for look in range(LOOKS):
        for c in range(ARMS + 2):
            tables[look, :, c] = np.bincount(cells, columns[:, look, :, c].ravel(), minlength=len(tables[look]))
    return tables.reshape(LOOKS, RUNS, 2, 64, ARMS + 2)


def missed(tables: Any, factor: float = 1.0) -> list[int]:
    """In how many runs an interval was ever without the true difference, 0, by measure; `factor` times the variance."""
    traffic = tables[..., -2].sum(axis=(-1, -2))
    ours, theirs = (sides.measure(tables[:, :, side], traffic, np.ones(ARMS), 0.9) for side in (0, 1))
    more, half = sides.difference(theirs, ours)
    known = np.minimum(ours.buckets, theirs.buckets)[..., None] >= sides.LEAST_BUCKETS
    assert known[-1].mean() > 0.9
    wrong = known & (np.abs(more) > half * math.sqrt(factor))
    return wrong.any(axis=0).sum(axis=0).tolist()


def test_sequences_miss_in_few_runs_that_are_watched_all_the_time() -> None:
    """A/A: both sides are the same, and 200 runs are looked at 20 times each. At most 8% may miss at any look."""
    tables = counted(seed=11, share=0.5)
    assert max(missed(tables)) <= 16
    assert min(missed(tables, 0.5)[:2]) > 0  # the band is not idle
    assert min(missed(tables, 0.25)[:2]) > 16  # half as wide is too narrow
    ours = tables[:, :, 0]
    assert max(missed_as_if_decisions_were_independent(ours, tables[:, :, 1])) > 16


def missed_as_if_decisions_were_independent(ours: Any, theirs: Any) -> list[int]:
    """The usual mistake: clicks of one unit are not independent, so p(1 - p)/n is too little."""
    rates, variances, smaller = [], 0.0, np.inf
    for side in (ours, theirs):
        n = side[..., -2].sum(axis=-1)
        rate = side[..., :ARMS].sum(axis=(-1, -2)) / n
        rates.append(rate)
        variances = variances + rate * (1.0 - rate) / n
        smaller = np.minimum(smaller, n)
    half = sides.half_width(np.asarray(variances)[..., None], smaller)[..., 0]
    return [int((np.abs(rates[0] - rates[1]) > half).any(axis=0).sum())]


# the share


def test_a_share_is_seen_and_lost_decisions_are_found() -> None:
    rng, n_units = np.random.default_rng(5), 20_000
    bucket, is_ours = rng.integers(64, size=n_units), rng.random(n_units) < 0.2
    decisions = rng.poisson(2.0, n_units)
    ours, theirs = (np.bincount(bucket[which], decisions[which], 64) for which in (is_ours, ~is_ours))
    share, half = sides.seen_share(ours, theirs)
    assert share == pytest.approx(ours.sum() / (ours + theirs).sum())
    assert abs(share - 0.2) < half < 0.03
    share, half = sides.seen_share(0.75 * ours, theirs)  # a quarter of ours is lost
    assert share + half < 0.2
