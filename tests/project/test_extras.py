"""What works with the base dependencies alone, and the sentence where an extra is missing.

A process that cannot import the other packages stands for an environment without them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import packages_distributions, requires
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from alphafair import extras
from alphafair.cli import COMMANDS, EXTRAS
from tests import ROOT

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
DEPENDENCIES = PYPROJECT["tool"]["hatch"]["metadata"]["hooks"]["custom"]["dependencies"]
CLIENT = ["alphafair_client", "h11", "msgspec"]
BASE = ["alphafair", *CLIENT, "llvmlite", "numba", "numpy", "platformdirs"]

HIDE = """
import sys
from importlib.metadata import packages_distributions

class Hidden:
    def __init__(self, finder):
        self.finder = finder
    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in hidden else self.finder.find_spec(name, path, target)
    def __getattr__(self, name):
        return getattr(self.finder, name)

hidden = {*packages_distributions()} - {*{visible}} - {*sys.stdlib_module_names}
sys.meta_path[:] = map(Hidden, sys.meta_path)
"""


def modules_of(requirements: Iterable[str], *, deep: bool = False) -> set[str]:
    """The modules of some distributions, and where `deep` of all that they depend on."""
    found: set[str] = set()
    todo, modules = [*requirements], packages_distributions()
    while todo:
        requirement = Requirement(todo.pop())
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        wanted = canonicalize_name(requirement.name)
        own = {module for module, names in modules.items() if wanted in map(canonicalize_name, names)} - found
        found |= own
        if deep and own:
            todo += requires(requirement.name) or ()
    return found


def run_with(visible: list[str], code: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run code in a process that can import the standard library and these packages."""
    return subprocess.run(
        [sys.executable, "-c", HIDE.replace("{visible}", json.dumps(visible)) + code],
        env={**os.environ, "ALPHAFAIR_JIT": "auto", "ALPHAFAIR_DATA": str(cwd)},
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_lists_of_packages_are_those_of_the_project_file() -> None:
    assert modules_of(DEPENDENCIES) == {*BASE} - {"alphafair", *CLIENT, "llvmlite"}  # Numba brings the latter
    for extra, packages in extras.PACKAGES.items():
        assert {*packages} <= modules_of(PROJECT["optional-dependencies"][extra]), extra
        assert len(packages) == len(PROJECT["optional-dependencies"][extra]), extra


def test_every_command_of_the_table_exists() -> None:
    assert {*EXTRAS} <= {*COMMANDS}
    assert {*EXTRAS.values()} <= {*extras.PACKAGES}


USE = """
import json, tempfile, os
from alphafair import *
import alphafair
import numpy as np

stream = streams.ratings(200, 2, 3, seed=0)
policy = AlphaFair(2, 3, alpha=0.9)
trace = simulate(policy, stream)
policy.update(policy.choose(0, rng=np.random.default_rng(0)), [0.5, 0.5, 0.5])
best = offline_optimum(context_reward_totals(stream), 0.9)
metrics.jain_index(trace.final), metrics.regret_certificate(policy)
load_policy(State.from_bytes(policy.snapshot().to_bytes()))
log = simulate(AlphaFairAdaptive(2, 3, alpha=0.9), stream, log=True).log
evaluation.evaluate(log, np.full((2, 3), 1 / 3), alpha=0.9, n_replicates=100)

with Engine.open("shop.db") as engine:
    engine.create("home", arms=["ada", "ben"], alpha=0.9)
    receipt = engine.decide("home", "visitor-7")
    outcome = engine.reward(receipt.id, 0.8).outcome
    engine.verify()
    engine.backup("copy.db")
    n_logged = len(engine.log("home").rewards)

    sentences = {}
    def sentence(name, call):
        try:
            call()
        except ImportError as problem:
            sentences[name] = str(problem)

    sentence("export", lambda: engine.export("home", "log.parquet"))
    sentence("figures", lambda: alphafair.figures)
    sentence("lab", lambda: __import__("alphafair.lab.paper"))
    sentence("progress", lambda: simulate(policy, stream, progress=True))
    alphafair.Client
    sentence("cluster", lambda: preprocessing.cluster(np.ones((3, 2)), 1))
third_party = {name.partition(".")[0] for name in sys.modules} & hidden
print(json.dumps([outcome, n_logged, sentences, sorted(third_party - {"_distutils_hack"})]))
"""


def test_the_base_dependencies_are_enough_for_policies_and_an_engine(tmp_path: Path) -> None:
    answer = run_with(BASE, USE, tmp_path)
    assert answer.returncode == 0, answer.stderr
    outcome, n_logged, sentences, loaded = json.loads(answer.stdout)
    assert (outcome, n_logged) == ("applied", 1)
    assert loaded == []
    table = "Reading or writing a table needs polars: pip install 'alphafair[lab]'"
    assert sentences == {
        "export": table,
        "figures": "alphafair.figures needs matplotlib: pip install 'alphafair[lab]'",
        "lab": "alphafair.lab needs jinja2: pip install 'alphafair[lab]'",
        "progress": "A progress bar needs rich: pip install 'alphafair[lab]'",
        "cluster": "preprocessing.cluster needs sklearn: pip install 'alphafair[features]'",
    }


def test_without_typer_the_command_names_the_extra(tmp_path: Path) -> None:
    answer = run_with(BASE, "from alphafair.__main__ import main; sys.argv[1:] = ['--help']; main()", tmp_path)
    assert answer.returncode == 2
    assert answer.stdout == ""
    assert answer.stderr == "error: The command line needs typer: pip install 'alphafair[lab]'\n"


RUN_ALL = """
import json
from typer.testing import CliRunner
from alphafair import Engine
from alphafair.cli import COMMANDS, app

with Engine.open("shop.db") as engine:
    engine.create("home", arms=["ada", "ben"])
arguments = {"export": ["shop.db", "-e", "home", "-o", "log.csv"]}
answers = {}
for name in [*COMMANDS, "--help"]:
    answer = CliRunner().invoke(app, [name, *arguments.get(name, ["--help"])])
    answers[name] = [answer.exit_code, answer.stderr]
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What every command answers where the command line is installed, and nothing else."""
    visible = [*BASE, *modules_of(["typer", "rich"], deep=True)]
    answer = run_with(visible, RUN_ALL, tmp_path_factory.mktemp("commands"))
    assert answer.returncode == 0, answer.stderr
    found: dict[str, Any] = json.loads(answer.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_names_its_extra_in_one_sentence(name: str, answers: dict[str, Any]) -> None:
    if name in EXTRAS:
        extra = EXTRAS[name]
        package = {"lab": "jinja2", "service": "httptools"}[extra]
        sentence = f"alphafair {name} needs {package}: pip install 'alphafair[{extra}]'"
    elif name == "export":
        sentence = "Reading or writing a table needs polars: pip install 'alphafair[lab]'"
    else:
        assert answers[name] == [0, ""]
        return
    assert answers[name] == [2, f"error: {sentence}\n"]


def test_help_needs_no_extra(answers: dict[str, Any]) -> None:
    assert answers["--help"] == [0, ""]
