"""The JavaScript client: what is generated is committed, and works in Node with the real service."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from alphafair.service import javascript
from tests import ROOT
from tests.misbehaving import cutting
from tests.serving import ARMS, Running

TESTS = ROOT / "tests" / "client" / "javascript"
FOLDER = ROOT / "clients" / "javascript"
README = FOLDER / "README.md"


def node(*arguments: str | Path, **environment: str) -> str:
    if shutil.which("node") is None:
        if os.environ.get("CI"):
            pytest.fail("node is missing")
        pytest.skip("node is missing")
    done = subprocess.run(
        ["node", *arguments], capture_output=True, text=True, timeout=120, env={**os.environ, **environment}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_committed_files_are_what_is_generated(tmp_path: Path) -> None:
    """If not: python -m alphafair.service.javascript"""
    for name in ("core.js", "package.json"):
        shutil.copy(FOLDER / name, tmp_path)
    javascript.main(tmp_path)
    for name in ("alphafair.js", "alphafair.d.ts", "package.json"):
        assert (FOLDER / name).read_text() == (tmp_path / name).read_text(), "python -m alphafair.service.javascript"


@pytest.mark.compiled
def test_it_works_with_the_service(shop: Running) -> None:
    with cutting(shop.port, 1, cut=0.5, most_bytes=2000) as proxy:
        node(
            "--test", TESTS / "service.test.js", URL_OF_SERVICE=shop.url, URL_OF_PROXY=f"http://127.0.0.1:{proxy.port}"
        )
    assert proxy.n_cut > 10
    shop.engine.verify()


def test_in_an_outage_it_falls_back() -> None:
    node("--test", TESTS / "outage.test.js")


@pytest.mark.compiled
def test_the_example_of_its_readme_works(shop: Running, tmp_path: Path) -> None:
    shop.engine.create("home", arms=ARMS)
    (example,) = re.findall(r"```js\n(.*?)```", README.read_text(), re.DOTALL)
    (tmp_path / "example.mjs").write_text(example.replace("http://127.0.0.1:8000", shop.url))
    shutil.copy(FOLDER / "alphafair.js", tmp_path / "alphafair.mjs")
    (tmp_path / "example.mjs").write_text(
        (tmp_path / "example.mjs").read_text().replace("./alphafair.js", "./alphafair.mjs")
    )
    arm, _ = node(tmp_path / "example.mjs").split()
    assert arm in ARMS
    assert shop.engine.experiment("home").rewards == 1


def test_its_types_are_those_of_the_calls(tmp_path: Path) -> None:
    compiler = Path(sys.prefix) / "generators" / "node_modules" / ".bin" / "tsc"
    if not compiler.exists():
        pytest.skip("make .venv/installed-generators")
    use = (
        f'import {{ Client }} from "{FOLDER}/alphafair.js";\n'
        "const client = new Client(undefined, { fallback: (name, context) => context });\n"
        'const arm: string = (await client.decide("home", { context: "v" })).arm;\n'
        'const arms: string[] = (await client.decide("home", { context: "v", k: 2 })).arms;\n'
        'const text: string = await (await client.log("home", {})).text();\n'
        "// @ts-expect-error\n"
        'await client.reward("home", { id: arm, rewards: arms });\n'
    )
    (tmp_path / "use.mts").write_text(use)
    options = ["--noEmit", "--strict", "--target", "es2022", "--module", "nodenext", "--lib", "es2022,dom"]
    done = subprocess.run([compiler, *options, tmp_path / "use.mts"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
