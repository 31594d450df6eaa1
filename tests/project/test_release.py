"""What a release consists of: one version, complete metadata, distributions that install anywhere, and its automation.

`python -m tests.wheels` installs the distributions on every Python, with each extra; here the wheels are built once and
tried without a network, in an environment that borrows the packages of this one.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from email import message_from_bytes
from email.message import Message
from pathlib import Path
from typing import Any

import check_jsonschema
import pytest
import yaml
from click.testing import CliRunner, Result
from packaging.requirements import Requirement
from validate_pyproject.api import Validator

import alphafair
from tests import ROOT, wheels
from tools import build_release

PROJECTS = {"alphafair": ROOT, "alphafair-client": ROOT / "client"}
OF_DEVELOPERS = {"test", "bench", "docs"}  # extras that installations of users lack
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))


def pyproject(folder: Path) -> dict[str, Any]:
    return tomllib.loads((folder / "pyproject.toml").read_text())


# One version


def test_the_version_is_the_same_everywhere() -> None:
    version = alphafair.__version__
    assert build_release.version() == version
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
    sections = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert sections[0] == "[Unreleased]"
    (released,) = re.findall(r"^\[([\d.]+)\] - \d{4}-\d\d-\d\d$", sections[1])
    if released == version:
        assert build_release.problems(f"v{version}")[:-1] == []  # the last: changes may wait under Unreleased
    else:  # a change of the schema has opened the next version
        assert [int(part) for part in released.split(".")] < [int(part) for part in version.split(".")]
        assert "\n- " in (ROOT / "CHANGELOG.md").read_text().split("\n## ")[1]


@pytest.mark.parametrize(
    ("tag", "changelog", "sentence"),
    [
        ("v1.2", "## [Unreleased]\n\n## [1.2] - 2026-01-31\n", None),
        ("1.2", "## [Unreleased]\n\n## [1.2] - 2026-01-31\n", r"The tag must be v1\.2, as __version__ says; got 1\.2"),
        ("v1.3", "## [Unreleased]\n\n## [1.3] - 2026-01-31\n", r"The tag must be v1\.2"),
        ("v1.2", "## [Unreleased]\n\n## [1.2]\n", r"needs a section `## \[1\.2\] - DATE`"),
        ("v1.2", "## [Unreleased]\n- A door.\n\n## [1.2] - 2026-01-31\n", "has changes under Unreleased"),
    ],
)
def test_only_the_version_of_the_tree_is_released(
    tmp_path: Path, tag: str, changelog: str, sentence: str | None
) -> None:
    (tmp_path / "client" / "src" / "alphafair_client").mkdir(parents=True)
    (tmp_path / "client" / "src" / "alphafair_client" / "__init__.py").write_text('__version__ = "1.2"  # one home\n')
    (tmp_path / "CHANGELOG.md").write_text(changelog)
    found = build_release.problems(tag, tmp_path)
    assert bool(found) == (sentence is not None)
    assert sentence is None or re.search(sentence, found[0])


# What the project files say


@pytest.mark.parametrize("folder", PROJECTS.values(), ids=PROJECTS)
def test_the_project_file_is_valid_and_complete(folder: Path) -> None:
    content = pyproject(folder)
    assert Validator()(content)
    project = content["project"]
    assert {"name", "description", "readme", "license", "authors", "urls", "keywords"} <= {*project}
    assert "Typing :: Typed" in project["classifiers"]
    assert not [each for each in project["classifiers"] if each.startswith("License ::")], "an SPDX expression, once"
    assert [f">={version}" for version in wheels.PYTHONS[:1]] == [project["requires-python"]]


def test_both_distributions_name_the_same_pythons() -> None:
    named = [
        [each for each in pyproject(folder)["project"]["classifiers"] if "Python ::" in each]
        for folder in PROJECTS.values()
    ]
    assert named[0] == named[1]
    assert wheels.PYTHONS == ["3.11", "3.12", "3.13"]


def test_every_extra_of_users_is_installed_by_make_pythons() -> None:
    extras = {*pyproject(ROOT)["project"]["optional-dependencies"]}
    tried = {extra for requirement, _ in wheels.INSTALLATIONS.values() for extra in Requirement(requirement).extras}
    assert tried == extras - OF_DEVELOPERS
    for requirement, script in wheels.INSTALLATIONS.values():
        compile(script, requirement, "exec")


# What is published


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("published")
    build_release.build(folder)
    return folder


def metadata_of(path: Path) -> Message:
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as archive:
            (name,) = (each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
            return message_from_bytes(archive.read(name))
    with tarfile.open(path) as sources:
        file = sources.extractfile(f"{path.name.removesuffix('.tar.gz')}/PKG-INFO")
        assert file is not None
        return message_from_bytes(file.read())


def texts(path: Path) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(path) as archive:
        yield from ((name, archive.read(name)) for name in archive.namelist())


def test_the_distributions_pass_the_checks_of_the_index(distributions: Path) -> None:
    made = sorted(distributions.iterdir())
    assert [path.suffix for path in made] == [".whl", ".gz", ".whl", ".gz"]
    done = subprocess.run(
        [sys.executable, "-m", "twine", "check", "--strict", *made], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_is_published_requires_the_client_by_its_version(distributions: Path) -> None:
    """No path of the machine that built it, which the index would refuse."""
    for path in distributions.glob("alphafair-[0-9]*"):
        requirements = [Requirement(each) for each in metadata_of(path).get_all("Requires-Dist", [])]
        (client,) = (each for each in requirements if each.name == "alphafair-client")
        assert str(client) == f"alphafair-client=={alphafair.__version__}"
        assert [each for each in requirements if each.url] == []


def test_a_wheel_has_each_license_once(distributions: Path) -> None:
    for path in distributions.glob("*.whl"):
        found = {name: text for name, text in texts(path) if "LICEN" in name.upper()}
        own = (ROOT / "LICENSE").read_bytes()
        assert list(found.values()).count(own) == 1
        assert len({*found.values()}) == len(found), f"{path.name} has a license twice: {sorted(found)}"
        assert metadata_of(path)["License-Expression"] == "MIT"


def test_a_wheel_works_where_it_is_installed(distributions: Path, tmp_path: Path) -> None:
    """No network, and no repository: the packages of this environment, and both wheels before them."""
    environment = tmp_path / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    (site,) = environment.glob("lib/python*/site-packages")
    for wheel in distributions.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(site)
    borrowed = [line for line in sys.path if line.endswith("site-packages")]
    (site / "borrowed.pth").write_text("\n".join(borrowed))
    script = tmp_path / "try_it.py"
    script.write_text(wheels.DECIDE)
    done = wheels.run(environment / "bin" / "python", "-P", script, cwd=tmp_path, ALPHAFAIR_JIT="auto")
    assert done.returncode == 0, done.stderr


def test_a_copy_without_git_is_built_as_well(tmp_path: Path) -> None:
    (tmp_path / "tree" / "__pycache__").mkdir(parents=True)
    (tmp_path / "tree" / "module.py").touch()
    build_release.export(tmp_path / "copy", tmp_path / "tree")
    assert [path.name for path in (tmp_path / "copy").iterdir()] == ["module.py"]


# Its automation


def schema_of(path: Path) -> str:
    if path.parent.name == "workflows":
        return "vendor.github-workflows"
    if path.parent.name == "ISSUE_TEMPLATE":
        return "vendor.github-issue-config" if path.stem == "config" else "vendor.github-issue-forms"
    return {
        "dependabot": "vendor.dependabot",
        "CITATION": "vendor.citation-file-format",
        "compose": "vendor.compose-spec",
    }[path.stem]


def checked_files() -> dict[str, list[Path]]:
    """Every YAML file, by its schema."""
    found: dict[str, list[Path]] = {"custom.github-workflows-require-timeout": WORKFLOWS}
    for path in (*sorted(GITHUB.rglob("*.yml")), ROOT / "CITATION.cff", *ROOT.glob("compose.yaml")):
        found.setdefault(schema_of(path), []).append(path)
    return found


def check_schema(schema: str, files: list[Path]) -> Result:
    words = ["--builtin-schema", schema, "--force-filetype", "yaml", *map(str, files)]
    return CliRunner().invoke(check_jsonschema.main, words)


@pytest.mark.parametrize(("schema", "files"), checked_files().items(), ids=checked_files())
def test_automation_follows_its_schema(schema: str, files: list[Path]) -> None:
    done = check_schema(schema, files)
    assert done.exit_code == 0, done.output


def test_a_workflow_with_a_wrong_key_is_found(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yml"
    wrong.write_text(WORKFLOWS[0].read_text().replace("runs-on:", "runs-at:"))
    assert check_schema("vendor.github-workflows", [wrong]).exit_code == 1


def jobs() -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    for path in WORKFLOWS:
        workflow = yaml.safe_load(path.read_text())
        for name, job in workflow["jobs"].items():
            yield f"{path.stem}, {name}", workflow, job


def test_workflows_may_read_and_only_publishing_may_ask_for_more() -> None:
    more = {}
    for name, workflow, job in jobs():
        assert workflow["permissions"] == {"contents": "read"}, name
        if "permissions" in job:
            more[name] = job["permissions"]
        assert "secrets." not in str(job), name
    assert more == {"release, publish": {"id-token": "write"}}


def test_actions_are_pinned_to_a_major_version() -> None:
    used = [step["uses"] for _, _, job in jobs() for step in job.get("steps", []) if "uses" in step]
    assert used
    assert [each for each in used if not re.fullmatch(r"[\w-]+/[\w-]+@(v|release/v)\d+", each)] == []
    for name, _, job in jobs():
        for step in job.get("steps", []):
            if step.get("uses", "").startswith("actions/checkout@"):
                assert step["with"]["persist-credentials"] is False, name


def test_workflows_run_what_the_guides_name() -> None:
    """`make` and its targets, or .ci/run: what fails there fails for everybody."""
    targets = {*re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)}
    commands = [step["run"] for _, _, job in jobs() for step in job.get("steps", []) if "run" in step]
    made = {command.split()[1] for command in commands if command.startswith("make ")}
    assert {"pythons", "dist", "docs"} <= made <= targets
    others = [command for command in commands if not command.startswith(("make ", "git config"))]
    assert others == [".ci/run"]
    assert (ROOT / ".ci" / "run").exists()
    assert "make test" in (ROOT / ".ci" / "run").read_text()


def test_the_pythons_of_workflows_are_those_of_the_classifiers() -> None:
    matrices = [job["strategy"]["matrix"]["python"] for _, _, job in jobs() if "strategy" in job]
    assert len(matrices) == 2
    assert all(matrix == wheels.PYTHONS for matrix in matrices)


def test_hooks_run_what_make_check_runs() -> None:
    recipe = re.search(r"^check:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert recipe is not None
    lines = [line.strip().replace("$(BIN)/", ".venv/bin/") for line in recipe[1].splitlines()]
    style = [line for line in lines if line.startswith(".venv/bin/") and "python" not in line]
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert repository["repo"] == "local", "nothing is downloaded"
    assert [hook["entry"] for hook in repository["hooks"]] == style != []
    assert {hook["language"] for hook in repository["hooks"]} == {"system"}
    assert not any(hook["pass_filenames"] for hook in repository["hooks"])
