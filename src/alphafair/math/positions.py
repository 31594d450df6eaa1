"""Names for the cells of an array: `numbers[N.lead]` in place of `numbers[37]`.

>>> N = positions("rounds", "gram[3]", "lead")
>>> N.rounds, N.gram, N.lead, N.size
(0, 1, 4, 5)
>>> M = positions(N, "drift")      # the same cells, and one more
>>> M.lead, M.drift
(4, 5)

Compiled or not, such a name costs as much as the number that it stands for.
"""

import re
from collections import namedtuple
from typing import Any


def positions(*names: Any) -> Any:
    """A NamedTuple of positions, one after the other: `"gram[3]"` takes three; earlier positions may come first.

    `size` is how many cells there are, `widths` how many belong to each name.
    """
    widths: dict[str, int] = {}
    for name in names:
        if isinstance(name, str):
            matched = re.fullmatch(r"(\w+)(?:\[(\d+)\])?", name)
            assert matched is not None, f"{name!r} is neither a name nor a name[width]"
            added = {matched[1]: int(matched[2] or 1)}
        else:
            assert not widths, "earlier positions come first, so that they mean the same cells"
            added = dict(name.widths)
        assert not widths.keys() & added.keys(), f"a name stands twice: {sorted(widths.keys() & added.keys())}"
        widths |= added
    starts, size = [], 0
    for width in widths.values():
        starts.append(size)
        size += width
    kind = type("Positions", (namedtuple("Positions", widths),), {"size": size, "widths": widths, "__slots__": ()})
    return kind(*starts)
