"""An engine on the store of the run, by a clock that tests move."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from alphafair import Engine
from tests.clocks import Clock
from tests.stores import open_store


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "shop.db"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def engine(path: Path, clock: Clock) -> Iterator[Engine]:
    engine = Engine(open_store(path), seed=1, clock=clock)
    yield engine
    engine.close()
