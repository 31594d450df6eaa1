"""The package as a whole: what loads when, where machine code is kept, what the public names are."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import typer
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder

import alphafair
from alphafair import jit
from tests import ROOT, interpreted


def run_python(code: str, **environment: str) -> str:
    answer = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert answer.returncode == 0, answer.stderr
    return answer.stdout.strip()


def test_import_loads_nothing_heavy() -> None:
    heavy = run_python(
        "import sys, alphafair; hasattr(alphafair, 'nonsense')\n"
        "print([m for m in ('numpy', 'numba', 'matplotlib', 'rich') if m in sys.modules])"
    )
    assert heavy == "[]"


def test_every_public_name_is_there() -> None:
    from alphafair import algorithms

    written = {
        line.split()[-1] for line in Path(algorithms.__file__).read_text().splitlines() if line.startswith("from")
    }
    assert {kind.__name__ for kind in alphafair.POLICIES.values()} < written
    assert {kind.__name__ for kind in alphafair.POLICIES.values()} < set(alphafair.__all__)
    assert {"Log", "BasePolicy", "register", "Groups"} < set(alphafair.__all__)
    for name in alphafair.__all__:
        assert getattr(alphafair, name) is not None
    assert set(alphafair.__all__) <= set(dir(alphafair))
    with pytest.raises(AttributeError, match="no attribute 'AlphaFairr'"):
        alphafair.AlphaFairr  # noqa: B018


def test_fingerprint_follows_every_file_with_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = tmp_path / "alphafair"
    shutil.copytree(jit._PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    with_kernels = [
        path
        for path in copy.rglob("*.py")
        if re.search(r"^@(long_)?kernel$|^def specialize", path.read_text(), re.MULTILINE)
    ]
    assert len(with_kernels) > 15
    monkeypatch.setattr(jit, "_PACKAGE", copy)
    assert jit.fingerprint() == jit.fingerprint()
    for path in (*with_kernels, copy / "machine_code.py"):
        before = jit.fingerprint()
        with path.open("a") as file:
            file.write("\n# another thought\n")
        assert jit.fingerprint() != before, f"{path.name} is not part of the fingerprint"


def test_states_of_an_engine_depend_on_no_rival_and_no_evaluation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "alphafair"
    shutil.copytree(jit._PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(jit, "_PACKAGE", copy)
    for path, counts in {
        "lab/rivals/ucb.py": False,
        "evaluation/estimators.py": False,
        "offline/hindsight.py": False,
        "algorithms/alpha_fair.py": True,
        "policy/loops.py": True,
        "math/simplex.py": True,
    }.items():
        before = jit.fingerprint(jit.OF_STATES)
        with (copy / path).open("a") as file:
            file.write("\n# another thought\n")
        assert (jit.fingerprint(jit.OF_STATES) != before) == counts, path


SIMULATE = """
import alphafair
stream = alphafair.streams.ratings(50, 2, 3)
print(alphafair.simulate(alphafair.Hedge(2, 3, horizon=50), stream).final.tolist())
"""


def test_machine_code_is_kept_and_found_again(tmp_path: Path) -> None:
    first = run_python(SIMULATE, NUMBA_CACHE_DIR=str(tmp_path), NUMBA_DISABLE_JIT="0", ALPHAFAIR_JIT="now")
    kept = {path: path.stat().st_mtime_ns for path in tmp_path.glob(f"kernels-{jit.fingerprint()}/**/*.nbc")}
    assert kept
    assert run_python(SIMULATE, NUMBA_CACHE_DIR=str(tmp_path), NUMBA_DISABLE_JIT="0", ALPHAFAIR_JIT="now") == first
    assert {path: path.stat().st_mtime_ns for path in tmp_path.glob("**/*.nbc")} == kept, "something compiled again"


def test_a_missing_cache_folder_is_handled(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    without = run_python(SIMULATE, NUMBA_CACHE_DIR=str(blocked), NUMBA_DISABLE_JIT="0", ALPHAFAIR_JIT="now")
    assert without == run_python(SIMULATE, NUMBA_DISABLE_JIT="0", ALPHAFAIR_JIT="now")


def test_whole_runs_release_the_gil_and_single_steps_keep_it() -> None:
    from alphafair import AlphaFair
    from alphafair.algorithms import alpha_fair
    from alphafair.math import distributions, log_barrier
    from alphafair.offline import hindsight
    from alphafair.policy.loops import loop

    if os.environ.get("NUMBA_DISABLE_JIT") == "1":
        return
    for kernel in (distributions.draw_arm, alpha_fair.draw, alpha_fair.learn, log_barrier.follow):
        assert not jit.compiled(kernel).targetoptions.get("nogil", False), kernel
    for whole in (loop("play", "full", AlphaFair.algorithm, True), hindsight.solve, hindsight.curve):
        assert jit.compiled(whole).targetoptions["nogil"], whole
        assert not jit.compiled(whole).targetoptions.get("fastmath", False)


def test_kernels_called_only_by_kernels_are_not_stored(tmp_path: Path) -> None:
    """What is on disk: the run, and nothing of what it is made of."""
    run_python(SIMULATE, NUMBA_CACHE_DIR=str(tmp_path), NUMBA_DISABLE_JIT="0", ALPHAFAIR_JIT="now")
    kept = sorted(path.name.partition("-")[0] for path in tmp_path.glob("**/*.nbi"))
    assert kept == ["loops.play_full_alphafair_algorithms_hedge_draw_alphafair_algorithms_hedge_learn"]


# What make clean removes


def test_make_clean_leaves_nothing_that_commands_and_tools_make(tmp_path: Path) -> None:
    """The default folders of all commands, and what Git does not keep, apart from the databases of a user."""
    from alphafair.cli import COMMANDS, app

    program = typer.main.get_command(app)
    parameters = [each for name in COMMANDS for each in program.commands[name].params]  # type: ignore[attr-defined]
    folders = {str(each.default) for each in parameters if each.name == "output" and each.default}
    assert folders == {"report", "arena", "notions"}
    ignored = [line.strip("/") for line in (ROOT / ".gitignore").read_text().split() if line.endswith("/")]
    made = {*folders, "output", "src/alphafair/__pycache__", *(name for name in ignored if "*" not in name)}
    shutil.copy(ROOT / "Makefile", tmp_path)
    for name in made:
        (tmp_path / name / "below").mkdir(parents=True)
    (tmp_path / ".coverage").touch()
    (tmp_path / "shop.db").touch()
    subprocess.run(["make", "-s", "-C", str(tmp_path), "clean"], check=True)
    left = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*"))
    assert left == ["Makefile", "shop.db", "src", "src/alphafair"]


@pytest.mark.parametrize("path", sorted((ROOT / "benchmarks").glob("[a-z]*.py")), ids=lambda path: path.stem)
def test_every_benchmark_can_be_imported(path: Path) -> None:
    """Rivals of the extra `bench` may be missing; names of this package may not."""
    try:
        importlib.import_module(f"benchmarks.{path.stem}")
    except ModuleNotFoundError as problem:
        if (problem.name or "").partition(".")[0] in ("alphafair", "alphafair_client", "benchmarks"):
            raise


def test_the_files_that_run_interpreted_exist() -> None:
    files = (*interpreted.WHOLE, *interpreted.OTHERS)
    assert [file for file in files if not (ROOT / file).exists()] == []
    assert len({*files}) == len(files)
    for file, tests in interpreted.PARTS.items():
        assert file in interpreted.OTHERS
        assert [test for test in tests if f"def {test}(" not in (ROOT / file).read_text()] == [], file


# What is distributed


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    (path,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path_factory.mktemp("wheel")), versions=["standard"])
    return Path(path)


def test_the_wheel_contains_only_files_under_its_license(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = (archive.read(name).decode() for name in names if name.endswith("/METADATA"))
    assert re.findall("^License.*", metadata, re.MULTILINE) == ["License-Expression: MIT", "License-File: LICENSE"]
    page = [name for name in names if name.startswith("alphafair/service/page/static/")]
    kinds = {Path(name).suffix for name in names if name.startswith("alphafair/") and name not in page}
    assert not [name for name in names if name.startswith("alphafair_client/")], "a distribution of its own"
    assert kinds == {".py", ".typed", ".sql", ".html", ".css", ".mplstyle"}, "data have a license of their own"
    vendored = [name.removeprefix("alphafair/service/page/static/vendor/") for name in page if "/vendor/" in name]
    assert {name.partition("/")[0] for name in vendored} == {"uplot"}
    assert "uplot/LICENSE" in vendored, "under MIT, too, with its notice"


def test_the_wheel_contains_every_file_of_the_page(wheel: Path) -> None:
    folder = ROOT / "src" / "alphafair" / "service" / "page" / "static"
    with zipfile.ZipFile(wheel) as archive:
        names = {*archive.namelist()}
    files = [file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()]
    assert "shell.html" in files
    assert [name for name in files if f"alphafair/service/page/static/{name}" not in names] == []


def test_the_wheel_has_no_ratings(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert not [name for name in names if "ml-" in name or "movielens/" in name.lower()]


def test_the_source_distribution_leaves_the_ratings_out(tmp_path: Path) -> None:
    (path,) = SdistBuilder(str(ROOT)).build(directory=str(tmp_path))
    with tarfile.open(path) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
    assert {"LICENSE", "src/alphafair/__init__.py", "tests/fixtures/NOTICE.txt"} <= {*names}
    assert not [name for name in names if "ml-latest-small" in name or name.startswith("data/")]


def test_the_image_is_built_without_the_ratings() -> None:
    kept = (ROOT / ".dockerignore").read_text().split()
    assert kept[0] == "*"
    assert not {"!data", "!."} & {*kept}
    assert (ROOT / "data" / "ml-latest-small" / "README.txt").exists(), "the license lies beside the data"


WITHOUT_NETWORK = """
import alphafair, socket
def refused(*arguments, **options):
    raise ConnectionRefusedError(111, "Connection refused")
socket.create_connection = socket.getaddrinfo = refused
from alphafair.cli import app
app(["reproduce", *{words}])
"""


def test_from_a_wheel_the_ratings_are_downloaded_or_the_error_has_the_repair(wheel: Path, tmp_path: Path) -> None:
    """The wheel's own code, away from the repository: there is no copy to be found."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "lib")
    code = WITHOUT_NETWORK.format(words=["--output", str(tmp_path / "report")])
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "lib"), "ALPHAFAIR_DATA": str(tmp_path / "cache")}
    command = [sys.executable, "-c", code]
    answer = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert answer.returncode == 1, answer.stderr
    (line,) = (line for line in answer.stderr.splitlines() if line.startswith("error: "))
    url = "https://files.grouplens.org/datasets/movielens/ml-latest-small.zip"
    assert line.startswith(f"error: {url} could not be downloaded (Connection refused). Run ")
    assert f"copy the file to {tmp_path / 'cache' / 'ml-latest-small.zip'}" in line
    assert line.endswith("or pass the path of a copy.")
    assert "not for commercial use" in answer.stderr
