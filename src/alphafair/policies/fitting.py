"""Making policies for a stream: whatever the stream tells that a constructor asks for."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from alphafair.types import Policy, Stream


def accepted(maker: Callable[..., Any], offered: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the offered settings that the maker has parameters for."""
    parameters = inspect.signature(maker).parameters
    return {name: value for name, value in offered.items() if name in parameters}


def known_settings(kind: type[Policy], stream: Stream, alpha: float) -> dict[str, Any]:
    """alpha, the horizon and how often each context comes, as far as the policy asks for them."""
    visits = np.bincount(stream.contexts, minlength=stream.n_contexts)
    frequencies = (visits / stream.n_rounds).tolist()
    return accepted(kind, {"alpha": alpha, "horizon": stream.n_rounds, "context_weights": frequencies})
