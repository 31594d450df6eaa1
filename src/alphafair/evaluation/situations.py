"""Contexts together with the arms that were available in them: what the best policy is made for.

The best fixed policy has a distribution for every situation, a context with a set of available arms. What it earns
depends only on how often it shows each arm in each context, if what an arm pays does not depend on which others are
available. And just as often, as near as one likes, one table shows them: weights u per context and arm, renormalised
over the set S of what is available, u_i / sum_{k in S} u_k. They are the maximum of the concave likelihood

    sum_i E_i log u_i - sum_S n_S log sum_{k in S} u_k,     where arm i is expected E_i times in all

(Luce, Individual Choice Behavior, 1959), found arm by arm with Newton's steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from alphafair.evaluation.batches import AnyLog, batches, has_available, scattered
from alphafair.evaluation.model import divided
from alphafair.values import Matrix, Vector

MOST_CELLS = 1 << 20  # situations times arms: of more, a sample of rounds stands for all
SWEEPS = 60
STEP = 3.0  # of a logarithm at once
LEAST_LOG = -600.0
NEAR = 1e-9  # as a part of a context's rounds


class Situations(NamedTuple):
    """Every context with every set of arms that were available in it, and which part of its rounds had that set."""

    contexts: NDArray[np.int64]
    sets: NDArray[np.bool_]
    parts: Vector
    n_contexts: int

    def totals(self, totals: Matrix) -> Matrix:
        """What arms pay in every situation, from what they would have paid in each context, always available."""
        return np.asarray(np.where(self.sets, self.parts[:, None] * totals[self.contexts], 0.0))

    def by_context(self, values: Matrix) -> Matrix:
        """Sums over the situations of every context."""
        found = np.zeros((self.n_contexts, values.shape[1]))
        np.add.at(found, self.contexts, values)
        return found

    @property
    def available(self) -> Matrix:
        """The part of a context's rounds in which each arm was available."""
        return self.by_context(self.parts[:, None] * self.sets)

    def shown(self, distributions: Matrix) -> Matrix:
        """How often each arm is shown in each context, as a part of its rounds."""
        return self.by_context(self.parts[:, None] * distributions)

    def table(self, shown: Matrix) -> Matrix:
        """The table (n_contexts, n_arms) that shows arms as often as this, renormalised over what is available."""
        rates = divided(shown, self.available, np.zeros_like(shown))
        logs = np.where(rates > 0.0, np.log(np.maximum(rates, 1e-12)), np.where(self.available > 0.0, -28.0, -np.inf))
        for _ in range(SWEEPS):
            off = 0.0
            for arm in range(shown.shape[1]):
                off = max(off, self._fit(arm, logs, shown))
            top = logs.max(axis=1, keepdims=True)
            logs = np.where(np.isinf(logs), logs, np.maximum(logs - top, LEAST_LOG))
            if off <= NEAR:
                break
        single = np.bincount(self.contexts, minlength=self.n_contexts) == 1
        weights = np.where(single[:, None], shown, np.exp(logs))
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))

    def _fit(self, arm: int, logs: Matrix, shown: Matrix) -> float:
        """One step for the weight of an arm in all contexts, in place; how far it was off."""
        inside = np.flatnonzero(self.sets[:, arm])
        contexts, parts = self.contexts[inside], self.parts[inside]
        weights = np.where(self.sets[inside], np.exp(logs[contexts]), 0.0)
        p = weights[:, arm] / weights.sum(axis=1)
        found, slope = (np.bincount(contexts, parts * each, minlength=self.n_contexts) for each in (p, p * (1.0 - p)))
        apart = shown[:, arm] - found
        logs[:, arm] += apart / np.maximum(np.maximum(slope, np.abs(apart) / STEP), 1e-300)
        return float(np.abs(apart).max())


def situations_of(log: AnyLog) -> Situations | None:
    """Those of a log; None where every arm was always available."""
    if not has_available(log):
        return None
    most = max(1, MOST_CELLS // log.n_arms)
    counts = _counted(log, lambda rows: rows >= 0, most)
    if len(counts) > most:  # so many that some rounds, chosen by chance, must do
        rate = np.uint64(int(2.0**64 * min(1.0, most / log.n_rounds) * (1.0 - 2.0**-50)))
        counts = _counted(log, lambda rows: scattered(rows) < rate, log.n_rounds)
    came = {context for context, _ in counts}
    every = np.packbits(np.ones(log.n_arms, dtype=np.bool_)).tobytes()
    counts |= {(context, every): 1 for context in range(log.n_contexts) if context not in came}
    counts = dict(sorted(counts.items()))
    contexts = np.array([context for context, _ in counts], dtype=np.int64)
    packed = np.frombuffer(b"".join(each for _, each in counts), dtype=np.uint8).reshape(len(counts), -1)
    sets = np.unpackbits(packed, axis=1, count=log.n_arms).astype(np.bool_)
    numbers = np.array(list(counts.values()), dtype=np.float64)
    parts = numbers / np.bincount(contexts, numbers, minlength=log.n_contexts)[contexts]
    return Situations(contexts, sets, parts, log.n_contexts)


def _counted(
    log: AnyLog, chosen: Callable[[NDArray[np.int64]], NDArray[np.bool_]], most: int
) -> dict[tuple[int, bytes], int]:
    """How many rows every situation has, of those chosen by their numbers; stops with more than `most` situations."""
    found: dict[tuple[int, bytes], int] = {}
    every, first = np.ones((1, log.n_arms), dtype=np.bool_), 0
    for rows in batches(log):
        inside = chosen(np.arange(first, first + len(rows.contexts)))
        packed = np.packbits(np.concatenate([rows.sets, every]), axis=1)  # the last is for -1
        pairs = rows.contexts.astype(np.int64) * len(packed) + rows.of_sets % len(packed)
        for pair, count in zip(*(each.tolist() for each in np.unique(pairs[inside], return_counts=True)), strict=True):
            key = pair // len(packed), packed[pair % len(packed)].tobytes()
            found[key] = found.get(key, 0) + count
        if len(found) > most:
            break
        first += len(rows.contexts)
    return found
