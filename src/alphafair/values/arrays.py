"""What the arrays that travel between rooms are called."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Indices = NDArray[np.int32]


def frozen(array: NDArray[Any]) -> NDArray[Any]:
    """The same numbers, read-only."""
    view = array.view()
    view.setflags(write=False)
    return view
