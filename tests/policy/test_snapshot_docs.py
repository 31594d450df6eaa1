"""The reference: every entry of every snapshot, with its shape; and snapshots of other versions are refused."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from alphafair import POLICIES, AlphaFair, AlphaFairAdaptive, BasePolicy, InvalidArgument, State, load_policy
from tests import ROOT
from tools.site import snapshots

OLD = ROOT / "tests" / "fixtures" / "snapshots"
SIZES = {"contexts": 5, "arms": 7, "live": 6, "groups": 3, "terms": 4}
MADE = [
    pytest.param(kind, settings, id=f"{name}:{variant}")
    for name, kind in POLICIES.items()
    for variant, settings in kind.traits.variants(5, 7).items()
]


def trained(policy: BasePolicy, **more: Any) -> BasePolicy:
    """A few rounds with one arm retired."""
    rng = np.random.default_rng(0)
    policy.retire(3)
    for t in range(20):
        decision = policy.choose(t % 5, **more)
        rewards = rng.random(7)
        policy.update(decision, rewards if policy.feedback == "full" else float(rewards[decision.arm]))
    return policy


def documented(
    kind: type[BasePolicy], feedback: str, alpha: float | None = 0.5, *, sides: str = ""
) -> dict[str, tuple[int, ...]]:
    """What the page says about a policy, of these sizes."""
    page = snapshots.of_policies()
    sections = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", page, re.DOTALL | re.MULTILINE))
    which = sides or ("alpha < 1" if alpha is None or alpha < 1 else "alpha from 1 on")
    titles = [", ".join([kind.__name__, *more]) for more in ([], [which], [f"{feedback} feedback", which])]
    titles.append(f"{kind.__name__}, {feedback} feedback")
    section = next((sections[title] for title in titles if title in sections), None)
    assert section is not None, f"the reference has none of the sections {titles}: see tools/site/snapshots.py"
    rows = re.findall(r"^\| `(\w+)` \| \((.*?)\) \|", section, re.MULTILINE)
    return {name: shape(axes) for name, axes in rows}


def shape(axes: str, **more: int) -> tuple[int, ...]:
    sizes = {**SIZES, **more}
    return tuple(sizes[axis] if axis in sizes else int(axis) for axis in axes.split(", ") if axis)


def found(policy: BasePolicy) -> dict[str, tuple[int, ...]]:
    return {name: array.shape for name, array in policy.snapshot().arrays.items()}


def test_the_page_says_which_version_a_policy_has() -> None:
    page = (ROOT / "docs" / "reference" / "snapshots.md").read_text(encoding="utf-8")
    assert "the version of its entries (6 for AlphaFairAdaptive and\nAlphaFair, 4 for all other policies)" in page
    assert {kind.name for kind in POLICIES.values() if kind._version == 6} == {"alpha-fair-adaptive", "alpha-fair"}
    assert {kind._version for kind in POLICIES.values()} == {4, 6}


def test_every_meaning_belongs_to_an_entry() -> None:
    layouts = [(kind, algorithm.layout) for kind, _, algorithm in snapshots.algorithms()]
    names = {(kind.name, entry.name) for kind, layout in layouts for entry in snapshots.entries(kind, layout)}
    names |= {(AlphaFairAdaptive.name, "tau")}  # of what others teach
    assert {*snapshots.MEANINGS} == {name for _, name in names}
    assert {*snapshots.ONLY_HERE} <= names


@pytest.mark.parametrize(("kind", "settings"), MADE)
def test_a_snapshot_has_these_entries_and_no_others(kind: type[BasePolicy], settings: dict[str, Any]) -> None:
    policy = trained(kind(5, 7, **settings))
    sides = "fair to contexts" if policy.context_weight > 0.0 else ""
    sides = "with a promise to contexts" if policy.context_share > 0.0 else sides
    said = documented(kind, policy.feedback.value, policy.alpha, sides=sides)
    said.pop("earned", None)  # only where arms share accounts
    accounts = 0 if policy.accounts is None else 1 if policy.accounts.ndim == 1 else 5
    assert found(policy) == {**said, "live": (7,), "retired_accounts": (accounts, 7), "entry_accounts": (accounts, 7)}


@pytest.mark.parametrize("feedback", ["full", "bandit"])
def test_entries_with_groups(feedback: Any) -> None:
    groups = ["a", "a", "b", "c", "c", "b", "a"]
    policy = trained(AlphaFairAdaptive(5, 7, alpha=0.5, feedback=feedback, groups=groups))
    said = documented(AlphaFairAdaptive, feedback)
    assert "earned" in said
    assert found(policy) == {
        **said,
        "live": (7,),
        "retired_accounts": (1, 7),
        "entry_accounts": (1, 7),
        "group_accounts": (3,),
    }


@pytest.mark.parametrize("of_arms", [False, True])
def test_entries_with_features(of_arms: bool) -> None:
    shown = np.ones((7, 3)) if of_arms else np.ones(3)
    settings: dict[str, Any] = {"features_of": "arms"} if of_arms else {}
    policy = trained(AlphaFairAdaptive(5, 7, alpha=0.5, n_features=3, **settings), features=shown)
    arrays = found(policy)
    columns = 1 if of_arms else 6
    for entry in snapshots.of_features():
        axes = entry.shape.replace("terms (terms + 1)/2", "10")
        assert arrays.pop(entry.name) == shape(axes, columns=columns), entry.name
    assert not [name for name in arrays if name.startswith("feature_")]


@pytest.mark.parametrize("n_features", [0, 3])
def test_entries_of_what_others_taught(n_features: int) -> None:
    shown: dict[str, Any] = {"features": np.ones(3)} if n_features else {}
    policy = trained(AlphaFairAdaptive(5, 7, alpha=0.5, n_features=n_features), **shown)
    before = found(policy)
    policy.observe(0, 1, 0.5, **shown)
    said = {
        entry.name: shape(entry.shape.replace("terms (terms + 1)/2", "10"), columns=6)
        for entry in snapshots.of_others()
        if n_features or "feature" not in entry.name
    }
    assert found(policy) == {**before, **said}
    assert snapshots.block("of others").count("| `others_") == len(snapshots.of_others())


@pytest.mark.parametrize("path", sorted(OLD.glob("*.npz")), ids=lambda path: path.stem)
def test_older_snapshots_are_refused_with_a_sentence(path: Path) -> None:
    """As they were written: rows without names, in `shared` and `learners`."""
    name, version = re.fullmatch(r"(.*)-version-(\d)", path.stem).groups()  # type: ignore[union-attr]
    state = State.load(path)
    assert (state.policy, state.version) == (name, int(version))
    assert "account" not in state.arrays
    kind: Any = POLICIES[name]
    for read in (load_policy, kind(2, 3, alpha=0.5).restore):
        with pytest.raises(InvalidArgument) as refused:
            read(state)
        assert str(refused.value) == (
            f"state.version must be {kind._version}; got {version}. "
            "It was written by an older version: load it there, or learn from the log again."
        )


def test_there_are_snapshots_of_all_older_versions() -> None:
    assert {path.stem[-1] for path in OLD.glob("*.npz")} == {"1", "2", "3"}


def test_newer_snapshots_are_refused_with_a_sentence() -> None:
    state = AlphaFair(2, 3, alpha=0.5).snapshot()
    with pytest.raises(
        InvalidArgument, match=r"state\.version must be 6; got 7\. It was written by a newer version: update"
    ):
        load_policy(replace(state, version=7))
