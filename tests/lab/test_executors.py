"""Work on any executor: the same bits on threads, on processes and on a Dask cluster, also where workers are killed."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from alphafair import AlphaFairAdaptive, InvalidArgument, Log, Uniform, simulate, simulate_all, streams, tasks
from alphafair.cli import app
from alphafair.errors import WorkerFailed
from alphafair.evaluation import LogFile, evaluate_all, frontier, regret, replay, simulate_model
from alphafair.executors import ProcessPool, connect
from alphafair.lab import runner
from alphafair.tasks import in_order, run_tasks
from tests.clusters import local_cluster
from tests.serving import wait_for
from tests.smoke import smoke_run

KINDS = ("threads", "processes", "dask")


@pytest.fixture(scope="module")
def processes() -> Iterator[ProcessPool]:
    with ProcessPool(2) as pool:
        yield pool


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with local_cluster() as found:
        yield found


@pytest.fixture
def executor(request: pytest.FixtureRequest) -> Iterator[Executor]:
    """The executor of a kind."""
    if request.param == "processes":
        yield request.getfixturevalue("processes")
    elif request.param == "dask":
        with connect(request.getfixturevalue("cluster").scheduler_address) as found:
            yield found
    else:
        with ThreadPoolExecutor(2) as found:
            yield found


every = pytest.mark.parametrize("executor", KINDS, indirect=True)
elsewhere = pytest.mark.parametrize("executor", KINDS[1:], indirect=True)


# Tasks


def add(a: int, b: int) -> int:
    return a + b


def fail() -> int:
    raise InvalidArgument("reward", "at least 0", -1.0, "Correct it.")


def die_once(marker: Path) -> int:
    """Kill the worker, the first time."""
    if not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return os.getpid()


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def size_of(values: np.ndarray, factor: int) -> float:
    return float(values.sum()) * factor


class Counted:
    """A value that records how often it is pickled."""

    def __init__(self, log: Path) -> None:
        self.log = log

    def __reduce__(self) -> Any:
        with self.log.open("a") as file:
            file.write("pickled\n")
        return Counted, (self.log,)


def length(value: Counted, number: int) -> int:
    return number


@every
def test_results_arrive_in_the_order_of_tasks(executor: Executor) -> None:
    assert list(in_order([partial(add, k, 1) for k in range(20)], executor)) == list(range(1, 21))
    assert list(in_order([], executor)) == []
    assert dict(run_tasks({str(k): partial(add, k, k) for k in range(9)}, executor)) == {
        str(k): 2 * k for k in range(9)
    }


@every
def test_an_error_of_a_task_is_raised_as_it_is(executor: Executor) -> None:
    results = in_order([partial(add, 1, 1), fail, partial(add, 2, 2)], executor)
    assert next(results) == 2
    with pytest.raises(InvalidArgument, match=r"reward must be at least 0; got -1.0"):
        next(results)
    with pytest.raises(InvalidArgument, match=r"reward must be at least 0; got -1.0"):
        list(run_tasks({"one": fail}, executor))


@elsewhere
def test_a_shared_value_travels_once(executor: Executor, tmp_path: Path) -> None:
    value = Counted(tmp_path / "log")
    tasks = [partial(length, value, k) for k in range(12)]
    assert list(in_order(tasks, executor, shared=(value,))) == list(range(12))
    first = (tmp_path / "log").read_text().count("pickled")
    assert first <= 6, "Dask moves a result between its two workers, and a process pool writes it once"
    assert list(in_order(tasks, executor)) == list(range(12))
    assert (tmp_path / "log").read_text().count("pickled") >= first + 12, "a value that is not shared travels each time"


@elsewhere
def test_shared_arrays_arrive(executor: Executor) -> None:
    values = np.arange(1000.0)
    tasks = [partial(size_of, values, k) for k in range(5)]
    assert list(in_order(tasks, executor, shared=(values,))) == [k * values.sum() for k in range(5)]


@elsewhere
def test_a_killed_worker_costs_its_tasks_time_not_the_run(executor: Executor, tmp_path: Path) -> None:
    work: list[Any] = [partial(add, k, 1) for k in range(30)]
    work[7] = partial(die_once, tmp_path / "died")
    found = list(in_order(work, executor))
    assert (tmp_path / "died").exists()
    assert found[7] not in (0, os.getpid())
    assert found[:7] + found[8:] == [k + 1 for k in range(30) if k != 7]


@elsewhere
def test_a_task_that_always_kills_its_worker_is_given_up(executor: Executor) -> None:
    with pytest.raises(WorkerFailed, match=r"killed 4 times in a row|gave up a task whose workers died"):
        list(in_order([die], executor))
    assert list(in_order([partial(add, 1, 2)], executor)) == [3], "other tasks still run"


def test_a_plain_process_pool_does_not_survive_and_says_what_does() -> None:
    with (
        ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool,
        pytest.raises(WorkerFailed, match=r"Pass alphafair.executors.ProcessPool"),
    ):
        list(in_order([die], pool))


ORPHANS = """
import os, signal, sys
from alphafair.executors import ProcessPool

if __name__ == "__main__":
    pool = ProcessPool(2)
    print(*{future.result() for future in [pool.submit(os.getpid) for _ in range(8)]}, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_workers_end_with_the_process_that_made_them(tmp_path: Path) -> None:
    psutil = pytest.importorskip("psutil")
    (tmp_path / "script.py").write_text(ORPHANS)
    done = subprocess.run([sys.executable, str(tmp_path / "script.py")], capture_output=True, text=True)
    pids = [int(pid) for pid in done.stdout.split()]
    assert pids, done.stderr
    wait_for(lambda: [pid for pid in pids if psutil.pid_exists(pid)], lambda left: not left)


def test_other_code_on_a_worker_is_refused() -> None:
    other = tasks.worker_code().replace("code ", "code 0")
    with pytest.raises(WorkerFailed, match=r"Workers must run alphafair .*code 0.*; got alphafair .* Install the same"):
        tasks.call(other, partial(add, 1, 1))
    with pytest.raises(WorkerFailed, match="Workers must run"):
        tasks.call_packed(other, pickle.dumps(partial(add, 1, 1)))


def test_only_executors_are_executors() -> None:
    with pytest.raises(InvalidArgument, match=r"executor must be a concurrent.futures.Executor; got 2"):
        list(in_order([fail], 2))  # type: ignore[arg-type]


# Addresses


@pytest.mark.parametrize(
    ("address", "options", "words"),
    [
        (
            "tcp://10.0.0.1:8786",
            {},
            "address must be a tls:// address, or one of this machine; got 'tcp://10.0.0.1:8786'",
        ),
        ("tcp://example.org:8786", {}, "Pass tls:// with certificates; or"),
        ("tcp://0.0.0.0:8786", {}, "one of this machine"),
        ("tcp://localhost.example.org:1", {}, "one of this machine"),
        ("tls://10.0.0.1:8786", {}, "address must be given with certificates for tls://"),
        (
            "tls://10.0.0.1:8786",
            {"insecure": True},
            "Name them in Dask's configuration, distributed.comm.tls: ca-file,",
        ),
        ("10.0.0.1:8786", {}, "address must be an address such as tcp://127.0.0.1:8786"),
        ("tcp://127.0.0.1", {}, "address must be an address such as"),
        ("http://127.0.0.1:8786", {}, "address must be an address such as"),
        ("tcp://127.0.0.1:port", {}, "address must be an address such as"),
    ],
)
def test_addresses_without_encryption_are_refused_before_anything_is_sent(
    address: str, options: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr("distributed.Client", lambda *_, **__: pytest.fail("connected"))
    with pytest.raises(InvalidArgument) as refused:
        connect(address, **options)
    assert words in str(refused.value)


def test_insecure_and_dask_s_own_certificates_are_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    dask = pytest.importorskip("dask")
    reached: list[tuple[str, Any]] = []

    def reach(address: str, security: Any = None, **_: Any) -> Any:
        reached.append((address, security))
        raise OSError("not there")

    monkeypatch.setattr("distributed.Client", reach)
    for address, options in (("tcp://10.0.0.1:8786", {"insecure": True}), ("tcp://[::1]:8786", {})):
        with pytest.raises(InvalidArgument, match=r"address must be the address of a Dask scheduler; .*\(not there\)"):
            connect(address, **options)
    files = dict.fromkeys(CERTIFICATES, __file__)
    with dask.config.set(files), pytest.raises(InvalidArgument, match="not there"):
        connect("tls://10.0.0.1:8786")
    assert [address for address, _ in reached] == ["tcp://10.0.0.1:8786", "tcp://[::1]:8786", "tls://10.0.0.1:8786"]
    assert reached[2][1].require_encryption


CERTIFICATES = [f"distributed.comm.tls.{name}" for name in ("ca-file", "client.cert", "client.key")]


def certificates(folder: Path) -> tuple[Any, dict[str, str]]:
    """Dask's security with certificates made for a test, and the configuration of a client."""
    from distributed.security import Security

    security, files = Security.temporary(), {}
    for name, content in zip(
        CERTIFICATES, (security.tls_ca_file, security.tls_client_cert, security.tls_client_key), strict=True
    ):
        path = folder / f"{name}.pem"
        path.write_text(content)
        files[name] = str(path)
    return security, files


def test_a_cluster_with_tls_takes_those_with_its_certificates(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    dask = pytest.importorskip("dask")
    security, files = certificates(tmp_path)
    (tmp_path / "other").mkdir()
    _, strangers = certificates(tmp_path / "other")
    with local_cluster(1, security=security) as cluster:
        address = cluster.scheduler_address
        assert address.startswith("tls://127.0.0.1:")
        with dask.config.set(files):
            with connect(address) as executor:
                assert list(in_order([partial(add, 1, 2)], executor)) == [3]
            evaluated = run("evaluate", str(folder), "--policy", "uniform", "--dask", address)
        assert evaluated.exit_code == 0, evaluated.stderr
        with (
            dask.config.set(strangers),
            pytest.raises(InvalidArgument, match="the address of a Dask scheduler"),
        ):
            connect(address)


def test_a_client_listens_on_nothing_but_loopback(cluster: Any) -> None:
    psutil = pytest.importorskip("psutil")
    with connect(cluster.scheduler_address) as executor:
        assert list(in_order([partial(add, 1, 2)], executor)) == [3]
        pids = [os.getpid(), *(child.pid for child in psutil.Process().children(recursive=True))]
        found = [each for pid in pids for each in psutil.Process(pid).net_connections("inet")]
    listening = {each.laddr.ip for each in found if each.status == "LISTEN"}
    assert listening <= {"127.0.0.1"}


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, [*arguments], env={"COLUMNS": "200", "NO_COLOR": "1"})


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--workers", "0"], "--workers must be an integer"),
        (["--workers", "2", "--dask", "tcp://127.0.0.1:1"], "--workers must be left out with --dask; got 2"),
        (["--insecure"], "--insecure must be given with --dask"),
        (["--dask", "tcp://10.1.2.3:8786"], "--dask must be a tls:// address, or one of this machine"),
    ],
)
@pytest.mark.parametrize("command", ["reproduce", "arena", "simulate", "evaluate", "frontier"])
def test_every_command_that_fans_out_has_the_same_options(
    command: str, given: list[str], words: str, tmp_path: Path
) -> None:
    first = [str(tmp_path / "log.csv")] if command in ("evaluate", "frontier") else ["--output", str(tmp_path)]
    (tmp_path / "log.csv").write_text("context,arm,reward,propensity\na,x,1,0.5\n")
    answer = run(command, *first, *given)
    assert answer.exit_code == 2, answer.output
    assert words in answer.stderr
    assert len(answer.stderr.splitlines()) == 1  # no terms of data that are not used


# The same bits


def made_log(n_rounds: int = 6000) -> Log:
    stream = streams.ratings(n_rounds=n_rounds, n_contexts=5, n_arms=4, seed=3)
    log = simulate(Uniform(5, 4, feedback="bandit"), stream, log=True).log
    assert log is not None
    return log


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A log in seven files of different sizes, one without rewards, in two folders; names begin files to leave out."""
    log, rng = made_log(), np.random.default_rng(17)
    frame = pl.DataFrame(
        {
            "context": [f"c{k}" for k in log.contexts],
            "arm": log.arms,
            "reward": np.where(rng.random(len(log.arms)) < 0.9, log.rewards * rng.random(len(log.arms)), np.nan),
            "propensity": log.propensities,
            "user": rng.integers(0, 900, len(log.arms)),
        }
    ).with_columns(pl.col("reward").fill_nan(None))
    home = tmp_path / "logs"
    for number, (start, stop) in enumerate([(0, 1), (1, 900), (900, 901), (901, 3000), (3000, 5500), (5500, 6000)]):
        part = home / f"day={number // 3}"
        part.mkdir(parents=True, exist_ok=True)
        frame[start:stop].write_parquet(part / f"{number}.parquet", row_group_size=300)
    frame[:50].with_columns(reward=pl.lit(None, dtype=pl.Float64)).write_parquet(home / "empty.parquet")
    (home / "_SUCCESS.parquet").write_text("")
    return home


def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many shares of a small log; workers get theirs from this process."""
    monkeypatch.setattr("alphafair.evaluation.log_rows.PIECE", 500)
    monkeypatch.setattr("alphafair.evaluation.log_rows.PART", 800)


@every
def test_a_folder_of_files_is_evaluated_to_the_same_bits(
    executor: Executor, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_parts(monkeypatch)
    options: dict[str, Any] = {"n_replicates": 100}
    policies = {"logged": "logged", "fair": "fair", "even": "uniform"}
    for user in (None, "user"):
        log, read = LogFile(folder, user=user), LogFile(folder, user=user, executor=executor)
        assert len(list(log._shares(800))) >= 4
        alone = evaluate_all(log, policies, 0.9, **options)
        shared = evaluate_all(read, policies, 0.9, **options, executor=executor)
        assert {name: each.as_dict() for name, each in shared.items()} == {
            name: each.as_dict() for name, each in alone.items()
        }
        assert all(shared[name].accounts.tobytes() == alone[name].accounts.tobytes() for name in policies)
    one, other = (frontier(log, [0.0, 0.9, 2.0], **options, executor=each) for each in (None, executor))
    assert one.as_dict() == other.as_dict()
    assert [each.tobytes() for each in one.distributions] == [each.tobytes() for each in other.distributions]
    assert regret(log, **options) == regret(log, **options, executor=executor)


def test_a_folder_is_the_log_of_its_rows(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_parts(monkeypatch)
    log, whole = LogFile(folder), Log.from_table(folder)
    assert (log.n_rounds, log.n_contexts, log.arm_labels) == (whole.n_rounds, whole.n_contexts, whole.arm_labels)
    assert np.concatenate([each.rewards for each in log.decisions()]).tobytes() == whole.rewards.tobytes()
    found, same = (evaluate_all(each, {"a": "logged"}, n_replicates=100)["a"] for each in (log, whole))
    np.testing.assert_allclose(found.accounts, same.accounts, rtol=1e-12)


def test_a_folder_with_a_wrong_file_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_parts(monkeypatch)
    frame = pl.read_parquet(folder / "day=1" / "4.parquet")
    rows = pl.int_range(pl.len()) == 1234
    wrong = frame.with_columns(
        propensity=pl.when(rows).then(2.0).otherwise("propensity"), reward=pl.when(rows).then(1.0).otherwise("reward")
    )
    wrong.write_parquet(folder / "day=1" / "4.parquet")
    with ThreadPoolExecutor(2) as executor, pytest.raises(InvalidArgument, match=r"day=1/4.parquet, row 1234: propens"):
        LogFile(folder, executor=executor)
    frame.rename({"arm": "item"}).write_parquet(folder / "day=1" / "4.parquet")
    with pytest.raises(InvalidArgument, match=r"4.parquet: columns must be those of .*0.parquet"):
        LogFile(folder)
    nothing = folder.parent / "nothing"
    nothing.mkdir()
    with pytest.raises(InvalidArgument, match=r"must be a file, or a folder of Parquet files; got 'a folder'"):
        LogFile(nothing)


@every
def test_logs_in_memory_and_policies_that_learn(executor: Executor, monkeypatch: pytest.MonkeyPatch) -> None:
    small_parts(monkeypatch)
    log, policy = made_log(), AlphaFairAdaptive(5, 4, alpha=0.9)
    one, other = (evaluate_all(log, {"f": "fair"}, n_replicates=100, executor=each)["f"] for each in (None, executor))
    assert one.as_dict() == other.as_dict()
    for learn in (replay, simulate_model):
        alone, shared = (learn(log, policy, n_seeds=3, executor=each) for each in (None, executor))
        assert alone.as_dict() == shared.as_dict()


@every
def test_simulations_of_policies_and_seeds(executor: Executor) -> None:
    stream = streams.ratings(n_rounds=1500, n_contexts=5, n_arms=4, seed=3)
    policies = [AlphaFairAdaptive(5, 4, alpha=0.9), Uniform(5, 4, feedback="bandit")]
    done: list[int] = []
    found = simulate_all(policies, stream, seeds=(4, 5), record_every=100, executor=executor, progress=done.append)
    assert done == [1] * 4
    for policy, traces in zip(policies, found, strict=True):
        for seed, trace in zip((4, 5), traces, strict=True):
            alone = simulate(policy.fresh(), stream, seed=seed, record_every=100)
            assert trace.accounts.tobytes() == alone.accounts.tobytes()


# Commands on a cluster


@pytest.mark.compiled
def test_reproduce_on_a_cluster_whose_worker_is_killed(
    cluster: Any, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle of the run one of two workers is killed; every file of numbers is that of a run without cluster."""
    monkeypatch.setattr("alphafair.pages.save_figure", lambda *_: "")  # pictures take most of the time
    written: list[str] = []
    killed: list[int] = []
    write = runner.atomic_write

    def counting(path: Path, content: Any) -> None:
        write(path, content)
        written.append(path.name)
        if len(written) == 40:
            pids = list(_pids(cluster).values())
            killed.append(pids[0])
            os.kill(pids[0], signal.SIGKILL)

    monkeypatch.setattr(runner, "atomic_write", counting)
    there = run("reproduce", "--smoke", "--dask", cluster.scheduler_address, "--output", str(tmp_path / "there"))
    assert there.exit_code == 0, there.output
    assert len(killed) == 1
    assert len(written) > 80
    monkeypatch.setattr(runner, "atomic_write", write)
    here, _ = smoke_run("reproduce", tmp_path_factory)
    assert (tmp_path / "there/results.json").read_bytes() == (here / "results.json").read_bytes()
    tables = {path.relative_to(here): path.read_bytes() for path in here.rglob("*.parquet")}
    assert len(tables) > 80
    assert {name: (tmp_path / "there" / name).read_bytes() for name in tables} == tables


def _pids(cluster: Any) -> dict[str, int]:
    """The processes of the workers."""
    from distributed import Client

    with Client(cluster.scheduler_address, set_as_default=False) as client:
        return dict(client.run(os.getpid))


def test_commands_about_logs_and_simulate_on_a_cluster(cluster: Any, folder: Path, tmp_path: Path) -> None:
    address = cluster.scheduler_address
    for words in (
        ["evaluate", str(folder), "--replicates", "100", "--json"],
        ["evaluate", str(folder), "--policy", "alpha-fair-adaptive", "--json"],
        ["frontier", str(folder), "--alpha", "0.5", "--replicates", "100", "--json"],
        ["simulate", "--rounds", "500", "--contexts", "3", "--arms", "4", "--json"],
    ):
        answers = [run(*words, *where) for where in (["--workers", "1"], ["--workers", "2"], ["--dask", address])]
        assert [each.exit_code for each in answers] == [0, 0, 0], answers[-1].output
        assert json.loads(answers[0].stdout)
        assert answers[0].stdout == answers[1].stdout == answers[2].stdout


def test_without_dask_the_command_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    answer = run("arena", "--dask", "tcp://127.0.0.1:8786")
    assert answer.exit_code == 2
    assert "A Dask cluster needs distributed: pip install 'alphafair[dask]'" in answer.stderr
