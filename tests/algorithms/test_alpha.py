"""Policies at alpha of 1 and more against the slow oracle, and periods."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pytest

from alphafair import (
    AlphaFair,
    AlphaFairAdaptive,
    AlphaFairBandit,
    Groups,
    Hedge,
    IndependentAlphaFair,
    InvalidArgument,
    State,
    Stream,
    jit,
    load_policy,
    simulate,
)
from alphafair.lab.rivals import AlphaFairNextVisit
from alphafair.math import utility
from alphafair.math.gradient_ascent import in_slopes
from alphafair.policy.memory import settings_vector
from alphafair.values.arrays import positions
from tests import ROOT, naive_alpha
from tests.algorithms.test_alpha_oracle import make_rounds

inf = math.inf
ALPHAS = (1.0, 1.0 + 1e-9, 1.5, 2.0, 5.0, 16.0, 50.0, inf)
GROUPS: dict[str, dict[str, Any]] = {
    "plain": {},
    "groups": {"labels": ["a", "b", "a", "c"], "entitlements": {"a": 2.0, "b": 1.0, "c": 0.5}},
    "arm floor": {"labels": ["a", "b", "b"], "pull_floor": 0.1},
    "floor alone": {"pull_floor": 0.05},
    "group floors": {
        "labels": ["a", "b", "a"],
        "entitlements": {"a": 1.0, "b": 3.0},
        "pull_floor": {"a": 0.2, "b": 0.3},
    },
}


class BanditOracle(naive_alpha.AdaptiveBandit):
    """The oracle with what is pending as the policy counts it: anew for an arm, or its group, when it is concerned.

    And anew for all when the unit of slopes changes, which must be within a factor 2 below the least account.
    """

    def __init__(self, *sizes: Any, alpha: float) -> None:
        self.counted, self.unit = np.zeros(len(sizes[1].live)), 0.0
        super().__init__(*sizes, alpha=alpha)
        self.count_all()

    def levels(self) -> Any:
        groups, s = self.books.live_groups, self.books.s
        sums = [sum(c for c, own in zip(self.counted, groups, strict=True) if own == g) / s(g) for g in groups]
        return self.books.levels() + np.array(sums)

    def count(self, arm: int) -> None:
        group = self.books.labels[arm]
        for k, own in enumerate(self.books.live_groups):
            self.counted[k] = self.credit(k) if own == group else self.counted[k]
        if not self.unit <= self.levels().min() < 2 * self.unit:
            self.count_all()

    def count_all(self) -> None:
        self.counted = np.array([self.credit(k) for k in range(len(self.books.live))])
        self.unit = 2.0 ** math.floor(math.log2(self.levels().min()))

    def expect(self, arm: int) -> None:
        super().expect(arm)
        self.count(arm)

    def forgo(self, arm: int) -> None:
        if self.pending[self.books.live.index(arm)] > 0:
            super().forgo(arm)
            self.count(arm)

    def learn(self, context: int, arm: int, propensity: float, reward: float) -> None:
        super().learn(context, arm, propensity, reward)
        if arm in self.books.live:
            self.count(arm)
        elif self.books.labels[arm] in self.books.present:
            self.count_all()

    def new_period(self, carry: float) -> None:
        super().new_period(carry)
        self.count_all()

    def change(self, kept: list[int], n_new: int, books_change: Any) -> None:
        super().change(kept, n_new, books_change)
        self.count_all()


class Kind(NamedTuple):
    """A policy, its oracle and the settings of both."""

    policy: Any
    oracle: Any
    own: Mapping[str, Any] = MappingProxyType({})
    of_oracle: Mapping[str, Any] = MappingProxyType({})


KINDS = {
    "ascent": Kind(AlphaFair, naive_alpha.AlphaFair),
    "adaptive full": Kind(AlphaFairAdaptive, naive_alpha.AdaptiveFull, {"feedback": "full"}),
    "adaptive bandit": Kind(AlphaFairAdaptive, BanditOracle),
    "scale-free": Kind(AlphaFairBandit, naive_alpha.AlphaFairBandit),
}
FULL = [name for name, kind in KINDS.items() if "ascent" in name or "full" in name]


class Pair:
    """A policy and its oracle, which see the same rounds."""

    def __init__(self, kind: str, groups: str, alpha: float, n_contexts: int = 2) -> None:
        self.kind, terms = kind, GROUPS[groups]
        labels = terms.get("labels", list(range(3)))
        n_arms, chosen = len(labels), KINDS[kind]
        self.policy = chosen.policy(
            n_contexts, n_arms, alpha=alpha, seed=1, groups=Groups(**terms) if terms else None, **chosen.own
        )
        floors = terms.get("pull_floor", 0.0)
        books = naive_alpha.Books(labels, terms.get("entitlements"), floors)
        self.oracle = chosen.oracle(n_contexts, books, alpha=alpha, **chosen.of_oracle)
        self.pooled, self.waiting = "labels" in terms, []

    @property
    def full(self) -> bool:
        return bool(self.policy.feedback == "full")

    def round(self, context: int, rewards: Any, mask: Any = None, late: bool = False) -> None:
        expected = self.oracle.probabilities(context)
        assert self.policy.probabilities(context) == pytest.approx(expected, abs=1e-10, rel=0)
        decision = self.policy.choose(context, available=mask)
        if late:
            self.policy.expect(decision)
            if self.kind == "adaptive bandit":
                self.oracle.expect(decision.arm)
            self.waiting.append((decision, rewards))
        else:
            self.learn(decision, rewards)

    def learn(self, decision: Any, rewards: Any) -> None:
        if self.full:
            self.policy.update(decision, rewards)
            self.oracle.learn(decision.context, decision.probabilities, rewards)
        else:
            reward = float(rewards[decision.arm])
            self.policy.update(decision, reward)
            self.oracle.learn(decision.context, decision.arm, decision.propensity, reward)

    def settle(self) -> None:
        for decision, rewards in self.waiting:
            self.learn(decision, rewards)
        self.waiting.clear()

    def observe(self, context: int, arm: int, reward: float) -> None:
        """Somebody else's decision."""
        assert self.policy.observe(context, arm, reward)
        self.oracle.observe(context, self.oracle.books.live.index(arm), reward)

    def admit(self, label: str, account: float | None) -> None:
        arm = self.policy.n_arms
        entitlements = {label: 2.0} if self.oracle.books.entitlements else {}
        groups = Groups([label], entitlements or None) if self.pooled else None
        self.policy.grow(n_arms=arm + 1, account="least" if account is None else account, groups=groups)
        self.oracle.admit([label if self.pooled else arm], account, entitlements)

    def retire(self, arm: int) -> None:
        self.policy.retire(arm)
        self.oracle.retire(arm)

    def new_period(self, carry: float) -> None:
        self.policy.new_period(carry)
        self.oracle.new_period(carry)

    def check(self) -> None:
        books = self.oracle.books
        known = list(dict.fromkeys(books.labels))
        assert self.policy.accounts == pytest.approx([books.accounts[g] for g in known], rel=1e-12)
        assert self.policy.entry_accounts == pytest.approx([books.entry[g] for g in known], rel=1e-12)
        assert self.policy.period_rewards == pytest.approx(books.period_rewards, rel=1e-11, abs=1e-11)
        assert self.policy.period == books.period
        if self.full:
            assert self.policy.surrogate_regret_bound == pytest.approx(self.oracle.surrogate_regret_bound, rel=1e-9)
        for context in range(self.policy.n_contexts):
            expected = self.oracle.probabilities(context)
            assert self.policy.probabilities(context) == pytest.approx(expected, abs=1e-10, rel=0)


def rounds_of(pair: Pair, kind: str, n_rounds: int, seed: int) -> list[tuple[int, Any]]:
    contexts, rewards = make_rounds(kind, n_rounds, 2, pair.policy.n_arms, seed)
    return list(zip(contexts, rewards, strict=True))


def sampled(*choices: Any, every: int) -> list[Any]:
    """Each `every`-th combination, so that all values of every list occur."""
    return list(itertools.product(*choices))[::every]


@pytest.mark.parametrize(("kind", "groups", "alpha"), sampled(KINDS, GROUPS, ALPHAS, every=3))
def test_policies_match_the_oracle(kind: str, groups: str, alpha: float) -> None:
    pair = Pair(kind, groups, alpha)
    for context, rewards in rounds_of(pair, "zeros" if alpha == 2.0 else "smooth", 30, 5):
        pair.round(context, rewards)
    pair.check()
    if kind == "adaptive bandit" and groups != "group floors":
        bound = pair.policy.expected_surrogate_regret_bound
        assert bound == pytest.approx(pair.oracle.expected_bound(), rel=1e-9)


@pytest.mark.parametrize(("groups", "alpha"), sampled(GROUPS, ALPHAS, every=4))
def test_policies_that_observe_others_match_the_oracle(groups: str, alpha: float) -> None:
    """The bound is that of own rounds; late rewards, a period, and arms that come and go in between."""
    pair, rng = Pair("adaptive bandit", groups, alpha), np.random.default_rng(8)

    def rounds(late: bool = False) -> None:
        for context, rewards in rounds_of(pair, "smooth", 12, 5):
            for _ in range(int(rng.integers(3))):
                pair.observe(int(rng.integers(2)), int(rng.choice(pair.policy.live_arms)), float(rng.random()))
            pair.round(context, rewards, late=late and context == 0)
        pair.settle()
        pair.check()

    rounds()
    if groups != "group floors":
        assert pair.policy.expected_surrogate_regret_bound == pytest.approx(pair.oracle.expected_bound(), rel=1e-9)
    rounds(late=True)
    pair.new_period(0.5)
    rounds()
    pair.retire(1)
    pair.admit("new", None)
    rounds()
    assert pair.policy.trust == pytest.approx(0.97 / (1 + np.exp(-pair.oracle.tau) / 4), rel=1e-9)


@pytest.mark.parametrize(("kind", "groups", "alpha"), sampled(KINDS, GROUPS, ALPHAS, every=11))
def test_masked_and_late_decisions_match_the_oracle(kind: str, groups: str, alpha: float) -> None:
    pair, rng = Pair(kind, groups, alpha), np.random.default_rng(3)
    n_arms = pair.policy.n_arms
    for t, (context, rewards) in enumerate(rounds_of(pair, "smooth", 30, 6)):
        mask = np.arange(n_arms) != rng.integers(0, n_arms) if t % 3 == 0 else None
        pair.round(context, rewards, mask, late=t % 4 == 1)
        if t % 9 == 8:
            pair.settle()
    pair.settle()
    pair.check()


@pytest.mark.parametrize(
    ("kind", "groups", "alpha", "account"), sampled(list(KINDS)[:-1], GROUPS, ALPHAS, (None, 1.0, 4.0), every=23)
)
def test_arms_and_periods_match_the_oracle(kind: str, groups: str, alpha: float, account: float | None) -> None:
    pair = Pair(kind, groups, alpha)
    n_first = pair.policy.n_arms
    for t, (context, rewards) in enumerate(rounds_of(pair, "smooth", 48, 7)):
        if t == 10:
            pair.admit("new", account)
        if t in (20, 40):
            pair.check()
            pair.new_period(0.5 if t == 20 else 0.0)
        if t == 30:
            pair.retire(0)
        shown = np.append(rewards, 0.4)[: pair.policy.n_arms]
        pair.round(context, shown, late=t in (19, 29))
        if t in (21, 31):
            pair.settle()
    pair.check()
    assert pair.policy.n_arms == n_first + 1


@pytest.mark.parametrize("kind", ["ascent", "adaptive full", "adaptive bandit", "scale-free"])
@pytest.mark.parametrize("alpha", [0.9, 1.0, 5.0])
def test_periods_below_and_above_one_match_the_oracle(kind: str, alpha: float) -> None:
    pair = Pair(kind, "groups", alpha)
    for t, (context, rewards) in enumerate(rounds_of(pair, "smooth", 40, 8)):
        if t == 20:
            pair.new_period(0.25)
        pair.round(context, rewards)
    pair.check()


GOLDEN = {
    1.0: ((2.130381315195712, 2.076913586491804), 0.426772450641818, 1.127846974171948, 3.590439057838932),
    2.0: ((2.105744478927896, 2.10155042275962), 0.3805738626496855, 1.1842111808185, 3.218331542844223),
}


@pytest.mark.parametrize("alpha", GOLDEN)
def test_three_rounds_by_hand(alpha: float) -> None:  # golden values 12 and 14
    policy = AlphaFair(1, 2, alpha=alpha, seed=0)
    for rewards in ([1.0, 0.5], [0.25, 1.0], [1.0, 1.0]):
        policy.update(policy.choose(0), rewards)
    accounts, x, norms, bound = GOLDEN[alpha]
    assert policy.accounts == pytest.approx(accounts, rel=1e-12)
    assert policy.distributions[0, 0] == pytest.approx(x, rel=1e-12)
    assert policy.squared_gradient_norms[0] == pytest.approx(norms, rel=1e-12)
    assert policy.surrogate_regret_bound == pytest.approx(bound, rel=1e-12)


@pytest.mark.parametrize("alpha", [1.0, 2.0, 16.0, 64.0])
def test_relative_slopes_follow_the_power(alpha: float) -> None:
    """Accounts from 1 to thousands: the unit doubles with the least one, and no error accumulates."""
    rng, rows = np.random.default_rng(0), np.zeros((utility.ACCOUNT.size, 3))
    utility.open_accounts(rows, 1.0, alpha)
    numbers, unit = settings_vector(utility.SETTINGS, utility.account_settings(alpha)), 1.0
    for _ in range(4000):
        unit = utility.earn(rows, numbers, unit, np.ones(3), np.array([1.0, 0.9, 2.0]) * rng.random(3))
        account = rows[utility.ACCOUNT.account]
        assert unit <= account.min() <= 2.02 * unit
        expected = [math.pow(each / unit, -alpha) for each in account]
        np.testing.assert_allclose(rows[utility.ACCOUNT.slope], expected, rtol=1e-13)
    assert unit >= 1024.0


def test_utility_is_the_logarithm_at_one() -> None:
    assert utility.utility(5.0, 1.0) == math.log(5.0)
    assert utility.utility(5.0, 2.0) == -0.2


def test_slopes_of_another_alpha_or_unit_are_damage() -> None:
    accounts = np.array([2.0, 3.0, 1e200])
    slopes = (accounts / 2.0) ** -2.0
    assert utility.check_slopes(accounts, slopes, 2.0, 2.0) is None
    for alpha, unit in ((3.0, 2.0), (2.0, 4.0), (2.0, 0.0)):
        assert utility.check_slopes(accounts, slopes, alpha, unit) is not None


def test_bounds_beyond_the_range_of_numbers_are_infinite() -> None:
    names = positions("bound", "drift", "first_welfare")
    assert in_slopes(np.array([1.0, 0.0, 1e-6]), names, 64.0) == inf
    assert in_slopes(np.array([0.0, 0.0, 1e-6]), names, 64.0) == 0.0


# edges


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("alpha", [1.0, 1.0 + 2**-52, 1.0 + 1e-12, 64.0, 64.5, 1e6, inf])
@pytest.mark.parametrize("rewards", ["none", "tiny", "one arm never paid"])
def test_nothing_breaks_at_the_edges(kind: str, alpha: float, rewards: str) -> None:
    chosen = KINDS[kind]
    policy = chosen.policy(1, 3, alpha=alpha, seed=2, **chosen.own)
    rows = {"none": np.zeros(3), "tiny": np.full(3, 1e-12), "one arm never paid": np.array([1.0, 0.5, 0.0])}[rewards]
    for _ in range(60):
        decision = policy.choose(0)
        policy.update(decision, rows if policy.feedback == "full" else float(rows[decision.arm]))
    for array in policy.snapshot().arrays.values():
        assert np.isfinite(array).all()
    if rewards == "none" and kind != "adaptive bandit":
        assert policy.probabilities(0) == pytest.approx(np.full(3, 1 / 3))
    if rewards == "none" and kind in FULL:
        assert policy.surrogate_regret_bound == 0.0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(1, 1), (2, 1), (1, 2)])
def test_one_arm_and_one_context(kind: str, shape: tuple[int, int]) -> None:
    policy = KINDS[kind].policy(*shape, alpha=2.0, seed=0, **KINDS[kind].own)
    for t in range(20):
        decision = policy.choose(t % shape[0])
        policy.update(decision, np.full(shape[1], 0.5) if policy.feedback == "full" else 0.5)
    assert policy.probabilities(0).sum() == pytest.approx(1.0)


@pytest.mark.parametrize("kind", KINDS)
def test_entitlements_of_any_size(kind: str) -> None:
    groups = Groups(entitlements=[1e-6, 1.0, 1e6])
    policy = KINDS[kind].policy(1, 3, alpha=64.0, groups=groups, seed=3, **KINDS[kind].own)
    for _ in range(40):
        decision = policy.choose(0)
        policy.update(decision, np.array([0.5, 1.0, 0.2]) if policy.feedback == "full" else 0.5)
        assert np.isfinite(decision.probabilities).all()
    load_policy(State.from_bytes(policy.snapshot().to_bytes()))


def test_a_fresh_arm_converts_the_bound_to_its_welfare() -> None:
    """At alpha = 64 the welfare falls from 300 to about 1: in units of the first one the bound would overflow."""
    pair = Pair("ascent", "plain", 64.0)
    pair.policy = AlphaFair(2, 3, alpha=64.0, seed=0)
    for _ in range(30):
        pair.policy.update(pair.policy.choose(0), np.ones(3))
    pair.policy.new_period(1.0)
    pair.policy.update(pair.policy.choose(0), np.array([1.0, 0.0, 0.5]))
    before = pair.policy.surrogate_regret_bound
    pair.policy.grow(n_arms=4, account="fresh")
    assert pair.policy.surrogate_regret_bound == pytest.approx(before, rel=1e-9)
    assert pair.policy._memory.scalars[-1] < 1.1  # first_welfare
    assert before > 0.0


class Apart:
    """Fairness within contexts, beside one `AlphaFair` and one oracle for every context."""

    def __init__(self, n_contexts: int, n_arms: int, alpha: float) -> None:
        self.alpha, self.n_arms = alpha, n_arms
        self.policy = IndependentAlphaFair(n_contexts, n_arms, alpha=alpha, seed=1)
        self.alone = [AlphaFair(1, n_arms, alpha=alpha) for _ in range(n_contexts)]
        books = [naive_alpha.Books(list(range(n_arms))) for _ in range(n_contexts)]
        self.oracles = [naive_alpha.AlphaFair(1, each, alpha=alpha) for each in books]

    def play(self, n_rounds: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(n_rounds):
            context = int(rng.integers(len(self.alone)))
            rewards = rng.random(self.policy.n_arms) ** 3 * (rng.random(self.policy.n_arms) < 0.8)
            alone, oracle = self.alone[context], self.oracles[context]
            decision = self.policy.choose(context)
            assert decision.probabilities.tolist() == alone.probabilities(0).tolist()
            assert decision.probabilities == pytest.approx(oracle.probabilities(0), abs=1e-10, rel=0)
            self.policy.update(decision, rewards)
            alone.update(decision._replace(context=0), rewards)
            oracle.learn(0, decision.probabilities, rewards)
        assert self.policy.accounts.tolist() == [alone.accounts.tolist() for alone in self.alone]

    def everywhere(self, act: Any) -> None:
        for each in (self.policy, *self.alone):
            act(each)


@pytest.mark.parametrize("alpha", [0.0, 0.9, *ALPHAS])
def test_fairness_within_contexts_is_an_ascent_per_context(alpha: float) -> None:
    apart = Apart(3, 3, alpha)
    apart.play(150, seed=1)
    apart.everywhere(lambda policy: policy.new_period(0.5))
    for oracle in apart.oracles:
        oracle.new_period(0.5)
    apart.play(60, seed=2)
    apart.everywhere(lambda policy: policy.grow(n_arms=4))
    for oracle in apart.oracles:
        oracle.admit([3])
    apart.play(60, seed=3)
    apart.everywhere(lambda policy: policy.retire(1))
    for oracle in apart.oracles:
        oracle.retire(1)
    apart.play(60, seed=4)
    apart.policy = load_policy(State.from_bytes(apart.policy.snapshot().to_bytes()))
    apart.play(20, seed=5)


@pytest.mark.parametrize(("before", "after"), [(0.5, 2.0), (2.0, 0.5), (1.0, inf), (0.5, 0.9)])
def test_alpha_within_contexts_is_changed_in_every_context(before: float, after: float) -> None:
    apart = Apart(2, 3, before)
    apart.play(100, seed=1)
    apart.everywhere(lambda policy: policy.set_alpha(after))
    rng = np.random.default_rng(2)
    for t in range(60):
        rewards = rng.random(3)
        decision = apart.policy.choose(t % 2)
        assert decision.probabilities.tolist() == apart.alone[t % 2].probabilities(0).tolist()
        apart.policy.update(decision, rewards)
        apart.alone[t % 2].update(decision._replace(context=0), rewards)


def test_new_contexts_start_with_accounts_of_their_own() -> None:
    apart = Apart(2, 3, 2.0)
    apart.play(100, seed=1)
    apart.policy.grow(3)
    assert apart.policy.accounts[2].tolist() == [1.0, 1.0, 1.0]
    apart.alone.append(AlphaFair(1, 3, alpha=2.0))
    apart.oracles.append(naive_alpha.AlphaFair(1, naive_alpha.Books([0, 1, 2]), alpha=2.0))
    apart.play(100, seed=2)


@pytest.mark.parametrize("kind", KINDS)
def test_kernels_have_a_name_of_their_own(kind: str) -> None:
    """So that machine code for alpha < 1 has none of the branches for larger ones."""
    one, other = (jit.Kernels.of(KINDS[kind].policy(1, 2, alpha=alpha, **KINDS[kind].own)) for alpha in (0.9, 1.0))
    assert other == one._replace(flags=frozenset({"welfare"}))


# changing alpha


def played(policy: Any, n_rounds: int = 25, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    for _ in range(n_rounds):
        decision = policy.choose(int(rng.integers(0, policy.n_contexts)), rng=rng)
        rewards = rng.random(policy.n_arms)
        policy.update(decision, rewards if policy.feedback == "full" else float(rewards[decision.arm]))
    return policy


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("groups", ["plain", "groups", "group floors"])
def test_alpha_changes_across_one(kind: str, groups: str) -> None:
    """What was learned stays, the certificate starts anew, and the policy is one that a snapshot can hold."""
    policy = played(Pair(kind, groups, 0.9).policy)
    for alpha in (2.0, inf, 1.0, 0.5, 1.5):
        accounts, rewards, x = policy.accounts, policy.cumulative_rewards, getattr(policy, "distributions", None)
        policy.set_alpha(alpha)
        assert policy.accounts == pytest.approx(accounts, rel=1e-15)
        assert policy.cumulative_rewards == pytest.approx(rewards, rel=1e-15)
        if x is not None:
            assert (policy.distributions == x).all()
        restored = load_policy(State.from_bytes(policy.snapshot().to_bytes()))
        assert (played(restored, 10, 4).probabilities(0) == played(policy, 10, 4).probabilities(0)).all()
        assert policy.alpha == restored.alpha == alpha
    policy.new_period()
    assert policy.period == 1


@pytest.mark.parametrize("alpha", [1.0, 5.0])
@pytest.mark.parametrize("kind", FULL)
def test_after_a_change_the_bound_counts_later_rounds(kind: str, alpha: float) -> None:
    for first in (0.9, 2.0):
        policy = played(KINDS[kind].policy(2, 3, alpha=first, seed=0, **KINDS[kind].own))
        policy.set_alpha(alpha)
        assert policy.surrogate_regret_bound == 0.0
        played(policy)
        assert policy.surrogate_regret_bound > 0.0


# snapshots of before alpha could be 1

STORED = ROOT / "tests" / "fixtures" / "snapshots" / "below_one"


@pytest.mark.parametrize("name", sorted(path.stem for path in STORED.glob("*.npz")))
def test_older_snapshots_of_version_4_open(name: str) -> None:
    """Each file has a snapshot, and the probabilities and accounts after 20 more rounds of `played`."""
    with np.load(STORED / f"{name}.npz") as stored:
        state = State.from_bytes(stored["state"].tobytes())
        assert state.version == 4
        if name == "alpha-fair":  # of a reading that the lab has now
            with pytest.raises(InvalidArgument, match="must be 'before'; got 'next_visit'"):
                load_policy(state)
            settings = {key: value for key, value in state.settings.items() if key != "marginal"}
            policy = AlphaFairNextVisit(state.settings["n_contexts"], state.settings["n_arms"], alpha=settings["alpha"])
            policy.restore(replace(state, policy=policy.name, version=5, settings=settings))
        else:
            policy = load_policy(state)
        if name.startswith("adaptive"):  # it plays on with other formulas: tests/policy/test_snapshots.py
            return
        played(policy, 20, 3)
        for context, expected in enumerate(stored["probabilities"]):
            np.testing.assert_allclose(policy.probabilities(context), expected, rtol=1e-12)
        np.testing.assert_allclose(policy.accounts, stored["accounts"], rtol=1e-13)
    assert policy.period == 0


# periods

KEPT = {
    "ascent": {"x"},
    "adaptive full": {"x", "share"},
    "adaptive bandit": {"pending", "head_start"},
    "scale-free": set(),
}
OF_PREDICTOR = (
    {"gram", "moment", "coefficients", "reward_sum", "squared_rewards", "squared_misses", "seen"}
    | {
        *("largest", "rounds", "visits"),
    }
    | {f"{name}_{part}" for name in ("arm", "age", "long", "recent", "latest") for part in ("sum", "count")}
)
OF_ACCOUNTS = {*utility.ACCOUNT._fields, "earned", "entry_accounts", "group_entry", "unit", "first_welfare"} | {
    "first_unit",
    "period",
    "closed_rewards",
}


@pytest.mark.parametrize("kind", KEPT)
@pytest.mark.parametrize("groups", ["plain", "groups"])
@pytest.mark.parametrize("alpha", [0.9, 1.0, 5.0, inf])
def test_a_period_is_a_run_with_what_was_handed_over(kind: str, groups: str, alpha: float) -> None:
    policy = played(Pair(kind, groups, alpha).policy, 40)
    policy.new_period(0.5)
    after, blank = policy.snapshot(), policy.fresh().snapshot()
    handed = KEPT[kind] | OF_ACCOUNTS | (OF_PREDICTOR if "adaptive" in kind else set())
    arrays = {name: after.arrays[name] if name in handed else blank.arrays[name] for name in after.arrays}
    other = policy.fresh()
    other.restore(State(after.policy, after.version, after.settings, after.rng, arrays))
    slope, account = after.arrays.get("slope"), after.arrays["account"]
    if slope is not None:
        unit = float(after.arrays.get("unit", 1.0))
        assert slope == pytest.approx((account / unit) ** -utility.played_alpha(alpha), rel=1e-12)
    played(policy, 40, 1)
    played(other, 40, 1)
    for name, array in policy.snapshot().arrays.items():
        assert (other.snapshot().arrays[name] == array).all(), name


@pytest.mark.parametrize("kind", KINDS)
def test_carry_decides_what_accounts_begin_with(kind: str) -> None:
    policy = played(KINDS[kind].policy(2, 3, alpha=1.0, seed=0, **KINDS[kind].own))
    accounts, rewards = policy.accounts, policy.cumulative_rewards
    policy.new_period(1.0)
    assert (policy.accounts == accounts).all()
    assert (policy.entry_accounts == accounts).all()
    assert policy.period == 1
    assert not policy.period_rewards.any()
    policy.new_period(0.0)
    assert (policy.accounts == 1.0).all()
    assert (policy.entry_accounts == 1.0).all()
    assert policy.cumulative_rewards == pytest.approx(rewards)
    played(policy, 10)
    assert policy.cumulative_rewards == pytest.approx(rewards + policy.period_rewards)
    assert policy.accounts == pytest.approx(1.0 + policy.period_rewards)


@pytest.mark.parametrize("carry", [-0.1, 1.1, math.nan, "half", None])
def test_a_bad_carry_changes_nothing(carry: Any) -> None:
    policy = played(AlphaFairAdaptive(2, 3, alpha=2.0, seed=0))
    before = policy.snapshot().to_bytes()
    with pytest.raises(InvalidArgument, match="carry must be a number in"):
        policy.new_period(carry)
    assert policy.snapshot().to_bytes() == before


def test_periods_of_policies_without_accounts_are_counted() -> None:
    policy = Hedge(1, 2, seed=0)
    policy.new_period()
    assert (policy.period, policy.entry_accounts, policy.period_rewards) == (1, None, None)


def test_fair_within_contexts_starts_its_periods_in_every_context() -> None:
    policy = played(IndependentAlphaFair(2, 3, alpha=0.5, seed=0))
    accounts = policy.accounts
    policy.new_period(0.5)
    assert policy.accounts == pytest.approx(1.0 + 0.5 * (accounts - 1.0))
    policy.grow(3)
    assert policy.cumulative_rewards[:2] == pytest.approx(accounts - 1.0)
    assert not policy.cumulative_rewards[2].any()
    played(policy)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("alpha", [0.9, 2.0])
def test_periods_with_retired_arms_and_snapshots(kind: str, alpha: float) -> None:
    policy = played(Pair(kind, "groups", alpha).policy)
    policy.retire(3)  # the last arm of its group
    absent = policy.accounts[2]
    policy.new_period(0.5)
    policy.new_period(0.5)
    assert policy.accounts[2] == pytest.approx(1.0 + 0.25 * (absent - 1.0))
    restored = load_policy(State.from_bytes(policy.snapshot().to_bytes()))
    assert restored.period == 2
    assert (restored.cumulative_rewards == policy.cumulative_rewards).all()
    assert (restored.entry_accounts == policy.entry_accounts).all()
    for each in (restored, policy):
        each.new_period(0.3)
        played(each, 10, 5)
    assert (restored.probabilities(0) == policy.probabilities(0)).all()
    assert restored.snapshot().to_bytes() == policy.snapshot().to_bytes()


def test_groups_that_enter_later_keep_their_entry_accounts() -> None:
    policy = played(AlphaFair(2, 2, alpha=1.0, groups=Groups(["a", "b"]), seed=0))
    policy.grow(n_arms=3, account=7.0, groups=["c"])
    assert policy.entry_accounts.tolist() == [1.0, 1.0, 7.0]
    restored = load_policy(State.from_bytes(policy.snapshot().to_bytes()))
    assert restored.entry_accounts.tolist() == [1.0, 1.0, 7.0]


@pytest.mark.parametrize("damage", [{"period": np.array([-1, 0])}, {"closed_rewards": np.full((1, 3), -1.0)}])
def test_damaged_periods_are_refused(damage: dict[str, Any]) -> None:
    policy = played(AlphaFair(2, 3, alpha=2.0, seed=0))
    policy.new_period()
    state = policy.snapshot()
    arrays = {**state.arrays, **damage}
    with pytest.raises(InvalidArgument, match=r"state\.arrays"):
        policy.restore(State(state.policy, state.version, state.settings, state.rng, arrays))
    del arrays["closed_rewards"]
    with pytest.raises(InvalidArgument, match=r"state\.arrays must be named"):
        policy.restore(State(state.policy, state.version, state.settings, state.rng, arrays))


@pytest.mark.parametrize("kind", ["adaptive full", "adaptive bandit"])
@pytest.mark.parametrize("damage", [("unit", 0.0), ("bound", -1.0), ("slope", 0.5)])
def test_damaged_snapshots_of_a_large_alpha_are_refused(kind: str, damage: tuple[str, float]) -> None:
    policy = played(KINDS[kind].policy(2, 3, alpha=2.0, seed=0, **KINDS[kind].own))
    state, (name, value) = policy.snapshot(), damage
    if name in state.arrays:
        arrays = {**state.arrays, name: np.full_like(state.arrays[name], value)}
        with pytest.raises(InvalidArgument, match=r"state\.arrays"):
            policy.restore(State(state.policy, state.version, state.settings, state.rng, arrays))


# whole runs


def stream_of(n_rounds: int = 90, **more: Any) -> Stream:
    contexts, rewards = make_rounds("smooth", n_rounds, 2, 4, 11)
    return Stream.from_arrays(np.array(contexts), rewards, **more)


@pytest.mark.parametrize("kind", ["ascent", "adaptive full", "adaptive bandit", "scale-free"])
@pytest.mark.parametrize("alpha", [0.9, 2.0])
@pytest.mark.parametrize("delay", [None, 7])
def test_simulated_periods_are_those_of_the_policy(kind: str, alpha: float, delay: int | None) -> None:
    traces, states = [], []
    for compiled in (True, False):
        policy = KINDS[kind].policy(2, 4, alpha=alpha, seed=0, **KINDS[kind].own)
        traces.append(simulate(policy, stream_of(), period=40, carry=0.25, delay=delay, compiled=compiled))
        states.append(policy.snapshot())
    assert states[0].to_bytes() == states[1].to_bytes()
    for one, other in zip(*(trace.periods for trace in traces), strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
    periods = traces[0].periods
    assert [(each.first, each.last) for each in periods] == [(0, 40), (40, 80), (80, 90)]
    assert sum(each.rewards for each in periods) == pytest.approx(traces[0].final - 1.0)
    assert (periods[0].entry_accounts == 1.0).all()
    for before, after in itertools.pairwise(periods):
        assert after.entry_accounts == pytest.approx(1.0 + 0.25 * (before.accounts - 1.0))
    if delay is None:
        for each in periods:
            assert each.accounts - each.entry_accounts == pytest.approx(each.rewards)


def test_a_period_longer_than_the_stream_is_none() -> None:
    one, other = (AlphaFair(2, 4, alpha=1.0, seed=0) for _ in range(2))
    trace = simulate(one, stream_of(), period=1000)
    simulate(other, stream_of())
    assert one.snapshot().to_bytes() == other.snapshot().to_bytes()
    assert [(each.first, each.last) for each in trace.periods] == [(0, 90)]
    assert simulate(other, stream_of()).periods == ()


def test_arms_change_before_a_period_starts() -> None:
    stream = stream_of(arrivals=[0, 0, 0, 30], departures=[60, 90, 90, 90])
    for compiled in (True, False):
        policy = AlphaFairAdaptive(2, 3, alpha=2.0, feedback="full", seed=0)
        trace = simulate(policy, stream, period=30, carry=0.5, compiled=compiled)
        second = trace.periods[1]
        assert second.entry_accounts[3] == second.entry_accounts.min()
        assert second.entry_accounts[3] == pytest.approx(1.0 + 0.5 * (trace.periods[0].accounts.min() - 1.0))
        assert trace.periods[2].rewards[0] == 0.0


@pytest.mark.parametrize(("argument", "value"), [("period", 0), ("period", 1.5), ("carry", 2.0)])
def test_bad_periods_of_a_run_are_refused(argument: str, value: Any) -> None:
    policy = AlphaFair(2, 4, alpha=1.0, seed=0)
    with pytest.raises(InvalidArgument, match=f"{argument} must be"):
        simulate(policy, stream_of(), **{"period": 10, argument: value})
    assert policy.period == 0
