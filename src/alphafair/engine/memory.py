"""How many contexts an experiment may have, by the memory that they take."""

from __future__ import annotations

from typing import Final

from alphafair.algorithms import BasePolicy

SHARE: Final = 0.5  # of the memory, for the contexts of all experiments
COPIES: Final = 5  # of what a context takes: at most as many while the state grows, is saved or is loaded
LABEL_BYTES: Final = 1_000  # of a label of 200 characters, and its place in the table of labels


def contexts_in(n_bytes: int, policy: BasePolicy) -> int:
    """How many contexts of a policy fit into so many bytes, in all that may be done with it; one at least."""
    return max(1, n_bytes // (COPIES * policy._bytes_per_context + LABEL_BYTES))
