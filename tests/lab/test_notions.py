"""`alphafair notions`: what it plays, its smoke version, and the numbers that are committed."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from alphafair import figures, simulate
from alphafair.cli import app
from alphafair.lab import notions
from alphafair.lab.fairness import MEASURES, Fairness, fairness_of
from alphafair.lab.notions import CONTENDERS, WORLDS, Recorder, World, key, measured
from alphafair.lab.plan import Generated
from tests.smoke import smoke_run

SHORT = Generated("stationary", (("n_rounds", 300), ("n_contexts", 2), ("n_arms", 4)))


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """With pictures in one format only, also while it is in use; test_report.py checks all three."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "SUFFIXES", (".svg",))
        yield smoke_run("notions", tmp_path_factory)


def test_there_are_35_policies_in_4_worlds_with_3_seeds() -> None:
    assert len(CONTENDERS) == len({each.label for each in CONTENDERS}) == len({*map(key, CONTENDERS)}) == 35
    assert [world.title for world in WORLDS] == ["stationary", "ratings", "clicks", "drift"]
    assert sum(len(world.contenders) * world.n_seeds for world in WORLDS) == 420
    assert {*MEASURES} == {*Fairness._fields}


@pytest.mark.parametrize("contender", CONTENDERS, ids=lambda each: each.label)
def test_every_policy_is_made_and_measured(contender: notions.Contender) -> None:
    stream = SHORT.make(0).head(30)  # type: ignore[union-attr]
    found = measured(contender, stream, seed=0)
    assert 0.2 <= found.reward <= 1.0
    assert found.least_probability is not None


def test_recording_changes_nothing() -> None:
    """The same log as that of a whole run, and the probabilities of the arms played are its propensities."""
    stream = SHORT.make(1)
    contender = next(each for each in CONTENDERS if each.label == "rate UCB")
    log = simulate(contender.make(stream, 0.0), stream, seed=1, log=True).log  # type: ignore[arg-type]
    recorder = Recorder(contender.make(stream, 0.0), 300)  # type: ignore[arg-type]
    again = simulate(recorder, stream, seed=1, log=True, compiled=False).log  # type: ignore[arg-type]
    np.testing.assert_array_equal(log.arms, again.arms)
    np.testing.assert_array_equal(recorder.probabilities[np.arange(300), log.arms], log.propensities)
    assert measured(contender, stream, 1) == fairness_of(stream, log.arms, recorder.probabilities)  # type: ignore[arg-type]


def test_one_learner_for_all_contexts_sees_one_context() -> None:
    stream = SHORT.make(0)
    alone = next(each for each in CONTENDERS if each.label == "Fair-Learn, one context")
    one = replace(stream, contexts=np.zeros(300, np.int32), n_contexts=1)  # type: ignore[type-var]
    expected = measured(replace(alone, label="Fair-Learn"), one, 0)  # type: ignore[arg-type]
    assert measured(alone, stream, 0).lapse == expected.lapse  # type: ignore[arg-type]
    assert measured(alone, stream, 0).welfare_1 == expected.welfare_1  # type: ignore[arg-type]


def test_tasks_travel_without_their_rounds() -> None:
    world = next(iter(WORLDS))
    assert isinstance(world, World)
    task = world.tasks(SHORT.make(0))[f"{key(CONTENDERS[0])}-0"]
    sent = pickle.dumps(task)
    assert len(sent) < 40_000
    assert pickle.loads(sent) == task


def test_the_smoke_version(smoke: tuple[Path, str]) -> None:
    folder, printed = smoke
    found = json.loads((folder / "results.json").read_text())
    assert [world["name"] for world in found["worlds"]] == ["stationary", "ratings", "clicks", "drift"]
    for world in found["worlds"]:
        assert [row["label"] for row in world["rows"]] == list(notions.SMOKE_CONTENDERS)
        assert world["title"] in printed
        uniform = world["rows"][0]["measures"]
        assert uniform["envy"] == pytest.approx([0.0, 0.0], abs=1e-12)
        assert uniform["least_probability"] == pytest.approx([1.0, 1.0])
        assert all(lapse <= 1.0 for lapse in world["rows"][2]["measures"]["lapse"])
    page = (folder / "index.html").read_text()
    assert page.count("<svg") >= len(MEASURES) or page.count("<img") >= len(MEASURES)
    assert "alphafair notions --smoke" in page


def files(folder: Path) -> list[Path]:
    """The tables, the figures and the page."""
    return [*(folder / "runs").rglob("*.parquet"), *(folder / "figures").iterdir(), folder / "index.html"]


def test_a_second_run_reads_everything_back(smoke: tuple[Path, str], tmp_path: Path) -> None:
    folder, _ = smoke
    before = {path: path.stat().st_mtime_ns for path in files(folder)}
    words = ["notions", "--smoke", "--json", "--output", str(folder), "--workers", "1"]
    answer = CliRunner().invoke(app, words)
    assert answer.exit_code == 0, answer.output
    assert json.loads(answer.stdout) == json.loads((folder / "results.json").read_text())
    assert {path: path.stat().st_mtime_ns for path in files(folder)} == before


def test_bad_seeds_are_refused() -> None:
    answer = CliRunner().invoke(app, ["notions", "--seeds", "0"])
    assert answer.exit_code != 0
