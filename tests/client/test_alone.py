"""The clients as a distribution of their own: in an environment with h11, msgspec and nothing else."""

from __future__ import annotations

import compileall
import json
import shutil
import subprocess
import tomllib
import venv
import zipfile
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder
from packaging.requirements import Requirement

import alphafair
import alphafair_client
from tests import ROOT
from tests.misbehaving import DRAWN, answer, scripted

CLIENT = ROOT / "client"
PROJECT = tomllib.loads((CLIENT / "pyproject.toml").read_text())["project"]
MOST_BYTES, MOST_MODULES, MOST_MEMORY = 1_250_000, 220, 30_000  # installed: 1.2 MB; imported; kilobytes

USE = """
import asyncio, importlib.util, json, sys
import alphafair_client

async def draw(url):
    async with alphafair_client.AsyncClient(url) as client:
        return await client.decide("home", "v", id="x")

url = sys.argv[1]
with alphafair_client.Client(url) as client:
    answers = [client.decide("home", "v", id="x"), asyncio.run(draw(url))]
try:
    with alphafair_client.Client(url) as client:
        client.reward("x", float("nan"), experiment="home")
except alphafair_client.ServiceError as problem:
    answers.append(str(problem))
try:
    alphafair_client.Client(url, timeout=True - 1)
except alphafair_client.InvalidArgument as problem:
    answers.append(str(problem))
memory = 0
try:
    with open("/proc/self/status") as status:
        memory = next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
except FileNotFoundError:
    pass
found = [name for name in ("numpy", "numba", "alphafair", "polars") if importlib.util.find_spec(name)]
print(json.dumps([answers, found, len(sys.modules), memory]))
"""
VALUES = """
import json, sys
from alphafair_client.answers import InvalidArgument, Outcome, Receipt, ServiceError, Status
print(json.dumps([name for name in ("h11", "msgspec", "asyncio", "ssl") if name in sys.modules]))
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with the client's wheel and what it requires."""
    folder = tmp_path_factory.mktemp("alone")
    venv.create(folder / "env", with_pip=False, symlinks=True)
    (packages,) = (folder / "env" / "lib").glob("python*/site-packages")
    (wheel,) = WheelBuilder(str(CLIENT)).build(directory=str(folder), versions=["standard"])
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    for requirement in PROJECT["dependencies"]:
        installed = distribution(Requirement(requirement).name)
        for file in installed.files or ():
            if ".." not in file.parts and "__pycache__" not in file.parts:
                target = packages / file
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(str(installed.locate_file(file)), target)
    compileall.compile_dir(packages, quiet=1)  # as pip does
    return folder / "env" / "bin" / "python"


def run(python: Path, code: str, *arguments: str) -> Any:
    command = [str(python), "-I", "-B", "-W", "error", "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_client_needs_h11_msgspec_and_nothing_else(python: Path) -> None:
    with scripted(*[answer()] * 2) as server:
        answers, found, n_modules, memory = run(python, USE, server.url)
    drawn = [*(DRAWN[field] for field in ("id", "arm", "propensity", "context")), None]
    assert answers[:2] == [drawn, drawn]
    assert answers[2].startswith("422 bad_reward (reward): reward must be a finite number; got nan.")
    assert answers[3].startswith("timeout must be a number in (0, 1e+06]; got 0.")
    assert found == []
    assert n_modules <= MOST_MODULES
    assert memory <= MOST_MEMORY


def test_the_installed_files_are_small(python: Path) -> None:
    (packages,) = python.parents[1].glob("lib/python*/site-packages")
    assert sum(file.stat().st_size for file in packages.rglob("*") if file.is_file()) <= MOST_BYTES


def test_the_values_need_the_standard_library_alone(python: Path) -> None:
    assert run(python, VALUES) == []


def test_public_names_are_those_of_alphafair() -> None:
    assert {*alphafair_client.__all__} <= {*dir(alphafair_client)}
    for name in alphafair_client.__all__:
        assert getattr(alphafair_client, name) is not None
    for name in ("Client", "AsyncClient", "ServiceError", "InvalidArgument"):
        assert getattr(alphafair, name) is getattr(alphafair_client, name)
    for name in ("Receipt", "Outcome", "Status", "PeriodStatus", "GroupStatus", "ChangeRecord"):
        assert getattr(alphafair.engine, name) is getattr(alphafair_client, name)
    with pytest.raises(AttributeError, match="no attribute 'Clientt'"):
        alphafair_client.Clientt  # noqa: B018


# both distributions


def requirements_of(root: Path, folder: Path) -> list[str]:
    """What the wheel of a tree requires, without what its extras add."""
    (wheel,) = WheelBuilder(str(root)).build(directory=str(folder), versions=["standard"])
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith("/METADATA"))
        lines = archive.read(name).decode().splitlines()
    found = [line.removeprefix("Requires-Dist: ") for line in lines if line.startswith("Requires-Dist: ")]
    return [each for each in found if "extra ==" not in each]


def copied(folder: Path) -> Path:
    """What wheels are made from, without the history."""
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    for name in ("src", "client"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def test_a_clone_requires_its_own_client_and_a_release_the_same_version(tmp_path: Path) -> None:
    """So `pip install .` of a clone needs no registry that has the client, and no other client can be taken for it."""
    (tmp_path / "tree").mkdir()
    tree = copied(tmp_path / "tree")
    version = alphafair.__version__
    assert f"alphafair-client=={version}" in requirements_of(tree, tmp_path / "release")
    (tree / ".git").mkdir()
    assert f"alphafair-client @ {(tree / 'client').as_uri()}" in requirements_of(tree, tmp_path / "clone")
    assert {*requirements_of(tree / "client", tmp_path / "client")} == {*PROJECT["dependencies"]}


def test_both_have_one_version_and_one_license(tmp_path: Path) -> None:
    (path,) = SdistBuilder(str(CLIENT)).build(directory=str(tmp_path))
    assert Path(path).name == f"alphafair_client-{alphafair.__version__}.tar.gz"
    assert (CLIENT / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()
