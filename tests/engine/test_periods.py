"""Periods of experiments: boundaries in the log, accounts that are carried over, and the books of every period."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from alphafair import AlphaFairAdaptive, Decision, Engine, Groups, Log, load_policy
from alphafair.engine.state.experiment import same_state
from alphafair.errors import InvalidArgument, Mismatch
from alphafair.evaluation import LogFile, doctor
from tests.clocks import Clock
from tests.stores import both_stores, execute, is_postgres, live_state, open_store, store_of, writer_of

pytestmark = [both_stores, pytest.mark.compiled]

DAY = 86_400.0
START = 1_800_000_000.0


def replayed(engine: Engine, clock: Clock) -> Engine:
    """The same file, opened again from its log alone."""
    path = engine._store.path
    engine.close()
    execute(path, "delete from snapshot")
    return Engine(open_store(path), seed=2, clock=clock)


def play(engine: Engine, n_rounds: int, name: str = "home", seed: int = 0) -> None:
    rng = np.random.default_rng(seed)
    full = engine.experiment(name).feedback == "full"
    n_arms = len(engine.experiment(name).pulls)
    for k in range(n_rounds):
        receipt = engine.decide(name, f"visitor-{k % 3}")
        reward = rng.random(n_arms).tolist() if full else float(rng.random() < 0.7)
        assert engine.reward(receipt.id, reward).outcome == "applied"


def boundaries(engine: Engine, name: str = "home") -> list[tuple[int, float, float]]:
    """Number, carry and days since the start of every period but the first."""
    changes = [each.details for each in engine.history(name) if each.kind == "new_period"]
    return [(each["period"], each["carry"], (each["at"] / 1e6 - START) / DAY) for each in changes]


@pytest.mark.parametrize("policy", ["alpha-fair-adaptive", "alpha-fair-bandit", "alpha-fair", "uniform"])
def test_the_first_request_after_a_boundary_starts_a_period(engine: Engine, clock: Clock, policy: str) -> None:
    settings: dict[str, Any] = {} if policy == "uniform" else {"alpha": 1.0}
    engine.create("home", arms=["ada", "ben"], policy=policy, period="7d", carry=0.25, **settings)
    play(engine, 20)
    clock.now += 7 * DAY - 1
    play(engine, 1)
    assert boundaries(engine) == []
    before = engine.experiment("home")
    clock.now += 2
    engine.decide("home", "visitor-1")
    after = engine.experiment("home")
    assert boundaries(engine) == [(1, 0.25, 7.0)]
    carried = {arm: 1.0 + 0.25 * (account - 1.0) for arm, account in before.accounts.items()}
    assert after.accounts == pytest.approx(carried, rel=1e-12)
    play(engine, 20, seed=1)
    engine.verify()
    closed, current = engine.experiment("home").periods
    assert closed.rewards == before.cumulative_rewards
    assert (closed.accounts, closed.number, current.number) == (before.accounts, 0, 1)
    assert closed.started == datetime.fromtimestamp(START, UTC)
    assert closed.ended == current.started == datetime.fromtimestamp(START + 7 * DAY, UTC)
    assert (closed.first_position, closed.last_position) == (1, current.first_position - 1)
    assert current.entry_accounts == after.accounts
    assert (current.ended, current.last_position) == (None, None)
    found = engine.experiment("home")
    total = {arm: closed.rewards[arm] + current.rewards[arm] for arm in ("ada", "ben")}
    assert total == pytest.approx(found.cumulative_rewards, rel=1e-12)
    assert (found.period, found.carry) == (7 * DAY, 0.25)
    assert found.period_ends == datetime.fromtimestamp(START + 14 * DAY, UTC)
    state = live_state(engine, "home").find("home").policy.snapshot()
    again = replayed(engine, clock)
    assert again.experiment("home") == found
    assert same_state(live_state(again, "home").find("home").policy.snapshot(), state)
    again.verify()
    again.close()


def test_missed_boundaries_are_one_event(engine: Engine, clock: Clock) -> None:
    engine.create("home", arms=["ada", "ben"], alpha=2.0, period="1d", carry=0.5)
    play(engine, 30)
    alone = load_policy(live_state(engine, "home").find("home").policy.snapshot())
    clock.now += 3.5 * DAY
    play(engine, 1)
    assert boundaries(engine) == [(3, 0.125, 3.0)]
    alone.new_period(0.125)
    assert engine.experiment("home").periods[-1].entry_accounts == dict(
        zip(["ada", "ben"], alone.accounts.tolist(), strict=True)
    )
    assert engine.experiment("home").periods[0].ended == datetime.fromtimestamp(START + DAY, UTC)
    clock.now += 0.6 * DAY
    engine.maintain()  # without a request
    assert boundaries(engine)[1:] == [(4, 0.5, 4.0)]
    clock.now -= 10 * DAY  # a clock that is set back meets no boundary twice
    play(engine, 1)
    assert len(boundaries(engine)) == 2
    engine.verify()


def test_periods_start_at_a_date(engine: Engine, clock: Clock) -> None:
    later, earlier = datetime.fromtimestamp(START + 2 * DAY, UTC), datetime.fromtimestamp(START - 2.5 * DAY, UTC)
    engine.create("later", arms=["a", "b"], period=3 * DAY, period_start=later)
    engine.create("earlier", arms=["a", "b"], period="1d", period_start=earlier.isoformat())
    assert engine.experiment("later").period_ends == later
    assert engine.experiment("earlier").period_ends == datetime.fromtimestamp(START + 0.5 * DAY, UTC)
    clock.now += 2.2 * DAY
    engine.decide("earlier", "v")  # in a file it ends the periods of all experiments
    if is_postgres():
        engine.decide("later", "v")
    assert boundaries(engine, "later") == [(1, 0.5, 2.0)]
    assert boundaries(engine, "earlier") == [(2, 0.25, 1.5)]
    assert engine.experiment("later").period_ends == datetime.fromtimestamp(START + 5 * DAY, UTC)
    engine.verify()


def test_a_period_is_started_by_hand(engine: Engine, clock: Clock) -> None:
    engine.create("home", arms=["ada", "ben"], alpha=1.0)
    assert engine.experiment("home").periods == ()
    play(engine, 10)
    engine.new_period("home")
    engine.new_period("home", carry=0.0)
    assert [row[:2] for row in boundaries(engine)] == [(1, 0.5), (2, 0.0)]
    assert set(engine.experiment("home").accounts.values()) == {1.0}
    engine.create("weekly", arms=["ada", "ben"], period="7d")
    clock.now += DAY
    engine.new_period("weekly")
    assert engine.experiment("weekly").period_ends == datetime.fromtimestamp(START + 7 * DAY, UTC)
    engine.verify()


def test_a_late_reward_belongs_to_the_period_in_which_it_arrives(engine: Engine, clock: Clock) -> None:
    engine.create("home", arms=["ada", "ben"], alpha=1.0, period="1d", reward_wait=1.5 * DAY, default_reward=0.25)
    first, second = engine.decide("home", "v"), engine.decide("home", "v")
    clock.now += 1.1 * DAY
    engine.reward(first.id, 1.0)
    clock.now += 1.0 * DAY
    engine.expire()
    books = [sum(period.rewards.values()) for period in engine.experiment("home").periods]
    assert books == [0.0, 1.0, 0.25]
    assert engine.reward(second.id, 1.0).outcome == "expired"
    engine.verify()


@pytest.mark.parametrize("policy", ["alpha-fair-adaptive", "alpha-fair"])
def test_a_rollback_applies_the_boundaries_since_again(engine: Engine, clock: Clock, policy: str) -> None:
    engine.create("home", arms=["ada", "ben", "cyd"], alpha=1.0, policy=policy, period="1d", carry=0.5)
    play(engine, 20)
    position = engine.experiment("home").position
    alone = load_policy(live_state(engine, "home").find("home").policy.snapshot())
    for seed in (1, 2):
        clock.now += DAY
        play(engine, 10, seed=seed)
    before = engine.experiment("home").periods
    engine.rollback("home", position)
    alone.new_period(0.5)
    alone.new_period(0.5)
    after = engine.experiment("home")
    assert [*after.accounts.values()] == alone.accounts.tolist()
    assert [period.rewards for period in after.periods] == [period.rewards for period in before]
    assert len(boundaries(engine)) == 2
    clock.now += DAY
    play(engine, 10, seed=3)
    engine.verify()
    found = engine.experiment("home")
    again = replayed(engine, clock)
    assert again.experiment("home") == found
    again.verify()
    again.close()


def test_arms_and_groups_over_boundaries(engine: Engine, clock: Clock) -> None:
    engine.create(
        "home", arms=["a", "b", "c"], alpha=2.0, period="1d", groups=Groups(["g", "g", "h"], {"g": 2, "h": 1})
    )
    engine.create("plain", arms=["a", "b", "c"], alpha=0.5, period="1d")
    for name in ("home", "plain"):
        play(engine, 20, name)
    engine.retire_arm("plain", "a")
    engine.retire_arm("home", "a")
    before = engine.experiment("home").accounts
    clock.now += DAY
    engine.add_arm("plain", "d")
    engine.add_arm("home", "d", group="g")
    engine.mask_arm("home", "b")
    for name in ("home", "plain"):
        play(engine, 20, name, seed=1)
    first, second = engine.experiment("plain").periods
    assert (set(first.rewards), set(second.rewards)) == ({"a", "b", "c"}, {"b", "c", "d"})
    assert (set(first.accounts), set(second.accounts)) == ({"a", "b", "c"}, {"b", "c", "d"})
    entry = {label: 1.0 + 0.5 * (account - 1.0) for label, account in before.items()}
    assert engine.experiment("home").periods[1].entry_accounts == pytest.approx(entry, rel=1e-12)
    clock.now += DAY
    engine.set_alpha("plain", "inf")  # type: ignore[arg-type]
    play(engine, 5, "plain", seed=2)
    engine.verify()
    shown = {name: engine.experiment(name) for name in ("home", "plain")}
    again = replayed(engine, clock)
    assert {name: again.experiment(name) for name in shown} == shown
    again.verify()
    again.close()


def test_a_learned_period_is_a_run_of_the_policy_itself(engine: Engine, clock: Clock) -> None:
    engine.create("home", arms=["ada", "ben"], contexts=["v"], alpha=1.0, period="1d")
    policy = AlphaFairAdaptive(1, 2, alpha=1.0)
    for day in range(3):
        if day:
            clock.now += DAY
            policy.new_period(0.5)
        for k in range(10):
            receipt = engine.decide("home", "v")
            arm = ["ada", "ben"].index(receipt.arm)
            assert receipt.propensity == policy.probabilities(0)[arm]
            decision = Decision(0, arm, receipt.propensity, policy.probabilities(0))
            policy.expect(decision)
            reward = float(k % (2 + arm) == 0)
            engine.reward(receipt.id, reward)
            policy.update(decision, reward)
    assert [*engine.experiment("home").accounts.values()] == policy.accounts.tolist()


def test_bad_periods_change_nothing(engine: Engine) -> None:
    wrong: list[dict[str, Any]] = [
        {"period": "week"},
        {"period": 0},
        {"period": "30s"},
        {"period": "7d", "carry": 1.5},
        {"carry": -0.1},
        {"period_start": "2024-01-01"},
        {"period": "7d", "period_start": "monday"},
        {"period": "7d", "period_start": 7},
    ]
    for arguments in wrong:
        with pytest.raises(InvalidArgument, match="must be"):
            engine.create("home", arms=["a", "b"], **arguments)
    assert engine.position == 0
    engine.create("home", arms=["a", "b"])
    with pytest.raises(InvalidArgument, match="carry must be"):
        engine.new_period("home", carry=2.0)
    assert engine.position == 1


def test_a_failed_commit_of_a_boundary_is_repeated(
    engine: Engine, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.create("home", arms=["ada", "ben"], period="1d")
    play(engine, 5)
    clock.now += DAY
    with monkeypatch.context() as patch:
        patch.setattr(store_of(engine, "home"), "commit", lambda *_: (_ for _ in ()).throw(OSError("the disk is full")))
        with pytest.raises(OSError, match="the disk is full"):
            engine.decide("home", "v")
    assert boundaries(engine) == []
    play(engine, 5)
    assert len(boundaries(engine)) == 1
    engine.verify()


@pytest.mark.parametrize("policy", ["alpha-fair-adaptive", "alpha-fair"])
def test_exports_have_the_period_of_every_reward(engine: Engine, clock: Clock, tmp_path: Path, policy: str) -> None:
    floors = {"pull_floor": 0.3}  # so that some twenty rounds are a sound log
    engine.create("home", arms=["ada", "ben"], policy=policy, period="1d", reward_wait=2.5 * DAY, groups=floors)
    play(engine, 10)
    late, never = engine.decide("home", "v"), engine.decide("home", "v")
    clock.now += 2.2 * DAY
    engine.reward(late.id, 1.0 if policy == "alpha-fair-adaptive" else [1.0, 1.0])
    play(engine, 10, seed=1)
    clock.now += DAY
    engine.expire()
    engine.decide("home", "v")
    formats = ["parquet", "jsonl", "csv"] if policy == "alpha-fair-adaptive" else ["parquet", "jsonl"]
    for format in formats:
        path = tmp_path / f"log.{format}"
        engine.export("home", path)
        read = {"parquet": pl.read_parquet, "jsonl": pl.read_ndjson, "csv": pl.read_csv}[format](path)
        assert read["period"].to_list() == [0] * 10 + [2] + [None] + [2] * 10 + [None]
        assert read["period"].is_null().to_list() == read["reward"].is_null().to_list()
        assert read.filter(pl.col("id") == never.id)["reward_source"].to_list() == ["expired"]
        if policy == "alpha-fair-adaptive":
            books = {period.number: sum(period.rewards.values()) for period in engine.experiment("home").periods}
            for number in (0, 2):
                assert read.filter(pl.col("period") == number)["reward"].sum() == books[number]
            assert Log.from_table(path).rewards.tolist() == engine.log("home").rewards.tolist()
            assert doctor(LogFile(path)).is_sound
    engine.verify()


def test_csv_exports_without_the_column_are_still_unescaped(engine: Engine, tmp_path: Path) -> None:
    engine.create("home", arms=["=ada", "ben"])
    play(engine, 20)
    path = tmp_path / "log.csv"
    engine.export("home", path)
    earlier = tmp_path / "earlier.csv"
    pl.read_csv(path, infer_schema=False).drop("period").write_csv(earlier)
    assert "'=ada" in earlier.read_text()
    assert Log.from_table(earlier).arm_labels == Log.from_table(path).arm_labels == ("=ada", "ben")


def edited(engine: Engine, clock: Clock, position: int, **fields: Any) -> Engine:
    """The same file, with other numbers in the body of a change or in its books."""
    path = engine._store.path
    engine.close()
    ((found,),) = execute(path, f"select body from change where position = {position}")
    body = json.loads(found)
    for name, value in fields.items():
        place = body["books"] if name in body["books"] else body
        place[name] = value(place[name])
    execute(path, f"update change set body = '{json.dumps(body)}' where position = {position}")
    return Engine(open_store(path), seed=2, clock=clock)


def more(value: dict[str, float]) -> dict[str, float]:
    label, amount = next(iter(value.items()))
    return value | {label: amount * (1 + 2**-52)}


EDITS: dict[str, Any] = {
    "rewards": more,
    "entry_accounts": more,
    "accounts": more,
    "earned": lambda value: [value[0] + 1, *value[1:]],
    "ended": lambda value: value - 1,
    "period": lambda value: value + 1,
    "carry": lambda value: value / 2,
}


@pytest.mark.parametrize("name", EDITS)
@pytest.mark.parametrize("by_hand", [False, True])
@pytest.mark.parametrize("upgraded", [False, True])
def test_verify_checks_the_books(engine: Engine, clock: Clock, name: str, by_hand: bool, upgraded: bool) -> None:
    engine.create("other", arms=["ada", "ben"])
    engine.create("home", arms=["ada", "ben", "cyd"], alpha=2.0, period="1d")
    for seed in range(3):
        play(engine, 8, seed=seed)
        play(engine, 2, "other")
        if seed == 1:
            engine.retire_arm("home", "ada")
            engine.add_arm("home", "dan")
        clock.now += 0.3 * DAY if by_hand else 1.7 * DAY
        if by_hand:
            engine.new_period("home")
        engine.decide("home", "v")
    engine.verify()
    (_, second, _) = (change.position for change in engine.history("home") if change.kind == "new_period")
    if upgraded:
        live_state(engine, "home").find("home").code = "of an older version"
        writer_of(engine, "home").record_upgrade()
        engine.verify()
    if upgraded and (name.endswith("accounts") or (by_hand and name == "carry")):
        return  # what older code did to accounts cannot be repeated
    message = f"home: the change at position {second} ends period . with {name} .*, but the log leads to"
    if name == "carry" and not upgraded:
        message = "home: decision .* leads to"  # the draws after it are checked first
    with edited(engine, clock, second, **{name: EDITS[name]}) as again, pytest.raises(Mismatch, match=message):
        again.verify()


def calendar(engine: Engine, name: str = "home") -> tuple[float | None, float | None, float]:
    """Days of a period, days from the start to its end, and the carry."""
    found = engine.experiment(name)
    days = None if found.period is None else found.period / DAY
    return days, None if found.period_ends is None else (found.period_ends.timestamp() - START) / DAY, found.carry


def test_the_period_of_a_running_experiment_is_changed(engine: Engine, clock: Clock) -> None:
    engine.create("home", arms=["ada", "ben"], alpha=1.0)
    engine.create("other", arms=["ada", "ben"], period="1d")
    play(engine, 5)
    clock.now += 0.5 * DAY
    engine.set_period("home", "2d")
    assert calendar(engine) == (2.0, 2.5, 0.5)
    assert len(engine.experiment("home").periods) == 1
    clock.now += 2.1 * DAY
    play(engine, 5, seed=1)
    assert boundaries(engine) == [(1, 0.5, 2.5)]
    engine.set_period("home", 2 * DAY, carry=0.25)  # the calendar stays
    assert calendar(engine) == (2.0, 4.5, 0.25)
    clock.now += 4 * DAY  # 6.6: 4.5 and 6.5 are over, and belong to the calendar before this change
    position = engine.position
    engine.set_period("home", "1d", period_start=datetime.fromtimestamp(START + 10.25 * DAY, UTC).isoformat())
    assert boundaries(engine)[1:] == [(3, 0.0625, 6.5)]
    assert calendar(engine) == (1.0, 10.25, 0.25)
    clock.now += 3 * DAY
    play(engine, 5, seed=2)
    clock.now += 1 * DAY
    play(engine, 5, seed=3)
    assert boundaries(engine)[2:] == [(4, 0.25, 10.25)]
    before = engine.experiment("home").accounts
    engine.rollback("home", position)  # the boundary since, and the calendar, stay
    assert calendar(engine) == (1.0, 11.25, 0.25)
    assert engine.experiment("home").accounts != before
    engine.set_period("home", None)
    assert calendar(engine) == (None, None, 0.25)
    clock.now += 30 * DAY
    play(engine, 5, seed=4)
    engine.new_period("home")
    assert [row[:2] for row in boundaries(engine)[3:]] == [(5, 0.25)]
    engine.decide("other", "v")
    assert boundaries(engine, "other")
    engine.verify()
    found = engine.experiment("home")
    assert [period.number for period in found.periods] == [0, 1, 3, 4, 5]
    again = replayed(engine, clock)
    assert again.experiment("home") == found
    again.verify()
    again.close()


def test_changes_of_the_period_are_in_the_history(engine: Engine, clock: Clock) -> None:
    start = datetime.fromtimestamp(START, UTC).isoformat()
    engine.create("home", arms=["a", "b"], period="1d", period_start=start, carry=0.75)
    with engine.acting_as("ops"):
        engine.set_period("home", "12h")
        engine.set_period("home", None, carry=0.0)
    created, changed, ended = engine.history("home")
    assert (created.details["period"], created.details["period_start"]) == (DAY, start)
    assert changed[2:] == ("set_period", "ops", {"period": DAY / 2, "period_start": start, "carry": 0.75})
    assert (ended.details["period"], ended.details["carry"]) == (None, 0.0)
    json.dumps([each.details for each in engine.history("home")])
    engine.verify()


def test_a_boundary_between_two_looks_at_the_clock_is_not_lost(engine: Engine, clock: Clock) -> None:
    """The calendar until the change is applied up to the moment of the change."""
    engine.create("home", arms=["ada", "ben"], period="1d")
    clock.now += DAY - 0.5
    times = writer_of(engine)._clock
    times._wall = iter([int(clock.now * 1e9)] * 2 + [int((clock.now + 1) * 1e9)] * 99).__next__
    engine.set_period("home", None)
    times._wall = clock
    clock.now += 2
    (_, changed) = engine.history("home")
    assert (changed.kind, changed.at.timestamp()) == ("set_period", START + DAY - 0.5)


def test_bad_changes_of_the_period_change_nothing(engine: Engine) -> None:
    engine.create("home", arms=["a", "b"], period="1d")
    wrong: list[dict[str, Any]] = [
        {"period": "week"},
        {"period": 59},
        {"period": None, "period_start": "2024-01-01"},
        {"period": "1d", "period_start": "monday"},
        {"period": "1d", "carry": 1.5},
        {"period": None, "carry": -1},
    ]
    for arguments in wrong:
        with pytest.raises(InvalidArgument, match="must be"):
            engine.set_period("home", **arguments)
    assert (engine.position, calendar(engine)) == (1, (1.0, 1.0, 0.5))


def test_history_leaves_the_books_out(engine: Engine) -> None:
    engine.create("home", arms=["ada", "ben"], period="7d")
    engine.new_period("home")
    (_, change) = engine.history("home")
    assert set(change.details) == {"period", "carry", "at"}
    json.dumps(change.details)
