"""Clients that others generate from /openapi.json: three generators accept it, and what they make works.

`make .venv/installed-generators` installs them. Without them the tests are skipped; where `CI` is set, that is a
failure.
"""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from alphafair.service import keys
from tests.serving import ARMS, Running, running

pytestmark = pytest.mark.compiled

GENERATORS = Path(sys.prefix) / "generators"
USE = """
import sys

from generated import AuthenticatedClient
from generated.api.decisions_and_rewards import decide, reward
from generated.api.experiments import create, experiment
from generated.api.the_page import live
from generated.models import DecisionRequest, ErrorAnswer, NewExperiment, RewardRequest

client = AuthenticatedClient(base_url=sys.argv[1], token=sys.argv[2], raise_on_unexpected_status=True)
made = create.sync(client=client, body=NewExperiment(name="home", arms=["ada", "ben", "cyd"], alpha=0.5))
assert made.arms == ["ada", "ben", "cyd"], made
drawn = decide.sync("home", client=client, body=DecisionRequest(context="visitor-7", id="one"))
assert drawn.arm in made.arms and 0.0 < drawn.propensity <= 1.0, drawn
assert reward.sync("home", client=client, body=RewardRequest(id="one", reward=0.5)).outcome == "applied"
shown = experiment.sync("home", client=client)
assert shown.cumulative_rewards[drawn.arm] == 0.5, shown
unknown = reward.sync("home", client=client, body=RewardRequest(id="two", reward=0.5))
assert isinstance(unknown, ErrorAnswer) and unknown.error.code == "unknown_decision", unknown
again = create.sync_detailed(client=client, body=NewExperiment(name="home", arms=["ada"]))
assert (again.status_code, again.parsed.error.code) == (409, "experiment_exists"), again
"""


def generate(tool: str, *options: str | Path) -> None:
    path = GENERATORS / tool
    if not path.exists():
        sentence = "The generators are not installed, or npm was missing then: make .venv/installed-generators"
        if os.environ.get("CI"):
            pytest.fail(sentence)
        pytest.skip(sentence)
    done = subprocess.run([path, *options], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Running]:
    token = keys.create(tmp_path / "shop.db", "admin", "me")
    with running(tmp_path / "shop.db", ready=False) as found:
        found.http.headers["authorization"] = f"Bearer {token}"
        yield found


@pytest.fixture
def description(shop: Running, tmp_path: Path) -> Path:
    path = tmp_path / "openapi.json"
    path.write_bytes(shop.http.get("/openapi.json").content)
    return path


def test_a_generated_python_client_works(shop: Running, description: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"post_hooks": []}')
    options = ["--meta", "none", "--fail-on-warning", "--config", tmp_path / "config.json"]
    folder = tmp_path / "generated"
    generate("bin/openapi-python-client", "generate", "--path", description, "--output-path", folder, *options)
    python = GENERATORS / "bin" / "python"
    token = shop.http.headers["authorization"].removeprefix("Bearer ")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([python, "-c", USE, shop.url, token], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr


def test_generated_models_read_the_answers(
    shop: Running, description: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ["--input-file-type", "openapi", "--output-model-type", "msgspec.Struct", "--formatters", "builtin"]
    generate("bin/datamodel-codegen", "--input", description, "--output", tmp_path / "generated_models.py", *options)
    monkeypatch.syspath_prepend(str(tmp_path))
    models = vars(importlib.import_module("generated_models"))
    shop.engine.create("home", arms=ARMS)
    shop.engine.retire_arm("home", "cyd")
    for path, name in [("/v1/experiments/home", "ExperimentAnswer"), ("/experiments/home/live.json", "LiveAnswer")]:
        read = msgspec.json.decode(shop.http.get(path).content, type=models[name])
        assert read


def test_typescript_has_the_types(description: Path, tmp_path: Path) -> None:
    generate("node_modules/.bin/openapi-typescript", description, "--output", tmp_path / "schema.ts")
    found = (tmp_path / "schema.ts").read_text()
    assert '"/v1/experiments/{name}/decisions": {' in found
    assert re.search(r"live_spans: \[\s*number,\s*number \| null\s*\]\[\];", found)
