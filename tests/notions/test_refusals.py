"""What the policies of `alphafair.notions` refuse: with the argument, the range, the value and the repair."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from alphafair import AlphaFairAdaptive, Decision, Groups, Hedge, InvalidArgument, State, Uniform, notions
from alphafair.notions import Promised, find
from alphafair.notions._counts import per_arm

CASES: list[tuple[str, dict[str, Any], str, str]] = [
    (
        "FairLearn",
        {"shares": 0.5},
        "shares",
        r"numbers in \[0, 0\.333333\), one for all or one per arm \(3\); got 0\.5",
    ),
    ("FairLearn", {"shares": 1 / 3}, "shares", "numbers in"),
    ("FairLearn", {"shares": [0.1, 0.2]}, "shares", r"one per arm \(3\).*Pass a float, a list with one number per arm"),
    ("FairLearn", {"shares": [0.1, 0.2, math.nan]}, "shares", "Choose shares inside that range"),
    ("FairLearn", {"shares": [0.1, 0.2, "much"]}, "shares", "got"),
    ("FairLearn", {"shares": "much"}, "shares", "got 'much'"),
    ("FairLearn", {"shares": True}, "shares", "got True"),
    ("FairLearn", {"shares": {"one": 0.1}}, "shares", "got"),
    ("FairLearn", {"shares": [[0.1, 0.1, 0.1]]}, "shares", "got"),
    ("FairLearn", {"tolerance": -1.0}, "tolerance", r"in \[0, inf\); got -1"),
    ("FairLearn", {"width": 101.0}, "width", r"in \[0, 100\]; got 101"),
    ("RateUCB", {"pull_share": 1 / 3}, "pull_share", r"in \(0, 0\.333333\)"),
    ("RateUCB", {"pull_share": 0.0}, "pull_share", r"got 0\.0"),
    ("LFG", {"shares": [0.5, 0.4, 0.2]}, "shares", r"a sum of at most 1 over 3 arms; got \[0\.5, 0\.4, 0\.2\]\. Lower"),
    ("LFG", {"shares": 0.4}, "shares", "a sum of at most 1"),
    ("LFG", {"eta": 0.0}, "eta", r"in \(0, inf\)"),
    ("FairBandits", {"delta": 1.0}, "delta", r"in \(0, 1\)"),
    ("FairX", {}, "horizon", r"at least 1 if width is None; got None\. Pass horizon=.*or width="),
    ("FairX", {"horizon": 0}, "horizon", "at least 1; got 0"),
    ("FairX", {"width": 0.3, "slope": -1.0}, "slope", r"in \[0, 100\]"),
    ("BanditQ", {"rates": 0.1, "horizon": 0}, "horizon", "at least 1; got 0"),
    ("BanditQ", {"rates": 1.5, "horizon": 9}, "rates", r"numbers in \[0, 1\].*got 1\.5"),
    ("BanditQ", {"rates": [0.1, -0.1, 0.0], "horizon": 9}, "rates", r"got \[0\.1, -0\.1, 0\.0\]"),
    ("BanditQ", {"rates": 0.1, "horizon": 9, "queue_first": "no"}, "queue_first", "got 'no'"),
    ("GuaranteedRevenue", {"rates": -0.1}, "rates", r"got -0\.1"),
    (
        "ConstrainedGreedy",
        {"low": {0: 0.6}, "high": {0: 0.5}},
        "low",
        r"at most high = 0\.5 of group 0; got 0\.6\. Lower",
    ),
    ("ConstrainedGreedy", {"low": 0.4}, "low", "a sum of at most 1"),
    ("ConstrainedGreedy", {"high": 0.3}, "high", "a sum of at least 1"),
    ("ConstrainedGreedy", {"low": [0.1, 0.2]}, "low", "3 numbers, one per group"),
    ("ConstrainedGreedy", {"low": 1.5}, "low", r"in \[0, 1\]; got 1\.5"),
    ("ConstrainedGreedy", {"gap": 0.0}, "gap", r"in \(0, 100\]"),
    ("ConstrainedGreedy", {"groups": Groups(entitlements=[1, 2, 3])}, "groups.entitlements", "None"),
    ("NashConfidenceBound", {"horizon": 0}, "horizon", "at least 1; got 0"),
    ("NashConfidenceBound", {"horizon": 9, "c": 0.0}, "c", r"in \(0, 100\]"),
    ("NashConfidenceBound", {"horizon": 9, "explore": -1.0}, "explore", "got -1"),
    ("HorizonFair", {"alpha": 0.0}, "alpha", r"in \(0, 64\]; got 0"),
    ("HorizonFair", {"low": 1.0}, "low", r"in \(0, 1\); got 1"),
    ("Promised", {"of": "clicks"}, "of", "'pulls' or 'reward'|one of"),
    ("Promised", {"of": "reward"}, "rates", "for rewards; got None. Pass rates="),
    ("Promised", {"rates": 0.4}, "rates", "a sum of at most 1 over 3 arms"),
    ("Promised", {"tolerance": math.inf}, "tolerance", r"in \[0, inf\)"),
    ("Promised", {"inside": {"alpha": 0.0}}, "inside", "a mapping with a policy"),
    ("Promised", {"inside": {"policy": "hedg"}}, "inside['policy']", "Did you mean 'hedge'"),
    ("Promised", {"inside": {"policy": "uniform", "speed": 3}}, "inside", "settings of Uniform"),
    ("Promised", {"inside": {"policy": "hedge", "horizon": 9}}, "policy", "one with bandit feedback"),
]


@pytest.mark.parametrize(("name", "settings", "argument", "words"), CASES, ids=range(len(CASES)))
def test_settings_are_refused(name: str, settings: dict[str, Any], argument: str, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words) as refusal:
        getattr(notions, name)(2, 3, **settings)
    assert refusal.value.argument == argument


@pytest.mark.parametrize(
    ("policy", "n_arms"),
    [
        (notions.FairLearn(1, 3, shares=0.25), 4),
        (notions.FairLearn(1, 3, shares={1: 0.25}), 4),
        (notions.RateUCB(1, 3, pull_share=0.2), 5),
        (notions.LFG(1, 3, shares=0.3), 4),
        (Promised(Uniform(1, 3), rates=0.3), 4),
        (notions.ConstrainedGreedy(1, 3, low=0.3), 4),
    ],
    ids=lambda each: getattr(each, "name", ""),
)
def test_arms_that_do_not_fit_are_refused(policy: Any, n_arms: int) -> None:
    before = policy.snapshot().to_bytes()
    with pytest.raises(InvalidArgument, match="at most"):
        policy.grow(n_arms=n_arms)
    assert policy.snapshot().to_bytes() == before
    policy.retire(0)
    policy.grow(n_arms=4)
    assert policy.probabilities(0)[1:].sum() == pytest.approx(1.0)


def test_a_policy_comes_with_its_own_arguments() -> None:
    inside = AlphaFairAdaptive(1, 3)
    for argument, value in (("n_arms", 3), ("inside", {"policy": "uniform"}), ("groups", ["a", "b", "b"])):
        with pytest.raises(InvalidArgument, match="The policy has its own") as refusal:
            Promised(inside, **{argument: value})
        assert refusal.value.argument == argument
    with pytest.raises(InvalidArgument, match="one with bandit feedback"):
        Promised(Hedge(1, 3, horizon=9))


def test_numbers_by_arm() -> None:
    assert per_arm("rates", {0: 0.25, np.int64(2): 1}, 2) == {"0": 0.25, "2": 1.0}
    assert per_arm("rates", np.array([0.5, 0.25]), 2) == {"0": 0.5, "1": 0.25}
    assert notions.FairLearn(1, 3, shares={1: 0.1}).settings["shares"] == {"1": 0.1}
    assert find("lfg") is notions.LFG


def changed(policy: Any, name: str, value: Any) -> State:
    state = policy.snapshot()
    arrays = {**state.arrays, name: np.full_like(state.arrays[name], value)}
    return State(state.policy, state.version, state.settings, state.rng, arrays)


@pytest.mark.parametrize(
    ("policy", "name", "value"),
    [
        (notions.FairLearn(1, 3), "share", 0.3),
        (notions.ConstrainedGreedy(1, 3), "low", 0.3),
        (notions.FairBandits(1, 3), "active", 0.0),
        (notions.HorizonFair(1, 3), "weight", 0.5),
        (notions.BanditQ(1, 3, rates=0.1, horizon=9), "p", 0.0),
        (Promised(Uniform(1, 3)), "rate", 0.3),
    ],
    ids=lambda each: getattr(each, "name", ""),
)
def test_damaged_snapshots_are_refused(policy: Any, name: str, value: float) -> None:
    before = policy.snapshot().to_bytes()
    with pytest.raises(InvalidArgument, match="damaged"):
        policy.restore(changed(policy, name, value))
    assert policy.snapshot().to_bytes() == before


def test_impossible_propensities_are_refused() -> None:
    for policy in (notions.BanditQ(1, 3, rates=0.1, horizon=9), Promised(1, 3, inside={"policy": "alpha-fair-bandit"})):
        decision = Decision(0, 1, 1e-6, np.array([1.0 - 2e-6, 1e-6, 1e-6]))
        before = policy.snapshot().to_bytes()
        with pytest.raises(InvalidArgument, match=r"decision\.propensity must be at least"):
            policy.update(decision, 0.5)
        assert policy.snapshot().to_bytes() == before


def test_alpha_changes_in_range() -> None:
    policy = notions.HorizonFair(1, 3, alpha=0.5)
    with pytest.raises(InvalidArgument, match=r"alpha must be a number in \(0, 64\]"):
        policy.set_alpha(0.0)
    policy.set_alpha(2.0)
    policy.update(policy.choose(0), [0.5, 0.2, 0.1])
    assert policy.alpha == 2.0
