"""Machine code before the first request: of the policies in use, and none where compiling is off."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from alphafair import Engine, Groups, Uniform
from alphafair.engine.reports import Reports
from alphafair.jit import Bundle, Kernels
from alphafair.precompile import compile_kernels
from alphafair.service.service import _kernels_in_use

ARMS = ["ada", "ben", "cyd"]
UNIFORM, DEFAULT = Kernels("uniform", "bandit"), Kernels("alpha-fair-adaptive", "bandit")


@pytest.fixture(autouse=True)
def _a_process_that_has_compiled_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Bundle, "_all", {})
    monkeypatch.delenv("NUMBA_DISABLE_JIT", raising=False)


def is_interpreted() -> bool:
    """Whether a policy of this process draws without machine code."""
    policy = Uniform(1, 2, feedback="bandit", seed=0)
    policy.choose(0)
    return "draw" not in vars(policy.stepper)


@pytest.mark.compiled
def test_a_precompiled_policy_starts_with_machine_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALPHAFAIR_JIT", "auto")
    assert is_interpreted()
    compile_kernels(UNIFORM)
    assert not is_interpreted()


def test_nothing_is_compiled_if_the_jit_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALPHAFAIR_JIT", "off")
    compile_kernels(UNIFORM)
    assert is_interpreted()


def test_a_service_compiles_for_its_experiments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALPHAFAIR_JIT", "off")
    with Engine.open(tmp_path / "shop.db") as engine:
        assert _kernels_in_use(engine, Reports(engine.writers)) == {DEFAULT}
        engine.create("plain", arms=ARMS)
        engine.create("groups", arms=ARMS, groups=["x", "x", "y"])
        engine.create("floor", arms=ARMS, policy="alpha-fair", groups=Groups(pull_floor=0.1))
        engine.create("hedge", arms=ARMS, policy="hedge")
        engine.create("nash", arms=ARMS, policy="alpha-fair", alpha=1.0)
        adaptive, full = (
            DEFAULT._replace(flags=frozenset({"groups"})),
            Kernels("alpha-fair", "full", frozenset({"groups"})),
        )
        nash, hedge = full._replace(flags=frozenset({"welfare"})), Kernels("hedge", "full")
        assert _kernels_in_use(engine, Reports(engine.writers)) == {DEFAULT, adaptive, full, nash, hedge}


def test_a_service_compiles_what_it_needs_once_others_were_observed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where an incumbent or a log decides too, whether or not one of their rewards has come."""
    monkeypatch.setenv("ALPHAFAIR_JIT", "off")
    beside = DEFAULT._replace(flags=frozenset({"others"}))
    with Engine.open(tmp_path / "shop.db") as engine:
        reports = Reports(engine.writers)
        engine.create("home", arms=ARMS)
        engine.create("hedge", arms=ARMS, policy="hedge", mode="watch")
        engine.observe("hedge", "v", "ada", 0.5)
        assert reports.kernels("home") == {DEFAULT}
        engine.observe("home", "v", "ada", id="one")
        assert reports.kernels("home") == {DEFAULT, beside}
        engine.reward("one", 0.5)
        assert reports.kernels("home") == {beside}
        engine.create("watched", arms=ARMS, alpha=2.0, mode="watch")
        nash = DEFAULT._replace(flags=frozenset({"welfare"}))
        assert reports.kernels("watched") == {nash, nash._replace(flags=frozenset({"welfare", "others"}))}
        assert reports.kernels("hedge") == {Kernels("hedge", "full")}
        assert _kernels_in_use(engine, reports) == {
            DEFAULT,
            beside,
            Kernels("hedge", "full"),
            *reports.kernels("watched"),
        }


SHOP = """
import sys
from pathlib import Path
from alphafair import Engine

folder = Path(sys.argv[1])
arms = ["ada", "ben", "cyd"]
with Engine.open(folder / "shop.db") as engine:
    for name, settings in {"plain": {}, "groups": {"groups": ["x", "x", "y"], "alpha": 2.0}}.items():
        engine.create(name, arms=arms, policy="alpha-fair-bandit", **settings)
        for _ in range(3):
            engine.reward(engine.decide(name, "anybody").id, 0.5)
        deferred = engine.decide(name, "nobody", available=arms[:1], deferred=True)
        engine.activate(deferred.id)
        engine.reward(deferred.id, 0.5)
        engine.decide(name, "anybody")
        engine.new_period(name)
with Engine.open(folder / "shop.db") as engine:
    engine.verify()
"""


@pytest.mark.compiled
def test_an_engine_compiles_nothing_more(tmp_path: Path) -> None:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache"), "ALPHAFAIR_JIT": "now"}
    environment.pop("NUMBA_DISABLE_JIT", None)

    def run(*command: str) -> set[Path]:
        subprocess.run([sys.executable, *command], env=environment, check=True)
        return {*(tmp_path / "cache").rglob("*.nbc")}

    name = "alpha-fair-bandit+bandit"
    made = run("-m", "alphafair", "compile", name, f"{name}+groups-welfare")
    assert run("-c", SHOP, str(tmp_path)) == made
