"""The best fixed policy in hindsight, with a certificate; its curve over time.

Every regret stands on max over (simplex)^M of sum_i phi(1 + sum_j W_ji x_ji). The certificate is proof: `value + gap`
is an upper bound of that maximum which anyone can check in three lines (see docs/certificate.md).
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from alphafair import validate
from alphafair.kernels import hindsight
from alphafair.types import Matrix, Stream, Vector

CHUNK = 64  # prefixes per compiled call, so that progress shows


class CertificateWarning(UserWarning):
    """The certified gap is larger than was asked for; the value is still right to within it."""


@dataclass(frozen=True, eq=False)
class OfflineOptimum:
    """The optimum and its proof: no fixed policy is worth more than value + gap."""

    distributions: Matrix
    cumulative_rewards: Vector
    value: float
    gap: float
    iterations: int
    certified: bool


def offline_optimum(
    context_reward_totals: ArrayLike, alpha: float, *, tolerance: float = 1e-9, initial: ArrayLike = 1.0
) -> OfflineOptimum:
    """The distributions, one per context, that maximise sum_i phi(1 + sum_j W_ji x_ji).

    Parameters
    ----------
    context_reward_totals
        W (n_contexts, n_arms): the sum of every arm's rewards over each context's rounds; see
        `context_reward_totals` for a stream.
    alpha
        Fairness, in [0, 1).
    tolerance
        Certified relative gap at which to stop. If it cannot be reached, `certified` is False and a
        `CertificateWarning` says so; the gap is true in any case.
    initial
        What arms have before the first reward, in place of 1: one number, or one per arm.

    Notes
    -----
    A structured primal-dual interior point, O(M N min(M, N)) per iteration, on the contexts in doubt alone. Contexts
    that were never seen stay uniform.
    Near alpha = 1 the optimum is flat: compare values or gaps of two solutions, not their distributions.

    >>> best = offline_optimum([[8.0, 3.0], [2.0, 6.0]], alpha=0.5)
    >>> round(best.value, 6), best.certified
    (11.291503, True)
    """
    totals = validate.reward_table("context_reward_totals", context_reward_totals)
    _refuse_negative("context_reward_totals", totals)
    _refuse_huge("context_reward_totals", "in every cell", float(totals.max()))
    alpha = validate.alpha(alpha)
    tolerance = validate.number("tolerance", tolerance, low=0.0, high=1.0)
    n = totals.shape[1]
    first = _initial(initial, n)
    distributions, earned = np.empty_like(totals), np.empty(n)
    prices, doubt = np.ones(n), np.full(n, np.inf)  # nothing is known
    value, gap, iterations = hindsight.solve(totals, first, alpha, tolerance, prices, doubt, distributions, earned)
    certified = bool(gap <= tolerance * value)
    if not certified:
        _warn(gap / value, tolerance)
    return OfflineOptimum(distributions, earned, float(value), float(gap), int(iterations), certified)


def context_reward_totals(stream: Stream, n_rounds: int | None = None) -> Matrix:
    """W_ji: the sum of arm i's rewards over the rounds of context j, for the first rounds or all.

    Where arms come and go, row e M + j is context j in epoch e, between two changes: nothing to earn from absent arms.

    >>> context_reward_totals(Stream.from_arrays([0, 1, 0], [[1.0, 0.2], [0.5, 0.5], [1.0, 1.0]])).tolist()
    [[2.0, 1.2], [0.5, 0.5]]
    """
    validate.stream("stream", stream)
    stop = stream.n_rounds if n_rounds is None else validate.integer("n_rounds", n_rounds, low=1, high=stream.n_rounds)
    stream = by_epoch(stream)
    totals = np.zeros((stream.n_contexts, stream.n_arms))
    hindsight.add_rounds(stream.contexts, stream.items, stream.reward_table, 0, stop, totals)
    return totals


def by_epoch(stream: Stream) -> Stream:
    """The same rounds with pairs of epoch and context as contexts, where absent arms pay nothing; no arm comes or goes.

    >>> stream = Stream.from_arrays([0, 0, 0], [[1.0, 0.2], [0.5, 0.5], [1.0, 1.0]], arrivals=[0, 2])
    >>> plain = by_epoch(stream)
    >>> plain.contexts.tolist(), plain.rewards(1).tolist()
    ([0, 0, 1], [0.5, 0.0])
    """
    if stream.arrivals is None:
        return stream
    n_items = len(stream.reward_table)
    starts = np.array([0, *stream.epochs])
    epochs = np.searchsorted(starts, np.arange(stream.n_rounds), side="right") - 1
    pairs, items = np.unique(epochs * n_items + stream.items, return_inverse=True)
    present = np.array([stream.present(t) for t in starts])
    return Stream(
        (epochs * stream.n_contexts + stream.contexts).astype(np.int32),
        items.astype(np.int32),
        np.where(present[pairs // n_items], stream.reward_table[pairs % n_items], 0.0),
        arm_labels=stream.arm_labels,
        n_contexts=len(starts) * stream.n_contexts,
    )


def offline_curve(
    stream: Stream,
    alpha: float,
    rounds: ArrayLike,
    *,
    tolerance: float = 1e-9,
    progress: Callable[[int], None] | None = None,
) -> tuple[Vector, Vector]:
    """The optimum of every prefix asked for, and its certified gap; each begins where the one before ended.

    Parameters
    ----------
    stream
        Rewards must not be negative.
    rounds
        Numbers of rounds, rising.
    progress
        A function to be told, every so often, how many more prefixes are done.

    >>> stream = Stream.from_arrays([0, 1, 0], [[1.0, 0.2], [0.5, 0.5], [1.0, 1.0]])
    >>> values, gaps = offline_curve(stream, 0.5, [1, 3])
    >>> values.round(6).tolist()
    [4.828427, 5.913591]
    """
    alpha = validate.alpha(alpha)
    tolerance = validate.number("tolerance", tolerance, low=0.0, high=1.0)
    validate.stream("stream", stream)
    stops = validate.indices("rounds", rounds, stream.n_rounds + 1, low=1).astype(np.int64)
    if (np.diff(stops) <= 0).any():
        raise validate.Refusal("rounds", "rising", stops, "Sort them and leave repeats out.")
    _refuse_negative("stream.reward_table", stream.reward_table)
    _refuse_huge("stream.reward_table", "over all rounds", float(stream.reward_table.max()) * stream.n_rounds)
    stream = by_epoch(stream)
    m, n = stream.n_contexts, stream.n_arms
    totals, distributions = np.zeros((m, n)), np.empty((m, n))
    prices, doubt, earned = np.ones(n), np.full(n, np.inf), np.empty(n)
    values, gaps = np.empty(len(stops)), np.empty(len(stops))
    data = stream.contexts, stream.items, stream.reward_table
    done = 0
    for first in range(0, len(stops), CHUNK):
        chunk = slice(first, first + CHUNK)
        state = totals, prices, doubt, distributions, earned
        hindsight.curve(*data, done, stops[chunk], np.ones(n), alpha, tolerance, *state, values[chunk], gaps[chunk])
        done = int(stops[chunk][-1])
        if progress is not None:
            progress(len(stops[chunk]))
    if not (gaps <= tolerance * values).all():
        _warn(float((gaps / values).max()), tolerance)
    return values, gaps


def _initial(value: ArrayLike, n_arms: int) -> Vector:
    repair = "Leave it out for 1."
    first = validate.floats("initial", "positive numbers", value, repair)
    if first.shape not in ((), (n_arms,)) or not (first > 0.0).all() or not (first <= 1e100).all():
        raise validate.Refusal("initial", f"one number in (0, 1e+100], or {n_arms}", value, repair)
    return np.broadcast_to(first, n_arms).copy()


def _refuse_huge(argument: str, where: str, most: float) -> None:
    if most > 1e100:
        raise validate.Refusal(argument, f"at most 1e+100 {where}", most, "Divide them all by one number.")


def _refuse_negative(argument: str, table: Matrix) -> None:
    repair = "Map the rewards with alphafair.rescale_rewards."
    validate.every(argument, table, table >= 0.0, "at least 0", repair)


def _warn(gap: float, tolerance: float) -> None:
    warnings.warn(
        f"certified to a relative gap of {gap:.2g}, not to tolerance={tolerance:g}", CertificateWarning, stacklevel=3
    )
