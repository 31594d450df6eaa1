"""One service for the tests of a file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.serving import Running, running


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory, _store_of_run: None) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("client") / "shop.db") as found:
        yield found
