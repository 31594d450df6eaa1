"""The loops: over a log, and over a stream with delays, compiled and stepwise to the last bit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from alphafair import (
    AlphaFair,
    AlphaFairAdaptive,
    AlphaFairBandit,
    FairCB,
    Hedge,
    InvalidArgument,
    ScaleFree,
    Uniform,
    run,
    simulate,
    streams,
)
from alphafair.lab.rivals import AlphaFairAfter
from alphafair.policy.base import BasePolicy
from alphafair.values import Decision, Log
from tests import INTERPRETED
from tests.algorithms.test_policies import PAIRS, make_pair

STREAM = streams.ratings(600, 3, 4, seed=0)
BANDITS: list[Any] = [
    lambda: AlphaFairBandit(3, 4),
    lambda: ScaleFree(3, 4),
    lambda: AlphaFairAdaptive(3, 4),
    lambda: FairCB(3, 4, horizon=600),
    lambda: Uniform(3, 4, feedback="bandit"),
]


def memory(policy: BasePolicy) -> list[bytes]:
    return [array.tobytes() for _, array in sorted(policy.snapshot().arrays.items())]


@pytest.mark.parametrize("make", BANDITS)
def test_a_log_replays_to_the_same_state(make: Any) -> None:
    live, folded, stepped = make(), make(), make()
    log = simulate(live, STREAM, seed=4, log=True).log
    assert log is not None
    run.over_log(folded, log)
    for entry in zip(log.contexts.tolist(), log.arms.tolist(), log.propensities.tolist(), log.rewards, strict=True):
        stepped.update(Decision(*entry[:3], None), float(entry[3]))  # type: ignore[arg-type]
    assert memory(live) == memory(folded) == memory(stepped)


@pytest.mark.parametrize("make", [lambda: AlphaFair(3, 4), lambda: Hedge(3, 4), lambda: AlphaFairAfter(3, 4)])
def test_a_full_log_replays_to_the_same_state(make: Any) -> None:
    live, folded = make(), make()
    used, rewards = [], []
    for t in range(300):
        decision = live.choose(int(STREAM.contexts[t]))
        live.update(decision, STREAM.rewards(t))
        used.append(decision.probabilities)
        rewards.append(STREAM.rewards(t))
    run.over_full_log(folded, STREAM.contexts[:300], np.array(used), np.array(rewards))
    assert memory(live) == memory(folded)


@pytest.mark.parametrize("make", BANDITS[:3])
def test_a_log_with_retired_arms_is_booked_and_learned_as_one_by_one(make: Any) -> None:
    log = simulate(make(), STREAM, seed=4, log=True).log
    assert log is not None
    log = replace(log, propensities=np.maximum(log.propensities, 0.2))
    folded, stepped = make(), make()
    for policy in (folded, stepped):
        policy.retire(1)
    run.over_log(folded, log)
    for entry in zip(log.contexts.tolist(), log.arms.tolist(), log.propensities.tolist(), log.rewards, strict=True):
        stepped.update(Decision(*entry[:3], None), float(entry[3]))  # type: ignore[arg-type]
    for ours, theirs in zip(folded.snapshot().arrays.values(), stepped.snapshot().arrays.values(), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)


@pytest.mark.parametrize("kind", ["random"] if INTERPRETED else ["random", 0, 1, 50, 10_000])
@pytest.mark.parametrize("name", PAIRS)
def test_delays_run_compiled_as_stepwise(name: str, kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    delay = np.random.default_rng(1).integers(0, 90, 600).astype(np.int32) if kind == "random" else kind
    monkeypatch.setattr("alphafair.policy.stepper.MOST_ROUNDS", 128)
    results = []
    for compiled in (True, False):
        policy, _ = make_pair(name, 3, 4, np.random.default_rng(2))
        trace = simulate(policy, STREAM, seed=9, delay=delay, record_every=70, compiled=compiled)
        results.append((memory(policy), trace.accounts.tobytes(), trace.pulls.tolist()))
    assert results[0] == results[1]


@pytest.mark.parametrize("longest", [0, 1, 2, 7, 90])
def test_there_is_a_slot_for_all_that_wait_at_once(longest: int) -> None:
    """As many as wait when most do, counted one by one: compiled loops do not ask whether there is room."""
    delays = np.random.default_rng(longest).integers(0, longest + 1, 60).astype(np.int32)
    waiting: list[int] = []
    most = 0
    for t, delay in enumerate(delays.tolist()):
        waiting = [due for due in waiting if due > t] + [max(t + delay, t + 1)]
        most = max(most, len(waiting))
    for policy, width in ((AlphaFair(1, 5), 5), (AlphaFairBandit(1, 5), 2)):
        found = run._waits(delays, policy)
        assert found.free.tolist() == list(range(most))
        assert found.waiting.shape == (most, width)


def test_an_impossible_propensity_is_refused() -> None:
    """One reward logged at 1e-3 froze the learner: fed once, the best arm was pulled 21% of the time instead of 71%."""
    for policy in (AlphaFairBandit(2, 3), ScaleFree(2, 3)):
        before = memory(policy)
        with pytest.raises(
            InvalidArgument,
            match=r"decision.propensity must be at least 0\.167, the smallest propensity of this policy",
        ):
            policy.update(Decision(0, 1, 1e-3, None), 1.0)  # type: ignore[arg-type]
        log = Log([0, 1, 0], [0, 1, 2], [0.5, 0.5, 1.0], [0.5, 0.4, 1e-3], n_contexts=2)
        with pytest.raises(InvalidArgument, match=r"log.propensities\[2\] must be at least"):
            run.over_log(policy, log)
        assert memory(policy) == before
        policy.update(Decision(0, 1, 1 / 6, None), 1.0)  # type: ignore[arg-type]


@pytest.mark.parametrize("make", BANDITS[:3])
def test_no_decision_of_a_policy_is_refused_later(make: Any) -> None:
    """However late, however arms came and went in between."""
    rng = np.random.default_rng(3)
    policy, waiting = make(), []
    for t in range(3000):
        decision = policy.choose(int(rng.integers(3)), rng=rng)
        waiting.append(decision)
        if rng.random() < 0.9:
            policy.update(waiting.pop(int(rng.integers(len(waiting)))), float(rng.random() < 0.3))
        if t % 700 == 350:
            policy.grow(n_arms=policy.n_arms + 3)
        if t % 400 == 399:
            policy.retire(int(policy.live_arms[rng.integers(len(policy.live_arms))]))
    for decision in waiting:
        policy.update(decision, 1.0)


class Plain(AlphaFairBandit):
    """One that learns in its own way, so that no compiled loop can stand for it."""

    name = "plain"

    def update(self, decision: Decision, reward: Any) -> None:
        super().update(decision, 0.5 * reward)


def test_a_policy_with_its_own_update_is_asked_one_by_one() -> None:
    log = simulate(AlphaFairBandit(3, 4), STREAM, log=True).log
    assert log is not None
    log = replace(log, propensities=np.maximum(log.propensities, 0.125))
    policy = Plain(3, 4)
    run.over_log(policy, log)
    expected = 1.0 + 0.5 * np.bincount(log.arms, log.rewards, minlength=4)
    np.testing.assert_allclose(policy.accounts, expected, rtol=1e-12)
    before = policy.snapshot()
    with pytest.raises(InvalidArgument, match=r"decision\.propensity"):
        run.over_log(policy, replace(log, propensities=np.where(np.arange(600) == 300, 1e-6, log.propensities)))
    assert memory(policy) == [array.tobytes() for _, array in sorted(before.arrays.items())]


def test_a_full_log_with_an_invalid_entry_changes_nothing() -> None:
    class Proud(Hedge):
        name = "proud"

        def update(self, decision: Decision, reward: Any) -> None:
            if reward[0] < 0.5:
                raise ValueError("too little")
            super().update(decision, reward)

    policy = Proud(1, 2)
    before = memory(policy)
    with pytest.raises(ValueError, match="too little"):
        run.over_full_log(policy, [0, 0], [[0.5, 0.5]] * 2, [[1.0, 0.0], [0.0, 1.0]])
    assert memory(policy) == before


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda: run.over_log(AlphaFair(1, 2), Log([0], [0], [1.0], [0.5])),
            "policy must be a policy with bandit feedback",
        ),
        (
            lambda: run.over_log(AlphaFairBandit(1, 2), Log([1], [0], [1.0], [0.5])),
            r"log must be limited to at most 1 contexts and 2 arms; got \[2, 1\]. Call policy.grow\(2, 2\) first.",
        ),
        (
            lambda: run.over_log(AlphaFairBandit(1, 2), Log([0], [0], [1.5], [0.5])),
            r"log.rewards\[0\] must be a number",
        ),
        (lambda: run.over_full_log(ScaleFree(1, 2), [0], [[1, 0]], [[1, 0]]), "policy must be a policy with full"),
        (lambda: run.over_full_log(Hedge(1, 2), [0], [[1.0]], [[1, 0]]), r"probabilities must be of shape \(1, 2\)"),
        (
            lambda: run.over_full_log(Hedge(1, 2), [0], [[1.0, 1.0]], [[1, 0]]),
            r"probabilities\[0\] must be a distrib",
        ),
        (lambda: run.over_full_log(Hedge(1, 2), [0], [[1.0, 0.0]], [[2, 0]]), r"rewards must be in \[0, 1\]"),
        (
            lambda: run.over_full_log(Hedge(1, 2), [3], [[1.0, 0.0]], [[1, 0]]),
            "contexts must be limited to at most 1 contexts",
        ),
    ],
)
def test_refusals(call: Any, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        call()


def test_a_full_log_books_what_retired_arms_earned() -> None:
    policy = AlphaFair(1, 3)
    policy.retire(1)
    run.over_full_log(policy, [0, 0], [[0.5, 0.25, 0.25]] * 2, [[1.0, 0.8, 0.4]] * 2)
    assert policy.accounts.tolist() == pytest.approx([2.0, 1.4, 1.2])


def test_arms_must_not_change_during_a_run() -> None:
    policy = AlphaFairBandit(1, 3)
    with pytest.raises(InvalidArgument, match=r"policy must be a policy with the live arms \[0, 2\] during"):
        policy.stepper.run(np.array([0, 2]), "play", 1)
    assert Uniform(1, 3).stepper.least_propensity(0) == 0.0


def test_matching_rounds_stepwise_and_compiled_are_the_same() -> None:
    stream = streams.ratings(n_rounds=800, n_contexts=3, n_arms=4, seed=2)
    log = simulate(Uniform(3, 4, feedback="bandit"), stream, seed=1, log=True).log
    assert log is not None

    class Plain(AlphaFairBandit):
        def choose(self, *arguments: Any, **more: Any) -> Any:
            return super().choose(*arguments, **more)

    whole, single = AlphaFairBandit(3, 4), Plain(3, 4)
    (n, played), (m, stepped) = (run.over_matches(policy, log, np.random.default_rng(3)) for policy in (whole, single))
    assert n == m == played.pulls.sum()
    assert np.array_equal(played.earned, stepped.earned)
    assert np.array_equal(played.pulls, stepped.pulls)
    assert np.array_equal(whole.accounts, single.accounts)
    assert np.array_equal(whole.accounts, played.earned)
