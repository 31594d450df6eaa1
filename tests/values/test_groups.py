"""What users say about groups, and what is refused."""

from typing import Any

import numpy as np
import pytest

from alphafair import AlphaFair, Groups, InvalidArgument, Stream, Trace, simulate
from alphafair.groups import arm_groups
from alphafair.values import Feedback


def test_groups_are_numbered_as_they_appear() -> None:
    groups = Groups(["b", "a", "b", "c"], entitlements={"a": 2.0}, pull_floor={"c": 0.25}).for_arms(4)
    assert groups.of_arms.tolist() == [0, 1, 0, 2]
    assert groups.labels == ("b", "a", "c")
    assert groups.entitlements.tolist() == [1.0, 2.0, 1.0]
    assert groups.group_floors.tolist() == [0.0, 0.0, 0.25]
    assert groups.settings() == {
        "labels": ["b", "a", "b", "c"],
        "entitlements": [1.0, 2.0, 1.0],
        "pull_floor": [0.0, 0.0, 0.25],
    }
    again = Groups(**groups.settings()).for_arms(4)
    assert again.settings() == groups.settings()
    assert not groups.is_default


def test_by_default_every_arm_is_its_own_group() -> None:
    groups = Groups().for_arms(3)
    assert groups.is_default
    assert groups.settings() == {}
    assert groups.labels == (0, 1, 2)
    earned = np.array([[1.0, 2.0, 3.0]])
    assert groups.accounts(earned) is earned


def test_accounts_add_up_what_arms_earned_over_the_first_one() -> None:
    groups = Groups(np.array([7, 7, 2, 7])).for_arms(4)
    earned = np.array([[1.5, 2.0, 3.0, 1.0], [1.0, 1.0, 1.0, 1.0]])
    assert groups.accounts(earned).tolist() == [[2.5, 3.0], [1.0, 1.0]]


def test_some_arms_alone() -> None:
    groups = Groups(["b", "a", "b", "c"], entitlements=[1.0, 2.0, 3.0], pull_floor=[0.1, 0.2, 0.3]).for_arms(4)
    some = groups.among(np.array([2, 3]))
    assert some.labels == ("b", "c")
    assert some.of_arms.tolist() == [0, 1]
    assert some.entitlements.tolist() == [1.0, 3.0]
    assert some.group_floors.tolist() == [0.1, 0.3]


def test_arms_join_groups_that_exist_and_new_ones() -> None:
    groups = Groups(["a", "b"], entitlements={"b": 2.0}).for_arms(2)
    grown = groups.grown(3, ["b", "c", "c"], {"c": 4.0})
    assert grown.of_arms.tolist() == [0, 1, 1, 2, 2]
    assert grown.entitlements.tolist() == [1.0, 2.0, 4.0]
    alone = groups.grown(1, None, None)
    assert alone.labels == ("a", "b", 2)
    assert Groups([0, 2]).for_arms(2).grown(1, None, None).labels == (0, 2, "arm 2")
    assert Groups().for_arms(2).grown(1, None, None).is_default


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"labels": ["a"]}, "2 labels, one per arm"),
        ({"labels": "ab"}, "2 labels, one per arm"),
        ({"labels": [1.5, 2.5]}, "strings or integers"),
        ({"labels": [True, False]}, "strings or integers"),
        ({"entitlements": [1.0]}, "2 finite numbers"),
        ({"entitlements": [1.0, 0.0]}, "numbers in"),
        ({"entitlements": [1.0, float("nan")]}, "finite numbers"),
        ({"labels": ["a", "b"], "entitlements": {"c": 1.0}}, "for groups among"),
        ({"pull_floor": 0.6}, "at most 0.5"),
        ({"pull_floor": -0.1}, "a number in"),
        ({"pull_floor": [0.6, 0.6]}, "a sum of at most 1"),
        ({"pull_floor": [-0.1, 0.6]}, "at least 0"),
        ({"pull_floor": {5: 0.1}}, "for groups among"),
    ],
)
def test_invalid_arguments_are_refused(said: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        Groups(**said).for_arms(2)  # type: ignore[arg-type]


def test_groups_cannot_be_added_to_a_policy_without_them() -> None:
    with pytest.raises(InvalidArgument, match="this policy has no groups"):
        Groups().for_arms(2).grown(1, ["a"], None)


@pytest.mark.parametrize("odd", [[[1], [1, 2]], b"ab", np.array(3), {"a", "b"}, 5, [["a"], ["b"]]])
def test_labels_of_an_odd_shape_are_refused(odd: Any) -> None:
    with pytest.raises(InvalidArgument, match="groups must be"):
        Groups(odd).for_arms(2)


def test_the_argument_may_be_groups_labels_or_those_of_a_policy() -> None:
    given = Groups(["b", "a", "b"], entitlements={"a": 2.0}, pull_floor={"b": 0.25})
    policy = AlphaFair(1, 3, groups=given)
    assert policy.groups is not None
    for each in (given, policy.groups, Groups.of(policy.groups)):
        assert arm_groups(each, 3).settings() == given.for_arms(3).settings()
        assert AlphaFair(1, 3, groups=each).settings == policy.settings
    assert arm_groups(["b", "a", "b"], 3).labels == ("b", "a")
    assert arm_groups(None, 3).is_default
    with pytest.raises(InvalidArgument, match=r"groups must be groups of 4 arms; got 3\. Pass one label per arm"):
        arm_groups(policy.groups, 4)
    assert repr(given) == "Groups(labels=['b', 'a', 'b'], entitlements={'a': 2.0}, pull_floor={'b': 0.25})"


def test_a_run_by_group() -> None:
    accounts = np.array([[1.0, 1.5, 2.0], [2.0, 1.5, 4.0]])
    trace = Trace("x", Feedback.FULL, 0, np.array([1, 2]), accounts, np.array([3, 4, 5]))
    seen = Groups(["b", "a", "b"]).for_arms(3).of_trace(trace)
    assert seen.accounts.tolist() == [[2.0, 1.5], [5.0, 1.5]]
    assert seen.pulls.tolist() == [8, 4]
    assert Groups(entitlements=[1, 2, 3]).for_arms(3).of_trace(trace) is trace


def test_arms_that_arrive_bring_their_groups_and_entitlements() -> None:
    stream = Stream.from_arrays([0] * 40, np.full((40, 4), 0.5), arrivals=[0, 0, 10, 20])
    labels, entitled = ["a", "b", "c", "a"], {"b": 2.0, "c": 3.0}
    for compiled in (True, False):
        policy = AlphaFair(1, 2, groups=Groups(labels[:2], entitlements={"b": 2.0}))
        simulate(policy, stream, groups=Groups(labels, entitlements=entitled), compiled=compiled)
        assert policy.groups is not None
        assert policy.groups.settings() == Groups(labels, entitlements=entitled).for_arms(4).settings()
    for bad, words in (
        (
            Groups(labels, entitlements={"b": 3.0}),
            r"groups must be the entitlements of the policy, \[1.0, 2.0\]",
        ),
        (Groups(labels, pull_floor=0.1), "groups must be without pull_floor; got"),
        (["b", "b", "c", "a"], "groups must be the labels of the policy, 'a', 'b', and more; got"),
    ):
        policy = AlphaFair(1, 2, groups=Groups(labels[:2], entitlements={"b": 2.0}))
        with pytest.raises(InvalidArgument, match=words):
            simulate(policy, stream, groups=bad)
