"""Machine code before the first request: of the policies in use, and none where compiling is off."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from alphafair import Engine, Groups, Uniform
from alphafair.algorithms import POLICIES
from alphafair.jit import Bundle
from alphafair.service.precompile import DEFAULT, Kind, _policies, every_kind, kinds_in_use, precompile

ARMS = ["ada", "ben", "cyd"]
UNIFORM = Kind("uniform", "bandit", with_groups=False)


@pytest.fixture(autouse=True)
def _a_process_that_has_compiled_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Bundle, "_all", {})
    monkeypatch.delenv("NUMBA_DISABLE_JIT", raising=False)


def is_interpreted() -> bool:
    """Whether a policy of this process draws without machine code."""
    policy = Uniform(1, 2, feedback="bandit", seed=0)
    policy.choose(0)
    return isinstance(policy._draw, partial)


@pytest.mark.compiled
def test_a_precompiled_policy_starts_with_machine_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALPHAFAIR_JIT", "auto")
    assert is_interpreted()
    precompile([UNIFORM])
    assert not is_interpreted()


def test_nothing_is_compiled_if_the_jit_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALPHAFAIR_JIT", "off")
    precompile([UNIFORM])
    assert is_interpreted()


def test_kinds_in_use_are_those_of_experiments_and_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALPHAFAIR_JIT", "off")
    with Engine.open(tmp_path / "shop.db") as engine:
        assert kinds_in_use(engine) == {DEFAULT}
        engine.create("plain", arms=ARMS)
        engine.create("groups", arms=ARMS, groups=["x", "x", "y"])
        engine.create("floor", arms=ARMS, policy="alpha-fair", groups=Groups(pull_floor=0.1))
        engine.create("hedge", arms=ARMS, policy="hedge")
        adaptive, full = DEFAULT._replace(with_groups=True), Kind("alpha-fair", "full", with_groups=True)
        assert kinds_in_use(engine) == {DEFAULT, adaptive, full, Kind("hedge", "full", with_groups=False)}


def test_there_is_a_policy_of_every_kind() -> None:
    kinds = [*every_kind()]
    assert {kind.policy for kind in kinds} == {*POLICIES}
    assert {kind.policy for kind in kinds if kind.with_groups} == {
        "alpha-fair-adaptive",
        "alpha-fair",
        "alpha-fair-bandit",
    }
    for kind in kinds:
        made = [*_policies(kind)]
        assert made
        for policy in made:
            assert (policy.name, policy.feedback.value) == kind[:2]
            assert (policy.groups is not None and not policy.groups.is_default) is kind.with_groups


def test_an_unregistered_policy_is_left_out() -> None:
    assert [*_policies(Kind("nobody's", "bandit", with_groups=False))] == []
