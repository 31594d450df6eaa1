"""alpha-FairCB with full information: adaptive gradient ascent, one learner per context, one shared account R.

Round t, context j, distribution x used, rewards r, g = phi'(R_*) r:

    S_j += ||g||^2 ;   x^j <- projection of  x^j + g/sqrt(S_j) ;   R += x r

The step is D/sqrt(2 S_j) with D = sqrt(2), the diameter of the simplex. R_* is R before the round (what the
lemmas analyse), after it, or as it stands when the context comes again (the paper's pseudo-code to the letter).

With groups and entitlements R is R_G/s_G of the arm's group (see `groups`). With a floor nu under every arm the
distribution used is nu + (1 - n nu) x, and g is (1 - n nu) times as much; with floors under groups x keeps them itself.
Without any of it, and R_* before the round, the kernels called plain do the same, sooner compiled.

    shared:    an account (see `utility`), head DRIFT
    learners:  X, heads SQUARED_NORMS (S), CLOSED_ROOTS, CLOSED_NORMS | for next_visit: WAITING, the rewards that wait

When contexts are not coupled, each has an account of its own:

    learners:  X, heads as above | an account

`DRIFT` adds up <g, x held - x used>: zero while rewards arrive in order and no arm is masked. With it the regret
certificate holds for late and masked decisions as well. `CLOSED_ROOTS` adds up sqrt(S_j) at the end of every epoch,
that is, whenever arms came or went and S_j had grown since (CLOSED_NORMS): with it the certificate holds for the best
policy of every epoch.
"""

import math

import numpy as np

from alphafair.jit import kernel
from alphafair.kernels.draw import draw_arm
from alphafair.kernels.groups import (
    ARM_FLOOR,
    GROUP_FLOORED,
    INCREMENT,
    POOLED,
    at_stake,
    earn_together,
    keep_floors,
    pool,
    project_on_floors,
)
from alphafair.kernels.memory import ARMS, SETTINGS, blank, blank_work, rearranged
from alphafair.kernels.simplex import project, settle
from alphafair.kernels.utility import (
    ACCOUNT_ROWS,
    ALPHA,
    SLOPE,
    TOTAL,
    account_settings,
    admit,
    earn,
    marginal_utility,
    open_accounts,
)

BEFORE, NEXT_VISIT, AFTER = 0, 1, 2
X, WAITING = 0, 1  # rows of a learner
OWN_ACCOUNT = 1  # the first row of a learner's own account, where contexts are not coupled
SQUARED_NORMS, CLOSED_ROOTS, CLOSED_NORMS = 0, 1, 2  # heads of X
DRIFT = 0  # head of TOTAL
READING = 7  # among the settings, after those of the account
STEP, HELD = 1, 2  # scratch


def make_work(n_arms: int, alpha: float, reading: int = BEFORE) -> np.ndarray:
    return blank_work(2, n_arms, *account_settings(alpha), reading)


def first_shared(n_arms: int, alpha: float) -> np.ndarray:
    """Nothing earned, nothing drifted."""
    account = blank(ACCOUNT_ROWS, n_arms)
    open_accounts(account[:, ARMS:], 1.0, alpha)
    return account[None]


def first_learner(n_arms: int, reading: int) -> np.ndarray:
    """Uniform, with no gradient seen and nothing waiting."""
    learner = blank(2 if reading == NEXT_VISIT else 1, n_arms)
    learner[X, ARMS:] = 1.0 / n_arms
    return learner


def first_independent_learner(n_arms: int, alpha: float) -> np.ndarray:
    """Uniform, with an account of its own."""
    learner = np.concatenate([first_learner(n_arms, BEFORE), blank(ACCOUNT_ROWS, n_arms)])
    open_accounts(learner[OWN_ACCOUNT:, ARMS:], 1.0, alpha)
    return learner


@kernel
def climb(slope, x, squared_norms, rewards, part, step):
    """Write x + g/sqrt(S), with g = phi'(R) r or a part of it, to `step`; the new S, and below the projection's theta.

    It is theta itself if the support of x stays; NaN if there is no gradient, and so no step.
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
    """x <- projection of x + g/sqrt(S), in place; returns the new S."""
    squared_norms, theta = climb(slope, x, squared_norms, rewards, 1.0, step)
    if not math.isnan(theta):
        settle(step, theta, x)
    return squared_norms


@kernel
def ascend_on_floors(work, slope, x, squared_norms, rewards, step, out):
    """The same on the distributions that keep floors; writes the new x to `out`."""
    squared_norms, theta = climb(slope, x, squared_norms, rewards, at_stake(work), step)
    if math.isnan(theta):
        for i in range(out.shape[0]):
            out[i] = x[i]
    elif work[SETTINGS, GROUP_FLOORED] > 0.0:
        project_on_floors(work, step, theta, out)
    else:
        settle(step, theta, out)
    return squared_norms


@kernel
def catch_up(work, shared, learners, context, out):
    """Write x to `out` and return S, both with the step that has waited for the next visit; the learner stays."""
    n = out.shape[0]
    x, waiting = learners[context, X, ARMS:], learners[context, WAITING, ARMS:]
    squared_norms = learners[context, X, SQUARED_NORMS]
    return ascend_on_floors(work, shared[0, SLOPE, ARMS:], x, squared_norms, waiting, work[STEP, :n], out)


@kernel
def draw_plainly(work, shared, learners, context, uniform, out):
    """Write the context's distribution to `out` and draw an arm from it."""
    x = learners[context, X, ARMS:]
    for i in range(out.shape[0]):
        out[i] = x[i]
    arm = draw_arm(out, uniform)
    return arm, out[arm]


@kernel
def draw(work, shared, learners, context, uniform, out):
    """The same with floors, and with the step that has waited for this visit."""
    if work[SETTINGS, READING] == NEXT_VISIT:
        catch_up(work, shared, learners, context, out)
    else:
        x = learners[context, X, ARMS:]
        for i in range(out.shape[0]):
            out[i] = x[i]
    if work[SETTINGS, ARM_FLOOR] > 0.0:
        keep_floors(work, out)
    arm = draw_arm(out, uniform)
    return arm, out[arm]


@kernel
def learn_plainly(work, shared, learners, context, probabilities, rewards):
    """Take the ascent step and earn x r."""
    head, x = learners[context, X, :ARMS], learners[context, X, ARMS:]
    step = work[STEP, : rewards.shape[0]]
    head[SQUARED_NORMS] = ascend(shared[0, SLOPE, ARMS:], x, head[SQUARED_NORMS], rewards, step)
    earn(shared, 0, 0, work[SETTINGS], probabilities, rewards)


@kernel
def learn_plainly_any_time(work, shared, learners, context, probabilities, rewards):
    """The same for a decision that may be late or masked: first the drift, zero if it is neither."""
    x, slope, total_head = learners[context, X, ARMS:], shared[0, SLOPE, ARMS:], shared[0, TOTAL, :ARMS]
    for i in range(rewards.shape[0]):
        total_head[DRIFT] += slope[i] * rewards[i] * (x[i] - probabilities[i])
    learn_plainly(work, shared, learners, context, probabilities, rewards)


@kernel
def learn(work, shared, learners, context, probabilities, rewards):
    """`learn_plainly` with groups, floors, and phi' of the time that the reading asks for."""
    n = rewards.shape[0]
    head, x, slope = learners[context, X, :ARMS], learners[context, X, ARMS:], shared[0, SLOPE, ARMS:]
    reading = work[SETTINGS, READING]
    if reading == AFTER:
        earn_together(work, shared, probabilities, rewards)
    read = learners[context, WAITING, ARMS:] if reading == NEXT_VISIT else rewards
    head[SQUARED_NORMS] = ascend_on_floors(work, slope, x, head[SQUARED_NORMS], read, work[STEP, :n], x)
    if reading == NEXT_VISIT:
        for i in range(n):
            read[i] = rewards[i]
    if reading != AFTER:
        earn_together(work, shared, probabilities, rewards)


@kernel
def learn_any_time(work, shared, learners, context, probabilities, rewards):
    """`learn` for a decision that may be late or masked."""
    n = rewards.shape[0]
    held, total_head, total = work[HELD, :n], shared[0, TOTAL, :ARMS], shared[0, TOTAL, ARMS:]
    reading, pooled = work[SETTINGS, READING], work[SETTINGS, POOLED] > 0.0
    draw(work, shared, learners, context, 0.0, held)
    if pooled and reading == AFTER:
        pool(work, probabilities, rewards)
    for i in range(n):
        ahead = held[i] - probabilities[i]
        slope = shared[0, SLOPE, ARMS + i]
        if reading == AFTER and ahead != 0.0:
            more = work[INCREMENT, i] if pooled else probabilities[i] * rewards[i]
            slope = marginal_utility(total[i] + more, work[SETTINGS, ALPHA])
        if reading == NEXT_VISIT:  # g will be read later and can only be smaller: an upper bound
            ahead = max(ahead, 0.0)
        total_head[DRIFT] += slope * rewards[i] * ahead
    learn(work, shared, learners, context, probabilities, rewards)


@kernel
def learn_independently(work, shared, learners, context, probabilities, rewards):
    """The same with R of this context alone."""
    n = rewards.shape[0]
    head, x = learners[context, X, :ARMS], learners[context, X, ARMS:]
    slope = learners[context, OWN_ACCOUNT + SLOPE, ARMS:]
    head[SQUARED_NORMS] = ascend(slope, x, head[SQUARED_NORMS], rewards, work[STEP, :n])
    earn(learners, context, OWN_ACCOUNT, work[SETTINGS], probabilities, rewards)


def squared_gradient_norms(work: np.ndarray, shared: np.ndarray, learners: np.ndarray) -> np.ndarray:
    """S_j of every context, the gradient that still waits for the next visit included."""
    norms = learners[:, X, SQUARED_NORMS].copy()
    if work[SETTINGS, READING] == NEXT_VISIT:
        out = np.empty(learners.shape[2] - ARMS)
        for context in range(len(learners)):
            norms[context] = catch_up(work, shared, learners, context, out)
    return norms


def change_arms(work, shared, learners, kept, entries):
    """A new epoch: arms that leave take their probability with them, new ones enter with none and with an account.

    A step that still waits is taken now. Contexts that have learned nothing are uniform again.
    """
    if work[SETTINGS, READING] == NEXT_VISIT:
        learners, out = learners.copy(), np.empty(learners.shape[2] - ARMS)
        for context in range(len(learners)):
            learners[context, X, SQUARED_NORMS] = catch_up(work, shared, learners, context, out)
            learners[context, X, ARMS:] = out
            learners[context, WAITING, ARMS:] = 0.0
    shared = rearranged(shared, kept, len(entries))
    admit(shared[0, :ACCOUNT_ROWS, ARMS:], entries, work[SETTINGS, ALPHA])
    some_left, learners = learners.shape[2] - ARMS > len(kept), rearranged(learners, kept, len(entries))
    for learner in learners:
        new_epoch(learner[X], SQUARED_NORMS, CLOSED_ROOTS, CLOSED_NORMS, len(kept), some_left)
    return shared, learners


def change_independent_arms(work, shared, learners, kept, entries):
    """The same in every context on its own."""
    some_left, learners = learners.shape[2] - ARMS > len(kept), rearranged(learners, kept, len(entries))
    for learner in learners:
        new_epoch(learner[X], SQUARED_NORMS, CLOSED_ROOTS, CLOSED_NORMS, len(kept), some_left)
        admit(learner[OWN_ACCOUNT:, ARMS:], entries, work[SETTINGS, ALPHA])
    return rearranged(shared, kept, len(entries)), learners


def new_epoch(row, norms, closed_roots, closed_norms, n_kept, some_left):
    """Close the epoch of one learner, whose row and heads these are: x loses those that left, newcomers have none."""
    x = row[ARMS:]
    if row[norms] > row[closed_norms]:
        row[closed_roots] += math.sqrt(row[norms])
        row[closed_norms] = row[norms]
    if row[norms] == 0.0:
        x[:] = 1.0 / len(x)
    elif some_left:
        project(x[:n_kept].copy(), x[:n_kept])
