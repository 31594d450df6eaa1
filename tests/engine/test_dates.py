"""Dates that can be stored can be shown, and an experiment that cannot be shown takes nobody with it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from alphafair import Engine, validate
from alphafair.cli import app
from alphafair.engine import Unavailable, Uncertain
from alphafair.engine.dates import FIRST, LAST, date_of, microseconds
from alphafair.engine.memory import EngineMemory
from alphafair.engine.reports import Reports
from alphafair.engine.state.experiment import Experiment
from alphafair.engine.state.status import status_of
from alphafair.engine.writer import Writer
from alphafair.errors import InvalidArgument
from alphafair.service import keys
from alphafair.service.api.descriptions import Descriptions, NotDescribed
from tests.serving import ARMS, Running, error, running
from tests.stores import address_of, both_stores, execute

pytestmark = [both_stores, pytest.mark.compiled]

EDGES = [
    "9999-12-31T23:59:59-23:59",
    "9999-12-31T23:59:59.999999",
    "9999-12-31T23:59:59.999999+14:00",
    "9999-12-31",
    "9999-12-30T00:00Z",
    "9968-04-21",
    "0001-01-01T00:00:00+14:00",
    "0001-01-01T00:00:00+00:00",
    "0001-01-01T14:00:00+14:00",
    "0001-01-02",
    "1969-12-31T23:59:59.999999",
    "2024-02-29T12:00+05:30",
]
STORED = {"after the last year": LAST + 86_340 * 1_000_000, "before the first": FIRST - 14 * 3600 * 1_000_000}


def test_moments_and_dates_are_the_same() -> None:
    for text in ("0001-01-01", "9999-12-31T23:59:59.999999", "2024-02-29T12:00:00.000001+05:30", "1969-12-31T23:59"):
        date = datetime.fromisoformat(text)
        aware = date if date.tzinfo else date.replace(tzinfo=UTC)
        assert date_of(microseconds(date)) == aware, text
    assert [date_of(at).year for at in (FIRST - 1, -(10**30), LAST + 1, 10**30)] == [1, 1, 9999, 9999]


@pytest.mark.parametrize("period", ["60s", "1d", 1e9])
def test_a_date_that_is_accepted_can_be_shown(path: Path, period: str | float) -> None:
    accepted, refused = [], []

    def attempt(start: str, act: Callable[..., None], *arguments: Any, **named: Any) -> None:
        try:
            act(*arguments, period=period, period_start=start, **named)
            accepted.append(start)
        except InvalidArgument as problem:
            refused.append((start, problem.argument, str(problem)))

    with Engine.open(path, seed=0) as engine:
        engine.create("changed", arms=ARMS)
        for number, start in enumerate(EDGES):
            attempt(start, engine.create, f"new {number}", arms=ARMS)
            attempt(start, engine.set_period, "changed")
        for name in engine.experiments():
            engine.decide(name, "v")
            Reports(engine.writers).overview(name)
            assert len(engine.history(name)) > 0
        kinds = [change.kind for change in engine.history("changed")]
        assert kinds.count("set_period") == len(accepted) // 2
        assert engine.verify() == engine.position
    assert {"0001-01-01T00:00:00+00:00", "0001-01-02", "2024-02-29T12:00+05:30"} <= set(accepted)
    assert {start for start, *_ in refused} >= {EDGES[0], EDGES[1], "0001-01-01T00:00:00+14:00"}
    for _, argument, message in refused:
        assert argument == "period_start"
        assert "begins and ends in the years 1 to 9999" in message
    assert ("9999-12-30T00:00Z" in accepted) == (period != 1e9)


def with_start(path: Path, kind: str, at: int) -> None:
    """Write a start of periods into a ledger, as a version that did not check it would have."""
    ((position, body),) = execute(path, f"select position, body from change where kind = '{kind}'")
    changed = json.dumps(json.loads(body) | {"period_start": at})
    execute(
        path,
        f"update change set body = '{changed}' where position = {position} and kind = '{kind}'",
        "delete from snapshot",
    )


@pytest.mark.parametrize("at", STORED.values(), ids=STORED)
@pytest.mark.parametrize("kind", ["create", "set_period"])
def test_a_ledger_with_a_date_that_does_not_exist_is_readable(path: Path, kind: str, at: int, tmp_path: Path) -> None:
    with Engine.open(path, seed=0) as engine:
        engine.create("mine", arms=ARMS, period="1d")
        engine.set_period("mine", "2d", period_start="2024-01-01")
        receipt = engine.decide("mine", "v")
        engine.reward(receipt.id, 1.0)
    with_start(path, kind, at)
    year = date_of(at).year
    with running(path) as shop:
        get = readers(shop, "mine", receipt.id)
        for address, ask in get.items():
            assert ask().status_code == 200, address
        items = get["history"]().json()["items"]
        (change,) = (each for each in items if each["kind"] == kind)
        assert datetime.fromisoformat(change["details"]["period_start"]).year == year
        (item,) = get["index"]().json()["items"]
        assert item["name"] == "mine"
        if kind == "set_period":
            ends = datetime.fromisoformat(get["state"]().json()["period_ends"])
            assert ends.year == year if year == 9999 else ends > datetime.now(UTC) - timedelta(days=1)
        if kind == "set_period":
            assert shop.http.patch("/v1/experiments/mine", json={"paused": False}).status_code == 200
        engine = shop.engine
        assert engine.verify() == engine.position
        assert engine.export("mine", tmp_path / "log.csv") == 1
    address = str(address_of(path))
    for command in (["verify", address], ["history", address, "-e", "mine"]):
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 0, done.output


def readers(shop: Running, name: str, id: str) -> dict[str, Callable[[], Any]]:
    """All that can be read of an experiment, by a short name."""
    pages = {
        "state": f"/v1/experiments/{name}",
        "history": f"/v1/experiments/{name}/history",
        "log": f"/v1/experiments/{name}/log?format=csv",
        "live": f"/experiments/{name}/live.json",
        "contexts": f"/experiments/{name}/contexts.json",
        "decision": f"/experiments/{name}/decision.json?id={id}",
        "rows": f"/experiments/{name}/log.json",
        "what if": f"/experiments/{name}/what-if.json",
        "index": "/index.json",
        "metrics": "/metrics",
        "ready": "/ready",
    }
    return {short: lambda address=address: shop.http.get(address) for short, address in pages.items()}  # type: ignore[misc]


# experiments that cannot be described


@contextmanager
def indescribable(name: str) -> Iterator[None]:
    def failing(experiment: Experiment, max_contexts: int) -> Any:
        if experiment.name == name:
            raise ValueError("year 10000 is out of range \ud800")
        return status_of(experiment, max_contexts)

    with pytest.MonkeyPatch.context() as patch:
        for module in ("engine", "reports"):
            patch.setattr(f"alphafair.engine.{module}.status_of", failing)
        yield


def test_one_experiment_that_cannot_be_described_takes_nobody_with_it(path: Path) -> None:
    with running(path) as shop:
        for name in ("mine", "other"):
            shop.engine.create(name, arms=ARMS)
        admin, limited = keys.create(path, "admin", "me"), keys.create(path, "read", "you", experiments=["other"])
        shop.service.keyring.refresh()

        def get(address: str, key: str = admin) -> Any:
            return shop.http.get(address, headers={"authorization": f"Bearer {key}"})

        with indescribable("mine"):
            index, page = get("/index.json"), get("/metrics")
            assert (index.status_code, page.status_code) == (200, 200)
            assert [item["name"] for item in index.json()["items"]] == ["other"]
            assert index.json()["left_out"] == ["mine"]
            assert 'alphafair_unhealthy{experiment="mine"} 1.0' in page.text
            assert 'alphafair_unhealthy{experiment="other"} 0.0' in page.text
            assert 'alphafair_decisions_total{experiment="other"}' in page.text
            assert 'alphafair_decisions_total{experiment="mine"}' not in page.text
            ready = get("/ready")
            assert ready.status_code == 200
            assert "describing it failed: ValueError: year 10000" in ready.json()["unhealthy"]["mine"]
            with shop.http.stream("GET", "/events", headers={"authorization": f"Bearer {admin}"}) as answer:
                (data,) = (line for line, _ in zip(_data(answer), range(1), strict=False))
                assert json.loads(data)["left_out"] == ["mine"]
            for address in ("/index.json", "/metrics", "/ready"):
                assert "mine" not in get(address, limited).text
            changed = shop.http.patch(
                "/v1/experiments/mine", json={"alpha": 0.5}, headers={"authorization": f"Bearer {admin}"}
            )
            assert (changed.status_code, error(changed)["code"]) == (504, "uncertain")
            assert "The change was made" in error(changed)["message"]
            for address in ("/v1/experiments/mine", "/experiments/mine/live.json"):
                answer = get(address)
                assert (answer.status_code, error(answer)["code"]) == (503, "not_described")
                assert "'mine' cannot be described: ValueError: year 10000" in error(answer)["message"]
        assert get("/v1/experiments/mine").json()["alpha"] == 0.5
        assert get("/experiments/mine/live.json").status_code == 200
        assert get("/index.json").json()["left_out"] == []
        assert 'alphafair_unhealthy{experiment="mine"} 0.0' in get("/metrics").text
        assert get("/ready").json().get("unhealthy", {}) == {}


def test_a_problem_that_nobody_meets_again_is_forgotten() -> None:
    now = [0.0]
    found = Descriptions(lambda: now[0])
    with pytest.raises(NotDescribed, match="'mine' cannot be described: RuntimeError: a bug"):
        found.of("mine", "live", failing)
    assert found.problems == {"mine": "describing it failed: RuntimeError: a bug"}
    now[0] = 61.0
    assert found.problems == {}


def _data(answer: Any) -> Iterator[str]:
    return (line.removeprefix("data: ") for line in answer.iter_lines() if line.startswith("data: "))


# failures after a commit


def failing(*arguments: Any, **named: Any) -> Any:
    raise RuntimeError("a bug")


def unavailable(*arguments: Any, **named: Any) -> Any:
    raise Unavailable("the disk is gone")


AFTER = {
    "a change": (Experiment, "apply", failing, lambda engine: engine.set_alpha("home", 0.5), "set_alpha"),
    "a period": (EngineMemory, "find_periodic", failing, lambda engine: engine.set_period("home", "1d"), "set_period"),
    "a rollback": (Experiment, "note", failing, lambda engine: engine.rollback("home", 1), "rollback"),
}


@pytest.mark.parametrize(("of", "name", "breaks", "act", "kind"), AFTER.values(), ids=AFTER)
def test_what_fails_after_a_commit_is_uncertain(
    path: Path, of: Any, name: str, breaks: Any, act: Callable[[Engine], None], kind: str
) -> None:
    with Engine.open(path, seed=0) as engine:
        engine.create("home", arms=ARMS)
        engine.decide("home", "v")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(of, name, breaks)
            with pytest.raises(Uncertain, match="the events are written"):
                act(engine)
        assert [change.kind for change in engine.history("home")] == ["create", kind]
        engine.decide("home", "v")
        assert engine.verify() == engine.position


def test_an_erasure_that_cannot_be_completed_is_uncertain(path: Path) -> None:
    with Engine.open(path, seed=0) as engine:
        engine.create("home", arms=ARMS)
        engine.decide("home", "v")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(engine._store, "compact", unavailable)
            with pytest.raises(Uncertain):
                engine.erase("home", "v")
        with pytest.raises(InvalidArgument, match="nothing to erase"):
            engine.erase("home", "v")
        assert engine.verify() == engine.position


def test_a_new_experiment_that_cannot_be_added_is_uncertain(path: Path) -> None:
    with Engine.open(path, seed=0) as engine:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(EngineMemory, "add", failing)
            with pytest.raises(Uncertain):
                engine.create("home", arms=ARMS)
        assert engine.experiments() == ["home"]
        engine.decide("home", "v")


def test_what_fails_before_a_commit_is_not_uncertain(path: Path) -> None:
    with Engine.open(path, seed=0) as engine:
        engine.create("home", arms=ARMS)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Writer, "commit", failing)
            with pytest.raises(RuntimeError, match="a bug"):
                engine.set_alpha("home", 0.5)
        assert len(engine.history("home")) == 1


def test_decisions_are_answered_although_no_snapshot_can_be_made(path: Path) -> None:
    with Engine.open(path, seed=0) as engine:
        engine.create("home", arms=ARMS)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Writer, "take_snapshots", failing)
            assert engine.decide("home", "v").arm in ARMS


def test_an_answer_that_cannot_be_encoded_is_uncertain_if_something_was_changed(path: Path) -> None:
    with running(path) as shop:
        shop.engine.create("home", arms=ARMS)
        encode = shop.service.encode

        def broken(answer: Any) -> bytes:
            return failing() if type(answer).__name__ == "ExperimentAnswer" else encode(answer)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(shop.service, "encode", broken)
            answer = shop.http.patch("/v1/experiments/home", json={"paused": True})
            assert (answer.status_code, error(answer)["code"]) == (504, "uncertain")
            assert shop.http.get("/v1/experiments/home").status_code == 500
        assert shop.http.get("/v1/experiments/home").json()["paused"]


def test_a_new_key_is_answered_although_the_keys_cannot_be_read_again(path: Path) -> None:
    with running(path) as shop:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(shop.service.keyring, "_take", failing)
            made = shop.http.post("/v1/keys", json={"role": "admin", "name": "first"})
        assert made.status_code == 201, made.text
        shop.service.keyring.refresh()
        assert (
            shop.http.get("/index.json", headers={"authorization": f"Bearer {made.json()['key']}"}).status_code == 200
        )


@pytest.mark.parametrize("text", ["\u0663d", "\u0969d", "3\u066b5d", "3\u2003d"])
def test_durations_have_digits_of_ascii(text: str) -> None:
    with pytest.raises(InvalidArgument, match="a number and a unit"):
        validate.duration("period", text)
