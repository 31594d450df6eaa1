"""Whether a stream or a log fits a policy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from alphafair.errors import InvalidArgument
from alphafair.values import Policy


def fits(policy: Policy, argument: str, n_contexts: int, n_arms: int) -> None:
    """Raise for more contexts or arms than the policy has."""
    if n_contexts > policy.n_contexts or n_arms > policy.n_arms:
        allowed = f"limited to at most {policy.n_contexts} contexts and {policy.n_arms} arms"
        repair = f"Call policy.grow({max(n_contexts, policy.n_contexts)}, {max(n_arms, policy.n_arms)}) first."
        raise InvalidArgument(argument, allowed, [n_contexts, n_arms], repair)


def matching_features(
    policy: Policy, argument: str, features: NDArray[np.float64] | None, n_arms: int
) -> NDArray[np.float64] | None:
    """Return the features of all rounds if the policy takes features, and check their shape."""
    if policy.n_features == 0:
        return None
    own = len(policy.feature_shape) == 2
    wanted = (n_arms, policy.n_features) if own else (policy.n_features,)
    if features is None or features.shape[1:] != wanted:
        got = "none" if features is None else f"shape {features.shape[1:]}"
        raise InvalidArgument(
            argument, f"with features of shape {wanted} per round", got, "Pass as many features as n_features."
        )
    return features
