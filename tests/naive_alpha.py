"""The slow oracle for any alpha in [0, inf] and for periods: formulas as plainly as Python allows.

Nothing here is fast, validated or shared with the package. Accounts R_G belong to groups of arms; without labels every
arm is a group. s entitlements, a entry accounts (1 unless said), y = R/s, w = y^-alpha slopes, V_ji the sum of arm i's
rewards in context j, W the welfare:

    W(R) = (sum_i (s_i/S) (R_i/s_i)^(1-alpha))^(1/(1-alpha)),   S = sum_i s_i

alpha = 1 is the geometric mean, inf the least y. Policies play alpha itself up to 64, and 16 above, inf included.

For alpha < 1 the learners are fed w r, as in the paper; from 1 on, p r with p = dW/dR = (W/y)^alpha/S. `on_welfare`
asks for the second form at any alpha.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, localcontext
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import linprog

from tests.naive import Matrix, ScaleFree, Vector, log_barrier_leader, project_on_simplex
from tests.naive_adaptive import HEAD_START, KAPPA, Index, LeastSquares, Observing, best_of
from tests.naive_groups import project_on_floors

DIGITS = Context(prec=60, Emin=MIN_EMIN, Emax=MAX_EMAX)
MOST_PLAYED, PLAYED_ABOVE = 64.0, 16.0


# the measure


def played(alpha: float) -> float:
    """The exponent that policies use: alpha up to 64, else 16."""
    return alpha if alpha <= MOST_PLAYED else PLAYED_ABOVE


def exact(values: Any) -> Any:
    """An array of fractions, each equal to the number."""
    return np.vectorize(lambda value: value if isinstance(value, Fraction) else Fraction(float(value)), [object])(
        values
    )


def digits(value: Any) -> Decimal:
    """A number or fraction as a decimal, to the precision of the context."""
    value = value if isinstance(value, Fraction) else Fraction(float(value))
    return Decimal(value.numerator) / Decimal(value.denominator)


def log_welfare(accounts: Any, alpha: float, entitlements: Any = None) -> Decimal:
    """log W, with 60 digits."""
    with localcontext(DIGITS):
        s = [Decimal(1)] * len(accounts) if entitlements is None else [digits(k) for k in entitlements]
        y = [digits(r) / k for r, k in zip(accounts, s, strict=True)]
        q = [k / sum(s) for k in s]
        if alpha == math.inf:
            return min(y).ln()
        if alpha == 1:
            return sum((k * v.ln() for k, v in zip(q, y, strict=True)), Decimal(0))
        power = 1 - Decimal(alpha)
        mean = sum((k * (power * v.ln()).exp() for k, v in zip(q, y, strict=True)), Decimal(0))
        return mean.ln() / power


def welfare(accounts: Any, alpha: float, entitlements: Any = None) -> float:
    """W, with 60 digits inside."""
    with localcontext(DIGITS):
        return float(log_welfare(accounts, alpha, entitlements).exp())


def performance(accounts: Any, alpha: float, entitlements: Any = None) -> Decimal:
    """sum s^alpha phi(R), with 60 digits."""
    with localcontext(DIGITS):
        s = [Decimal(1)] * len(accounts) if entitlements is None else [digits(k) for k in entitlements]
        r = [digits(k) for k in accounts]
        if alpha == 1:
            return sum((k * v.ln() for k, v in zip(s, r, strict=True)), Decimal(0))
        power = 1 - Decimal(alpha)
        return sum((k * (power * (v / k).ln()).exp() for k, v in zip(s, r, strict=True)), Decimal(0)) / power


def ln_alpha(x: float, alpha: float) -> float:
    """The integral of u^-alpha from 1 to x."""
    with localcontext(DIGITS):
        log = Decimal(float(x)).ln()
        if alpha == 1:
            return float(log)
        power = 1 - Decimal(alpha)
        return float(((power * log).exp() - 1) / power)


def phi(x: Any, alpha: float) -> Any:
    """x^(1-alpha)/(1-alpha), log x at 1."""
    x = np.asarray(x, dtype=float)
    return np.log(x) if alpha == 1 else x ** (1 - alpha) / (1 - alpha)


def slopes(y: Vector, alpha: float) -> Vector:
    """w = y^-alpha."""
    return np.asarray(y) ** -alpha


def relative_slopes(y: Vector, alpha: float) -> Vector:
    """(y/min y)^-alpha: 1 for the poorest."""
    y = np.asarray(y)
    return (y / y.min()) ** -alpha


def prices(accounts: Vector, alpha: float, entitlements: Any = None) -> Vector:
    """p_i = dW/dR_i = (W/y_i)^alpha/S."""
    s = np.ones(len(accounts)) if entitlements is None else np.asarray(entitlements, dtype=float)
    return (welfare(accounts, alpha, s) / (np.asarray(accounts) / s)) ** alpha / s.sum()


# what any fixed policy can reach: Theorem B, and the offline problem


@dataclass
class Problem:
    """V (rows, arms), the group of every arm, and what groups are entitled to, promised and begin with.

    `present` has a row per epoch, for equally many rows of V each; floors are kept among the arms that are there.
    """

    totals: Matrix
    labels: Sequence[Any] | None = None
    entitlements: Mapping[Any, float] = field(default_factory=dict)
    arm_floor: float = 0.0
    group_floors: Mapping[Any, float] = field(default_factory=dict)
    initial: Mapping[Any, float] = field(default_factory=dict)
    present: Any = None

    def __post_init__(self) -> None:
        self.totals = np.asarray(self.totals, dtype=float)
        n_arms = self.totals.shape[1]
        self.labels = list(range(n_arms)) if self.labels is None else list(self.labels)
        self.groups = list(dict.fromkeys(self.labels))
        self.s = np.array([self.entitlements.get(g, 1.0) for g in self.groups])
        self.a = np.array([self.initial.get(g, 1.0) for g in self.groups])
        there = np.ones((1, n_arms), dtype=bool) if self.present is None else np.asarray(self.present)
        self.there = np.repeat(there, len(self.totals) // len(there), axis=0)
        self.of_arm = [self.groups.index(label) for label in self.labels]

    def floors(self, row: int) -> tuple[float, dict[Any, float], float]:
        """nu of each arm that is there, nu_G of each group that is there, and what is left: 1 less all of them."""
        there = np.flatnonzero(self.there[row])
        nu = min(self.arm_floor, 1 / len(there))
        of_groups = {g: v for g, v in self.group_floors.items() if g in {self.labels[i] for i in there}}  # type: ignore[index]
        return nu, of_groups, max(0.0, 1 - len(there) * nu - sum(of_groups.values()))

    def most(self, row: int, values: Vector) -> Any:
        """max over the distributions that keep the floors of <values, x>: formula (9)."""
        there = np.flatnonzero(self.there[row])
        nu, of_groups, room = self.floors(row)
        best_of_group = {g: max(values[i] for i in there if self.labels[i] == g) for g in of_groups}  # type: ignore[index]
        promised = sum(share * best_of_group[g] for g, share in of_groups.items())
        return nu * values[there].sum() + promised + room * values[there].max()

    def worth(self, w: Vector) -> Any:
        """A(w) = sum_G w_G a_G + sum_j max_x sum_i V_ji w_i x_i."""
        of_arms = np.asarray(w)[self.of_arm]
        return w @ self.a + sum(self.most(j, row * of_arms) for j, row in enumerate(self.totals))

    def boxes(self) -> tuple[Vector, Vector]:
        """Where accounts can lie: [a_G, a_G + sum_j max_{i in G} V_ji]."""
        most = [sum(row[np.array(self.of_arm) == g].max() for row in self.totals) for g in range(len(self.groups))]
        return self.a, self.a + np.array(most)

    def exactly(self) -> Problem:
        """The same in fractions, where nothing rounds."""
        same = copy.copy(self)
        same.totals, same.a = exact(self.totals), exact(self.a)
        same.arm_floor = Fraction(self.arm_floor)
        same.group_floors = {g: Fraction(float(floor)) for g, floor in self.group_floors.items()}
        return same

    def accounts_of(self, policy: Any) -> Vector:
        """R of groups, in fractions, for a policy that is changed as floors require; all arms are there.

        What an arm has above its floor is its part of what floors leave. A group divides its floor as its share.
        """
        same = self.exactly()
        earned = same.a.copy()
        for j, row in enumerate(exact(policy)):
            nu, of_groups, room = same.floors(j)
            share = {g: sum(row[i] for i in range(len(row)) if self.labels[i] == g) for g in of_groups}
            inside = {i: row[i] / share[g] if share[g] else Fraction(1, self.labels.count(g))
                      for i, g in enumerate(self.labels) if g in of_groups}  # fmt: skip
            least = np.array([nu + of_groups.get(g, 0) * inside.get(i, 0) for i, g in enumerate(self.labels)])
            above = np.maximum(row - least, Fraction(0))
            above = above / above.sum() if above.any() else np.full(len(row), Fraction(1, len(row)))
            np.add.at(earned, self.of_arm, same.totals[j] * (least + room * above))
        return earned

    def reduced(self) -> tuple[Matrix, Vector]:
        """Lemma 5: one arm per group and no floors. R_G = base_G + sum_j V'_jG y_jG."""
        merged, base = np.zeros((len(self.totals), len(self.groups))), self.a.copy()
        for j, row in enumerate(self.totals):
            nu, of_groups, room = self.floors(j)
            for g, label in enumerate(self.groups):
                own = [i for i in np.flatnonzero(self.there[j]) if self.of_arm[i] == g]
                best = max((row[i] for i in own), default=0.0)
                merged[j, g] = room * best
                base[g] += nu * sum(row[i] for i in own) + of_groups.get(label, 0.0) * best
        return merged, base


class Certificate(NamedTuple):
    """W(R*) <= `optimum`, and <= `boxed`, for every fixed policy; over W(R) these are `ratio` and `boxed_ratio`."""

    optimum: float
    ratio: float
    boxed: float
    boxed_ratio: float
    level: float  # mu of the boxed bound
    point: Vector  # y of the boxed bound
    standard_regret: float


def certificate(problem: Problem, accounts: Any, alpha: float, priced_by: Any = None) -> Certificate:
    """Theorem B for accounts R of groups, at the slopes of `priced_by`, R itself unless other accounts are given.

    W(R*) <= A(w) W(z)/<w, z>, z = s w^(-1/alpha), which are the accounts that w are the slopes of; for inf the slopes
    are those of the exponent played and the bound is A(w)/<w, s>.
    """
    at, s = np.asarray(accounts, dtype=float), problem.s
    z = at if priced_by is None else np.asarray(priced_by, dtype=float)
    w = relative_slopes(z / s, played(alpha))
    z = z if played(alpha) == alpha else s * (z / s) ** (played(alpha) / alpha)  # there W is tangent to the budget
    exactly, prices = problem.exactly(), exact(w)
    worth, achieved = exactly.worth(prices), welfare(at, alpha, s)
    optimum = float(worth / (prices @ exact(z))) * welfare(z, alpha, s)
    level, point = fill(exact(z), *exactly.boxes(), prices, worth)
    boxed = min(optimum, welfare(point, alpha, s))
    ratio = optimum / achieved
    standard = math.nan
    if alpha < math.inf:
        standard = float(slopes(at / s, alpha) @ at) * ln_alpha(ratio, alpha)
    return Certificate(optimum, ratio, boxed, boxed / achieved, level, point, standard)


def fill(z: Any, low: Any, high: Any, w: Any, budget: Any) -> tuple[float, Any]:
    """y = clip(mu z, low, high) with <w, y> = budget, in fractions; all of `high` where that costs no more.

    An arm at its limit has a price of 1, and others one of 1e-16 and less: floats would leave nothing to them.
    """
    if w @ high <= budget:
        return math.inf, high
    marks = sorted({*(low / z), *(high / z)})  # the cost is linear between two of them
    costs = [w @ np.minimum(np.maximum(mu * z, low), high) for mu in marks]
    k = max(k for k, cost in enumerate(costs) if cost <= budget)
    mu = marks[k] + (marks[k + 1] - marks[k]) * (budget - costs[k]) / (costs[k + 1] - costs[k])
    return float(mu), np.minimum(np.maximum(mu * z, low), high)


def a_priori_budget(
    accounts: Any, alpha: float, regret_bound: float, entitlements: Any = None, entry: Any = 1.0
) -> float:
    """(A3): at most sum_i {s^alpha [phi(R) - phi(a)] + phi'(a) + (a - 1) w} + Reg can <w, R*> be."""
    r = np.asarray(accounts, dtype=float)
    s = np.ones(len(r)) if entitlements is None else np.asarray(entitlements, dtype=float)
    a = np.broadcast_to(np.asarray(entry, dtype=float), r.shape)
    terms = s**alpha * (phi(r, alpha) - phi(a, alpha)) + slopes(a / s, alpha) + (a - 1) * slopes(r / s, alpha)
    return float(terms.sum() + regret_bound)


def a_priori_welfare(accounts: Any, alpha: float, regret_bound: float) -> float:
    """Theorem C, for s = a = 1: W(R*) <= W^alpha (1 + ln_alpha W + Reg/N)."""
    at = welfare(accounts, alpha)
    return at**alpha * (1 + ln_alpha(at, alpha) + regret_bound / len(accounts))


class Optimum(NamedTuple):
    """W of a policy that was found, and what no fixed policy exceeds."""

    accounts: Vector
    welfare: float
    bound: float


def optimum(problem: Problem, alpha: float, tolerance: float = 1e-10) -> Optimum:
    """max W over fixed policies: Newton on sum s phi(y) + tau sum ln x, densely, alpha doubled from 1; a linear
    program at inf. With w relative to the poorest, money = <w, R> and gap = sum_j (max_G V'w - <V'w, x>),
    W(OPT) <= W (1 + gap/money). Groups that nothing pays are left out until the end.
    """
    merged, base = problem.reduced()
    s, (m, n) = problem.s, merged.shape
    if alpha == math.inf:
        # maximize t: base + sum_j V' x >= s t, rows of x sum to 1
        to_sums = np.hstack([np.diag(row) for row in merged])
        answer = linprog(
            np.append(np.zeros(m * n), -1.0),
            A_ub=np.hstack([-to_sums, s[:, None]]),
            b_ub=base,
            A_eq=np.hstack([np.kron(np.eye(m), np.ones(n)), np.zeros((m, 1))]),
            b_eq=np.ones(m),
            bounds=[(0, None)] * (m * n) + [(None, None)],
        )
        accounts = base + to_sums @ answer.x[:-1]
        return Optimum(accounts, float((accounts / s).min()), float(-answer.fun) * (1 + 1e-9))
    paid = merged.any(axis=0)
    rows = merged[merged.any(axis=1)][:, paid]
    if alpha == 0 or not len(rows):
        accounts = base.copy()
        for row in merged:
            accounts[row.argmax()] += row.max()
        found = welfare(accounts, alpha, s)
        return Optimum(accounts, found, found)
    x, gap = np.full(rows.shape, 1 / paid.sum()), math.inf
    exponent = min(alpha, 1.0)
    while True:
        aim = tolerance if exponent == alpha else 1e-2
        x, gap = _climb(rows, base[paid], s[paid], exponent, x, aim)
        if exponent == alpha:
            break
        exponent = min(alpha, 2 * exponent)
    accounts = base.copy()
    accounts[paid] += (rows * x).sum(axis=0)
    more = accounts.copy()
    more[paid] *= 1 + gap
    return Optimum(accounts, welfare(accounts, alpha, s), welfare(more, alpha, s))


def _climb(rows: Matrix, base: Vector, s: Vector, alpha: float, x: Matrix, aim: float) -> tuple[Matrix, float]:
    """Newton steps with tau, in units of money/(M N), shrinking from 0.1; x and the relative gap."""
    (m, n), best, tau = rows.shape, (math.inf, x), 0.1
    x = 0.9 * x + 0.1 / n
    for _ in range(400):
        accounts = base + (rows * x).sum(axis=0)
        w = relative_slopes(accounts / s, alpha)
        money, values = float(w @ accounts), rows * w
        gap = float((values.max(axis=1) - (x * values).sum(axis=1)).sum()) / money
        best = min(best, (gap, x), key=lambda pair: pair[0])
        if gap <= aim or tau < 1e-3 * aim:
            break
        barrier = tau * money / (m * n)
        to_sums = np.hstack([np.diag(row) for row in x * rows])
        row_sums = np.kron(np.eye(m), np.ones(n)) * x.ravel()
        hessian = to_sums.T @ np.diag(alpha * w / accounts) @ to_sums + barrier * np.eye(m * n)
        system = np.block([[hessian, row_sums.T], [row_sums, np.zeros((m, m))]])
        gradient = (x * values).ravel() + barrier
        u = np.linalg.solve(system, np.append(gradient, np.zeros(m)))[: m * n].reshape(m, n)
        decrement = math.sqrt(max(0.0, float(gradient @ u.ravel()) / barrier))
        unit = float((accounts / s).min())
        now = _barrier_value(rows, base, s, alpha, x, unit, barrier)
        step = min(1.0, 0.95 / max(1e-300, -u.min()))
        while step > 1e-12:
            if _barrier_value(rows, base, s, alpha, x * (1 + step * u), unit, barrier) >= now - 1e-13 * abs(now):
                break
            step *= 0.5
        x = x * (1 + step * u)
        x /= x.sum(axis=1, keepdims=True)
        if decrement < 0.5 or step <= 1e-12:
            tau *= 0.2
    return best[1], best[0]


def _barrier_value(rows: Matrix, base: Vector, s: Vector, alpha: float, x: Matrix, unit: float, tau: float) -> float:
    """sum s unit phi(y/unit) + tau sum ln x."""
    y = (base + (rows * x).sum(axis=0)) / s
    return float((s * unit * phi(y / unit, alpha)).sum() + tau * np.log(x).sum())


# Theorem D: arms that die in a random order


def dying_arms(lengths: Sequence[int], order: Sequence[int]) -> tuple[list[int], Matrix]:
    """Contexts and rewards: phase k has its own context, living arms pay 1, and order[k] dies at its end."""
    contexts, rewards, n = [], [], len(lengths)
    for k, length in enumerate(lengths):
        row = [float(i in order[k:]) for i in range(n)]
        contexts += [k] * length
        rewards += [row] * length
    return contexts, np.array(rewards)


def dying_arms_accounts(lengths: Sequence[float], entry: float = 1.0) -> tuple[Vector, Vector]:
    """A comparator's accounts, 1 + T_k, and what no policy's mean accounts are worth more than, rho."""
    t = np.asarray(lengths, dtype=float)
    alive = len(t) - np.arange(len(t))
    return entry + t, entry + np.cumsum(t / alive)


def dying_arms_bound(lengths: Sequence[float], alpha: float) -> float:
    """W(R*)/E W(R) is at least this for any online policy, if the order is uniformly random."""
    best, reached = dying_arms_accounts(lengths)
    return welfare(best, alpha) / welfare(reached, alpha)


# accounts of a policy


class Books:
    """Accounts by group, with entry accounts, entitlements and floors; what every arm has earned in this period."""

    def __init__(
        self,
        labels: Sequence[Any],
        entitlements: Mapping[Any, float] | None = None,
        pull_floor: Any = 0.0,
        initial: Mapping[Any, float] | None = None,
    ) -> None:
        self.labels, self.entitlements, self.pull_floor = list(labels), dict(entitlements or {}), pull_floor
        self.live = list(range(len(self.labels)))
        self.accounts = {g: (initial or {}).get(g, 1.0) for g in self.labels}
        self.entry = dict(self.accounts)
        self.period, self.period_rewards = 0, np.zeros(len(self.labels))

    def s(self, group: Any) -> float:
        return self.entitlements.get(group, 1.0)

    @property
    def live_groups(self) -> list[Any]:
        """The group of every live arm."""
        return [self.labels[i] for i in self.live]

    @property
    def present(self) -> list[Any]:
        """Groups with a live arm, each once."""
        return list(dict.fromkeys(self.live_groups))

    def levels(self) -> Vector:
        """R_G/s_G of every live arm's group."""
        return np.array([self.accounts[g] / self.s(g) for g in self.live_groups])

    def vectors(self) -> tuple[Vector, Vector]:
        """R and s of the groups that are present."""
        return np.array([self.accounts[g] for g in self.present]), np.array([self.s(g) for g in self.present])

    def welfare(self, alpha: float) -> float:
        r, s = self.vectors()
        return welfare(r, alpha, s)

    def prices(self, alpha: float) -> tuple[Vector, float]:
        """p of every live arm's group, and u = S W^-alpha, so that w = u p."""
        r, s = self.vectors()
        level = welfare(r, alpha, s)
        return (level / self.levels()) ** alpha / s.sum(), float(s.sum() * level**-alpha)

    def earn(self, arm: int, amount: float) -> None:
        self.period_rewards[arm] += amount
        self.accounts[self.labels[arm]] += amount

    def new_period(self, carry: float) -> None:
        """a = 1 + carry (R - 1), of absent groups too."""
        self.accounts = {g: 1 + carry * (r - 1) for g, r in self.accounts.items()}
        self.entry = dict(self.accounts)
        self.period += 1
        self.period_rewards = np.zeros(len(self.labels))

    # floors

    @property
    def group_floors(self) -> dict[Any, float]:
        return dict(self.pull_floor) if isinstance(self.pull_floor, Mapping) else {}

    @property
    def arm_floor(self) -> float:
        return 0.0 if isinstance(self.pull_floor, Mapping) else float(self.pull_floor)

    @property
    def unpromised(self) -> float:
        return 1 - len(self.live) * self.arm_floor - sum(self.group_floors.get(g, 0.0) for g in self.present)

    @property
    def at_stake(self) -> float:
        """kappa_0: learners are fed this part of the rewards. With floors under groups x keeps them itself: 1."""
        return self.unpromised if self.arm_floor > 0 else 1.0

    def members(self, group: Any) -> Any:
        return np.array([g == group for g in self.live_groups])

    def lifted(self, y: Vector) -> Vector:
        """(1 - sum nu) y_i + nu_G y_i/y(G)."""
        p = np.zeros(len(y))
        for g in self.present:
            own = self.members(g)
            p[own] = self.unpromised * y[own] + self.group_floors.get(g, 0.0) * y[own] / y[own].sum()
        return p

    def floored(self, y: Vector) -> Vector:
        return self.lifted(y) if self.group_floors else self.arm_floor + self.unpromised * y

    def projected(self, v: Vector) -> Vector:
        if self.group_floors:
            return project_on_floors(v, self.live_groups, self.group_floors)
        return project_on_simplex(v)

    # arms that come and go

    def retire(self, arm: int) -> None:
        self.live.remove(arm)

    def admit(self, labels: Sequence[Any], account: float | None, entitlements: Mapping[Any, float]) -> None:
        """New arms; new groups enter with the least R/s of now, or with the account given."""
        least = self.levels().min()
        for g in labels:
            if g not in self.accounts:
                self.entitlements |= {g: entitlements[g]} if g in entitlements else {}
                self.accounts[g] = max(1.0, least * self.s(g)) if account is None else account
                self.entry[g] = self.accounts[g]
            self.live.append(len(self.labels))
            self.labels.append(g)
            self.period_rewards = np.append(self.period_rewards, 0.0)


# full information


class AdaHedge:
    """h, the weight of x^j against a, from gains d = <x^j - a, g>: log-odds ln2 D/Delta, Delta the mixability gaps."""

    def __init__(self) -> None:
        self.ahead = self.gaps = 0.0  # D, Delta

    @property
    def share(self) -> float:
        return 0.5 if self.gaps == 0 else 1 / (1 + math.exp(-np.clip(math.log(2) * self.ahead / self.gaps, -700, 700)))

    def step(self, d: float) -> None:
        mix = max(d, 0.0)
        if self.gaps > 0:
            eta = math.log(2) / self.gaps
            odds = eta * self.ahead
            mix = float(np.logaddexp(-np.logaddexp(0, odds), -np.logaddexp(0, -odds) + eta * d)) / eta
        self.gaps += max(0.0, mix - self.share * d)
        self.ahead += d

    def bound(self) -> float:
        return 2 * self.gaps


class ClippedShare:
    """h <- clip(h + d/sqrt(2 Q), 0, 1), Q += d^2; 1 at first."""

    def __init__(self) -> None:
        self.share, self.squares = 1.0, 0.0

    def step(self, d: float) -> None:
        self.squares += d**2
        self.share = float(np.clip(self.share + d / math.sqrt(2 * self.squares), 0, 1))

    def bound(self) -> float:
        return math.sqrt(2 * self.squares)


class AlphaFair:
    """Algorithm 1 below alpha = 1; from 1 on the same ascent on p r, the gradient of the welfare. x^j alone is played.

    `bound` + `drift` is at least sum_t <g_t, x - P_t> for every x, fixed in every epoch of this period.
    """

    def __init__(self, n_contexts: int, books: Books, *, alpha: float, on_welfare: bool | None = None) -> None:
        self.books, self.alpha, self.asked = books, played(alpha), alpha
        self.on_welfare = alpha >= 1 if on_welfare is None else on_welfare
        self.x = np.array([books.projected(np.full(len(books.live), 1 / len(books.live)))] * n_contexts)
        self.restart()

    def restart(self) -> None:
        """What begins anew with a period: S_j, the bound and the drift. x^j stays."""
        self.norms = np.zeros(len(self.x))
        self.reopened = np.zeros(len(self.x), dtype=bool)  # arms have changed since the context's last gradient
        self.bound = self.drift = 0.0
        self.units: list[float] = []  # u of every round

    @property
    def surrogate_regret_bound(self) -> float:
        return self.bound + self.drift

    def scales(self) -> tuple[Vector, float]:
        """What rewards are multiplied with, and u: p and S W^-alpha, or w and 1."""
        return self.books.prices(self.alpha) if self.on_welfare else (slopes(self.books.levels(), self.alpha), 1.0)

    def stepped(self, context: int, rewards: Vector) -> tuple[Vector, float, float]:
        """x^j and S_j after a step at the accounts of now, and what it adds to the bound."""
        p, u = self.scales()
        g, old, x = self.books.at_stake * p * rewards, self.norms[context], self.x[context]
        new = old + g @ g
        if not g.any():
            return x, old, 0.0
        more = u * 2 * (math.sqrt(new) - math.sqrt(old)) + (u * math.sqrt(old) if self.reopened[context] else 0.0)
        return self.books.projected(x + g / math.sqrt(new)), new, more

    def ascend(self, context: int, rewards: Vector) -> None:
        before = self.norms[context]
        self.x[context], self.norms[context], more = self.stepped(context, rewards)
        self.bound += more
        if self.norms[context] > before:
            self.reopened[context] = False

    def own_distribution(self, context: int) -> Vector:
        """Without the floors under arms."""
        return self.x[context]

    def probabilities(self, context: int) -> Vector:
        """Of every arm that ever was."""
        y = self.own_distribution(context)
        out = np.zeros(len(self.books.labels))
        out[self.books.live] = y if self.books.group_floors else self.books.arm_floor + self.books.unpromised * y
        return out

    def learn(self, context: int, used: Vector, rewards: Vector) -> None:
        """`used` is the distribution that was drawn from, which may be another than that of now."""
        books, live = self.books, self.books.live
        used, rewards = (np.append(each, np.zeros(len(books.labels) - len(each))) for each in (used, rewards))
        for i in set(range(len(rewards))) - set(live):
            books.earn(i, used[i] * rewards[i])
        ahead = (self.probabilities(context) - used)[live]
        p, u = self.scales()
        self.units.append(u)
        self.drift += float(u * (p * rewards[live]) @ ahead)
        self.teach(context, rewards[live])
        for i in live:
            books.earn(i, used[i] * rewards[i])

    def teach(self, context: int, rewards: Vector) -> None:
        self.ascend(context, rewards)

    def new_period(self, carry: float) -> None:
        self.books.new_period(carry)
        self.restart()

    def retire(self, arm: int) -> None:
        self.change([k for k, i in enumerate(self.books.live) if i != arm], 0, lambda: self.books.retire(arm))

    def admit(
        self, labels: Sequence[Any], account: float | None = None, entitlements: Mapping[Any, float] | None = None
    ) -> None:
        kept = list(range(len(self.books.live)))
        self.change(kept, len(labels), lambda: self.books.admit(labels, account, entitlements or {}))

    def change(self, kept: list[int], n_new: int, books_change: Any) -> None:
        """A new epoch: x^j is projected on the arms that stay, 0 for new ones; uniform where nothing was learned."""
        books_change()
        rows = [np.append(project_on_simplex(x[kept]), np.zeros(n_new)) for x in self.x]
        fresh = np.full(len(kept) + n_new, 1 / (len(kept) + n_new))
        rows = [fresh if norm == 0 else row for row, norm in zip(rows, self.norms, strict=True)]
        self.x = np.array([self.books.projected(row) if self.books.group_floors else row for row in rows])
        self.reopened = self.reopened | (self.norms > 0)


class AdaptiveFull(AlphaFair):
    """P = (1 - h) a + h x^j, a uniform on the largest w m of the index; h by AdaHedge on d in units of p r.

    Below alpha = 1, h is the clipped share on d in units of w r. At a new period the clipped h stays and its Q begins
    anew; AdaHedge begins anew, with h = 1/2. It does so too when arms change, since u may then rise.
    """

    def __init__(
        self, n_contexts: int, books: Books, *, alpha: float, n_features: int = 0, features_of: str = "context",
        on_welfare: bool | None = None,
    ) -> None:  # fmt: skip
        described = LeastSquares(len(books.live), n_features, features_of == "arms") if n_features else None
        self.index = Index(n_contexts, len(books.live), described, full=True)
        self.mixer: AdaHedge | ClippedShare | None = None
        super().__init__(n_contexts, books, alpha=alpha, on_welfare=on_welfare)

    def restart(self) -> None:
        super().restart()
        self.restart_share()

    def restart_share(self) -> None:
        kept = self.mixer.share if isinstance(self.mixer, ClippedShare) else 1.0
        self.mixer = AdaHedge() if self.on_welfare else ClippedShare()
        if isinstance(self.mixer, ClippedShare):
            self.mixer.share = kept

    def favorite(self, context: int) -> Vector:
        books = self.books
        v = relative_slopes(books.levels(), self.alpha) * self.index.predict(context)
        a = best_of(v) / best_of(v).sum()
        if books.group_floors:
            a = books.unpromised * a
            for g in books.present:
                best = best_of(v[books.members(g)])
                a[books.members(g)] += books.group_floors.get(g, 0.0) * best / best.sum()
        return np.asarray(a)

    def own_distribution(self, context: int) -> Vector:
        assert self.mixer is not None
        return (1 - self.mixer.share) * self.favorite(context) + self.mixer.share * self.x[context]

    def teach(self, context: int, rewards: Vector) -> None:
        assert self.mixer is not None
        p, u = self.scales()
        g, x, a = self.books.at_stake * p * rewards, self.x[context], self.favorite(context)
        d = float((x - a) @ g)
        if abs(d) > 1e-12 * float((x + a) @ g):
            before = self.mixer.bound()
            self.mixer.step(d)
            self.bound += u * (self.mixer.bound() - before)
        else:
            self.drift += u * abs(d)
        self.ascend(context, rewards)
        self.index.learn(context, np.arange(len(rewards)), rewards)

    def change(self, kept: list[int], n_new: int, books_change: Any) -> None:
        super().change(kept, n_new, books_change)
        self.index.change_arms(kept, n_new)
        if self.on_welfare:
            self.restart_share()


# bandit feedback


class AlphaFairBandit:
    """Algorithm 2: a scale-free learner per context, fed the gain w r below alpha = 1.

    From 1 on it is fed (W/y)^alpha r, S times the gradient of the welfare. Its rate, n/(1 + sum M), is only free of the
    scale of gains down to about 1: w r falls like t^-alpha, and it would stop learning; prices over their mean do not
    fall. Theorem S then holds with its regret; against adversaries nothing is claimed.
    """

    def __init__(self, n_contexts: int, books: Books, *, alpha: float) -> None:
        self.books, self.alpha, self.n_contexts = books, played(alpha), n_contexts
        self.on_welfare = alpha >= 1
        self.learners = [ScaleFree(1, len(books.live)) for _ in range(n_contexts)]

    def probabilities(self, context: int) -> Vector:
        out = np.zeros(len(self.books.labels))
        out[self.books.live] = self.books.floored(self.learners[context].probabilities(0))
        return out

    def learn(self, context: int, arm: int, propensity: float, reward: float) -> None:
        books = self.books
        if arm in books.live:
            place = books.live.index(arm)
            scale = slopes(books.levels(), self.alpha)
            if self.on_welfare:
                scale = (books.welfare(self.alpha) / books.levels()) ** self.alpha
            gain = float(scale[place]) * reward
            self.learners[context].learn(0, place, propensity, self.probabilities(context), gain)
        books.earn(arm, reward)

    def new_period(self, carry: float) -> None:
        """The learners begin anew: their losses, rates and exploration belong to the period's gains."""
        self.books.new_period(carry)
        self.learners = [ScaleFree(1, len(self.books.live)) for _ in range(self.n_contexts)]


class AdaptiveBandit(Observing):
    """p = (1 - q) a + q ((1 - gamma) B + gamma/N), all losses over the largest slope, so slopes may be relative.

    `expected_bound` is the sum of Theorem 1, with W = max w in true units.
    """

    def __init__(
        self, n_contexts: int, books: Books, *, alpha: float, n_features: int = 0, features_of: str = "context"
    ) -> None:
        described = LeastSquares(len(books.live), n_features, features_of == "arms") if n_features else None
        self.books, self.alpha, self.n_contexts = books, played(alpha), n_contexts
        self.index = Index(n_contexts, len(books.live), described)
        self.pending = np.zeros(len(books.live))
        self.n_updates = 0  # the clock of the exploration
        self.restart()

    def restart(self) -> None:
        """What begins anew with a period: the losses of B, both norms, the lead, the sums of the bound."""
        n = len(self.books.live)
        self.losses, self.norms = np.zeros((self.n_contexts, n)), np.zeros(self.n_contexts)
        self.lead = self.spread = 0.0
        self.learner_roots = self.mixing_roots = self.explored = self.peaks = 0.0
        self.head_start = self.index.largest * float(self.levels().min() ** -self.alpha)  # sum of W (rise of c)
        self.learner_last: dict[int, tuple[float, float]] = {}  # (U after, W) of the context's last round
        self.mixing_last: tuple[float, float] | None = None
        self.n_rounds = 0  # of the period

    def credit(self, place: int) -> float:
        """What is on its way to an arm: so many rewards of its mean."""
        if self.pending[place] == 0 or self.index.seen == 0:
            return 0.0
        total, count = self.index.of_arm[:, place]
        mean = min(max(0.0, self.index.mean + total / (count + 1)), 3 * self.index.largest)
        return float(self.pending[place] * mean)

    def levels(self) -> Vector:
        """R/s with the credit of all arms of the group."""
        groups = self.books.live_groups
        credit = {g: sum(self.credit(k) for k, own in enumerate(groups) if own == g) for g in groups}
        return self.books.levels() + np.array([credit[g] / self.books.s(g) for g in groups])

    def relative_prices(self, context: int) -> Vector:
        """w, in any unit."""
        return relative_slopes(self.levels(), self.alpha)

    def peak_of_master(self, now: dict[str, Any]) -> float:
        """What d is over, in true units."""
        return float(now["peak"])

    @staticmethod
    def tails(v: Vector, scale: float) -> Vector:
        best = best_of(v)
        a = 1 / (len(v) * (1 + scale * (v.max() - v)))
        a[best] = (1 - a[~best].sum()) / best.sum()
        return a

    def parts(self, context: int) -> dict[str, Any]:
        """All that is fixed before the draw."""
        books, n, c = self.books, len(self.books.live), self.index.largest
        w, m = self.relative_prices(context), np.zeros(n)
        gamma = min(0.5, 0.3 * math.sqrt(n / (self.n_updates + 1)))
        s = (1 - gamma) * w / w.max()
        root_y = math.sqrt(16 * c**2 + 2 * self.spread)
        root_u = math.sqrt(c**2 + n * self.norms[context])
        if c == 0:
            h, a, b, raised = 0.5, np.full(n, 1 / n), np.full(n, 1 / n), m
            a = books.lifted(a) if books.group_floors else a
            q = KAPPA + (1 - KAPPA) * h
        else:
            m, a = self.mixed(context, lambda m: self.concentrated(w, m))
            h = float(log_barrier_leader(np.array([0.0, 2 / root_y * (self.lead + HEAD_START * c)]))[1])
            q = KAPPA + (1 - KAPPA) * h
            eta = n / root_u
            with np.errstate(divide="ignore", over="ignore"):  # a slope of 0: any surprise is in reach
                reach = books.unpromised * ((1 - q) * a + q * (1 - gamma)) / (2 * eta * s)
            raised = np.maximum(m, c - reach)
            b = log_barrier_leader(eta * (self.losses[context] - s * raised))
        tilde = (1 - gamma) * b + gamma / n
        tilde = books.lifted(tilde) if books.group_floors else tilde
        y = (1 - q) * a + q * tilde
        p = y if books.group_floors else books.arm_floor + books.unpromised * y
        return {
            "w": w, "m": m, "raised": raised, "a": a, "h": h, "q": q, "s": s, "b": b, "tilde": tilde, "p": p,
            "gamma": gamma, "root_u": root_u, "root_y": root_y, "peak": float(self.levels().min() ** -self.alpha),
        }  # fmt: skip

    def probabilities(self, context: int) -> Vector:
        out = np.zeros(len(self.books.labels))
        out[self.books.live] = self.parts(context)["p"]
        return out

    def concentrated(self, w: Vector, m: Vector) -> Vector:
        v, books = w * m, self.books
        tail = 200 if self.pending.any() else 1000
        scale = tail / (w[best_of(v)].max() * self.index.sigma)
        a = self.tails(v, scale)
        if books.group_floors:
            a = books.unpromised * a
            for g in books.present:
                own = books.members(g)
                a[own] += books.group_floors.get(g, 0.0) * self.tails(v[own], scale)
        return a

    def learn(self, context: int, arm: int, propensity: float, reward: float) -> None:
        books = self.books
        if arm not in books.live:
            books.earn(arm, reward)
            return
        place = books.live.index(arm)
        self.forgo(arm)
        now, n, c = self.parts(context), len(books.live), self.index.largest
        of_master = self.peak_of_master(now)
        self.peaks += now["peak"] * c
        self.head_start += of_master * max(0.0, reward - c)
        self.explored += now["peak"] * (now["gamma"] * c + max(0.0, reward - c) / now["p"].min())
        if c > 0:
            hit = np.eye(n)[place] / max(propensity, now["p"][place])
            known = min(reward, c)
            gain = now["w"] * (now["m"] + hit * (known - now["m"])) / now["w"].max()
            ahead = books.at_stake * float((now["a"] - now["tilde"]) @ gain) * now["peak"] / of_master
            self.lead += ahead
            self.spread += (now["h"] * (1 - now["h"]) * ahead) ** 2
            surprise = now["s"] * hit * (now["raised"] - known)
            self.losses[context] += surprise - now["s"] * now["raised"]
            self.norms[context] += ((now["b"] * surprise) ** 2).sum()
            self.add_up(context, now, c)
        self.n_updates += 1
        self.n_rounds += 1
        self.learn_rewards(context, now["m"], [place], np.array([reward]))
        books.earn(arm, reward)

    def add_up(self, context: int, now: dict[str, Any], c: float) -> None:
        """W_1 U_1 + sum W (U_next - U), sqrt(N) U in place of U; and the same of Y over all contexts."""
        n, peak, of_master = len(self.books.live), now["peak"], self.peak_of_master(now)
        after_u = math.sqrt(c**2 + n * self.norms[context])
        after_y = math.sqrt(16 * c**2 + 2 * self.spread)
        last_u, peak_u = self.learner_last.get(context, (0.0, peak))
        last_y, peak_y = self.mixing_last or (0.0, of_master)
        self.learner_roots += peak_u * (now["root_u"] - last_u) + peak * (after_u - now["root_u"])
        self.mixing_roots += peak_y * (now["root_y"] - last_y) + of_master * (after_y - now["root_y"])
        self.learner_last[context], self.mixing_last = (after_u, peak), (after_y, of_master)

    def expected_bound(self) -> float:
        n, log = len(self.books.live), math.log(self.n_rounds)
        learners = (log + 1 + math.sqrt((n + 1) / n)) * self.learner_roots
        rest = self.explored + 2 * self.peaks / self.n_rounds
        mixing = (0.5 * log + 2.4) * self.mixing_roots + HEAD_START * self.head_start
        return self.books.unpromised * (learners + rest) + mixing

    def expect(self, arm: int) -> None:
        self.pending[self.books.live.index(arm)] += 1

    def forgo(self, arm: int) -> None:
        place = self.books.live.index(arm)
        self.pending[place] = max(0.0, self.pending[place] - 1)

    def new_period(self, carry: float) -> None:
        """The index with c, the clock, and what is pending stay."""
        self.books.new_period(carry)
        self.restart()

    def retire(self, arm: int) -> None:
        self.change([k for k, i in enumerate(self.books.live) if i != arm], 0, lambda: self.books.retire(arm))

    def admit(
        self, labels: Sequence[Any], account: float | None = None, entitlements: Mapping[Any, float] | None = None
    ) -> None:
        kept = list(range(len(self.books.live)))
        self.change(kept, len(labels), lambda: self.books.admit(labels, account, entitlements or {}))

    def change(self, kept: list[int], n_new: int, books_change: Any) -> None:
        """New arms have the mean loss of the others in every context, and nothing pending."""
        books_change()
        left = self.losses[:, kept]
        self.losses = np.hstack([left, np.repeat(left.mean(axis=1, keepdims=True), n_new, axis=1)])
        self.pending = np.append(self.pending[kept], np.zeros(n_new))
        for each in self.indices():
            each.change_arms(kept, n_new)


# discount (Theorem G)


def discounted(
    contexts: Sequence[int], rewards: Matrix, booked: Matrix, gamma: float, n_contexts: int
) -> tuple[Vector, Matrix]:
    """D <- gamma D + P r, and V_ji with the same discount."""
    earned, totals = np.zeros(rewards.shape[1]), np.zeros((n_contexts, rewards.shape[1]))
    for context, r, p in zip(contexts, rewards, booked, strict=True):
        earned, totals = gamma * earned + p * r, gamma * totals
        totals[context] += r
    return earned, totals
