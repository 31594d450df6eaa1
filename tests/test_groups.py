"""What users say about groups, and what is refused."""

from typing import Any

import numpy as np
import pytest

from alphafair import Refusal
from alphafair.groups import Groups


def test_groups_are_numbered_as_they_appear() -> None:
    groups = Groups.of(4, ["b", "a", "b", "c"], entitlements={"a": 2.0}, pull_floor={"c": 0.25})
    assert groups.of_arms.tolist() == [0, 1, 0, 2]
    assert groups.labels == ("b", "a", "c")
    assert groups.entitlements.tolist() == [1.0, 2.0, 1.0]
    assert groups.group_floors.tolist() == [0.0, 0.0, 0.25]
    assert groups.settings() == {
        "groups": ["b", "a", "b", "c"],
        "entitlements": [1.0, 2.0, 1.0],
        "pull_floor": [0.0, 0.0, 0.25],
    }
    again = Groups.of(4, **groups.settings())
    assert again.settings() == groups.settings()
    assert not groups.are_plain


def test_nothing_said_is_every_arm_on_its_own() -> None:
    groups = Groups.of(3)
    assert groups.are_plain
    assert groups.settings() == {}
    assert groups.labels == (0, 1, 2)
    earned = np.array([[1.0, 2.0, 3.0]])
    assert groups.accounts(earned) is earned


def test_accounts_add_up_what_arms_earned_over_the_first_one() -> None:
    groups = Groups.of(4, np.array([7, 7, 2, 7]))
    earned = np.array([[1.5, 2.0, 3.0, 1.0], [1.0, 1.0, 1.0, 1.0]])
    assert groups.accounts(earned).tolist() == [[2.5, 3.0], [1.0, 1.0]]


def test_some_arms_alone() -> None:
    groups = Groups.of(4, ["b", "a", "b", "c"], entitlements=[1.0, 2.0, 3.0], pull_floor=[0.1, 0.2, 0.3])
    some = groups.among(np.array([2, 3]))
    assert some.labels == ("b", "c")
    assert some.of_arms.tolist() == [0, 1]
    assert some.entitlements.tolist() == [1.0, 3.0]
    assert some.group_floors.tolist() == [0.1, 0.3]


def test_arms_join_groups_that_exist_and_new_ones() -> None:
    groups = Groups.of(2, ["a", "b"], entitlements={"b": 2.0})
    grown = groups.grown(3, ["b", "c", "c"], {"c": 4.0})
    assert grown.of_arms.tolist() == [0, 1, 1, 2, 2]
    assert grown.entitlements.tolist() == [1.0, 2.0, 4.0]
    alone = groups.grown(1, None, None)
    assert alone.labels == ("a", "b", 2)
    assert Groups.of(2, [0, 2]).grown(1, None, None).labels == (0, 2, "arm 2")
    assert Groups.of(2).grown(1, None, None).are_plain


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"groups": ["a"]}, "2 labels, one per arm"),
        ({"groups": "ab"}, "2 labels, one per arm"),
        ({"groups": [1.5, 2.5]}, "texts or whole numbers"),
        ({"groups": [True, False]}, "texts or whole numbers"),
        ({"entitlements": [1.0]}, "2 finite numbers"),
        ({"entitlements": [1.0, 0.0]}, "numbers in"),
        ({"entitlements": [1.0, float("nan")]}, "finite numbers"),
        ({"groups": ["a", "b"], "entitlements": {"c": 1.0}}, "for groups among"),
        ({"pull_floor": 0.6}, "at most 0.5"),
        ({"pull_floor": -0.1}, "a number in"),
        ({"pull_floor": [0.6, 0.6]}, "1 in all"),
        ({"pull_floor": [-0.1, 0.6]}, "at least 0"),
        ({"pull_floor": {5: 0.1}}, "for groups among"),
    ],
)
def test_what_cannot_be_is_refused(said: dict[str, object], words: str) -> None:
    with pytest.raises(Refusal, match=words):
        Groups.of(2, **said)  # type: ignore[arg-type]


def test_a_policy_without_groups_cannot_be_told_of_them_later() -> None:
    with pytest.raises(Refusal, match="every arm of this policy is on its own"):
        Groups.of(2).grown(1, ["a"], None)


@pytest.mark.parametrize("odd", [[[1], [1, 2]], b"ab", np.array(3), {"a", "b"}, 5, [["a"], ["b"]]])
def test_labels_of_an_odd_shape_are_refused(odd: Any) -> None:
    with pytest.raises(Refusal, match="groups must be"):
        Groups.of(2, odd)
