"""Adaptive gradient ascent on the simplex: with the gradient g of a round,

    S += ||g||^2 ;   x <- projection of  x + g/sqrt(S)

The step is D/sqrt(2 S) with D = sqrt(2), the diameter of the simplex. With a floor nu for every arm the distribution
used is nu + (1 - n nu) x, and g is scaled by 1 - n nu; with floors for groups x itself keeps them.

`closed_roots` is the sum of sqrt(S) at the end of every epoch: whenever arms changed and S had grown since the last
time (`closed_norms`). With it the regret certificate holds against the best policy of every epoch.

From alpha = 1 on, g is the gradient of the welfare W, p r with p = dW/dR: with phi'(R) r, which shrinks like
R^(-alpha), the ascent would stop learning. True gains are u = S W^(-alpha) times these, and u never rises within an
epoch, so the regret in sum_t <phi'(R) r, x> is at most `bound`, the sum over steps of

    u 2 (sqrt(S_new) - sqrt(S_old)),   and u sqrt(S_old) for the first step of a context after arms changed (`reopened`)

in units of W_0^(-alpha), with W_0 the welfare at the start (`first_welfare`).

Slates: x is a distribution with the cap of `alphafair.math.capped`, g is scaled by `keep` and the step by `spread`,
which is kept as `reach`, and every sqrt(S) in the bounds has that factor. `shown` is the number of arms that a context
shows; decisions of another number in it are counted in `outside`, and then there is no bound.
"""

import math
from typing import Any

import numpy as np

from alphafair.jit import kernel, repeated
from alphafair.math.capped import settle_capped
from alphafair.math.floors import F, at_stake, project_on_floors, welfare_together
from alphafair.math.simplex import project, settle
from alphafair.math.utility import SETTINGS, open_accounts, reopen_accounts, reopen_relative

GROUPS = True  # see `floors`
RESTARTED = {"squared_norms", "closed_roots", "closed_norms", "reopened"} | {
    "bound",
    "drift",
    "ahead",
    "gaps",
    "spread",
    "shown",
    "outside",
}  # by a new period


@kernel
def climb(slope, x, squared_norms, rewards, part, reach, step):
    """Write x + reach g/sqrt(S) to `step`, with g = part phi'(R) r; return the new S, and a lower bound of theta.

    `reach` is 1 on the simplex. The bound is theta of the projection itself if the support of x does not change; NaN if
    the gradient is 0.
    """
    n = rewards.shape[0]
    count = 0
    for i in range(n):
        step[i] = slope[i] * (part * rewards[i])
        count += 1 if x[i] > 0.0 else 0
    q0 = q1 = s0 = s1 = 0.0  # the sums of g^2, and of g over the support of x, two side by side
    for i in range(0, n - 1, 2):
        g0, g1 = step[i], step[i + 1]
        q0 += g0 * g0
        q1 += g1 * g1
        s0 += g0 if x[i] > 0.0 else 0.0
        s1 += g1 if x[i + 1] > 0.0 else 0.0
    if n % 2 == 1:
        q0 += step[n - 1] * step[n - 1]
        s0 += step[n - 1] if x[n - 1] > 0.0 else 0.0
    squared_norms += q0 + q1
    if q0 + q1 == 0.0:
        return squared_norms, np.nan
    step_size = reach / math.sqrt(squared_norms)
    for i in range(n):
        step[i] = x[i] + step_size * step[i]
    return squared_norms, step_size * ((s0 + s1) / count)


@kernel
def ascend(slope, scale, x, squared_norms, rewards, step):
    """x <- projection of x + g/sqrt(S), in place, with g = scale phi'(R) r; return the new S."""
    squared_norms, theta = climb(slope, x, squared_norms, rewards, scale, 1.0, step)
    if not math.isnan(theta):
        settle(step, theta, x)
    return squared_norms


@kernel
def ascend_on_floors(groups, slope, scale, x, squared_norms, rewards, step, out):
    """The same on distributions with floors; write the new x to `out`."""
    squared_norms, theta = climb(slope, x, squared_norms, rewards, at_stake(groups) * scale, 1.0, step)
    if math.isnan(theta):
        for i in range(out.shape[0]):
            out[i] = x[i]
    elif GROUPS and groups.numbers[F.group_floored] > 0.0:
        project_on_floors(groups, step, theta, out)
    else:
        settle(step, theta, out)
    return squared_norms


@kernel
def within_cap(x, top, out):
    """Write x to `out`, projected on the cap if an entry is above it: the last decision may have had another cap."""
    largest = 0.0
    for i in range(x.shape[0]):
        out[i] = x[i]
        largest = max(largest, x[i])
    if largest > top:
        settle_capped(x, top, out)


@kernel
def ascend_capped(slope, part, x, squared_norms, rewards, top, reach, step, out):
    """The step of a slate, reach g/sqrt(S) from x within the cap; write the new x to `out` and return the new S.

    No step if there is one distribution only.
    """
    if reach > 0.0:
        squared_norms, theta = climb(slope, x, squared_norms, rewards, part, reach, step)
        if not math.isnan(theta):
            settle_capped(step, top, out)
    return squared_norms


@kernel
def count_shown(numbers, outside, own, shown, k):
    """Note how many arms a decision of a context showed, in the cells `shown` and `outside`."""
    if own[shown] != k:
        numbers[outside] += 1.0 if own[shown] > 0.0 else 0.0
        own[shown] = k


@kernel
def added_bound(u, before, after, reopened):
    """What a step from S = `before` to `after` adds to `bound`."""
    if after == before:
        return 0.0
    return u * (2.0 * (math.sqrt(after) - math.sqrt(before)) + (math.sqrt(before) if reopened > 0.0 else 0.0))


def close_epoch(x: np.ndarray, numbers: np.ndarray, names: Any, n_kept: int, some_left: bool) -> None:
    """End an epoch: project x on the remaining arms, with 0 for new ones; learners without a gradient become uniform.

    For many learners: x is (learner, arm), `numbers` are (learner, number) with positions `names`.
    """
    project_one = repeated(project, len(x))
    for own, row in zip(numbers, x, strict=True):
        if hasattr(names, "reopened"):
            own[names.reopened] = own[names.squared_norms] > 0.0
        elif own[names.squared_norms] > own[names.closed_norms]:
            slates = hasattr(names, "shown") and own[names.shown] > 1.0
            part = 2.0 * own[names.reach] if slates else 1.0  # the reach may be smaller from now on
            own[names.closed_roots] += part * math.sqrt(own[names.squared_norms])
            own[names.closed_norms] = own[names.squared_norms]
        if own[names.squared_norms] == 0.0:
            row[:] = 1.0 / len(row)
        elif some_left:
            project_one(row[:n_kept].copy(), row[:n_kept])


def restart_certificate(memory: Any, scalars: Any, context_scalars: Any) -> None:
    """After a change of alpha: recompute all slopes and start the certificate anew."""
    reopen_accounts(memory, np.arange(memory.arms.shape[1]))
    memory.context_scalars[:, context_scalars.closed_roots] = memory.scalars[scalars.drift] = 0.0


def restart(memory: Any, scalars: Any, context_scalars: Any) -> None:
    """Start a period: norms, sums of the bound and the share of the adaptive policy begin anew; x stays."""
    for names, cells in ((scalars, memory.scalars), (context_scalars, memory.context_scalars)):
        for name in RESTARTED & {*names._fields}:
            cells[..., getattr(names, name)] = 0.0
    memory.context_scalars[:, context_scalars.reach] = 1.0  # until a slate is learned from
    if "unit" in scalars._fields:
        reopen_on_welfare(memory, scalars)
    else:
        reopen_accounts(memory, np.arange(memory.arms.shape[1]))


def start_on_welfare(memory: Any, names: Any) -> None:
    """Open accounts of 1 for alpha >= 1."""
    open_accounts(memory.arms, 1.0, memory.settings[SETTINGS.alpha])
    memory.scalars[[names.unit, names.first_welfare]] = 1.0


def reopen_on_welfare(memory: Any, names: Any) -> None:
    """Recompute the unit and all slopes for alpha >= 1, after accounts were changed outside the kernels.

    `first_welfare` is the current welfare while there is no bound yet. If the welfare has fallen below it, the bound is
    converted to units of the current one, so that it stays in the range of numbers.
    """
    reopen_relative(memory, names.unit)
    numbers, alpha = memory.scalars, memory.settings[SETTINGS.alpha]
    welfare = welfare_together(memory.groups, memory.arms, numbers[names.unit], alpha)
    if numbers[names.bound] == 0.0 and numbers[names.drift] == 0.0:
        numbers[names.first_welfare] = welfare
    elif welfare < numbers[names.first_welfare]:
        factor = math.pow(welfare / numbers[names.first_welfare], alpha)
        numbers[[names.bound, names.drift]] *= factor
        numbers[names.first_welfare] = welfare


def in_slopes(numbers: Any, names: Any, alpha: float) -> float:
    """Return bound + drift in units of R^(-alpha); inf beyond the range of numbers."""
    with np.errstate(over="ignore"):
        unit = float(np.float64(numbers[names.first_welfare]) ** -alpha)
    total = float(numbers[names.bound] + numbers[names.drift])
    return unit * total if total != 0.0 else 0.0


def bound_on_joint_welfare(numbers: Any, names: Any) -> float:
    """Return bound + drift with a context weight: in units of ln W_2."""
    return float(numbers[names.bound] + numbers[names.drift])


def of_single_arms(state: Any) -> dict[str, np.ndarray]:
    """Return what snapshots from before slates lack: one arm was shown wherever something was learned."""
    norms = state.arrays.get("squared_norms")
    if not isinstance(norms, np.ndarray) or norms.ndim != 1 or norms.dtype != np.float64:
        return {}  # the snapshot is damaged, which its reader will say
    learned = norms > 0.0
    return {"shown": learned.astype(np.float64), "reach": np.ones(len(learned)), "outside": np.asarray(0.0)}
