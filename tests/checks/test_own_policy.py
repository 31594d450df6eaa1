"""The examples of CONTRIBUTING.md, each in a file of its own: registered once, they are found everywhere."""

from __future__ import annotations

import importlib
import json
import math
import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import alphafair
from alphafair import POLICIES, Decision, State, checks, figures, load_policy, register, simulate, streams
from alphafair.cli import app
from tests import ROOT
from tools.site import policies

GUIDE = ROOT / "CONTRIBUTING.md"


def text_in_the_guide(opening: str) -> str:
    """The module whose docstring opens so."""
    blocks = re.findall(r"^ *```python\n(.*?)^ *```$", GUIDE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    (code,) = [textwrap.dedent(block) for block in blocks if block.lstrip().startswith(f'"""{opening}')]
    return code


def in_the_guide(opening: str, folder: Path, file: str, patch: pytest.MonkeyPatch) -> Any:
    """The same, imported from a folder of a user's."""
    (folder / f"{file}.py").write_text(text_in_the_guide(opening), encoding="utf-8")
    patch.syspath_prepend(str(folder))
    patch.delitem(sys.modules, file, raising=False)
    return importlib.import_module(file)


@pytest.fixture
def kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Any]]:
    """The compiled class of the guide, registered."""
    found = in_the_guide("Exponential weights", tmp_path, "contextual_hedge", monkeypatch)
    made: type[Any] = found.ContextualHedge
    assert register(made) is made
    yield made
    del POLICIES[made.name]


@pytest.fixture
def plain_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Any]]:
    """The plain class of the guide, registered."""
    made: type[Any] = in_the_guide("Softmax", tmp_path, "softmax", monkeypatch).Softmax
    assert register(made) is made
    yield made
    del POLICIES[made.name]


def test_its_file_can_stand_among_ours(tmp_path: Path) -> None:
    """In the repository a policy imports from `alphafair.extend` too, whichever of the two is imported first."""
    for first in ("alphafair.extend", "alphafair.algorithms"):
        code = f"import {first}, alphafair.algorithms as a, alphafair.extend as e; print(e.register is a.register)"
        answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert answer.stdout == "True\n"
    package = Path(alphafair.__file__).parent
    shutil.copytree(package, tmp_path / "alphafair", ignore=shutil.ignore_patterns("__pycache__"))
    folder = tmp_path / "alphafair" / "algorithms"
    (folder / "contextual_hedge.py").write_text(text_in_the_guide("Exponential weights"), encoding="utf-8")
    (line,) = re.findall(
        r"^ +(from alphafair\.algorithms\.contextual_hedge import .*)$", GUIDE.read_text(), re.MULTILINE
    )
    policies = (folder / "__init__.py").read_text(encoding="utf-8")
    marked = "from alphafair.algorithms.uniform import"
    (folder / "__init__.py").write_text(policies.replace(marked, f"{line}\n{marked}"), encoding="utf-8")
    code = (
        "import alphafair; print(alphafair.ContextualHedge(2, 3).choose(0).propensity, list(alphafair.POLICIES)[-2:])"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True, text=True
    )
    assert answer.stdout == f"{1.0 / 3.0} ['contextual-hedge', 'uniform']\n", answer.stderr


def test_the_plain_policy_passes_every_check(plain_kind: type[Any]) -> None:
    assert [result for result in checks.run_checks(plain_kind) if not result.passed] == []


def test_the_plain_policy_plays_its_formula(plain_kind: type[Any]) -> None:
    policy = plain_kind(2, 3, temperature=0.5)
    for arm, reward in ((0, 1.0), (1, 0.5), (0, 0.0)):
        policy.update(Decision(1, arm, 1.0 / 3.0, None), reward)  # type: ignore[arg-type]
    weights = [math.exp(1.0 / 3.0 / 0.5), math.exp(0.5 / 2.0 / 0.5), 1.0]
    assert policy.probabilities(1).tolist() == pytest.approx([each / sum(weights) for each in weights], rel=1e-14)
    assert policy.probabilities(0).tolist() == pytest.approx([1.0 / 3.0] * 3, rel=1e-14)


def test_the_plain_policy_is_registered_by_name(plain_kind: type[Any], tmp_path: Path) -> None:
    small = ["simulate", "--rounds", "200", "--contexts", "2", "--arms", "3", "--output", str(tmp_path / "out")]
    answer = CliRunner().invoke(app, [*small, "--json", "--policy", "softmax", "--policy", "uniform"])
    assert answer.exit_code == 0, answer.output
    assert {row["policy"] for row in json.loads(answer.stdout)["policies"]} == {"softmax", "uniform"}
    policy = plain_kind(2, 3, temperature=0.2)
    assert repr(load_policy(policy.snapshot())) == repr(policy) == "Softmax(2, 3, temperature=0.2)"


def test_the_compiled_policy_plays_and_learns_its_formula(kind: type[Any]) -> None:
    stream = streams.ratings(n_rounds=2000, n_contexts=3, n_arms=4, seed=0)
    policy = kind(3, 4, seed=0)
    trace = simulate(policy, stream)
    for context in range(3):
        total = np.sum([stream.rewards(int(t)) for t in np.flatnonzero(stream.contexts == context)], axis=0)
        expected = np.exp(0.1 * (total - total.max()))
        np.testing.assert_allclose(policy.probabilities(context), expected / expected.sum(), rtol=1e-9)
    assert trace.policy == "contextual-hedge"
    picture = figures.overview([trace, simulate(alphafair.Uniform(3, 4), stream)], alpha=0.5)
    titles = [axes.get_title(loc="left") for axes in picture.axes]
    assert "contextual-hedge" in titles
    (line,) = [line for line in picture.axes[0].get_lines() if line.get_gid() == "contextual-hedge"]
    assert (line.get_color(), line.get_marker()) == kind.traits.style


def test_it_passes_every_check_in_every_variant(kind: type[Any]) -> None:
    assert len(kind.traits.variants(3, 4)) == 2
    for settings in kind.traits.variants(3, 4).values():
        results = list(checks.run_checks(kind, settings))
        assert [result for result in results if not result.passed] == []
        applied = {result.name for result in results if not result.message.startswith(checks.NOT_APPLICABLE)}
        assert {"stepwise_equals_compiled", "interpreted_equals_compiled", "leans_toward_reward"} < applied


def test_the_command_line_knows_it_by_its_name(kind: type[Any], tmp_path: Path) -> None:
    small = ["simulate", "--rounds", "500", "--contexts", "3", "--arms", "4", "--output", str(tmp_path / "out")]
    answer = CliRunner().invoke(app, [*small, "--json"])
    assert answer.exit_code == 0, answer.output
    rows = json.loads(answer.stdout)["policies"]
    assert {row["policy"] for row in rows} == set(POLICIES)
    assert rows[-1]["policy"] == kind.name
    answer = CliRunner().invoke(app, [*small, "--policy", kind.name])
    assert re.search(r"^contextual-hedge +full +\* ", answer.stdout, re.MULTILINE)
    answer = CliRunner().invoke(app, ["simulate", "--policy", "contextual-hedg"])
    assert "Did you mean 'contextual-hedge'?" in answer.stderr


def test_its_snapshots_are_loaded(kind: type[Any]) -> None:
    policy = kind(3, 4, learning_rate=0.5, seed=1)
    policy.update(policy.choose(0), [1.0, 0.5, 0.0, 0.0])
    other = load_policy(State.from_bytes(policy.snapshot().to_bytes()))
    assert type(other) is kind
    assert other.probabilities(0).tolist() == policy.probabilities(0).tolist()


def test_with_its_line_it_would_be_in_the_reference(kind: type[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(policies.CLASSES, "ContextualHedge", kind)
    row = "| `ContextualHedge` | full | Maximize the sum of rewards in every context, seeing all of them. |"
    assert row in policies.table()
    assert alphafair.ContextualHedge is kind
    monkeypatch.delattr(alphafair, "ContextualHedge")
