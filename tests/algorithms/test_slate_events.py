"""Policies that show slates agree with their oracles after any order of events.

Every decision shows a random number of arms, some among a subset of them. Rewards come at once, late, in parts and in
any order; arms come and go, some join groups, and snapshots are restored.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from alphafair import AlphaFair, AlphaFairAdaptive, AlphaFairBandit, Groups, State, load_policy
from alphafair.values import SlateDecision
from tests import INTERPRETED, naive_slates
from tests.naive_groups import GroupTerms

N_EVENTS = 90
EVENTS = {"now": 0.4, "later": 0.18, "late": 0.2, "arms": 0.05, "retire": 0.05, "contexts": 0.04, "snapshot": 0.08}
OBSERVING = {"observe": 0.3, **{event: 0.7 * share for event, share in EVENTS.items()}}
MOST_ARMS, MOST_CONTEXTS = 8, 4
KINDS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "alpha-fair": (AlphaFair, naive_slates.AlphaFair, {}),
    "bandit": (AlphaFairBandit, naive_slates.AlphaFairBandit, {}),
    "adaptive": (AlphaFairAdaptive, naive_slates.Adaptive, {}),
    "adaptive full": (AlphaFairAdaptive, naive_slates.Adaptive, {"feedback": "full"}),
}
GROUPS: dict[str, dict[str, Any]] = {
    "alone": {"labels": ["a", "b", "c", "d", "e"]},
    "floor": {"labels": ["a", "b", "a", "c", "c"], "pull_floor": 0.07},
    "groups": {"labels": ["a", "b", "a", "c", "b"], "entitlements": {"b": 3.0, "c": 0.5}},
}


@pytest.fixture(autouse=True)
def _interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiling takes longer; `slates_agree_in_every_mode` of the conformance checks compares machine code."""
    monkeypatch.setenv("ALPHAFAIR_JIT", "off")


class Pair:
    """A policy, its oracle, and the decisions whose rewards wait."""

    def __init__(self, kind: str, groups: dict[str, Any]) -> None:
        policy, oracle, options = KINDS[kind]
        terms = GroupTerms(groups["labels"], groups.get("entitlements", {}), groups.get("pull_floor", 0.0))
        self.ours = policy(2, 5, alpha=0.8, **options, groups=Groups(**groups))
        self.oracle, self.terms, self.floor = oracle(2, terms, alpha=0.8, **options), terms, terms.nu
        self.full, self.announced = self.ours.feedback == "full", kind == "adaptive"
        self.entitled, self.n_new_groups = "entitlements" in groups, 0
        self.begun: dict[int, SlateDecision] = {}  # some rewards of which were learned since the last `restore`
        self.waiting: list[tuple[SlateDecision, dict[int, float] | Any]] = []

    def choose(self, rng: np.random.Generator) -> None:
        ours, live = self.ours, self.terms.live
        context, k = int(rng.integers(ours.n_contexts)), int(rng.integers(1, len(live) + 1))
        mask = (rng.random(ours.n_arms) < 0.7) | (np.arange(ours.n_arms) == rng.choice(live))
        available = mask if rng.random() < 0.4 else None
        decision = ours.choose(context, k=k, rng=rng, available=available)
        self.check_decision(decision, k, available)
        np.testing.assert_array_equal(ours.probabilities(context, k=k, available=available), decision.probabilities)
        if self.announced:
            ours.expect(decision)
            for arm in decision.arms:
                self.oracle.expect(live.index(arm))
        rewards = rng.random(ours.n_arms) if self.full else {arm: float(rng.random()) for arm in decision.arms}
        self.waiting.append((decision, rewards))

    def check_decision(self, decision: SlateDecision, k: int, available: Any) -> None:
        """The oracle's probabilities; their sum, floors and the cap; different arms, all of them available."""
        live, p = self.terms.live, np.asarray(decision.probabilities)
        expected = self.oracle.inclusion(decision.context, min(k, len(live)))
        there = np.isin(np.arange(len(p)), live)
        if available is not None:
            there &= available
            if k > 1:
                expected = naive_slates.restrict(expected, available[live], k, self.floor)
            else:
                above = np.where(available[live], expected - self.floor, 0.0)
                keep = 1 - self.floor * there.sum()
                expected = np.where(available[live], self.floor + keep * above / above.sum(), 0.0)
        np.testing.assert_allclose(p[live], expected, rtol=1e-8, atol=1e-9)
        assert p.sum() == pytest.approx(len(decision.arms), abs=1e-12)
        assert len(decision.arms) == min(k, there.sum()) == len({*decision.arms})
        assert (p[there] >= self.floor * (1 - 1e-12)).all()
        assert p.max() <= 1.0
        assert not p[~there].any()
        assert decision.propensities == tuple(p[list(decision.arms)])

    def learn(self, which: int, rng: np.random.Generator) -> None:
        """All rewards that wait, or some of them; the rest stays."""
        decision, rewards = self.waiting.pop(which)
        context, k, live = decision.context, len(decision.arms), self.terms.live
        if self.full:
            self.ours.update(decision, rewards)
            used, seen = (np.append(each, np.zeros(self.ours.n_arms - len(each))) for each in (decision[3], rewards))
            for i in set(range(self.ours.n_arms)) - {*live}:
                self.terms.earn(i, used[i] * seen[i])
            self.oracle.learn_every(context, min(k, len(live)), used, seen)
            return
        first = id(decision) not in self.begun
        self.begun[id(decision)] = decision
        now = {arm: r for arm, r in rewards.items() if rng.random() < 0.6} or rewards
        if len(now) == k and rng.random() < 0.5:
            self.ours.update(decision, list(now.values()))
        else:
            self.ours.update(decision, now)
        of_arm = dict(zip(decision.arms, decision.propensities, strict=True))
        given = {live.index(arm): (of_arm[arm], r) for arm, r in now.items() if arm in live}
        if given:
            self.oracle.learn_some(context, min(k, len(live)), given, first=first)
        for arm in now:
            if arm not in live:
                self.terms.earn(arm, now[arm])
                if self.announced:
                    for place in range(self.oracle.n_arms):
                        if self.terms.live_groups[place] == self.terms.groups[arm]:
                            self.oracle.refresh(place)
        if len(now) < len(rewards):
            self.waiting.append((decision, {arm: r for arm, r in rewards.items() if arm not in now}))

    def observe(self, rng: np.random.Generator) -> None:
        """The reward of an arm that somebody else showed."""
        context, arm, reward = int(rng.integers(self.ours.n_contexts)), int(rng.choice(self.terms.live)), rng.random()
        assert self.ours.observe(context, arm, reward)
        self.oracle.observe(context, self.terms.live.index(arm), reward)

    def change_arms(self, event: str, rng: np.random.Generator) -> None:
        if event == "arms" and len(self.terms.live) < MOST_ARMS:
            self.n_new_groups += 1
            label = str(rng.choice(["a", "b", f"new {self.n_new_groups}"]))
            entitlements = {label: 2.0} if self.entitled and label not in self.ours.groups.labels else {}
            self.ours.grow(n_arms=self.ours.n_arms + 1, groups=Groups([label], entitlements or None))
            self.oracle.change(None, [label], None, entitlements)
        if event == "retire" and len(self.terms.live) > 2:
            arm = int(rng.choice(self.terms.live))
            self.ours.retire(arm)
            self.oracle.change(arm, [], None, {})
        if event == "contexts" and self.ours.n_contexts < MOST_CONTEXTS:
            self.ours.grow(self.ours.n_contexts + 1)
            self.oracle.grow(self.ours.n_contexts)

    def check(self) -> None:
        for context in range(self.ours.n_contexts):
            p = self.ours.probabilities(context, k=2)[self.terms.live]
            np.testing.assert_allclose(p, self.oracle.inclusion(context, 2), rtol=1e-8, atol=1e-9)
        np.testing.assert_allclose(self.ours.cumulative_rewards + 1.0, self.terms.own, rtol=1e-10)
        accounts = dict(zip(self.ours.groups.labels, self.ours.accounts.tolist(), strict=True))
        assert accounts == pytest.approx(self.terms.accounts, rel=1e-10)


def play(pair: Pair, rng: np.random.Generator, events: dict[str, float] = EVENTS) -> None:
    for _ in range(N_EVENTS):
        event = rng.choice(list(events), p=list(events.values()))
        if event == "observe":
            pair.observe(rng)
        if event in ("now", "later"):
            pair.choose(rng)
        if event in ("now", "late") and pair.waiting:
            pair.learn(-1 if event == "now" else int(rng.integers(len(pair.waiting))), rng)
        if event in ("arms", "retire", "contexts"):
            pair.change_arms(event, rng)
        if event == "snapshot":
            state = State.from_bytes(pair.ours.snapshot().to_bytes())
            pair.ours.restore(state)  # after which it does not know which decisions it has learned from
            pair.begun.clear()
            assert load_policy(state).probabilities(0, k=2).tolist() == pair.ours.probabilities(0, k=2).tolist()
        pair.check()


@pytest.mark.parametrize("seed", range(1 if INTERPRETED else 3))
@pytest.mark.parametrize("groups", GROUPS)
@pytest.mark.parametrize("kind", KINDS)
def test_policies_with_slates(kind: str, groups: str, seed: int) -> None:
    play(Pair(kind, GROUPS[groups]), np.random.default_rng([seed, len(kind), len(groups)]))


@pytest.mark.parametrize("groups", GROUPS)
def test_policies_with_slates_that_observe_others(groups: str) -> None:
    play(Pair("adaptive", GROUPS[groups]), np.random.default_rng(len(groups)), OBSERVING)
