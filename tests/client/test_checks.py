"""Checks of numbers that both the clients and the engine make, with NumPy's numbers and without."""

from __future__ import annotations

import numpy as np
import pytest

from alphafair_client import checks
from alphafair_client.answers import InvalidArgument


def test_flags_are_no_numbers() -> None:
    assert all(map(checks.is_bool, (True, False, np.True_, np.zeros(1, dtype=bool))))
    assert not any(map(checks.is_bool, (0, 1.0, np.int64(1), np.float64(0.0), None, "b")))
    with pytest.raises(InvalidArgument, match=r"n must be an integer of at least 0; got True"):
        checks.integer("n", True, low=0)


def test_ends_are_open_or_closed() -> None:
    assert (checks.integer("n", np.int8(3), low=3, high=3), checks.number("x", np.float32(0.5), low=0.5, high=1)) == (
        3,
        0.5,
    )
    for value in (2, 4, 3.0, "3", None):
        with pytest.raises(InvalidArgument, match=r"n must be an integer in \[3, 3\]"):
            checks.integer("n", value, low=3, high=3)
    for value in (0.0, 1.0, float("nan"), 10**400, "0.5"):
        with pytest.raises(InvalidArgument, match=r"x must be a number in \(0, 1\)"):
            checks.number("x", value, low=0.0, high=1.0, low_open=True, high_open=True)
