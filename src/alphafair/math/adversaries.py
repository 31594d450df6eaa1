"""Adversaries that see the distribution of a round, but not the draw, before they set the rewards with `react`.

    state (context, row, arm):   LEVEL, the current reward · TALLY, a sum or a count · VISITS, one number, in arm 0

settled    after every 1,000 rounds of a context, the arm with the largest sum of p over them, among those not lowered
           yet, pays 0.05 permanently; two arms are never lowered
largest    the arm of the largest p pays 0.05 in this round
halving    an arm that had the largest p in 60 rounds of a context has its level halved; levels are then divided by
           the largest
"""

import numpy as np

from alphafair.jit import kernel

SETTLED, LARGEST, HALVING = 0, 1, 2
LEVEL, TALLY, VISITS, ROWS = 0, 1, 2, 3
LOWERED = 0.05
SETTLING = 1000.0  # rounds of a context
PATIENCE = 60.0  # rounds of a context
LEAST_LEVEL = 0.01


def first_state(levels: np.ndarray) -> np.ndarray:
    state = np.zeros((levels.shape[0], ROWS, levels.shape[1]))
    state[:, LEVEL] = levels
    return state


@kernel
def favorite(probabilities):
    """Return the arm with the largest p, the first of several."""
    best = 0
    for i in range(probabilities.shape[0]):
        if probabilities[i] > probabilities[best]:
            best = i
    return best


@kernel
def lower_settled(level, tally, visits, probabilities):
    """Sum p, and when it is time, lower the favorite among the other arms."""
    visits[0] += 1.0
    for i in range(level.shape[0]):
        tally[i] += probabilities[i]
    if visits[0] % SETTLING > 0.0:
        return
    best, n_left = -1, 0
    for i in range(level.shape[0]):
        if level[i] > LOWERED:
            n_left += 1
            if best < 0 or tally[i] > tally[best]:
                best = i
    if n_left > 2:
        level[best] = LOWERED
    for i in range(level.shape[0]):
        tally[i] = 0.0


@kernel
def halve(level, tally, best):
    """Halve the level of an arm that was the favorite often enough, and rescale the best level to 1."""
    tally[best] += 1.0
    if tally[best] < PATIENCE:
        return
    tally[best] = 0.0
    level[best] *= 0.5
    top = 0.0
    for i in range(level.shape[0]):
        top = max(top, level[i])
    for i in range(level.shape[0]):
        level[i] = max(LEAST_LEVEL, level[i] / top)


@kernel
def react(kind, state, context, probabilities, table, t):
    """Write the rewards of round t; a settled favorite is lowered from the next round of the context on."""
    level, tally = state[context, LEVEL], state[context, TALLY]
    best = favorite(probabilities)
    if kind == HALVING:
        halve(level, tally, best)
    for i in range(level.shape[0]):
        table[t, i] = level[i]
    if kind == LARGEST:
        table[t, best] = LOWERED
    if kind == SETTLED:
        lower_settled(level, tally, state[context, VISITS], probabilities)
