"""A refusal is an error whose parts can be asked for."""

import ast
import pickle
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import alphafair
from alphafair import AlphaFair, AlphaFairBandit, Engine, Groups, InvalidArgument, offline_optimum
from alphafair.cli import _Commands, with_options


def test_an_invalid_argument_error_has_its_parts_as_attributes() -> None:
    with pytest.raises(InvalidArgument) as caught:
        AlphaFair(2, 3, alpha=-0.5)
    refusal = caught.value
    assert isinstance(refusal, ValueError)
    assert (refusal.argument, refusal.allowed, refusal.value) == ("alpha", "a number of at least 0, or inf", -0.5)
    assert refusal.repair.startswith("Pass 0 for the sum of rewards")
    assert str(refusal) == f"alpha must be a number of at least 0, or inf; got -0.5. {refusal.repair}"


def test_an_invalid_argument_error_can_be_pickled() -> None:
    refusal = InvalidArgument("alpha", "a number of at least 0, or inf", -0.5, "Take 0.9.")
    twin = pickle.loads(pickle.dumps(refusal))
    assert (twin.argument, str(twin)) == ("alpha", str(refusal))


@pytest.mark.parametrize("said", [{"alpha": "0.9"}, {"alpha": b"0"}])
def test_strings_are_not_accepted_as_numbers(said: dict[str, Any]) -> None:
    """Python's own `float` would read it."""
    with pytest.raises(InvalidArgument, match=f"{next(iter(said))} must be a number"):
        AlphaFair(2, 3, **said)
    with pytest.raises(InvalidArgument, match="pull_floor must be a number"):
        AlphaFair(2, 3, groups=Groups(pull_floor="0.1"))  # type: ignore[arg-type]


@pytest.mark.parametrize("texts", [["1", "0.5", "0"], [1.0, "0.5", 0.0], np.array(["1", b"2", 0], dtype=object)])
def test_arrays_of_strings_are_not_accepted_as_numbers(texts: Any) -> None:
    policy = AlphaFair(1, 3)
    with pytest.raises(InvalidArgument, match="reward must be"):
        policy.update(policy.choose(0), texts)
    with pytest.raises(InvalidArgument, match="context_reward_totals must be"):
        offline_optimum([texts], 0.5)
    with pytest.raises(InvalidArgument, match="entitlements must be"):
        AlphaFair(1, 3, groups=Groups(entitlements=texts))
    assert (policy.cumulative_rewards == 0.0).all()
    assert (policy.accounts == 1.0).all()
    with pytest.raises(InvalidArgument, match=r"got '0\.5'\. Pass one float per round"):
        AlphaFairBandit(1, 2).update((0, 0, 0.5, None), "0.5")  # type: ignore[arg-type]


OPTION = re.compile(r"(?:^|[\s(`])--[a-z][a-z-]+")
SOURCES = Path(alphafair.__file__).parent


def strings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The strings of a module with their lines, those of an f-string joined."""
    within = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        alone = isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in within
        parts = node.values if isinstance(node, ast.JoinedStr) else [node] if alone else []
        text = "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in parts)
        if text:
            yield node.lineno, text  # type: ignore[attr-defined]


def test_the_library_names_arguments_and_not_options_of_the_command_line() -> None:
    """A whole command, such as `alphafair keys create --db`, may be named: it is to be run."""
    found = []
    for path in sorted(SOURCES.rglob("*.py")):
        if path.parent.name != "cli" and path.name != "__main__.py":
            for line, text in strings(ast.parse(path.read_text(encoding="utf-8"))):
                begin = OPTION.search(text)
                if begin is not None and "alphafair " not in text[: begin.start()]:
                    found.append(f"{path.relative_to(SOURCES)}:{line}: {begin[0].strip()}")
    assert not found


def test_the_command_line_names_options_in_place_of_arguments() -> None:
    command = _Commands()["frontier"]
    error = InvalidArgument("n_replicates", "an integer in [100, 100000]", 50, "Pass more (n_replicates=).")
    assert with_options(str(error), command).startswith("--replicates must be an integer in [100, 100000]; got 50.")
    assert with_options(str(error), command).endswith("Pass more (--replicates).")
    assert with_options("address must be an address; got 1.", command) == "--dask must be an address; got 1."
    words = "n_replicates must be 1; got 5. Choose n_replicates inside that range."
    assert with_options(words, command) == "--replicates must be 1; got 5. Choose --replicates inside that range."
    assert with_options("log must be a log; got 1. Pass log=1.", command) == "log must be a log; got 1. Pass log=1."
    assert with_options(str(error), None) == str(error)


def test_a_reward_range_may_begin_anywhere(tmp_path: Path) -> None:
    with Engine.open(tmp_path / "shop.db") as engine:
        engine.create("high", arms=["a", "b"], reward_range=(0.2, 5.0))
        for low in (1e100, -2e100):
            with pytest.raises(
                InvalidArgument, match=re.escape("reward_range[0] must be a number in [-1e+100, 1e+100)")
            ):
                engine.create("other", arms=["a", "b"], reward_range=(low, 1e100))
