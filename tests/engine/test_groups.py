"""Groups, entitlements and floors in the engine and over HTTP: by label, through changes, restarts and replays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from alphafair import POLICIES, Client, Engine, Groups, Uniform
from alphafair.engine import GroupStatus, RequestError
from alphafair.errors import InvalidArgument
from tests.serving import error, running
from tests.stores import both_stores, live_state, writer_of

pytestmark = [both_stores, pytest.mark.compiled]
ARMS = ["lamp", "desk", "chair"]
GROUPS = {"chair": "ben", "lamp": "ada", "desk": "ada"}
LABELS = ["ada", "ada", "ben"]  # the same, in the order of arms


def play(engine: Engine, n: int, seed: int = 0) -> list[str]:
    """Decisions with rewards; the ids of those that still wait."""
    rng = np.random.default_rng(seed)
    waiting = []
    for k in range(n):
        receipt = engine.decide("home", f"visitor {k % 3}")
        if rng.random() < 0.8:
            reward: Any = float(rng.random())
            if engine.experiment("home").feedback == "full":
                arms = {*engine.experiment("home").arms, *engine.experiment("home").retired_arms}
                reward = {arm: float(rng.random()) for arm in sorted(arms)}
            engine.reward(receipt.id, reward)
        else:
            waiting.append(receipt.id)
    return waiting


@pytest.mark.parametrize("policy", ["alpha-fair-adaptive", "alpha-fair-bandit", "alpha-fair"])
def test_groups_go_through_changes_restarts_and_replays(tmp_path: Path, policy: str) -> None:
    path = tmp_path / "shop.db"
    with Engine.open(path, seed=1) as engine:
        engine.create("home", arms=ARMS, policy=policy, groups=Groups(LABELS, {"ben": 2.0}), alpha=0.8)
        waiting = play(engine, 60)
        position = engine.verify()
        engine.add_arm("home", "sofa", group="ben")
        engine.add_arm("home", "rug", group="cyd", entitlement=3.0)
        engine.retire_arm("home", "lamp")
        play(engine, 60, seed=1)
        if policy != "alpha-fair":
            for id in waiting:  # some of them for the retired arm, whose group still earns
                engine.reward(id, 0.5)
        status = engine.experiment("home")
        of_arms = {**GROUPS, "sofa": "ben", "rug": "cyd"}
        assert status.groups == GroupStatus(of_arms, {"ada": 1.0, "ben": 2.0, "cyd": 3.0}, None)
        owned = {"ada": 0.0, "ben": 0.0, "cyd": 0.0}
        learned: Any = live_state(engine, "home").experiments["home"].policy.cumulative_rewards
        for arm, earned in zip((*ARMS, "sofa", "rug"), learned, strict=True):
            owned[of_arms[arm]] += earned  # under full information, of all that was drawn from
            if policy != "alpha-fair":
                assert status.cumulative_rewards[arm] == pytest.approx(earned)
        assert status.accounts["ada"] == pytest.approx(1.0 + owned["ada"])
        assert status.accounts["ben"] == pytest.approx(1.0 + owned["ben"])
        engine.verify()
    with Engine.open(path, seed=2) as engine:
        assert engine.experiment("home").accounts == status.accounts
        engine.verify()
        engine.rollback("home", position)
        assert engine.experiment("home").groups == status.groups
        play(engine, 20, seed=3)
        engine.verify()


def test_floors_and_entitlements_are_by_arm_without_groups(tmp_path: Path) -> None:
    with Engine.open(tmp_path / "shop.db", seed=1) as engine:
        engine.create("home", arms=ARMS, groups=Groups(entitlements={"desk": 4.0}, pull_floor={"chair": 0.3}))
        entitlements = {"lamp": 1.0, "desk": 4.0, "chair": 1.0}
        floors = {"lamp": 0.0, "desk": 0.0, "chair": 0.3}
        assert engine.experiment("home").groups == GroupStatus(None, entitlements, floors)
        for k in range(50):
            receipt = engine.decide("home", "visitor", available=["lamp", "chair"] if k % 2 else None)
            if receipt.arm == "chair":
                assert receipt.propensity >= 0.3 - 1e-15
            engine.reward(receipt.id, 0.4)
        engine.verify()
        engine.create("plain", arms=ARMS)
        assert engine.experiment("plain").accounts == dict.fromkeys(ARMS, 1.0)
        assert engine.experiment("plain").groups is None
        engine.create("hedge", arms=ARMS, policy="hedge")
        assert (engine.experiment("hedge").accounts, engine.experiment("hedge").groups) == ({}, None)
        engine.create("floor", arms=ARMS, groups=Groups(pull_floor=0.1))
        assert engine.experiment("floor").groups == GroupStatus(None, None, 0.1)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"groups": {"labels": {"lamp": "ada"}}}, "a group for every arm"),
        ({"groups": {"labels": {1: "ada", "lamp": "ada"}}}, "a group for every arm"),
        ({"groups": "abc"[: len(ARMS)]}, "groups must be a list of labels, one per arm, or a Groups"),
        ({"groups": 5}, "groups must be a list of labels, one per arm, or a Groups"),
        ({"groups": GROUPS}, "groups must be a list of labels, one per arm, or a Groups"),
        ({"groups": Groups("abc"[: len(ARMS)])}, "groups must be a list of labels, or a mapping from arm to label"),
        ({"groups": Groups(5)}, "groups must be a list of labels, or a mapping from arm to label"),
        ({"groups": ["ada", "ben"]}, "groups must be 3 labels, one per arm"),
        ({"groups": Groups(pull_floor={1: 0.1, "no": 0.1})}, "by arm"),
        ({"groups": ["", "ada", "ben"]}, "groups must be a string"),
        ({"groups": [1, 1, 2]}, "groups must be a string"),
        ({"groups": Groups(entitlements={"sofa": 2.0})}, "entitlements must be by arm"),
        ({"groups": Groups(LABELS, entitlements={"cyd": 2.0})}, "for groups among"),
        ({"groups": Groups(pull_floor=0.5)}, "1 over 3 arms"),
        ({"groups": LABELS, "policy": "hedge"}, "groups must be left out: hedge accepts "),
        ({"pull_floor": 0.1}, "pull_floor must be left out: alpha-fair-adaptive accepts "),
        ({"entitlements": {"lamp": 2.0}}, "entitlements must be left out: alpha-fair-adaptive accepts "),
    ],
)
def test_invalid_groups_are_refused_and_nothing_is_created(tmp_path: Path, said: dict[str, Any], words: str) -> None:
    with Engine.open(tmp_path / "shop.db") as engine:
        with pytest.raises(InvalidArgument, match=words):
            engine.create("home", arms=ARMS, **said)
        assert engine.experiments() == []


def test_a_new_arm_needs_its_group_where_there_are_groups(tmp_path: Path) -> None:
    with Engine.open(tmp_path / "shop.db") as engine:
        engine.create("home", arms=ARMS, groups=LABELS)
        engine.create("plain", arms=ARMS)
        with pytest.raises(RequestError, match="every arm of this experiment has one"):
            engine.add_arm("home", "sofa")
        with pytest.raises(RequestError, match="arms have no groups"):
            engine.add_arm("plain", "sofa", group="ada")
        with pytest.raises(RequestError, match="left out for an existing group"):
            engine.add_arm("home", "sofa", group="ada", entitlement=2.0)
        with pytest.raises(InvalidArgument, match="entitlements must be None"):
            engine.add_arm("plain", "sofa", entitlement=2.0)
        position = engine.verify()
        assert position == 2


def test_a_rollback_finds_arms_that_were_entitled_to_more_and_have_left(tmp_path: Path) -> None:
    with Engine.open(tmp_path / "shop.db", seed=1) as engine:
        engine.create("home", arms=ARMS, groups=Groups(entitlements={"chair": 2.0}))
        play(engine, 20)
        engine.retire_arm("home", "chair")
        play(engine, 20)
        position = engine.experiment("home").policy_version
        play(engine, 20)
        engine.rollback("home", position)
        play(engine, 10)
        then = engine.experiment("home")
        engine.verify()
    with Engine.open(tmp_path / "shop.db") as engine:
        assert engine.experiment("home") == then


@pytest.mark.parametrize("policy", ["alpha-fair-adaptive", "alpha-fair-bandit", "alpha-fair"])
def test_the_first_group_that_is_entitled_to_more_keeps_that_over_a_restart(tmp_path: Path, policy: str) -> None:
    with Engine.open(tmp_path / "shop.db", seed=1) as engine:
        engine.create("home", arms=ARMS, policy=policy, groups=LABELS)
        engine.add_arm("home", "rug", group="cyd", entitlement=3.0)
        play(engine, 20)
        writer_of(engine).take_snapshots(1)
        then = engine.experiment("home")
        assert then.groups is not None
        assert then.groups.entitlements == {"ada": 1.0, "ben": 1.0, "cyd": 3.0}
    with Engine.open(tmp_path / "shop.db", seed=2) as engine:
        assert engine.experiment("home") == then
        play(engine, 20, seed=1)
        engine.verify()


def test_groups_can_be_passed_in_four_forms(tmp_path: Path) -> None:
    with Engine.open(tmp_path / "shop.db") as engine:
        ways: list[Any] = [LABELS, np.array(LABELS), Groups(LABELS), {"labels": LABELS}, {"labels": GROUPS}]
        for k, said in enumerate(ways):
            engine.create(f"home {k}", arms=ARMS, groups=said)
            assert engine.experiment(f"home {k}").groups == GroupStatus(GROUPS, None, None)
            labels = engine.history(f"home {k}")[0].details["settings"]["groups"]["labels"]
            assert labels == LABELS
        assert [type(label) for label in labels] == [str] * 3


def test_a_required_setting_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Own(Uniform):
        name = "own"

        def __init__(self, n_contexts: int, n_arms: int, *, horizon: int, seed: int | None = None) -> None:
            super().__init__(n_contexts, n_arms, seed=seed)

    monkeypatch.setitem(POLICIES, "own", Own)
    with Engine.open(tmp_path / "shop.db") as engine:
        with pytest.raises(RequestError, match="horizon must be passed: own requires it"):
            engine.create("home", arms=ARMS, policy="own")
        assert engine.experiments() == []


def test_over_http(tmp_path: Path) -> None:
    with running(tmp_path / "shop.db") as shop:
        body = {
            "name": "home",
            "arms": ARMS,
            "groups": {"labels": LABELS, "entitlements": {"ben": 2.0}, "pull_floor": {"ada": 0.2}},
        }
        made = shop.post("", body)
        assert made.status_code == 201, made.text
        groups = made.json()["groups"]
        assert groups == {
            "labels": GROUPS,
            "entitlements": {"ada": 1.0, "ben": 2.0},
            "pull_floor": {"ada": 0.2, "ben": 0.0},
        }
        again = shop.post("", {**body, "name": "again", "groups": groups})  # what is answered may be sent
        assert again.json()["groups"] == groups, again.text
        plain = shop.post("", {**body, "name": "labels", "groups": LABELS}).json()
        assert plain["groups"] == {"labels": GROUPS, "entitlements": None, "pull_floor": None}
        assert shop.post("", {"name": "plain", "arms": ARMS}).json()["groups"] is None
        for old in ({"entitlements": {"lamp": 2.0}}, {"pull_floor": 0.1}, {"groups": GROUPS}):
            answer = shop.post("", {"name": "old", "arms": ARMS, **old})
            assert answer.status_code == 422, answer.text
            assert error(answer)["message"]
        with Client(shop.url) as client:
            sent = client.create("sent", arms=ARMS, groups=Groups(np.array(LABELS), {"ben": 2.0}, {"ada": 0.2}))
            assert vars(sent.groups) == groups
        for _ in range(20):
            decision = shop.post("/home/decisions", {"context": "v"}).json()
            shop.post("/home/rewards", {"id": decision["id"], "reward": 0.9})
        change = {"add_arm": "sofa", "group": "cyd", "entitlement": 2.0}
        grown = shop.http.patch("/v1/experiments/home", json=change)
        assert grown.status_code == 200, grown.text
        assert grown.json()["groups"]["entitlements"] == {"ada": 1.0, "ben": 2.0, "cyd": 2.0}
        assert {*grown.json()["accounts"]} == {"ada", "ben", "cyd"}
        assert 0.0 < grown.json()["jain_index"] <= 1.0
        for wrong in ({"group": "cyd"}, {"alpha": 0.5, "group": "cyd"}, {"add_arm": "rug"}):
            answer = shop.http.patch("/v1/experiments/home", json=wrong)
            assert answer.status_code in (400, 422), answer.text
            assert error(answer)["message"]
        shop.engine.verify()
