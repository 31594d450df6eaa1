"""Policies and streams that fit: what a constructor asks for that a stream tells, and features."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from alphafair.errors import InvalidArgument
from alphafair.values import Policy, Stream


def accepted(maker: Callable[..., Any], offered: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the offered settings that the maker has parameters for."""
    parameters = inspect.signature(maker).parameters
    return {name: value for name, value in offered.items() if name in parameters}


def known_settings(kind: type[Policy], stream: Stream, alpha: float) -> dict[str, Any]:
    """alpha, the horizon and how often each context comes, as far as the policy asks for them."""
    visits = np.bincount(stream.contexts, minlength=stream.n_contexts)
    frequencies = (visits / stream.n_rounds).tolist()
    return accepted(kind, {"alpha": alpha, "horizon": stream.n_rounds, "context_weights": frequencies})


def matching_features(
    policy: Policy, argument: str, features: NDArray[np.float64] | None, n_arms: int
) -> NDArray[np.float64] | None:
    """The features of all rounds, if the policy asks for any; refused if they are not what it asks for."""
    if policy.n_features == 0:
        return None
    own = len(policy.feature_shape) == 2
    wanted = (n_arms, policy.n_features) if own else (policy.n_features,)
    if features is None or features.shape[1:] != wanted:
        got = "none" if features is None else f"shape {features.shape[1:]}"
        raise InvalidArgument(argument, f"with features of shape {wanted} per round", got, "Match n_features.")
    return features
