"""From features to context ids, for policies that know contexts by number. Needs scikit-learn: alphafair[features]."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from alphafair import validate
from alphafair.types import Matrix, Stream, Vector, frozen


@dataclass(frozen=True, eq=False)
class Clusters:
    """Context ids for features: the nearest of some centres, every feature measured in units of its own scale."""

    centres: Matrix  # (n_clusters, n_features), in those units
    scale: Vector

    @property
    def n_clusters(self) -> int:
        return len(self.centres)

    def of(self, features: ArrayLike) -> int | NDArray[np.int32]:
        """The context id of one vector, or one for every row of a table."""
        single = np.ndim(features) == 1
        rows = _table(np.atleast_2d(features))
        if rows.shape[1] != len(self.scale):
            got, repair = f"shape {np.shape(features)}", "Pass those that were clustered."
            raise validate.Refusal("features", f"of {len(self.scale)} features", got, repair)
        ids = np.empty(len(rows), dtype=np.int32)
        for start in range(0, len(rows), 4096):  # so that distances take little memory
            block = rows[start : start + 4096, None] / self.scale - self.centres
            ids[start : start + 4096] = np.square(block).sum(axis=2).argmin(axis=1)
        return int(ids[0]) if single else ids

    def stream(self, stream: Stream) -> Stream:
        """The same rounds with clusters for contexts, for any policy; features stay."""
        if stream.features is None:
            raise validate.Refusal("stream", "one with features", stream, "Pass Stream(..., features=...).")
        ids: Any = self.of(stream.features)
        return replace(stream, contexts=ids, context_labels=None, n_contexts=self.n_clusters)


def cluster(features: ArrayLike, n_clusters: int = 32, *, seed: int = 0) -> Clusters:
    """Group vectors of features by k-means, a row each: features of the past, or of the first rounds of a stream.

    Every policy can then be asked with the id of a cluster. One that takes features takes both: they say what is alike
    everywhere, the cluster what is particular here.

    >>> from alphafair import contexts, streams
    >>> stream = streams.described("clusters", n_rounds=2000, n_arms=3, n_features=2, seed=1)
    >>> clusters = contexts.cluster(stream.features[:500], 12)
    >>> bool(clusters.of(stream.features[0]) == clusters.stream(stream).contexts[0])
    True
    """
    rows = _table(features)
    n_clusters = validate.integer("n_clusters", n_clusters, low=1, high=len(rows))
    validate.integer("seed", seed, low=0)
    try:
        from sklearn.cluster import KMeans
    except ImportError:
        message = "contexts.cluster needs scikit-learn: pip install 'alphafair[features]'"
        raise ImportError(message) from None
    scale = rows.std(axis=0)
    scale[scale == 0.0] = 1.0
    found = KMeans(n_clusters, n_init=3, random_state=seed).fit(rows / scale)
    return Clusters(frozen(np.array(found.cluster_centers_, dtype=np.float64)), frozen(scale))


def _table(features: ArrayLike) -> Matrix:
    repair = "Give a row per vector; where every arm has its own, choose or join them into one first."
    rows = validate.floats("features", "a table of numbers", features, repair)
    if rows.ndim != 2 or rows.size == 0:
        raise validate.Refusal("features", "a table with a row per vector", f"shape {rows.shape}", repair)
    validate.every("features", rows, np.isfinite(rows), "a finite number", "Fill in what nobody knows.")
    return rows
