"""Cholesky factorization of a symmetric positive matrix, S = U'U, on its upper triangle.

Plain loops instead of LAPACK give the same bits on every machine and with the JIT off. They run over the rest of a row
from its first entry, which the compiler vectorizes.
"""

import math

import numpy as np

from alphafair.jit import kernel

BLOCK = 32  # rows per block, so that a large matrix is read once per block; a multiple of 4


@kernel
def subtract(v, first, last, low, s):
    """s[a, b] -= sum_r v[r, a] v[r, b] over first <= r < last, whole fours of rows, for low <= a <= b."""
    for a in range(low, s.shape[0]):
        row = s[a, a:]
        for r in range(first, last, 4):
            v0, v1, v2, v3 = v[r, a:], v[r + 1, a:], v[r + 2, a:], v[r + 3, a:]
            f0, f1, f2, f3 = v0[0], v1[0], v2[0], v3[0]
            for b in range(row.shape[0]):
                row[b] -= (f0 * v0[b] + f1 * v1[b]) + (f2 * v2[b] + f3 * v3[b])


@kernel
def factor(s):
    """s = U'U, by Cholesky, upper triangle in place, block by block."""
    n = s.shape[0]
    for first in range(0, n, BLOCK):
        last = min(first + BLOCK, n)
        for k in range(first, last):
            row = s[k, k:]
            for r in range(first, k):
                above, times = s[r, k:], s[r, k]
                for b in range(row.shape[0]):
                    row[b] -= times * above[b]
            pivot = row[0]
            scale = 1.0 / math.sqrt(pivot) if pivot > 0.0 else 0.0
            for b in range(row.shape[0]):
                row[b] *= scale
            if not pivot > 0.0:  # zero up to rounding: this unknown stays 0
                row[0] = np.inf
        if last < n:
            subtract(s, first, last, last, s)


@kernel
def solve(u, y):
    """U'U y' = y, in place."""
    n = u.shape[0]
    for k in range(n):
        y[k] /= u[k, k]
        row, rest, known = u[k, k + 1 :], y[k + 1 :], y[k]
        for b in range(row.shape[0]):
            rest[b] -= known * row[b]
    for k in range(n - 1, -1, -1):
        for b in range(k + 1, n):
            y[k] -= u[k, b] * y[b]
        y[k] /= u[k, k]
