"""The route of CONTRIBUTING.md in a copy of the package, added as the page says: it is found everywhere."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import alphafair

GUIDE = Path(__file__).parents[1] / "CONTRIBUTING.md"
PACKAGE = Path(alphafair.__file__).parent
STEP = re.compile(r"^\d\. `src/(alphafair/service/\w+\.py)`.*?^   ```python\n(.*?)^   ```$", re.DOTALL | re.MULTILINE)
USE = """
import sys
from pathlib import Path

import alphafair
from alphafair.service import client, keys, routes
from tests.serving import running

folder = Path(sys.argv[1])
assert Path(alphafair.__file__).is_relative_to(folder)
client._Calls.arms = lambda self, name: client._call(self._terms(None), routes.ARMS, name=name)
client.Client.arms = client._blocking(client._Calls.arms)
path = folder / "shop.db"
token = keys.create(path, "read", "me")
with running(path, ready=False) as shop:
    shop.engine.create("home", arms=["ada", "ben"])
    assert shop.http.get("/v1/experiments/home/arms").status_code == 401
    shop.http.headers["authorization"] = f"Bearer {token}"
    assert shop.http.get("/v1/experiments/home/arms").json() == {"arms": ["ada", "ben"]}
    assert shop.http.get("/v1/experiments/away/arms").status_code == 404
    assert shop.http.post("/v1/experiments/home/arms").headers["allow"] == "GET, HEAD, OPTIONS"
    description = shop.http.get("/openapi.json").json()
    assert description["paths"]["/v1/experiments/{name}/arms"]["get"]["operationId"] == "arms"
    assert "ArmsAnswer" in description["components"]["schemas"]
    assert "List its arms." in shop.http.get("/docs").text
    assert 'route="/v1/experiments/{name}/arms"' in shop.http.get("/metrics").text
    with alphafair.Client(shop.url, key=token) as http:
        assert http.arms("home").arms == ["ada", "ben"]
"""


def test_the_route_of_the_guide_works(tmp_path: Path) -> None:
    shutil.copytree(PACKAGE, tmp_path / "alphafair", ignore=shutil.ignore_patterns("__pycache__"))
    section = GUIDE.read_text(encoding="utf-8").partition("## Add a route")[2].partition("\n## ")[0]
    steps = {file: textwrap.dedent(code) for file, code in STEP.findall(section)}
    assert [Path(file).stem for file in steps] == ["messages", "handlers", "routes"]
    for file, code in steps.items():
        path = tmp_path / file
        before, above, after = path.read_text(encoding="utf-8").partition("\nROUTES = ")  # of routes.py
        path.write_text(f"{before}\n\n{code}{above}{after}", encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{GUIDE.parent}", "ALPHAFAIR_JIT": "off"}
    command = [sys.executable, "-W", "error", "-c", USE, str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
