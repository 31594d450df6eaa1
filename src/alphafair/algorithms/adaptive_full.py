"""`AlphaFairAdaptive` with full information: the predictor's favorite mixed with Algorithm 1, on one account.

With w = R^-alpha before the round, a uniform on the largest w m of the predictor, x^j of `gradient_ascent` and g = w r:

    p = (1-h) a + h x^j ;   d = <x^j - a, g> ;   D += d^2 ;   h <- clip(h + d/sqrt(2 D), 0, 1), h = 1 first
    S_j += ||g||^2 ;   x^j <- projection of x^j + g/sqrt(S_j) ;   then the predictor learns, and R += p r

If d is within rounding, or too small to be squared, h does not change, and |d| is added to `drift` instead, together
with <g, p held - p used>, the cost of late and masked decisions. With groups R is R_G/s_G; with floors p keeps them,
and a also plays the best arm of every group. On every run,

    OPT - c_alpha sum phi(R) <= (1-alpha)^alpha (2 sum_j sqrt(S_j) + sqrt(2 D) + drift).

    R `account`, w `slope` · m `predicted` · a `scores` · h `share` · D `spread` · x^j `x` · S_j `squared_norms`

The size of rewards that the predictor takes is c. With bandit feedback it is (mean of r^2)/om, which is better where
few rewards are as large as c; where all of them are seen, that gained nothing, and lost a little on ratings.

From alpha = 1 on, g = p r with p the gradient of the welfare, as in `alphafair.math.gradient_ascent`, and h is that of
`alphafair.math.adahedge` on d (`ahead`, `gaps`; 1/2 first), which adds u 2 (change of `gaps`) to `bound`. Both start
anew when arms change, because u may then rise.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np

from alphafair.jit import kernel
from alphafair.math import predictor, two_sides
from alphafair.math.adahedge import add_gap, share
from alphafair.math.capped import favorites, frame, inclusion
from alphafair.math.distributions import draw_arm
from alphafair.math.floors import (
    TIE,
    F,
    at_stake,
    earn_together,
    favorites_of_groups,
    keep_floors,
    mask_and_keep_floors,
    price_units,
)
from alphafair.math.gradient_ascent import (
    added_bound,
    ascend_capped,
    ascend_on_floors,
    bound_on_joint_welfare,
    close_epoch,
    count_shown,
    in_slopes,
    reopen_on_welfare,
    restart,
    restart_certificate,
    start_on_welfare,
    within_cap,
)
from alphafair.math.predictor import (
    LEAST_REWARD,
    check_sums,
    count,
    fade,
    learn_features_of_all,
    octave,
    predict,
    regress_all,
    remember,
    show_features,
    solve,
    start_predictor,
)
from alphafair.math.slates import draw_slate as draw_from
from alphafair.math.two_sides import (
    carry_promise,
    carry_sides,
    check_sides,
    debt_of,
    joint_welfare,
    keep_accounts_of_promise,
    pay_context,
    rate_of,
    restart_excursions,
    start_sides,
    sum_logs,
    write_excursion,
    write_favorites,
    write_prices,
)
from alphafair.math.utility import (
    admit_accounts,
    check_slopes,
    open_accounts,
    reopen_accounts,
    reopen_relative,
    set_entry_accounts,
)
from alphafair.policy.algorithm import Algorithm
from alphafair.policy.memory import Layout
from alphafair.values.arrays import Vector, positions

GROUPS = True  # False in machine code for policies without groups and floors
FEATURES = True  # False in machine code for policies without features
WELFARE = True  # False in machine code for policies with alpha < 1 and without a second side
SIDES = True  # False in machine code for policies without a second side
ONE_SIDE = True  # False in machine code for policies with a second side
ROUNDING = 1e-12

S = predictor.SETTINGS
N = positions(predictor.SCALARS, "share", "spread", "drift", "outside")
N1 = positions(predictor.SCALARS, "ahead", "gaps", "drift", "outside", "bound", "unit", "first_welfare")  # alpha >= 1
A = positions(predictor.ARMS, "earned")
K = positions(predictor.CONTEXT_SCALARS, "squared_norms", "shown", "reach", "closed_roots", "closed_norms")
K1 = positions(predictor.CONTEXT_SCALARS, "squared_norms", "shown", "reach", "reopened")  # for alpha >= 1
C = positions(predictor.CONTEXTS, "x")
T = positions(predictor.SCRATCH, "step", "held")
N2 = positions(N1, *two_sides.TOTALS._fields)  # with a second side, for every alpha
K2 = positions(K1, *two_sides.OWN._fields)
T2 = positions(T, "price")
P2 = positions(predictor.PARTS, "money")
K3 = positions(K2, *[name for name in two_sides.IN_DEBT._fields if name not in two_sides.OWN._fields])  # with a promise
C3 = positions(C, "context_totals", "excursion_gains")
T3 = positions(T2, "favorites", "served")
P3 = positions(P2, "rate")


@kernel
def owes(memory, context):
    """Whether less than the promise was given to a context."""
    own, rows = memory.context_scalars[context, K2.context_account :], memory.contexts[context]
    return debt_of(memory.settings, own, rows[C3.context_totals]) > 0.0


@kernel
def prepare_excursion(memory, context):
    """Write the distribution of a context in debt, with floors, to `served`."""
    if owes(memory, context):
        own, rows = memory.context_scalars[context, K2.context_account :], memory.contexts[context]
        favorites, served = memory.scratch[T3.favorites], memory.scratch[T3.served]
        write_favorites(memory.scratch[T.predicted], favorites)
        write_excursion(memory.parts[P3.rate], own, rows[C3.excursion_gains], favorites, served)
        keep_floors(memory.groups, served)


@kernel
def prepare(memory, context):
    """Write a, uniform on the largest w m, to `scores`."""
    predict(memory, context, memory.scalars[N.largest])
    predicted, scores, slope = memory.scratch[T.predicted], memory.scratch[T.scores], memory.arms[A.slope]
    if SIDES and (memory.settings[S.sided] > 0.0 or not ONE_SIDE):
        slope = memory.scratch[T2.price]
        totals, own = memory.scalars[N2.weighed :], memory.context_scalars[context, K2.context_account :]
        memory.parts[P2.money] = write_prices(memory.groups, memory.arms, memory.settings, totals, own, slope)
    if SIDES and memory.settings[S.context_share] > 0.0:
        prepare_excursion(memory, context)
    n, best, ties = scores.shape[0], 0.0, 0.0
    for i in range(n):
        scores[i] = slope[i] * predicted[i]
        best = max(best, scores[i])
    for i in range(n):
        ties += 1.0 if scores[i] >= TIE * best else 0.0
    if GROUPS and memory.groups.numbers[F.group_floored] > 0.0:
        favorites_of_groups(memory.groups, scores, best, ties)
        return
    for i in range(n):
        scores[i] = 1.0 / ties if scores[i] >= TIE * best else 0.0


@kernel
def held_back(groups):
    """Return nu and 1 - n nu; 0 and 1 if groups have floors, because a and x then keep them."""
    if groups.numbers[F.group_floored] > 0.0:
        return 0.0, 1.0
    return groups.numbers[F.arm_floor], groups.numbers[F.unpromised]


@kernel
def share_of_ascent(memory):
    """Return h."""
    if WELFARE and memory.settings[S.on_welfare] > 0.0:
        return share(memory.scalars[N1.ahead], memory.scalars[N1.gaps])
    return memory.scalars[N.share]


@kernel
def draw(memory, context, uniform, out):
    """Write p = (1 - h) a + h x to `out` and draw an arm from it."""
    prepare(memory, context)
    scores, x, h = memory.scratch[T.scores], memory.contexts[context, C.x], share_of_ascent(memory)
    floor, keep = held_back(memory.groups)
    for i in range(out.shape[0]):
        out[i] = floor + keep * ((1.0 - h) * scores[i] + h * x[i])
    if SIDES and memory.settings[S.context_share] > 0.0 and owes(memory, context):
        for i in range(out.shape[0]):
            out[i] = memory.scratch[T3.served, i]
    arm = draw_arm(out, uniform)
    return arm, out[arm]


@kernel
def learn(memory, context, probabilities, rewards):
    """Update the mixture, Algorithm 1 and the predictor, then the accounts."""
    n, numbers, own = rewards.shape[0], memory.scalars, memory.context_scalars[context]
    scores, slope = memory.scratch[T.scores], memory.arms[A.slope]
    if SIDES and (memory.settings[S.sided] > 0.0 or not ONE_SIDE):
        slope = memory.scratch[T2.price]
    x = memory.contexts[context, C.x]
    on_welfare = WELFARE and memory.settings[S.on_welfare] > 0.0
    scale, u = prices(memory, context)
    h, ahead, both, drift = share_of_ascent(memory), 0.0, 0.0, 0.0
    part, (floor, keep) = at_stake(memory.groups) * scale, held_back(memory.groups)
    for i in range(n):
        gain = slope[i] * (part * rewards[i])
        ahead += (x[i] - scores[i]) * gain
        both += (x[i] + scores[i]) * gain
        held = floor + keep * ((1.0 - h) * scores[i] + h * x[i])
        drift += (held - probabilities[i]) * (slope[i] * rewards[i])
    numbers[N.drift] += u * scale * drift
    update_share(memory, u, h, ahead, both)
    count_shown(numbers, N.outside, own, K.shown, 1)
    before, step = own[K.squared_norms], memory.scratch[T.step]
    after = ascend_on_floors(memory.groups, slope, scale, x, before, rewards, step, x)
    if WELFARE and on_welfare and after > before:
        numbers[N1.bound] += added_bound(u, before, after, own[K1.reopened])
        own[K1.reopened] = 0.0
    own[K.squared_norms] = after
    predict_and_earn(memory, context, probabilities, rewards)


@kernel
def prices(memory, context):
    """Return the factors `scale` and u of `alphafair.math.floors.price_units`, both 1 below alpha = 1.

    With a context weight gains are those of W_2, and u is 1/W_2.
    """
    if SIDES and (memory.settings[S.sided] > 0.0 or not ONE_SIDE):
        totals, own = memory.scalars[N2.weighed :], memory.context_scalars[context, K2.context_account :]
        unit, money = memory.scalars[N1.unit], memory.parts[P2.money]
        welfare = joint_welfare(memory.groups, memory.arms, memory.settings, unit, totals, own, money)
        if memory.settings[S.context_weight] > 0.0:
            return welfare / money, 1.0 / welfare
        ratio, total = memory.scalars[N1.first_welfare] / welfare, memory.groups.numbers[F.total_weight]
        return welfare / money, total * math.pow(ratio, memory.settings[S.alpha])
    if WELFARE and memory.settings[S.on_welfare] > 0.0:
        unit, first = memory.scalars[N1.unit], memory.scalars[N1.first_welfare]
        return price_units(memory.groups, memory.arms, unit, first, memory.settings[S.alpha])
    return 1.0, 1.0


@kernel
def update_share(memory, u, h, ahead, both):
    """Move h by d = `ahead`, from gains that add up to `both`."""
    numbers = memory.scalars
    # the first step has full length for any d, so it must not come from rounding or underflow
    if not abs(ahead) > max(ROUNDING * both, LEAST_REWARD):
        numbers[N.drift] += u * abs(ahead)
    elif WELFARE and memory.settings[S.on_welfare] > 0.0:
        gaps = add_gap(numbers[N1.ahead], numbers[N1.gaps], ahead)
        numbers[N1.bound] += u * 2.0 * (gaps - numbers[N1.gaps])
        numbers[N1.gaps] = gaps
        numbers[N1.ahead] += ahead
    else:
        numbers[N.spread] += ahead * ahead
        numbers[N.share] = min(1.0, max(0.0, h + ahead / math.sqrt(2.0 * numbers[N.spread])))


@kernel
def predict_and_earn(memory, context, probabilities, rewards):
    """Update the predictor, then the accounts."""
    n, numbers, own = rewards.shape[0], memory.scalars, memory.context_scalars[context]
    rows = memory.contexts[context]
    regress_all(memory, rewards)
    numbers[N.rounds] += 1.0
    for i in range(n):
        count(memory, rewards[i])
    fade(rows)
    mean, age = numbers[N.reward_sum] / numbers[N.seen], octave(own[K.visits])
    solve(memory, numbers[N.largest])
    if FEATURES and memory.settings[S.described] > 0.0:
        from_features = memory.scratch[T.from_features]
        for i in range(n):
            remember(memory.arms, rows, age, i, rewards[i] - mean - from_features[i])
        learn_features_of_all(memory, rewards)
    else:
        for i in range(n):
            remember(memory.arms, rows, age, i, rewards[i] - mean)
    own[K.visits] += 1.0
    if WELFARE and memory.settings[S.on_welfare] > 0.0:
        numbers[N1.unit] = earn_together(
            memory.groups, memory.arms, A.earned, memory.settings, numbers[N1.unit], probabilities, rewards
        )
        if SIDES and (memory.settings[S.sided] > 0.0 or not ONE_SIDE):
            paid = 0.0
            for i in range(n):
                paid += probabilities[i] * rewards[i]
            if memory.settings[S.context_share] > 0.0:
                keep_promise(memory, context, probabilities, rewards)
            pay_context(memory.settings, numbers[N2.weighed :], own[K2.context_account :], paid)
    else:
        earn_together(memory.groups, memory.arms, A.earned, memory.settings, 1.0, probabilities, rewards)


@kernel
def keep_promise(memory, context, probabilities, rewards):
    """Add a round to what is kept for the promise."""
    rows, scratch = memory.contexts[context], memory.scratch
    keep_accounts_of_promise(
        memory.settings,
        memory.context_scalars[context, K2.context_account :],
        rows[C3.context_totals],
        rows[C3.excursion_gains],
        scratch[T3.favorites],
        scratch[T3.served],
        probabilities,
        rewards,
    )


@kernel
def prepare_slate(memory, context, k):
    """Write a with the cap to `scores`, and x within the cap to `held`."""
    predict(memory, context, memory.scalars[N.largest])
    predicted, scores, slope = memory.scratch[T.predicted], memory.scratch[T.scores], memory.arms[A.slope]
    _, top, _ = frame(scores.shape[0], k, memory.groups.numbers[F.arm_floor])
    for i in range(scores.shape[0]):
        scores[i] = slope[i] * predicted[i]
    favorites(scores, top, memory.scratch[T.step])
    within_cap(memory.contexts[context, C.x], top, memory.scratch[T.held])


@kernel
def draw_slate(memory, context, k, uniform, out, slate):
    """Write p = nu + keep ((1 - h) a + h x) to `out`, draw k arms to `slate`, and return how many there are."""
    prepare_slate(memory, context, k)
    scores, x, h = memory.scratch[T.scores], memory.scratch[T.held], share_of_ascent(memory)
    n, floor = out.shape[0], memory.groups.numbers[F.arm_floor]
    keep, _, _ = frame(n, k, floor)
    for i in range(n):
        out[i] = inclusion(n, k, floor, keep, (1.0 - h) * scores[i] + h * x[i])
    return draw_from(out, k, uniform, slate)


@kernel
def learn_slate(memory, context, k, probabilities, rewards):
    """The same as `learn` for a slate of k arms."""
    n, numbers, own = rewards.shape[0], memory.scalars, memory.context_scalars[context]
    scores, slope, x = memory.scratch[T.scores], memory.arms[A.slope], memory.scratch[T.held]
    floor, (scale, u), h = memory.groups.numbers[F.arm_floor], prices(memory, context), share_of_ascent(memory)
    keep, top, reach = frame(n, k, floor)
    ahead, both, drift = 0.0, 0.0, 0.0
    for i in range(n):
        gain = slope[i] * (keep * scale * rewards[i])
        ahead += (x[i] - scores[i]) * gain
        both += (x[i] + scores[i]) * gain
        held = inclusion(n, k, floor, keep, (1.0 - h) * scores[i] + h * x[i])
        drift += (held - probabilities[i]) * (slope[i] * rewards[i])
    numbers[N.drift] += u * scale * drift
    update_share(memory, u, h, ahead, both)
    count_shown(numbers, N.outside, own, K.shown, k)
    before, step = own[K.squared_norms], memory.scratch[T.step]
    stored = memory.contexts[context, C.x]
    after = ascend_capped(slope, keep * scale, x, before, rewards, top, reach, step, stored)
    if WELFARE and memory.settings[S.alpha] >= 1.0 and after > before:
        numbers[N1.bound] += added_bound(u * reach, before, after, own[K1.reopened])
        own[K1.reopened] = 0.0
    own[K.squared_norms], own[K.reach] = after, reach
    predict_and_earn(memory, context, probabilities, rewards)


def start(memory: Any) -> None:
    """Open accounts of 1; Algorithm 1 has all weight."""
    open_accounts(memory.arms, 1.0, memory.settings[S.alpha])
    start_predictor(memory)
    memory.scalars[N.share] = 1.0


def start_on_welfare_with_predictor(memory: Any) -> None:
    """Open accounts of 1; both have equal weight."""
    start_on_welfare(memory, N1)
    start_predictor(memory)


def start_contexts(memory: Any) -> None:
    """Start uniform."""
    memory.contexts[:, C.x] = 1.0 / memory.contexts.shape[2]
    memory.context_scalars[:, K.reach] = 1.0


def admit(memory: Any, n_kept: int, some_left: bool, entries: Vector) -> None:
    """Start a new epoch, as in `alpha_fair`: project x on the remaining arms; it is 0 for new ones."""
    admit_accounts(memory.arms, n_kept, entries, memory.settings[S.alpha])
    close_epoch(memory.contexts[:, C.x], memory.context_scalars, K, n_kept, some_left)


def admit_on_welfare(memory: Any, n_kept: int, some_left: bool, entries: Vector) -> None:
    """The same for alpha >= 1; the share starts anew."""
    set_entry_accounts(memory.arms, n_kept, entries)
    reopen_on_welfare(memory, N1)
    memory.scalars[[N1.ahead, N1.gaps]] = 0.0
    close_epoch(memory.contexts[:, C.x], memory.context_scalars, K1, n_kept, some_left)


def of_sides(memory: Any) -> tuple[Any, Any, Any]:
    """Return the settings, the totals of all contexts, and the accounts and rounds of each, for `two_sides`."""
    return memory.settings, memory.scalars[N2.weighed :], memory.context_scalars[:, K2.context_account :]


def start_two_sided_contexts(memory: Any) -> None:
    """Start uniform, with accounts of 1."""
    start_contexts(memory)
    start_sides(of_sides(memory)[2])


def change_two_sided(memory: Any) -> None:
    """After a change of alpha, of a context weight or of weights: norms, gaps and the bound start anew."""
    restart(memory, N2, K2)
    sum_logs(*of_sides(memory))


def admit_two_sided(memory: Any, n_kept: int, some_left: bool, entries: Vector) -> None:
    """Admit arms as for alpha >= 1; norms and the bound start anew, because W_2 may have fallen."""
    admit_on_welfare(memory, n_kept, some_left, entries)
    restart(memory, N2, K2)


def write_rate(memory: Any) -> None:
    """Compute eta of excursions, for the promise and what floors leave."""
    memory.parts[P3.rate] = rate_of(memory.settings[S.context_share] / memory.groups.numbers[F.unpromised])


def start_promise(memory: Any) -> None:
    """Open accounts of 1; both have equal weight."""
    start_on_welfare_with_predictor(memory)
    write_rate(memory)


def begin_excursions_anew(memory: Any) -> None:
    """After a change of arms, floors or the promise."""
    write_rate(memory)
    rows = memory.contexts
    restart_excursions(memory.settings, of_sides(memory)[2], rows[:, C3.context_totals], rows[:, C3.excursion_gains])


def change_promise(memory: Any) -> None:
    """After a change of alpha, of a context weight, of weights, of floors or of the promise."""
    change_two_sided(memory)
    begin_excursions_anew(memory)


def admit_with_promise(memory: Any, n_kept: int, some_left: bool, entries: Vector) -> None:
    """Admit arms, with nothing earned in any context."""
    if memory.settings[S.context_weight] > 0.0:
        admit_two_sided(memory, n_kept, some_left, entries)
    else:
        admit_on_welfare(memory, n_kept, some_left, entries)
    begin_excursions_anew(memory)


def reopen_with_promise(memory: Any, columns: Any) -> None:
    """Recompute slopes; without a context weight the bound is in units of the first welfare."""
    if memory.settings[S.context_weight] > 0.0:
        reopen_relative(memory, N2.unit)
    else:
        reopen_on_welfare(memory, N2)


def carry_with_promise(memory: Any, carry: float) -> None:
    """Start a period: what contexts were given, and what they were promised, count `carry`."""
    own = of_sides(memory)[2]
    carry_promise(own, memory.contexts[:, C3.context_totals : C3.excursion_gains + 1], carry)
    carry_sides(*of_sides(memory), carry)


def context_share_bound(memory: Any) -> float:
    """Return sigma + keep ln(2N)/eta, plus what changes and late or masked decisions cost, the most of any context."""
    n, rate, lost = memory.arms.shape[1], memory.parts[P3.rate], memory.context_scalars[:, K3.shortfall].max()
    bound = memory.settings[S.context_share] + memory.groups.numbers[F.unpromised] * math.log(2.0 * n) / rate
    return float(bound + max(0.0, lost))


def check_two_sided(memory: Any) -> str | None:
    """Check the same, and the accounts of contexts."""
    return check_memory(memory) or check_sides(*of_sides(memory)[1:])


def check_memory(memory: Any) -> str | None:
    """Check the slopes of accounts, and that counts are finite and not negative."""
    on_welfare = memory.settings[S.on_welfare] > 0.0
    own = [N1.gaps, N1.bound, N1.first_welfare] if on_welfare else [N.spread, N.share]
    counts = memory.scalars[[N.rounds, *own]]
    if not np.isfinite(memory.scalars).all() or min(counts.min(), memory.context_scalars.min()) < 0.0:
        return "finite, with counts of at least 0"
    unit = memory.scalars[N1.unit] if on_welfare else 1.0
    slopes = check_slopes(memory.arms[A.account], memory.arms[A.slope], memory.settings[S.alpha], unit)
    return slopes or check_sums(memory)


ALGORITHM = Algorithm(
    Layout(S, N, A, K, C, T, predictor.PARTS, only_with_groups="earned"),
    draw,
    learn,
    start,
    start_contexts,
    admit,
    prepare=prepare,
    show=show_features,
    mask=mask_and_keep_floors,
    draw_slate=draw_slate,
    prepare_slate=prepare_slate,
    learn_slate=learn_slate,
    accounts="account",
    simplex_rows="x",
    reopen=reopen_accounts,
    alpha_changed=lambda memory: restart_certificate(memory, N, K),
    check=check_memory,
    new_period=lambda memory: restart(memory, N, K),
    flags=("GROUPS", "FEATURES", "WELFARE", "SIDES", "ONE_SIDE"),
)
ON_WELFARE = replace(
    ALGORITHM,
    layout=Layout(S, N1, A, K1, C, T, predictor.PARTS, only_with_groups="earned"),
    start=start_on_welfare_with_predictor,
    admit=admit_on_welfare,
    reopen=lambda memory, columns: reopen_on_welfare(memory, N1),
    alpha_changed=lambda memory: restart(memory, N1, K1),
    new_period=lambda memory: restart(memory, N1, K1),
)


TWO_SIDED = replace(
    ON_WELFARE,
    layout=Layout(S, N2, A, K2, C, T2, P2, only_with_groups="earned"),
    start_contexts=start_two_sided_contexts,
    admit=admit_two_sided,
    reopen=lambda memory, columns: reopen_relative(memory, N2.unit),
    alpha_changed=change_two_sided,
    new_period=lambda memory: restart(memory, N2, K2),
    check=check_two_sided,
    of_sides=of_sides,
    carry=lambda memory, carry: carry_sides(*of_sides(memory), carry),
)
PROMISE = replace(
    TWO_SIDED,
    layout=Layout(S, N2, A, K3, C3, T3, P3, only_with_groups="earned"),
    start=start_promise,
    admit=admit_with_promise,
    reopen=reopen_with_promise,
    alpha_changed=change_promise,
    carry=carry_with_promise,
)


def surrogate_regret_bound(memory: Any) -> float | None:
    """Return an upper bound of the regret in sum_t <g, x> against policies fixed per epoch.

    None if a context has shown different numbers of arms. With a context weight, in units of ln W_2, and None unless
    the weights of contexts are fixed.
    """
    own, numbers, alpha = memory.context_scalars, memory.scalars, memory.settings[S.alpha]
    if numbers[N.outside] > 0.0:
        return None
    if memory.settings[S.context_weight] > 0.0:
        return bound_on_joint_welfare(numbers, N1) if memory.settings[S.fixed_weights] > 0.0 else None
    if memory.settings[S.on_welfare] > 0.0:
        return in_slopes(numbers, N1, alpha)
    roots = 2.0 * (own[:, K.reach] * np.sqrt(own[:, K.squared_norms])).sum() + own[:, K.closed_roots].sum()
    return float(roots + np.sqrt(2.0 * numbers[N.spread]) + numbers[N.drift])
