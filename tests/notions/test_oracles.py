"""The policies of `alphafair.notions` against exact cases, and against their naive versions after any events."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from alphafair import Uniform, notions
from alphafair.algorithms import POLICIES
from alphafair.math.merit import merits, optimistic_merit
from alphafair.notions import NOTIONS, Promised
from alphafair.notions.fair_bandits import C as INTERVALS
from tests import INTERPRETED, ROOT, naive_notions
from tests.algorithms.test_events import Pair, check_distribution, play

GOLDEN = json.loads((ROOT / "tests" / "fixtures" / "golden-zoo.json").read_text())
NAMES = {"floor": "pull_share", "group": "groups", "rate": "rates"}  # of settings in the file
ROUNDS = [name for name, case in GOLDEN.items() if "rounds" in case]


class One:
    """A source of one uniform number."""

    def __init__(self, uniform: float) -> None:
        self.uniform = uniform

    def random(self) -> float:
        return self.uniform


@pytest.mark.parametrize("name", ROUNDS)
def test_golden_cases(name: str) -> None:
    case = GOLDEN[name]
    settings = {NAMES.get(key, key): value for key, value in case["settings"].items()}
    sizes = case["n_contexts"], case["n_arms"]
    if case["policy"] == "PromisedUniform":
        policy: Any = Promised(Uniform(*sizes), **{"tolerance": 0.0, **settings})
    else:
        policy = getattr(notions, {"OHF": "HorizonFair"}.get(case["policy"], case["policy"]))(*sizes, **settings)
    for each in case["rounds"]:
        decision = policy.choose(each["context"], rng=One(each.get("uniform", 0.5)))
        np.testing.assert_allclose(decision.probabilities, each["probabilities"], rtol=0.0, atol=1e-12)
        assert decision.arm == each.get("arm", decision.arm)
        policy.update(decision, each["rewards"] if policy.feedback == "full" else each["rewards"][decision.arm])


def test_every_policy_has_a_golden_case() -> None:
    known = {"OHF": "HorizonFair", "PromisedUniform": "Promised"}
    cases = {known.get(GOLDEN[name]["policy"], GOLDEN[name]["policy"]) for name in ROUNDS}
    assert cases == {kind.__name__ for kind in NOTIONS}


def test_golden_separation_of_fair_bandits() -> None:
    case = GOLDEN["fair-bandits-chain"]
    policy = notions.FairBandits(case["n_contexts"], case["n_arms"], **case["settings"])
    uniforms = (np.random.default_rng(11).integers(1024, size=len(case["arms"])) + 0.5) / 1024
    changes = {change["round"]: change["probabilities"] for change in case["changes"]}
    expected = changes[0]
    for t, (arm, uniform) in enumerate(zip(case["arms"], uniforms.tolist(), strict=True)):
        expected = changes.get(t, expected)
        decision = policy.choose(0, rng=One(uniform))
        np.testing.assert_allclose(decision.probabilities, expected, rtol=0.0, atol=1e-12)
        assert decision.arm == int(arm)
        policy.update(decision, case["rewards"][decision.arm])
    for row, name in ((INTERVALS.low, "low"), (INTERVALS.high, "high")):
        np.testing.assert_allclose(policy._memory.contexts[0, row], case[name], rtol=0.0, atol=1e-12)


def test_golden_boxes() -> None:
    for case in GOLDEN["optimistic-merit"]["cases"]:
        low, high = np.array(case["low"]), np.array(case["high"])
        ends, upper = [np.empty(3), np.empty(3)], np.empty(3)
        for end, out in zip((low, high), ends, strict=True):
            merits(end, 2.0, out)
        optimistic_merit(low, high, *ends, upper)
        np.testing.assert_allclose(np.where(upper == 1.0, high, low), case["mu"], rtol=0.0, atol=1e-12)


# any events

SHARES = {0: 0.2, 1: 0.05, 3: 0.1, 5: 0.15}
HALVES = {
    "groups": ["a", "b", "a", "b", "c", "c", "a", "b", "c", "a", "b", "c", *"abc" * 40],
    "low": {"a": 0.3, "b": 0.2},
    "high": {"a": 0.6, "c": 0.25},
    "gap": 2.5,
}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "fair-learn": ("FairLearn", {"shares": 0.1}),
    "fair-learn-by-arm": ("FairLearn", {"shares": {0: 0.1, 1: 0.05, 3: 0.08, 5: 0.11}, "tolerance": 1.5, "width": 0.3}),
    "rate-ucb": ("RateUCB", {"pull_share": 0.05, "width": 0.5}),
    "lfg": ("LFG", {"shares": 0.1}),
    "lfg-by-arm": ("LFG", {"shares": SHARES, "eta": 2.0, "width": 0.2}),
    "fair-bandits": ("FairBandits", {"delta": 0.9}),
    "fairx": ("FairX", {"horizon": 1000, "delta": 0.2, "slope": 3.0}),
    "fairx-narrow": ("FairX", {"width": 0.3, "slope": 9.0}),
    "bandit-q": ("BanditQ", {"rates": 0.04, "horizon": 100}),
    "bandit-q-queue-first": ("BanditQ", {"rates": SHARES, "horizon": 9, "queue_first": True}),
    "guaranteed-revenue": ("GuaranteedRevenue", {"rates": {0: 0.1, 2: 0.02, 5: 0.08}}),
    "guaranteed-revenue-too-much": ("GuaranteedRevenue", {"rates": 0.2}),
    "constrained-greedy": ("ConstrainedGreedy", HALVES),
    "nash-confidence-bound": ("NashConfidenceBound", {"horizon": 100, "c": 0.3, "explore": 1.0}),
    "horizon-fair": ("HorizonFair", {"alpha": 0.7, "low": 0.1}),
    "horizon-fair-steep": ("HorizonFair", {"alpha": 2.0, "low": 0.2}),
    "promised": ("Promised", {"rates": 0.08, "tolerance": 2.0}),
    "promised-strict": ("Promised", {"rates": SHARES, "tolerance": 0.0}),
    "promised-reward": ("Promised", {"of": "reward", "rates": SHARES, "tolerance": 0.7}),
}


def test_every_policy_has_an_oracle() -> None:
    assert {name for name, _ in CASES.values()} == {kind.__name__ for kind in NOTIONS}


class NotionPair(Pair):
    def __init__(self, name: str, settings: dict[str, Any], n_arms: int, *, announced: bool) -> None:
        self.announced, self.settings = announced, settings
        if name == "Promised":
            self.ours: Any = Promised(Uniform(2, n_arms), **settings)
            self.oracle: Any = naive_notions.PromisedUniform(2, n_arms, **settings)
            return
        given = {**settings, "groups": settings["groups"][:n_arms]} if "groups" in settings else settings
        self.ours = getattr(notions, name)(2, n_arms, **given)
        self.oracle = getattr(naive_notions, name)(2, n_arms, **settings)

    def learn(self, decision: Any, reward: Any) -> None:
        context, arm, propensity, p = decision[:4]
        if np.ndim(reward):  # arms that were added since the decision earned nothing by it
            wide = [np.append(each, np.zeros(self.ours.n_arms - len(each)))[self.oracle.live] for each in (p, reward)]
            self.oracle.learn_all(context, *wide)
        else:
            self.oracle.learn(context, arm, propensity, reward)

    def expect(self, decision: Any) -> None:
        self.oracle.expect(decision.arm)

    def add_arms(self, n_new: int, account: Any, rng: np.random.Generator) -> None:
        first = self.ours.n_arms
        labels = {"groups": self.settings["groups"][first : first + n_new]} if "groups" in self.settings else {}
        self.ours.grow(n_arms=first + n_new, account=account, **labels)
        self.oracle.add_arms(n_new)

    def retire(self, arm: int) -> None:
        self.oracle.retire(arm)

    def add_context(self) -> None:
        self.oracle.add_context()

    def check(self, rng: np.random.Generator) -> None:
        assert self.ours.live_arms.tolist() == self.oracle.live
        for context in range(self.ours.n_contexts):
            check_distribution(self.ours, self.ours.probabilities(context), self.oracle.probabilities(context))
        if isinstance(self.ours, Promised):
            mask = rng.random(self.ours.n_arms) < 0.5
            if mask[self.oracle.live].any():
                p = self.ours.probabilities(0, available=mask)
                check_distribution(self.ours, p, self.oracle.probabilities(0, mask))


@pytest.mark.parametrize("announced", [False, True], ids=["", "announced"])
@pytest.mark.parametrize("name", CASES)
def test_any_events(name: str, announced: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, settings = CASES[name]
    monkeypatch.setitem(POLICIES, getattr(notions, kind).name, getattr(notions, kind))
    for seed in range(1 if INTERPRETED else 2):
        rng = np.random.default_rng([seed, len(name), announced])
        play(NotionPair(kind, settings, int(rng.integers(1, 5)), announced=announced), rng)


@pytest.mark.parametrize("name", ["fair-learn", "lfg", "promised"])
def test_a_pull_is_taken_back(name: str) -> None:
    """Announced pulls count once, and pulls that were never announced cannot be taken back."""
    kind, settings = CASES[name]
    pair = NotionPair(kind, {**settings, "shares" if kind != "Promised" else "rates": 0.2}, 3, announced=True)
    rng = np.random.default_rng(3)
    for t in range(60):
        decision = pair.ours.choose(t % 2, rng=rng)
        for announce in (["expect"], ["expect", "forgo"], ["forgo"])[int(rng.integers(3))]:
            getattr(pair.ours, announce)(decision)
            getattr(pair.oracle, announce)(decision.arm)
        if rng.random() < 0.7:
            pair.ours.update(decision, 0.5)
            pair.learn(decision, 0.5)
        pair.check(rng)
