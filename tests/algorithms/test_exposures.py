"""Slots that are looked at unequally: the best arm first, rewards learned over exposures, accounts as earned."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from alphafair import AlphaFair, AlphaFairAdaptive, AlphaFairBandit, Groups, Log, simulate, streams
from alphafair.errors import InvalidArgument
from alphafair.evaluation import evaluate
from alphafair.run import over_log
from alphafair.values import SlateDecision
from tests import naive_slates
from tests.naive_groups import GroupTerms

EXPOSURES = (1.0, 0.6, 0.4)


@pytest.fixture(autouse=True)
def _interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALPHAFAIR_JIT", "off")


@pytest.mark.parametrize("alpha", [0.0, 0.8, 1.0, 2.0])
def test_the_oracle_learns_the_same(alpha: float) -> None:
    """Probabilities, accounts and the order of the arms, with groups, masks, late and partial rewards."""
    labels = ["a", "b", "a", "c", "b"]
    terms = GroupTerms(labels, {"b": 3.0}, 0.0)
    ours, oracle = (
        AlphaFairAdaptive(2, 5, alpha=alpha, groups=Groups(labels, {"b": 3.0})),
        naive_slates.Adaptive(2, terms, alpha=alpha),
    )
    rng = np.random.default_rng(7)
    for t in range(40):
        context, mask = int(rng.integers(2)), (rng.random(5) < 0.8) | (np.arange(5) == t % 5)
        available = mask if t % 3 == 0 else None
        decision = ours.choose(context, k=3, rng=rng, available=available, exposures=EXPOSURES)
        inclusion, n = oracle.inclusion(context, 3), len(decision.arms)
        if available is not None:
            inclusion = naive_slates.restrict(inclusion, mask, 3, 0.0)
        np.testing.assert_allclose(decision.probabilities, inclusion, rtol=1e-8, atol=1e-9)
        assert decision.exposures == EXPOSURES[:n]
        worth = (oracle.slopes() * oracle.index.predict(context))[list(decision.arms)]
        assert (np.diff(worth) <= 1e-9 * worth.max()).all()
        exposures = dict(zip(decision.arms, EXPOSURES, strict=False))
        rewards = {arm: exposures[arm] * float(rng.random() < 0.2 + 0.1 * arm) for arm in decision.arms}
        of_arm = dict(zip(decision.arms, decision.propensities, strict=True))
        parts = [decision.arms] if t % 2 else [decision.arms[1:], decision.arms[:1]]
        for number, part in enumerate(filter(None, parts)):
            ours.update(decision, {arm: rewards[arm] for arm in part})
            given = {arm: (of_arm[arm], rewards[arm]) for arm in part}
            oracle.learn_some(context, n, given, first=number == 0, exposures=exposures)
        np.testing.assert_allclose(ours.accounts, [terms.accounts[group] for group in ours.groups.labels])
    np.testing.assert_allclose(ours.cumulative_rewards + 1.0, terms.own)
    assert ours.expected_surrogate_regret_bound is None


def test_the_best_arm_gets_the_first_slot() -> None:
    """Learned from rewards that were lowered by the slots: without division the arm of slot 1 would stay there."""
    policy, rng = AlphaFairAdaptive(1, 4, alpha=0.0, seed=1), np.random.default_rng(2)
    for _ in range(250):
        decision = policy.choose(0, k=3, exposures=(1.0, 0.3, 0.1))
        paid = [e * (0.2 + 0.2 * arm) for e, arm in zip((1.0, 0.3, 0.1), decision.arms, strict=True)]
        policy.update(decision, paid)
    firsts = [policy.choose(0, k=3, rng=rng, exposures=(1.0, 0.3, 0.1)).arms for _ in range(50)]
    assert sum(arms[0] == 3 for arms in firsts) > 40
    assert all(list(arms) == sorted(arms, reverse=True) for arms in firsts)
    without = [set(policy.choose(0, k=3, rng=rng).arms) for _ in range(50)]
    assert np.mean([3 in arms for arms in without]) > 0.8


def test_decisions_keep_their_exposures() -> None:
    policy = AlphaFairAdaptive(1, 5, seed=1)
    decision = policy.choose(0, k=3, exposures=list(EXPOSURES))
    assert policy.choose(0, k=3).exposures is SlateDecision(*decision).exposures is None
    rebuilt = pickle.loads(pickle.dumps(decision))
    for same in (decision, rebuilt, decision._replace(context=0), rebuilt._replace(context=0)):
        assert same.exposures == EXPOSURES
    policy.update(decision, [0.5, 0.3, 0.2])
    other = AlphaFairAdaptive(1, 5, seed=1)
    other.update(rebuilt, [0.5, 0.3, 0.2])
    assert policy.accounts.tolist() == other.accounts.tolist()
    assert sorted(policy.cumulative_rewards.tolist()) == pytest.approx([0.0, 0.0, 0.2, 0.3, 0.5])
    with pytest.raises(InvalidArgument, match="exposures must be 3 numbers from 1 down"):
        other.update(rebuilt._replace(exposures=(1.0, 0.0, 0.0)), [0.5, 0.3, 0.2])


def test_a_retired_arm_is_paid_what_it_earned() -> None:
    policy = AlphaFairAdaptive(1, 4, seed=1)
    decision = policy.choose(0, k=3, exposures=EXPOSURES)
    policy.retire(decision.arms[1])
    policy.update(decision, [0.5, 0.3, 0.2])
    assert policy.cumulative_rewards[list(decision.arms)].tolist() == pytest.approx([0.5, 0.3, 0.2])


SLOTS = "exposures must be 3 numbers from 1 down to at least 1e-06, one per slot; got"
REFUSALS: dict[str, tuple[Any, dict[str, Any], str]] = {
    "rising": (AlphaFairAdaptive, {"k": 3, "exposures": (1.0, 0.4, 0.6)}, f"{SLOTS} (1.0, 0.4, 0.6). Divide them by"),
    "not from 1": (AlphaFairAdaptive, {"k": 3, "exposures": (0.9, 0.6, 0.4)}, SLOTS),
    "too few": (AlphaFairAdaptive, {"k": 3, "exposures": (1.0, 0.6)}, SLOTS),
    "none at all": (AlphaFairAdaptive, {"k": 3, "exposures": (1.0, 0.6, 0.0)}, SLOTS),
    "NaN": (AlphaFairAdaptive, {"k": 3, "exposures": (1.0, np.nan, 0.4)}, SLOTS),
    "a number": (AlphaFairAdaptive, {"k": 3, "exposures": 0.5}, SLOTS),
    "words": (AlphaFairAdaptive, {"k": 3, "exposures": "abc"}, SLOTS),
    "without k": (AlphaFairAdaptive, {"exposures": (1.0,)}, "exposures must be left out without k; got (1.0,)"),
    "full information": (AlphaFair, {"k": 3, "exposures": EXPOSURES}, "left out: alpha-fair shuffles the slots; got"),
    "another bandit": (AlphaFairBandit, {"k": 3, "exposures": EXPOSURES}, "left out: alpha-fair-bandit shuffles"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_refusals_change_nothing(case: str) -> None:
    kind, options, words = REFUSALS[case]
    policy = kind(1, 5, seed=1)
    before = policy.snapshot().to_bytes()
    with pytest.raises(InvalidArgument) as caught:
        policy.choose(0, **options)
    assert words in str(caught.value)
    assert policy.snapshot().to_bytes() == before


STREAM = streams.stationary(n_rounds=100, n_contexts=2, n_arms=5, seed=1)


def played(**options: Any) -> tuple[AlphaFairAdaptive, Any]:
    policy = AlphaFairAdaptive(2, 5, alpha=0.5, seed=1)
    return policy, simulate(policy, STREAM, k=3, exposures=EXPOSURES, log=True, **options)


def test_runs_and_their_logs() -> None:
    """Accounts count what the slots paid; a log has exposures, and who learns from it learns the same."""
    policy, trace = played()
    log = trace.log
    assert log.exposures[:6].tolist() == [*EXPOSURES] * 2
    items = STREAM.items[log.decisions]
    assert log.rewards.tolist() == (log.exposures * STREAM.reward_table[items, log.arms]).tolist()
    np.testing.assert_allclose(log.values, STREAM.reward_table[items, log.arms])
    np.testing.assert_allclose(trace.final - 1.0, np.bincount(log.arms, log.rewards, 5))
    np.testing.assert_allclose(policy.cumulative_rewards, trace.final - 1.0, rtol=1e-10)
    again = AlphaFairAdaptive(2, 5, alpha=0.5)
    over_log(again, log)
    assert again.accounts.tolist() == policy.accounts.tolist()
    late, _ = played(delay=4)
    np.testing.assert_allclose(late.cumulative_rewards.sum() / policy.cumulative_rewards.sum(), 1.0, atol=0.3)


def test_estimates_are_of_the_first_slot() -> None:
    """As of a log whose rewards were divided by hand; from a table too."""
    log = played()[1].log
    plain = {name: getattr(log, name) for name in ("contexts", "arms", "propensities", "decisions", "positions")}
    by_hand = Log(rewards=log.rewards / log.exposures, **plain)
    same = evaluate(log, np.full((2, 5), 0.2), alpha=0.5, n_replicates=100)
    hand = evaluate(by_hand, np.full((2, 5), 0.2), alpha=0.5, n_replicates=100)
    assert repr(same) == repr(hand)
    rows = {name: column.tolist() for name, column in plain.items() if name != "positions"}
    table = Log.from_table(
        rows | {"rewards": log.rewards.tolist(), "looked_at": log.exposures.tolist()},
        **{"context": "contexts", "arm": "arms", "reward": "rewards", "propensity": "propensities"},
        decision="decisions",
        exposure="looked_at",
    )
    assert table.values.tolist() == by_hand.rewards.tolist()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: simulate(AlphaFairAdaptive(2, 5), STREAM, exposures=EXPOSURES), "left out unless k is one number"),
        (
            lambda: simulate(AlphaFairAdaptive(2, 5), STREAM, k=[3] * 100, exposures=EXPOSURES),
            "left out unless k is one number",
        ),
        (lambda: simulate(AlphaFairAdaptive(2, 5), STREAM, k=2, exposures=EXPOSURES), "exposures must be 2 numbers"),
        (lambda: Log([0], [0], [1.0], [0.5], exposures=[0.5]), "exposures must be left out without decisions"),
        (lambda: Log([0], [0], [1.0], [0.5], decisions=[1], exposures=[0.0]), r"exposures\[0\] must be"),
    ],
)
def test_refusals_of_runs_and_logs(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        make()
