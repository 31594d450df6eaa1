"""Predict the reward of every arm in a context, for any scale of rewards.

With om the mean of all rewards seen and c the largest, each arm has five predictors, and a sixth, f of `least_squares`,
if rounds have features. With y = r - om - f the residual (f = 0 without features), these are

    g                       its mean y over all contexts
    long, recent, latest    mean y - g in this context: unweighted, and with weights .97 and .8 per later round of it
    age                     mean y - g in contexts of the same age: the octave of their number of rounds

each a shrunken mean, sum/(count + k), with k = 2.5 s/om for the slow ones and .5 s/om for the recent ones. Then

    m = clip(om + beta.F, 0, c) ;   beta = (A + lam I)^-1 (b + lam beta0),   lam = 5 s om
    A = .9995 A + sum F F' ;   b = .9995 b + sum F (r - om)     over the arms seen in a round
    beta0 = (1, 1, 1/2, 1/2, 0), with features (0, 0, 0, 0, 0, 1): f has a constant for every arm, which learns g too

Multiplying all rewards by a power of two changes nothing else, as long as c is at least LEAST_REWARD: squares of
smaller rewards underflow, and until a larger one comes all rewards count as zeros. f is clipped to [-c, c].

The size s of rewards is up to the algorithm: (mean of r^2)/om, which is c if rewards are 0 or c, or c itself.

Symbols: om is `reward_sum`/`seen`, c `largest`, A `gram` (its lower half, row by row), b `moment`, beta `coefficients`,
F the rows `columns`, f the row `from_features`, m `predicted`. The layout of an algorithm that
uses the predictor begins with these names, and the kernels take its whole memory.
"""

import math
from typing import Any

from alphafair.jit import kernel
from alphafair.math.least_squares import KEEP, add, show
from alphafair.math.least_squares import predict as predict_from_features
from alphafair.math.least_squares import solve as solve_features
from alphafair.math.two_sides import SETTINGS as OF_SIDES
from alphafair.math.utility import ACCOUNT
from alphafair.values.arrays import positions

FEATURES = True  # False in machine code for policies without features
OWN_PREDICTORS, PREDICTORS, OCTAVES = 5, 6, 8

# most_arms: including retired ones; described: rounds have features; fits: `least_squares` learns from them
SETTINGS = positions(OF_SIDES, "most_arms", "described", "fits", "features_of_arms")
SCALARS = positions("gram[21]", "moment[6]", "coefficients[6]", "reward_sum", "seen", "largest", "rounds")
OF_BANDITS = positions(SCALARS, "squared_rewards")  # the scalars that `teach` needs
ARMS = positions(ACCOUNT, "arm_sum", "arm_count", "age_sum[8]", "age_count[8]")
CONTEXT_SCALARS = positions("visits")
CONTEXTS = positions("long_sum", "long_count", "recent_sum", "recent_count", "latest_sum", "latest_count")
SCRATCH = positions("predicted", "scores", "columns[5]", "from_features")
PARTS = positions("factor[21]")

LONG_SHRINK, RECENT_SHRINK = 2.5, 0.5  # times s/om
RECENT, LATEST = 0.97, 0.8  # factor of earlier rounds per later round of the context
FORGET, RIDGE = 0.9995, 5.0  # of the regression; the ridge times s om
PRIOR = (1.0, 1.0, 0.5, 0.5, 0.0, 0.0)  # beta before anything is learned, without features and with them
DESCRIBED_PRIOR = (0.0, 0.0, 0.0, 0.0, 0.0, 1.0)
LEAST_REWARD = 1e-140
ROUNDING = 1e-9
PART = "with sums over rewards that the largest one is part of"


def start_predictor(memory: Any) -> None:
    """Write the prior of beta to a blank memory."""
    prior = DESCRIBED_PRIOR if memory.settings[SETTINGS.described] > 0.0 else PRIOR
    memory.scalars[SCALARS.coefficients : SCALARS.coefficients + len(prior)] = prior


def check_sums(memory: Any) -> str | None:
    """Return what is wrong with the sum of rewards: the largest one is a part of it."""
    total, seen, largest = memory.scalars[[SCALARS.reward_sum, SCALARS.seen, SCALARS.largest]].tolist()
    if min(total, seen, largest) < 0.0:
        return "finite, with counts of at least 0"
    return PART if largest > total * (1.0 + ROUNDING) else None


@kernel
def octave(visits):
    """The number of doublings from 1 to visits + 1, at most OCTAVES - 1."""
    k = 0
    edge = 2.0
    while k < OCTAVES - 1 and visits + 1.0 >= edge:
        k += 1
        edge *= 2.0
    return k


@kernel
def show_features(memory, features, t):
    """Write the features of round t to memory; return whether they changed."""
    if not FEATURES:
        return False  # pragma: no cover - machine code alone
    return show(memory.features.z, features, t)


@kernel
def learn_features(memory, arm, reward):
    """Update the least squares with one reward of an arm, minus the mean."""
    if memory.settings[SETTINGS.fits] > 0.0:
        mean = memory.scalars[SCALARS.reward_sum] / memory.scalars[SCALARS.seen]
        of_arms = memory.settings[SETTINGS.features_of_arms] > 0.0
        solve_features(memory.features, add(memory.features, of_arms, arm, reward - mean, KEEP))


@kernel
def learn_features_of_all(memory, rewards):
    """The same with a reward of every arm, solved once if theta is shared."""
    if memory.settings[SETTINGS.fits] > 0.0:
        mean = memory.scalars[SCALARS.reward_sum] / memory.scalars[SCALARS.seen]
        of_arms, last = memory.settings[SETTINGS.features_of_arms] > 0.0, rewards.shape[0] - 1
        for i in range(rewards.shape[0]):
            keep = 1.0 if of_arms and i > 0 else KEEP
            column = add(memory.features, of_arms, i, rewards[i] - mean, keep)
            if i == last or not of_arms:
                solve_features(memory.features, column)


@kernel
def predict(memory, context, size):
    """Write m to `predicted` and F to `columns`; m = 0 until the first positive reward."""
    arms, rows, scratch, numbers = memory.arms, memory.contexts[context], memory.scratch, memory.scalars
    predicted, f5 = scratch[SCRATCH.predicted], scratch[SCRATCH.from_features]
    n, largest = predicted.shape[0], numbers[SCALARS.largest]
    described = FEATURES and memory.settings[SETTINGS.described] > 0.0
    if FEATURES:  # pragma: no branch - machine code alone
        if memory.settings[SETTINGS.fits] > 0.0:
            predict_from_features(memory.features, memory.settings[SETTINGS.features_of_arms] > 0.0, f5)
        if described:
            for i in range(n):
                if not abs(f5[i]) <= largest:
                    f5[i] = largest if f5[i] > 0.0 else -largest if f5[i] < 0.0 else 0.0
    if largest < LEAST_REWARD:
        for i in range(n):
            predicted[i] = 0.0
        return
    mean = numbers[SCALARS.reward_sum] / numbers[SCALARS.seen]
    slow, quick = LONG_SHRINK * size / mean, RECENT_SHRINK * size / mean
    age = octave(memory.context_scalars[context, CONTEXT_SCALARS.visits])
    arm_sum, arm_count = arms[ARMS.arm_sum], arms[ARMS.arm_count]
    age_sum, age_count = arms[ARMS.age_sum + age], arms[ARMS.age_count + age]
    long_sum, long_count = rows[CONTEXTS.long_sum], rows[CONTEXTS.long_count]
    recent_sum, recent_count = rows[CONTEXTS.recent_sum], rows[CONTEXTS.recent_count]
    latest_sum, latest_count = rows[CONTEXTS.latest_sum], rows[CONTEXTS.latest_count]
    first, beta = SCRATCH.columns, SCALARS.coefficients
    f0, f1, f2, f3, f4 = scratch[first], scratch[first + 1], scratch[first + 2], scratch[first + 3], scratch[first + 4]
    b0, b1, b2 = numbers[beta], numbers[beta + 1], numbers[beta + 2]
    b3, b4, b5 = numbers[beta + 3], numbers[beta + 4], numbers[beta + 5]
    for i in range(n):
        g = arm_sum[i] / (arm_count[i] + slow)
        f0[i] = g
        f1[i] = (long_sum[i] - long_count[i] * g) / (long_count[i] + slow)
        f2[i] = (recent_sum[i] - recent_count[i] * g) / (recent_count[i] + quick)
        f3[i] = (latest_sum[i] - latest_count[i] * g) / (latest_count[i] + quick)
        f4[i] = (age_sum[i] - age_count[i] * g) / (age_count[i] + slow)
        value = mean + b0 * f0[i] + b1 * f1[i] + b2 * f2[i] + b3 * f3[i] + b4 * f4[i]
        predicted[i] = min(max(value + b5 * f5[i] if described else value, 0.0), largest)


@kernel
def forget(numbers):
    """Discount A and b, once per round."""
    for k in range(SCALARS.coefficients):
        numbers[k] *= FORGET


@kernel
def regress(memory, arm, reward):
    """A = .9995 A + F F', b = .9995 b + F (r - om) for one arm that was seen, with the mean of before."""
    forget(memory.scalars)
    add_seen(memory, arm, reward)


@kernel
def add_seen(memory, arm, reward):
    """The same without the factors."""
    numbers, scratch = memory.scalars, memory.scratch
    y = reward - numbers[SCALARS.reward_sum] / numbers[SCALARS.seen]
    entry = SCALARS.gram
    for k in range(_n_predictors(memory)):
        f = scratch[SCRATCH.columns + k, arm]
        for j in range(k + 1):
            numbers[entry] += f * scratch[SCRATCH.columns + j, arm]
            entry += 1
        numbers[SCALARS.moment + k] += f * y


@kernel
def regress_all(memory, rewards):
    """The same for every arm, one entry at a time; nothing until the first positive reward."""
    numbers, scratch = memory.scalars, memory.scratch
    if numbers[SCALARS.largest] < LEAST_REWARD:
        return
    forget(numbers)
    mean = numbers[SCALARS.reward_sum] / numbers[SCALARS.seen]
    entry = SCALARS.gram
    for k in range(_n_predictors(memory)):
        left = scratch[SCRATCH.columns + k]
        for j in range(k + 1):
            numbers[entry] += product_sum(left, scratch[SCRATCH.columns + j])
            entry += 1
        moment = 0.0
        for i in range(rewards.shape[0]):
            moment += left[i] * (rewards[i] - mean)
        numbers[SCALARS.moment + k] += moment


@kernel
def _n_predictors(memory):
    """Return the number of predictors: with features there is one more."""
    if FEATURES and memory.settings[SETTINGS.described] > 0.0:
        return PREDICTORS
    return OWN_PREDICTORS


@kernel
def product_sum(left, right):
    """<left, right>, in four partial sums, for instruction-level parallelism."""
    n = left.shape[0]
    s0 = s1 = s2 = s3 = 0.0
    whole = n - n % 4
    for i in range(0, whole, 4):
        s0 += left[i] * right[i]
        s1 += left[i + 1] * right[i + 1]
        s2 += left[i + 2] * right[i + 2]
        s3 += left[i + 3] * right[i + 3]
    for i in range(whole, n):
        s0 += left[i] * right[i]
    return (s0 + s1) + (s2 + s3)


@kernel
def count(memory, reward):
    """Count a reward."""
    numbers = memory.scalars
    numbers[SCALARS.reward_sum] += reward
    numbers[SCALARS.seen] += 1.0
    numbers[SCALARS.largest] = max(numbers[SCALARS.largest], reward)


@kernel
def solve(memory, size):
    """beta = (A + lam I)^-1 (b + lam beta0), by Cholesky; nothing until the first positive reward.

    In exact arithmetic no pivot is below lam; one that rounding lowers to less than half of it is raised to that.
    """
    numbers, lower = memory.scalars, memory.parts[PARTS.factor :]
    if numbers[SCALARS.largest] < LEAST_REWARD:
        return
    n_predictors, gram, moment, coefficients = _n_predictors(memory), SCALARS.gram, SCALARS.moment, SCALARS.coefficients
    prior = DESCRIBED_PRIOR if n_predictors == PREDICTORS else PRIOR
    ridge = RIDGE * numbers[SCALARS.reward_sum] / numbers[SCALARS.seen] * size
    for k in range(n_predictors):
        row = k * (k + 1) // 2
        for j in range(k + 1):
            column = j * (j + 1) // 2
            rest = numbers[gram + row + j] + (ridge if j == k else 0.0)
            for r in range(j):
                rest -= lower[row + r] * lower[column + r]
            lower[row + j] = math.sqrt(max(rest, 0.5 * ridge)) if j == k else rest / lower[column + j]
        beta = numbers[moment + k] + ridge * prior[k]
        for r in range(k):
            beta -= lower[row + r] * numbers[coefficients + r]
        numbers[coefficients + k] = beta / lower[row + k]
    for k in range(n_predictors - 1, -1, -1):
        beta = numbers[coefficients + k]
        for r in range(k + 1, n_predictors):
            beta -= lower[r * (r + 1) // 2 + k] * numbers[coefficients + r]
        numbers[coefficients + k] = beta / lower[k * (k + 1) // 2 + k]


@kernel
def fade(rows):
    """Discount the recent sums of a context, once per round of it."""
    recent_sum, recent_count = rows[CONTEXTS.recent_sum], rows[CONTEXTS.recent_count]
    latest_sum, latest_count = rows[CONTEXTS.latest_sum], rows[CONTEXTS.latest_count]
    for i in range(recent_sum.shape[0]):
        recent_sum[i] *= RECENT
        recent_count[i] *= RECENT
        latest_sum[i] *= LATEST
        latest_count[i] *= LATEST


@kernel
def remember(arms, rows, age, arm, y):
    """Add y to the arm's five sums, and 1 to their counts; `rows` are those of the context."""
    rows[CONTEXTS.long_sum, arm] += y
    rows[CONTEXTS.long_count, arm] += 1.0
    rows[CONTEXTS.recent_sum, arm] += y
    rows[CONTEXTS.recent_count, arm] += 1.0
    rows[CONTEXTS.latest_sum, arm] += y
    rows[CONTEXTS.latest_count, arm] += 1.0
    arms[ARMS.arm_sum, arm] += y
    arms[ARMS.arm_count, arm] += 1.0
    arms[ARMS.age_sum + age, arm] += y
    arms[ARMS.age_count + age, arm] += 1.0


@kernel
def reward_size(numbers):
    """Return (mean of r^2)/om, the size of rewards that are seen one at a time; 0 until the first positive one."""
    if numbers[SCALARS.largest] < LEAST_REWARD:
        return 0.0
    return numbers[OF_BANDITS.squared_rewards] / numbers[SCALARS.reward_sum]


@kernel
def teach(memory, context, arm, reward):
    """Learn the reward of one arm, with the columns that `predict` has written for this context."""
    numbers, rows = memory.scalars, memory.contexts[context]
    if numbers[SCALARS.largest] >= LEAST_REWARD:
        regress(memory, arm, reward)
    numbers[OF_BANDITS.squared_rewards] += reward * reward
    count(memory, reward)
    y = reward - numbers[SCALARS.reward_sum] / numbers[SCALARS.seen]
    fade(rows)
    solve(memory, reward_size(numbers))
    age = octave(memory.context_scalars[context, CONTEXT_SCALARS.visits])
    if FEATURES and memory.settings[SETTINGS.described] > 0.0:
        remember(memory.arms, rows, age, arm, y - memory.scratch[SCRATCH.from_features, arm])
        learn_features(memory, arm, reward)
    else:
        remember(memory.arms, rows, age, arm, y)
    memory.context_scalars[context, CONTEXT_SCALARS.visits] += 1.0
