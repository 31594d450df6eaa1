"""The shops of the tests of the page, one of them with keys, and what is asked of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from alphafair.service import keys
from tests.serving import ARMS, Running, running


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path / "shop.db") as shop:
        shop.engine.create("home", arms=ARMS, alpha=0.9)
        yield shop


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[tuple[Running, dict[str, str]]]:
    """A service with a key of every role, and one that is limited to another experiment."""
    path = tmp_path / "locked.db"
    tokens = {role: keys.create(path, role, f"the {role}") for role in keys.ROLES}
    tokens["elsewhere"] = keys.create(path, "admin", "elsewhere", experiments=["other"])
    with running(path) as shop:
        shop.engine.create("home", arms=ARMS)
        shop.engine.create("other", arms=ARMS)
        yield shop, tokens
