"""The optimum of both sides: reference values, a second solver, certificates, what every optimum must satisfy."""

from __future__ import annotations

import json
import math
import warnings
from typing import Any, NamedTuple

import numpy as np
import pytest

from alphafair import Groups, Stream, metrics, offline_optimum, present_arms, streams
from alphafair.errors import InvalidArgument
from alphafair.offline import CertificateWarning, context_reward_totals
from alphafair.offline.sides import cheapest_prices
from tests import FULL, ROOT, naive_side_optima

GOLDEN: dict[str, Any] = json.loads((ROOT / "tests/fixtures/golden-two-sides.json").read_text())
ALPHAS = (0.0, 0.5, 1.0, 2.0, math.inf)
FOUR = [[5.0, 0.0], [9.0, 6.0], [0.0, 0.0], [30.0, 2.0]]


def close(found: Any, case: dict[str, Any], *names: str, tolerance: float = 1e-6) -> None:
    for name in names:
        np.testing.assert_allclose(getattr(found, name), case[name], rtol=tolerance, atol=tolerance, err_msg=name)


@pytest.mark.parametrize("number", range(len(GOLDEN["offline_context_share"])))
def test_reference_values_of_a_promise(number: int) -> None:
    case = GOLDEN["offline_context_share"][number]
    best = offline_optimum(case["context_reward_totals"], case["alpha"], context_share=case["context_share"])
    assert best.certified
    assert best.two_sided_welfare is None
    close(best, case, "accounts", "context_shares", "context_prices", "welfare")
    assert best.welfare == pytest.approx(case["welfare"], rel=1e-9)


@pytest.mark.parametrize("number", range(len(GOLDEN["offline_context_weight"])))
def test_reference_values_of_both_sides(number: int) -> None:
    case = GOLDEN["offline_context_weight"][number]
    terms = {"context_weight": case["context_weight"], "context_weights": case["context_weights"]}
    best = offline_optimum(case["context_reward_totals"], case["alpha"], **terms)
    assert best.certified
    close(best, case, "welfare", "accounts", "context_accounts", "context_shares", "context_prices")
    assert best.two_sided_welfare == pytest.approx(case["two_sided_welfare"], rel=1e-9)
    scaled = offline_optimum(case["context_reward_totals"], case["alpha"], **terms | {"context_weights": 7 * np.array(
        case["context_weights"])})  # fmt: skip
    assert scaled.two_sided_welfare == pytest.approx(best.two_sided_welfare, rel=1e-12)


class Drawn(NamedTuple):
    """A random problem, and its groups for the package and for the oracle."""

    totals: Any
    groups: Groups | None
    of: Any
    s: Any
    floor: float
    share: float
    theta: float
    q: Any

    @classmethod
    def of_seed(cls, seed: int) -> Drawn:
        rng = np.random.default_rng([38, seed])
        n, m = int(rng.integers(2, 10)), int(rng.integers(1, 14))
        totals = rng.random((m, n)) * 10 ** rng.uniform(0, 4)
        totals[rng.random((m, n)) < 0.2] = 0.0
        if seed % 5 == 0:
            totals[rng.integers(m)] = 0.0
        labels = [str(label) for label in rng.integers(0, n, n)] if seed % 3 else None
        s = {label: float(rng.uniform(0.3, 3)) for label in labels} if labels and seed % 3 == 2 else None
        floor = float(rng.uniform(0, 0.5 / n)) if seed % 4 == 1 else 0.0
        plain = labels is None and floor == 0.0
        groups = None if plain else Groups(labels, s, pull_floor=floor or None)
        resolved = (groups or Groups()).for_arms(n)
        share, theta = float(rng.uniform(0.1, 0.97)) * (1 - n * floor), float(rng.uniform(0.02, 0.95))
        return cls(totals, groups, resolved.of_arms, resolved.entitlements, floor, share, theta, rng.random(m) + 0.05)

    def best(self, alpha: float, **terms: Any) -> Any:
        return offline_optimum(self.totals, alpha, groups=self.groups, **terms)


SEEDS = range(40 if FULL else 8)  # 200 problems with a promise, and as many joint ones, in full


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("seed", SEEDS)
def test_the_optimum_of_a_second_solver(seed: int, alpha: float) -> None:
    drawn = Drawn.of_seed(seed)
    known: dict[str, Any] = {"of": drawn.of, "s": drawn.s, "floor": drawn.floor}
    best = drawn.best(alpha, context_share=drawn.share)
    other, x = naive_side_optima.optimum(drawn.totals, alpha, share=drawn.share, **known)
    assert best.certified
    kept = (drawn.totals * x).sum(axis=1) >= drawn.share * drawn.totals.max(axis=1) * (1 - 1e-6)
    assert kept.all()
    assert best.welfare >= other * (1 - 1e-6)
    assert best.welfare <= other * (1 + 1e-6)
    best = drawn.best(alpha, context_weight=drawn.theta, context_weights=drawn.q)
    other, _ = naive_side_optima.optimum(drawn.totals, alpha, theta=drawn.theta, q=drawn.q, **known)
    assert best.certified
    assert best.two_sided_welfare == pytest.approx(other, rel=1e-6)


@pytest.mark.parametrize("alpha", [0.0, 1e-16, 0.05, 0.9, 0.999, 1.0, 1.001, 5.0, 16.0, 64.0, 200.0, math.inf])
def test_it_is_certified_feasible_and_shows_only_the_best_arms(alpha: float) -> None:
    for seed in range(20, 26):
        drawn = Drawn.of_seed(seed)
        for terms in (
            {"context_share": drawn.share},
            {"context_weight": drawn.theta, "context_weights": drawn.q},
        ):
            best = drawn.best(alpha, **terms)
            x, n = best.distributions, drawn.totals.shape[1]
            assert best.certified
            assert best.welfare_gap <= 1e-9
            np.testing.assert_allclose(x.sum(axis=1), 1.0, rtol=1e-9)
            assert x.min() >= drawn.floor * (1 - 1e-9)
            earned = (drawn.totals * x).sum(axis=1)
            np.testing.assert_allclose(best.context_accounts, 1 + earned, rtol=1e-12)
            np.testing.assert_allclose(
                best.context_shares, naive_side_optima.shares(earned, drawn.totals), rtol=1e-12, atol=1e-12
            )
            if "context_share" in terms:
                assert best.context_shares.min() >= drawn.share * (1 - 1e-12)
                assert best.context_prices.min() >= 0.0
            if alpha == math.inf:
                continue
            w = (best.welfare / (best.accounts / drawn.s)) ** alpha / drawn.s.sum()
            slopes = drawn.totals * (w[drawn.of] + best.context_prices[:, None])
            idle = x - drawn.floor < 1e-3
            worst = np.where(idle, np.inf, slopes).min(axis=1)
            if drawn.floor * n == 0.0:  # else an arm is shown in every context, and the bound is of the rest
                behind = float((x * (slopes.max(axis=1, keepdims=True) - slopes)).sum())
                money = best.welfare / (1 - drawn.theta) if "context_weight" in terms else best.welfare
                assert behind <= 1e-6 * money
                assert (worst >= 0.0).all()


def test_the_price_of_a_context_is_what_its_promise_costs() -> None:
    totals = context_reward_totals(streams.ratings(n_rounds=2000, n_contexts=5, n_arms=4, seed=3))
    sigma, step = 0.9, 1e-5
    best, more = (offline_optimum(totals, 1.0, context_share=share, tolerance=1e-12) for share in (sigma, sigma + step))
    slope = (more.welfare - best.welfare) / step
    assert slope == pytest.approx(-float(best.context_prices @ totals.max(axis=1)), rel=1e-3)
    assert (best.context_prices > 0.0).any()


def test_a_promise_that_is_kept_anyway_changes_nothing() -> None:
    totals = np.random.default_rng(2).random((9, 4)) * 50
    plain = offline_optimum(totals, 1.0)
    kept = offline_optimum(totals, 1.0, context_share=0.9 * plain.context_shares.min())
    assert kept.welfare == pytest.approx(plain.welfare, rel=2e-9)
    assert kept.context_prices.max() <= 1e-6


def test_a_large_weight_is_the_best_arm_of_every_context() -> None:
    totals = np.random.default_rng(3).random((7, 4)) * 50
    best = offline_optimum(totals, 1.0, context_weight=0.9999, context_weights=np.ones(7))
    assert best.context_shares.min() > 0.99
    zero = offline_optimum(totals, 2.0, context_weight=0.0, context_share=0.0)
    assert zero.two_sided_welfare is None
    assert zero.welfare == offline_optimum(totals, 2.0).welfare


@pytest.mark.parametrize("terms", [{"context_share": 0.7}, {"context_weight": 0.5, "context_weights": [1, 2]}])
def test_nothing_to_choose(terms: dict[str, Any]) -> None:
    for alpha in (0.5, 1.0, math.inf):
        none = offline_optimum(np.zeros((2, 3)), alpha, **terms)
        assert (none.welfare, none.certified, none.context_shares.tolist()) == (1.0, True, [1.0, 1.0])
        one = offline_optimum([[3.0], [4.0]], alpha, **terms)
        assert (one.welfare, one.context_accounts.tolist()) == (8.0, [4.0, 5.0])


def test_contexts_without_rounds_weigh_nothing() -> None:
    totals = np.random.default_rng(5).random((4, 3)) * 30
    padded, weights = np.insert(totals, 2, 0.0, axis=0), [3.0, 1.0, 0.0, 2.0, 5.0]
    for alpha in ALPHAS:
        few = offline_optimum(totals, alpha, context_weight=0.4, context_weights=[3.0, 1.0, 2.0, 5.0])
        best = offline_optimum(padded, alpha, context_weight=0.4, context_weights=weights)
        assert best.two_sided_welfare == pytest.approx(few.two_sided_welfare, rel=1e-9)
        found = metrics.two_sided_welfare(best.accounts, best.context_accounts, alpha, 0.4, weights)
        assert found == pytest.approx(best.two_sided_welfare, rel=1e-12)
    with pytest.raises(InvalidArgument, match="context_weights must be positive numbers"):
        metrics.two_sided_welfare([2.0], [2.0, 1.0], 1.0, 0.5, [0.0, 1.0])


def test_floors_by_group_and_initial_accounts() -> None:
    totals = np.random.default_rng(4).random((6, 4)) * 30
    groups = Groups(["a", "b", "b", "c"], pull_floor={"c": 0.2})
    for alpha in (0.5, 2.0):
        best = offline_optimum(totals, alpha, groups=groups, context_share=0.75, initial=[4.0, 1.0, 2.0])
        assert best.certified
        assert best.distributions[:, 3].min() >= 0.2 * (1 - 1e-12)
        assert best.context_shares.min() >= 0.75 * (1 - 1e-12)
        again = metrics.certificates(
            totals, best.accounts, alpha, groups=groups, context_share=0.75, initial=[4.0, 1.0, 2.0]
        )
        assert again.welfare_ratio == pytest.approx(1.0, abs=1e-6)


def test_a_gap_that_cannot_be_reached_is_said() -> None:
    with pytest.warns(CertificateWarning, match="certified to a relative gap of"):
        best = offline_optimum(FOUR, 1.0, context_share=0.9, tolerance=0.0)
    assert not best.certified
    assert best.welfare_gap < 1e-9


@pytest.mark.parametrize("alpha", ALPHAS)
def test_other_optima_know_their_contexts(alpha: float) -> None:
    best = offline_optimum(FOUR, alpha)
    np.testing.assert_allclose(best.context_accounts, 1 + (np.array(FOUR) * best.distributions).sum(axis=1))
    assert best.context_shares[2] == 1.0
    assert not best.context_prices.any()
    slates = offline_optimum([[5.0, 3.0, 1.0], [0.0, 0.0, 0.0]], alpha, k=2)
    assert 0.5 <= slates.context_shares[0] <= 1.0


def test_the_cheapest_price_of_every_row() -> None:
    rng = np.random.default_rng(7)
    for n in range(1, 12):
        rewards = np.round(rng.random((30, n)) * 8) / 2
        w, sigma = rng.random(n) + 0.1, float(rng.uniform(0.05, 0.95))
        worth = rewards * w
        p = cheapest_prices(worth, rewards, sigma * rewards.max(axis=1))
        found = ((worth + p[:, None] * rewards).max(axis=1) - sigma * p * rewards.max(axis=1)).sum()
        assert found == pytest.approx(naive_side_optima.promised_bound(rewards, w, np.zeros(n), sigma), rel=1e-12)


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        (
            {"context_weight": 1.2},
            "context_weight must be a number in [0, 1); got 1.2. Pass 0 to be fair to arms alone.",
        ),
        (
            {"context_share": 1},
            "context_share must be a number in [0, 1); got 1. Pass alpha=0 to serve every context its best.",
        ),
        (
            {"context_share": 0.7, "groups": Groups(pull_floor=0.19)},
            "context_share must be below 0.62, what the floors leave; got 0.7. Lower the floors or the share.",
        ),
        (
            {"context_weight": 0.5, "context_weights": [1.0]},
            "context_weights must be positive numbers, one per context (2); got 'shape (1,)'. "
            "Leave them out to weigh contexts by their visits.",
        ),
        (
            {"context_weight": 0.5, "context_weights": [1.0, 0.0]},
            "context_weights must be positive numbers, one per context (2); got [1.0, 0.0]. "
            "Leave them out to weigh contexts by their visits.",
        ),
        (
            {"context_weight": 0.5},
            "context_weights must be given with a context_weight; got None. "
            "Pass np.bincount(stream.contexts) to weigh contexts by their visits.",
        ),
        (
            {"context_weights": [1.0, 1.0]},
            "context_weights must be None without a context_weight; got [1.0, 1.0]. Pass a context_weight as well.",
        ),
        (
            {"context_share": 0.6, "context_weight": 0.5, "context_weights": [1.0, 1.0]},
            "context_share must be left out with a context_weight; got 0.6. Pass one of them.",
        ),
        (
            {"context_share": 0.6, "present": np.ones((2, 2), dtype=bool)},
            "present must be left out with a context_share; got 'shape (2, 2)'. Solve every epoch by itself.",
        ),
        ({"context_share": 0.6, "k": 2}, "k must be 1 with a context_share; got 2. Pass one arm per decision."),
    ],
)
def test_refusals(terms: dict[str, Any], message: str) -> None:
    for refuse in (
        lambda: offline_optimum([[8.0, 3.0], [2.0, 6.0]], 1.0, **terms),
        lambda: metrics.certificates([[8.0, 3.0], [2.0, 6.0]], [2.0, 2.0], 1.0, **terms),
    ):
        with pytest.raises(InvalidArgument) as refused:
            refuse()
        assert str(refused.value) == message


# propositions


def world(seed: int) -> Any:
    """Totals: of odd seeds, arms that pay alike in every context, where one must be shared at the cost of all."""
    rng = np.random.default_rng([39, seed])
    m, n = int(rng.integers(2, 20)), int(rng.integers(2, 7))
    if seed % 2:
        return rng.random((m, 1)) * 500 * (np.arange(n, 0, -1) / n + rng.normal(0, 0.005, (m, n))).clip(0)
    return rng.random((m, n)) ** rng.uniform(0.3, 3) * 10 ** rng.uniform(0, 3)


@pytest.mark.parametrize("alpha", [0.5, 1.0, 2.0, 8.0])
def test_no_context_of_an_optimum_has_less_than_the_accounts_allow(alpha: float) -> None:
    """Every optimum; a bound with half of alpha is violated, so the exponent is the right one."""
    violated = 0
    for seed in range(12):
        totals = world(seed)
        best = offline_optimum(totals, alpha)
        worst = float(best.context_shares.min())
        assert worst >= metrics.least_context_share(best.accounts, alpha) * (1 - 1e-4)
        violated += worst < metrics.least_context_share(best.accounts, alpha / 2)
        w = best.accounts**-alpha
        price = (best.welfare**alpha / len(w)) * w  # dW/dR
        kept = offline_optimum(totals, alpha, context_weight=0.5, context_weights=np.ones(len(totals)))
        v = kept.context_prices
        price = (kept.welfare / kept.accounts) ** alpha / len(w)
        assert (kept.context_shares >= (price.min() + v) / (price.max() + v) * (1 - 1e-4)).all()
    assert violated


@pytest.mark.parametrize("alpha", [0.5, 1.0, 2.0, math.inf])
def test_a_promise_costs_at_most_its_part_of_the_way_to_greedy_play(alpha: float) -> None:
    """W(sigma) >= W (1 - (sigma - sigma_0)+/(1 - sigma_0)); a quarter of that cost is not enough everywhere."""
    exceeded = 0
    for seed in range(8):
        totals = world(seed)
        free = offline_optimum(totals, alpha)
        least = float(free.context_shares.min())
        for sigma in (0.5, 0.8, 0.97):
            cost = 1 - offline_optimum(totals, alpha, context_share=sigma).welfare / free.welfare
            allowed = max(0.0, sigma - least) / (1 - least) if least < 1 else 0.0
            assert cost <= allowed + 1e-8
            exceeded += cost > 0.25 * allowed + 1e-8
    assert exceeded


def test_few_contexts_divide_their_rounds() -> None:
    """Where the optimum is unique in x, at most as many contexts as arms play more than one."""
    for seed in range(10):
        totals = world(seed)
        best = offline_optimum(totals, 1.0)
        divided = int((best.distributions.max(axis=1) < 1 - 1e-4).sum())
        assert divided <= totals.shape[1]


def test_warnings_name_this_file() -> None:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        offline_optimum(FOUR, 1.0, context_share=0.9, tolerance=0.0)
    assert [each.filename for each in seen] == [__file__]


def test_epochs_are_solved_by_themselves() -> None:
    stream = Stream.from_arrays([0, 0, 1, 0], [[1.0, 0.2], [0.5, 0.5], [1.0, 1.0], [0.2, 1.0]], arrivals=[0, 2])
    tables = context_reward_totals(stream, period=2)
    assert len(present_arms(stream)) == 2
    for totals in tables:
        assert offline_optimum(totals, 1.0, context_share=0.5).certified
