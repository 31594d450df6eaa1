"""Experiments are values, runs resume, and results do not depend on the executor."""

from __future__ import annotations

import ast
import json
import pickle
import shlex
import shutil
import subprocess
import sys
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import FrozenInstanceError, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

import alphafair
from alphafair import figures, streams
from alphafair.child import Child
from alphafair.cli import app
from alphafair.code_version import REPORTED_CODE, code_digest
from alphafair.errors import InvalidArgument
from alphafair.lab import arena, measure, paper, report, reproduction, runner
from alphafair.lab.claims import OPEN
from alphafair.lab.plan import Contender, Experiment, FromRatings, Generated, Plan, Simulation, Task, stream_digest
from alphafair.lab.reproduction import Data, reproduce
from alphafair.lab.results import Results, plain
from alphafair.lab.runner import Run, run_plan
from alphafair.pages import atomic_write
from alphafair.tasks import run_tasks
from alphafair.values import Stream
from tests.made_up_results import made_up_results, value
from tests.smoke import smoke_run

LIMIT = paper.IMPOSSIBILITY[0]


def run(experiment: Experiment, stream: Stream | None, folder: Path, **options: Any) -> Run:
    """One experiment; where its rounds come from ratings, on this stream."""
    streams = {} if stream is None else {experiment.rounds: stream}
    (found,) = run_plan(Plan((experiment,)), folder, streams=streams, **options)
    return found


def digest(experiment: Experiment, stream: Stream) -> str:
    return runner.short_digest([experiment.settings(stream), code_digest(runner.COMPUTING)])


@pytest.fixture(scope="module")
def stream() -> Stream:
    return streams.movielens_small(rows=300)


def test_bands_end_where_metrics_do() -> None:
    """Three seeds that differ: Student's t would take Jain's index below one over the number of arms, and above 1."""
    for metric, seeds, low, high in (
        ("jain_index", [0.06, 0.055, 0.3], 1 / 19, None),
        ("jain_index", [0.9, 0.99, 0.7], None, 1.0),
        ("average_reward", [1.01, 1.02, 1.5], 1.0, None),
        ("alpha_performance", [190.1, 190.2, 195.0], 190.0, None),
    ):
        plain_interval = measure.confidence_interval(np.array(seeds))
        found = measure.metric_interval(metric, np.array(seeds), 19, 0.9)
        assert found.value == plain_interval.value
        assert found.low == (pytest.approx(low) if low is not None else plain_interval.low)
        assert found.high == (pytest.approx(high) if high is not None else plain_interval.high)
        assert low is None or plain_interval.low < low
        assert high is None or plain_interval.high > high
    regret = measure.metric_interval("standard_regret", np.array([1.0, -5.0, 3.0]), 19, 0.9)
    assert regret == measure.confidence_interval(np.array([1.0, -5.0, 3.0]))


@pytest.mark.compiled
def test_no_band_of_jains_index_leaves_its_range(tmp_path: Path) -> None:
    """Two seeds of one round each: the wildest bands there are, in every result that has them."""
    stream = streams.ratings(n_rounds=8, n_contexts=1, n_arms=4, seed=0)
    plan = replace(paper.BANDIT_FEEDBACK, n_seeds=2)
    found = run(plan, stream, tmp_path)
    outcomes = measure.over_time(found, measure.samples_of(found))["contenders"].values()
    cut = 0
    for each in outcomes:
        assert ((each.jain_index.low >= 0.25) & (each.jain_index.high <= 1.0)).all()
        cut += int(((each.jain_index.low == 0.25) | (each.jain_index.high == 1.0)).any())
    assert cut > 0


def test_experiments_are_values(stream: Stream) -> None:
    a = paper.FULL_INFORMATION
    assert a == replace(a)
    assert hash(a) == hash(replace(a))
    assert "alpha-fair" in repr(a)
    with pytest.raises(FrozenInstanceError):
        a.name = "Z"  # type: ignore[misc]
    here = digest(a, stream)
    assert here == digest(replace(a), stream)
    others = (digest(a, stream.head(100)), digest(a.smoke(), stream), digest(replace(a, n_seeds=31), stream))
    assert len({here, *others}) == 4
    assert all(each.n_seeds >= 30 for each in paper.EXPERIMENTS if each not in paper.IMPOSSIBILITY)


def test_a_plan_is_a_value_that_can_be_shrunk() -> None:
    plan = reproduction.PLAN
    assert hash(plan) == hash(Plan(tuple(replace(each) for each in plan)))
    assert "limit-100000" in repr(plan)
    small = plan.smoke()
    assert small != plan
    assert small.smoke().experiments[:8] == small.experiments[:8]
    dropped = {each.name for each in plan} - {each.name for each in small}
    assert dropped == {"limit-10000", "limit-100000"}
    assert all(each.n_seeds <= 4 and len(each.alphas) <= 4 for each in small)
    assert not [each for each in small if isinstance(each.rounds, Generated) and not each.rounds.seeded]


def test_synthetic_instances_are_values_too() -> None:
    assert replace(LIMIT) == LIMIT
    assert len({digest(each, streams.impossibility(1)) for each in paper.IMPOSSIBILITY}) == 5
    toy, again, other = (
        digest(each, each.rounds.make(0))
        for each in (paper.TOY, paper.TOY, paper.TOY.smoke())  # type: ignore[union-attr]
    )
    assert toy == again != other
    coins = {tuple(streams.impossibility(1, seed=seed).rewards(1)) for seed in range(LIMIT.n_seeds)}
    assert len(coins) == 2, "both outcomes of the coin must be among the seeds"
    assert paper.TOY.n_seeds >= 30


def test_one_seed_where_nothing_is_random(stream: Stream, tmp_path: Path) -> None:
    experiment = replace(paper.FULL_INFORMATION.smoke(), contenders=(paper.UNIFORM, paper.UNIFORM_BANDIT))
    tables = run(experiment, stream, tmp_path).tables
    seeds = [tables[f"{contender.key}-0.9"]["seed"].n_unique() for contender in experiment.contenders]
    assert seeds == [1, 3]


def test_the_papers_settings(stream: Stream) -> None:
    hedge = paper.HEDGE.make(stream, 0.9)
    assert hedge.settings == {"horizon": None, "learning_rate": np.sqrt(np.log(19) / stream.n_rounds)}
    floor = paper.FAIR_CB.make(stream, 0.9)
    assert floor.settings["pull_share"] == 1 / 38
    assert floor.settings["horizon"] == stream.n_rounds
    assert sum(floor.settings["context_weights"]) == pytest.approx(1.0)
    assert len(paper.PRICE_OF_FAIRNESS.alphas) == 100
    assert paper.PRICE_OF_FAIRNESS.rounds == FromRatings(rows=None, min_ratings=5000, reward_floor=0.2)


def test_plans_name_the_second_side(stream: Stream) -> None:
    sides = (("feedback", "full"), ("context_weight", 0.25), ("context_share", 0.6))
    policy: Any = Contender("fair to contexts", "alpha-fair-adaptive", sides).make(stream, 1.0)
    assert (policy.context_weight, policy.context_share, policy.context_weights) == (0.25, 0.6, None)
    assert policy.context_share_bound > 0.6
    with pytest.raises(InvalidArgument, match="context_share must be a number in"):
        Contender("wrong", "alpha-fair-adaptive", (("context_share", 1.0),)).make(stream, 1.0)


class Counting(Executor):
    """Runs tasks at once, lists them as they are done, and is interrupted before one too many."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.done: list[Task] = []

    def submit(self, task: Any, /, *arguments: Any, **options: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            if len(self.done) == self.most:
                raise KeyboardInterrupt
            future.set_result(task(*arguments))
            self.done.append(task)
        except BaseException as problem:
            future.set_exception(problem)
        return future


SMALL = [*(each.smoke() for each in paper.EXPERIMENTS[:9]), LIMIT, arena.SHORT.experiments[-1].smoke()]


@pytest.mark.parametrize("experiment", SMALL, ids=lambda each: each.name)
def test_an_interrupted_run_continues_and_a_second_run_reuses_everything(
    experiment: Experiment, stream: Stream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = stream if isinstance(experiment.rounds, FromRatings) else None
    asked: list[str] = []
    told: list[int] = []
    monkeypatch.setattr(runner, "compile_plan", lambda plan, **options: asked.append("compiled"))
    with pytest.raises(KeyboardInterrupt):
        run(experiment, given, tmp_path, executor=Counting(2))
    assert len(list(tmp_path.glob("*/*.parquet"))) == 2

    def progress(title: str, total: int) -> Any:
        asked.append(f"{title}: {total}")
        return told.append

    asked.clear()
    rest = Counting(1000)
    found = run(experiment, given, tmp_path, executor=rest, progress=progress)
    n_tasks = len(found.tables)
    assert asked == ["compiled", f"{experiment.title}: {n_tasks}"]
    assert (len(rest.done), told) == (n_tasks - 2, [2] + [1] * (n_tasks - 2))
    kept = run(experiment, given, tmp_path, executor=Counting(0))
    assert [*found.tables] == [*kept.tables]
    assert all(kept.tables[name].equals(found.tables[name]) for name in found.tables)
    assert len(asked) == 2
    folder = tmp_path / f"{experiment.name}-{found.digest}"
    settings = json.loads((folder / "experiment.json").read_text())
    assert settings == json.loads(json.dumps(experiment.settings(found.stream)))
    run(experiment, given, tmp_path / "other", executor=ThreadPoolExecutor(2))
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert files == {path.name: path.read_bytes() for path in (tmp_path / "other" / folder.name).iterdir()}
    assert len(files) == n_tasks + 1


@pytest.mark.compiled
def test_results_are_the_same_in_threads_and_in_processes(stream: Stream, tmp_path: Path) -> None:
    """Tasks are picklable values; every table is the same to the last byte, and progress counts tasks."""
    experiments = (paper.SIGN.smoke(), LIMIT, arena.SHORT.experiments[-1].smoke())
    plan, given = Plan(experiments), {paper.SIGN.smoke().rounds: stream}
    for task in paper.SIGN.smoke().tasks(stream).values():
        assert pickle.loads(pickle.dumps(task)) == task
    n_compiled, found = len(runner.compile_tasks(plan)), []
    processes = ProcessPoolExecutor(2, mp_context=get_context("spawn"))
    for number, executor in enumerate((ThreadPoolExecutor(1), ThreadPoolExecutor(3), processes)):
        told: list[int] = []
        folder, options = tmp_path / str(number), {"streams": given, "progress": lambda *_, told=told: told.append}
        with executor:
            assert len([*run_plan(plan, folder, executor=executor, **options)]) == len(experiments)
        files = [*folder.glob("*/*.parquet")]
        assert sum(told) == len(files) + n_compiled
        found.append({path.relative_to(folder): path.read_bytes() for path in files})
    assert found[0] == found[1] == found[2]


def test_an_error_in_a_task_is_raised_after_finished_results_are_kept(stream: Stream) -> None:
    def fail() -> int:
        raise ValueError("no")

    done = []

    def collect() -> None:
        with ThreadPoolExecutor(1) as pool:
            done.extend(run_tasks({"one": lambda: 1, "two": fail}, pool))

    with pytest.raises(ValueError, match="no"):
        collect()
    assert done == [("one", 1)]


def test_a_table_that_cannot_be_read_is_made_again(stream: Stream, tmp_path: Path) -> None:
    experiment = paper.FULL_INFORMATION.smoke()
    run(experiment, stream, tmp_path)
    (folder,) = tmp_path.iterdir()
    files = {path: path.read_bytes() for path in folder.iterdir()}
    cut, empty, noise, *_ = (path for path in sorted(files) if path.suffix == ".parquet")
    cut.write_bytes(files[cut][:-100])
    empty.write_bytes(b"")
    noise.write_bytes(bytes(reversed(files[noise])))
    (folder / "experiment.json").write_text("{")
    executor = Counting(3)
    run(experiment, stream, tmp_path, executor=executor)
    assert len(executor.done) == 3
    assert {path: path.read_bytes() for path in folder.iterdir()} == files


def test_rounds_are_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of every seed once, though the first are read for the digest, and of ratings once for all experiments."""
    made: list[int] = []
    make = Generated.make
    monkeypatch.setattr(Generated, "make", lambda self, seed: made.append(seed) or make(self, seed))
    monkeypatch.setattr(runner, "compile_plan", lambda plan, **options: None)
    run(LIMIT, None, tmp_path)
    assert sorted(made) == [0, 1, 2, 3]
    plan, rounds = reproduction.fit(reproduction.PLAN.smoke(), *Data().smoke().read())
    assert len(rounds) == 3
    assert {each.rounds for each in plan if isinstance(each.rounds, FromRatings)} == set(rounds)


def test_an_interrupted_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "page.html"
    atomic_write(path, "old")

    def half(part: Path, content: bytes) -> int:
        part.write_text(content[: len(content) // 2].decode())
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "write_bytes", half)
    with pytest.raises(KeyboardInterrupt):
        atomic_write(path, "new and long")
    assert [(found, found.read_text()) for found in tmp_path.iterdir()] == [(path, "old")]


def test_results_json_exists_only_beside_a_complete_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*arguments: Any, **values: Any) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(report, "report_page", lambda *arguments: None)
    monkeypatch.setattr(report, "save_figure", lambda *arguments: "")
    monkeypatch.setattr(figures, "SUFFIXES", ())
    monkeypatch.setattr(report, "render", lambda *arguments, **values: "a page")
    results = value(made_up_results())
    report.write_report(results, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"figures", "index.html", "results.json"}
    monkeypatch.setattr(report, "render", stopped)
    report.write_report(results, tmp_path)  # all of it is there
    with pytest.raises(KeyboardInterrupt):
        report.write_report(replace(results, command="another"), tmp_path)
    assert not (tmp_path / "results.json").exists()


def test_uniform_play_in_closed_form(stream: Stream, tmp_path: Path) -> None:
    experiment = replace(paper.FULL_INFORMATION.smoke(), contenders=(paper.UNIFORM,))
    rewards, _ = measure.simulated(run(experiment, stream, tmp_path), paper.UNIFORM, 0.9)
    np.testing.assert_allclose(measure.uniform_accounts(stream), rewards[0, -1], rtol=1e-12)


def test_records_are_where_simulate_puts_them(stream: Stream, tmp_path: Path) -> None:
    tables = run(replace(paper.READINGS.smoke(), n_records=7), stream, tmp_path).tables
    assert all(table["round"].equals(tables["optimum-0.9"]["round"]) for table in tables.values())
    trace, met, policy = Simulation(paper.ALPHA_FAIR.make(stream, 0.9), stream, 0, record_every=43)()
    assert tables["optimum-0.9"]["round"].to_list() == trace.rounds.tolist()
    assert met is stream
    assert np.array_equal(policy.accounts, trace.final)


@pytest.fixture
def one_format(monkeypatch: pytest.MonkeyPatch) -> None:
    """Save every figure in one format only; test_report.py checks all three."""
    monkeypatch.setattr(figures, "SUFFIXES", (".svg",))


@pytest.mark.usefixtures("one_format")
def test_reproduce_smoke(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice: the second run computes nothing; from tables of other processes the same bytes; no data set is needed."""
    runs = smoke_run("reproduce", tmp_path_factory)[0] / "runs"
    for module in (reproduction, sys.modules["alphafair.data.movielens"]):
        monkeypatch.delattr(module, "read_movielens_small")
    told: dict[str, int] = {}

    def progress(title: str, total: int) -> Any:
        return lambda done: told.update({title: told.get(title, 0) + done})

    made = reproduce(Data(), tmp_path, smoke=True, progress=progress)
    first = {path.relative_to(tmp_path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert told["Full information"] == len(paper.FULL_INFORMATION.contenders) + 1
    assert told["Compiling"] == len(runner.compile_tasks(reproduction.PLAN.smoke()))
    found = json.loads((tmp_path / "results.json").read_text())
    assert found == plain(made) == plain(reproduction.measure_all(Data(), tmp_path / "runs", smoke=True))
    claimed = {"A", "B", "C", "floor_sweep", "impossibility", "sign", "readings"}
    assert set(found["experiments"]) == {*claimed, "step", "delta", "arena"}
    assert {claim["experiment"] for claim in found["claims"]} == claimed
    verdicts = {claim["id"]: claim["verdict"] for claim in found["claims"]}
    assert (verdicts["A7"], verdicts["S2"]) == ("holds", "not decided"), "three seeds leave a small difference open"
    assert found["data"]["stand_in"] is True
    section = found["experiments"]["A"]
    for contender in section["contenders"].values():
        assert len(contender["jain_index"]["value"]) == len(section["rounds"])
    assert section["contenders"]["uniform"]["standard_regret"]["value"][-1] > 0.0
    assert section["contenders"]["uniform"]["gap_closed"]["value"] == pytest.approx(0.0, abs=1e-9)
    values, gaps = section["optimum"]["values"], section["optimum"]["gaps"]
    assert all(gap <= 1e-9 * value for value, gap in zip(values, gaps, strict=True))
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.p*")}
    told.clear()
    reproduce(Data(), tmp_path, smoke=True, progress=progress)
    assert "Compiling" not in told
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.p*")} == before, "something was made again"
    other = tmp_path / "other"
    shutil.copytree(runs, other / "runs")
    reproduce(Data(), other, smoke=True, executor=ThreadPoolExecutor(1))
    second = {path.relative_to(other): path.read_bytes() for path in other.rglob("*") if path.is_file()}
    assert first.keys() == second.keys()
    assert [str(name) for name in first if first[name] != second[name]] == []


LATE = """
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from numba.core.dispatcher import Dispatcher
from alphafair.lab import runner
from alphafair.lab.reproduction import PLAN, Data, measure_all

runner.compile_plan(PLAN.smoke(), workers=1)
late, compile = [], Dispatcher.compile
Dispatcher.compile = lambda self, signature: late.append(self.py_func.__name__) or compile(self, signature)
runner.compile_plan = lambda plan, **options: None
measure_all(Data(), Path(sys.argv[1]), smoke=True, executor=ThreadPoolExecutor(1))
print(late)
"""


@pytest.mark.compiled
def test_experiments_find_everything_compiled(tmp_path: Path) -> None:
    """In a process of its own, where no other test has used a kernel before."""
    command = [sys.executable, "-c", LATE, str(tmp_path)]
    assert subprocess.run(command, capture_output=True, encoding="utf-8", check=True).stdout == "[]\n"


def test_helper_processes_that_fail_do_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[Task]] = []
    plan = Plan(tuple(each.smoke() for each in (paper.FULL_INFORMATION, paper.SIGN)))

    def failing(kind: str, job: bytes, *, nice: int) -> Child:
        assert (kind, nice) == ("plan", 0)
        started.append(pickle.loads(job))
        pipe = subprocess.PIPE
        return Child(subprocess.Popen([sys.executable, "-c", "raise SystemExit(1)"], stdout=pipe, stderr=pipe))

    monkeypatch.setattr(runner.Child, "start", failing)
    parts = runner.compile_tasks(plan)
    for workers, helpers in ((2, [parts["fair-cb"], parts["optimum"]]), (1, [])):
        told: list[int] = []
        runner.compile_plan(plan, workers=workers, progress=lambda title, total, told=told: told.append)
        assert ([len(each) for each in started], told) == ([len(each) for each in helpers], [1] * len(parts))
        started.clear()


@pytest.mark.compiled
def test_a_helper_process_compiles_its_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    tasks = runner.compile_tasks(Plan((paper.FULL_INFORMATION,)))["hedge"]
    child = Child.start("plan", pickle.dumps(tasks))
    assert child.result() == b""
    child.close()
    assert len(list(tmp_path.rglob("loops.play*hedge*.nbc"))) == 1


def test_counts_of_25m_are_asserted(stream: Stream) -> None:
    with pytest.raises(ValueError, match=r"contexts, arms and rounds of experiment A must be \(33, 19, 4999\)"):
        reproduction.check_counts("A", stream)
    reproduction.check_counts("B", stream)


FIRST_OF_25M = "1,296,5.0,1147880044"


def small_copy(folder: Path, first: str = FIRST_OF_25M) -> Path:
    """A MovieLens folder of a few users, the first of them with 60 ratings."""
    folder.mkdir(parents=True)
    rows = [first, *(f"1,{k % 3 + 1},4.0,{k}" for k in range(60)), *(f"{k},1,3.0,{k}" for k in range(2, 6))]
    (folder / "ratings.csv").write_text("\n".join(["userId,movieId,rating,timestamp", *rows]) + "\n")
    movies = ["1,a,Drama", "2,b,Comedy|Drama", "3,c,War", "296,d,Crime"]
    (folder / "movies.csv").write_text("\n".join(["movieId,title,genres", *movies]) + "\n")
    return folder


def test_a_data_set_is_known_by_its_first_row(tmp_path: Path) -> None:
    folder = small_copy(tmp_path / "parent" / "ml-25m")
    shutil.make_archive(str(tmp_path / "ml-25m"), "zip", tmp_path / "parent")
    for path in (folder, folder.parent, tmp_path / "ml-25m.zip"):
        assert Data(path).release() == reproduction.MOVIELENS_25M, path
    assert Data(small_copy(tmp_path / "other", "1,1,5.0,1")).release() is None
    assert Data().release() is None


@pytest.mark.parametrize("release", reproduction.RELEASES, ids=lambda release: release.name)
def test_a_part_of_a_data_set_is_recognized(release: reproduction.Release, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reproduction.streams, "first_rating", lambda path: release.first_rating)
    fewer, all_of_it, more = (Data(Path("copy")).facts(release.n_ratings + more, "") for more in (-1, 0, 1))
    assert fewer.part is not None
    assert (fewer.part.of, fewer.part.found) == (release.name, release.n_ratings - 1)
    assert fewer.part.complete == release.n_ratings
    assert (all_of_it.part, more.part) == (None, None)
    stand_ins = [fewer.stand_in, all_of_it.stand_in, more.stand_in]
    assert stand_ins == [True, release != reproduction.MOVIELENS_25M, True]


def test_the_counts_of_the_paper_are_checked_for_complete_data_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """65 of 25 million ratings are a part; if 65 were all of them, they would have to be the paper's."""
    data = Data(small_copy(tmp_path / "ml-25m"))
    monkeypatch.setattr(reproduction, "MOVIELENS_25M", replace(reproduction.MOVIELENS_25M, n_ratings=65))
    monkeypatch.setattr(reproduction, "RELEASES", (reproduction.MOVIELENS_25M,))
    with pytest.raises(ValueError, match=r"experiment A must be \(33, 19, 4999\) on MovieLens 25M; got \(5, 4, 65\)"):
        reproduction.measure_all(data, tmp_path / "runs")


@pytest.mark.usefixtures("one_format")
def test_a_part_of_a_data_set_is_marked_in_all_output(tmp_path: Path) -> None:
    """The terminal, results.json and the page: its name, and how many ratings of how many."""
    folder, output = small_copy(tmp_path / "ml-25m"), tmp_path / "report"
    words = ["reproduce", "--smoke", "--workers", "1", "--data", str(folder), "--output", str(output)]
    answer = CliRunner().invoke(app, words, env={"COLUMNS": "200"})
    assert answer.exit_code == 0, answer.output
    assert "A part of MovieLens 25M: 65 of its 25,000,095 ratings were found." in answer.stdout
    found = json.loads((output / "results.json").read_text())
    name = "ml-25m (a part of MovieLens 25M: 65 of 25,000,095 ratings)"
    assert (found["data"]["name"], found["data"]["stand_in"]) == (name, True)
    assert found["data"]["part"] == {"of": "MovieLens 25M", "found": 65, "complete": 25_000_095}
    page = (output / "index.html").read_text()
    assert f"A and B: the first 65 rows of {name}, 65 rounds" in page
    assert "These numbers are from a part of MovieLens 25M: 65 of its 25,000,095 ratings were found." in page
    assert "stands in for MovieLens 25M" not in page


def first_ratings(folder: Path, count: int, genres: int) -> Path:
    """So many ratings by three users of movies with one genre each."""
    folder.mkdir()
    rows = [f"{k % 3},{k % genres},4.0,{k}" for k in range(count)]
    (folder / "ratings.csv").write_text("\n".join(["userId,movieId,rating,timestamp", *rows]) + "\n")
    movies = [f"{k},title,genre {k}" for k in range(genres)]
    (folder / "movies.csv").write_text("\n".join(["movieId,title,genres", *movies]) + "\n")
    return folder


@pytest.mark.parametrize(("count", "genres"), [(2, 19), (20, 2), (20, 19), (200, 2), (200, 19)])
def test_too_few_ratings_decide_nothing(count: int, genres: int, tmp_path: Path) -> None:
    """Two genres and three users need 100 rounds, nineteen need 285: only 200 ratings of the former decide anything."""
    data = Data(first_ratings(tmp_path / "ratings", count, genres))
    found = reproduction.measure_all(data, tmp_path / "runs", smoke=True, executor=ThreadPoolExecutor(1))
    verdicts = {claim.id: claim.verdict for claim in found.claims if claim.data == found.data.name}
    assert len(verdicts) == 18
    assert (set(verdicts.values()) == {OPEN}) == ((count, genres) != (200, 2))


@pytest.mark.usefixtures("one_format")
@pytest.mark.parametrize("count", [1, 2])
def test_one_rating_gives_a_report(count: int, tmp_path: Path) -> None:
    data = Data(first_ratings(tmp_path / "ratings", count, 2))
    found = reproduce(data, tmp_path / "report", smoke=True, executor=ThreadPoolExecutor(1))
    assert {claim.verdict for claim in found.claims if claim.data == "ratings"} == {OPEN}
    page = (tmp_path / "report" / "index.html").read_text(encoding="utf-8")
    for names in ("A and B", "C"):
        assert f"No claim about the ratings of {names} is decided: too few rounds to decide: {count}, where" in page
    assert len(page) > 100_000


def test_equal_rewards_of_all_arms_decide_nothing(tmp_path: Path) -> None:
    folder = first_ratings(tmp_path / "ratings", 200, 3)
    movies = [f"{k},title,one|two|three" for k in range(3)]
    (folder / "movies.csv").write_text("\n".join(["movieId,title,genres", *movies]) + "\n")
    found = reproduction.measure_all(Data(folder), tmp_path / "runs", smoke=True, executor=ThreadPoolExecutor(1))
    about = [claim for claim in found.claims if claim.data == "ratings"]
    assert {claim.verdict for claim in about} == {OPEN}
    assert {claim.measured.rpartition("; ")[2] for claim in about} == {
        "the optimum is uniform play: nothing to learn",
        "\u03b1 changes nothing here",
    }


def test_fewer_ratings_are_used_if_no_user_has_5000(tmp_path: Path) -> None:
    small, tiny = (Data(small_copy(tmp_path / name)) for name in ("small", "tiny"))
    ratings = (tmp_path / "tiny" / "ratings.csv").read_text().splitlines(keepends=True)
    (tmp_path / "tiny" / "ratings.csv").write_text("".join(ratings[:40]))
    for source, expected in ((small, (50, 1, 61)), (tiny, (None, 1, 39)), (Data(), (500, 43, 40_034))):
        plan, rounds = reproduction.fit(Plan((paper.PRICE_OF_FAIRNESS,)), *source.read())
        ((fitted, stream),) = rounds.items()
        assert plan.experiments[0].rounds == fitted
        assert isinstance(fitted, FromRatings)
        assert (fitted.min_ratings, stream.n_contexts, stream.n_rounds) == expected


def test_the_command_can_be_pasted_whatever_the_folder_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, str]] = []

    def written(data: Data, folder: Path, *, command: str, **options: Any) -> Results:
        asked.append((data.name, command))
        return value(made_up_results())

    monkeypatch.setattr(reproduction, "reproduce", written)
    home = tmp_path / "my shop"
    home.mkdir()
    monkeypatch.chdir(home)
    for path in (str(home), "."):
        answer = CliRunner().invoke(app, ["reproduce", "--smoke", "--data", path, "--output", str(tmp_path / "out")])
        assert answer.exit_code == 0, answer.output
        name, command = asked.pop()
        assert name == "my shop"
        assert shlex.split(command) == ["alphafair", "reproduce", "--data", path, "--smoke"]


def test_reproduce_refuses_an_output_that_is_not_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        answer = CliRunner().invoke(app, ["reproduce", "--smoke", "--output", str(place)])
        assert answer.exit_code == 2
        assert "--output must be a folder that exists or can be created; got" in answer.stderr


def test_results_of_other_code_are_not_reused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = run(LIMIT, None, tmp_path)
    monkeypatch.setattr(runner, "code_digest", lambda patterns: "another")
    executor = Counting(1000)
    assert run(LIMIT, None, tmp_path, executor=executor).digest != before.digest
    assert len(executor.done) == LIMIT.n_seeds


def test_titles_and_labels_do_not_affect_digests(stream: Stream) -> None:
    """The settings of a contender do."""

    def relabeled(contenders: tuple[Contender, ...]) -> tuple[Contender, ...]:
        return tuple(replace(contender, label=f"{contender.label}!") for contender in contenders)

    for plan in paper.EXPERIMENTS:
        other = replace(plan, title="Another", name="other", contenders=relabeled(plan.contenders))
        assert digest(other, stream) == digest(plan, stream)
        assert [*other.tasks(stream)] == [*plan.tasks(stream)]
        first, *rest = plan.contenders
        set_otherwise = replace(plan, contenders=(replace(first, settings=(("alpha", 0.1),)), *rest))
        assert digest(set_otherwise, stream) != digest(plan, stream)
        assert digest(replace(plan, n_seeds=1), stream) != digest(plan, stream)


PACKAGE = Path(alphafair.__file__).parent
SHOWS = ("figures.py", "formatting.py", "validate.py", "pages.py", "cli/reproduce.py", "templates/page.html")
SHOWS += ("templates/report.css", *(f"lab/{name}.py" for name in ("paper", "claims", "measure", "results", "report")))
PLAYS = ("math/simplex.py", "algorithms/hedge.py", "streams/synthetic.py", "run.py", "policy/base.py", "jit.py")
PLAYS += (
    "offline/interior_point.py",
    "metrics/accounts.py",
    "values/stream.py",
    "lab/plan.py",
    "lab/rivals/ucb.py",
    "notions/lfg.py",
)


def test_code_that_computes_names_results_and_code_that_shows_does_not(tmp_path: Path) -> None:
    """A change of either makes the report again."""
    package = shutil.copytree(PACKAGE, tmp_path / "alphafair", ignore=shutil.ignore_patterns("__pycache__"))

    def digests() -> list[str]:
        return [code_digest.__wrapped__(patterns, package) for patterns in (runner.COMPUTING, REPORTED_CODE)]

    before = digests()
    assert before[0] == code_digest(runner.COMPUTING)
    for name in (*SHOWS, *PLAYS):
        with (package / name).open("a", encoding="utf-8") as file:
            file.write("\n")
        after = digests()
        assert (before[0] != after[0]) == (name in PLAYS), name
        assert before[1] != after[1], name
        before = after


def imported(path: Path) -> set[Path]:
    """The modules of the package that a file imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        for name in names:
            place = PACKAGE.parent.joinpath(*name.split("."))
            found |= {place.with_suffix(".py"), place / "__init__.py"} if name.startswith("alphafair") else set()
    return {file for file in found if file.is_file()}


def test_all_code_that_a_table_depends_on_is_digested() -> None:
    """Whatever the tasks import, directly or not, apart from validation, progress, formatting and where they run."""
    where = ("child.py", "code_version.py", "executors.py", "tasks.py")
    others = ("__init__.py", "progress.py", "validate.py", "formatting.py", "lab/__init__.py")
    aside = {PACKAGE / name for name in (*where, *others)}
    found: set[Path] = set()
    left = {PACKAGE / "lab" / "plan.py"}
    while left:
        found |= left
        left = {each for path in left for each in imported(path)} - found - aside
    digested = {path for pattern in runner.COMPUTING for path in PACKAGE.glob(pattern)}
    assert found <= digested, f"not digested: {sorted(str(path) for path in found - digested)}"


def test_a_report_of_other_code_is_made_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made: list[str] = []
    results = value(made_up_results())
    monkeypatch.setattr(report, "report_page", lambda *arguments: None)
    monkeypatch.setattr(report, "save_figure", lambda *arguments: "")
    monkeypatch.setattr(figures, "SUFFIXES", ())
    monkeypatch.setattr(report, "render", lambda template, **values: made.append(template) or "a page")
    for code in ("one", "one", "another"):
        found = replace(results, versions={"code": code})
        monkeypatch.setattr(reproduction, "measure_all", lambda data, folder, found=found, **options: found)
        reproduce(Data(), tmp_path)
    assert len(made) == 2
    text = (tmp_path / "results.json").read_bytes()
    for damaged in (text[: len(text) // 2], b"", b"\xff", None):  # cut off, empty, not text, not there
        if damaged is None:
            (tmp_path / "results.json").unlink()
        else:
            (tmp_path / "results.json").write_bytes(damaged)
        reproduce(Data(), tmp_path)
        assert (tmp_path / "results.json").read_bytes() == text
    (tmp_path / "index.html").unlink()
    reproduce(Data(), tmp_path)
    assert (tmp_path / "index.html").read_text() == "a page"
    assert len(made) == 7


def test_digest_sees_every_round(stream: Stream) -> None:
    other = Stream(stream.contexts, stream.items, stream.reward_table * 0.99, n_contexts=stream.n_contexts)
    assert len({stream_digest(stream), stream_digest(other), stream_digest(stream.head(100))}) == 3


def test_parts_are_plain_parquet(stream: Stream, tmp_path: Path) -> None:
    run(paper.READINGS.smoke(), stream, tmp_path)
    table = pl.read_parquet(*tmp_path.glob(f"*/{paper.READINGS.contenders[0].key}-0.9.parquet"))
    assert table.columns == ["seed", "round", "accounts", "pulls"]
    assert table["accounts"].to_numpy().shape == table["pulls"].to_numpy().shape == (5, stream.n_arms)
