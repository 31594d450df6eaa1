"""Modes watch, share and live: who decides, what is stored, what the report of sides says, and what `verify` finds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from alphafair import Engine
from alphafair.engine import RequestError
from alphafair.engine.state import sides
from alphafair.engine.state.sides import place_of
from alphafair.errors import InvalidArgument, Mismatch
from tests.clocks import Clock
from tests.engine.test_terms import same_again
from tests.stores import both_stores, execute, is_postgres, live_state, open_store, rows_of

pytestmark = both_stores
ARMS = ["ada", "ben", "cyd"]
UNITS = [f"visitor-{k}" for k in range(300)]


@pytest.fixture
def engine(engine: Engine) -> Engine:
    engine.create("home", arms=ARMS, alpha=0.9, mode="watch", reward_range=(-1.0, 1.0))
    return engine


def decide(engine: Engine, unit: str, arm: str = "ben", **told: Any) -> Any:
    return engine.decide("home", "front", incumbent=arm, unit=unit, **told)


def play(engine: Engine, n_rounds: int, seed: int = 0) -> None:
    """Visitors of different arms; what the policy shows is worth more than what the incumbent shows."""
    rng = np.random.default_rng(seed)
    asked = [{"unit": UNITS[k], "arm": ARMS[k % 3]} for k in rng.integers(len(UNITS), size=n_rounds)]
    columns = {"incumbent": [each["arm"] for each in asked], "unit": [each["unit"] for each in asked]}
    for receipt in engine.decide_many("home", ["front"] * n_rounds, **columns):
        assert not isinstance(receipt, RequestError)
        engine.reward(receipt.id, float(rng.random() < (0.6 if receipt.source is None else 0.4)))


def test_who_watches_returns_what_the_incumbent_shows(engine: Engine) -> None:
    receipt = decide(engine, "visitor-7", "cyd", id="one", incumbent_propensity=0.25)
    assert receipt == ("one", "cyd", 0.25, "front", "incumbent")
    assert decide(engine, "visitor-7", "ada", id="one") == receipt  # the same id: the same decision
    assert decide(engine, "visitor-8").propensity is None
    assert engine.reward("one", 1.0).outcome == "applied"
    status = engine.experiment("home")
    assert (status.mode, status.decisions, status.rewards, status.pulls["cyd"]) == ("watch", 0, 0, 0)
    ours, theirs = status.sides or ()
    assert (ours.source, ours.decisions, ours.mean_reward) == ("policy", 0, None)
    assert (theirs.source, theirs.decisions, theirs.rewarded) == ("incumbent", 2, 1)
    assert theirs.mean_reward is not None
    assert (theirs.mean_reward.value, theirs.mean_reward.low) == (1.0, None)  # too few for an interval
    assert theirs.against_policy is None
    rows = rows_of(engine, "select bucket, decided_by from decision order by event")
    places = [place_of(unit, "home").bucket for unit in ("visitor-7", "visitor-8")]
    assert [tuple(row) for row in rows] == [(place, "incumbent") for place in places]


def test_a_masked_or_retired_arm_of_the_incumbent_is_returned_all_the_same(engine: Engine) -> None:
    engine.mask_arm("home", "ada")
    engine.retire_arm("home", "ben")
    assert [decide(engine, "v", arm, available=["cyd"]).arm for arm in ARMS] == ARMS
    engine.pause("home")
    with pytest.raises(RequestError, match="one that is not paused"):
        decide(engine, "v")


def test_the_share_follows_the_hash_and_moves_units_one_way(engine: Engine, clock: Clock) -> None:
    sides_of: list[set[str]] = []
    for share in (0.1, 0.4, 0.2):
        engine.set_terms("home", mode="share", share=share)
        ours = {unit for unit in UNITS if decide(engine, unit).source is None}
        assert ours == {unit for unit in UNITS if place_of(unit, "home").u < share}
        sides_of.append(ours)
    few, many, some = sides_of
    assert few < some < many
    engine.set_terms("home", salt="another")
    assert {unit for unit in UNITS if decide(engine, unit).source is None} != some
    engine.set_terms("home", mode="live")
    assert engine.experiment("home").share is None
    assert all(decide(engine, unit).source is None for unit in UNITS[:20])
    assert engine.decide("home", "front").source is None  # without an incumbent
    same_again(engine, clock)


def test_sides_are_compared_from_the_last_change_on(engine: Engine, clock: Clock) -> None:
    play(engine, 50)
    engine.set_terms("home", mode="share", share=0.5)
    assert [side.decisions for side in engine.experiment("home").sides or ()] == [0, 0]
    waiting = decide(engine, UNITS[0]).id
    play(engine, 700, seed=1)
    engine.observe("home", "front", "ada", 1.0, source="history")
    status = engine.experiment("home")
    ours, theirs, history = status.sides or ()
    assert ours.decisions + theirs.decisions == 701
    assert ours.rewarded + theirs.rewarded == 700
    assert (history.source, history.decisions, history.against_policy) == ("history", 1, None)
    for side in (ours, theirs):
        for value in (side.mean_reward, side.welfare, side.jain_index):
            assert value is not None
            assert value.low < value.value < value.high  # type: ignore[operator]
    against = theirs.against_policy
    assert against is not None
    assert ours.mean_reward is not None
    assert theirs.mean_reward is not None
    assert against.mean_reward.value == pytest.approx(theirs.mean_reward.value - ours.mean_reward.value)
    assert against.mean_reward.value < 0.0
    assert against.welfare_ratio is not None
    assert against.welfare_ratio.low < against.welfare_ratio.value < against.welfare_ratio.high  # type: ignore[operator]
    assert status.share_seen is not None
    assert status.share_seen.low < 0.5 < status.share_seen.high  # type: ignore[operator]
    engine = same_again(engine, clock)
    engine.reward(waiting, 1.0)
    engine.set_terms("home", share=0.6)
    assert sum(side.decisions for side in engine.experiment("home").sides or ()) == 0
    engine.verify()


def test_the_report_is_that_of_tables_counted_by_hand(engine: Engine) -> None:
    engine.set_terms("home", mode="share", share=0.5)
    rng, by_hand = np.random.default_rng(2), np.zeros((2, 64, 5))
    for k in range(400):
        unit = UNITS[int(rng.integers(len(UNITS)))]
        receipt = decide(engine, unit, ARMS[k % 3])
        row = by_hand[int(receipt.source is not None), place_of(unit, "home").bucket]
        row[4] += 1
        if k % 5:
            reward = float(rng.random() * 2.0 - 1.0)
            engine.reward(receipt.id, reward)
            row[3] += 1
            row[ARMS.index(receipt.arm)] += (reward + 1.0) / 2.0
    measured = [sides.measure(table, by_hand[..., 3].sum(), np.ones(3), 0.9) for table in by_hand]
    for side, found, table in zip(engine.experiment("home").sides or (), measured, by_hand, strict=True):
        assert (side.decisions, side.rewarded) == (table[:, 4].sum(), table[:, 3].sum())
        assert side.mean_reward is not None
        assert side.mean_reward.value == pytest.approx(2.0 * found.values[0] - 1.0, rel=1e-12)
        half = sides.half_width(found.variances, found.rewarded)
        assert side.mean_reward.high == pytest.approx(2.0 * (found.values[0] + half[0]) - 1.0, rel=1e-12)
        assert side.welfare is not None
        assert side.welfare.low == pytest.approx(np.exp(found.values[1] - half[1]), rel=1e-12)
        earned = table[:, :3].sum(axis=0)
        assert side.least_share == pytest.approx(earned.min() / earned.sum(), rel=1e-12)


def test_arms_that_come_and_groups_are_part_of_the_report(engine: Engine, clock: Clock) -> None:
    engine.set_terms("home", mode="share", share=0.5)
    play(engine, 100)
    engine.add_arm("home", "dan")
    engine.set_terms("home", groups={"ada": "a", "ben": "b", "cyd": "a", "dan": "b"}, entitlements={"a": 2.0})
    for k in range(40):
        engine.reward(decide(engine, UNITS[k], "dan").id, 1.0)
    ours, theirs = engine.experiment("home").sides or ()
    assert ours.decisions + theirs.decisions == 140  # groups are no change of sides
    engine.retire_arm("home", "dan")
    same_again(engine, clock)


def test_policies_without_alpha_have_no_welfare(engine: Engine) -> None:
    engine.create("plain", arms=ARMS, policy="uniform", mode="share", share=0.5, salt="abc")
    for unit in UNITS[:100]:
        engine.reward(engine.decide("plain", "front", incumbent="ada", unit=unit).id, 0.5)
    ours, theirs = engine.experiment("plain").sides or ()
    assert ours.welfare is theirs.welfare is None
    assert theirs.against_policy is not None
    assert theirs.against_policy.welfare_ratio is None
    assert ours.mean_reward is not None


def test_live_without_a_mode_stores_no_bucket(engine: Engine) -> None:
    engine.create("plain", arms=ARMS)
    engine.decide("plain", "front", unit="visitor-7", incumbent="ada")
    assert engine.experiment("plain").sides is None
    assert rows_of(engine, "select bucket from decision") == [(None,)]
    engine.observe("plain", "front", "ada", 0.5)
    engine.decide("plain", "front", unit="visitor-7")
    ours, theirs = engine.experiment("plain").sides or ()
    assert (ours.decisions, theirs.decisions) == (1, 1)
    engine.verify()


def test_a_deferred_decision_of_the_incumbent_waits_to_be_activated(engine: Engine, clock: Clock) -> None:
    engine.set_terms("home", reward_wait=10.0)
    first, second = (decide(engine, "v", deferred=True).id for _ in range(2))
    assert engine.activate(first).outcome == "activated"
    assert engine.reward(first, 1.0).outcome == "applied"
    clock.now += 60.0
    assert engine.activate(second).outcome == "expired"
    same_again(engine, clock)


# refusals

REFUSALS: dict[str, tuple[dict[str, Any], str, str]] = {
    "none": (
        {},
        "incumbent_required",
        "incumbent must be passed in every decision: home has the mode 'watch'; got None. Pass the arm",
    ),
    "unknown": ({"incumbent": "bem"}, "unknown_arm", "incumbent must be an arm of home; got 'bem'"),
    "zero": (
        {"incumbent": "ada", "incumbent_propensity": 0.0},
        "bad_request",
        "incumbent_propensity must be a number in (0",
    ),
    "unit": ({"incumbent": "ada", "unit": ""}, "bad_label", "unit must be a string of 1 to 200"),
    "slate": ({"incumbent": "ada", "k": 2}, "bad_request", "k must be left out in mode 'watch'"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_refused_decisions_change_nothing(engine: Engine, case: str) -> None:
    asked, code, sentence = REFUSALS[case]
    with pytest.raises(InvalidArgument) as refused:
        engine.decide("home", "front", **asked)
    assert sentence in str(refused.value)
    assert getattr(refused.value, "code", "bad_request") == code
    assert engine.position == 1


def test_a_propensity_needs_an_incumbent_in_every_mode(engine: Engine) -> None:
    engine.set_terms("home", mode="live")
    with pytest.raises(RequestError, match="incumbent_propensity must be passed with incumbent"):
        engine.decide("home", "front", incumbent_propensity=0.5)
    with pytest.raises(RequestError, match="incumbent must be an arm"):
        engine.decide("home", "front", incumbent="bem")
    for k in range(8):
        engine.observe("home", "front", "ada", source=f"source {k}")
    engine.set_terms("home", mode="watch")
    with pytest.raises(RequestError, match="one of the 8 sources"):
        decide(engine, "v")


@pytest.mark.parametrize(
    ("terms", "sentence"),
    [
        ({"mode": "shadow"}, "mode must be one of 'live', 'watch', 'share'"),
        ({"mode": "share"}, "share must be a number in (0, 1), passed with mode 'share'"),
        ({"share": 0.5}, "share must be left out in mode 'watch'"),
        ({"mode": "share", "share": 0.0}, "share must be a number in (0, 1)"),
        ({"mode": "share", "share": 1.0}, "share must be a number in (0, 1)"),
        ({"salt": ""}, "salt must be a string of 1 to 200"),
    ],
)
def test_refused_modes_change_nothing(engine: Engine, terms: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        engine.set_terms("home", **terms)
    assert sentence in str(refused.value)
    with pytest.raises(InvalidArgument):
        engine.create("other", arms=ARMS, **terms)
    assert engine.experiments() == ["home"]
    assert engine.position == 1


# forged rows


def forged(engine: Engine, clock: Clock, statement: str) -> None:
    path = engine._store.path
    engine.close()
    execute(path, statement)
    with Engine(open_store(path), seed=2, clock=clock) as again:
        again.verify()


def test_a_decision_of_the_policy_in_mode_watch_is_found(engine: Engine, clock: Clock) -> None:
    engine.set_terms("home", mode="live")
    engine.decide("home", "front")
    path = engine._store.path
    ((body,),) = rows_of(engine, "select body from change where kind = 'terms'")
    watching = json.dumps({"set": {**json.loads(body)["set"], "mode": "watch"}})
    engine.close()
    execute(path, f"update change set body = '{watching}' where kind = 'terms'")
    with Engine(open_store(path), seed=2, clock=clock) as again, pytest.raises(Mismatch, match="mode 'watch'"):
        again.verify()


def test_a_side_that_is_not_the_hash_s_is_found(engine: Engine, clock: Clock) -> None:
    engine.set_terms("home", mode="share", share=0.5)
    label = next(unit for unit in UNITS if 0.2 < place_of(unit, "home").u < 0.5)
    assert engine.decide("home", label, incumbent="ada").source is None
    engine.verify()
    ((body,),) = rows_of(engine, "select body from change where kind = 'terms'")
    smaller = json.dumps({"set": {**json.loads(body)["set"], "share": 0.1}})
    with pytest.raises(Mismatch, match=r"a share of 0\.1 leaves"):
        forged(engine, clock, f"update change set body = '{smaller}' where kind = 'terms'")


def test_another_bucket_is_found(engine: Engine, clock: Clock) -> None:
    engine.set_terms("home", mode="live")
    decide(engine, "visitor-7")
    bucket = place_of("visitor-7", "home").bucket
    with pytest.raises(Mismatch, match="was not made for context"):
        forged(engine, clock, f"update decision set bucket = {(bucket + 1) % 64}")


def test_a_policy_that_failed_can_be_taken_back(engine: Engine) -> None:
    engine.set_terms("home", mode="live")
    decide(engine, "v")
    live_state(engine, "home").find("home").drop_policy("learning", "a test")
    engine.set_terms("home", mode="watch")
    assert decide(engine, "v", "cyd").arm == "cyd"
    assert engine.experiment("home").sides is not None


def test_two_nodes_give_a_unit_the_same_side(tmp_path: Path, clock: Clock) -> None:
    """Each splits by itself; both follow the other's terms, and count the same sides."""
    if not is_postgres():
        pytest.skip("a file has one writer")
    one, two = (Engine(open_store(tmp_path / "shared.db"), seed=seed, clock=clock) for seed in (1, 2))
    one.create("home", arms=ARMS, mode="watch")
    decide(two, UNITS[0])
    one.set_terms("home", mode="share", share=0.3)
    for k, unit in enumerate(UNITS[:60]):
        for node in (one, two)[:: 1 - 2 * (k % 2)]:
            receipt = decide(node, unit)
            assert (receipt.source is None) == (place_of(unit, "home").u < 0.3)
            (two if node is one else one).reward(receipt.id, 0.5, "home")
    decide(two, "last")
    decide(one, "last")  # takes in what the other has written
    decide(two, "last")
    one.expire()
    assert one.verify() == two.verify()
    assert one.experiment("home").sides == two.experiment("home").sides
