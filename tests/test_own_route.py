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
import alphafair_client

GUIDE = Path(__file__).parents[1] / "CONTRIBUTING.md"
PACKAGES = [Path(each.__file__).parent for each in (alphafair, alphafair_client)]
STEP = re.compile(r"^\d\. `(?:client/)?src/([\w/]+\.py)`.*?^   ```python\n(.*?)^   ```$", re.DOTALL | re.MULTILINE)
ABOVE = {"api": "\nENDPOINTS: Final", "client": "\n\ndef _signature("}  # where code goes; else at the end
USE = """
import sys
from pathlib import Path

import alphafair
from alphafair.service import keys
from alphafair_client import client
from tests.serving import running

folder = Path(sys.argv[1])
assert Path(alphafair.__file__).is_relative_to(folder)
assert Path(client.__file__).is_relative_to(folder)
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
        assert http.arms("home") == ["ada", "ben"]
"""


def test_the_route_of_the_guide_works(tmp_path: Path) -> None:
    for package in PACKAGES:
        shutil.copytree(package, tmp_path / package.name, ignore=shutil.ignore_patterns("__pycache__"))
    section = GUIDE.read_text(encoding="utf-8").partition("## Add a route")[2].partition("\n## ")[0]
    steps = {file: textwrap.dedent(code) for file, code in STEP.findall(section)}
    assert [Path(file).stem for file in steps] == ["api", "handlers", "client"]
    for file, code in steps.items():
        path = tmp_path / file
        before, above, after = path.read_text(encoding="utf-8").partition(ABOVE.get(path.stem, "\0"))
        code = textwrap.indent(code, "    ") if path.stem == "client" else code
        path.write_text(f"{before}\n{code}{above}{after}", encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{GUIDE.parent}", "ALPHAFAIR_JIT": "off"}
    command = [sys.executable, "-W", "error", "-c", USE, str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
