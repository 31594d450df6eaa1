"""What contexts have: reference values, the oracle, theorems as inequalities, refusals."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from alphafair import Groups, metrics, offline_optimum
from alphafair.errors import InvalidArgument
from tests import ROOT, naive_side_optima

GOLDEN: dict[str, Any] = json.loads((ROOT / "tests/fixtures/golden-two-sides.json").read_text())
MEASURES = GOLDEN["measures"]
inf = math.inf


def test_reference_values_of_the_measures() -> None:
    shares = metrics.context_shares(MEASURES["context_rewards"], MEASURES["context_reward_totals"])
    np.testing.assert_allclose(shares, MEASURES["context_shares"], rtol=1e-12)
    for part, expected in MEASURES["context_share_at"].items():
        found = metrics.context_share_at(shares, MEASURES["rounds"], part=float(part))
        assert found == pytest.approx(expected, rel=1e-12)
    for case in MEASURES["least_context_share"]:
        found = metrics.least_context_share(case["accounts"], case["alpha"])
        assert found == pytest.approx(case["bound"], rel=1e-12)
    for case in GOLDEN["offline_context_weight"]:
        both = case["accounts"], case["context_accounts"], case["alpha"]
        found = metrics.two_sided_welfare(*both, case["context_weight"], case["context_weights"])
        assert found == pytest.approx(case["two_sided_welfare"], rel=1e-9)


@pytest.mark.parametrize("number", range(len(GOLDEN["certificates_context_share"])))
def test_reference_values_of_certificates_of_promises(number: int) -> None:
    case = GOLDEN["certificates_context_share"][number]
    terms = case["context_reward_totals"], case["accounts"], case["alpha"]
    found = metrics.certificates(*terms, context_share=case["context_share"])
    assert found.welfare_ratio == pytest.approx(case["welfare_ratio"], rel=1e-9)
    assert found.boxed_welfare_ratio <= found.welfare_ratio
    assert found.two_sided_welfare_ratio is None


@pytest.mark.parametrize("number", range(len(GOLDEN["certificates_context_weight"])))
def test_reference_values_of_certificates_of_both_sides(number: int) -> None:
    case = GOLDEN["certificates_context_weight"][number]
    terms = {name: case[name] for name in ("context_weight", "context_weights", "context_accounts")}
    found = metrics.certificates(case["context_reward_totals"], case["accounts"], case["alpha"], **terms)
    assert found.two_sided_welfare_ratio == pytest.approx(case["two_sided_welfare_ratio"], rel=1e-9)
    assert found[:-1] == (None,) * 8


def run(seed: int) -> tuple[Any, Any, Any, Any, float, float, Any]:
    """Totals, any fixed policy's accounts of arms and contexts, first accounts, a share, a weight, and weights."""
    rng = np.random.default_rng([40, seed])
    m, n = int(rng.integers(1, 12)), int(rng.integers(1, 7))
    totals = rng.random((m, n)) * 10 ** rng.uniform(0, 3)
    totals[rng.random((m, n)) < 0.2] = 0.0
    x = rng.dirichlet(np.full(n, 0.3), m)
    r, u = 1 + (totals * x).sum(axis=0), 1 + (totals * x).sum(axis=1)
    return totals, r, u, np.ones(n), float(rng.uniform(0.05, 0.97)), float(rng.uniform(0.02, 0.95)), rng.random(m) + 0.1


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0, 2.0, 16.0, inf])
def test_certificates_against_the_oracle_and_the_optimum(alpha: float) -> None:
    """They hold; with a tenth less of what is over 1 they would not."""
    broken = 0
    for seed in range(15):
        totals, r, u, first, share, theta, q = run(seed)
        best = offline_optimum(totals, alpha, context_share=share)
        found = metrics.certificates(totals, r, alpha, context_share=share)
        achieved = naive_side_optima.welfare(r, alpha)
        assert best.welfare / achieved <= found.boxed_welfare_ratio * (1 + 1e-9)
        if alpha < inf:
            w = (r / r.min()) ** -alpha
            bound = naive_side_optima.promised_bound(totals, w, first, share) / float(w @ r)
            assert found.welfare_ratio == pytest.approx(bound, rel=1e-12)
        at_best = metrics.certificates(totals, best.accounts, alpha, context_share=share)
        if alpha < inf:
            assert 1 - 1e-9 <= at_best.welfare_ratio <= 1 + 1e-6
        best = offline_optimum(totals, alpha, context_weight=theta, context_weights=q)
        both: dict[str, Any] = {"context_weight": theta, "context_weights": q}
        ratio = metrics.certificates(totals, r, alpha, **both, context_accounts=u).two_sided_welfare_ratio
        achieved = naive_side_optima.joint(r, u, alpha, theta, q)
        assert metrics.two_sided_welfare(r, u, alpha, theta, q) == pytest.approx(achieved, rel=1e-12)
        assert best.two_sided_welfare / achieved <= ratio * (1 + 1e-9)
        if alpha < inf:
            assert ratio == pytest.approx(naive_side_optima.joint_bound(totals, r, u, alpha, theta, q), rel=1e-12)
            own = metrics.certificates(totals, best.accounts, alpha, **both, context_accounts=best.context_accounts)
            assert 1 - 1e-9 <= own.two_sided_welfare_ratio <= 1 + 1e-6
            broken += own.two_sided_welfare_ratio * (1 - 0.1 * theta) < 1
    assert broken or alpha == inf


def test_certificates_of_groups_with_floors_and_prices() -> None:
    rng = np.random.default_rng(9)
    totals = rng.random((5, 4)) * 40
    groups = Groups(["a", "b", "b", "c"], {"a": 1.0, "b": 2.0, "c": 0.5}, pull_floor=0.1)
    for alpha in (0.5, 1.0, 3.0):
        terms: dict[str, Any] = {"groups": groups, "context_share": 0.55}
        best = offline_optimum(totals, alpha, **terms)
        earned = groups.for_arms(4).accounts(1 + 0.25 * totals.sum(axis=0))
        achieved = metrics.welfare(earned, alpha, groups=groups)
        for prices in (None, best.accounts, [3.0, 2.0, 9.0]):
            found = metrics.certificates(totals, earned, alpha, **terms, prices=prices)
            assert best.welfare <= found.boxed_welfare_ratio * achieved * (1 + 1e-9)
        terms = {"groups": groups, "context_weight": 0.3, "context_weights": [1, 2, 3, 4, 5]}
        best = offline_optimum(totals, alpha, **terms)
        u = 1 + 0.25 * totals.sum(axis=1)
        found = metrics.certificates(totals, earned, alpha, **terms, context_accounts=u)
        achieved = metrics.two_sided_welfare(earned, u, alpha, 0.3, [1, 2, 3, 4, 5], groups=groups)
        assert best.two_sided_welfare <= found.two_sided_welfare_ratio * achieved * (1 + 1e-9)


def test_measures_against_the_oracle() -> None:
    for seed in range(20):
        totals, r, u, _, part, _, _ = run(seed)
        shares = metrics.context_shares(u - 1, totals)
        np.testing.assert_allclose(shares, naive_side_optima.shares(u - 1, totals), rtol=1e-12)
        rounds = np.random.default_rng(seed).integers(1, 90, len(u))
        for each in (0.0, 0.1, part, 1.0):
            found = metrics.context_share_at(shares, rounds, each)
            assert found == naive_side_optima.share_at(shares, rounds, each)
        assert metrics.least_context_share(r, 1.0) == pytest.approx(r.min() / r.max(), rel=1e-12)
    groups = Groups(["a", "b"], {"a": 1.0, "b": 4.0})
    assert metrics.least_context_share([2.0, 4.0], 1.0, groups=groups) == 0.5
    assert metrics.least_context_share([2.0, 2.0], inf) == 1.0
    assert metrics.least_context_share([2.0, 2.1], inf) == 0.0
    assert metrics.least_context_share([[2.0, 4.0], [3.0, 3.0]], 2).tolist() == [0.25, 1.0]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: metrics.context_shares([1.0], [1.0]), "context_reward_totals must be numbers in"),
        (lambda: metrics.context_shares([1.0], [[-1.0]]), "context_reward_totals must be numbers in"),
        (
            lambda: metrics.context_shares([1.0, 2.0], [[1.0]]),
            r"context_rewards must be numbers .* one per context \(1\)",
        ),
        (lambda: metrics.context_shares([-1.0], [[1.0]]), "context_rewards must be numbers in"),
        (lambda: metrics.context_share_at([], []), "shares must be numbers in"),
        (lambda: metrics.context_share_at(0.5, 3), "shares must be numbers in"),
        (lambda: metrics.context_share_at([0.5], [1, 2]), "rounds must be numbers in"),
        (lambda: metrics.context_share_at([0.5], [0]), "rounds must be at least one round"),
        (lambda: metrics.context_share_at([0.5], [1], 1.5), "part must be a number in"),
        (lambda: metrics.two_sided_welfare([1.0], [[1.0]], 1.0, 0.5, [1.0]), "context_accounts must be one number per"),
        (lambda: metrics.two_sided_welfare([1.0], [1.0], 1.0, 1.0, [1.0]), "context_weight must be a number in"),
        (lambda: both(context_accounts=None), "context_accounts must be given with a context_weight; got None."),
        (lambda: both(context_accounts=[1.0]), "context_accounts must be one number per context .2.; got 'shape .1,.'"),
        (lambda: both(prices=[1.0, 1.0]), "prices must be left out with a context_weight"),
        (
            lambda: metrics.certificates([[1.0]], [1.0], 1.0, context_accounts=[1.0]),
            "context_accounts must be None without a context_weight; got .1.0.. Pass a context_weight as well.",
        ),
    ],
)
def test_refusals(call: Any, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        call()


def both(**terms: Any) -> Any:
    known: dict[str, Any] = {"context_weight": 0.5, "context_weights": [1, 1], "context_accounts": [2.0, 2.0]}
    return metrics.certificates([[1.0, 2.0], [3.0, 1.0]], [2.0, 2.0], 1.0, **known | terms)
