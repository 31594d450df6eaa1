"""Steps under other floating-point flags, steps that an exception interrupts, and a process forked during a step."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from alphafair import (
    AlphaFair,
    AlphaFairAdaptive,
    Decision,
    Groups,
    InvalidArgument,
    Stream,
    context_reward_totals,
    load_policy,
    metrics,
    offline_optimum,
    simulate,
)
from alphafair.algorithms import POLICIES, BasePolicy
from alphafair.policy import base

SETTINGS: dict[str, dict[str, Any]] = {"fair-cb": {"horizon": 100}}


def variants() -> list[Any]:
    made = []
    for name, kind in POLICIES.items():
        for feedback in kind.traits.feedbacks or [None]:
            chosen = {} if feedback is None else {"feedback": feedback.value}
            made.append(pytest.param(kind, {**SETTINGS.get(name, {}), **chosen}, id=f"{name}-{feedback}"))
    for alpha in (0.0, 2.0, 64.0):
        groups = Groups(["a", "b", "a"], entitlements=[3.0, 2.0], pull_floor=0.01)
        made.append(pytest.param(AlphaFairAdaptive, {"alpha": alpha, "groups": groups}, id=f"groups-{alpha:g}"))
    return made


@pytest.mark.parametrize(("kind", "settings"), variants())
def test_floating_point_flags_of_the_caller_do_not_matter(
    kind: type[BasePolicy], settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALPHAFAIR_JIT", "off")

    def play() -> bytes:
        policy = kind(2, 3, **settings, seed=1)
        for reward in (1e-300, 1.0, 1e-200, 1e-160, 0.0):
            decision = policy.choose(0)
            policy.expect(decision)
            policy.update(decision, reward if policy.feedback == "bandit" else [reward, 0.0, 1e-300])
            policy.probabilities(1, available=[True, False, True])
        policy.forgo(policy.choose(1))
        policy.new_period()
        policy.grow(3, 4, **({"groups": ["a"]} if "groups" in settings else {}))
        policy.retire(1)
        if "alpha" in policy.settings:
            policy.set_alpha(0.5 * policy.alpha)
        policy.choose(2)
        return load_policy(policy.snapshot()).snapshot().to_bytes()

    quiet = play()
    with np.errstate(all="raise"):
        assert play() == quiet


@pytest.mark.parametrize(("kind", "settings"), variants())
def test_nor_do_they_with_masks_and_retired_arms(
    kind: type[BasePolicy], settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALPHAFAIR_JIT", "off")
    rewards = [1e-300, 0.0, 5e-324, 1.0, 1e-160]

    def play() -> bytes:
        policy = kind(2, 3, **settings, seed=1)

        def learn(decision: Decision, k: int) -> None:
            each = [rewards[(k + i) % 5] for i in range(3)]
            policy.update(decision, each[0] if policy.feedback == "bandit" else each)

        late = [policy.choose(k % 2) for k in range(10)]
        for k in range(5):
            learn(policy.choose(0, available=[True, k % 2 > 0, True]), k)
        policy.retire(0)
        for k, decision in enumerate(late):
            learn(decision, k)
        for k in range(5):
            learn(policy.choose(1, available=[False, True, k % 2 > 0]), k)
        return policy.snapshot().to_bytes()

    quiet = play()
    with np.errstate(all="raise"):
        assert play() == quiet


@pytest.mark.parametrize("features", [2, 0])
def test_nor_do_they_with_features(features: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALPHAFAIR_JIT", "off")

    def play() -> bytes:
        policy = AlphaFairAdaptive(2, 3, n_features=features, seed=1)
        shown: dict[str, Any] = {"features": [1e-300, 1e-200]} if features else {}
        for reward in (1e-300, 1.0, 1e-200, 0.0):
            policy.update(policy.choose(0, **shown), reward)
        return policy.snapshot().to_bytes()

    quiet = play()
    with np.errstate(all="raise"):
        assert play() == quiet


def test_nor_do_they_in_long_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALPHAFAIR_JIT", "off")
    rewards = np.array([[1e-300, 1.0, 0.0], [1e-160, 5e-324, 1.0]])
    stream = Stream.from_arrays([0, 1, 0, 1], np.concatenate([rewards, rewards[:, ::-1]]))

    def play() -> list[float]:
        trace = simulate(AlphaFairAdaptive(2, 3, seed=1), stream)
        totals = context_reward_totals(stream)
        bounds = [metrics.certificates(totals, trace, alpha).welfare for alpha in (0.5, 2.0, 64.0)]
        return [*bounds, *(offline_optimum(totals, alpha).welfare for alpha in (0.5, 1.0, 2.0, 64.0, float("inf")))]

    quiet = play()
    with np.errstate(all="raise"):
        assert play() == quiet


@pytest.mark.parametrize("feedback", ["bandit", "full"])
def test_a_decision_counts_once_even_if_learning_was_interrupted(
    feedback: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = AlphaFairAdaptive(2, 3, feedback=feedback, seed=0)
    monkeypatch.setenv("ALPHAFAIR_JIT", "off")
    decision, reward = policy.choose(0), 0.5 if feedback == "bandit" else [0.5, 0.5, 0.5]

    def interrupted(*arguments: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(policy.stepper, "learn", interrupted)
        with pytest.raises(KeyboardInterrupt):
            policy.update(decision, reward)
    with pytest.raises(InvalidArgument, match="has not learned from"):
        policy.update(decision, reward)


def test_a_regressor_that_fails_has_learned_its_decision() -> None:
    class Failing:
        def predict(self, rows: Any) -> Any:
            return np.zeros(len(rows))

        def partial_fit(self, rows: Any, y: Any) -> None:
            raise RuntimeError("no luck")

    policy = AlphaFairAdaptive(1, 2, n_features=1, regressor=Failing(), seed=0)
    decision = policy.choose(0, features=[1.0])
    with pytest.raises(RuntimeError, match="no luck"):
        policy.update(decision, 0.5)
    assert policy.cumulative_rewards.sum() == 0.5
    with pytest.raises(InvalidArgument, match="has not learned from"):
        policy.update(decision, 0.5)


def test_a_refused_update_can_be_repeated() -> None:
    policy = AlphaFairAdaptive(2, 3, seed=0)
    decision = policy.choose(0)
    before = policy.snapshot().to_bytes()
    for reward in (2.0, -1.0, float("nan"), "much"):
        with pytest.raises(InvalidArgument):
            policy.update(decision, reward)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match=r"decision\.propensity"):
        policy.update(Decision(0, decision.arm, 1e-9, decision.probabilities), 0.5)
    assert policy.snapshot().to_bytes() == before
    policy.update(decision, 0.5)


def test_an_interrupted_expectation_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = AlphaFairAdaptive(2, 3, seed=0)
    decision = policy.choose(0)
    flawed: Any = lambda *arguments: 1 // 0  # noqa: E731
    with monkeypatch.context() as patch:
        patch.setattr(policy.stepper, "expect", flawed)
        with pytest.raises(ZeroDivisionError):
            policy.expect(decision)
    with pytest.raises(InvalidArgument, match="is not expected yet"):
        policy.expect(decision)


FORK = """
import os, threading
from alphafair import AlphaFair
from alphafair.extend import Feedback, PlainPolicy

learning, forked = threading.Event(), threading.Event()

class Slow(PlainPolicy):
    name, feedback = "slow", Feedback.BANDIT
    def __init__(self, n_contexts, n_arms, *, seed=None):
        super().__init__(n_contexts, n_arms, settings={}, seed=seed)
    def distribution(self, context):
        return [0.5, 0.5]
    def learn(self, context, arm, propensity, reward):
        learning.set()
        forked.wait(30)

slow, idle = Slow(1, 2), AlphaFair(1, 2, seed=0)
decision = slow.choose(0)
thread = threading.Thread(target=slow.update, args=(decision, 0.5))
thread.start()
learning.wait(30)
if (child := os.fork()) == 0:
    idle.choose(0)
    raised = 0
    for call, *arguments in ((slow.choose, 0), (slow.probabilities, 0), (slow.update, decision, 0.5), (slow.snapshot,)):
        try:
            call(*arguments)
        except RuntimeError as problem:
            raised += "create the policy in each child" in str(problem).lower()
    Slow(1, 2).choose(0)
    os._exit(raised)
_, status = os.waitpid(child, 0)
forked.set()
thread.join()
slow.choose(0)
print(os.waitstatus_to_exitcode(status))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_forked_during_a_step_says_so_and_does_not_wait() -> None:
    ran = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, timeout=60, check=False)
    assert ran.stdout.strip() == "4", ran.stderr


def test_calls_after_a_fork_wait_for_nobody_if_no_step_was_running() -> None:
    policy = AlphaFair(1, 2, seed=0)
    lock = policy._lock
    base._check_locks_after_fork()
    assert policy._lock is lock
    assert policy.choose(0).context == 0
