"""The slow oracle: every policy of alphafair said as plainly as NumPy allows.

Nothing here is fast, validated or shared with the package: a formula, then the formula in code.
R cumulative rewards (from 1), r rewards of a round, x and p distributions, g gradient, S squared
gradient norms, L losses, W reward totals a context; M contexts, N arms, T rounds.

`probabilities(context)` changes nothing. `learn(context, arm, propensity, p, outcome)` is told the
distribution p of the decision and all rewards (full information) or the pulled arm's (bandit).
"""

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Outcome = Vector | float
Feedback = Literal["bandit", "full"]
Marginal = Literal["before", "next_visit", "after"]


def utility(x: Vector, alpha: float) -> Vector:
    """phi(x) = x^(1 - alpha) / (1 - alpha)."""
    return x ** (1 - alpha) / (1 - alpha)


def marginal_utility(x: Vector, alpha: float) -> Vector:
    """phi'(x) = x^(-alpha)."""
    return x**-alpha


def approximation_factor(alpha: float) -> float:
    """c = (1 - alpha)^(-(1 - alpha))."""
    return float((1 - alpha) ** -(1 - alpha))


def alpha_performance(accounts: Vector, alpha: float) -> float:
    """sum_i phi(R_i)."""
    return float(utility(accounts, alpha).sum())


def jain_index(accounts: Vector) -> float:
    """(sum R)^2 / (N sum R^2)."""
    total, squares = accounts.sum(), (accounts**2).sum()
    return float(total**2 / (len(accounts) * squares))


def project_on_simplex(v: Vector) -> Vector:
    """max(v - theta, 0), theta = (u_1 + .. + u_k - 1) / k for the last k with theta < u_k."""
    u = np.sort(v)[::-1]
    k = np.arange(1, len(v) + 1)
    excess = np.cumsum(u) - 1
    last = np.flatnonzero(k * u > excess)[-1]
    x: Vector = np.maximum(v - excess[last] / k[last], 0.0)
    return x


class Policy:
    """x^j = 1/N in every context, until a subclass learns."""

    def __init__(self, n_contexts: int, n_arms: int) -> None:
        self.n_contexts, self.n_arms = n_contexts, n_arms
        self.distributions = np.full((n_contexts, n_arms), 1 / n_arms)

    def probabilities(self, context: int) -> Vector:
        return np.array(self.distributions[context])

    def learn(self, context: int, arm: int, propensity: float, p: Vector, outcome: Outcome) -> None:
        pass

    def grow(self, n_contexts: int) -> None:
        """New contexts, uniform."""
        more = np.full((n_contexts - self.n_contexts, self.n_arms), 1 / self.n_arms)
        self.distributions = np.vstack([self.distributions, more])
        self.n_contexts = n_contexts

    def change_arms(self, kept: list[int], entries: list[float | None]) -> None:
        """The arms that stay, by place, and accounts of those that come; None is the least of the others."""
        self.n_arms = len(kept) + len(entries)
        self.distributions = np.full((self.n_contexts, self.n_arms), 1 / self.n_arms)


def with_newcomers(accounts: Vector, entries: list[float | None]) -> Vector:
    """R of the arms that stay, then of those that come."""
    return np.append(accounts, [accounts.min() if entry is None else entry for entry in entries])


class Uniform(Policy):
    """p = 1/N, always."""


class AlphaFair(Policy):
    """Algorithm 1: g = phi'(R) r ; S_j += |g|^2 ; x^j <- Proj(x^j + g / sqrt(S_j)).

    `before` takes R as it stood before the round's rewards were added and `after` once they are;
    `next_visit` keeps r until the context comes back and takes the R of that moment.
    """

    def __init__(self, n_contexts: int, n_arms: int, *, alpha: float, marginal: Marginal = "before") -> None:
        super().__init__(n_contexts, n_arms)
        self.alpha, self.marginal = alpha, marginal
        self.accounts, self.norms = np.ones(n_arms), np.zeros(n_contexts)
        self.closed_roots, self.closed_norms = np.zeros(n_contexts), np.zeros(n_contexts)
        self.pending: dict[int, Vector] = {}

    def stepped(self, context: int, rewards: Outcome, at: Vector) -> tuple[Vector, float]:
        """x^j and S_j after a step with phi' taken at `at`; a zero gradient takes no step."""
        gradient = marginal_utility(at, self.alpha) * rewards
        norm = float(self.norms[context] + gradient @ gradient)
        if gradient @ gradient == 0.0:
            return np.array(self.distributions[context]), norm
        return project_on_simplex(self.distributions[context] + gradient / np.sqrt(norm)), norm

    def current(self, context: int) -> tuple[Vector, float]:
        """x^j and S_j with the pending step, if there is one, taken at the R of now."""
        return self.stepped(context, self.pending.get(context, 0.0), self.accounts)

    def probabilities(self, context: int) -> Vector:
        """x^j, the pending step included but not stored."""
        return self.current(context)[0]

    def learn(self, context: int, arm: int, propensity: float, p: Vector, outcome: Outcome) -> None:
        """R += x r with the decision's own x, and the step of the chosen reading."""
        before = self.accounts
        after = before + p * outcome
        if self.marginal == "next_visit":
            new, self.pending[context] = self.current(context), np.array(outcome)
        else:
            new = self.stepped(context, outcome, before if self.marginal == "before" else after)
        self.distributions[context], self.norms[context] = new
        self.accounts = after

    def grow(self, n_contexts: int) -> None:
        more = np.zeros(n_contexts - self.n_contexts)
        self.norms, self.closed_roots = np.append(self.norms, more), np.append(self.closed_roots, more)
        self.closed_norms = np.append(self.closed_norms, more)
        super().grow(n_contexts)

    def change_arms(self, kept: list[int], entries: list[float | None]) -> None:
        """Pending steps are taken; x is projected on the arms that stay and 0 on those that come, unless S_j = 0."""
        for context in self.pending:
            self.distributions[context], self.norms[context] = self.current(context)
        self.pending = {}
        self.closed_roots += np.where(self.norms > self.closed_norms, np.sqrt(self.norms), 0.0)
        self.closed_norms = self.norms.copy()
        self.accounts = with_newcomers(self.accounts[kept], entries)
        rows = [np.append(project_on_simplex(x[kept]), np.zeros(len(entries))) for x in self.distributions]
        self.n_arms = len(kept) + len(entries)
        self.distributions = np.array(rows)
        self.distributions[self.norms == 0] = 1 / self.n_arms

    def squared_gradient_norms(self) -> Vector:
        """S_j of every context, a pending gradient included."""
        return np.array([self.current(context)[1] for context in range(self.n_contexts)])

    def certificate(self) -> float:
        """OPT - c sum phi(R) <= (1 - alpha)^alpha sum_j 2 sqrt(S_j) + c N: the right-hand side."""
        regret = 2 * np.sqrt(self.squared_gradient_norms()).sum() + self.closed_roots.sum()
        constant = approximation_factor(self.alpha) * self.n_arms
        return float((1 - self.alpha) ** self.alpha * regret + constant)


class AlphaFairAfter(AlphaFair):
    """With R once the round's rewards are added."""

    def __init__(self, n_contexts: int, n_arms: int, *, alpha: float) -> None:
        super().__init__(n_contexts, n_arms, alpha=alpha, marginal="after")


class AlphaFairNextVisit(AlphaFair):
    """With R when the context comes back."""

    def __init__(self, n_contexts: int, n_arms: int, *, alpha: float) -> None:
        super().__init__(n_contexts, n_arms, alpha=alpha, marginal="next_visit")


class IndependentAlphaFair(Policy):
    """Algorithm 1 run apart in every context: R^j instead of one R."""

    def __init__(self, n_contexts: int, n_arms: int, *, alpha: float) -> None:
        super().__init__(n_contexts, n_arms)
        self.alpha, self.copies = alpha, [AlphaFair(1, n_arms, alpha=alpha) for _ in range(n_contexts)]

    def grow(self, n_contexts: int) -> None:
        self.copies += [AlphaFair(1, self.n_arms, alpha=self.alpha) for _ in range(n_contexts - self.n_contexts)]
        super().grow(n_contexts)

    def change_arms(self, kept: list[int], entries: list[float | None]) -> None:
        for copy in self.copies:
            copy.change_arms(kept, entries)
        super().change_arms(kept, entries)

    @property
    def accounts(self) -> Matrix:
        return np.array([copy.accounts for copy in self.copies])

    def probabilities(self, context: int) -> Vector:
        return self.copies[context].probabilities(0)

    def learn(self, context: int, arm: int, propensity: float, p: Vector, outcome: Outcome) -> None:
        self.copies[context].learn(0, arm, propensity, p, outcome)


class Hedge(Policy):
    """p proportional to exp(eta sum_t r(t)), whatever the context.

    eta = sqrt(8 ln N / T) for a known horizon T, or as given, or sqrt(8 ln N / t) before round t.
    """

    def __init__(
        self,
        n_contexts: int,
        n_arms: int,
        *,
        horizon: int | None = None,
        learning_rate: float | None = None,
    ) -> None:
        super().__init__(n_contexts, n_arms)
        self.horizon, self.learning_rate = horizon, learning_rate
        self.totals, self.n_updates = np.zeros(n_arms), 0

    def rate(self) -> float:
        n_rounds = self.n_updates + 1 if self.horizon is None else self.horizon
        standard = float(np.sqrt(8 * np.log(self.n_arms) / n_rounds))
        return standard if self.learning_rate is None else self.learning_rate

    def probabilities(self, context: int) -> Vector:
        return softmax(self.rate() * self.totals)

    def change_arms(self, kept: list[int], entries: list[float | None]) -> None:
        """Those that come enter with probability 1/N each."""
        super().change_arms(kept, entries)
        self.totals = with_equal_shares(self.totals[kept], len(entries), self.rate())

    def learn(self, context: int, arm: int, propensity: float, p: Vector, outcome: Outcome) -> None:
        self.totals += outcome
        self.n_updates += 1


def with_equal_shares(scores: Vector, n_new: int, rate: float) -> Vector:
    """Scores of those that come such that softmax(rate * scores) is 1/N for each of them."""
    level = np.log(np.exp(rate * (scores - scores.max())).mean()) / rate + scores.max() if rate > 0 else scores.mean()
    return np.append(scores, np.full(n_new, level))


def falls_to_zero(f: Callable[[float], float], low: float, high: float) -> float:
    """Where a falling function is 0, to the last digits; the upper end if it is nowhere below."""
    return float(brentq(f, low, high, xtol=1e-16, rtol=1e-15)) if f(high) < 0 else high


def log_barrier_leader(v: Vector) -> Vector:
    """p_k = 1 / (lam + v_k) with sum p = 1; lam - min v lies in [1, N]."""
    above = v - v.min()
    lam = falls_to_zero(lambda lam: (1 / (lam + above)).sum() - 1, 0.5, len(v) + 1.0)
    p: Vector = 1 / (lam + above)
    return p / float(p.sum())


def log_barrier_stability(p: Vector, loss_estimate: Vector, eta: float) -> float:
    """M = max_q <l, p - q> - (1/eta) sum_k (q_k/p_k - 1 - ln(q_k/p_k)).

    The best q is q_k = 1 / (lam + eta l_k + 1/p_k).
    """
    q = log_barrier_leader(eta * loss_estimate + 1 / p)
    divergence = (q / p - 1 - np.log(q / p)).sum()
    return float(loss_estimate @ (p - q) - divergence / eta)


class ScaleFree(Policy):
    """The scale-free bandit, blind to the context, on the loss -reward.

    eta = N / (1 + sum M) ; p_k = 1 / (lam + eta L_k) ; plays (1 - gamma) p + gamma / N.
    gamma: adaptive N / (2N + sum of gamma |l| / p'_i), sqrt min(1/2, sqrt(N / t)).
    """

    def __init__(self, n_contexts: int, n_arms: int, *, exploration: Literal["adaptive", "sqrt"] = "adaptive") -> None:
        super().__init__(n_contexts, n_arms)
        self.adaptive, self.eta, self.gamma = exploration == "adaptive", float(n_arms), 0.5
        self.p, self.losses = np.full(n_arms, 1 / n_arms), np.zeros(n_arms)
        self.stability_sum, self.exploration_sum, self.n_updates = 0.0, 0.0, 0

    def probabilities(self, context: int) -> Vector:
        return (1 - self.gamma) * self.p + self.gamma / self.n_arms

    def change_arms(self, kept: list[int], entries: list[float | None]) -> None:
        """Those that come enter with p = 1/N each, and the loss that gives it to them."""
        super().change_arms(kept, entries)
        n, n_new = self.n_arms, len(entries)
        if self.n_updates == 0:
            self.eta, self.p, self.losses = float(n), np.full(n, 1 / n), np.zeros(n)
            return
        self.eta, self.losses = n / (1 + self.stability_sum), self.losses[kept]
        adaptive, square_root = n / (2 * n + self.exploration_sum), min(0.5, float(np.sqrt(n / self.n_updates)))
        self.gamma = adaptive if self.adaptive else square_root
        if n_new:

            def more_than_equal(loss: float) -> float:
                return float(log_barrier_leader(self.eta * np.append(self.losses, np.full(n_new, loss)))[-1] - 1 / n)

            low, high = self.losses.min() - n / self.eta, self.losses.max() + n / self.eta
            self.losses = np.append(self.losses, np.full(n_new, falls_to_zero(more_than_equal, low, high)))
        self.p = log_barrier_leader(self.eta * self.losses)

    def learn(self, context: int, arm: int, propensity: float, p: Vector, outcome: Outcome) -> None:
        """L_i += l / p'_i, then gamma, then M at the old p and eta, then eta, then p."""
        estimate = np.zeros(self.n_arms)
        estimate[arm] = -float(outcome) / propensity
        self.losses += estimate
        self.n_updates += 1
        self.exploration_sum += self.gamma * abs(estimate[arm])
        adaptive = self.n_arms / (2 * self.n_arms + self.exploration_sum)
        square_root = min(0.5, float(np.sqrt(self.n_arms / self.n_updates)))
        self.gamma = adaptive if self.adaptive else square_root
        self.stability_sum += log_barrier_stability(self.p, estimate, self.eta)
        self.eta = self.n_arms / (1 + self.stability_sum)
        self.p = log_barrier_leader(self.eta * self.losses)


class AlphaFairBandit(Policy):
    """Algorithm 2: a scale-free learner a context, fed phi'(R_i) r as its reward; R_i += r."""

    def __init__(self, n_contexts: int, n_arms: int, *, alpha: float) -> None:
        super().__init__(n_contexts, n_arms)
        self.alpha, self.accounts = alpha, np.ones(n_arms)
        self.learners = [ScaleFree(1, n_arms) for _ in range(n_contexts)]

    def grow(self, n_contexts: int) -> None:
        self.learners += [ScaleFree(1, self.n_arms) for _ in range(n_contexts - self.n_contexts)]
        super().grow(n_contexts)

    def change_arms(self, kept: list[int], entries: list[float | None]) -> None:
        super().change_arms(kept, entries)
        self.accounts = with_newcomers(self.accounts[kept], entries)
        for learner in self.learners:
            learner.change_arms(kept, entries)

    def probabilities(self, context: int) -> Vector:
        return self.learners[context].probabilities(0)

    def learn(self, context: int, arm: int, propensity: float, p: Vector, outcome: Outcome) -> None:
        """g = phi'(R_i) r with R from before this reward."""
        gain = float(marginal_utility(self.accounts, self.alpha)[arm]) * outcome
        self.learners[context].learn(0, arm, propensity, p, gain)
        self.accounts[arm] += outcome


def softmax(scores: Matrix) -> Matrix:
    """exp(s_i) / sum_k exp(s_k) along the last axis, the largest score moved to zero first."""
    p: Matrix = np.exp(scores - scores.max(axis=-1, keepdims=True))
    p /= p.sum(axis=-1, keepdims=True)
    return p


def floor_dual(scores: Matrix, weights: Vector, floor: float, start: Vector) -> Vector:
    """Maximize nu sum d - sum_j ln sum_i exp(s^j_i + q_j d_i) over d >= 0.

    Newton steps on the arms not held at zero, damped until the value rises; once it is too flat
    for doubles to tell, until the optimality residual |d - max(d + gradient, 0)| falls.
    """

    def look(d: Vector) -> tuple[Matrix, Vector, float, float]:
        lifted = scores + weights[:, None] * d
        p = softmax(lifted)
        gradient = floor - weights @ p
        value = floor * d.sum() - np.logaddexp.reduce(lifted, axis=1).sum()
        return p, gradient, float(value), float(abs(d - np.maximum(d + gradient, 0)).max())

    d, damping = start, 1e-3
    p, gradient, value, residual = look(d)
    while residual > 1e-15 and damping < 1e9:
        free = (d > 0) | (gradient > 0)
        curvature = np.diag(weights**2 @ p) - (weights[:, None] ** 2 * p).T @ p
        damped = curvature[np.ix_(free, free)] + damping * np.eye(free.sum())
        new = d.copy()
        new[free] = np.maximum(d[free] + np.linalg.solve(damped, gradient[free]), 0)
        seen = look(new)
        noise = 1e-13 * (1 + abs(value))
        if seen[2] > value + noise or (seen[2] > value - noise and seen[3] < residual):
            d, damping = new, max(damping / 10, 1e-15)
            p, gradient, value, residual = seen
        else:
            damping *= 10
    return d


def pull_floor_step(losses: Matrix, weights: Vector, floor: float, rate: float) -> tuple[Matrix, Vector]:
    """Minimize sum_j <p^j, L^j> + (1/eta) sum p ln p subject to sum_j q_j p^j_i >= nu.

    Dual c = d / eta >= 0 and p^j = softmax(q_j d - eta L^j), found for scores shrunk to at most
    one and followed as they double, because saturated softmaxes leave Newton nothing to see.
    """
    scores = rate * (losses.min(axis=1, keepdims=True) - losses)
    d = np.zeros(losses.shape[1])
    for doubling in range(int(np.ceil(np.log2(max(-scores.min(), 1)))), -1, -1):
        if floor > 0:
            d = floor_dual(scores / 2**doubling, weights, floor, 2 * d)
    return softmax(scores + weights[:, None] * d), d / rate if rate > 0 else d


class FairCB(Policy):
    """The regularized leader on losses 1 - r with every arm's marginal at least nu.

    With known weights q one run of `pull_floor_step`; otherwise epochs of 1, 2, 4, .. updates, each
    from zero losses with the frequencies q and the slack 4 sqrt(s) + 2 s, s = M ln(TM) / seen.
    Without a horizon T is the number of the round, of an epoch its last one.
    """

    def __init__(
        self,
        n_contexts: int,
        n_arms: int,
        *,
        pull_share: float,
        horizon: int | None = None,
        feedback: Feedback = "bandit",
        context_weights: Vector | None = None,
    ) -> None:
        super().__init__(n_contexts, n_arms)
        self.pull_share, self.horizon, self.feedback = pull_share, horizon, feedback
        self.losses, self.counts = np.zeros((n_contexts, n_arms)), np.zeros(n_contexts)
        self.known, self.epoch_length = context_weights is not None, 1
        even = np.full(n_contexts, 1 / n_contexts)
        self.weights = even if context_weights is None else context_weights
        self.floor = pull_share if self.known else 0.0
        self.rate = self.rate_over((horizon or 1) if self.known else 1)

    def rate_over(self, n_rounds: float) -> float:
        """Bandit sqrt(M ln N / (T N)), full information sqrt(2 M ln N / T)."""
        factor = 2.0 if self.feedback == "full" else 1 / self.n_arms
        return float(np.sqrt(factor * self.n_contexts * np.log(self.n_arms) / n_rounds))

    def grow(self, n_contexts: int) -> None:
        n_more = n_contexts - self.n_contexts
        self.losses = np.vstack([self.losses, np.zeros((n_more, self.n_arms))])
        self.counts, self.weights = (np.append(each, np.zeros(n_more)) for each in (self.counts, self.weights))
        super().grow(n_contexts)

    def change_arms(self, kept: list[int], entries: list[float | None]) -> None:
        """Those that come enter with an equal share of every context, before floors; the rate is the new N's."""
        rate = self.rate if self.known or self.counts.sum() else 0.0
        rows = [-with_equal_shares(-row[kept], len(entries), rate) for row in self.losses]
        super().change_arms(kept, entries)
        self.losses = np.array(rows)
        self.rate = self.rate_over((self.horizon or self.counts.sum() + 1) if self.known else self.epoch_length)
        self.distributions, _ = pull_floor_step(self.losses, self.weights, self.floor, self.rate)

    def start_epoch(self) -> None:
        """Twice the length; q, floor and rate from the contexts seen; losses forgotten."""
        self.epoch_length *= 2
        seen = self.epoch_length - 1
        horizon = self.horizon or 2 * self.epoch_length - 1
        spread = self.n_contexts * np.log(horizon * self.n_contexts) / seen
        self.weights = self.counts / seen
        self.floor = self.pull_share - float(4 * np.sqrt(spread) + 2 * spread)
        self.rate = self.rate_over(self.epoch_length)
        self.losses[:] = 0

    def learn(self, context: int, arm: int, propensity: float, p: Vector, outcome: Outcome) -> None:
        """L^j += 1 - r, or (1 - r_i) / p_i on the pulled arm; a new epoch when this one is over."""
        if self.feedback == "full":
            self.losses[context] += 1 - outcome
        else:
            self.losses[context, arm] += (1 - outcome) / propensity
        self.counts[context] += 1
        if not self.known and self.counts.sum() == 2 * self.epoch_length - 1:
            self.start_epoch()
        if self.known and self.horizon is None:
            self.rate = self.rate_over(self.counts.sum() + 1)
        self.distributions, _ = pull_floor_step(self.losses, self.weights, self.floor, self.rate)


def draw(probabilities: Vector, uniform: float) -> int:
    """The first arm with p_0 + .. + p_i > u; failing that the last arm with p_i > 0."""
    above = np.flatnonzero(np.cumsum(probabilities) > uniform)
    return int(above[0] if len(above) else np.flatnonzero(probabilities > 0)[-1])


def play(
    policy: Policy, contexts: Sequence[int], rewards: Matrix, uniforms: Vector, feedback: Feedback
) -> tuple[list[int], Matrix, Vector]:
    """Arms, distributions (T, N) and R = 1 + sum_t x(t) r(t), or + r_I on the pulled arm."""
    arms, used = [], []
    total = np.ones(rewards.shape[1])
    for context, row, uniform in zip(contexts, rewards, uniforms, strict=True):
        p = policy.probabilities(context)
        arm = draw(p, uniform)
        outcome = row if feedback == "full" else float(row[arm])
        policy.learn(context, arm, float(p[arm]), p, outcome)
        total += p * row if feedback == "full" else np.eye(len(row))[arm] * outcome
        arms.append(arm)
        used.append(p)
    return arms, np.array(used), total


def context_reward_totals(contexts: Sequence[int], rewards: Matrix, n_contexts: int) -> Matrix:
    """W_ji = the sum of r_i(t) over the rounds with context j."""
    here = [np.array(contexts) == context for context in range(n_contexts)]
    return np.array([rewards[rounds].sum(axis=0) for rounds in here])


def linear_problem(
    contexts: Sequence[int], rewards: Matrix, played: Matrix, n_contexts: int, alpha: float
) -> tuple[Matrix, Vector, Vector]:
    """G_ji = the sum of g_i, earned_j = the sum of <g, p>, g = R^-alpha r with R before the round; and R at the end."""
    gains, earned, total = np.zeros((n_contexts, rewards.shape[1])), np.zeros(n_contexts), np.ones(rewards.shape[1])
    for context, r, p in zip(contexts, rewards, played, strict=True):
        g = total**-alpha * r
        gains[context] += g
        earned[context] += g @ p
        total = total + p * r
    return gains, earned, total


def offline_optimum(totals: Matrix, alpha: float) -> tuple[Matrix, float, float]:
    """Maximize sum_i phi(R_i), R_i = 1 + sum_j x_ji W_ji, rows of x on the simplex: x, value, gap.

    OPT - value <= gap = sum_j (max_i W_ji w_i - sum_i x_ji W_ji w_i), w = phi'(R). Newton, densely,
    on sum phi(R) + tau sum ln x in u = dx / x, damped by 1 / (1 + decrement); tau shrinks whenever
    the decrement is small, where the gap is near M N tau. alpha = 0: all on the largest W_ji.
    """
    m, n = totals.shape
    x = np.full((m, n), 1 / n)
    if alpha == 0:
        seen = totals.any(axis=1)
        x[seen] = np.eye(n)[totals[seen].argmax(axis=1)]
        return x, float(n + (x * totals).sum()), 0.0
    tau = 1.0
    for _ in range(1000):
        accounts = 1 + (x * totals).sum(axis=0)
        value = alpha_performance(accounts, alpha)
        slopes = totals * marginal_utility(accounts, alpha)
        gap = float((slopes.max(axis=1) - (x * slopes).sum(axis=1)).sum())
        if gap <= 1e-11 * value:
            return x, value, gap
        h = alpha * accounts ** (-alpha - 1)
        to_sums = np.hstack([np.diag(row) for row in x * totals])
        row_sums = np.kron(np.eye(m), np.ones(n)) * x.ravel()
        hessian = to_sums.T @ np.diag(h) @ to_sums + tau * np.eye(m * n)
        system = np.block([[hessian, row_sums.T], [row_sums, np.zeros((m, m))]])
        gradient = (x * slopes).ravel() + tau
        u = np.linalg.solve(system, np.append(gradient, np.zeros(m)))[: m * n]
        decrement = float(np.sqrt(abs(gradient @ u) / tau))
        x = x * (1 + u.reshape(m, n) / (1 + decrement))
        x /= x.sum(axis=1, keepdims=True)
        if decrement < 0.1:
            tau *= 0.2
    raise ArithmeticError(f"no gap of 1e-11 in 1,000 steps: {totals}, alpha {alpha}")
