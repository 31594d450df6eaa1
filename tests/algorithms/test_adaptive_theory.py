"""docs/background/theory.md as inequalities on runs: the linear problem, both algorithms of the adaptive policy."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alphafair import (
    AlphaFairAdaptive,
    AlphaFairBandit,
    FairCB,
    Hedge,
    IndependentAlphaFair,
    Uniform,
    metrics,
    offline_optimum,
)
from alphafair.algorithms import adaptive_full
from alphafair.algorithms.adaptive_bandit import P, T
from alphafair.lab.rivals import READINGS
from tests import naive
from tests.algorithms.test_theory import KINDS, make_stream

pytestmark = pytest.mark.compiled  # thousands of runs: with the JIT off they would take an hour

ROUNDING = 1e-10  # relative; all that is allowed beside the inequalities
KAPPA = 0.005
HEAD_START = 16.0
MIXING = 2.4  # of Y, beside half a logarithm
alphas = st.sampled_from([0.0, 0.1, 0.5, 0.9, 0.99])
seeds = st.integers(0, 2**32 - 1)


def make_policy(name: str, m: int, n: int, alpha: float, seed: int) -> Any:
    made = {
        **{f"alpha-fair {each}": lambda kind=kind: kind(m, n, alpha=alpha) for each, kind in READINGS.items()},
        "adaptive full": lambda: AlphaFairAdaptive(m, n, alpha=alpha, feedback="full"),
        "hedge": lambda: Hedge(m, n),
        "uniform": lambda: Uniform(m, n, feedback="full"),
        "independent": lambda: IndependentAlphaFair(m, n, alpha=alpha),
        "fair-cb": lambda: FairCB(
            m, n, pull_share=0.5 / n, horizon=60, context_weights=np.full(m, 1 / m), feedback="full"
        ),
        "bandit": lambda: AlphaFairBandit(m, n, alpha=alpha, seed=seed),
        "adaptive": lambda: AlphaFairAdaptive(m, n, alpha=alpha, seed=seed),
    }
    return made[name]()


POLICIES = ("alpha-fair before", "alpha-fair next_visit", "alpha-fair after", "adaptive full", "hedge", "uniform",
            "independent", "fair-cb", "bandit", "adaptive")  # fmt: skip


def play(policy: Any, contexts: np.ndarray, rewards: np.ndarray, adversarial: bool) -> np.ndarray:
    """What is booked in every round: the distribution, or the drawn arm. An adversary pays where p is least."""
    booked = np.zeros_like(rewards)
    for t, context in enumerate(contexts.tolist()):
        decision = policy.choose(context)
        if adversarial:
            rewards[t] = np.arange(rewards.shape[1]) == int(decision.probabilities.argmin())
        full = policy.feedback.value == "full"
        policy.update(decision, rewards[t] if full else rewards[t, decision.arm])
        booked[t] = decision.probabilities if full else np.eye(rewards.shape[1])[decision.arm]
    return booked


# the linear problem, and the certificates of any run


@settings(max_examples=1000, deadline=None, derandomize=True)
@given(
    name=st.sampled_from(POLICIES),
    kind=st.sampled_from(KINDS),
    alpha=alphas,
    n_rounds=st.integers(1, 60),
    n_contexts=st.integers(1, 4),
    n_arms=st.integers(2, 6),
    seed=seeds,
)
def test_regret_is_at_most_that_of_the_linear_problem(
    name: str, kind: str, alpha: float, n_rounds: int, n_contexts: int, n_arms: int, seed: int
) -> None:
    contexts, rewards = make_stream(kind, n_rounds, n_contexts, n_arms, seed)
    policy = make_policy(name, n_contexts, n_arms, alpha, seed)
    booked = play(policy, contexts, rewards, kind == "adversarial")
    gains, earned, final = naive.linear_problem(contexts.tolist(), rewards, booked, n_contexts, alpha)
    totals = naive.context_reward_totals(contexts.tolist(), rewards, n_contexts)
    best = offline_optimum(totals, alpha, tolerance=1e-11).value
    linear = (1 - alpha) ** alpha * (gains.max(axis=1) - earned).sum()
    found = metrics.certificates(totals, final, alpha)
    slack = ROUNDING * best
    assert metrics.approximate_regret(best, final, alpha) <= found.approximate_regret + slack
    assert found.approximate_regret <= linear + slack  # the certificate never says less than the linear problem
    assert metrics.standard_regret(best, final, alpha) <= found.standard_regret + slack
    assert metrics.performance_ratio(best, final, alpha) <= found.performance_ratio * (1 + ROUNDING)
    assert best <= found.optimum + slack


def test_the_linear_problem_leaves_no_slack() -> None:
    """At alpha = 0 both sides are equal; a factor of 0.999 would break it."""
    contexts, rewards = make_stream("smooth", 60, 2, 3, 0)
    booked = np.full_like(rewards, 1 / 3)
    gains, earned, final = naive.linear_problem(contexts.tolist(), rewards, booked, 2, 0.0)
    totals = naive.context_reward_totals(contexts.tolist(), rewards, 2)
    regret = metrics.approximate_regret(offline_optimum(totals, 0.0).value, final, 0.0)
    assert float(regret) == pytest.approx((gains.max(axis=1) - earned).sum(), rel=1e-12)


# full information


def favorite(policy: Any, context: int) -> np.ndarray:
    policy.stepper.prepare(policy._memory, context)
    return np.array(policy._memory.scratch[adaptive_full.T.scores])


def learned(policy: Any) -> dict[str, np.ndarray]:
    """Copies of all that it has learned, by name."""
    return {name: cells.copy() for name, cells in policy._learned.named().items()}


@settings(max_examples=400, deadline=None, derandomize=True)
@given(
    kind=st.sampled_from(KINDS),
    alpha=alphas,
    n_contexts=st.integers(1, 3),
    n_arms=st.integers(2, 6),
    delay=st.sampled_from([0, 0, 7]),
    masked=st.booleans(),
    seed=seeds,
)
def test_full_information_is_close_to_both_of_its_parts(
    kind: str, alpha: float, n_contexts: int, n_arms: int, delay: int, masked: bool, seed: int
) -> None:
    """Behind any fixed policy by at most the bound; behind the predictor by at most sqrt(2 D) and the drift."""
    contexts, rewards = make_stream(kind, 80, n_contexts, n_arms, seed)
    rng = np.random.default_rng(seed)
    policy: Any = AlphaFairAdaptive(n_contexts, n_arms, alpha=alpha, feedback="full", seed=seed)
    gains, linear, of_predictor, waiting = np.zeros((n_contexts, n_arms)), 0.0, 0.0, []
    norms, spread, drift = np.zeros(n_contexts), 0.0, 0.0  # S_j, Q and the drift, from their definitions
    for t in range(80 + delay):
        if t < 80:
            mask = np.ones(n_arms, dtype=bool)
            mask[rng.integers(0, n_arms)] = not masked
            decision = policy.choose(int(contexts[t]), available=mask)
            if kind == "adversarial":
                rewards[t] = np.arange(n_arms) == int(decision.probabilities.argmin())
            waiting.append((decision, rewards[t]))
        if len(waiting) > delay or t >= 80:
            decision, r = waiting.pop(int(rng.integers(0, len(waiting))))
            g = policy.accounts**-alpha * r
            gains[decision.context] += g
            linear += float(g @ decision.probabilities)
            a, now = favorite(policy, decision.context), learned(policy)
            x = now["x"][decision.context]
            of_predictor += float(g @ a)
            norms[decision.context] += g @ g
            d, h = float(g @ (x - a)), now["share"]
            steps = abs(d) > 1e-12 * float(g @ (x + a))
            spread += d * d if steps else 0.0
            drift += float(g @ ((1 - h) * a + h * x - decision.probabilities)) + (0.0 if steps else abs(d))
            policy.update(decision, r)
    numbers = learned(policy)
    total = max(1.0, gains.sum())
    bound = 2.0 * np.sqrt(norms).sum() + math.sqrt(2.0 * spread) + drift
    assert policy.surrogate_regret_bound == pytest.approx(bound, rel=1e-9, abs=1e-9)
    assert gains.max(axis=1).sum() - linear <= policy.surrogate_regret_bound + ROUNDING * total
    only_mixture = math.sqrt(2.0 * numbers["spread"]) + numbers["drift"]
    assert of_predictor - linear <= only_mixture + ROUNDING * total
    totals = naive.context_reward_totals(contexts.tolist(), rewards, n_contexts)
    best = offline_optimum(totals, alpha, tolerance=1e-11).value
    regret = metrics.approximate_regret(best, policy.accounts, alpha)
    assert regret <= (1 - alpha) ** alpha * policy.surrogate_regret_bound + ROUNDING * best


# bandit feedback


class Round(NamedTuple):
    """All that is fixed before a draw, as the kernel has it in its scratch."""

    w: np.ndarray
    m: np.ndarray
    raised: np.ndarray
    a: np.ndarray
    b: np.ndarray
    played: np.ndarray
    p: np.ndarray
    s: np.ndarray
    peak: float
    h: float
    q: float
    gamma: float
    eta: float
    zeta: float
    c: float
    norms: float
    spread: float


def before(policy: Any, context: int) -> Round:
    n, memory = policy.n_arms, policy._memory
    policy.stepper.prepare(memory, context)
    m, a, b, raised = (memory.scratch[row].copy() for row in (T.predicted, T.scores, T.guaranteed, T.raised))
    peak, h, q, gamma, eta = memory.parts[[P.peak, P.share, P.safe_share, P.exploration, P.rate]].tolist()
    now = learned(policy)
    w, c, spread = now["slope"], float(now["largest"]), float(now["spread"])
    played = (1 - gamma) * b + gamma / n
    p = (1 - q) * a + q * played
    zeta = 2 / math.sqrt(16 * c**2 + 2 * spread) if c > 0 else 0.0
    norms = float(now["variation"][context])
    return Round(w, m, raised, a, b, played, p, (1 - gamma) * w / peak, peak, h, q, gamma, eta, zeta, c, norms, spread)


class LearnerOfProof:
    """One learner of the proof: prefixes of its regret, what bounds them, and both weighted by W (Abel).

    `root` is U or Y before the round; its first value counts as a change.
    """

    def __init__(self, n_comparators: int) -> None:
        self.regret = np.zeros(n_comparators)
        self.weighted = np.zeros(n_comparators)
        self.moved = self.bound = self.abel = self.roots = 0.0
        self.root = self.peak = 0.0

    def add(self, peak: float, behind: np.ndarray, barrier: float, moved: float, root: float) -> None:
        self.regret += behind
        self.weighted += peak * behind
        self.moved += moved
        bound = barrier + self.moved
        self.abel += peak * (bound - self.bound)
        self.roots += (self.peak or peak) * (root - self.root)
        self.bound, self.root, self.peak = bound, root, peak

    def close(self, root: float) -> float:
        """sum W (change of the root), the last change included."""
        return self.roots + self.peak * (root - self.root)


REWARDS = {
    "coins": lambda rng, t, j, n: np.where(rng.random(n) < 0.2 + 0.6 * ((np.arange(n) + j) % n == 0), 1.0, 0.2),
    "rising": lambda rng, t, j, n: rng.random(n) ** 8 * min(1.0, (t + 1) / 100),
    "clicks": lambda rng, t, j, n: (rng.random(n) < 0.05).astype(float),
    "turns": lambda rng, t, j, n: 1.0 * ((np.arange(n) + t // 40) % 2 == 0),
    "sudden": lambda rng, t, j, n: np.where(rng.random(n) < (0.02 if t < 150 else 0.9), 1.0, 1e-6),
}


LIED_TO = 7  # policies of so many arms observe a liar before every round: nothing in the proof changes


def lie(policy: Any, context: int, rewards: np.ndarray, rng: np.random.Generator) -> None:
    """Somebody else is paid 1 for the worst arm and nothing for the best, and for others the opposite of the truth."""
    for arm in {int(rewards.argmin()), int(rewards.argmax()), int(rng.integers(len(rewards)))}:
        policy.observe(context, arm, 1.0 - float(rewards[arm]))


@pytest.mark.parametrize("kind", REWARDS)
@pytest.mark.parametrize("alpha", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("n_arms", [2, LIED_TO, 19])
def test_every_line_of_the_proof_of_the_mixture(kind: str, alpha: float, n_arms: int) -> None:
    n, n_rounds = n_arms, 300
    rng = np.random.default_rng(n_arms)
    policy: Any = AlphaFairAdaptive(2, n, alpha=alpha, seed=7)
    eps, k_n = 1 / n_rounds, math.sqrt(n) + math.sqrt(n + 1)
    points = (1 - eps) * np.vstack([np.eye(n), rng.dirichlet(np.ones(n), size=5)]) + eps / n
    shares = np.array([eps, 1 - eps])
    learners, mixing, given, before_c = [LearnerOfProof(len(points)) for _ in range(2)], LearnerOfProof(2), 0.0, 0.0
    tol, last_peak, last_c, last = 1e-9, math.inf, 0.0, [(math.inf, math.inf)] * 2
    for t in range(n_rounds):
        j = int(rng.integers(2))
        if n == LIED_TO and t > 20:
            lie(policy, j, REWARDS[kind](rng, t, j, n), rng)
        now = before(policy, j)
        assert now.peak == now.w.max() <= last_peak * (1 + 1e-15)
        last_peak = now.peak
        r = REWARDS[kind](rng, t, j, n)
        decision = policy.choose(j)
        i = decision.arm
        np.testing.assert_allclose(decision.probabilities, now.p, rtol=1e-13)
        assert now.gamma == pytest.approx(min(0.5, 0.3 * math.sqrt(n / (t + 1))), rel=1e-12)
        assert now.p.min() >= KAPPA * now.gamma / n * (1 - tol)
        assert max((1 - now.q) * now.a[i], now.q * now.played[i]) <= decision.propensity  # P is the propensity
        losses, lead = learned(policy)["losses"][j], learned(policy)["lead"]
        policy.update(decision, float(r[i]))
        after = before(policy, j)
        assert last_c <= now.c <= after.c
        last_c = now.c
        if now.c == 0:
            assert after.norms == after.spread == 0
            continue
        assert now.eta <= last[j][0]
        assert now.zeta <= last[j][1]
        last[j] = now.eta, now.zeta
        # h and B are the leaders: the derivative vanishes; with the hint, one multiplier makes all derivatives equal
        pull = 1 / now.h, 1 / (1 - now.h)
        assert pull[0] - pull[1] == pytest.approx(now.zeta * (lead + HEAD_START * now.c), abs=1e-9 * max(pull) ** 2)
        assert now.eta == pytest.approx(n / math.sqrt(now.c**2 + n * now.norms), rel=1e-12)
        score = now.eta * (losses - now.s * now.raised)
        multiplier = 1 / now.b - score
        np.testing.assert_allclose(multiplier, multiplier[0], rtol=1e-8, atol=1e-8 * np.abs(1 / now.b).max())
        # the raised control variate keeps every surprise within the barrier's reach, whichever arm is drawn
        assert (now.m <= now.raised).all()
        assert (now.raised <= now.c * (1 + tol)).all()
        known = np.minimum(r, now.c)
        z = now.s * (now.raised - known) / now.p
        reach = now.eta * now.b * z
        assert reach.min() >= -0.5 - tol
        assert np.abs(now.b * z).max() <= now.c / now.q * (1 + tol)
        # what B has to learn from is what the policy adds to its losses
        e = -now.s * now.raised
        e[i] += z[i]
        np.testing.assert_allclose(
            learned(policy)["losses"][j], losses + e, rtol=1e-9, atol=1e-12 * np.abs(losses).max() + 1e-14
        )
        v = float(now.b[i] * z[i]) ** 2
        assert after.norms == pytest.approx(now.norms + v, rel=1e-9)
        moved = float(reach[i] - np.log1p(reach[i])) / now.eta
        u, u_after = math.sqrt(now.c**2 / n + now.norms), math.sqrt(now.c**2 / n + now.norms + v)
        assert moved <= k_n * (u_after - u) + tol
        ledger = learners[j]
        ledger.add(now.peak, e @ now.b - points @ e, n * math.log(1 / eps) / now.eta, moved, u)
        assert ledger.regret.max() <= ledger.bound + tol  # at every prefix
        assert ledger.weighted.max() <= ledger.abel + tol
        assert ledger.abel <= (math.sqrt(n) * math.log(n_rounds) + k_n) * ledger.close(u_after) + tol
        # the mixing weight
        gain = now.w * now.m / now.peak
        gain[i] += now.w[i] / now.peak * (known[i] - now.m[i]) / now.p[i]
        ahead = float((now.a - now.played) @ gain)
        move = now.h * (1 - now.h) * ahead
        assert learned(policy)["lead"] == pytest.approx(lead + ahead, rel=1e-9, abs=1e-12)
        assert after.spread == pytest.approx(now.spread + move**2, rel=1e-9)
        assert abs(move) <= now.c / (1 - KAPPA) * (1 + tol)
        step = now.zeta * move
        assert abs(step) <= 0.5 / (1 - KAPPA) + tol
        moved = -math.log1p(-(step**2)) / now.zeta
        y = math.sqrt(16 * now.c**2 + 2 * now.spread)
        y_after = math.sqrt(16 * now.c**2 + 2 * now.spread + 2 * move**2)
        assert moved <= MIXING * (y_after - y) + tol
        barrier = math.log(1 / eps) / now.zeta + (1 - eps) * HEAD_START * now.c
        mixing.add(now.peak, (now.h - shares) * ahead, barrier, moved, y)
        given += now.peak * (now.c - before_c)
        before_c = now.c
        assert mixing.regret.max() <= mixing.bound + tol
        assert mixing.weighted.max() <= mixing.abel + tol
        of_roots = (0.5 * math.log(n_rounds) + MIXING) * mixing.close(y_after)
        assert mixing.abel <= of_roots + HEAD_START * given + tol
        assert given <= learned(policy)["head_start"] + tol
    assert mixing.bound > 0


@pytest.mark.parametrize("kind", REWARDS)
@pytest.mark.parametrize("alpha", [0.0, 0.9])
@pytest.mark.parametrize("n_arms", [2, LIED_TO])
def test_moments_over_all_possible_draws(kind: str, alpha: float, n_arms: int) -> None:
    """Before each of many rounds, every arm in turn is drawn by a copy of the policy: expectations without statistics.

    The losses and the lead are unbiased; (B_I z)^2 is c^2 (1 - gamma)/q at most, (h (1-h) D)^2 at most .32 c^2; and
    the largest reward rises by at least the smallest propensity times what is above it.
    """
    n, rng = n_arms, np.random.default_rng(n_arms)
    policy: Any = AlphaFairAdaptive(2, n, alpha=alpha, seed=3)
    n_seen = 0
    for t in range(200):
        j = int(rng.integers(2))
        r = REWARDS[kind](rng, t, j, n)
        if n == LIED_TO and t > 20:
            lie(policy, j, r, rng)
        decision = policy.choose(j)
        if t % 5 == 0:
            now, state = before(policy, j), policy.snapshot()
            known = np.minimum(r, now.c)
            held = learned(policy)
            losses = held["losses"][j]
            mean, lead, norms, spread, largest = np.zeros(n), 0.0, 0.0, 0.0, 0.0
            for i in range(n):
                policy.update(decision._replace(arm=i, propensity=float(decision.probabilities[i])), float(r[i]))
                p, then = now.p[i], learned(policy)
                mean += p * (then["losses"][j] - losses)
                lead += p * (then["lead"] - held["lead"])
                spread += p * (then["spread"] - held["spread"])
                norms += p * (then["variation"][j] - now.norms)
                largest += p * (then["largest"] - held["largest"])
                policy.restore(state)
            scale = 1e-9 * (1.0 + np.abs(losses).max())
            np.testing.assert_allclose(mean, -now.s * known, rtol=0, atol=scale)
            assert lead == pytest.approx((now.a - now.played) @ (now.w * known) / now.peak, abs=1e-9)
            assert norms <= now.c**2 * (1 - now.gamma) / now.q + 1e-9 * (1 + now.norms)
            assert spread <= 0.32 * now.c**2 + 1e-9 * (1 + now.spread)
            assert largest >= now.p.min() * np.maximum(r - now.c, 0.0).max() * (1 - 1e-12)
            n_seen += now.c > 0
        policy.update(decision, float(r[decision.arm]))
    assert n_seen > 5


class Account(NamedTuple):
    """One run: sums of <g, x - arm drawn> for each context and arm x, the bound of the theorem, and R."""

    behind: np.ndarray
    bound: float
    final: np.ndarray
    policy: Any


def account(contexts: np.ndarray, rewards: np.ndarray, alpha: float, seed: int, *, lied_to: bool = False) -> Account:
    """Every term of theorem 1, added up as the run goes; x one arm per context."""
    rng = np.random.default_rng(seed)
    n_rounds, n = rewards.shape
    n_contexts = int(contexts.max()) + 1
    policy: Any = AlphaFairAdaptive(n_contexts, n, alpha=alpha, seed=seed)
    gains, earned = np.zeros((n_contexts, n)), np.zeros(n_contexts)
    learners, mixing, ends = [LearnerOfProof(1) for _ in range(n_contexts)], LearnerOfProof(1), np.zeros(n_contexts + 1)
    rest, given, none = 0.0, 0.0, np.zeros(1)
    for j, r in zip(contexts.tolist(), rewards, strict=True):
        if lied_to:
            lie(policy, j, r, rng)
        now, decision = before(policy, j), policy.choose(j)
        i = decision.arm
        gains[j] += now.w * r
        earned[j] += now.w[i] * r[i]
        rest += now.peak * (now.gamma * now.c + max(r[i] - now.c, 0.0) / now.p.min() + 2 * now.c / n_rounds)
        given += now.peak * max(r[i] - now.c, 0.0)
        if now.c > 0:
            known = min(r[i], now.c)
            v = (now.b[i] * now.s[i] * (now.raised[i] - known) / now.p[i]) ** 2
            learners[j].add(now.peak, none, 0.0, 0.0, math.sqrt(now.c**2 / n + now.norms))
            ends[j] = math.sqrt(now.c**2 / n + now.norms + v)
            mixing.add(now.peak, none, 0.0, 0.0, math.sqrt(16 * now.c**2 + 2 * now.spread))
        policy.update(decision, float(r[i]))
        if now.c > 0:
            ends[-1] = math.sqrt(16 * now.c**2 + 2 * learned(policy)["spread"])
    log, k_n = math.log(n_rounds), math.sqrt(n) + math.sqrt(n + 1)
    of_learners = sum(each.close(end) for each, end in zip(learners, ends, strict=False) if each.peak)
    of_mixing = (0.5 * log + MIXING) * mixing.close(ends[-1]) + HEAD_START * given
    bound = (math.sqrt(n) * log + k_n) * of_learners + of_mixing + rest
    return Account(gains - earned[:, None], bound, policy.accounts, policy)


@pytest.mark.parametrize(("alpha", "lied_to"), [(0.0, False), (0.5, False), (0.5, True)])
def test_theorem_1(alpha: float, lied_to: bool) -> None:
    """Over 8 seeds the mean of (sum <g, x - arm drawn> - bound) is below 0, with a band of 99.9%, for every x.

    The bound says something: uniform play would break it.
    """
    n_rounds = 30_000
    contexts = np.arange(n_rounds) % 2
    rewards = np.array([[1.0, 0.05], [0.05, 1.0]])[contexts]
    runs = [account(contexts, rewards, alpha, seed, lied_to=lied_to) for seed in range(8)]
    for run in runs:  # what the policy says of itself
        assert run.policy.expected_surrogate_regret_bound == pytest.approx(run.bound, rel=1e-9)
        assert metrics.bound_in_expectation(run.policy) == pytest.approx((1 - alpha) ** alpha * run.bound, rel=1e-9)
    excess = [run.behind.max(axis=1).sum() - run.bound for run in runs]
    assert metrics.average_over_seeds(excess, level=0.999).high <= 0.0
    totals = naive.context_reward_totals(contexts.tolist(), rewards, 2)
    best = offline_optimum(totals, alpha).value
    regrets = [
        float(metrics.approximate_regret(best, run.final, alpha)) - (1 - alpha) ** alpha * run.bound for run in runs
    ]
    assert metrics.average_over_seeds(regrets, level=0.999).high <= 0.0
    gains, evenly, _ = naive.linear_problem(contexts.tolist(), rewards, np.full_like(rewards, 0.5), 2, alpha)
    assert gains.max(axis=1).sum() - evenly.sum() > max(run.bound for run in runs)


@pytest.mark.parametrize("kind", REWARDS)
def test_the_bound_in_expectation_is_what_the_theorem_adds_up(kind: str) -> None:
    """Where the largest reward rises, contexts come at odd times, and nothing pays for long."""
    for n in (2, 5):
        rng = np.random.default_rng(n)
        contexts = rng.integers(0, 3, 400)
        rewards = np.array([REWARDS[kind](rng, t, int(j), n) for t, j in enumerate(contexts)])
        run = account(contexts, rewards, 0.5, seed=1)
        assert run.policy.expected_surrogate_regret_bound == pytest.approx(run.bound, rel=1e-9)


@pytest.mark.parametrize("kappa", [0.005, 0.02])
def test_the_constants_of_the_proof(kappa: float) -> None:
    """Steps (vi), (viii) and (ix): the reach of b, the stretch of its logarithm, 2.4 before Y, and 0.32 c^2."""
    b = 1.0 / (2.0 * (1.0 - kappa))
    stretch = -np.log1p(-b * b) / b**2
    assert b < 0.5103
    assert stretch < 1.1585
    assert stretch * (1.0 + np.sqrt(1.0 + b * b / 2.0)) < MIXING
    assert 1.0 / 16.0 + 1.0 / (4.0 * (1.0 - kappa)) < 0.32


@pytest.mark.parametrize("n", [2, 3, 19, 1000])
def test_the_change_of_u_is_bounded_by_two_roots(n: int) -> None:
    """min(sqrt(n) (sqrt(1 + t^2) + 1), (sqrt(1 + t^2) + 1)/t) is at most sqrt(n) + sqrt(n + 1), and attains it."""
    t = np.logspace(-6, 6, 100_001)
    rise = np.sqrt(1.0 + t * t) + 1.0
    most = np.minimum(n**0.5 * rise, rise / t).max() / (n**0.5 + (n + 1) ** 0.5)
    assert 0.999 <= most <= 1.0 + 1e-12
