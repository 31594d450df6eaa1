"""The route of CONTRIBUTING.md in a copy of the package, added as the page says: it is found everywhere."""

from __future__ import annotations

from pathlib import Path

from tests.recipes import Place, play, run

PLACES = (Place("\nENDPOINTS: Final"), Place(), Place("\n\ndef _signature(", "    "))
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
    files = play(tmp_path, "Add a route", PLACES)
    assert {Path(file).stem for file in files} == {"api", "handlers", "client"}
    run(tmp_path, USE)
