"""One file and one line: the example of CONTRIBUTING.md, in a file of its own, registered once, is found everywhere."""

from __future__ import annotations

import importlib
import json
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import alphafair
from alphafair import POLICIES, BasePolicy, State, checks, figures, load_policy, register, simulate, streams
from alphafair.cli import app
from tests.test_docs import tool

GUIDE = Path(__file__).parents[1] / "CONTRIBUTING.md"


@pytest.fixture
def kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[BasePolicy]]:
    """The class of the guide, imported from a folder of a user's and registered."""
    (code,) = re.findall(
        r"^ +```python\n( +\"\"\"Exponential weights.*?)^ +```$", GUIDE.read_text(), re.DOTALL | re.MULTILINE
    )
    (tmp_path / "contextual_hedge.py").write_text(textwrap.dedent(code))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "contextual_hedge", raising=False)
    made: type[BasePolicy] = importlib.import_module("contextual_hedge").ContextualHedge
    assert register(made) is made
    yield made
    del POLICIES[made.name]


def test_it_plays_and_learns_what_the_formula_says(kind: type[BasePolicy]) -> None:
    stream = streams.ratings(n_rounds=2000, n_contexts=3, n_arms=4, seed=0)
    policy = kind(3, 4, seed=0)
    trace = simulate(policy, stream)
    for context in range(3):
        total = np.sum([stream.rewards(t) for t in np.flatnonzero(stream.contexts == context)], axis=0)
        expected = np.exp(0.1 * (total - total.max()))
        np.testing.assert_allclose(policy.probabilities(context), expected / expected.sum(), rtol=1e-9)
    assert trace.policy == "contextual-hedge"
    picture = figures.overview([trace, simulate(alphafair.Uniform(3, 4), stream)], alpha=0.5)
    titles = [axes.get_title(loc="left") for axes in picture.axes]
    assert "contextual-hedge" in titles
    (line,) = [line for line in picture.axes[0].get_lines() if line.get_gid() == "contextual-hedge"]
    assert (line.get_color(), line.get_marker()) == kind.look


def test_it_passes_every_check_in_every_variant(kind: type[BasePolicy]) -> None:
    assert len(kind.variants(3, 4)) == 2
    for settings in kind.variants(3, 4).values():
        results = list(checks.run_checks(kind, settings))
        assert [result for result in results if not result.passed] == []
        applied = {result.name for result in results if not result.message.startswith(checks.NOT_HERE)}
        assert {"stepwise_equals_compiled", "interpreted_equals_compiled", "leans_toward_reward"} < applied


def test_the_command_line_knows_it_by_its_name(kind: type[BasePolicy], tmp_path: Path) -> None:
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


def test_its_snapshots_are_loaded(kind: type[BasePolicy]) -> None:
    policy = kind(3, 4, learning_rate=0.5, seed=1)
    policy.update(policy.choose(0), [1.0, 0.5, 0.0, 0.0])
    twin = load_policy(State.from_bytes(policy.snapshot().to_bytes()))
    assert type(twin) is kind
    assert twin.probabilities(0).tolist() == policy.probabilities(0).tolist()


def test_with_its_line_it_would_be_in_the_readme(kind: type[BasePolicy], monkeypatch: pytest.MonkeyPatch) -> None:
    table = tool("paste_policies")
    monkeypatch.setitem(table.CLASSES, "ContextualHedge", kind)
    row = "| `ContextualHedge` | full | Maximise the sum of rewards in every context, seeing all of them. |"
    assert row in table.refreshed(table.PAGE.read_text(encoding="utf-8"))
    assert alphafair.ContextualHedge is kind
    monkeypatch.delattr(alphafair, "ContextualHedge")
