"""Where things stand: every row of memory begins with a few heads, which are scalars, and then has a column per arm.

    row[RATE], row[ROUNDS], ...     the heads of a row, by name
    row[ARMS:]                      its arms

A policy's memory is two arrays of such rows, `shared` and `learners`; each policy's file names its rows and heads.
Arms that come are columns at the end, arms that go are columns left out: see `rearranged`.

`work` is no memory: its first row holds the policy's settings as numbers, the others are scratch.
"""

import numpy as np

ARMS = 4  # heads come first, so that arms can be added at the end
SETTINGS = 0  # the row of `work` that is not scratch
MOST_SETTINGS = 16


def blank(n_rows: int, n_arms: int) -> np.ndarray:
    """Rows of zeros, heads and arms."""
    return np.zeros((n_rows, ARMS + n_arms))


def blank_work(n_scratch_rows: int, n_arms: int, *settings: float) -> np.ndarray:
    """The settings, in the order of their names, and room to calculate in."""
    work = np.zeros((1 + n_scratch_rows, max(n_arms, MOST_SETTINGS)))
    work[SETTINGS, : len(settings)] = settings
    return work


def rearranged(blocks: np.ndarray, kept: np.ndarray, n_new: int) -> np.ndarray:
    """The same rows with the arms that stay, in their order, and zeros for new ones after them."""
    heads, arms = blocks[..., :ARMS], blocks[..., ARMS:]
    return np.concatenate([heads, arms[..., kept], np.zeros((*blocks.shape[:-1], n_new))], axis=-1)
