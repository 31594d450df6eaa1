"""Many arms, in linear work; and sizes that fit into no memory, refused by name."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import pytest

from alphafair import AlphaFair, AlphaFairAdaptive, AlphaFairBandit, Groups, InvalidArgument, load_policy
from alphafair.algorithms import POLICIES, BasePolicy
from alphafair.groups import ArmGroups

PAIRED: dict[str, Callable[..., BasePolicy]] = {
    "adaptive": lambda n, **settings: AlphaFairAdaptive(2, n, **settings),
    "adaptive-full": lambda n, **settings: AlphaFairAdaptive(2, n, feedback="full", **settings),
    "alpha-fair": lambda n, **settings: AlphaFair(2, n, **settings),
    "alpha-fair-bandit": lambda n, **settings: AlphaFairBandit(2, n, **settings),
}


def lines_run(work: Callable[[], Any]) -> int:
    """How many lines of Python a call runs, those of interpreted kernels among them."""
    count = 0

    def trace(frame: Any, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("alpha", [0.9, 2.0])
@pytest.mark.parametrize("make", [pytest.param(make, id=name) for name, make in PAIRED.items()])
def test_work_is_linear_in_arms(make: Any, alpha: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALPHAFAIR_JIT", "off")

    def lines_of(n: int) -> dict[str, int]:
        groups = Groups([f"g{i // 2}" for i in range(n)])
        made: list[BasePolicy] = []
        counts = {"construct": lines_run(lambda: made.append(make(n, alpha=alpha, groups=groups)))}
        (policy,) = made
        for _ in range(3):
            policy.expect(policy.choose(0))
        counts["add an arm"] = lines_run(lambda: policy.grow(n_arms=n + 1, groups=["new"]))
        counts["join a group"] = lines_run(lambda: policy.grow(n_arms=n + 2, groups=["g0"]))
        counts["double"] = lines_run(lambda: policy.grow(n_arms=2 * n, groups=[f"h{i // 2}" for i in range(n - 2)]))
        counts["retire"] = lines_run(lambda: policy.retire(1))
        counts["new period"] = lines_run(policy.new_period)
        counts["set alpha"] = lines_run(lambda: policy.set_alpha(1.1 * alpha))
        return counts

    few, many = lines_of(40), lines_of(160)
    for name, count in few.items():
        assert many[name] < 4.5 * count, (name, count, many[name])  # quadratic work: up to 16 times


def test_new_labels_are_not_looked_up_one_by_one() -> None:
    class Unscanned(tuple[Any, ...]):
        def __contains__(self, label: object) -> bool:
            raise AssertionError("scanned from the start")

    groups = ArmGroups.of(4)
    grown = replace(groups, labels=Unscanned(groups.labels)).grown(3, None, None)
    assert grown.labels == (0, 1, 2, 3, 4, 5, 6)


def test_slopes_of_all_groups_at_once_are_those_of_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    from alphafair.algorithms import adaptive_bandit

    monkeypatch.setenv("ALPHAFAIR_JIT", "off")
    rng = np.random.default_rng(0)
    for alpha in (0.5, 0.9, 1.0, 3.0, 64.0):
        groups = Groups([0, 1, 0, 2, 1], entitlements=[1.0, 3.0, 0.2])
        policy = AlphaFairAdaptive(2, 5, alpha=alpha, groups=groups, seed=0)
        for _ in range(40):
            policy.update(policy.choose(0), rng.random())
        for _ in range(7):
            policy.expect(policy.choose(1))
        memory = policy._learned.memory
        for arm in range(5):
            adaptive_bandit.refresh(memory, arm)
        slopes = memory.arms[adaptive_bandit.A.slope].copy()
        memory.arms[adaptive_bandit.A.slope] = 1.0
        adaptive_bandit.refresh_all(memory)
        np.testing.assert_array_equal(memory.arms[adaptive_bandit.A.slope], slopes)


# sizes


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("size", [2**40, 2**63, 2**80])
def test_impossible_sizes_are_refused_by_name(name: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("alphafair.policy.base.memory_limit", lambda: 2**34)
    with pytest.raises(InvalidArgument, match=r"^n_arms must be at most \d+, which fit into memory; got"):
        POLICIES[name](2, size)
    with pytest.raises(
        InvalidArgument, match=r"^n_contexts must be at most \d+ with 2 arms, which fit into memory; got"
    ):
        POLICIES[name](size, 2)
    policy = POLICIES[name](2, 3)
    before = policy.snapshot().to_bytes()
    with pytest.raises(InvalidArgument, match="n_contexts must be at most"):
        policy.grow(n_contexts=size)
    with pytest.raises(InvalidArgument, match="n_arms must be at most"):
        policy.grow(n_arms=size)
    assert policy.snapshot().to_bytes() == before


def test_the_most_that_is_named_fits() -> None:
    with mock.patch("alphafair.policy.base.memory_limit", return_value=1 << 27):
        with pytest.raises(InvalidArgument) as refused:
            AlphaFairAdaptive(10**7, 2)
        most = int(str(refused.value).split()[5])
        assert 10**5 < most < 10**7
        AlphaFairAdaptive(most, 2)
        with pytest.raises(InvalidArgument, match=f"at most {most} with 2 arms"):
            AlphaFairAdaptive(most + 1, 2)
        with pytest.raises(InvalidArgument, match="n_features must be at most"):
            AlphaFairAdaptive(1, 2, n_features=10**5)


@pytest.mark.parametrize(
    ("work", "argument"),
    [
        (lambda policy, huge: policy.choose(huge), "context"),
        (lambda policy, huge: AlphaFairAdaptive(2, 2, feedback=huge), "feedback"),
        (lambda policy, huge: AlphaFair(huge, 2), "n_contexts"),
        (lambda policy, huge: load_policy(replace(policy.snapshot(), policy=huge)), "policy"),
        (
            lambda policy, huge: load_policy(
                replace(policy.snapshot(), settings={**policy.settings, "n_contexts": huge, "n_arms": 2})
            ),
            "state",
        ),
    ],
)
def test_integers_that_python_does_not_write_are_refused(work: Callable[[Any, Any], Any], argument: str) -> None:
    with pytest.raises(InvalidArgument, match=rf"{argument}.* must be .*; got "):
        work(AlphaFairAdaptive(2, 2, seed=0), 10**5000)
