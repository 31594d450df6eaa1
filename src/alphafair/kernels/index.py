"""The index: what every arm will pay in a context, learned from real traffic, of any reward scale.

With om the mean of all rewards seen and c the largest of them, each arm has five predictors, and a sixth, f of
`least_squares`, where rounds come with features. With y = r - om - f, what they do not say (f = 0 without), these are

    g                       its mean y over all contexts
    long, recent, latest    what this context pays over g: all visits alike, and with .97 and .8 per visit since
    age                     what it pays over g to contexts of the same age: the octave of their number of visits

each a shrunken mean, sum/(count + k), with k = 2.5 c/om for the slow ones and .5 c/om for the recent ones. Then

    m = clip(om + beta.F, 0, c) ;   beta = (A + lam I)^-1 (b + lam beta0),   lam = 5 om c
    A = .9995 A + sum F F' ;   b = .9995 b + sum F (r - om)     over the arms seen in a round
    beta0 = (1, 1, 1/2, 1/2, 0), with features (1, 0, 0, 0, 0, 1)

Multiplying all rewards by a power of two changes nothing else, as long as c is at least LEAST_REWARD: squares of less
have no digits left, and until a larger one comes all rewards count as zeros. f is kept in [-c, c], where y is.

    shared:    an account (see `utility`) | PENDING (rewards on their way) | ARM_SUM, ARM_COUNT | AGES: sums and
               counts of every octave by turns | those of `least_squares`, with features. The heads of the first rows
               are read as one list: see `gather`.
    learners:  LONG_SUM, LONG_COUNT, RECENT_SUM, RECENT_COUNT, LATEST_SUM, LATEST_COUNT | BASE, of the guaranteed
               learner, heads VISITS, NORMS, LEVEL, CLOSED_ROOTS; heads ROOT, PEAK_THEN of the first
"""

import math

import numpy as np

from alphafair.jit import kernel
from alphafair.kernels import least_squares
from alphafair.kernels.groups import LEAST_UNPROMISED, UNPROMISED
from alphafair.kernels.least_squares import KEEP, N_TERMS, OF_ARMS, memory_rows, say
from alphafair.kernels.memory import ARMS, SETTINGS, blank, blank_work, rearranged
from alphafair.kernels.utility import ACCOUNT_ROWS, ALPHA, account_settings, admit, open_accounts

OWN_PREDICTORS, PREDICTORS, OCTAVES = 5, 6, 8
PENDING, ARM_SUM, ARM_COUNT, AGES = ACCOUNT_ROWS, ACCOUNT_ROWS + 1, ACCOUNT_ROWS + 2, ACCOUNT_ROWS + 3
SHARED_ROWS = AGES + 2 * OCTAVES
LONG_SUM, LONG_COUNT, RECENT_SUM, RECENT_COUNT, LATEST_SUM, LATEST_COUNT, BASE, LEARNER_ROWS = range(8)
VISITS, NORMS, LEVEL, CLOSED_ROOTS = range(4)  # heads of BASE
ROOT, PEAK_THEN = range(2)  # heads of LONG_SUM: see `safe_mixture.add_up`
# the numbers: the lower half of A row by row, b, beta, and what is counted once
GRAM, MOMENT, COEFFICIENT = 0, 21, 27
ROUNDS, REWARD_SUM, SEEN, LARGEST, LEAD, SPREAD, SHARE, DRIFT = range(33, 41)
ROOTS, MASTER_ROOTS, EXPLORED, PEAKS, MASTER_ROOT, MASTER_PEAK, OUTSIDE = range(41, 48)  # of Theorem 1: `safe_mixture`
N_NUMBERS = 48  # whole rows of heads
NEVER_NEGATIVE = [ROUNDS, REWARD_SUM, SEEN, LARGEST, SPREAD, SHARE]
READY = N_NUMBERS  # beside the numbers in scratch: the context that a distribution is there for, counted from 1
MOST_ARMS, DESCRIBED = 7, 10  # among the settings, after those of the account: DESCRIBED, whether f is a predictor
# scratch; F in COLUMNS; from FREE_ROW on their owner's, then z, and the factor that `least_squares` makes
NUMBERS, PREDICTED, INDEX, FACTOR, COLUMNS = 1, 2, 3, 4, 5
SAID, FREE_ROW, SHOWN = COLUMNS + OWN_PREDICTORS, COLUMNS + PREDICTORS, COLUMNS + PREDICTORS + 5

LONG_SHRINK, RECENT_SHRINK = 2.5, 0.5  # times c/om
RECENT, LATEST = 0.97, 0.8  # what one more visit leaves of those before
FORGET, RIDGE = 0.9995, 5.0  # of the regression; the ridge times om c
PRIOR = (1.0, 1.0, 0.5, 0.5, 0.0, 0.0)  # beta before anything is learned, without features and with them
DESCRIBED_PRIOR = (1.0, 0.0, 0.0, 0.0, 0.0, 1.0)
LEAST_REWARD = 1e-140
TIE = 1.0 - 1e-9  # values above it times the best are as good as the best: rounding must not choose between arms


def make_work(n_arms: int, most_arms: int, alpha: float, n_features: int, *, of_arms: bool, fits: bool) -> np.ndarray:
    """The settings and scratch rows; with features, f is what `least_squares` fits, or somebody else writes to SAID."""
    n_terms = n_features + 1 if n_features and fits else 0
    work = blank_work(SHOWN - 1 + 2 * n_terms, max(n_arms, READY + 1, n_terms), *account_settings(alpha))
    work[SETTINGS, [MOST_ARMS, N_TERMS, OF_ARMS, DESCRIBED]] = most_arms, n_terms, of_arms, n_features > 0
    work[SETTINGS, [UNPROMISED, LEAST_UNPROMISED]] = 1.0
    if n_terms:
        work[SHOWN] = 1.0  # the first term of every z
    return work


def first_shared(n_arms: int, alpha: float, n_features: int, *, fits: bool) -> np.ndarray:
    """Nothing earned, nothing seen."""
    shared = blank(SHARED_ROWS + memory_rows(n_features if fits else 0), n_arms)[None]
    open_accounts(shared[0, :ACCOUNT_ROWS, ARMS:], 1.0, alpha)
    numbers = np.zeros(N_NUMBERS)
    numbers[COEFFICIENT : COEFFICIENT + PREDICTORS] = DESCRIBED_PRIOR if n_features else PRIOR
    numbers[SHARE] = 1.0
    scatter(numbers, shared)
    return shared


def first_learner(n_arms: int, base: float, level: float) -> np.ndarray:
    """No visit; the guaranteed learner's row holds `base` for every arm."""
    learner = blank(LEARNER_ROWS, n_arms)
    learner[BASE, ARMS:] = base
    learner[BASE, LEVEL] = level
    return learner


@kernel
def gather(shared, numbers):
    """The heads of the first rows as one list."""
    for row in range(N_NUMBERS // ARMS):
        for k in range(ARMS):
            numbers[row * ARMS + k] = shared[0, row, k]


@kernel
def scatter(numbers, shared):
    """And back."""
    for row in range(N_NUMBERS // ARMS):
        for k in range(ARMS):
            shared[0, row, k] = numbers[row * ARMS + k]


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
def show(work, features, t):
    """Features of a round into scratch, term by term; what was made from others is not ready any more."""
    n_features = int(work[SETTINGS, N_TERMS]) - 1
    for i in range(features.shape[1] // n_features if n_features > 0 else 0):
        for k in range(n_features):
            value = features[t, i * n_features + k]
            if work[SHOWN + 1 + k, i] != value:
                work[SHOWN + 1 + k, i] = value
                work[NUMBERS, READY] = 0.0


@kernel
def learn_features(work, shared, arm, reward):
    """Least squares with one more reward of an arm, over the mean."""
    n_terms = int(work[SETTINGS, N_TERMS])
    if n_terms > 0:
        mean, memory = work[NUMBERS, REWARD_SUM] / work[NUMBERS, SEEN], shared[0, SHARED_ROWS:]
        column = least_squares.add(work[SETTINGS], memory, work[SHOWN:], arm, reward - mean, KEEP)
        least_squares.solve(n_terms, memory, column, work[SHOWN + n_terms :])


@kernel
def learn_features_of_all(work, shared, rewards):
    """The same with a reward of every arm, solved once where theta is one for all."""
    n_terms = int(work[SETTINGS, N_TERMS])
    if n_terms > 0:
        mean, memory = work[NUMBERS, REWARD_SUM] / work[NUMBERS, SEEN], shared[0, SHARED_ROWS:]
        one, last = work[SETTINGS, OF_ARMS] > 0.0, rewards.shape[0] - 1
        for i in range(rewards.shape[0]):
            keep = 1.0 if one and i > 0 else KEEP
            column = least_squares.add(work[SETTINGS], memory, work[SHOWN:], i, rewards[i] - mean, keep)
            if i == last or not one:
                least_squares.solve(n_terms, memory, column, work[SHOWN + n_terms :])


@kernel
def predict(shared, learners, context, work, n):
    """m into PREDICTED and F into COLUMNS, with `numbers` gathered; m = 0 until something has paid."""
    numbers, predicted, f5 = work[NUMBERS], work[PREDICTED, :n], work[SAID, :n]
    described, largest = work[SETTINGS, DESCRIBED] > 0.0, numbers[LARGEST]
    if work[SETTINGS, N_TERMS] > 0.0:
        say(work[SETTINGS], shared[0, SHARED_ROWS:], work[SHOWN:], f5)
    if described:
        for i in range(n):
            if not abs(f5[i]) <= largest:
                f5[i] = largest if f5[i] > 0.0 else -largest if f5[i] < 0.0 else 0.0
    if largest < LEAST_REWARD:
        for i in range(n):
            predicted[i] = 0.0
        return
    mean = numbers[REWARD_SUM] / numbers[SEEN]
    slow, quick = LONG_SHRINK * largest / mean, RECENT_SHRINK * largest / mean
    age = AGES + 2 * octave(learners[context, BASE, VISITS])
    arm_sum, arm_count = shared[0, ARM_SUM, ARMS:], shared[0, ARM_COUNT, ARMS:]
    age_sum, age_count = shared[0, age, ARMS:], shared[0, age + 1, ARMS:]
    long_sum, long_count = learners[context, LONG_SUM, ARMS:], learners[context, LONG_COUNT, ARMS:]
    recent_sum, recent_count = learners[context, RECENT_SUM, ARMS:], learners[context, RECENT_COUNT, ARMS:]
    latest_sum, latest_count = learners[context, LATEST_SUM, ARMS:], learners[context, LATEST_COUNT, ARMS:]
    f0, f1, f2 = work[COLUMNS, :n], work[COLUMNS + 1, :n], work[COLUMNS + 2, :n]
    f3, f4 = work[COLUMNS + 3, :n], work[COLUMNS + 4, :n]
    b0, b1, b2 = numbers[COEFFICIENT], numbers[COEFFICIENT + 1], numbers[COEFFICIENT + 2]
    b3, b4, b5 = numbers[COEFFICIENT + 3], numbers[COEFFICIENT + 4], numbers[COEFFICIENT + 5]
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
    """A and b, once per round."""
    for k in range(COEFFICIENT):
        numbers[k] *= FORGET


@kernel
def regress(work, arm, reward, n_predictors):
    """A += F F', b += F (r - om) for one arm that was seen, with the mean of before."""
    numbers = work[NUMBERS]
    y = reward - numbers[REWARD_SUM] / numbers[SEEN]
    place = GRAM
    for k in range(n_predictors):
        for j in range(k + 1):
            numbers[place] += work[COLUMNS + k, arm] * work[COLUMNS + j, arm]
            place += 1
        numbers[MOMENT + k] += work[COLUMNS + k, arm] * y


@kernel
def regress_all(work, rewards, n_predictors):
    """The same for every arm, one entry at a time."""
    n, numbers = rewards.shape[0], work[NUMBERS]
    mean = numbers[REWARD_SUM] / numbers[SEEN]
    place = GRAM
    for k in range(n_predictors):
        left = work[COLUMNS + k, :n]
        for j in range(k + 1):
            numbers[place] += product_sum(left, work[COLUMNS + j, :n])
            place += 1
        moment = 0.0
        for i in range(n):
            moment += left[i] * (rewards[i] - mean)
        numbers[MOMENT + k] += moment


@kernel
def product_sum(left, right):
    """<left, right>, four sums side by side, because one waits for itself."""
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
def count(numbers, reward):
    """One more reward seen."""
    numbers[REWARD_SUM] += reward
    numbers[SEEN] += 1.0
    numbers[LARGEST] = max(numbers[LARGEST], reward)


@kernel
def solve(work, n_predictors, prior):
    """beta = (A + lam I)^-1 (b + lam beta0), by Cholesky; nothing until something has paid.

    No pivot is below lam, whatever A is; one that rounding has lowered to less than half of it is raised to that.
    """
    numbers, lower = work[NUMBERS], work[FACTOR]
    if numbers[LARGEST] < LEAST_REWARD:
        return
    ridge = RIDGE * numbers[REWARD_SUM] / numbers[SEEN] * numbers[LARGEST]
    for k in range(n_predictors):
        row = k * (k + 1) // 2
        for j in range(k + 1):
            column = j * (j + 1) // 2
            rest = numbers[GRAM + row + j] + (ridge if j == k else 0.0)
            for r in range(j):
                rest -= lower[row + r] * lower[column + r]
            lower[row + j] = math.sqrt(max(rest, 0.5 * ridge)) if j == k else rest / lower[column + j]
        beta = numbers[MOMENT + k] + ridge * prior[k]
        for r in range(k):
            beta -= lower[row + r] * numbers[COEFFICIENT + r]
        numbers[COEFFICIENT + k] = beta / lower[row + k]
    for k in range(n_predictors - 1, -1, -1):
        beta = numbers[COEFFICIENT + k]
        for r in range(k + 1, n_predictors):
            beta -= lower[r * (r + 1) // 2 + k] * numbers[COEFFICIENT + r]
        numbers[COEFFICIENT + k] = beta / lower[k * (k + 1) // 2 + k]


@kernel
def fade(learners, context):
    """One more visit: what was recent is less so."""
    recent_sum, recent_count = learners[context, RECENT_SUM, ARMS:], learners[context, RECENT_COUNT, ARMS:]
    latest_sum, latest_count = learners[context, LATEST_SUM, ARMS:], learners[context, LATEST_COUNT, ARMS:]
    for i in range(recent_sum.shape[0]):
        recent_sum[i] *= RECENT
        recent_count[i] *= RECENT
        latest_sum[i] *= LATEST
        latest_count[i] *= LATEST


@kernel
def remember(shared, learners, context, age, arm, y):
    """Add y to the arm's five sums, and 1 to their counts."""
    column = ARMS + arm
    for row in range(LONG_SUM, BASE, 2):
        learners[context, row, column] += y
        learners[context, row + 1, column] += 1.0
    shared[0, ARM_SUM, column] += y
    shared[0, ARM_COUNT, column] += 1.0
    shared[0, AGES + 2 * age, column] += y
    shared[0, AGES + 2 * age + 1, column] += 1.0


def change_arms(work, shared, learners, kept, entries):
    """New arms enter with an account and no memory; nothing is on its way to them."""
    shared = rearranged(shared, kept, len(entries))
    admit(shared[0, :ACCOUNT_ROWS, ARMS:], entries, work[SETTINGS, ALPHA])
    return shared, rearranged(learners, kept, len(entries))
