"""Types of arrays, read-only views, and names for the cells of an array."""

import re
from collections import namedtuple
from typing import Any

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Indices = NDArray[np.int32]


def frozen(array: NDArray[Any]) -> NDArray[Any]:
    """Return a read-only view."""
    view = array.view()
    view.setflags(write=False)
    return view


def positions(*names: Any) -> Any:
    """Name the cells of an array: `numbers[N.lead]` in place of `numbers[37]`.

    Returns a NamedTuple of consecutive positions. `"gram[3]"` takes three cells; the positions of another call may come
    first. `size` is the number of cells, `widths` the number of cells of each name. A position costs as much as a
    literal number, compiled or not.

    >>> N = positions("rounds", "gram[3]", "lead")
    >>> N.rounds, N.gram, N.lead, N.size
    (0, 1, 4, 5)
    >>> M = positions(N, "drift")      # the same cells, and one more
    >>> M.lead, M.drift
    (4, 5)
    """
    widths: dict[str, int] = {}
    for name in names:
        if isinstance(name, str):
            matched = re.fullmatch(r"(\w+)(?:\[([0-9]+)\])?", name)
            assert matched is not None, f"{name!r} is neither a name nor name[width]"
            added = {matched[1]: int(matched[2] or 1)}
        else:
            assert not widths, "other positions must come first"
            added = dict(name.widths)
        assert not widths.keys() & added.keys(), f"repeated names: {sorted(widths.keys() & added.keys())}"
        widths |= added
    starts, size = [], 0
    for width in widths.values():
        starts.append(size)
        size += width
    kind = type("Positions", (namedtuple("Positions", widths),), {"size": size, "widths": widths, "__slots__": ()})
    return kind(*starts)
