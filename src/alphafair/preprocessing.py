"""Prepare data for policies: rewards in [floor, 1], and clusters of features as contexts (alphafair[features])."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from alphafair import validate
from alphafair.errors import InvalidArgument
from alphafair.extras import needed_by
from alphafair.values import Matrix, Stream, Vector, frozen


def rescale_rewards(rewards: ArrayLike, low: float, high: float, *, floor: float = 0.2) -> Vector:
    """Map rewards of a known range [low, high] onto [floor, 1], in a straight line.

    The fair policies take rewards in [0, 1]. Their guarantee is proved for rewards above a positive floor: with exact
    zeros an arm may never earn anything, and its weight has no bound. Use a floor if zeros are common (clicks,
    purchases); the experiments of the paper use 0.2. Use `floor=0` if rewards are already bounded away from zero, or if
    zeros must stay zeros.

    Returns a float for a float, an array of the same shape for an array. The order of rewards does not change.

    >>> rescale_rewards([0, 2.5, 5], 0, 5).round(6).tolist()
    [0.2, 0.6, 1.0]
    >>> float(rescale_rewards(4.0, 0.5, 5.0))
    0.8222222222222222
    """
    low = validate.number("low", low, low=-math.inf, high=math.inf)
    high = validate.number("high", high, low=low, high=math.inf, low_open=True)
    floor = validate.number("floor", floor, low=0.0, high=1.0, high_open=True)
    allowed = f"numbers in [{low:g}, {high:g}]"
    values = validate.floats("rewards", allowed, rewards, "Pass floats.")
    inside = (values >= low) & (values <= high)
    validate.every("rewards", values, inside, allowed, "Widen low and high to the true range, or clip first.")
    if math.isinf(high - low):  # the range overflows: halve everything
        values, low, high = values / 2.0, low / 2.0, high / 2.0
    return np.minimum(floor + (1.0 - floor) * ((values - low) / (high - low)), 1.0)


@dataclass(frozen=True, eq=False)
class Clusters:
    """Context ids for features: the nearest center, with every feature divided by its scale."""

    centers: Matrix  # (n_clusters, n_features), scaled
    scale: Vector

    @property
    def n_clusters(self) -> int:
        return len(self.centers)

    def of(self, features: ArrayLike) -> int | NDArray[np.int32]:
        """Return the context id of one vector, or of every row of a table."""
        single = np.ndim(features) == 1
        rows = _table(np.atleast_2d(features))
        if rows.shape[1] != len(self.scale):
            got, repair = f"shape {np.shape(features)}", "Pass the features that were clustered."
            raise InvalidArgument("features", f"of {len(self.scale)} features", got, repair)
        ids = np.empty(len(rows), dtype=np.int32)
        for start in range(0, len(rows), 4096):  # to save memory
            block = rows[start : start + 4096, None] / self.scale - self.centers
            ids[start : start + 4096] = np.square(block).sum(axis=2).argmin(axis=1)
        return int(ids[0]) if single else ids

    def stream(self, stream: Stream) -> Stream:
        """Return the same rounds with clusters as contexts; features stay."""
        if stream.features is None:
            raise InvalidArgument("stream", "a stream with features", stream, "Pass Stream(..., features=...).")
        ids: Any = self.of(stream.features)
        return replace(stream, contexts=ids, context_labels=None, n_contexts=self.n_clusters)


def cluster(features: ArrayLike, n_clusters: int = 32, *, seed: int = 0) -> Clusters:
    """Cluster vectors of features, a row each, by k-means: past ones, or those of the first rounds of a stream.

    Any policy can use the cluster as its context. A policy with features can use both: features for what is common to
    all contexts, the cluster for what is specific to one.

    >>> from alphafair import preprocessing, streams
    >>> stream = streams.described("clusters", n_rounds=2000, n_arms=3, n_features=2, seed=1)
    >>> clusters = preprocessing.cluster(stream.features[:500], 12)
    >>> bool(clusters.of(stream.features[0]) == clusters.stream(stream).contexts[0])
    True
    """
    rows = _table(features)
    n_clusters = validate.integer("n_clusters", n_clusters, low=1, high=len(rows))
    validate.integer("seed", seed, low=0)
    with needed_by("preprocessing.cluster", "features"):
        from sklearn.cluster import KMeans
    scale = rows.std(axis=0)
    scale[scale == 0.0] = 1.0
    found = KMeans(n_clusters, n_init=3, random_state=seed).fit(rows / scale)
    return Clusters(frozen(np.array(found.cluster_centers_, dtype=np.float64)), frozen(scale))


def _table(features: ArrayLike) -> Matrix:
    repair = "Pass a row per vector; if every arm has its own features, combine them into one row first."
    rows = validate.floats("features", "a table of numbers", features, repair)
    if rows.ndim != 2 or rows.size == 0:
        raise InvalidArgument("features", "a table with a row per vector", f"shape {rows.shape}", repair)
    validate.every("features", rows, np.isfinite(rows), "a finite number", "Fill in missing values.")
    return rows
