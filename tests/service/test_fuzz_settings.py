"""A short run of the fuzzer of settings, on both stores."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz_settings import world
from tests.postgres import Server

pytestmark = pytest.mark.compiled
ROUNDS = 8


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_what_is_accepted_can_be_read(store: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    address: str | Path = tmp_path / "shop.db"
    if store == "postgres":
        server: Server = request.getfixturevalue("postgres_server")
        address = server.url()
    statuses, complaints = world(address, "1", ROUNDS)
    assert not complaints
    assert {200, 201, 422} <= set(statuses)
