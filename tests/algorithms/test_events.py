"""Every policy agrees with its slow oracle after any order of events.

`play` draws the events with a fixed seed: decisions (some among a subset of the arms), rewards at once, late and in any
order, announced rewards, new arms, retired arms, new contexts, snapshots, and in some tests rewards of decisions of
others. A `Pair` is a policy with its oracle: one class for plain policies, one for policies with features, one for
policies with groups.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from alphafair import AlphaFair, AlphaFairAdaptive, AlphaFairBandit, FairCB, Groups, State, load_policy
from alphafair.algorithms import POLICIES
from tests import INTERPRETED, naive, naive_groups
from tests.algorithms.test_policies import PAIRS, make_pair
from tests.naive_adaptive import AlphaFairAdaptive as OracleWithFeatures

N_EVENTS = 155
EVENTS = {"now": 0.42, "later": 0.14, "late": 0.14, "arms": 0.08, "retire": 0.08, "contexts": 0.05, "snapshot": 0.09}
OBSERVING = {"observe": 0.4, **{event: 0.6 * share for event, share in EVENTS.items()}}
MOST_ARMS, MOST_CONTEXTS = 8, 5
SEEDS = 1 if INTERPRETED else 4


class Pair:
    """A policy and its oracle, to which the same events happen."""

    ours: Any
    announced = False  # whether rewards are announced with `expect`

    def features(self, rng: np.random.Generator) -> dict[str, Any]:
        """The features of a decision, as keyword arguments."""
        return {}

    def learn(self, decision: Any, reward: Any) -> None:
        raise NotImplementedError

    def expect(self, decision: Any) -> None:
        raise NotImplementedError

    def add_arms(self, n_new: int, account: Any, rng: np.random.Generator) -> None:
        raise NotImplementedError

    def observe(self, context: int, arm: int, reward: float, **features: Any) -> None:
        """Let the oracle learn from a decision of somebody else."""
        raise NotImplementedError

    def retire(self, arm: int) -> None:
        raise NotImplementedError

    def add_context(self) -> None:
        raise NotImplementedError

    def check(self, rng: np.random.Generator) -> None:
        """The policy and the oracle agree in everything that can be read."""
        raise NotImplementedError


def play(pair: Pair, rng: np.random.Generator, events: dict[str, float] = EVENTS) -> None:
    """Draw events, let them happen to both, and compare the two after each."""
    waiting: list[tuple[Any, Any]] = []
    for _ in range(N_EVENTS):
        ours = pair.ours
        event = rng.choice(list(events), p=list(events.values()))
        if event in ("now", "later"):
            some = np.isin(np.arange(ours.n_arms), [rng.choice(ours.live_arms)]) | (rng.random(ours.n_arms) < 0.7)
            mask = some if rng.random() < 0.5 else None
            decision = ours.choose(int(rng.integers(ours.n_contexts)), rng=rng, available=mask, **pair.features(rng))
            waiting.append((decision, rng.random(ours.n_arms) if ours.feedback == "full" else float(rng.random())))
            if pair.announced:
                ours.expect(decision)
                pair.expect(decision)
        if event in ("now", "late") and waiting:
            decision, reward = waiting.pop(-1 if event == "now" else int(rng.integers(len(waiting))))
            ours.update(decision, reward)
            pair.learn(decision, reward)
        if event == "observe":
            context, arm, reward = int(rng.integers(ours.n_contexts)), int(rng.integers(ours.n_arms)), rng.random()
            shown = pair.features(rng)
            assert ours.observe(context, arm, reward, **shown) is (arm in ours.live_arms)
            if arm in ours.live_arms:
                pair.observe(context, arm, reward, **shown)
        if event == "arms" and len(ours.live_arms) < MOST_ARMS:
            pair.add_arms(int(rng.integers(1, 3)), ["least", "fresh", 3.5][rng.integers(3)], rng)
        if event == "retire" and len(ours.live_arms) > 1:
            arm = int(rng.choice(ours.live_arms))
            ours.retire(arm)
            pair.retire(arm)
        if event == "contexts" and ours.n_contexts < MOST_CONTEXTS:
            ours.grow(ours.n_contexts + 1)
            pair.add_context()
        if event == "snapshot":
            state = State.from_bytes(ours.snapshot().to_bytes())
            pair.ours = load_policy(state)
            if rng.random() < 0.5:
                pair.ours.restore(state)
        pair.check(rng)


def oracle_account(account: Any) -> float | None:
    """How the oracles write the account that new arms start with."""
    return {"least": None, "fresh": 1.0}.get(account, account)


def check_distribution(ours: Any, p: Any, expected: Any, *, rtol: float = 1e-10) -> None:
    """Over live arms as expected, 0 for the others, and of sum 1."""
    live = ours.live_arms
    assert p.sum() == pytest.approx(1.0, abs=1e-12)
    assert not np.delete(p, live).any()
    np.testing.assert_allclose(p[live], expected, rtol=rtol, atol=1e-10)


class PlainPair(Pair):
    """The oracle numbers live arms only; this keeps the numbers of all arms, and what retired arms earned."""

    def __init__(self, ours: Any, oracle: naive.Policy) -> None:
        self.ours, self.oracle = ours, oracle
        self.n_arms, self.live = oracle.n_arms, list(range(oracle.n_arms))
        self.retired: dict[int, Any] = {}

    def live_accounts(self) -> Any:
        return getattr(self.oracle, "accounts", None)

    def add_arms(self, n_new: int, account: Any, rng: np.random.Generator) -> None:
        self.ours.grow(n_arms=self.n_arms + n_new, account=account)
        self.arms_added(n_new, oracle_account(account))

    def arms_added(self, n_new: int, account: float | None) -> None:
        self.oracle.change_arms(list(range(len(self.live))), [account] * n_new)
        self.live += range(self.n_arms, self.n_arms + n_new)
        self.n_arms += n_new

    def retire(self, arm: int) -> None:
        place = self.live.index(arm)
        if self.live_accounts() is not None:
            self.retired[arm] = np.array(self.live_accounts()[..., place])
        self.oracle.change_arms([k for k in range(len(self.live)) if k != place], [])
        self.live.remove(arm)

    def add_context(self) -> None:
        self.oracle.grow(self.ours.n_contexts)
        for arm, earned in self.retired.items():
            self.retired[arm] = np.append(earned, 1.0) if np.ndim(earned) else earned

    def learn(self, decision: Any, reward: Any) -> None:
        context, arm, propensity, p = decision[:4]
        full = np.ndim(reward) > 0
        for gone in self.retired:
            if gone < len(p) and (full or gone == arm):
                earned = p[gone] * reward[gone] if full else reward
                if np.ndim(self.retired[gone]):
                    self.retired[gone][context] += earned
                else:
                    self.retired[gone] += earned
        if full:  # arms that were added since the decision earned nothing by it
            p, reward = (np.append(each, np.zeros(self.n_arms - len(each)))[self.live] for each in (p, reward))
            self.oracle.learn(context, 0, 1.0, p, reward)
        elif arm in self.live:
            self.oracle.learn(context, self.live.index(arm), propensity, p, reward)

    def observe(self, context: int, arm: int, reward: float, **features: Any) -> None:
        self.oracle.observe(context, self.live.index(arm), reward)  # type: ignore[attr-defined]

    def probabilities(self, context: int) -> naive.Vector:
        p = np.zeros(self.n_arms)
        p[self.live] = self.oracle.probabilities(context)
        return p

    def accounts(self) -> Any:
        accounts = self.live_accounts()
        of_all = np.zeros((*accounts.shape[:-1], self.n_arms))
        of_all[..., self.live] = accounts
        for arm, account in self.retired.items():
            of_all[..., arm] = account
        return of_all

    def check(self, rng: np.random.Generator | None = None) -> None:
        assert self.ours.live_arms.tolist() == self.live
        for context in range(self.ours.n_contexts):
            check_distribution(self.ours, self.ours.probabilities(context), self.oracle.probabilities(context))
        if self.live_accounts() is not None:
            np.testing.assert_allclose(self.ours.accounts, self.accounts(), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("seed", range(1 if INTERPRETED else 6))
@pytest.mark.parametrize("name", [name for name, (kind, _, _) in PAIRS.items() if kind.name in POLICIES])
def test_plain_policies(name: str, seed: int) -> None:
    rng = np.random.default_rng([seed, len(name)])
    ours, oracle = make_pair(name, 2, int(rng.integers(1, 4)), rng)
    if isinstance(ours, FairCB):  # a floor that leaves room for more arms
        known = ours.settings["context_weights"], oracle.weights if oracle.known else None  # type: ignore[attr-defined]
        settings = {**ours.settings, "pull_share": 0.08}
        ours, oracle = (
            kind(2, 3, **{**settings, "context_weights": weights})
            for kind, weights in zip((FairCB, naive.FairCB), known, strict=True)
        )
    play(PlainPair(ours, oracle), rng)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_policy_that_observes_others(seed: int) -> None:
    rng = np.random.default_rng([seed, 37])
    play(PlainPair(*make_pair("adaptive-half", 2, int(rng.integers(2, 5)), rng)), rng, OBSERVING)


class FeaturePair(Pair):
    """Features of very different scales; an arm that was added after a decision had features 0 in it."""

    n_features = 3

    def __init__(self, feedback: Any, features_of: Any) -> None:
        options = {"alpha": 0.7, "feedback": feedback, "n_features": self.n_features, "features_of": features_of}
        self.ours: Any = AlphaFairAdaptive(2, 3, **options)
        self.oracle = OracleWithFeatures(2, 3, **options)
        self.of_arms = features_of == "arms"

    def features(self, rng: np.random.Generator) -> dict[str, Any]:
        shape = (self.ours.n_arms, self.n_features) if self.of_arms else self.n_features
        return {"features": np.array([1.0, 1e-3, 100.0]) * rng.normal(size=shape)}

    def add_arms(self, n_new: int, account: Any, rng: np.random.Generator) -> None:
        self.ours.grow(n_arms=self.ours.n_arms + n_new, account=account)
        self.oracle.change_arms(list(range(self.oracle.n_arms)), [oracle_account(account)] * n_new)

    def retire(self, arm: int) -> None:
        left = self.ours.live_arms
        place = int(np.searchsorted(left, arm))
        self.oracle.change_arms([k for k in range(len(left) + 1) if k != place], [])

    def add_context(self) -> None:
        self.oracle.grow(self.ours.n_contexts)

    def learn(self, decision: Any, reward: Any) -> None:
        live, n = self.ours.live_arms, self.ours.n_arms
        z = decision.features
        if self.of_arms:
            z = np.concatenate([z, np.zeros((n - len(z), self.n_features))])[live]
        self.oracle.show(z)
        p, rewards = (
            np.append(each, np.zeros(n - len(each)))[live] for each in (decision.probabilities, np.atleast_1d(reward))
        )
        if self.ours.feedback == "full":
            self.oracle.learn(decision.context, 0, 1.0, p, rewards)
        elif decision.arm in live:
            place = int(np.searchsorted(live, decision.arm))
            self.oracle.learn(decision.context, place, decision.propensity, p, reward)

    def observe(self, context: int, arm: int, reward: float, **features: Any) -> None:
        live, z = self.ours.live_arms, features["features"]
        self.oracle.show(z[live] if self.of_arms else z)
        self.oracle.observe(context, int(np.searchsorted(live, arm)), reward)

    def check(self, rng: np.random.Generator) -> None:
        live, shown = self.ours.live_arms, self.features(rng)
        z = shown["features"]
        self.oracle.show(z[live] if self.of_arms else z)
        for context in range(self.ours.n_contexts):
            check_distribution(
                self.ours, self.ours.probabilities(context, features=z), self.oracle.probabilities(context)
            )
        np.testing.assert_allclose(self.ours.accounts[live], self.oracle.accounts, rtol=1e-10)


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("features_of", ["context", "arms"])
@pytest.mark.parametrize("feedback", ["bandit", "full"])
def test_policies_with_features(feedback: str, features_of: str, seed: int) -> None:
    play(FeaturePair(feedback, features_of), np.random.default_rng([seed, len(features_of)]))


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("features_of", ["context", "arms"])
def test_policies_with_features_that_observe_others(features_of: str, seed: int) -> None:
    play(FeaturePair("bandit", features_of), np.random.default_rng([seed, len(features_of)]), OBSERVING)


KINDS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "alpha-fair": (AlphaFair, naive_groups.AlphaFair, {}),
    "bandit": (AlphaFairBandit, naive_groups.AlphaFairBandit, {}),
    "adaptive": (AlphaFairAdaptive, naive_groups.Adaptive, {}),
    "adaptive full": (AlphaFairAdaptive, naive_groups.Adaptive, {"feedback": "full"}),
}
GROUPS: dict[str, dict[str, Any]] = {
    "groups": {"labels": ["a", "b", "a", "c"]},
    "entitlements": {"labels": ["a", "b", "c", "d"], "entitlements": {"b": 3.0, "d": 0.5}},
    "arm floor": {"labels": ["a", "b", "a", "c"], "pull_floor": 0.07},
    "group floors": {"labels": ["a", "b", "a", "c"], "pull_floor": {"a": 0.3, "c": 0.25}},
    "everything": {"labels": ["a", "b", "a", "b"], "entitlements": {"a": 2.0}, "pull_floor": {"a": 0.5, "b": 0.2}},
}


class GroupPair(Pair):
    """New arms join groups that exist and groups of their own."""

    def __init__(self, kind: str, groups: dict[str, Any]) -> None:
        policy, oracle, options = KINDS[kind]
        naive_form = naive_groups.GroupTerms(
            groups["labels"], groups.get("entitlements", {}), groups.get("pull_floor", 0.0)
        )
        self.ours = policy(2, 4, alpha=0.8, **options, groups=Groups(**groups))
        self.oracle = oracle(2, naive_form, alpha=0.8, **options)
        self.entitled = "entitlements" in groups
        self.announced = kind == "adaptive"
        self.n_new_groups = 0

    def expect(self, decision: Any) -> None:
        self.oracle.expect(self.oracle.terms.live.index(decision.arm))

    def add_arms(self, n_new: int, account: Any, rng: np.random.Generator) -> None:
        self.n_new_groups += 1
        labels = [str(rng.choice(["a", "b", "c", f"new {self.n_new_groups}"])) for _ in range(n_new)]
        unknown = [label for label in labels if label not in self.ours.groups.labels]
        entitlements = dict.fromkeys(unknown, 2.0) if self.entitled else {}
        self.ours.grow(n_arms=self.ours.n_arms + n_new, account=account, groups=Groups(labels, entitlements or None))
        self.oracle.change(None, labels, oracle_account(account), entitlements)

    def retire(self, arm: int) -> None:
        self.oracle.change(arm, [], None, {})

    def add_context(self) -> None:
        self.oracle.grow(self.ours.n_contexts)

    def learn(self, decision: Any, reward: Any) -> None:
        self.oracle.learn(*decision, reward)

    def observe(self, context: int, arm: int, reward: float, **features: Any) -> None:
        self.oracle.observe(context, self.oracle.terms.live.index(arm), reward)

    def check(self, rng: np.random.Generator) -> None:
        terms = self.oracle.terms
        assert self.ours.live_arms.tolist() == terms.live
        for context in range(self.ours.n_contexts):
            check_distribution(
                self.ours, self.ours.probabilities(context), self.oracle.probabilities(context), rtol=1e-9
            )
        np.testing.assert_allclose(self.ours.cumulative_rewards + 1.0, terms.own, rtol=1e-10)
        accounts = dict(zip(self.ours.groups.labels, self.ours.accounts.tolist(), strict=True))
        assert accounts == pytest.approx(terms.accounts, rel=1e-10)


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("groups", GROUPS)
@pytest.mark.parametrize("kind", KINDS)
def test_policies_with_groups(kind: str, groups: str, seed: int) -> None:
    play(GroupPair(kind, GROUPS[groups]), np.random.default_rng([seed, len(kind), len(groups)]))


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("groups", GROUPS)
def test_policies_with_groups_that_observe_others(groups: str, seed: int) -> None:
    play(GroupPair("adaptive", GROUPS[groups]), np.random.default_rng([seed, len(groups)]), OBSERVING)
