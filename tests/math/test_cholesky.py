"""The factor behind the offline optimum, against NumPy's."""

from __future__ import annotations

import numpy as np
import pytest

from alphafair.math import cholesky


@pytest.mark.parametrize("size", [1, 2, 3, 31, 32, 33, 70])
def test_the_factor_and_its_solution_are_numpys(size: int) -> None:
    rng = np.random.default_rng(size)
    half = rng.normal(size=(size + 5, size))
    matrix = half.T @ half
    answer = rng.normal(size=size)
    upper, y = matrix.copy(), matrix @ answer
    cholesky.factor(upper)
    cholesky.solve(upper, y)
    np.testing.assert_allclose(np.triu(upper), np.linalg.cholesky(matrix).T, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(y, answer, rtol=1e-7, atol=1e-9)


def test_an_unknown_without_a_pivot_stays_zero() -> None:
    """Two columns that are the same: the second says nothing new."""
    upper, y = np.array([[4.0, 4.0, 2.0], [4.0, 4.0, 2.0], [2.0, 2.0, 5.0]]), np.array([8.0, 8.0, 7.0])
    cholesky.factor(upper)
    cholesky.solve(upper, y)
    np.testing.assert_allclose(y, [1.625, 0.0, 0.75], rtol=1e-12)


def test_subtracting_takes_the_upper_triangle_of_the_products() -> None:
    rng = np.random.default_rng(0)
    rows, square = rng.normal(size=(8, 11)), rng.normal(size=(11, 11))
    expected = square - rows[4:].T @ rows[4:]
    cholesky.subtract(rows, 4, 8, 3, square)
    inside = np.triu(np.ones((11, 11), bool)) & (np.arange(11)[:, None] >= 3)
    np.testing.assert_allclose(square[inside], expected[inside], rtol=1e-12, atol=1e-13)
