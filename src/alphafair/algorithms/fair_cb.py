"""FairCB: exponential weights in every context, with a floor on the overall frequency of each arm.

    P = argmin sum_j <p^j, L^j> + (1/eta) sum_ji p^j_i ln p^j_i   over   sum_j q_j p^j_i >= nu for every arm i

Only the n floors couple the contexts, so the dual has n variables d >= 0 (d = eta c in the paper):

    p^j_i proportional to exp(-eta L^j_i + q_j d_i) ;   maximize  D(d) = nu sum d - sum_j log sum_i exp(...)
    gradient  nu - sum_j q_j p^j_i ;   Hessian  -sum_j q_j^2 (diag p^j - p^j p^j')

by projected Newton from the last d. If q is unknown: epochs of length 1, 2, 4, ...; each restarts with the frequencies
so far and a floor lowered by their possible error. Without a horizon T the rate eta of round t is the one for T = t,
and the error of an epoch is the one for T = its last round.

    d `dual` · nu `floor` (in force) · eta `rate` · p^j `p` · L^j `losses` · q_j `weight`
    `log_normalizer` is that of p^j; the next epoch begins with update `next_epoch`, infinite if q is known
"""

import math
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from alphafair import validate
from alphafair.errors import InvalidArgument
from alphafair.jit import kernel, repeated
from alphafair.math.distributions import draw_from, equal_share
from alphafair.policy.algorithm import Algorithm
from alphafair.policy.base import BasePolicy
from alphafair.policy.memory import Layout
from alphafair.values import Feedback, Traits
from alphafair.values.arrays import Matrix, Vector, positions

S = positions("pull_share", "horizon", "full", "weights_known")  # horizon: 0 if not given; full: full information
N = positions("floor", "rate", "updates", "next_epoch")
A = positions("dual")
K = positions("weight", "visits", "log_normalizer")
C = positions("p", "losses")
TOLERANCE = 1e-13  # of a marginal
MOST_STEPS = 200
LONGEST_REACH = 30.0
LEAST_PROPENSITY = 1e-9  # a loss over less leaves too few digits in the exponents for floors


@kernel
def _weigh(memory, context, rate, dual):
    """Compute P of one context, and the log of its normalizer."""
    n, own = dual.shape[0], memory.context_scalars[context]
    weight, p, losses = own[K.weight], memory.contexts[context, C.p], memory.contexts[context, C.losses]
    largest = -np.inf
    for i in range(n):
        exponent = weight * dual[i] - rate * losses[i]
        p[i] = exponent
        largest = max(largest, exponent)
    total = 0.0
    for i in range(n):
        p[i] = math.exp(p[i] - largest)
        total += p[i]
    for i in range(n):
        p[i] /= total
    own[K.log_normalizer] = largest + math.log(total)


@kernel
def _tally(memory, floor, dual, gradient):
    """Return D(d), and write its gradient nu - sum_j q_j p^j, from P and the normalizers."""
    n = dual.shape[0]
    value = 0.0
    for i in range(n):
        gradient[i] = floor
        value += floor * dual[i]
    for j in range(memory.contexts.shape[0]):
        weight, p = memory.context_scalars[j, K.weight], memory.contexts[j, C.p]
        value -= memory.context_scalars[j, K.log_normalizer]
        if weight > 0.0:
            for i in range(n):
                gradient[i] -= weight * p[i]
    return value


@kernel
def _violation(dual, gradient):
    """Return the violation of optimality: missed floors, and slack of positive multipliers."""
    worst = 0.0
    for i in range(dual.shape[0]):
        worst = max(worst, abs(gradient[i]) if dual[i] > 0.0 else gradient[i])
    return worst


@kernel
def _free_arms(memory, dual, gradient, free):
    """Mark the arms whose multiplier may move (positive, or below its floor), but never all; return their number.

    P does not change if all multipliers move together, so the smallest is kept at 0, and if every arm could move, the
    one with the most slack stays.
    """
    n = dual.shape[0]
    smallest = dual[0]
    for i in range(1, n):
        smallest = min(smallest, dual[i])
    if smallest > 0.0:
        for i in range(n):
            dual[i] -= smallest
        for j in range(memory.contexts.shape[0]):
            memory.context_scalars[j, K.log_normalizer] -= memory.context_scalars[j, K.weight] * smallest
    n_free = 0
    rest = -1
    for i in range(n):
        free[i] = 1.0 if dual[i] > 0.0 or gradient[i] > 0.0 else 0.0
        n_free += 1 if free[i] > 0.0 else 0
        if dual[i] == 0.0 and (rest < 0 or gradient[i] < gradient[rest]):
            rest = i
    if n_free == n:
        free[rest] = 0.0
        n_free -= 1
    return n_free


@kernel
def _curvature(memory, damping, free, links):
    """Write the Hessian as a network of positive links, which avoids cancellation.

    Off the diagonal, lower half: sum_j q_j^2 p^j_a p^j_b of two free arms. On the diagonal: the links of an arm with
    all fixed arms, plus the damping.
    """
    n = free.shape[0]
    for a in range(n):
        for b in range(a):
            links[a, b] = 0.0
        links[a, a] = damping
    for j in range(memory.contexts.shape[0]):
        weight, p = memory.context_scalars[j, K.weight], memory.contexts[j, C.p]
        square = weight * weight
        if square > 0.0:
            fixed = 0.0
            for a in range(n):
                fixed += p[a] if free[a] == 0.0 else 0.0
            for a in range(n):
                if free[a] > 0.0:
                    share = square * p[a]
                    links[a, a] += share * fixed
                    for b in range(a):
                        links[a, b] += share * p[b] if free[b] > 0.0 else 0.0


@kernel
def _newton_direction(links, gradient, dual, free, work, direction):
    """Solve (Hessian + damping) direction = gradient on the free arms; an arm that would fall below 0 goes to 0.

    Arms are eliminated one by one, the last first: the links of a with b and c become a link of b with c. Only positive
    numbers are added (Grassmann, Taksar and Heyman), so links of any size keep all digits.
    """
    n = gradient.shape[0]
    for i in range(n):
        direction[i] = 0.0
    n_fallen = 1
    while n_fallen > 0:
        for a in range(n):
            if free[a] > 0.0:
                direction[a] = gradient[a]
                work[a, a] = links[a, a]
                for b in range(n):
                    link = links[max(a, b), min(a, b)]
                    if free[b] == 0.0:  # an arm sent to 0; other fixed arms have no links
                        work[a, a] += link
                        direction[a] += link * direction[b]
                    elif b < a:
                        work[a, b] = link
        for a in range(n - 1, -1, -1):
            if free[a] > 0.0:
                ground = work[a, a]
                for b in range(a):
                    work[a, a] += work[a, b] if free[b] > 0.0 else 0.0
                for b in range(a):
                    if free[b] > 0.0:
                        share = work[a, b] / work[a, a]
                        work[b, b] += share * ground
                        direction[b] += share * direction[a]
                        for c in range(b):
                            work[b, c] += share * work[a, c] if free[c] > 0.0 else 0.0
        for a in range(n):
            if free[a] > 0.0:
                for b in range(a):
                    direction[a] += work[a, b] * direction[b] if free[b] > 0.0 else 0.0
                direction[a] /= work[a, a]
        n_fallen = 0
        for a in range(n):
            if free[a] > 0.0 and dual[a] + direction[a] < 0.0:
                free[a] = 0.0
                direction[a] = -dual[a]
                n_fallen += 1


@kernel
def _move(memory, rate, dual, start, direction, length):
    """Set dual = start + length direction, and update P."""
    n = dual.shape[0]
    for i in range(n):
        dual[i] = max(0.0, start[i] + length * direction[i])
    for j in range(memory.contexts.shape[0]):
        if memory.context_scalars[j, K.weight] > 0.0:
            _weigh(memory, j, rate, dual)


@kernel
def _climb(memory, rate, floor, dual):
    """Maximize D from the current `dual`, for which P is up to date; return whether it converged.

    Newton steps are damped by |gradient|: where P is nearly 0 or 1 the curvature is tiny and undamped steps useless.
    A damped step changes no weight by more than e^reach, and the reach follows the length of the last step.
    """
    n = dual.shape[0]
    gradient = np.empty(n)
    value = _tally(memory, floor, dual, gradient)
    violation = _violation(dual, gradient)
    if violation <= TOLERANCE:
        return True
    heaviest = 0.0
    for j in range(memory.contexts.shape[0]):
        heaviest = max(heaviest, memory.context_scalars[j, K.weight])
    start, direction, free = np.empty(n), np.empty(n), np.empty(n)
    links, work = np.empty((n, n)), np.empty((n, n))
    reach = LONGEST_REACH
    for _ in range(MOST_STEPS):
        _free_arms(memory, dual, gradient, free)
        square = 0.0
        for i in range(n):
            square += gradient[i] * gradient[i] if free[i] > 0.0 else 0.0
        damping = math.sqrt(square) * heaviest / reach
        _curvature(memory, damping, free, links)
        _newton_direction(links, gradient, dual, free, work, direction)
        promise = 0.0
        for i in range(n):
            promise += gradient[i] * direction[i]
        if promise <= 0.0:  # not an ascent direction, after arms were sent to 0: use the gradient
            promise = 0.0
            for i in range(n):
                direction[i] = max(gradient[i] / damping, -dual[i])
                promise += gradient[i] * direction[i]
        value = _tally(memory, floor, dual, gradient)
        for i in range(n):
            start[i] = dual[i]
        length = 2.0
        risen, left = -np.inf, np.inf
        while risen < 1e-4 * length * promise and left > 0.5 * violation and length >= 1e-12:
            length *= 0.5
            _move(memory, rate, dual, start, direction, length)
            risen = _tally(memory, floor, dual, gradient) - value
            left = _violation(dual, gradient)
        if left <= TOLERANCE:
            return True
        if violation <= 1e-10 and left >= violation:  # limited by rounding: undo the step
            _move(memory, rate, dual, start, direction, 0.0)
            return True
        violation = left
        reach = min(LONGEST_REACH, 2.0 * length * reach)
    return False


@kernel
def solve(memory, rate, floor, dual):
    """Find the optimal `dual` and its P; P must be up to date for the given `dual`.

    From a similar problem this takes a step or two. From far away all weights may be 0 or 1 to the last digit, without
    a slope; then losses are scaled down until they differ by less than 1, and doubled step by step.
    """
    n = dual.shape[0]
    scale, afar = 1.0, False
    while True:  # a single call of `_climb`, so that it is compiled in once
        reached = _climb(memory, scale * rate, floor, dual)
        if (reached or afar) and scale >= 1.0:
            return
        if not afar:
            spread, afar = 1.0, True
            for j in range(memory.contexts.shape[0]):
                losses = memory.contexts[j, C.losses]
                smallest = largest = losses[0]
                for i in range(1, n):
                    smallest, largest = min(smallest, losses[i]), max(largest, losses[i])
                spread = max(spread, rate * (largest - smallest))
            scale = 0.5 * 2.0 ** -math.ceil(math.log2(spread))
            for i in range(n):
                dual[i] = 0.0
        scale *= 2.0
        for i in range(n):
            dual[i] *= 2.0
        for j in range(memory.contexts.shape[0]):
            _weigh(memory, j, scale * rate, dual)


@kernel
def draw(memory, context, uniform, out):
    """Write the context's distribution to `out` and draw an arm from it."""
    return draw_from(memory.contexts[context, C.p], uniform, out)


@kernel
def _rate(n_contexts, n_arms, n_rounds, full):
    """sqrt(M ln N/(T N)) with bandit feedback, sqrt(2 M ln N/T) with full information."""
    per_round = 2.0 if full > 0.0 else 1.0 / n_arms
    return math.sqrt(per_round * n_contexts * math.log(n_arms) / n_rounds)


@kernel
def _start_epoch(memory):
    """Reset the losses and keep the frequencies; epoch k starts with update 2^(k-1) and has as many updates."""
    settings, numbers, dual = memory.settings, memory.scalars, memory.arms[A.dual]
    n, n_contexts = dual.shape[0], memory.contexts.shape[0]
    updates = numbers[N.updates]
    length = updates + 1.0
    horizon = settings[S.horizon] if settings[S.horizon] > 0.0 else updates + length
    logarithm = n_contexts * math.log(horizon * n_contexts)
    slack = 4.0 * math.sqrt(logarithm / updates) + 2.0 * logarithm / updates
    numbers[N.rate] = _rate(n_contexts, n, length, settings[S.full])
    numbers[N.floor] = max(0.0, settings[S.pull_share] - slack)
    numbers[N.next_epoch] = updates + length
    for i in range(n):
        dual[i] = 0.0
    for j in range(n_contexts):
        memory.context_scalars[j, K.weight] = memory.context_scalars[j, K.visits] / updates
        memory.context_scalars[j, K.log_normalizer] = math.log(n)
        for i in range(n):
            memory.contexts[j, C.p, i] = 1.0 / n
            memory.contexts[j, C.losses, i] = 0.0


@kernel
def _follow(memory, context):
    """After a loss of a context: count the update, start an epoch if it is due, and solve again."""
    numbers, dual = memory.scalars, memory.arms[A.dual]
    memory.context_scalars[context, K.visits] += 1.0
    numbers[N.updates] += 1.0
    if numbers[N.updates] == numbers[N.next_epoch]:
        _start_epoch(memory)
    first, end = context, context + 1
    if memory.settings[S.horizon] == 0.0 and numbers[N.next_epoch] == np.inf:  # a lower rate for all contexts
        first, end = 0, memory.contexts.shape[0]
        numbers[N.rate] = _rate(end, dual.shape[0], numbers[N.updates] + 1.0, memory.settings[S.full])
    for j in range(first, end):
        _weigh(memory, j, numbers[N.rate], dual)
    if numbers[N.floor] > 0.0:
        solve(memory, numbers[N.rate], numbers[N.floor], dual)


@kernel
def learn_bandit(memory, context, arm, propensity, reward):
    """L += (1 - r)/p on the pulled arm; return False if p is too small and not the current probability."""
    losses = memory.contexts[context, C.losses]
    if propensity < LEAST_PROPENSITY and propensity != memory.contexts[context, C.p, arm]:
        return False
    losses[arm] += (1.0 - reward) / max(propensity, LEAST_PROPENSITY)
    _follow(memory, context)
    return True


@kernel
def learn_full(memory, context, probabilities, rewards):
    """L += 1 - r on every arm."""
    losses = memory.contexts[context, C.losses]
    for i in range(rewards.shape[0]):
        losses[i] += 1.0 - rewards[i]
    _follow(memory, context)


def start(memory: Any) -> None:
    """With known weights set the floor and the rate of the whole run; else one uniform round, then epochs."""
    settings, numbers, (n_contexts, _, n_arms) = memory.settings, memory.scalars, memory.contexts.shape
    known = settings[S.weights_known] > 0.0
    numbers[N.next_epoch] = np.inf if known else 1.0
    if known:
        numbers[N.floor] = settings[S.pull_share]
        numbers[N.rate] = _rate(n_contexts, n_arms, settings[S.horizon] or 1.0, settings[S.full])


def start_contexts(memory: Any) -> None:
    """Start uniform, with weight 0."""
    n = memory.contexts.shape[2]
    memory.contexts[:, C.p] = 1.0 / n
    memory.context_scalars[:, K.log_normalizer] = math.log(n)


def admit(memory: Any, n_kept: int, some_left: bool, entries: Vector) -> None:
    """Give new arms an equal share of the probability in every context, and set the rate for the number of arms."""
    settings, numbers, dual = memory.settings, memory.scalars, memory.arms[A.dual]
    n_contexts = len(memory.contexts)
    for losses in memory.contexts[:, C.losses]:
        losses[n_kept:] = -equal_share(-losses[:n_kept], numbers[N.rate])
    if numbers[N.updates] > 0.0 or numbers[N.next_epoch] == np.inf:
        known = numbers[N.next_epoch] == np.inf
        n_rounds = (settings[S.horizon] or numbers[N.updates] + 1.0) if known else (numbers[N.next_epoch] + 1.0) / 2.0
        numbers[N.rate] = _rate(n_contexts, len(dual), n_rounds, settings[S.full])
    weigh = repeated(_weigh, n_contexts)
    for context in range(n_contexts):
        weigh(memory, context, numbers[N.rate], dual)
    if numbers[N.floor] > 0.0:
        repeated(solve, 20 * n_contexts)(memory, numbers[N.rate], numbers[N.floor], dual)


def variants(n_contexts: int, n_arms: int) -> dict[str, dict[str, Any]]:
    """Return the settings to test, by name."""
    weights = [1.0 / n_contexts] * n_contexts
    known = {"context_weights": weights, "pull_share": 0.6 / n_arms}  # a floor that allows more arms
    kinds = {"": known, "unknown": {}}
    found = {
        f"{kind}-{feedback}".strip("-"): {"horizon": 1000, "feedback": str(feedback), **settings}
        for kind, settings in kinds.items()
        for feedback in Feedback
    }
    return found | {"anytime": known}


class FairCB(BasePolicy):
    """Maximize the sum of rewards while every arm is pulled in at least a share `pull_share` of all rounds.

    All contexts are solved together: with losses $L^j$ and context weights q,

    $$P = \\arg\\min_P \\sum_j \\langle p^j, L^j \\rangle + \\frac1\\eta \\sum_{j,i} p^j_i \\ln p^j_i
    \\quad\\text{over}\\quad \\sum_j q_j p^j_i \\ge \\nu \\text{ for every arm } i.$$

    The floor is on pulls, not on rewards. The paper compares with this algorithm.

    Parameters
    ----------
    n_contexts, n_arms
        Numbers of contexts and arms; contexts added by `grow` have weight 0.
    pull_share
        $\\nu$ in (0, 1/n_arms); by default 1/(2 n_arms), as in the paper's experiments.
    horizon
        Number of rounds T, for the learning rate. None: a rate that falls with the rounds, for which the bounds on
        regret are at most 1.5 times those with the right horizon, after any number of rounds.
    context_weights
        The frequencies of contexts, a distribution. None: estimated in epochs of length 1, 2, 4, ..., with a floor
        lowered by the possible error, which for short runs means no floor at all.
    feedback
        `"bandit"`, as published, or `"full"`: the same step on the true losses, regret at most
        $\\sqrt{2 T M \\ln N}$ with the horizon.
    seed
        Seed of `choose` without `rng`.

    Notes
    -----
    Losses are 1 - r. Every update solves the problem above again, in its dual of n_arms variables, so its time is
    proportional to the number of contexts. Without a horizon, and with full information, its regret is at most
    $M \\ln N / \\eta_T + \\frac12 \\sum_t \\eta_t \\le \\frac32 \\sqrt{2 T M \\ln N}$. With bandit feedback a
    propensity below 1e-9 is refused unless it is the current probability: one such loss would outweigh all others.

    Examples
    --------
    >>> from alphafair import FairCB
    >>> policy = FairCB(2, 3, pull_share=0.3, horizon=1000, context_weights=[0.6, 0.4], feedback="full", seed=0)
    >>> for _ in range(200):
    ...     policy.update(policy.choose(0), [1.0, 0.2, 0.2])
    >>> policy.marginals.round(6).tolist()
    [0.4, 0.3, 0.3]

    References
    ----------
    Chen, Cuellar, Luo, Modi, Nemlekar and Nikolaidis, Fair Contextual Multi-Armed Bandits, PMLR 124, 2020; its
    supplement for unknown weights.
    """

    name: ClassVar[str] = "fair-cb"
    traits = Traits(feedbacks=tuple(Feedback), contexts_apart=False, style=("#CC79A7", "P"), variants=variants)
    _layout = Layout(S, N, A, K, C, may_be_infinite=("next_epoch",))
    _others: ClassVar[dict[str, Any]] = {
        "start": start,
        "start_contexts": start_contexts,
        "admit": admit,
        "least_propensity": lambda memory, context: LEAST_PROPENSITY,
    }
    algorithm: ClassVar = {
        Feedback.FULL: Algorithm(_layout, draw, learn_full, **_others),
        Feedback.BANDIT: Algorithm(_layout, draw, learn_bandit, **_others),
    }

    def __init__(
        self,
        n_contexts: int,
        n_arms: int,
        *,
        pull_share: float | None = None,
        horizon: int | None = None,
        context_weights: ArrayLike | None = None,
        feedback: Literal["bandit", "full"] = "bandit",
        seed: int | None = None,
    ) -> None:
        n_contexts = validate.integer("n_contexts", n_contexts, low=1)
        n_arms = validate.integer("n_arms", n_arms, low=1)
        share = validate.number(
            "pull_share",
            0.5 / n_arms if pull_share is None else pull_share,
            low=0.0,
            high=1.0 / n_arms,
            low_open=True,
            high_open=True,
        )
        horizon = None if horizon is None else validate.horizon(horizon)
        self.feedback = validate.choice("feedback", feedback, Feedback)
        weights = None
        if context_weights is not None:
            weights = validate.distribution(
                "context_weights",
                context_weights,
                n_contexts,
                "per context",
                "Divide the counts by their sum.",
            )
        settings = {
            "pull_share": share,
            "horizon": horizon,
            "context_weights": None if weights is None else weights.tolist(),
            "feedback": self.feedback.value,
        }
        super().__init__(n_contexts, n_arms, settings=settings, seed=seed)

    @property
    def pull_share(self) -> float:
        """The least share of rounds for every arm."""
        return self.settings["pull_share"]

    @property
    def horizon(self) -> int | None:
        """The number of rounds that the learning rate is for; None: any."""
        return self.settings["horizon"]

    @property
    def context_weights(self) -> list[float] | None:  # type: ignore[override]
        """The frequencies of contexts; 0 for those that `grow` has added."""
        return self.settings["context_weights"]

    def _numbers(self) -> dict[str, Any]:
        known = self.settings["context_weights"] is not None
        full = self.feedback is Feedback.FULL
        share, horizon = self.settings["pull_share"], self.settings["horizon"] or 0
        return {"pull_share": share, "horizon": horizon, "full": full, "weights_known": known}

    def _start(self, live: NDArray[np.bool_], *parts: Any, **named: Any) -> None:
        super()._start(live, *parts, **named)
        weights = self.settings["context_weights"]
        if weights is not None:
            self._memory.context_scalars[:, K.weight] = _summing_to_one(np.array(weights))

    def _check(self) -> None:
        super()._check()
        weights, held = self.settings["context_weights"], self._memory.context_scalars[:, K.weight]
        if weights is not None and not np.allclose(held, weights, rtol=1e-5, atol=0.0):
            raise InvalidArgument("state.arrays['weight']", f"weights {weights}", held, "The snapshot is damaged.")

    def _check_n_live(self, n_live: int) -> None:
        if self.settings["pull_share"] * n_live >= 1.0:
            most = math.ceil(1.0 / self.settings["pull_share"]) - 1
            repair = "Retire an arm first, or construct the policy with a lower pull_share."
            raise InvalidArgument("n_arms", f"at most {most} live arms with this pull_share", n_live, repair)

    def _settings_for(self, n_contexts: int) -> dict[str, Any]:
        weights = self.settings["context_weights"]
        if weights is None:
            return self.settings
        return {**self.settings, "context_weights": weights + [0.0] * (n_contexts - len(weights))}

    @property
    def distributions(self) -> Matrix:
        """The distribution of every context (n_contexts, n_arms)."""
        with self._lock:
            return self._learned.per_arm(self._memory.contexts[:, C.p])

    @property
    def marginals(self) -> Vector:
        """The overall frequency of each arm, with the current weights: at least the current floor."""
        with self._lock:
            weights, p = self._memory.context_scalars[:, K.weight], self._memory.contexts[:, C.p]
            return self._learned.per_arm(weights @ p)


def _summing_to_one(weights: Vector) -> Vector:
    """Divide weights by their sum, unless it is 1 up to rounding: floors may need the exact sum."""
    total = weights.sum()
    return weights / total if abs(total - 1.0) > 1e-12 else weights
