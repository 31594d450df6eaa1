"""A policy that fails fails alone: its own request is refused, its experiment is reported, and nobody else notices."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from typer.testing import CliRunner

from alphafair import AlphaFair, AlphaFairBandit, Engine
from alphafair.algorithms import POLICIES, BasePolicy, register
from alphafair.cli import app as program
from alphafair.engine import Decide, Mismatch, Outcome, PolicyFailed, Receipt, RequestError, Reward, restore
from alphafair.engine.store.ledger import Decided, Late, Part, Settled
from alphafair.errors import InvalidArgument
from alphafair.policy.stepper import Stepper
from alphafair.service import keys
from alphafair.values import Decision, State
from tests.serving import error, running
from tests.stores import (
    address_of,
    both_stores,
    execute,
    is_postgres,
    key_of,
    live_state,
    make_stale,
    open_store,
    rows_of,
    store_of,
    writer_of,
)

pytestmark = both_stores

ARMS = ("ada", "ben")
BAD = 0.66  # a reward that the policies below cannot learn from, when they are told so


class Fault:
    """What the policies below do wrong: at which call, from which call on, and what they give or raise then."""

    def __init__(self) -> None:
        self.mend()

    def mend(self) -> None:
        self.where, self.first, self.times, self.gives = "", 0, 0, None
        self.calls = 0

    def put(self, where: str, gives: Any, first: int = 1, times: int = 10**9) -> None:
        self.where, self.first, self.times, self.gives, self.calls = where, first, times, gives, 0

    def pass_on(self, where: str, value: Any = None) -> Any:
        if where != self.where:
            return value
        self.calls += 1
        if not self.first <= self.calls < self.first + self.times:
            return value
        if isinstance(self.gives, BaseException):
            raise self.gives
        return self.gives


FAULT = Fault()


class FaultyStepper(Stepper):
    def draw_alone(self, context: int, uniform: float) -> tuple[int, float]:
        return FAULT.pass_on("draw", super().draw_alone(context, uniform))  # type: ignore[no-any-return]


class Faulty(AlphaFairBandit):
    name: ClassVar[str] = "faulty"

    def _stepper_of(self, flags: Any, bundle: Any, whole_runs: bool) -> Stepper:
        return FaultyStepper(self._learned, self.feedback, flags, bundle, self._lock, whole_runs=whole_runs)

    def update(self, decision: Decision, reward: Any) -> None:
        super().update(decision, reward)
        if reward == BAD:
            FAULT.pass_on("learn")

    def grow(self, *arguments: Any, **options: Any) -> None:
        FAULT.pass_on("grow")
        super().grow(*arguments, **options)

    def retire(self, arm: int) -> None:
        FAULT.pass_on("retire")
        super().retire(arm)

    def snapshot(self) -> State:
        return FAULT.pass_on("snapshot", super().snapshot())  # type: ignore[no-any-return]

    def restore(self, state: State) -> None:
        FAULT.pass_on("restore")
        super().restore(state)

    @property
    def accounts(self) -> Any:  # type: ignore[override]
        return FAULT.pass_on("report", super().accounts)


class FaultyFull(AlphaFair):
    name: ClassVar[str] = "faulty-full"

    def choose(self, *arguments: Any, **options: Any) -> Decision:
        return FAULT.pass_on("draw", super().choose(*arguments, **options))  # type: ignore[no-any-return]


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The policies are known for one test; what is logged about them is not the test's failure."""
    FAULT.mend()
    for kind in (Faulty, FaultyFull):
        register(kind)
    yield
    for kind in (Faulty, FaultyFull):
        POLICIES.pop(kind.name, None)


@pytest.fixture
def engine(path: Path) -> Iterator[Engine]:
    with Engine.open(path, seed=1) as engine:
        engine.create("good", arms=ARMS)
        engine.create("home", arms=ARMS, policy="faulty", reward_wait=1e6, default_reward=0.25)
        for k in range(6):
            engine.reward(engine.decide("good", f"g{k}", f"g{k}").id, 0.5)
            engine.reward(engine.decide("home", f"v{k}", f"v{k}").id, 0.5)
        yield engine


def served(engine: Engine, name: str = "good") -> None:
    receipt = engine.decide(name, "another")
    assert engine.reward(receipt.id, 0.5) == Outcome("applied")
    assert engine.experiment(name).unhealthy is None


# drawing

FULL = np.array([0.5, 0.5])
NOT_DRAWN: list[Any] = [
    ZeroDivisionError("division by zero"),
    InvalidArgument("anything", "accepted", 7, "Ask later."),
    MemoryError(),
    (0, math.nan),
    (math.nan, 0.5),
    (-3, 0.5),
    (2, 0.5),
    (0, 1.0000000000000002),
    (0, 0.0),
    (0, -0.5),
    (0, math.inf),
    ("ada", 0.5),
    (0, None),
    (0,),
    None,
]


@pytest.mark.parametrize("gives", NOT_DRAWN, ids=repr)
def test_a_draw_that_fails_is_refused_alone(engine: Engine, path: Path, gives: Any) -> None:
    before = engine.experiment("home")
    first = engine.position
    FAULT.put("draw", gives, first=2, times=2)
    requests = [
        Decide("good", "new", "a"),
        Decide("home", "w1", "b"),
        Decide("home", "w2", "c"),  # fails
        Decide("home", "v1", "d"),  # fails
        Decide("home", "w3", "e"),
        Reward("b", 0.5),
        Decide("good", "g1", "f"),
        Reward("a", 0.25),
    ]
    answers = engine.submit(requests)
    failed = [answer for answer in answers if isinstance(answer, RequestError)]
    assert [answers.index(each) for each in failed] == [2, 3]
    for each in failed:
        assert isinstance(each, PolicyFailed)
        assert each.code == "policy_failed"
        assert "The policy of home failed: drawing an arm: " in str(each)
        assert "roll" in each.repair
        assert len(str(each)) < 700
    assert [type(answer) for answer in answers if not isinstance(answer, RequestError)] == [
        *(Receipt, Receipt, Receipt, Outcome, Receipt, Outcome)
    ]
    status = engine.experiment("home")
    assert status.unhealthy is not None
    assert status.unhealthy.startswith("drawing an arm")
    assert (status.decisions, status.contexts) == (before.decisions + 2, before.contexts + 2)
    health = engine.health()
    assert (health["ready"], health["unhealthy"]) == (True, {"home": status.unhealthy})
    assert engine.position == first + 6
    engine.verify()
    engine.decide("home", "v1", "d")  # what failed before is drawn now: all is well again
    assert engine.experiment("home").unhealthy is None
    engine.decide("home", "w2", "c")
    engine.verify()
    engine.close()
    with Engine.open(path) as engine:
        assert engine.decide("home", "w3", "e") == answers[4]
        labels = rows_of(engine, "select number, label from context where experiment = 2 order by number")
        assert [label for _, label in labels] == [f"v{k}" for k in range(6)] + ["w1", "w3", "w2"]
        assert [number for number, _ in labels] == list(range(9))
        engine.verify()


@pytest.mark.parametrize(
    "gives",
    [
        ZeroDivisionError(),
        Decision(0, 0, math.nan, FULL),
        Decision(0, 0, 0.5, np.array([math.nan, 0.5])),
        Decision(0, 0, 0.5, np.array([0.5, 0.25])),
        Decision(0, 0, 0.5, np.array([0.5, 0.5, 0.0])),
        Decision(0, 0, 1.5, np.array([1.5, -0.5])),
        Decision(0, 0, 0.25, FULL),
        Decision(0, -1, 0.5, FULL),
        Decision(0, 0, 0.5, None),  # type: ignore[arg-type]
    ],
    ids=repr,
)
@pytest.mark.parametrize("available", [None, ["ada", "ben"]])
def test_an_invalid_distribution_is_refused(engine: Engine, gives: Any, available: list[str] | None) -> None:
    engine.create("all", arms=ARMS, policy="faulty-full")
    engine.reward(engine.decide("all", "v").id, [0.5, 0.25])
    position = engine.position
    FAULT.put("draw", gives)
    with pytest.raises(PolicyFailed):
        engine.decide("all", "w", available=available)
    assert engine.position == position
    served(engine)
    FAULT.mend()
    assert engine.decide("all", "w", available=available).propensity > 0.0
    engine.verify()


def test_an_impossible_arm_is_refused(engine: Engine) -> None:
    """Retired, masked, or not available in this request."""
    engine.add_arm("home", "cyd")
    engine.retire_arm("home", "ada")
    FAULT.put("draw", (0, 0.5))
    with pytest.raises(PolicyFailed, match="arm 0 cannot be drawn"):
        engine.decide("home", "v0")
    FAULT.mend()
    engine.create("all", arms=ARMS, policy="faulty-full")
    FAULT.put("draw", Decision(0, 0, 0.5, FULL))
    with pytest.raises(PolicyFailed, match="arm 0 cannot be drawn"):
        engine.decide("all", "v", available=["ben"])
    engine.mask_arm("all", "ada")
    with pytest.raises(PolicyFailed, match="arm 0 cannot be drawn"):
        engine.decide("all", "v")


def test_numpy_numbers_are_accepted_from_a_policy(engine: Engine) -> None:
    FAULT.put("draw", (np.int64(1), np.float64(0.5)))
    assert engine.decide("home", "v0", "x").arm == "ben"
    assert rows_of(engine, "select arm, propensity from decision where id = 'x'") == [(1, 0.5)]


def test_a_failure_is_logged_once_with_its_traceback(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    FAULT.put("draw", ZeroDivisionError("division by zero"))
    for _ in range(3):
        with pytest.raises(PolicyFailed) as failed:
            engine.decide("home", "v0")
    assert isinstance(failed.value.__cause__, ZeroDivisionError)
    (record,) = [record for record in caplog.records if record.name == "alphafair.engine"]
    assert record.levelno == logging.ERROR
    assert record.exc_info is not None


# learning


def learned_badly(engine: Engine, first: str = "bad") -> int:
    """A reward that is written down and cannot be learned from, with neighbors in the same commit; where it began."""
    engine.submit(
        [Decide("home", "v0", first), Decide("home", "v1", f"{first} too"), Decide("good", "g0", f"{first} g")]
    )
    position = engine.experiment("home").position
    FAULT.put("learn", ArithmeticError("cannot"))
    requests = [
        Reward(f"{first} g", 0.5),
        Reward(first, BAD),
        Decide("good", "g1"),
        Reward(f"{first} too", 0.25),
        Decide("home", "v2", f"{first} three"),
    ]
    answers = engine.submit(requests)
    assert [type(answer) for answer in answers] == [Outcome, Outcome, Receipt, Outcome, Receipt]
    assert {answer.outcome for answer in answers if isinstance(answer, Outcome)} == {"applied"}
    return position


def test_a_failure_to_learn_keeps_the_reward_and_affects_one_experiment(engine: Engine, path: Path) -> None:
    before = engine.experiment("good")
    position = learned_badly(engine)
    good, home = engine.experiment("good"), engine.experiment("home")
    assert (good.rewards, good.decisions) == (before.rewards + 1, before.decisions + 2)
    assert good.unhealthy is None
    last = position + 3
    assert home.unhealthy == f"learning from events {position + 1} to {last}: ArithmeticError: cannot"
    assert (home.decisions, home.rewards, home.pending) == (9, 8, 1)
    assert home.pulls == {arm: home.pulls[arm] for arm in ARMS}
    assert home.accounts == {}
    assert home.policy == "faulty"
    assert engine.health()["unhealthy"] == {"home": home.unhealthy}
    for request in (Decide("home", "v0"), Decide("home", "somebody new")):
        (answer,) = engine.submit([request])
        assert isinstance(answer, PolicyFailed)
        assert answer.reason == home.unhealthy
    assert engine.reward("bad", BAD).outcome == "repeated"
    assert engine.reward("bad three", 0.5).outcome == "applied"  # written down, to be learned from later
    assert engine.decide("home", "v0", "bad").id == "bad"  # asked again: the same arm
    served(engine)
    for change in (engine.add_arm, engine.retire_arm):
        with pytest.raises(PolicyFailed):
            change("home", "cyd" if change == engine.add_arm else "ada")
    with pytest.raises(PolicyFailed):
        engine.set_alpha("home", 0.5)
    engine.pause("home")
    engine.resume("home")
    engine.mask_arm("home", "ada")
    engine.unmask_arm("home", "ada")
    engine.erase("home", "v5")
    assert engine.export("home", path.with_name("home.parquet")) == 9
    with pytest.raises(PolicyFailed, match="ArithmeticError"):
        engine.verify()
    engine.close()
    snapshots = execute(path, "select experiment from snapshot")
    assert snapshots == [(1,)]  # a snapshot of what failed would hide it
    with Engine.open(path) as engine:  # still broken, and still alone
        assert engine.experiment("home").unhealthy is not None
        assert (engine.experiment("home").decisions, engine.experiment("home").rewards) == (9, 9)
        served(engine)
        with pytest.raises(PolicyFailed):
            engine.decide("home", "v0")
    FAULT.mend()
    with Engine.open(path) as engine:  # mended: what was written down is learned
        assert engine.experiment("home").unhealthy is None
        earned = 6 * 0.5 + BAD + 0.25 + 0.5
        assert sum(engine.experiment("home").accounts.values()) == pytest.approx(2 + earned)
        engine.decide("home", "v0")
        engine.verify()


def test_a_rollback_repairs_an_experiment(engine: Engine, path: Path) -> None:
    position = learned_badly(engine)
    with pytest.raises(PolicyFailed, match="learning from events"):
        engine.rollback("home", engine.experiment("home").position)  # it cannot be brought there
    engine.rollback("home", position)
    home = engine.experiment("home")
    assert home.unhealthy is None
    assert sum(home.accounts.values()) == 2 + 6 * 0.5
    engine.reward(engine.decide("home", "v0").id, 0.5)
    engine.add_arm("home", "cyd")
    engine.verify()  # what failed on the way is no longer part of anything
    engine.close()
    with Engine.open(path) as engine:
        assert engine.experiment("home").unhealthy is None
        engine.verify()
        restore(address_of(path), address_of(path.with_name("restored.db")))


def test_verify_reports_other_differences_first(engine: Engine, path: Path) -> None:
    learned_badly(engine)
    engine.close()
    execute(path, "update reward set reward = 0.75 where position = (select min(position) from reward)")
    with Engine.open(path, read_only=True) as reader, pytest.raises(Mismatch, match="good"):
        reader.verify()


def test_a_backup_with_a_failing_policy_can_be_restored(
    engine: Engine, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    learned_badly(engine)
    n_events = engine.backup(path.with_name("copy.db"))
    assert restore(path.with_name("copy.db"), address_of(path.with_name("restored.db"))) == n_events
    assert "home cannot be verified" in caplog.text
    with Engine.open(path.with_name("restored.db")) as restored:
        served(restored)


def test_overdue_decisions_without_a_policy_are_settled(path: Path) -> None:
    now = 1_800_000_000.0
    engine = Engine(open_store(path), seed=1, clock=lambda: int(now * 1e9))
    for name, policy in (("good", "alpha-fair-bandit"), ("home", "faulty"), ("all", "alpha-fair")):
        engine.create(name, arms=ARMS, policy=policy, reward_wait=60, default_reward=BAD)
        for k in range(5):
            engine.decide(name, "v", f"{name} {k}")
    FAULT.put("learn", ArithmeticError("cannot"))
    now += 61
    assert engine.expire() == 15
    assert engine.experiment("home").unhealthy is not None
    for k in range(5):  # one by one, without a policy
        with pytest.raises(PolicyFailed):
            engine.decide("home", "v")
        engine.decide("good", "v", f"again {k}")
    now += 61
    assert engine.expire() == 5
    assert engine.experiment("home").defaulted == 5
    assert engine.reward("home 1", 0.5).outcome == "expired"
    assert engine.experiment("good").defaulted == 10
    engine.close()
    FAULT.mend()
    with Engine.open(path) as engine:
        assert engine.experiment("home").unhealthy is None
        assert sum(engine.experiment("home").accounts.values()) == pytest.approx(2 + 5 * BAD)
        engine.verify()


def test_reopening_the_file_ends_a_temporary_failure(engine: Engine, path: Path) -> None:
    learned_badly(engine)
    FAULT.mend()
    make_stale(engine, "home")  # everything is folded anew
    assert engine.experiment("home").unhealthy is None
    engine.verify()


# changing


@pytest.mark.parametrize(("where", "change"), [("grow", "add_arm"), ("retire", "retire_arm")])
def test_a_change_that_fails_is_refused_and_changes_nothing(
    engine: Engine, path: Path, where: str, change: str
) -> None:
    before, position = engine.experiment("home"), engine.position
    FAULT.put(where, ArithmeticError("cannot"))
    with pytest.raises(PolicyFailed, match="ArithmeticError: cannot"):
        getattr(engine, change)("home", "cyd" if change == "add_arm" else "ada")
    assert engine.experiment("home") == before
    assert engine.position == position
    assert engine.health()["ready"]
    FAULT.mend()
    getattr(engine, change)("home", "cyd" if change == "add_arm" else "ada")
    engine.verify()
    engine.close()
    FAULT.put(where, ArithmeticError("cannot"))
    execute(path, "delete from snapshot")
    with Engine.open(path) as engine:  # it fails when the change is done again
        unhealthy = engine.experiment("home").unhealthy
        assert unhealthy is not None
        assert "ArithmeticError" in unhealthy
        served(engine)
        assert len(engine.experiment("home").pulls) == (3 if change == "add_arm" else 2)
        assert engine.experiment("home").retired_arms == (() if change == "add_arm" else ("ada",))


def test_a_policy_that_cannot_grow_affects_one_experiment(engine: Engine) -> None:
    FAULT.put("grow", ArithmeticError("cannot"))
    answers = engine.submit([Decide("home", "new"), Decide("good", "new"), Decide("home", "v1")])
    assert [type(answer) for answer in answers] == [PolicyFailed, Receipt, Receipt]
    FAULT.mend()
    engine.decide("home", "new")
    assert engine.experiment("home").unhealthy is None
    engine.verify()


# saving and loading


def test_a_state_that_cannot_be_saved_is_not_written(engine: Engine, path: Path) -> None:
    policy = live_state(engine, "home").experiments["home"].policy
    sound = policy.snapshot()
    broken = {**sound.arrays, "account": sound.arrays["account"] * math.nan}
    FAULT.put("snapshot", State(sound.policy, sound.version, sound.settings, sound.rng, broken))
    engine.close()
    rows = execute(path, "select experiment from snapshot")
    assert rows == [(1,)]
    FAULT.put("snapshot", ArithmeticError("cannot"))
    with Engine.open(path) as engine:
        engine.decide("home", "v0")
        writer_of(engine, "home").take_snapshots(least=1)
        assert engine.experiment("home").unhealthy == "saving its state: ArithmeticError: cannot"
        assert engine.decide("home", "v1").propensity > 0.0  # it can be played all the same
        served(engine)
        FAULT.mend()
        writer_of(engine, "home").take_snapshots(least=1)
        assert engine.experiment("home").unhealthy is None
        engine.verify()


def test_a_rollback_whose_state_cannot_be_saved_is_refused(engine: Engine) -> None:
    position = engine.experiment("home").position
    engine.reward(engine.decide("home", "v0").id, 0.5)
    last = engine.position
    FAULT.put("snapshot", ArithmeticError("cannot"))
    with pytest.raises(PolicyFailed):
        engine.rollback("home", position)
    assert engine.position == last
    assert engine.health()["ready"]


@pytest.mark.parametrize("problem", [ArithmeticError("cannot"), InvalidArgument("state", "sound", 7, "It is damaged.")])
def test_a_state_that_cannot_be_loaded_is_skipped(engine: Engine, path: Path, problem: Exception) -> None:
    before = engine.experiment("home")
    engine.close()
    FAULT.put("restore", problem)
    with Engine.open(path) as engine:
        assert engine.experiment("home") == before


def test_a_policy_that_cannot_be_created_affects_one_experiment(engine: Engine, path: Path) -> None:
    before, good = engine.experiment("home"), engine.experiment("home").position - 2
    engine.decide("home", "v0", "open")
    engine.close()
    POLICIES.pop("faulty")
    with Engine.open(path) as engine:
        home = engine.experiment("home")
        assert home.unhealthy is not None
        assert "policy must be registered in this process; got 'faulty'" in home.unhealthy
        assert (home.policy, home.feedback, home.alpha) == (before.policy, before.feedback, before.alpha)
        assert home.cumulative_rewards == before.cumulative_rewards
        assert (home.arms, home.pulls["ada"] + home.pulls["ben"], home.contexts) == (before.arms, 7, before.contexts)
        assert engine.reward("open", 0.5).outcome == "applied"
        served(engine)
        with pytest.raises(PolicyFailed, match="registered"):
            engine.decide("home", "v0")
        with pytest.raises(PolicyFailed, match="registered"):
            engine.rollback("home", good)
        with pytest.raises(PolicyFailed, match="registered"):
            engine.verify()
        assert engine.export("home", path.with_name("home.csv")) == 7
        assert engine.log("home").rewards.sum() == 3.5
    with Engine.open(path, read_only=True) as reader:
        assert reader.experiments() == ["good", "home"]
    register(Faulty)
    with Engine.open(path) as engine:
        assert engine.experiment("home").unhealthy is None
        assert sum(engine.experiment("home").accounts.values()) == 2 + 3.5
        engine.verify()


def test_full_information_is_known_without_a_policy(path: Path) -> None:
    with Engine.open(path, seed=1) as engine:
        engine.create("all", arms=ARMS, policy="faulty-full")
        engine.decide("all", "v", "a")
    POLICIES.pop("faulty-full")
    with Engine.open(path) as engine:
        assert engine.experiment("all").feedback == "full"
        with pytest.raises(InvalidArgument):
            engine.reward("a", 0.5)
        assert engine.reward("a", {"ada": 0.5, "ben": 0.25}).outcome == "applied"
        assert engine.export("all", path.with_name("all.jsonl")) == 1
        earned = engine.experiment("all").cumulative_rewards
        assert sum(earned.values()) in (0.5, 0.25)
    with Engine.open(path) as engine:
        assert engine.experiment("all").cumulative_rewards == earned


def test_a_policy_that_cannot_report_is_reported(engine: Engine) -> None:
    for gives in (ArithmeticError("cannot"), np.array([math.nan, 1.0]), np.array([1.0]), "nonsense"):
        FAULT.put("report", gives)
        home = engine.experiment("home")
        assert home.unhealthy is not None
        assert home.unhealthy.startswith("reporting")
        assert home.pulls["ada"] + home.pulls["ben"] == home.decisions
        engine.decide("home", "v0")
        FAULT.mend()
        assert engine.experiment("home").unhealthy is None


# nothing that is no number is offered to the disk


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_the_store_refuses_numbers_that_are_not_finite(engine: Engine, bad: float) -> None:
    key, store = key_of(engine, "home"), store_of(engine, "home")
    (head,) = store.heads(key)
    blob = np.array([0.5, bad]).tobytes()
    decided = ("x", 0, 0, 0.5, head.position, 1, 0, None, None, 0, 0)
    for kind, row in (
        (Decided, (*decided[:3], bad, *decided[4:])),
        (Decided, (*decided[:8], blob, 0, 0)),
        (Settled, (3, bad, "client", None, 0)),
        (Settled, (3, None, "client", blob, 0)),
        (Late, (3, bad, None, 0)),
        (Late, (3, None, blob, 0)),
    ):
        if kind is Late and blob in row and np.isnan(bad):  # the slots of a slate without a late reward
            continue
        part = Part(head, store.numbers(), 0)
        part.rows[kind].append((part.next(), key, part.position, *row))
        with pytest.raises(Mismatch, match="not finite"):
            store.commit([part])
    assert store.heads(key) == [head]
    engine.verify()


# over HTTP


def test_over_http(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    with running(path) as service:
        for name, policy in (("good", "alpha-fair-bandit"), ("home", "faulty")):
            assert service.post("", {"name": name, "arms": list(ARMS), "policy": policy}).status_code == 201
        assert service.http.get("/v1/experiments/home").json()["unhealthy"] is None
        assert "unhealthy" not in service.http.get("/ready").json()
        FAULT.put("draw", (0, math.nan))
        answer = service.post("/home/decisions", {"context": "v"})
        assert answer.status_code == 503
        problem = error(answer)
        assert problem["code"] == "policy_failed"
        assert "The policy of home failed: drawing an arm" in problem["message"]
        assert "roll" in problem["repair"]
        items = service.post("/home/decisions/batch", {"items": [{"context": "v"}] * 2}).json()["items"]
        assert [item["error"]["code"] for item in items] == ["policy_failed"] * 2
        assert service.post("/good/decisions", {"context": "v"}).status_code == 200
        unhealthy = service.http.get("/v1/experiments/home").json()["unhealthy"]
        assert unhealthy.startswith("drawing an arm")
        assert service.http.get("/v1/experiments/good").json()["unhealthy"] is None
        ready = service.http.get("/ready")
        assert (ready.status_code, ready.json()["ready"]) == (200, True)
        assert ready.json()["unhealthy"] == {"home": unhealthy}
        metrics = service.http.get("/metrics").text
        assert 'alphafair_unhealthy{experiment="good"} 0.0' in metrics
        assert 'alphafair_unhealthy{experiment="home"} 1.0' in metrics
        assert "alphafair_ready 1.0" in metrics
        FAULT.put("learn", ArithmeticError("cannot"))
        drawn = service.post("/home/decisions", {"context": "v"}).json()
        assert "unhealthy" not in service.http.get("/ready").json()
        position = service.engine.experiment("home").position
        assert service.post("/home/rewards", {"id": drawn["id"], "reward": BAD}).json() == {"outcome": "applied"}
        assert service.post("/home/decisions", {"context": "v"}).status_code == 503
        assert error(service.http.patch("/v1/experiments/home", json={"alpha": 0.5}))["code"] == "policy_failed"
        assert service.post("/good/decisions", {"context": "v"}).status_code == 200
        assert service.http.get("/metrics").status_code == 200
        rolled = service.http.patch("/v1/experiments/home", json={"rollback": position})
        assert rolled.status_code == 200
        assert rolled.json()["unhealthy"] is None
        assert service.post("/home/decisions", {"context": "v"}).status_code == 200


def test_a_service_starts_with_an_unregistered_policy(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    with Engine.open(path) as engine:
        engine.create("home", arms=ARMS, policy="faulty")
        engine.create("good", arms=ARMS)
    POLICIES.pop("faulty")
    with running(path) as service:
        assert list(service.http.get("/ready").json()["unhealthy"]) == ["home"]
        assert service.post("/good/decisions", {"context": "v"}).status_code == 200
        assert service.post("/home/decisions", {"context": "v"}).status_code == 503


def test_a_limited_key_sees_failures_of_its_experiments_only(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    with Engine.open(path) as engine:
        for name in ("home", "shop"):
            engine.create(name, arms=ARMS, policy="faulty")
    POLICIES.pop("faulty")
    some = keys.create(path, "read", "some", experiments=["shop"])
    every = keys.create(path, "read", "every")
    with running(path) as service:

        def unhealthy(key: str | None) -> list[str]:
            headers = {} if key is None else {"authorization": f"Bearer {key}"}
            return list(service.http.get("/ready", headers=headers).json().get("unhealthy", {}))

        assert unhealthy(every) == ["home", "shop"]
        assert unhealthy(some) == ["shop"]
        assert unhealthy(None) == []


# on the command line


def test_commands_name_a_failing_policy_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    with Engine.open(path) as engine:
        for name, policy in (("home", "faulty"), ("good", "alpha-fair-bandit")):
            engine.create(name, arms=ARMS, policy=policy)
            engine.reward(engine.decide(name, "v").id, 0.5)
    POLICIES.pop("faulty")
    address = address_of(path)
    for command, code in (
        (f"verify {address}", 1),
        (f"export {address} --experiment good -o {tmp_path / 'good.csv'}", 0),
        (f"history {address} --experiment good", 0),
        (f"backup {address} {tmp_path / 'copy.db'}", 0),
        (f"restore {tmp_path / 'copy.db'} {address_of(tmp_path / 'restored.db')}", 0),
        (f"erase {address} --experiment home --context v", 0),
    ):
        result = CliRunner().invoke(program, command.split())
        assert result.exit_code == code, result.stderr
        told = [line for line in result.stderr.splitlines() if "policy of home failed while being created" in line]
        is_read = is_postgres() or not command.startswith("backup")  # a file is copied as it is
        assert len(told) == is_read, result.stderr
        assert all(line.startswith("warning: ") for line in told)
        assert "Traceback" not in result.stderr


def test_every_fault_class_is_covered(engine: Engine) -> None:
    """Without a fault they are policies as any other."""
    assert isinstance(live_state(engine, "home").experiments["home"].policy, BasePolicy)
    engine.verify()
