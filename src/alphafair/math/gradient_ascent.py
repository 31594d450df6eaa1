"""Adaptive gradient ascent on the simplex: with the gradient g of a round,

    S += ||g||^2 ;   x <- projection of  x + g/sqrt(S)

The step is D/sqrt(2 S) with D = sqrt(2), the diameter of the simplex. With a floor nu for every arm the distribution
used is nu + (1 - n nu) x, and g is scaled by 1 - n nu; with floors for groups x itself keeps them.

`closed_roots` is the sum of sqrt(S) at the end of every epoch: whenever arms changed and S had grown since the last
time (`closed_norms`). With it the regret certificate holds against the best policy of every epoch.
"""

import math
from typing import Any

import numpy as np

from alphafair.jit import kernel, repeated
from alphafair.math.floors import F, at_stake, project_on_floors
from alphafair.math.simplex import project, settle
from alphafair.math.utility import reopen_accounts

GROUPS = True  # see `floors`


@kernel
def climb(slope, x, squared_norms, rewards, part, step):
    """Write x + g/sqrt(S) to `step`, with g = part phi'(R) r; return the new S, and a lower bound of theta.

    The bound is theta of the projection itself if the support of x does not change; NaN if the gradient is 0.
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
    step_size = 1.0 / math.sqrt(squared_norms)
    for i in range(n):
        step[i] = x[i] + step_size * step[i]
    return squared_norms, step_size * ((s0 + s1) / count)


@kernel
def ascend(slope, x, squared_norms, rewards, step):
    """x <- projection of x + g/sqrt(S), in place; return the new S."""
    squared_norms, theta = climb(slope, x, squared_norms, rewards, 1.0, step)
    if not math.isnan(theta):
        settle(step, theta, x)
    return squared_norms


@kernel
def ascend_on_floors(groups, slope, x, squared_norms, rewards, step, out):
    """The same on distributions with floors; write the new x to `out`."""
    squared_norms, theta = climb(slope, x, squared_norms, rewards, at_stake(groups), step)
    if math.isnan(theta):
        for i in range(out.shape[0]):
            out[i] = x[i]
    elif GROUPS and groups.numbers[F.group_floored] > 0.0:
        project_on_floors(groups, step, theta, out)
    else:
        settle(step, theta, out)
    return squared_norms


def close_epoch(x: np.ndarray, numbers: np.ndarray, names: Any, n_kept: int, some_left: bool) -> None:
    """End an epoch: project x on the remaining arms, with 0 for new ones; learners without a gradient become uniform.

    For many learners: x is (learner, arm), `numbers` are (learner, number) with positions `names`.
    """
    project_one = repeated(project, len(x))
    for own, row in zip(numbers, x, strict=True):
        if own[names.squared_norms] > own[names.closed_norms]:
            own[names.closed_roots] += math.sqrt(own[names.squared_norms])
            own[names.closed_norms] = own[names.squared_norms]
        if own[names.squared_norms] == 0.0:
            row[:] = 1.0 / len(row)
        elif some_left:
            project_one(row[:n_kept].copy(), row[:n_kept])


def restart_certificate(memory: Any, scalars: Any, context_scalars: Any) -> None:
    """After a change of alpha: recompute all slopes and start the certificate anew."""
    reopen_accounts(memory, np.arange(memory.arms.shape[1]))
    memory.context_scalars[:, context_scalars.closed_roots] = memory.scalars[scalars.drift] = 0.0
