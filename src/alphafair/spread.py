"""Labels that stand apart."""

from collections.abc import Sequence


def spread(positions: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """The nearest positions that stand at least a gap apart, in the same order, inside [low, high] if they fit.

    Neighbours that are too close become a block around their mean, and blocks that meet are merged.

    >>> spread([0.5, 0.5, 0.875], gap=0.125, low=0.0, high=1.0)
    [0.4375, 0.5625, 0.875]
    """
    order = sorted(range(len(positions)), key=lambda i: positions[i])
    blocks: list[list[float]] = []  # each [wanted start, number of members]
    room = max(low, high - gap * (len(positions) - 1))
    for rank, i in enumerate(order):
        blocks.append([positions[i] - rank * gap, 1.0])
        while len(blocks) > 1 and blocks[-2][0] >= blocks[-1][0]:
            start, members = blocks.pop()
            total = blocks[-1][1] + members
            blocks[-1] = [(blocks[-1][0] * blocks[-1][1] + start * members) / total, total]
    starts = [min(max(start, low), room) for start, members in blocks for _ in range(int(members))]
    placed = [0.0] * len(positions)
    for rank, i in enumerate(order):
        placed[i] = starts[rank] + rank * gap
    return placed
