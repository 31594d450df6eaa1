"""Which arms a decision was drawn among: from the engine's file through its export to what a log tells."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from alphafair import AlphaFairAdaptive, Engine, Log
from alphafair.engine import export
from tests.stores import both_stores, live_state

pytestmark = both_stores

ARMS = ["ada", "ben", "çyd, x", "dot"]


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with Engine.open(tmp_path / "shop.db") as opened:
        yield opened


def history(engine: Engine) -> list[list[str]]:
    """Decisions among ever other arms; for each of them the arms that could be drawn, kept by hand."""
    generator = np.random.default_rng(4)
    live, masked, drawn_among = [*ARMS], set[str](), []

    def some(n: int) -> None:
        for k in range(n):
            could = [arm for arm in live if arm not in masked]
            asked = None
            if k % 3:  # a request that names its stock, with arms that cannot be drawn among it
                stock = [arm for arm in [*ARMS, "eve"] if arm in live and generator.random() < 0.6]
                could = [arm for arm in could if arm in stock]
                asked = stock
                if not could:
                    continue
            receipt = engine.decide("home", f"v{k % 4}", available=asked)
            assert receipt.arm in could
            drawn_among.append(could)
            engine.reward(receipt.id, float(generator.random()))

    engine.create("home", arms=ARMS, policy="alpha-fair-adaptive")
    some(20)
    engine.mask_arm("home", "ben")
    masked.add("ben")
    some(20)
    engine.add_arm("home", "eve")
    live.append("eve")
    some(20)
    engine.set_alpha("home", 0.5)
    engine.unmask_arm("home", "ben")
    masked.clear()
    some(20)
    position = engine.position
    engine.retire_arm("home", "ada")
    live.remove("ada")
    some(20)
    engine.rollback("home", position)  # arms stay as they are
    some(20)
    return drawn_among


def test_the_export_has_the_available_arms_of_every_decision(engine: Engine, tmp_path: Path, monkeypatch: Any) -> None:
    drawn_among = history(engine)
    monkeypatch.setattr(export, "PAGE_ROWS", 17)
    everyone = [*ARMS, "eve"]
    engine.verify()
    for ending in ("parquet", "csv", "jsonl"):
        path = tmp_path / f"log.{ending}"
        assert engine.export("home", path) == len(drawn_among)
        frame = {"parquet": pl.read_parquet, "csv": pl.read_csv, "jsonl": pl.read_ndjson}[ending](path)
        assert frame.columns[-2:] == ["policy_version", "available"]
        told = frame["available"].to_list()
        if ending == "csv":
            told = [None if each is None else json.loads(each) for each in told]
        assert told == [None if could == everyone else could for could in drawn_among]
        log = Log.from_table(path)
        assert log.available is not None
        labels = np.array(log.arm_labels)
        found = [sorted(labels[row], key=everyone.index) for row in log.available.table()]
        assert found == drawn_among
    assert any(could != everyone for could in drawn_among)


def test_the_log_of_the_engine_has_available_arms(engine: Engine) -> None:
    drawn_among = history(engine)
    log = engine.log("home")
    assert log.arm_labels == (*ARMS, "eve")
    assert log.available is not None
    labels = np.array(log.arm_labels)
    assert [labels[row].tolist() for row in log.available.table()] == drawn_among


def test_no_available_arms_are_exported_if_all_always_were(engine: Engine, tmp_path: Path) -> None:
    engine.create("home", arms=ARMS)
    for k in range(10):
        engine.reward(engine.decide("home", f"v{k}", available=ARMS if k % 2 else None).id, 0.5)
    engine.export("home", tmp_path / "log.parquet")
    assert pl.read_parquet(tmp_path / "log.parquet")["available"].null_count() == 10
    log = engine.log("home")
    assert log.available is not None
    assert len(log.available.sets) == 0
    assert (log.available.of_rounds == -1).all()


def test_an_export_has_no_later_events(engine: Engine, tmp_path: Path, monkeypatch: Any) -> None:
    """An arm that is added while an export runs is in no row of it, and its rows are not there."""
    engine.create("home", arms=["ada", "ben"])
    for k in range(30):
        engine.decide("home", f"v{k}")
    read = export.schema

    def then_more(*arguments: Any) -> Any:  # called after the position was read, and before the first row is
        if "cyd" not in engine.experiment("home").arms:
            engine.add_arm("home", "cyd")
            for k in range(30):
                engine.decide("home", f"v{k}")
        return read(*arguments)

    monkeypatch.setattr(export, "schema", then_more)
    monkeypatch.setattr(export, "PAGE_ROWS", 7)
    assert engine.export("home", tmp_path / "log.parquet") == 30
    frame = pl.read_parquet(tmp_path / "log.parquet")
    assert set(frame["arm"]) == {"ada", "ben"}
    assert frame["available"].to_list() == [["ada", "ben"]] * 30


def test_arms_retired_before_the_start_are_not_available(engine: Engine) -> None:
    """A file of an older version may begin with such a policy; new ones refuse it."""
    policy = AlphaFairAdaptive(1, 3)
    policy.retire(1)
    engine.create("home", arms=["ada", "ben", "cyd"])
    experiment = live_state(engine, "home").experiments["home"]
    created = experiment.changes[0]
    experiment.changes[0] = created._replace(state=policy.snapshot().to_bytes())
    among = export.ArmsOverTime(experiment)
    assert among.available([experiment.version], [None]).table().tolist() == [[True, False, True]]
