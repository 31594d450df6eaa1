"""The command line: what it prints, saves and refuses."""

from __future__ import annotations

import json
import os
import pkgutil
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

import alphafair
from alphafair import AlphaFair, FairCB, Hedge, Uniform, metrics, offline_optimum, streams
from alphafair import cli as package
from alphafair.algorithms import POLICIES, BasePolicy
from alphafair.cli import app
from alphafair.offline import context_reward_totals
from alphafair.values import Feedback
from tests import ROOT
from tools.site import commands as reference

COMMANDS = [module.name for module in pkgutil.iter_modules(package.__path__) if not module.name.startswith("_")]
SMALL = ["simulate", "--rounds", "3000", "--contexts", "5", "--arms", "4", "--alpha", "0.5", "--seed", "7"]
HEAVY = {"numpy", "numba", "matplotlib", "polars", "scipy", "jinja2", "msgspec", "sklearn"}


def run(*arguments: str, columns: int = 80) -> Any:
    environment = {"COLUMNS": str(columns), "NO_COLOR": "1"}
    return CliRunner().invoke(app, list(arguments), prog_name="alphafair", env=environment)


def python(code: str) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    answer = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, encoding="utf-8", check=True
    )
    return answer.stdout


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """Every policy, simulated once: standard output and the folder."""
    folder = tmp_path_factory.mktemp("table")
    answer = run(*SMALL, "--output", str(folder))
    assert answer.exit_code == 0, answer.output
    return answer.stdout, folder


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The same with --json; nothing but JSON may be on standard output."""
    folder = tmp_path_factory.mktemp("json")
    answer = run(*SMALL, "--output", str(folder), "--json")
    assert answer.exit_code == 0, answer.output
    results: dict[str, Any] = json.loads(answer.stdout)
    assert json.loads((folder / "results.json").read_text()) == results
    return results


def row(results: dict[str, Any], policy: str, feedback: str) -> dict[str, Any]:
    (found,) = (r for r in results["policies"] if (r["policy"], r["feedback"]) == (policy, feedback))
    return dict(found)


# help


def test_help_lists_every_command() -> None:
    text = run("--help").stdout
    listed = re.findall(r"^  (\w+)  ", text[text.index("Commands:") :], flags=re.MULTILINE)
    assert sorted(listed) == sorted(COMMANDS)
    assert "..." not in text[text.index("Commands:") :], "a summary is cut off; shorten the command's first sentence"
    for command in COMMANDS:
        answer = run(command, "--help")
        assert answer.exit_code == 0
        assert answer.stdout.startswith(f"Usage: alphafair {command}")


def test_no_arguments_show_the_help() -> None:
    assert "Commands:" in run().output


def test_version() -> None:
    assert run("--version").stdout == f"alphafair {alphafair.__version__}\n"


def test_module_is_the_program() -> None:
    answer = subprocess.run(
        [sys.executable, "-m", "alphafair", "--version"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    assert answer.stdout == f"alphafair {alphafair.__version__}\n"


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], *([command, "--help"] for command in COMMANDS)])
def test_help_is_light(arguments: list[str]) -> None:
    code = f"""
import sys
from alphafair.cli import app
try:
    app({arguments!r}, prog_name="alphafair")
except SystemExit as end:
    assert not end.code, end.code
print()
print(*sorted({{name.partition(".")[0] for name in sys.modules}} & {HEAVY!r}))
"""
    loaded = python(code).splitlines()[-1]
    assert loaded == "", f"{arguments} loads {loaded}"


def test_help_names_every_stream() -> None:
    text = " ".join(run("simulate", "--help").stdout.split())
    named = text.partition("A synthetic stream: ")[2].partition(".")[0].replace(" or ", ", ").split(", ")
    assert {*named, "dying-arms-bound"} == {
        name.replace("_", "-")
        for name in streams.__all__
        if getattr(streams, name).__module__ in ("alphafair.streams.synthetic", "alphafair.streams.heavy_tails")
    }


# simulate


def test_every_policy_is_in_the_table_and_in_the_json(printed: tuple[str, Path], numbers: dict[str, Any]) -> None:
    rows = {(r["policy"], r["feedback"]) for r in numbers["policies"]}
    assert {policy for policy, _ in rows} == set(POLICIES)
    table = [tuple(line.split()[:2]) for line in printed[0].splitlines() if line.split()[:1] and line[0] != " "]
    assert rows <= set(table)


def test_a_policy_that_takes_a_feedback_runs_in_both_if_it_learns(numbers: dict[str, Any]) -> None:
    kinds: dict[str, set[str]] = {}
    for r in numbers["policies"]:
        kinds.setdefault(r["policy"], set()).add(r["feedback"])
    assert kinds["fair-cb"] == {"full", "bandit"}
    assert kinds["uniform"] == {"full"}
    assert kinds["alpha-fair"] == {"full"}
    assert kinds["alpha-fair-bandit"] == {"bandit"}


def test_numbers_are_those_of_the_library(numbers: dict[str, Any]) -> None:
    stream = streams.ratings(3000, 5, 4, seed=7)
    weights = np.bincount(stream.contexts, minlength=5) / 3000
    made: dict[tuple[str, str], BasePolicy] = {
        ("alpha-fair", "full"): AlphaFair(5, 4, alpha=0.5),
        ("hedge", "full"): Hedge(5, 4, horizon=3000),
        ("fair-cb", "full"): FairCB(5, 4, horizon=3000, context_weights=weights, feedback="full"),
        ("fair-cb", "bandit"): FairCB(5, 4, horizon=3000, context_weights=weights, feedback="bandit"),
        ("uniform", "full"): Uniform(5, 4, feedback="full"),
    }
    totals = context_reward_totals(stream)
    best, even = offline_optimum(totals, 0.5), 1.0 + totals.sum(axis=0) / 4
    for (name, feedback), policy in made.items():
        earned = alphafair.simulate(policy, stream, seed=7).final
        assert row(numbers, name, feedback) == {
            "policy": name,
            "feedback": feedback,
            "alpha_performance": float(metrics.alpha_performance(earned, 0.5)),
            "welfare": float(metrics.welfare(earned, 0.5)),
            "jain_index": float(metrics.jain_index(earned)),
            "average_reward": float(metrics.average_reward(earned)),
            "least_share": float(metrics.shares(earned).min()),
            "greatest_share": float(metrics.shares(earned).max()),
            "gap_closed": pytest.approx(float(metrics.gap_closed(best.value, even, earned, 0.5)), abs=1e-8),
        }
    assert row(numbers, "uniform", "full")["gap_closed"] == 0.0
    assert numbers["hindsight"]["optimum"] == best.value
    first, second = numbers["certificates"]
    assert [first["policy"], second["policy"]] == ["alpha-fair-adaptive", "alpha-fair"]
    assert second["regret_bound"] == metrics.regret_certificate(made["alpha-fair", "full"])
    for proved in (first, second):
        achieved = row(numbers, proved["policy"], "full")["alpha_performance"]
        assert best.value <= proved["optimum_at_most"] == pytest.approx(proved["ratio_at_most"] * achieved)
        assert proved["standard_regret_at_most"] == pytest.approx(proved["optimum_at_most"] - achieved)


@pytest.mark.parametrize("alpha", ["1", "2", "inf"])
def test_simulate_measures_welfare_from_alpha_1_on(alpha: str, tmp_path: Path) -> None:
    exponent, stream = float(alpha), streams.ratings(3000, 5, 4, seed=7)
    answer = run(*SMALL, "--alpha", alpha, "--output", str(tmp_path))
    assert answer.exit_code == 0, answer.output
    assert "left out" not in answer.stderr
    numbers = json.loads((tmp_path / "results.json").read_text())
    assert numbers["alpha"] == ("inf" if alpha == "inf" else exponent)
    totals = context_reward_totals(stream)
    best, even = offline_optimum(totals, exponent), 1.0 + totals.sum(axis=0) / 4
    assert numbers["hindsight"]["measure"] == "welfare"
    assert numbers["hindsight"]["optimum"] == best.welfare
    earned = alphafair.simulate(AlphaFair(5, 4, alpha=exponent), stream, seed=7).final
    found = row(numbers, "alpha-fair", "full")
    assert found["welfare"] == float(metrics.welfare(earned, exponent))
    assert found["gap_closed"] == pytest.approx(float(metrics.gap_closed(best.welfare, even, earned, exponent)))
    assert found["gap_closed"] > 0.5
    assert (found["alpha_performance"] is None) == (alpha == "inf")
    (proved,) = (each for each in numbers["certificates"] if each["policy"] == "alpha-fair")
    assert (
        best.welfare <= proved["welfare_at_most"] == pytest.approx(proved["welfare_ratio_at_most"] * found["welfare"])
    )
    assert f"no fixed policy has a welfare above {proved['welfare_at_most']:.2f}" in " ".join(answer.stdout.split())
    assert numbers["bounds_in_expectation"] == []
    assert max(len(line) for line in answer.stdout.splitlines() if str(tmp_path) not in line) <= 80
    assert row(numbers, "independent-alpha-fair", "full")["welfare"] > 1.0


def test_simulate_is_fair_to_contexts_too(tmp_path: Path) -> None:
    sizes = ("--rounds", "60", "--contexts", "3", "--arms", "3", "--alpha", "1")
    sides = ("--context-weight", "0.25", "--context-share", "0.6", "--output", str(tmp_path))
    shown = run("simulate", *sizes, *sides, "--policy", "alpha-fair-adaptive", "--policy", "uniform").stdout
    assert "uniform (full): worst context " in shown
    results = json.loads((tmp_path / "results.json").read_text())
    assert (results["context_weight"], results["context_share"]) == (0.25, 0.6)
    assert [each["policy"] for each in results["context_shares"]] == ["alpha-fair-adaptive"] * 2 + ["uniform"]
    assert all(0.0 < each["worst"] <= each["tenth"] for each in results["context_shares"])
    refused = run("simulate", "--context-share", "1")
    assert refused.exit_code != 0
    assert "Pass alpha=0 to serve every context its best." in refused.stderr


@pytest.mark.parametrize("alpha", [0.5, 2.0])
def test_simulate_with_periods_compares_every_period_with_its_own_optimum(alpha: float, tmp_path: Path) -> None:
    stream, chosen = streams.ratings(3000, 5, 4, seed=7), ["--policy", "alpha-fair", "--policy", "uniform"]
    options = ["--alpha", f"{alpha:g}", "--period", "800", "--carry", "0.25", "--output", str(tmp_path)]
    answer = run(*SMALL, *chosen, *options)
    assert answer.exit_code == 0, answer.output
    assert "scores are the welfare of a period, on average" in " ".join(answer.stdout.split())
    numbers = json.loads((tmp_path / "results.json").read_text())
    assert (numbers["period"], numbers["carry"]) == (800, 0.25)
    tables = context_reward_totals(stream, period=800)
    best = [offline_optimum(totals, alpha).welfare for totals in tables]
    even = [float(metrics.welfare(1.0 + totals.sum(axis=0) / 4, alpha)) for totals in tables]
    trace = alphafair.simulate(AlphaFair(5, 4, alpha=alpha), stream, seed=7, period=800, carry=0.25)
    earned = [float(metrics.welfare(1.0 + each.rewards, alpha)) for each in trace.periods]
    found = row(numbers, "alpha-fair", "full")
    assert found["welfare"] == pytest.approx(np.mean(earned))
    assert found["gap_closed"] == pytest.approx((sum(earned) - sum(even)) / (sum(best) - sum(even)), abs=1e-8)
    assert found["least_share_of_periods"] <= found["least_share"]
    assert row(numbers, "uniform", "full")["gap_closed"] == 0.0
    assert numbers["hindsight"]["optimum"] == pytest.approx(np.mean(best))
    (proved,) = numbers["certificates"]
    assert np.mean(best) <= proved["welfare_at_most"]


def test_carry_needs_a_period() -> None:
    answer = run(*SMALL, "--carry", "0.5", "--json")
    assert answer.exit_code == 2
    assert "--carry must be given with --period; got 0.5. Pass --period N as well." in answer.stderr
    assert "--period must be" in run(*SMALL, "--period", "0", "--json").stderr
    assert "--carry must be" in run(*SMALL, "--period", "9", "--carry", "2", "--json").stderr


def test_offline_shows_the_welfare_from_alpha_1_on(tmp_path: Path) -> None:
    """Closed forms: the optimum of these totals is (9, 7) at alpha 1, and 83/11 for every arm at inf."""
    (tmp_path / "t.csv").write_text("context,jazz,rock\na,8,3\nb,2,6\n")
    answer = run("offline", str(tmp_path / "t.csv"), "--output", str(tmp_path))
    assert answer.exit_code == 0, answer.output
    rows = {line.split()[0]: line.split() for line in answer.stdout.splitlines() if line.strip()}
    assert [alpha for alpha in rows if alpha in ("0", "0.5", "0.9", "1", "2", "inf")] == [
        "0",
        "0.5",
        "0.9",
        "1",
        "2",
        "inf",
    ]
    assert (rows["1"][1], rows["2"][1], rows["inf"][1]) == ("7.9373", "7.8750", "7.5455")
    words = " ".join(answer.stdout.split())
    assert "No split is worth more than value + gap, or has a welfare above welfare + gap from alpha 1 on." in words
    optima = json.loads((tmp_path / "offline.json").read_text())["optima"]
    assert [each["alpha"] for each in optima] == [0.0, 0.5, 0.9, 1.0, 2.0, "inf"]
    assert optima[-1]["welfare"] == pytest.approx(83 / 11, rel=1e-9)
    assert all(0.0 <= each["welfare_gap"] <= 1e-8 for each in optima)
    assert (tmp_path / "distributions-inf.csv").exists()
    alone = run("offline", str(tmp_path / "t.csv"), "--alpha", "inf").stdout
    assert "No split has a welfare above welfare + gap." in " ".join(alone.split())


def test_simulate_reports_that_there_is_no_gap(tmp_path: Path) -> None:
    """Near alpha 1 the best fixed policy for one context is uniform play, but for a trifle."""
    options = ["--contexts", "1", "--arms", "2", "--rounds", "1000", "--output", str(tmp_path)]
    answer = run("simulate", *options, "--policy", "hedge", "--policy", "uniform")
    assert answer.exit_code == 0, answer.output
    words = " ".join(answer.stdout.split())
    assert "No gap to close: the best fixed policy in hindsight, which scores 36.65 (proved to within" in words
    assert "is worth only 0.00% more reward than uniform play, which scores 36.65." in words
    assert "share of the gap" not in words
    numbers = json.loads((tmp_path / "results.json").read_text())
    assert [each["gap_closed"] for each in numbers["policies"]] == [None, None]
    assert 0.0 < numbers["hindsight"]["gap_to_close"] < 1e-4


def test_vacuous_bounds_are_marked(tmp_path: Path) -> None:
    """After 200 rounds nobody can be as far behind as the bound in expectation allows; the certificate holds some."""
    options = ["--rounds", "200", "--policy", "alpha-fair-adaptive", "--output", str(tmp_path)]
    answer = run("simulate", *options)
    assert answer.exit_code == 0, answer.output
    numbers = json.loads((tmp_path / "results.json").read_text())
    (bound,), best = numbers["bounds_in_expectation"], numbers["hindsight"]["optimum"]
    assert bound["regret_bound"] > best - metrics.approximation_factor(0.9) * 19 / 0.1
    assert bound["regret_bound_vacuous"]
    assert not any(each["vacuous"] for each in numbers["certificates"])
    said = "It is vacuous so far: accounts start with 1, so no run can have a larger regret."
    assert said in " ".join(answer.stdout.split())
    assert "It is vacuous:" not in answer.stdout


def test_table_fits_and_marks_the_best(printed: tuple[str, Path], numbers: dict[str, Any]) -> None:
    text, folder = printed
    lines = [line.rstrip() for line in text.splitlines()]
    assert max(len(line) for line in lines if str(folder) not in line) <= 80
    best = {
        "alpha_performance": max,
        "gap_closed": max,
        "jain_index": max,
        "average_reward": max,
        "least_share": max,
    }
    for r in numbers["policies"]:
        (line,) = (line for line in lines if line.split()[:2] == [r["policy"], r["feedback"]])
        cells = re.findall(r"(\* )?(-?[\d.,]+%?)(?= |$)", line)
        marked = [key for key, (star, _) in zip(best, cells, strict=True) if star]
        expected = [k for k, pick in best.items() if r[k] == pick(other[k] for other in numbers["policies"])]
        assert marked == expected, line
        assert cells[0][1] == f"{r['alpha_performance']:.2f}"
        assert cells[1][1] == f"{r['gap_closed']:.0%}"
        assert cells[4][1] == f"{r['least_share']:.2%}"


def test_certificates_are_sentences(printed: tuple[str, Path], numbers: dict[str, Any]) -> None:
    text = " ".join(printed[0].split())
    for proved in numbers["certificates"]:
        assert f"Certificate of {proved['policy']} (full):" in text
        assert f"more than {proved['optimum_at_most']:.2f}, {proved['ratio_at_most']:.4f} times" in text
    assert f"which scores {numbers['hindsight']['optimum']:.2f} (proved to within" in text


def test_the_figure_is_at_the_printed_path(printed: tuple[str, Path]) -> None:
    text, folder = printed
    assert f"Figure saved: {folder / 'overview.png'}" in text
    header = (folder / "overview.png").read_bytes()[:24]
    assert header[:8] == b"\x89PNG\r\n\x1a\n"
    assert (int.from_bytes(header[16:20]), int.from_bytes(header[20:24])) == (1600, 900)


def test_chosen_policies_only_each_once(tmp_path: Path) -> None:
    chosen = ["--policy", "hedge", "--policy", "alpha-fair", "--policy", "hedge"]
    answer = run(*SMALL, *chosen, "--output", str(tmp_path / "a" / "b"), "--json")
    assert [r["policy"] for r in json.loads(answer.stdout)["policies"]] == ["hedge", "alpha-fair"]


@pytest.mark.parametrize(
    "stream", ["ratings", "drifting-ratings", "impossibility", "greedy-trap", "lognormal-rewards", "purchases"]
)
def test_every_stream_runs(stream: str, tmp_path: Path) -> None:
    answer = run("simulate", "--stream", stream, "--rounds", "501", "--policy", "uniform", "--output", str(tmp_path))
    assert answer.exit_code == 0, answer.output
    results = json.loads((tmp_path / "results.json").read_text())
    assert (results["rounds"], results["arms"]) == ((502, 2) if stream == "impossibility" else (501, 19))
    assert f"{results['rounds']:,} rounds, {results['contexts']:,} contexts, {results['arms']} arms" in answer.stdout


def test_a_new_policy_is_found_without_an_edit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Newcomer(Hedge):
        name = "newcomer"

    monkeypatch.setitem(POLICIES, "newcomer", Newcomer)
    answer = run(*SMALL, "--policy", "newcomer", "--policy", "hedge", "--output", str(tmp_path), "--json")
    new, old = json.loads(answer.stdout)["policies"]
    assert {**old, "policy": "newcomer"} == new


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--policy", "alfa-fair"], ["--policy must be one of", "'alfa-fair'. Did you mean 'alpha-fair'?", *POLICIES]),
        (["--stream", "rivulet"], ["--stream must be one of", "'rivulet'", "ratings", "greedy-trap"]),
        (["--alpha", "-1.5"], ["alpha must be a number of at least 0, or inf", "-1.5"]),
        (["--rounds", "0"], ["--rounds must be", "at least 1", "got 0"]),
        (["--contexts", "-1"], ["--contexts must be", "got -1"]),
        (["--arms", "0"], ["--arms must be", "got 0"]),
        (["--seed", "-2"], ["--seed must be", "got -2"]),
        (["--record-every", "0"], ["--record-every must be", "got 0"]),
        (["--output", __file__], ["--output must be a folder"]),
        (
            ["--rounds", "1" + 13 * "0", "--policy", "uniform"],
            ["--rounds must be at most", "fit into memory", "got 1000"],
        ),
        (["--contexts", "1" + 30 * "0"], ["--contexts must be at most", "fit into memory"]),
        (["--arms", "1" + 13 * "0"], ["--arms must be at most", "fit into memory"]),
        (["--stream", "impossibility", "--arms", "5"], ["--arms must be left out with --stream impossibility; got 5"]),
        (["--stream", "impossibility", "--contexts", "2"], ["--contexts must be left out", "own number of contexts"]),
        (["--stream", "dying-arms", "--contexts", "2"], ["--contexts must be left out", "own number of contexts"]),
    ],
)
def test_a_refusal_is_one_line_with_its_repair(arguments: list[str], words: list[str], tmp_path: Path) -> None:
    answer = run("simulate", "--output", str(tmp_path), *arguments)
    assert answer.exit_code == 2
    assert answer.stdout == ""
    assert answer.stderr.startswith("error: ")
    assert answer.stderr.count("\n") == 1
    for word in words:
        assert word in answer.stderr


def test_too_little_memory_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def large(*_: Any, **__: Any) -> None:
        raise MemoryError("Unable to allocate 3 TiB")

    monkeypatch.setattr(metrics, "shares", large)
    answer = run(*SMALL, "--policy", "uniform", "--output", str(tmp_path))
    assert answer.exit_code == 1
    last = answer.stderr.splitlines()[-1]
    assert last == "error: there is not enough memory for this (Unable to allocate 3 TiB). Choose smaller sizes."


def test_unexpected_errors_keep_their_traceback(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise ValueError("operands could not be broadcast together")

    monkeypatch.setattr(metrics, "shares", broken)
    answer = run(*SMALL, "--policy", "uniform", "--output", str(tmp_path))
    assert isinstance(answer.exception, ValueError)


# check

TOYS = '''
from alphafair import Uniform


class Sound(Uniform):
    name = "sound"


class Leaky(Uniform):
    """Its probabilities sum to 0.9."""

    name = "leaky"

    def probabilities(self, context, *, available=None):
        return super().probabilities(context, available=available) * 0.9


class Demanding(Uniform):
    def __init__(self, n_contexts, n_arms, *, patience, seed=None):
        if patience < 0:
            raise RuntimeError("no patience at all")
        super().__init__(n_contexts, n_arms, seed=seed)


class Chair:
    def choose(self, context):
        return 0


an_instance = Sound(1, 2)
'''


@pytest.fixture
def toys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a user's own file, and we are in it."""
    (tmp_path / "toys.py").write_text(TOYS)
    (tmp_path / "thirsty.py").write_text("import a_module_that_is_not_there\n")
    (tmp_path / "broken.py").write_text("x = 1\ny = x / 0\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    for module in ("toys", "thirsty", "broken"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    return tmp_path


@pytest.mark.usefixtures("toys")
def test_a_sound_policy_passes() -> None:
    from alphafair.checks import CHECKS

    answer = run("check", "toys:Sound", "--set", "feedback=bandit")
    assert answer.exit_code == 0, answer.output
    lines = re.findall(r"^(pass|skip|FAIL)  (.+?) +\d+\.\d\d s$", answer.stdout, flags=re.MULTILINE)
    assert [name.replace(" ", "_") for _, name in lines] == list(CHECKS)
    assert ("skip", "leans toward reward") in lines
    assert "does not apply: the policy declares that it does not learn" in answer.stdout
    assert re.search(r"\d+ passed, 0 failed, \d+ did not apply; ", answer.stdout)


@pytest.mark.usefixtures("toys")
def test_a_leaky_policy_fails_the_right_check() -> None:
    answer = run("check", "toys:Leaky")
    assert answer.exit_code == 1
    assert re.search(r"^FAIL  distribution sums to one .*\n      .*sum to 0\.9", answer.stdout, flags=re.MULTILINE)
    assert re.search(r"^pass  one uniform per choice ", answer.stdout, flags=re.MULTILINE)


@pytest.mark.usefixtures("toys")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["toys"], ["'toys'", "my_policies:MyPolicy"]),
        (["toys:"], ["my_policies:MyPolicy"]),
        (["no_such_toys:Sound"], ["'no_such_toys'", "folder that holds no_such_toys"]),
        (["thirsty:Sound"], ["'thirsty'", "Install a_module_that_is_not_there"]),
        (["broken:Sound"], ["ZeroDivisionError", "broken.py, line 2"]),
        (["toys:Soound"], ["a class in toys", "'Soound'", "Sound, ", "Leaky"]),
        (["json:Sound"], ["a class in json", "no class that is a policy"]),
        (
            ["toys:Chair"],
            ["a policy", "'Chair'", "lacks probabilities, update, expect, forgo, observe, new_period"],
        ),
        (["toys:an_instance"], ["a class", "Sound(1, 2"]),
        (["toys:Demanding"], ["patience", "--set patience=VALUE"]),
        (["toys:Demanding", "--set", "patience=-1"], ["RuntimeError: no patience at all", "toys.py, line"]),
        (["toys:Sound", "--set", "feedback"], ["KEY=VALUE", "'feedback'"]),
        (["toys:Sound", "--set", "fedback=full"], ["one of 'feedback'", "'fedback'"]),
        (["toys:Sound", "--set", "feedback=loud"], ["feedback must be one of", "'loud'"]),
    ],
)
def test_a_bad_spec_is_one_line_with_its_repair(arguments: list[str], words: list[str]) -> None:
    answer = run("check", *arguments)
    assert answer.exit_code == 2, answer.output
    assert answer.stdout == ""
    assert answer.stderr.startswith("error: ")
    assert answer.stderr.count("\n") == 1
    for word in words:
        assert word in answer.stderr


@pytest.mark.usefixtures("toys")
def test_settings_are_literals_or_strings() -> None:
    from alphafair.cli.check import read_settings

    given = ["horizon=1000", "context_weights=[0.5, 0.5]", "feedback=full", "pull_share=None"]
    assert read_settings(FairCB, given) == {
        "horizon": 1000,
        "context_weights": [0.5, 0.5],
        "feedback": "full",
        "pull_share": None,
    }


# docs


def test_the_reference_has_the_help_of_every_command() -> None:
    found = dict(reference.commands())
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    assert sorted(commands) == sorted(COMMANDS)
    assert {words[0] for words in found if words} == set(commands)
    assert {words[1] for words in found if len(words) == 2 and words[0] == "keys"} == {*commands["keys"].commands}
    for name, command in commands.items():
        assert (command.help or "").split("\n")[0] == package.COMMANDS[name], "the program's help has another sentence"
        words = " ".join(found[name,].split())
        for parameter in command.params:
            assert (parameter.help or "") in words
    page = reference.help_pages()
    assert "\n## alphafair keys\n" in page
    assert "\n### alphafair keys create\n" in page


def test_the_reference_shows_what_a_terminal_shows(tmp_path: Path) -> None:
    assert reference.output_of("simulate --help").endswith(f"\n{dict(reference.commands())['simulate',]}```\n")


def test_feedbacks_are_the_two_that_the_docs_explain() -> None:
    page = (ROOT / "docs" / "howto" / "compare_policies.md").read_text(encoding="utf-8")
    for feedback in Feedback:
        assert f"`{feedback}` policies see" in page


def test_offline_of_a_small_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of one context are added up; every alpha is certified; shares, numbers and a picture are written."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "w.csv").write_text("context,jazz,rock\nnew,5,3\nold,2,6\nnew,3,0\n")
    answer = run("offline", "w.csv", "--alpha", "0.5", "--alpha", "0", "--output", "output", "--json")
    assert answer.exit_code == 0, answer.output
    half, none = json.loads(answer.stdout)["optima"]
    assert half["value"] == pytest.approx(11.291502622129181, rel=1e-9)
    assert half["certified"]
    assert none["accounts"] == {"jazz": 9.0, "rock": 7.0}
    assert none["cumulative_rewards"] == {"jazz": 8.0, "rock": 6.0}
    assert (tmp_path / "output" / "offline.png").stat().st_size > 10_000
    lines = (tmp_path / "output" / "distributions-0.csv").read_text().splitlines()
    assert lines == ["context,jazz,rock", "new,1.0,0.0", "old,0.0,1.0"]
    table = run("offline", "w.csv")
    assert "No split is worth more than value + gap" in table.stdout
    wrong = run("offline", "w.csv", "--context", "contxt")
    assert wrong.exit_code == 2
    assert "Did you mean 'context'?" in wrong.stderr


def test_simulate_your_own_rounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = "\n".join(f"{'ab'[k % 2]},{1 + 4 * (k % 2)},{5 - 4 * (k % 2)}" for k in range(200))
    (tmp_path / "rounds.csv").write_text(f"user,jazz,rock\n{rows}\n")
    common = ("simulate", "--data", "rounds.csv", "--context", "user", "--policy", "alpha-fair", "--json")
    refused = run(*common)
    assert refused.exit_code == 2
    assert "rounds.csv, line 2: rock must be in [0, 1]; got 5.0. Pass --reward-range 1 5, or the" in refused.stderr
    assert not (tmp_path / "output").exists(), "bad input changes nothing"
    some = run(*common, "--reward-range", "1", "5", "--arm", "jazz")
    assert json.loads(some.stdout)["arms"] == 1
    answer = run(*common, "--reward-range", "1", "5")
    assert answer.exit_code == 0, answer.output
    results = json.loads(answer.stdout)
    assert (results["stream"], results["rounds"], results["contexts"], results["arms"]) == ("rounds.csv", 200, 2, 2)


TABLE_OPTIONS = ("--context", "--arm", "--time", "--reward-range")


def test_offline_with_promises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("w.csv").write_text("context,rock,jazz\n0,5,0\n1,9,6\n2,30,2\n", encoding="utf-8")
    promises = ["--context-share", "0", "--context-share", "0.7"]
    answer = run("offline", "w.csv", "--alpha", "1", *promises, "--output", "output")
    assert answer.exit_code == 0, answer.output
    lines = answer.stdout.splitlines()
    assert any("promise" in line and "context" in line for line in lines)
    (row,) = (line for line in lines if "70%" in line)
    assert "15.367" in row
    assert row.rstrip().endswith("70.0%")
    assert "No split that keeps the promise has a welfare above welfare + gap." in " ".join(answer.stdout.split())
    optima = json.loads((tmp_path / "output" / "offline.json").read_text())["optima"]
    assert [each["context_share"] for each in optima] == [0.0, 0.7]
    assert [round(each["least_context_share"], 3) for each in optima] == [0.667, 0.7]
    assert (tmp_path / "output" / "distributions-1-0.7.csv").exists()
    refused = run("offline", "w.csv", "--context-share", "1")
    assert refused.exit_code == 2
    assert "--context-share must be a number in [0, 1); got 1.0." in " ".join(refused.stderr.split())


def test_simulate_and_offline_take_the_same_table_options() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    options = [
        {option.opts[0]: (option.help, option.metavar, option.default) for option in commands[name].params}
        for name in ("simulate", "offline")
    ]
    for name in TABLE_OPTIONS:
        assert options[0][name] == options[1][name]


TABLE_COMMANDS = [("simulate", "--policy", "alpha-fair", "--data"), ("offline",)]


@pytest.mark.parametrize("command", TABLE_COMMANDS, ids=lambda command: command[0])
def test_simulate_and_offline_read_a_table_alike(command: tuple[str, ...], tmp_path: Path) -> None:
    """Time is no arm; rewards are mapped; the first cell out of range is named where it is in the file."""
    late_first = "user,when,jazz,rock\na,3,5,1\nb,1,2.5,-5\na,2,-5,5\n"
    (tmp_path / "t.csv").write_text(late_first)
    rows = late_first.splitlines()
    (tmp_path / "sorted.csv").write_text("\n".join([rows[0], rows[2], rows[3], rows[1]]) + "\n")
    common = ("--context", "user", "--time", "when", "--output", str(tmp_path / "out"), "--json")
    refused = run(*command, str(tmp_path / "t.csv"), *common)
    assert refused.exit_code == 2
    where = "line 3: rock must be at least 0; got -5.0" if command == ("offline",) else "line 2: jazz must be in [0, 1]"
    assert f"t.csv, {where}" in refused.stderr
    assert "Pass --reward-range -5 5, or the columns of rewards with --arm." in refused.stderr
    for limits, words in {
        ("0", "5"): "t.csv, line 3: rock must be in [0, 5]; got -5.0. Pass --reward-range -5 5",
        ("5", "-5"): "two numbers, LOW below HIGH; got [5.0, -5.0]. Pass the lower number first.",
        ("0", "inf"): "--reward-range must be two numbers, LOW below HIGH; got [0.0, inf]",
        ("nan", "5"): "--reward-range must be two numbers, LOW below HIGH; got [nan, 5.0]",
    }.items():
        assert words in run(*command, str(tmp_path / "t.csv"), *common, "--reward-range", *limits).stderr
    assert not (tmp_path / "out").exists(), "bad input changes nothing"
    answers = []
    for name in ("t.csv", "sorted.csv"):
        answer = run(*command, str(tmp_path / name), *common, "--reward-range", "-5", "5")
        assert answer.exit_code == 0, answer.output
        answers.append({key: value for key, value in json.loads(answer.stdout).items() if key != "stream"})
    assert answers[0] == answers[1]
    assert (answers[0]["contexts"], answers[0]["arms"]) == (2, 2)


def test_equal_rewards_get_a_nonempty_range(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("context,jazz\na,5\nb,5\n")
    answer = run("simulate", "--data", str(tmp_path / "t.csv"), "--output", str(tmp_path / "out"))
    assert "Pass --reward-range 0 5" in answer.stderr


@pytest.mark.parametrize(
    "option",
    [
        ["--arm", "jazz"],
        ["--time", "when"],
        ["--reward-range", "1", "5"],
        ["--context", "user"],
        ["--context", "context"],
    ],
)
def test_options_of_a_table_need_a_table(option: list[str], tmp_path: Path) -> None:
    answer = run("simulate", *option, "--output", str(tmp_path))
    assert answer.exit_code == 2
    assert f"--data must be given with {option[0]}; got None. Pass --data FILE as well." in answer.stderr


@pytest.mark.parametrize(
    ("option", "value"), [("--stream", "'ratings'"), ("--rounds", "100000"), ("--contexts", "33"), ("--arms", "19")]
)
def test_stream_options_are_refused_with_a_table(option: str, value: str, tmp_path: Path) -> None:
    """Not even with the values that they have anyway."""
    (tmp_path / "t.csv").write_text("context,jazz,rock\na,1,0\nb,0,1\n")
    common = ("simulate", "--data", str(tmp_path / "t.csv"), "--output", str(tmp_path), "--policy", "uniform")
    answer = run(*common, option, value.strip("'"))
    assert answer.exit_code == 2
    assert f"{option} must be left out with --data; got {value}. The file has its own rounds." in answer.stderr
    assert run(*common).exit_code == 0


def test_counts_of_one_are_singular(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("context,jazz\na,1\n")
    common = (str(tmp_path / "t.csv"), "--output", str(tmp_path))
    assert "The fair optimum of 1 context and 1 arm\n" in run("offline", *common).stdout
    assert (
        "stream: 1 round, 1 context, 1 arm; alpha" in run("simulate", "--policy", "uniform", "--data", *common).stdout
    )


@pytest.mark.parametrize("command", TABLE_COMMANDS, ids=lambda command: command[0])
def test_the_context_column_cannot_be_an_arm(command: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("context,jazz\n0,1\n1,0\n")
    answer = run(*command, str(tmp_path / "t.csv"), "--output", str(tmp_path), "--arm", "context", "--arm", "jazz")
    assert answer.exit_code == 2
    assert "--arm must be other columns than the context and the time; got ['context']." in answer.stderr


def test_a_total_that_is_negative_or_huge_is_named_in_its_place(tmp_path: Path) -> None:
    """A range would map totals as if they were rewards, so it is not offered for one row per context."""
    path = tmp_path / "t.csv"
    for cell, words in {
        "-5": "line 3: jazz must be at least 0; got -5.0. These look like totals: map the rewards before adding them",
        "1e300": "line 3: jazz must be a number in [-1e+100, 1e+100]; got 1e+300. Correct it, delete that row",
    }.items():
        path.write_text(f"context,jazz\na,7\nb,{cell}\n")
        answer = run("offline", str(path), "--output", str(tmp_path / "out"))
        assert answer.exit_code == 2
        assert f"t.csv, {words}" in answer.stderr
        assert "--reward-range" not in answer.stderr


@pytest.mark.parametrize("size", [1.0, 1e3, 124_456_789.0, 1.1e9, 9.87654321e10, 1e30])
def test_the_table_of_offline_cuts_no_number_off(size: float, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(f"context,jazz,rock\na,{5 * size},{size}\nb,{2 * size},{4 * size}\n")
    options = ("--output", str(tmp_path), "--alpha", "0", "--alpha", "0.123456789012", "--tolerance", "0")
    answer = run("offline", str(tmp_path / "t.csv"), *options)
    assert answer.exit_code == 0, answer.output
    assert "\N{HORIZONTAL ELLIPSIS}" not in answer.stdout
    table = answer.stdout[: answer.stdout.index("No split")].splitlines()
    assert max(map(len, table)) <= 80
    (first,) = (line.split() for line in table if line.split()[:1] == ["0"])
    optima = json.loads((tmp_path / "offline.json").read_text())["optima"]
    accounts = optima[0]["accounts"].values()
    _, value, _, *shown = (float(cell.replace(",", "")) for cell in first if cell != "(!)")
    expected = [optima[0][key] for key in ("value", "jain_index", "average_reward")]
    assert [value, *shown] == pytest.approx([*expected, min(accounts), max(accounts)], rel=1e-4)


def test_offline_marks_a_gap_that_was_not_reached(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("context,jazz,rock\na,5,1\nb,5,4\n")
    answer = run("offline", str(tmp_path / "t.csv"), "--output", str(tmp_path), "--tolerance", "0", "--alpha", "0.9")
    assert answer.exit_code == 0
    assert "(!) the gap is larger than --tolerance" in answer.stdout
    assert answer.stderr == ""


def test_offline_checks_every_alpha_before_it_solves_for_one(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("context,jazz\na,5\nb,5\n")
    common = ("offline", str(tmp_path / "t.csv"), "--output", str(tmp_path / "out"))
    assert (
        "alpha must be a number of at least 0, or inf; got -1.0"
        in run(*common, "--alpha", "0.5", "--alpha", "-1").stderr
    )
    assert "--tolerance must be a number in [0, 1]; got 2.0" in run(*common, "--tolerance", "2").stderr
    assert not (tmp_path / "out").exists()


def test_reproduce_refuses_a_missing_path() -> None:
    answer = run("reproduce", "--data", "no-such-folder")
    assert answer.exit_code == 2
    assert "--data must be a folder or zip that exists; got 'no-such-folder'" in answer.stderr
    assert run("reproduce", "--workers", "0").exit_code == 2


def test_slates() -> None:
    """Several arms per decision: the policies that show them, and the scores of random and of the best slates."""
    args = ["simulate", "--rounds", "400", "--contexts", "2", "--arms", "5", "--k", "3", "--alpha", "0.5", "--json"]
    found = json.loads(run(*args).stdout)
    kinds = {"alpha-fair", "alpha-fair-adaptive", "alpha-fair-bandit", "uniform"}
    assert {each["policy"] for each in found["policies"]} == kinds
    assert found["k"] == 3
    totals = context_reward_totals(streams.ratings(n_rounds=400, n_contexts=2, n_arms=5, seed=0))
    uniform = metrics.alpha_performance(1.0 + 0.6 * totals.sum(axis=0), 0.5)
    assert found["hindsight"]["uniform"] == pytest.approx(uniform)
    assert found["hindsight"]["optimum"] == pytest.approx(offline_optimum(totals, 0.5, k=3).value, rel=1e-8)
    for each in found["certificates"]:
        assert each["optimum_at_most"] >= found["hindsight"]["optimum"]

    refused = run(*args, "--policy", "hedge")
    assert refused.exit_code != 0
    assert "hedge shows one arm per decision" in str(refused.exception) + refused.output
