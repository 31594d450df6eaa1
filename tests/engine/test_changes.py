"""Kinds of changes: a row in `CHANGES` is all that a kind consists of."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pytest

from alphafair import Engine
from alphafair.engine import RequestError
from alphafair.engine.changes import CHANGES, ChangeKind
from alphafair.engine.state.experiment import Experiment
from alphafair.engine.store.ledger import Change
from tests.stores import both_stores

ARMS = ["ada", "ben"]


def _check(experiment: Experiment, now: int, arm: str, at_most: int) -> dict[str, int] | None:
    return {"arm": experiment.number_of(arm)} if len(experiment.masked) < at_most else None


def _effect(experiment: Experiment, change: Change, body: dict[str, int]) -> None:
    experiment.masked.add(body["arm"])


ROW = ChangeKind(
    check=_check,
    effect=_effect,
    policy=lambda policy, body: policy.set_alpha(0.25),
    details=lambda experiment, body: {"which": experiment.arms[body["arm"]]},
)


@both_stores
def test_a_row_is_checked_written_applied_shown_and_replayed(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    with mock.patch.dict(CHANGES, {"hide": ROW}):
        with Engine.open(path, seed=1) as engine:
            engine.create("home", arms=ARMS, alpha=0.5)
            engine.decide("home", "v")
            with pytest.raises(RequestError, match="arm must be an arm of home"):
                engine._change("home", "hide", "eve", 1)
            assert engine.position == 2
            engine._change("home", "hide", "ben", 1)
            engine._change("home", "hide", "ada", 1)  # nothing to change
            assert engine.position == 3
            assert {engine.decide("home", f"v{k}").arm for k in range(20)} == {"ada"}
            status = engine.experiment("home")
            assert (status.masked_arms, status.alpha) == (("ben",), 0.25)
            assert [(each.kind, each.details) for each in engine.history("home")][1:] == [("hide", {"which": "ben"})]
            assert engine.verify() == engine.position
        with Engine.open(path, seed=2) as engine:
            assert engine.experiment("home").masked_arms == ("ben",)
            assert engine.verify() == 23


@both_stores
def test_a_change_that_its_policy_refuses_is_not_written(tmp_path: Path) -> None:
    def fail(policy: object, body: object) -> None:
        raise ZeroDivisionError("a bug")

    with (
        mock.patch.dict(CHANGES, {"hide": ChangeKind(policy=fail)}),
        Engine.open(tmp_path / "shop.db", seed=1) as engine,
    ):
        engine.create("home", arms=ARMS)
        with pytest.raises(RequestError, match="trying hide: ZeroDivisionError: a bug"):
            engine._change("home", "hide")
        assert [each.kind for each in engine.history("home")] == ["create"]
        assert engine.experiment("home").unhealthy is None
