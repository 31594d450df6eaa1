"""The commands about logs: table, picture, page and JSON, and what they refuse."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from alphafair import Log, tables
from alphafair.cli import _logs
from alphafair.cli.evaluate import read_distributions
from alphafair.evaluation import evaluate, frontier
from tests.cli.test_commands import run
from tests.evaluation.test_evaluate import made_log, world


@pytest.fixture(scope="module")
def log_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    means, visits, logging, _ = world(2, 3, 4)
    log = made_log(np.random.default_rng(2), 3000, means, visits, logging)
    path = tmp_path_factory.mktemp("log") / "log.csv"
    columns = {
        "who": [f"user {c}" for c in log.contexts],
        "arm": log.arms,
        "reward": log.rewards,
        "propensity": log.propensities,
        "id": np.arange(3000),
    }
    pl.DataFrame(columns).write_csv(path)
    return path


def files(folder: Path, name: str) -> bool:
    return all((folder / f"{name}.{kind}").stat().st_size > 0 for kind in ("html", "json", "png", "svg", "pdf"))


def test_evaluate_prints_the_numbers_of_the_library(log_file: Path, tmp_path: Path) -> None:
    shares = pl.DataFrame({"context": [f"user {c}" for c in range(3)], **{str(arm): [0.25] * 3 for arm in range(4)}})
    shares.write_csv(tmp_path / "even.csv")
    options = ["--context", "who", "--output", str(tmp_path), "--replicates", "200", "--alpha", "0.5"]
    chosen = ["--policy", "uniform", "--policy", str(tmp_path / "even.csv"), "--policy", "logged", "--policy", "fair"]
    answer = run("evaluate", str(log_file), *options, *chosen, "--json")
    assert answer.exit_code == 0, answer.output
    numbers = json.loads(answer.stdout)
    assert json.loads((tmp_path / "evaluate.json").read_text()) == numbers
    assert files(tmp_path, "evaluate")
    log = Log.from_table(log_file, context="who")
    expected = evaluate(log, np.full((3, 4), 0.25), alpha=0.5, n_replicates=200).as_dict()
    assert numbers["policies"]["uniform"] == expected
    assert numbers["policies"][str(tmp_path / "even.csv")] == expected
    held_out = frontier(log, [0.5], n_replicates=200).held_out[0]
    assert numbers["policies"]["fair"]["jain_index"]["value"] == pytest.approx(held_out.jain_index.value)
    table = run("evaluate", str(log_file), *options)
    assert table.exit_code == 0, table.output
    assert "trustworthy" in table.stdout
    page = (tmp_path / "evaluate.html").read_text(encoding="utf-8")
    assert "What is assumed" in page
    assert "trustworthy" in page


def test_distributions_from_a_file_are_those_of_their_labels(log_file: Path, tmp_path: Path) -> None:
    """Rows and columns may have any order, which need not be that of the log, and there may be more of them."""
    log = Log.from_table(log_file, context="who")
    assert log.context_labels is not None
    given = np.random.default_rng(0).dirichlet(np.ones(4), 5)
    rows = [4, 2, 0, 3, 1]
    table = {"context": [f"user {c}" for c in rows], **{str(arm): given[rows, arm] for arm in (2, 0, 3, 1)}}
    pl.DataFrame(table).write_csv(tmp_path / "own.csv")
    expected = given[[int(label.split()[1]) for label in log.context_labels]]
    assert np.array_equal(read_distributions(tmp_path / "own.csv", log), expected)


def test_evaluate_lets_policies_learn(log_file: Path, tmp_path: Path) -> None:
    options = ["--context", "who", "--output", str(tmp_path), "--policy", "alpha-fair-adaptive", "--json"]
    answer = run("evaluate", str(log_file), *options)
    assert answer.exit_code == 0, answer.output
    found = json.loads(answer.stdout)["policies"]
    assert list(found) == ["alpha-fair-adaptive, replayed", "alpha-fair-adaptive, on the model"]
    assert found["alpha-fair-adaptive, on the model"]["rounds"] == 3000


def test_a_table_of_long_names_keeps_its_verdicts(log_file: Path, tmp_path: Path) -> None:
    chosen = ["--policy", "uniform", "--policy", "alpha-fair-adaptive", "--replicates", "100"]
    for width in (80, 100, 200):
        told = run("evaluate", str(log_file), "--context", "who", "--output", str(tmp_path), *chosen, columns=width)
        assert told.exit_code == 0, told.output
        lines = told.stdout.splitlines()
        heading = next(line.rstrip() for line in lines if line.startswith("policy"))
        assert heading.endswith("verdict"), heading
        assert "performance" in heading
        row = next(line.rstrip() for line in lines if line.startswith("uniform"))
        assert row.endswith("trustworthy"), row


def test_rewards_that_a_policy_cannot_learn_from_are_to_be_mapped(tmp_path: Path) -> None:
    path = tmp_path / "euros.csv"
    path.write_text("context,arm,reward,propensity\n" + "a,x,10,0.5\na,y,0,0.5\n" * 20)
    refused = run("evaluate", str(path), "--policy", "alpha-fair-adaptive")
    assert refused.exit_code == 2
    assert "log.rewards[0] must be a number in [0, 1]; got 10.0. Map them with alphafair.rescale_rewards" in " ".join(
        refused.stderr.split()
    )


LEARNS = ["--policy", "alpha-fair-adaptive"]


def evaluated(log_file: Path, folder: Path, *options: str) -> tuple[dict[str, Any], str]:
    """The numbers of every policy, and all words of terminal and page."""
    asked = ["--replicates", "100", "--policy", "uniform", "--policy", "fair", *LEARNS]
    answer = run("evaluate", str(log_file), "--context", "who", "--output", str(folder), *asked, *options)
    assert answer.exit_code == 0, answer.output
    words = " ".join(answer.stdout.split()) + (folder / "evaluate.html").read_text(encoding="utf-8")
    return json.loads((folder / "evaluate.json").read_text())["policies"], words


@pytest.fixture
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """They take most of the time."""
    monkeypatch.setattr("alphafair.pages.save_figure", lambda *_: "")


@pytest.mark.usefixtures("no_pictures")
def test_options_of_evaluate_reach_every_policy_that_has_them(log_file: Path, tmp_path: Path) -> None:
    """What is not reached is said, in the terminal and on the page."""
    before, _ = evaluated(log_file, tmp_path)
    every = ["uniform", "fair", "replayed", "on the model"]
    for option, value, reached in (
        ("--seed", "5", every),
        ("--confidence", "0.6", every),
        ("--estimator", "snips", every[:2]),
        ("--replicates", "300", every[:2]),
    ):
        after, words = evaluated(log_file, tmp_path, option, value)
        changed = [name for name in before if before[name]["jain_index"] != after[name]["jain_index"]]
        assert [name.removeprefix("alpha-fair-adaptive, ") for name in changed] == reached
        unreached = f"{option} is for fixed policies: it has no effect on alpha-fair-adaptive."
        assert words.count(unreached) == (2 if len(reached) < len(every) else 0)
        if option == "--confidence":
            assert {each["confidence"] for each in after.values()} == {0.6}
            for wide, narrow in ((before[name]["jain_index"], after[name]["jain_index"]) for name in before):
                assert narrow["high"] - narrow["low"] < wide["high"] - wide["low"]
    floors = evaluated(log_file, tmp_path, "--pull-floor", "0.1")[1]
    assert floors.count("Floors have no effect on uniform: only fair and alpha-fair-adaptive keep them.") == 2


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([*LEARNS, "--estimator", "ips"], "--estimator must be omitted where every policy learns; got 'ips'"),
        ([*LEARNS, "--replicates", "200"], "--replicates must be omitted where every policy learns; got 200"),
        ([*LEARNS, "--user", "id"], "--user must be omitted where every policy learns; got 'id'"),
        (["--policy", "uniform", "--pull-floor", "0.1"], "--pull-floor must be omitted where no policy keeps floors"),
        (["--policy", "scale-free", "--pull-floor", "0.1"], "--pull-floor must be omitted where no policy keeps"),
    ],
)
def test_options_that_reach_no_policy_are_refused(log_file: Path, tmp_path: Path, given: list[str], words: str) -> None:
    answer = run("evaluate", str(log_file), "--context", "who", "--output", str(tmp_path / "out"), *given)
    assert answer.exit_code == 2, answer.output
    assert words in answer.stderr
    assert not (tmp_path / "out").exists()


def test_frontier_answers_both_questions(log_file: Path, tmp_path: Path) -> None:
    options = ["--context", "who", "--output", str(tmp_path), "--replicates", "200", "--alpha", "0", "--alpha", "0.9"]
    answer = run("frontier", str(log_file), *options, "--least-share", "0.1", "--cost", "50")
    assert answer.exit_code == 0, answer.output
    words = " ".join(answer.stdout.split())
    assert "So that no arm gets less than 10.00% of all reward: alpha 0.9" in words
    assert "So that at most 50% of the average reward is lost: alpha 0.9" in words
    assert "The best fixed policy would have been worth at most" in words
    assert files(tmp_path, "frontier")
    numbers = json.loads((tmp_path / "frontier.json").read_text())
    assert numbers["alphas"] == [0.0, 0.9]
    assert len(numbers["curves"]["jain_index"]["low"]) == 2
    impossible = run("frontier", str(log_file), *options, "--least-share", "0.9")
    assert "At no alpha of the curve" in " ".join(impossible.stdout.split())
    for name, value in (("--least-share", "2"), ("--cost", "-1")):
        refused = run("frontier", "no-such-file.csv", name, value)  # before anything is read
        assert refused.exit_code == 2
        assert name in refused.stderr


def test_frontier_along_a_promise(log_file: Path, tmp_path: Path) -> None:
    options = ["--context", "who", "--output", str(tmp_path), "--replicates", "100", "--alpha", "1"]
    promises = ["--context-share", "0.6", "--context-share", "0"]
    answer = run("frontier", str(log_file), *options, *promises)
    assert answer.exit_code == 0, answer.output
    words = " ".join(answer.stdout.split())
    assert "Alpha is 1, and every context gets the share of its best. Values are of policies" in words
    assert "worth at most" not in words
    numbers = json.loads((tmp_path / "frontier.json").read_text())
    assert (numbers["alphas"], numbers["context_shares"], numbers["regret"]) == ([1.0], [0.0, 0.6], None)
    assert len(numbers["curves"]["welfare"]["low"]) == 2
    for given, message in (
        (["--alpha", "1", "--alpha", "2"], "--context-share must be used with one --alpha; got 2. Pass one."),
        (["--alpha", "1", "--cost", "5"], "--context-share must be used without questions about alpha"),
        (["--context-share", "1", "--alpha", "1"], "--context-share must be a number in [0, 1); got 1.0."),
    ):
        refused = run("frontier", "no-such-file.csv", "--context-share", "0.5", *given)
        assert refused.exit_code == 2
        assert message in " ".join(refused.stderr.split())


@pytest.mark.usefixtures("no_pictures")
def test_a_frontier_names_the_optimum_of_its_bands(log_file: Path, tmp_path: Path) -> None:
    options = ["--context", "who", "--output", str(tmp_path), "--replicates", "100", "--alpha", "0.5"]
    for given, whose in (
        ([], "the rewards of all arms in these rounds, including chance"),
        (["--optimum", "expected"], "the expected rewards of all arms in these rounds' contexts"),
    ):
        answer = run("frontier", str(log_file), *options, *given)
        assert answer.exit_code == 0, answer.output
        assert f"in brackets the 95% band of the optimum, for {whose}." in " ".join(answer.stdout.split())
        assert whose.replace("'", "&#39;") in (tmp_path / "frontier.html").read_text(encoding="utf-8")
        assert json.loads((tmp_path / "frontier.json").read_text())["optimum"] == (given or ["", "realized"])[1]
    refused = run("frontier", "no-such-file.csv", "--optimum", "true")
    assert refused.exit_code == 2
    assert "--optimum must be one of 'realized', 'expected'" in refused.stderr


def test_doctor_exits_with_1_if_rows_are_wrong(log_file: Path, tmp_path: Path) -> None:
    sound = run("doctor", str(log_file), "--context", "who", "--id", "id", "--output", str(tmp_path))
    assert sound.exit_code == 0, sound.output
    assert "nothing must be corrected" in sound.stdout
    assert files(tmp_path, "doctor")
    frame = pl.read_csv(log_file).with_columns(propensity=pl.when(pl.col("id") == 7).then(0.0).otherwise("propensity"))
    frame.write_csv(tmp_path / "bad.csv")
    bad = run("doctor", str(tmp_path / "bad.csv"), "--context", "who", "--output", str(tmp_path), "--json")
    assert bad.exit_code == 1
    assert not json.loads(bad.stdout)["sound"]
    assert "bad.csv, line 9" in json.loads(bad.stdout)["findings"][0]["what"]
    lacking = run("doctor", str(log_file))
    assert lacking.exit_code == 1
    assert "(--context)" in lacking.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["evaluate", "LOG"], "Pass the name of a column (--context)"),
        (["evaluate", "LOG", "--context", "who", "--policy", "alpha-fiar"], "Did you mean 'alpha-fair-bandit'"),
        (["evaluate", "LOG", "--context", "who", "--estimator", "magic"], "estimator must be one of"),
        (["evaluate", "LOG", "--context", "who", "--policy", "missing.csv"], "missing.csv must be a file"),
        (["frontier", "none.csv"], "none.csv must be a file"),
        (["frontier", "LOG", "--context", "who", "--alpha", "-1"], "alpha must be a number of at least 0"),
    ],
)
def test_refusals_are_one_line(log_file: Path, tmp_path: Path, arguments: list[str], words: Any) -> None:
    given = [str(log_file) if word == "LOG" else word for word in arguments]
    answer = run(*given, "--output", str(tmp_path / "out"))
    assert answer.exit_code == 2, answer.output
    assert words in answer.stderr
    assert answer.stderr.startswith("error: ")


def left_behind(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize(
    ("words", "numbers_in"),
    [
        (["evaluate", "LOG", "--context", "who", "--policy", "uniform", "--replicates", "100"], "policies"),
        (["frontier", "LOG", "--context", "who", "--alpha", "0.5", "--replicates", "100"], "curves"),
        (["doctor", "LOG", "--context", "who"], "findings"),
        (["simulate", "--rounds", "50", "--policy", "uniform"], "policies"),
        (["offline", "ROUNDS", "--alpha", "0.5"], "optima"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else None,
)
def test_json_writes_no_files_without_a_folder(
    words: list[str], numbers_in: str, log_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing but JSON on standard output, no file anywhere; with --output both."""
    (tmp_path / "rounds.csv").write_text("context,x,y\na,1,0\nb,0,1\n")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    paths = {"LOG": str(log_file), "ROUNDS": str(tmp_path / "rounds.csv")}
    words = [paths.get(word, word) for word in words]
    answer = run(*words, "--json")
    assert answer.exit_code == 0, answer.output
    assert numbers_in in json.loads(answer.stdout)
    assert left_behind(tmp_path / "here") == []
    kept = run(*words, "--json", "--output", "there")
    assert numbers_in in json.loads(kept.stdout)
    assert len(left_behind(tmp_path / "here" / "there")) >= 2


@pytest.mark.parametrize("command", ["doctor", "evaluate", "frontier", "offline"])
@pytest.mark.parametrize("extra", [[], ["--json"]])
def test_commands_write_no_files_without_a_folder(
    log_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, extra: list[str]
) -> None:
    options = {"doctor": [], "evaluate": ["--replicates", "100"], "frontier": ["--replicates", "100", "--alpha", "0.5"]}
    if command == "offline":
        path = tmp_path.parent / "rounds.csv"
        path.write_text("context,x,y\na,1,0\nb,0,1\n")
        given = [str(path)]
    else:
        given = [str(log_file), "--context", "who", *options[command]]
    monkeypatch.chdir(tmp_path)
    answer = run(command, *given, *extra)
    assert answer.exit_code == 0, answer.output
    assert "Page:" not in answer.stdout
    assert [*tmp_path.iterdir()] == []
    if extra:
        json.loads(answer.stdout)


@pytest.mark.parametrize(
    "policies",
    [[], ["logged"], ["logged", "uniform", "fair", "even.csv", "even2.csv"], ["uniform", "alpha-fair-bandit"]],
)
@pytest.mark.parametrize("available", [False, True])
def test_evaluate_reads_its_file_at_most_three_times(
    log_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policies: list[str], available: bool
) -> None:
    """Every pass over a file goes through two methods, which are counted here."""
    path, reads = log_file, []
    if available:
        path = tmp_path / "stock.csv"
        pl.read_csv(log_file).with_columns(available=pl.lit("[0, 1, 2, 3]")).write_csv(path)
    shares = pl.DataFrame({"context": [f"user {c}" for c in range(3)], **{str(arm): [0.25] * 3 for arm in range(4)}})
    for name in ("even.csv", "even2.csv"):
        shares.write_csv(tmp_path / name)
    for method in ("read", "batches"):
        original = getattr(tables.Table, method)

        def counted(table: tables.Table, original: Any = original) -> Any:
            reads.append(table.label)
            return original(table)

        monkeypatch.setattr(tables.Table, method, counted)
    monkeypatch.chdir(tmp_path)
    chosen = [word for name in policies for word in ("--policy", name)]
    answer = run("evaluate", str(path), "--context", "who", "--replicates", "100", *chosen, "--json")
    assert answer.exit_code == 0, answer.output
    assert 1 <= reads.count(str(path)) <= 3


def test_doctor_writes_no_files_without_a_folder(
    log_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = run("doctor", str(log_file), "--context", "who")
    assert answer.exit_code == 0, answer.output
    assert "nothing must be corrected" in answer.stdout
    assert "Page:" not in answer.stdout
    assert left_behind(tmp_path) == []


@pytest.mark.usefixtures("no_pictures")
@pytest.mark.parametrize("alpha", ["1", "inf"])
def test_evaluate_shows_the_welfare_from_alpha_1_on(alpha: str, log_file: Path, tmp_path: Path) -> None:
    given = ["--context", "who", "--replicates", "100", "--policy", "uniform", "--policy", "alpha-fair-adaptive"]
    answer = run("evaluate", str(log_file), *given, "--alpha", alpha, "--output", str(tmp_path))
    assert answer.exit_code == 0, answer.output
    assert "welfare" in answer.stdout
    assert "alpha-performance" not in answer.stdout
    numbers = json.loads((tmp_path / "evaluate.json").read_text())
    assert numbers["alpha"] == ("inf" if alpha == "inf" else 1.0)
    log = Log.from_table(log_file, context="who")
    expected = evaluate(log, np.full((log.n_contexts, log.n_arms), 1.0 / log.n_arms), float(alpha), n_replicates=100)
    found = numbers["policies"]["uniform"]
    assert found["welfare"] == expected.as_dict()["welfare"]
    assert (found["alpha_performance"]["value"] is None) == (alpha == "inf")
    assert numbers["policies"]["alpha-fair-adaptive, on the model"]["welfare"]["value"] > 1.0


def test_frontier_runs_from_0_to_inf(log_file: Path, tmp_path: Path) -> None:
    given = ["--context", "who", "--replicates", "100", "--output", str(tmp_path), "--least-share", "0.2"]
    answer = run("frontier", str(log_file), *given)
    assert answer.exit_code == 0, answer.output
    numbers = json.loads((tmp_path / "frontier.json").read_text())
    assert numbers["alphas"] == [*(k / 10 for k in range(10)), 0.99, 1.0, 2.0, 5.0, "inf"]
    assert numbers["points"][-1]["held_out"]["alpha"] == "inf"
    assert len(numbers["curves"]["welfare"]["value"]) == 15
    assert np.all(np.diff(numbers["curves"]["jain_index"]["value"]) > -0.02)
    alone = run("frontier", str(log_file), *given, "--alpha", "inf")
    assert alone.exit_code == 0, alone.output
    assert "The welfare of the best fixed policy would have been at most" in " ".join(alone.stdout.split())
    regret = json.loads((tmp_path / "frontier.json").read_text())["regret"]
    assert (regret["alpha"], regret["measure"]) == ("inf", "welfare")


@pytest.mark.parametrize("command", ["doctor", "evaluate", "frontier"])
def test_labels_cannot_control_the_terminal(command: str, tmp_path: Path) -> None:
    hostile = "\x1b[2J\x1b]0;a\x07\u202e"
    rows = {
        "context": [f"c{row % 3}" for row in range(400)],
        "arm": [hostile if row % 10 == 0 else "b" for row in range(400)],
        "reward": [row % 7 / 7.0 for row in range(400)],
        "propensity": [0.5] * 400,
    }
    pl.DataFrame(rows).write_csv(tmp_path / "log.csv")
    options = [] if command == "doctor" else ["--replicates", "100"]
    answer = run(command, str(tmp_path / "log.csv"), *options, "--output", str(tmp_path / "\x1b[1m"))
    assert answer.exit_code in (0, 1), answer.output
    assert "\\x1b[2J\\x1b]0" in answer.stdout.replace("\n", "")
    page = (tmp_path / "\x1b[1m" / f"{command}.html").read_text()
    for text in (answer.stdout, page):
        assert all(line.isprintable() for line in text.splitlines())
    refused = run(command, str(tmp_path / "\u202e.csv"))
    assert "\\u202e" in refused.output
    assert refused.output.replace("\n", "").isprintable()


@pytest.mark.parametrize("command", ["doctor", "evaluate", "frontier"])
def test_the_folder_is_made_before_the_work(command: str, log_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "open_table", lambda *_: pytest.fail("read"))
    answer = run(command, str(log_file), "-o", "/proc/x")
    assert answer.exit_code == 2
    assert "--output must be a folder that exists or can be created; got '/proc/x'" in answer.stderr


def test_a_folder_that_cannot_be_listed_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "inner").mkdir()

    def scandir(path: Any) -> Any:
        if str(path).endswith("inner"):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    real = os.scandir
    monkeypatch.setattr(os, "scandir", scandir)
    answer = run("evaluate", str(tmp_path))
    assert answer.exit_code == 2
    words = "inner must be a folder that can be listed; got 'one that cannot'. Permission denied: correct the path"
    assert words in answer.stderr.replace("\n", "")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--replicates", "50"], "error: --replicates must be an integer in [100, 100000]; got 50."),
        (["--confidence", "2"], "error: --confidence must be a number in [0.5, 0.999]; got 2.0."),
        (["--context", "whom"], "Did you mean 'who'?"),
        (["--context", "nowhere"], "Pass the name of a column (--context)."),
        (["--policy", "alpha-fair"], "It learns from the rewards of all arms, which a log does not have"),
    ],
)
def test_errors_name_options(options: list[str], words: str, log_file: Path) -> None:
    answer = run("evaluate", str(log_file), *(["--context", "who"] if "--context" not in options else []), *options)
    assert answer.exit_code == 2
    assert words in answer.stderr


@pytest.mark.parametrize("command", ["evaluate", "frontier"])
def test_a_large_log_is_read_by_processes_with_the_same_numbers(
    command: str, log_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, made = tmp_path / "log.parquet", list[int]()
    pl.read_csv(log_file).write_parquet(path)
    options = ["--context", "who", "--replicates", "100", "--alpha", "0.5", "--json"]
    words = [command, str(path), *options, "--workers", "2", *(["--policy", "uniform"] * (command == "evaluate"))]

    class Pool(ThreadPoolExecutor):
        """In place of processes, which tests/lab/test_executors.py starts."""

        def __init__(self, n_workers: int) -> None:
            made.append(n_workers)
            super().__init__(n_workers)

    monkeypatch.setattr("alphafair.executors.ProcessPool", Pool)
    few = run(*words)
    assert not made
    monkeypatch.setattr("alphafair.cli._logs.LARGE", 3000)
    many = run(*words)
    assert made == [2]
    assert few.exit_code == many.exit_code == 0, many.output
    assert few.stdout == many.stdout
    assert not _logs.is_large(log_file)  # text is not read in pieces


@pytest.mark.parametrize("command", ["evaluate", "frontier", "doctor"])
def test_the_folder_of_the_command_has_a_name(
    command: str, log_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    pl.read_csv(log_file).head(500).write_parquet(folder / "log.parquet")
    monkeypatch.chdir(folder)
    options = [] if command == "doctor" else ["--replicates", "100", "--alpha", "0.5"]
    answer = run(command, ".", "--context", "who", *options, "--json")
    assert json.loads(answer.stdout)["log"] == "logs"
