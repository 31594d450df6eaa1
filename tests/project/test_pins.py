"""What an image is built from is pinned, and the check of it notices when something is not."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml

from tools.check_pins import ROOT, problems


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "requirements", tmp_path / "requirements")
    (tmp_path / "client").mkdir()
    for name in ("pyproject.toml", "client/pyproject.toml", "Dockerfile"):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def test_everything_is_pinned() -> None:
    assert list(problems()) == []


@pytest.mark.parametrize(
    ("file", "old", "new", "sentence"),
    [
        ("Dockerfile", "@sha256:", ":", "Dockerfile: python:3.11-slim:.* has no digest"),
        ("pyproject.toml", '"httptools>=0.6.3"', '"httptools>=99"', "httptools .* does not satisfy httptools>=99"),
        ("pyproject.toml", '"httptools>=0.6.3"', '"httptools>=0.6.3", "flask"', "flask is missing"),
        ("client/pyproject.toml", '"h11>=0.16"', '"h11>=99"', "h11 .* does not satisfy h11>=99"),
        ("requirements/build.txt", "hatchling==", "hatchling>=", "hatchling>=.* is not pinned to one version"),
        ("requirements/build.txt", "--hash=sha256:", "--hash=md5:", "hatchling needs SHA-256 hashes"),
    ],
)
def test_unpinned_packages_are_named(copy: Path, file: str, old: str, new: str, sentence: str) -> None:
    text = (copy / file).read_text()
    assert old in text
    (copy / file).write_text(text.replace(old, new))
    with pytest.raises(AssertionError, match=sentence):
        assert "\n".join(problems(copy)) == ""


def test_a_package_without_hashes_is_named(copy: Path) -> None:
    (copy / "requirements" / "build.txt").write_text("hatchling==1.33.0\n")
    assert list(problems(copy)) == [
        "requirements/build.txt: hatchling needs SHA-256 hashes, and no others. Run `make lock`."
    ]


def test_the_container_is_bounded_and_cannot_change_itself() -> None:
    service = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]["alphafair"]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["mem_limit"]
    assert service["pids_limit"]
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    (volume,) = service["volumes"]
    assert service["environment"]["SQLITE_TMPDIR"] == volume.partition(":")[2]  # else erasures would need memory
    (temporary,) = service["tmpfs"]
    assert "size=64m" in temporary
