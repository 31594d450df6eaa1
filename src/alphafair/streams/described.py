"""Seeded synthetic streams with features, in which the mean rewards of arms are functions of the features."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from alphafair import validate
from alphafair.errors import InvalidArgument
from alphafair.values import Matrix, Stream

KINDS = ("linear", "changing", "quadratic", "clusters", "clicks")
N_CLUSTERS = 12  # of the kind "clusters"; not visible to policies
SPREAD, NOISE = 0.15, 0.2  # of means around 1/2, and of rewards around their means
CLICKS = -4.0  # the logarithm of the odds of a click where the signal is 0


def described(
    kind: str,
    n_rounds: int,
    n_arms: int,
    n_features: int,
    *,
    features_of: Literal["context", "arms"] = "context",
    seed: int = 0,
) -> Stream:
    """Make rounds of one context with normal features z; a reward is its mean plus noise, uniform in [-0.2, 0.2].

    An arm's mean is 1/2 + b + 0.15 s(z), clipped to [0.2, 0.8], b uniform in [-0.1, 0.1] per arm. The kind sets s:

    - `"linear"`: theta.z, with a unit vector theta per arm, or one for all arms if arms have features of their own;
    - `"changing"`: the same, with new thetas in the second half of the run;
    - `"quadratic"`: a linear and a quadratic form, scaled to equal variances;
    - `"clusters"`: z is scattered around one of 12 hidden centers, and s is normal, per center and arm;
    - `"clicks"`: theta.z, but rewards are 1 or 0, and an arm's mean is the logistic function of -4 + 5 b + s(z): rates
      are about 3% on average.

    >>> stream = described("linear", n_rounds=100, n_arms=3, n_features=2, seed=1)
    >>> stream.features.shape, stream.n_contexts, stream.rewards(0).round(3).tolist()
    ((100, 2), 1, [0.226, 0.591, 0.521])
    """
    features, means, rng = _world(kind, n_rounds, n_arms, n_features, features_of, seed)
    if kind == "clicks":
        rewards = (rng.random(means.shape) < means).astype(np.float64)
    else:
        rewards = means + rng.uniform(-NOISE, NOISE, means.shape)
    return Stream.from_arrays(np.zeros(len(means), dtype=np.int32), rewards, features=features)


def described_means(kind: str, n_rounds: int, n_arms: int, n_features: int, **options: Any) -> Matrix:
    """Return the mean rewards of `described` by round and arm. The arguments are the same.

    >>> bool(np.abs(described("linear", 100, 3, 2).reward_table - described_means("linear", 100, 3, 2)).max() <= 0.2)
    True
    """
    settings = {"features_of": "context", "seed": 0, **options}
    return _world(kind, n_rounds, n_arms, n_features, **settings)[1]


def _world(
    kind: str, n_rounds: int, n_arms: int, n_features: int, features_of: str, seed: int
) -> tuple[Matrix, Matrix, np.random.Generator]:
    """Return features, means, and the generator that drew them."""
    kind = validate.choice("kind", kind, KINDS)
    n_rounds = validate.integer("n_rounds", n_rounds, low=1)
    n_arms = validate.integer("n_arms", n_arms, low=1)
    n_features = validate.integer("n_features", n_features, low=1)
    own = validate.choice("features_of", features_of, ("context", "arms")) == "arms"
    if own and kind not in ("linear", "changing"):
        raise InvalidArgument("kind", "'linear' or 'changing' with features_of='arms'", kind, "Use one of these kinds.")
    rng = np.random.default_rng([8, KINDS.index(kind), int(own), validate.integer("seed", seed, low=0)])
    level = rng.uniform(-0.1, 0.1, n_arms)
    z = rng.normal(size=(n_rounds, n_arms, n_features) if own else (n_rounds, n_features))
    signal = _linear(rng, z, n_arms)
    if kind == "changing":
        signal[n_rounds // 2 :] = _linear(rng, z[n_rounds // 2 :], n_arms)
    elif kind == "quadratic":
        forms = rng.normal(size=(n_arms, n_features, n_features))
        bent = np.einsum("tk,nkl,tl->tn", z, forms, z) - np.trace(forms, axis1=1, axis2=2)
        scale = np.sqrt(((forms + forms.transpose(0, 2, 1)) ** 2).sum(axis=(1, 2)) / 2.0)
        signal = (signal + bent / scale) / np.sqrt(2.0)
    elif kind == "clusters":
        centers, place = 2.5 * _directions(rng, N_CLUSTERS, n_features), rng.integers(0, N_CLUSTERS, n_rounds)
        z, signal = centers[place] + 0.5 * z, rng.normal(size=(N_CLUSTERS, n_arms))[place]
    if kind == "clicks":
        return z, 1.0 / (1.0 + np.exp(-(CLICKS + 5.0 * level + signal))), rng
    return z, np.clip(0.5 + level + SPREAD * signal, NOISE, 1.0 - NOISE), rng


def _linear(rng: np.random.Generator, z: Matrix, n_arms: int) -> Matrix:
    """Return theta.z of every arm, with one theta per arm, or one for all if every arm has its own z.

    Products are added one feature after the other: a matrix product depends on the processor in its last digits.
    """
    thetas = _directions(rng, 1 if z.ndim == 3 else n_arms, z.shape[-1])
    rounds = z if z.ndim == 3 else z[:, None]
    signal = np.zeros((len(z), n_arms))
    for k in range(z.shape[-1]):
        signal += rounds[..., k] * thetas[:, k]
    return signal


def _directions(rng: np.random.Generator, n: int, n_features: int) -> Matrix:
    """Draw unit vectors."""
    drawn = rng.normal(size=(n, n_features))
    return np.asarray(drawn / np.linalg.norm(drawn, axis=1, keepdims=True))
