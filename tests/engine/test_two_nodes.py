"""Two nodes on one PostgreSQL: nothing acknowledged is lost or doubled, whatever breaks; see `tests/faults.py`."""

from __future__ import annotations

import os

import pytest

from tests import FULL, faults, postgres

pytestmark = pytest.mark.compiled


@pytest.fixture(autouse=True)
def server_is_installed() -> None:
    sentence = postgres.missing()
    if sentence is not None:
        if os.environ.get("CI"):
            pytest.fail(sentence)
        pytest.skip(sentence)


def test_nothing_acknowledged_is_lost_or_doubled() -> None:
    found = faults.run(20.0 if FULL else 12.0, seed=1)
    assert faults.is_sound(found), found
    assert found["acknowledged_decisions"] > 100, found
    assert sum(found["faults"].values()) >= (3 if FULL else 2), found


@pytest.mark.parametrize("control", faults.CONTROLS)
def test_the_checks_find_errors(control: str) -> None:
    """Nodes that append without the condition, or that answer before they write."""
    found = faults.run(8.0, seed=2, control=control)
    assert not faults.is_sound(found), found
    if control == "early":
        assert found["lost"] > 0, found
    else:
        assert found["verified"].startswith("failed: "), found
