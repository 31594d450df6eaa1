"""The best fixed policy in hindsight, with a certificate, and its value over time.

Regret compares with max over (simplex)^M of sum_i phi(1 + sum_j W_ji x_ji). The certificate is a proof: `value + gap`
is an upper bound of that maximum that can be checked in three lines (see docs/background/certificate.md). With groups
G, entitlements s and floors it is the max of sum_G s_G^alpha phi(1 + sum_j sum_{i in G} W_ji x_ji) over the policies
that keep the floors in every context: the same problem with one arm per group (`alphafair.offline.reduction`).

The same policy maximizes the welfare (`metrics.welfare`), which is in units of reward for every alpha; at alpha = inf
it maximizes the least R_G/s_G. Up to alpha = 0.999 the tolerance is relative to the value, above it to the welfare:
near 1 the value is nearly constant, and from 1 on it is a logarithm or negative.
"""

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from alphafair import validate
from alphafair.errors import InvalidArgument
from alphafair.groups import ArmGroups, GroupsLike
from alphafair.math.welfare import welfare as welfare_of
from alphafair.offline import hindsight, large, slates, steep
from alphafair.offline.interior_point import NEAR_ONE
from alphafair.offline.primal_dual import solve, topsum
from alphafair.offline.reduction import MOST_REWARD, Reduction, checked_initial, checked_presence
from alphafair.offline.sides import Sides, side_of
from alphafair.values import Matrix, Stream, Vector

CHUNK = 64  # prefixes per compiled call, between two progress reports
ROUNDING = 8.0 * float(np.finfo(np.float64).eps)  # of a value: a power, a product and a quotient
LEAST_GAP = 8.0 * float(np.finfo(np.float64).smallest_subnormal)  # the same of a value that underflows
RESCALE = "Map the rewards with alphafair.rescale_rewards."


class CertificateWarning(UserWarning):
    """The certified gap is larger than the tolerance; the value is still right to within the gap."""


@dataclass(frozen=True, eq=False)
class OfflineOptimum:
    """The optimum and its proof: no fixed policy has a performance above value + gap, or a welfare above
    welfare (1 + welfare_gap).

    `distributions` and `cumulative_rewards` are by arm; `accounts`, R with its initial 1, by group, or by arm without
    groups. `value` is the sum of utilities: logarithms at alpha = 1, negative above, and the welfare itself at inf.

    `context_accounts` are U, 1 + the rewards of each context, and `context_shares` those rewards over the most that the
    context could have. `context_prices` p are in units of dW/dR: in context j an arm is shown only if W_ji (dW/dR_i +
    p_j) is largest. With a `context_share` p_j is what one more reward promised in j costs in welfare. With a
    `context_weight`, `two_sided_welfare` is the objective W_2, and both gaps are of it instead.
    """

    distributions: Matrix
    accounts: Vector
    cumulative_rewards: Vector
    value: float
    gap: float
    iterations: int
    certified: bool
    welfare: float
    welfare_gap: float  # relative
    context_shares: Vector
    context_accounts: Vector
    context_prices: Vector
    two_sided_welfare: float | None = None


def offline_optimum(
    context_reward_totals: ArrayLike,
    alpha: float,
    *,
    tolerance: float = 1e-9,
    initial: ArrayLike = 1.0,
    groups: GroupsLike | None = None,
    present: ArrayLike | None = None,
    k: ArrayLike = 1,
    context_share: float = 0.0,
    context_weight: float = 0.0,
    context_weights: ArrayLike | None = None,
) -> OfflineOptimum:
    """Find the distributions, one per context, that maximize sum_i phi(1 + sum_j W_ji x_ji).

    Parameters
    ----------
    context_reward_totals
        W (n_contexts, n_arms): the sum of every arm's rewards over each context's rounds; see
        `context_reward_totals` for a stream.
    alpha
        Fairness, 0 to inf.
    tolerance
        Certified relative gap at which to stop, of the value up to alpha = 0.999 and of the welfare above. If it cannot
        be reached, `certified` is False and a `CertificateWarning` is issued; the gap is valid in any case.
    initial
        Accounts before the first reward, instead of 1: one number, or one per group.
    groups
        A `Groups`, or a label per arm. The objective is then sum_G s_G^alpha phi(R_G), where R_G is 1 + the rewards of
        the arms of the group, over the policies that keep the floors in every context; a policy may divide the floor of
        a group among its arms in any way.
    present
        If arms come and go, which of them are present: a row of booleans per epoch, `present_arms(stream)`. Floors
        apply to the present arms.
    k
        Number of arms that a decision shows, which are all rewarded: one number, or one per row of totals. Then
        `distributions` are probabilities to be shown, which sum to k in every row, and no arm has more than 1. Where
        fewer arms are present, all of them are shown. Floors of groups need k = 1.
    context_share
        Among the policies that give every context at least this share of its best, the largest total of its arms. It
        must be below what the floors leave. The tolerance is then relative to the welfare, for every alpha.
    context_weight
        Theta in [0, 1): maximize W_2 = W(R)^(1-theta) W_1(U)^theta, with W_1 the geometric mean, instead of W(R). The
        tolerance is then relative to W_2.
    context_weights
        The weights of contexts in W_1(U), in any unit: their rounds, for example. Contexts without rewards may have 0.

    Notes
    -----
    A structured primal-dual interior point method, O(M N min(M, N)) per iteration, on the undecided contexts only. From
    150 contexts and arms on, up to alpha = 2, it runs on the candidates alone, and from 1,000 on LAPACK factors its
    equations: 2,000 contexts and arms take seconds. The last digits then depend on the machine, and the certificate
    holds for them. On a busy machine set OPENBLAS_NUM_THREADS=1: threads of LAPACK wait for each other.
    With a second side it is NumPy's, O(M N^2 + N^3) per iteration; a share or a weight above 0.999 may end with a
    larger gap.
    Contexts without rounds stay uniform over groups, and over arms inside a group. Tied arms of one group share
    equally. Near alpha = 1 the optimum is flat: compare values or gaps of two solutions, not their distributions. At
    alpha = inf only the poorest accounts are determined; those above them are at one of many optima, not at the one
    that is best for the second poorest, and so on.

    >>> best = offline_optimum([[8.0, 3.0], [2.0, 6.0]], alpha=0.5)
    >>> round(best.value, 6), best.certified
    (11.291503, True)
    >>> best = offline_optimum([[8.0, 3.0], [2.0, 6.0]], alpha=float("inf"))  # max-min
    >>> best.accounts.round(4).tolist(), best.certified
    ([7.5455, 7.5455], True)
    >>> from alphafair import Groups
    >>> groups = Groups(["ada", "ben", "ben"], pull_floor=0.1)
    >>> sellers = offline_optimum([[8.0, 3.0, 4.0], [2.0, 6.0, 1.0]], 0.9, groups=groups)
    >>> sellers.distributions.round(2).tolist(), sellers.accounts.round(2).tolist()
    ([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1]], [7.6, 6.6])
    >>> kept = offline_optimum([[5.0, 0.0], [9.0, 6.0], [30.0, 2.0]], 1.0, context_share=0.7)
    >>> kept.context_shares.round(3).tolist(), round(kept.welfare, 3)
    ([1.0, 0.7, 1.0], 15.367)
    """
    totals = validate.reward_table(
        "context_reward_totals", context_reward_totals, low=0.0, high=MOST_REWARD, repair=RESCALE
    )
    alpha = validate.alpha(alpha)
    tolerance = validate.number("tolerance", tolerance, low=0.0, high=1.0)
    there = None if present is None else checked_presence(present, totals)
    reduction = Reduction.of(totals.shape[1], groups, there)
    n_groups = reduction.groups.n_groups
    first = checked_initial(initial, n_groups)
    sides = Sides.of(totals, context_share, context_weight, context_weights, present, k)
    if sides is not None:
        return _best_of_two_sides(totals, first, reduction, sides, alpha, tolerance)
    if (slates.checked_k(k, len(totals)) > 1).any():
        return _best_slates(totals, first, reduction.groups, there, k, alpha, tolerance)
    best, merged, base = reduction.merge(totals, first)
    if alpha > NEAR_ONE:
        shares, accounts, welfare_gap, iterations, _ = steep.solve(
            merged, base, reduction.groups.entitlements, alpha, tolerance
        )
        distributions, earned = reduction.spread(totals, best, shares)
        if there is not None:  # the shares of absent groups went to the others
            accounts = first + np.bincount(reduction.groups.of_arms, earned, n_groups)
        welfare = _welfare(accounts, reduction.groups, alpha)
        value, gap = _in_utility(welfare, welfare_gap, reduction.groups, alpha)
        certified = welfare_gap <= tolerance
        if not certified:
            _warn(welfare_gap, tolerance)
    else:
        shares, accounts = np.empty_like(merged), np.empty(n_groups)
        factors = reduction.groups.factors(alpha)
        value, gap, iterations = large.solve(merged, base, factors, alpha, tolerance, shares, accounts)
        welfare, welfare_gap = _in_welfare(value, gap, reduction.groups, alpha)
        certified = bool(gap <= tolerance * value)
        if not certified:
            _warn(gap / value, tolerance)
        distributions, earned = reduction.spread(totals, best, shares)
    result = float(value), float(gap), int(iterations), certified, float(welfare), float(welfare_gap)
    return OfflineOptimum(distributions, accounts, earned, *result, *_of_contexts(totals, distributions, None))


def _of_contexts(totals: Matrix, x: Matrix, k: Vector | None) -> tuple[Vector, Vector, Vector]:
    """Return the shares and the accounts of contexts, and prices of 0; k: how many arms each shows, None for one."""
    with np.errstate(under="ignore"):
        earned = (totals * x).sum(axis=1)
        most = totals.max(axis=1) if k is None else topsum(totals, k)
        shares = np.divide(earned, most, out=np.ones(len(most)), where=most > 0.0)
    return np.minimum(shares, 1.0), 1.0 + earned, np.zeros(len(most))


def _best_of_two_sides(
    totals: Matrix, first: Vector, reduction: Reduction, sides: Sides, alpha: float, tolerance: float
) -> OfflineOptimum:
    """The same with a promise to contexts, or with their accounts in the objective."""
    groups = reduction.groups
    best, merged, base = reduction.merge(totals, first)
    side, n_groups = side_of(sides, reduction, totals, best, merged), groups.n_groups
    of_groups, one = np.arange(n_groups), np.ones(len(totals))
    found = solve(merged, base, of_groups, groups.entitlements, one, alpha, tolerance, side)
    if found.welfare_gap > tolerance:
        _warn(found.welfare_gap, tolerance, stacklevel=4)
    kept = side.kept(found.shares)  # also where a context is too small for the unit of the solver
    x, earned = reduction.spread(totals, best, kept)
    accounts = first + np.bincount(groups.of_arms, earned, n_groups)
    welfare = _welfare(accounts, groups, alpha)
    shares, of_contexts, _ = _of_contexts(totals, x, None)
    joint, relative, prices = None, found.welfare_gap, np.asarray(found.context_prices)
    value, gap = _of_welfare(welfare, relative, groups, alpha)
    if sides.weight > 0.0:
        prices = sides.weight / (1.0 - sides.weight) * welfare * sides.weights / of_contexts
        mean = math.exp(float(sides.weights @ np.log(of_contexts)))
        joint = welfare ** (1.0 - sides.weight) * mean**sides.weight
        gap = relative * joint
    result = value, gap, found.steps, relative <= tolerance, welfare, relative
    return OfflineOptimum(x, accounts, earned, *result, shares, of_contexts, prices, joint)


def _best_slates(
    totals: Matrix,
    first: Vector,
    groups: ArmGroups,
    there: NDArray[np.bool_] | None,
    k: ArrayLike,
    alpha: float,
    tolerance: float,
) -> OfflineOptimum:
    """The same for decisions that show several arms."""
    rows = slates.Rows.of(k, totals.shape, groups, there)
    aim = tolerance / (1.0 - alpha) if alpha <= NEAR_ONE else tolerance  # of sum_i w_i R_i
    x, accounts, earned, relative, iterations = slates.best_slates(totals, first, groups, rows, alpha, aim)
    if relative > aim:
        _warn(relative, aim, stacklevel=4)
    welfare = _welfare(accounts, groups, alpha)
    value, gap = _of_welfare(welfare, relative, groups, alpha)
    result = value, gap, iterations, relative <= aim, welfare, relative
    return OfflineOptimum(x, accounts, earned, *result, *_of_contexts(totals, x, rows.k))


def _of_welfare(welfare: float, relative: float, groups: ArmGroups, alpha: float) -> tuple[float, float]:
    """Return the value of a welfare, and its gap, for any alpha."""
    if alpha > NEAR_ONE:
        return _in_utility(welfare, relative, groups, alpha)
    money = float(groups.entitlements.sum()) * welfare ** (1.0 - alpha)
    return money / (1.0 - alpha), relative * money


def _welfare(accounts: Vector, groups: ArmGroups, alpha: float) -> float:
    return float(welfare_of(accounts / groups.entitlements, groups.entitlements, alpha))


def _in_welfare(value: float, gap: float, groups: ArmGroups, alpha: float) -> tuple[float, float]:
    """Return the welfare of a value, and its relative gap, up to NEAR_ONE: sum_i w_i R_i is S W^(1-alpha)."""
    money = (1.0 - alpha) * value
    return (money / float(groups.entitlements.sum())) ** (1.0 / (1.0 - alpha)), gap / money


def _in_utility(welfare: float, welfare_gap: float, groups: ArmGroups, alpha: float) -> tuple[float, float]:
    """Return the value of a welfare, and its gap, above NEAR_ONE: S W^(1-alpha)/(1-alpha), or a sum of logarithms.

    OPT - value is at most the gap of sum_i w_i R_i, because utility is concave, and the rounding of the value, which is
    the larger part near alpha = 1. Both may be too large for a float.
    """
    if alpha == math.inf:
        return welfare, welfare_gap * welfare
    s = groups.entitlements
    with np.errstate(over="ignore"):
        money = float(s.sum() * np.float64(welfare) ** (1.0 - alpha))
    if alpha == 1.0:
        value = float(s.sum()) * math.log(welfare) + float((s * np.log(s)).sum())
    else:
        value = money / (1.0 - alpha)
    return value, welfare_gap * money + max(ROUNDING * abs(value), LEAST_GAP)


@overload
def context_reward_totals(stream: Stream, n_rounds: int | None = None, *, period: None = None) -> Matrix: ...
@overload
def context_reward_totals(stream: Stream, n_rounds: int | None = None, *, period: int) -> list[Matrix]: ...
def context_reward_totals(
    stream: Stream, n_rounds: int | None = None, *, period: int | None = None
) -> Matrix | list[Matrix]:
    """Return W_ji, the sum of arm i's rewards over the rounds of context j, for the first rounds or all.

    If arms come and go, row e M + j is context j in epoch e; absent arms have 0. With `period`, a number of rounds, the
    result is a list with one table per period; the last may be shorter. A table has rows only for the epochs of its
    period: pair it with `present_arms(stream, period=period)`.

    >>> stream = Stream.from_arrays([0, 1, 0], [[1.0, 0.2], [0.5, 0.5], [1.0, 1.0]])
    >>> context_reward_totals(stream).tolist()
    [[2.0, 1.2], [0.5, 0.5]]
    >>> [totals.tolist() for totals in context_reward_totals(stream, period=2)]
    [[[1.0, 0.2], [0.5, 0.5]], [[1.0, 1.0], [0.0, 0.0]]]
    """
    validate.stream("stream", stream)
    stop = stream.n_rounds if n_rounds is None else validate.integer("n_rounds", n_rounds, low=1, high=stream.n_rounds)
    plain, m = by_epoch(stream), stream.n_contexts

    def totals_of(first: int, last: int) -> Matrix:
        totals = np.zeros((plain.n_contexts, plain.n_arms))
        hindsight.add_rounds(plain.contexts, plain.items, plain.reward_table, first, last, totals)
        return totals

    if period is None:
        return totals_of(0, stop)
    return [
        totals_of(first, last)[epochs.start * m : epochs.stop * m]
        for first, last, epochs in _periods(stream, period, stop)
    ]


def _periods(stream: Stream, period: int, n_rounds: int) -> Iterator[tuple[int, int, slice]]:
    """Yield the first round of every period, the round after its last, and the epochs that it meets."""
    length = validate.integer("period", period, low=1)
    starts = np.array([0, *stream.epochs])
    for first in range(0, n_rounds, length):
        last = min(first + length, n_rounds)
        yield first, last, slice(int((starts <= first).sum()) - 1, int((starts < last).sum()))


def by_epoch(stream: Stream) -> Stream:
    """Return the same rounds with pairs of epoch and context as contexts; absent arms have reward 0.

    >>> stream = Stream.from_arrays([0, 0, 0], [[1.0, 0.2], [0.5, 0.5], [1.0, 1.0]], arrivals=[0, 2])
    >>> plain = by_epoch(stream)
    >>> plain.contexts.tolist(), plain.rewards(1).tolist()
    ([0, 0, 1], [0.5, 0.0])
    """
    if stream.arrivals is None:
        return stream
    n_items = len(stream.reward_table)
    present, starts = present_arms(stream), np.array([0, *stream.epochs])
    epochs = np.searchsorted(starts, np.arange(stream.n_rounds), side="right") - 1
    pairs, items = np.unique(epochs * n_items + stream.items, return_inverse=True)
    return Stream(
        (epochs * stream.n_contexts + stream.contexts).astype(np.int32),
        items.astype(np.int32),
        np.where(present[pairs // n_items], stream.reward_table[pairs % n_items], 0.0),
        arm_labels=stream.arm_labels,
        n_contexts=len(starts) * stream.n_contexts,
    )


@overload
def present_arms(stream: Stream, *, period: None = None) -> NDArray[np.bool_]: ...
@overload
def present_arms(stream: Stream, *, period: int) -> list[NDArray[np.bool_]]: ...
def present_arms(stream: Stream, *, period: int | None = None) -> NDArray[np.bool_] | list[NDArray[np.bool_]]:
    """Return which arms are present in every epoch, (n_epochs, n_arms): one row of True if arms do not change.

    With `period`, a number of rounds, the result is a list with the epochs of every period.

    >>> stream = Stream.from_arrays([0, 0, 0], [[1.0, 0.2]] * 3, arrivals=[0, 2])
    >>> present_arms(stream).tolist()
    [[True, False], [True, True]]
    >>> [present.tolist() for present in present_arms(stream, period=2)]
    [[[True, False]], [[True, True]]]
    """
    present = np.array([stream.present(t) for t in (0, *stream.epochs)])
    if period is None:
        return present
    return [present[epochs] for _, _, epochs in _periods(stream, period, stream.n_rounds)]


def offline_curve(
    stream: Stream,
    alpha: float,
    rounds: ArrayLike,
    *,
    groups: GroupsLike | None = None,
    k: int = 1,
    tolerance: float = 1e-9,
    progress: Callable[[int], None] | None = None,
) -> tuple[Vector, Vector]:
    """Return the optimum of several prefixes of a stream, and its certified gap; each solution starts from the last.

    Parameters
    ----------
    stream
        Rewards must not be negative.
    rounds
        Numbers of rounds, strictly increasing.
    groups
        As for `offline_optimum`. If arms come and go, floors apply to the present arms.
    k
        Number of arms that a decision shows. With more than one every prefix is solved by itself.
    progress
        A function that is called with the number of prefixes done since its last call.

    Above alpha = 0.999 every prefix is solved by itself; use `offline_welfare_curve` there.

    >>> stream = Stream.from_arrays([0, 1, 0], [[1.0, 0.2], [0.5, 0.5], [1.0, 1.0]])
    >>> values, gaps = offline_curve(stream, 0.5, [1, 3])
    >>> values.round(6).tolist()
    [4.828427, 5.913591]
    """
    values, gaps, resolved = _curve(stream, alpha, rounds, groups, k, tolerance, progress)
    alpha = validate.alpha(alpha)
    if alpha > NEAR_ONE:
        pairs = [_in_utility(*pair, resolved, alpha) for pair in zip(values, gaps, strict=True)]
        values, gaps = np.array(pairs).T.copy()
    return values, gaps


def offline_welfare_curve(
    stream: Stream,
    alpha: float,
    rounds: ArrayLike,
    *,
    groups: GroupsLike | None = None,
    k: int = 1,
    tolerance: float = 1e-9,
    progress: Callable[[int], None] | None = None,
) -> tuple[Vector, Vector]:
    """Return the welfare of the optimum of several prefixes, and its relative gap; arguments as for `offline_curve`.

    >>> stream = Stream.from_arrays([0, 1, 0], [[1.0, 0.2], [0.5, 0.5], [1.0, 1.0]])
    >>> welfare, gaps = offline_welfare_curve(stream, 1.0, [1, 3])
    >>> welfare.round(6).tolist()
    [1.414214, 2.130141]
    """
    values, gaps, resolved = _curve(stream, alpha, rounds, groups, k, tolerance, progress)
    alpha = validate.alpha(alpha)
    if alpha <= NEAR_ONE:
        pairs = [_in_welfare(*pair, resolved, alpha) for pair in zip(values, gaps, strict=True)]
        values, gaps = np.array(pairs).T.copy()
    return values, gaps


def _curve(
    stream: Stream,
    alpha: float,
    rounds: ArrayLike,
    groups: GroupsLike | None,
    k: int,
    tolerance: float,
    progress: Callable[[int], None] | None,
) -> tuple[Vector, Vector, ArmGroups]:
    """Return values and gaps up to NEAR_ONE, the welfare and its relative gaps above, and the groups."""
    alpha = validate.alpha(alpha)
    tolerance = validate.number("tolerance", tolerance, low=0.0, high=1.0)
    validate.stream("stream", stream)
    stops = validate.indices("rounds", rounds, stream.n_rounds + 1, low=1).astype(np.int64)
    if (np.diff(stops) <= 0).any():
        raise InvalidArgument("rounds", "strictly increasing", stops, "Sort them and remove duplicates.")
    most = MOST_REWARD / stream.n_rounds
    validate.reward_table("stream.reward_table", stream.reward_table, low=0.0, high=most, repair=RESCALE)
    reduction = Reduction.of(stream.n_arms, groups, present_arms(stream))
    there, stream, n_shown = present_arms(stream), by_epoch(stream), validate.integer("k", k, low=1)
    m, n_groups = stream.n_contexts, reduction.groups.n_groups
    totals, initial = np.zeros((m, stream.n_arms)), np.ones(n_groups)
    values, gaps = np.empty(len(stops)), np.empty(len(stops))
    data, done = (stream.contexts, stream.items, stream.reward_table), 0
    if n_shown > 1:
        for n, stop in enumerate(stops):
            hindsight.add_rounds(*data, done, stop, totals)
            done = stop
            best = _best_slates(totals, initial, reduction.groups, there, n_shown, alpha, tolerance)
            values[n], gaps[n] = (best.welfare, best.welfare_gap) if alpha > NEAR_ONE else (best.value, best.gap)
            if progress is not None:
                progress(1)
        return values, gaps, reduction.groups
    if alpha > NEAR_ONE:
        for n, stop in enumerate(stops):
            hindsight.add_rounds(*data, done, stop, totals)
            done = stop
            _, merged, base = reduction.merge(totals, initial)
            found = steep.solve(merged, base, reduction.groups.entitlements, alpha, tolerance)
            values[n], gaps[n] = _welfare(found.accounts, reduction.groups, alpha), found.welfare_gap
            if progress is not None:
                progress(1)
        if not (gaps <= tolerance).all():
            _warn(float(gaps.max()), tolerance, stacklevel=4)
        return values, gaps, reduction.groups
    factors, plain = reduction.groups.factors(alpha), reduction.is_identity
    best_of, merged, base = (
        (totals, totals, initial) if plain else (np.empty((m, n_groups)), np.empty((m, n_groups)), np.empty(n_groups))
    )
    state = best_of, merged, base, np.ones(n_groups), np.full(n_groups, np.inf)  # no price is known
    shares, accounts = np.empty((m, n_groups)), np.empty(n_groups)
    problem = totals, initial, factors
    for first in range(0, len(stops), CHUNK):
        chunk = slice(first, first + CHUNK)
        which = done, stops[chunk], problem, reduction.kernel_groups, plain
        hindsight.curve(data, *which, alpha, tolerance, state, shares, accounts, values[chunk], gaps[chunk])
        done = int(stops[chunk][-1])
        if progress is not None:
            progress(len(stops[chunk]))
    if not (gaps <= tolerance * values).all():
        _warn(float((gaps / values).max()), tolerance, stacklevel=4)
    return values, gaps, reduction.groups


def _warn(gap: float, tolerance: float, stacklevel: int = 3) -> None:
    message = f"certified to a relative gap of {gap:.2g}, not to tolerance={tolerance:g}"
    warnings.warn(message, CertificateWarning, stacklevel=stacklevel)
