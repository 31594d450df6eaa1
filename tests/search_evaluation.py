"""A random search over legal logs, totals and accounts, for numbers that are not what they should be.

A case is one call, or a few that belong together, with random arguments; the same number gives the same case. Kinds:

- evaluate, frontier, regret: every number is finite, in order and possible, or none is given and the verdict is "do not
  use"; rewards in another currency change neither verdict nor reasons, and what is earned in proportion;
- learning: the same of `replay` and `simulate_model`; `doctor` and `warm_start` answer;
- offline: the distributions are policies that keep the floors, and the value and the gap are true in 60 digits, by
  formulas that share nothing with the solver; `offline_curve` says the same of every prefix;
- metrics: finite, possible, right in 60 digits; certificates are above the optimum.

Whatever is refused is refused by the name of an argument that was passed, and no error or warning of NumPy escapes.

The suite runs some cases (`tests/evaluation/test_edges.py`). By hand:

    python -m tests.search_evaluation --seconds 600                  search, every CPU core with a --first of its own
    python -m tests.search_evaluation --first 1234 --count 1 -v      one case again, with all its calls
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np

from alphafair import Log, Stream, evaluation, metrics, offline_curve, offline_optimum
from alphafair.algorithms import POLICIES
from alphafair.evaluation import ESTIMATORS
from alphafair.evaluation.estimates import METRICS
from alphafair.groups import ArmGroups, Groups
from alphafair.offline import CertificateWarning, context_reward_totals
from alphafair.offline.interior_point import NEAR_ONE
from tests import searching
from tests.searching import LEAST, log_uniform

ALPHAS = (0.0, 1e-300, 1e-12, 1e-3, 0.25, 0.5, 0.9, 0.99, 1.0 - 1e-9, 1.0 - 1e-16)
STEEP = (1.0, 1.0 + 1e-9, 1.5, 2.0, 5.0, 16.0, 50.0, math.inf)
ANY_ALPHA = (*ALPHAS, *STEEP)
DIGITS = 60
LEARNERS = ("alpha-fair-adaptive", "alpha-fair-bandit", "scale-free", "uniform")


# random values


def rewards_of(rng: np.random.Generator, contexts: np.ndarray, arms: np.ndarray) -> tuple[str, np.ndarray]:
    """Rewards of rows, at least 0 and at most 1e100, and what kind they are."""
    n, n_arms = len(arms), int(arms.max()) + 1
    kinds: dict[str, Callable[[], Any]] = {
        "clicks": lambda: rng.random(n) < rng.choice([0.01, 0.3, 0.9]),
        "lognormal": lambda: rng.lognormal(0.0, rng.choice([0.5, 2.0, 6.0]), n),
        "purchases": lambda: (rng.random(n) < 0.03) * rng.lognormal(0.0, 1.5, n),
        "constant": lambda: np.ones(n),
        "zeros": lambda: np.zeros(n),
        "one": lambda: np.arange(n) == rng.integers(n),
        "of cells": lambda: rng.random((int(contexts.max()) + 1, n_arms))[contexts, arms],
        "of arms": lambda: log_uniform(rng, 1e-8, 1.0, n_arms)[arms] * rng.random(n),
        "any scale": lambda: log_uniform(rng, 1e-320, 1.0, n) * (rng.random(n) < 0.7),
    }
    kind = str(rng.choice([*kinds]))
    found = np.asarray(kinds[kind](), dtype=float)
    scale = float(rng.choice([1.0, 1.0, 10.0, 0.2, LEAST, 1e100, log_uniform(rng, 1e-300, 1e100)]))
    most = float(found.max())
    return f"{kind} x {scale:.3g}", np.minimum(found / most * scale if most > 0.0 and scale != 1.0 else found, 1e100)


def logging_of(rng: np.random.Generator, n_contexts: int, n_arms: int) -> np.ndarray:
    """How a log was made: a distribution per context."""
    even = np.full((n_contexts, n_arms), 1.0 / n_arms)
    return [even, 0.9 * rng.dirichlet(np.full(n_arms, 0.5), n_contexts) + 0.1 * even][rng.integers(2)]


def propensities_of(rng: np.random.Generator, true: np.ndarray) -> tuple[str, np.ndarray]:
    """True ones, or others that are legal."""
    n = len(true)
    kind = str(rng.choice(["true"] * 6 + ["off", "one is tiny", "any", "ones", "all tiny", "smallest"]))
    found = true.copy()
    if kind == "off":
        found = np.minimum(1.0, found * rng.choice([0.3, 0.9, 2.0]))
    elif kind == "one is tiny":
        found[rng.integers(n)] = rng.choice([1e-3, 1e-9, 1e-50, 1e-99, 1e-100])
    elif kind == "any":
        found = log_uniform(rng, 1e-99, 1.0, n)
    elif kind == "ones":
        found = np.ones(n)
    elif kind == "all tiny":
        found = np.full(n, rng.choice([1e-9, 1e-50, 1e-100]))
    elif kind == "smallest":
        found[rng.integers(n)] = rng.choice([LEAST, 1e-300, 1e-101])
    return kind, np.minimum(found, 1.0)


def log_of(rng: np.random.Generator, n_rounds: int) -> tuple[str, Log]:
    n_contexts = int(rng.choice([1, 1, 2, 5, 30, n_rounds]))
    n_arms = int(rng.choice([1, 2, 2, 3, 5, 12, 70])) if n_rounds < 1500 else int(rng.integers(1, 6))
    logging = logging_of(rng, n_contexts, n_arms)
    contexts = rng.integers(0, n_contexts, n_rounds) if rng.random() < 0.9 else np.zeros(n_rounds, int)
    arms = (rng.random(n_rounds)[:, None] > logging.cumsum(axis=1)[contexts]).sum(axis=1).clip(0, n_arms - 1)
    how, propensities = propensities_of(rng, logging[contexts, arms])
    what, rewards = rewards_of(rng, contexts, arms)
    more = {"n_contexts": n_contexts + int(rng.random() < 0.1), "n_arms": n_arms + int(rng.random() < 0.1)}
    users = rng.choice([-5, 7, 2**62, *range(60)], n_rounds) if rng.random() < 0.2 else None
    log = Log(contexts, arms, rewards, propensities, **more, users=users)
    sizes = f"{n_rounds} rounds, {log.n_contexts} contexts, {log.n_arms} arms"
    return f"{sizes}, rewards {what}, propensities {how}{'' if users is None else ', users'}", log


def target_of(rng: np.random.Generator, log: Log) -> tuple[str, np.ndarray]:
    m, n = log.n_contexts, log.n_arms
    kind = str(rng.choice(["even", "one arm", "any", "sparse", "tiny", "logged"]))
    if kind == "one arm":
        return kind, np.eye(n)[rng.integers(0, n, m)]
    if kind == "logged" and log.propensities.min() >= 1e-100:
        return kind, evaluation.logged_policy(log)
    if kind in ("any", "sparse"):
        found = rng.dirichlet(np.full(n, 1.0 if kind == "any" else 0.05), m)
        return kind, np.where(np.isfinite(found), found, 1.0 / n)
    found = np.full((m, n), 1.0 / n)
    if kind == "tiny" and n > 1:
        found = np.full((m, n), float(rng.choice([LEAST, 1e-200, 1e-12])))
        found[:, 0] = 1.0 - found[:, 1:].sum(axis=1)
    return kind, found


def groups_of(rng: np.random.Generator, n_arms: int, *, floors: bool = False) -> Groups:
    """Labels, entitlements and floors, each of them or not."""
    said: dict[str, Any] = {}
    n_groups = n_arms
    if rng.random() < 0.4:
        said["labels"] = [f"g{k}" for k in rng.integers(0, max(1, n_arms - 1), n_arms)]
        n_groups = len({*said["labels"]})
    if rng.random() < 0.3:
        sizes = rng.choice([1.0, 2.0, 49.0, 1e-6, 1e6, log_uniform(rng, 1e-6, 1e6)], n_groups)
        said["entitlements"] = np.clip(sizes, 1e-6, 1e6).tolist()
    if floors and rng.random() < 0.4:
        one = float(rng.choice([1.0, np.nextafter(1.0, 0.0), 0.5, 1e-12, 1e-300])) / n_arms
        several = rng.dirichlet(np.full(n_groups, 0.5)) * rng.choice([0.99, 0.5, 1e-9])
        certain = np.eye(n_groups)[rng.integers(n_groups)]
        said["pull_floor"] = [one, np.nan_to_num(several).tolist(), certain.tolist()][rng.integers(3)]
    return Groups(**said)


def totals_of(rng: np.random.Generator, m: int, n: int) -> tuple[str, np.ndarray]:
    """W: rows and columns of zeros, duplicates, any scale up to 1e100."""
    kind = str(rng.choice(["plain", "any scale", "by row", "by arm", "whole", "alike", "huge", "tiny", "decimals"]))
    found = {
        "plain": lambda: rng.random((m, n)) * 100.0,
        "any scale": lambda: log_uniform(rng, 1e-300, 1e100, (m, n)),
        "by row": lambda: rng.random((m, n)) * log_uniform(rng, 1e-100, 1e100, (m, 1)),
        "by arm": lambda: rng.random((m, n)) * log_uniform(rng, 1e-100, 1e100, n),
        "whole": lambda: rng.integers(0, 4, (m, n)).astype(float),
        "alike": lambda: np.full((m, n), log_uniform(rng, 1e-3, 1e3)),
        "huge": lambda: rng.random((m, n)) * 1e100,
        "tiny": lambda: rng.choice([0.0, LEAST, 1e-308, 1e-200], (m, n)),
        "decimals": lambda: rng.integers(0, 10, (m, n)) / 10 * 10.0 ** rng.integers(0, 6, (m, n)),
    }[kind]()
    if rng.random() < 0.3:
        found[rng.integers(m)] = 0.0
    if rng.random() < 0.3:
        found[:, rng.integers(n)] = 0.0
    if rng.random() < 0.3:
        found[rng.integers(m)] = found[rng.integers(m)]
    if rng.random() < 0.3:
        found[:, rng.integers(n)] = found[:, rng.integers(n)]
    found[rng.random((m, n)) < rng.choice([0.0, 0.0, 0.6])] = 0.0
    return kind, np.minimum(found, 1e100)


# 60 digits


def exact_worth(accounts: Sequence[Fraction], s: Sequence[float], alpha: float) -> Decimal:
    """sum s^alpha R^(1-alpha)/(1-alpha)."""
    return sum(
        (power(each, s_each, alpha) * decimal(each) for each, s_each in zip(accounts, s, strict=True)), Decimal(0)
    ) / (1 - Decimal(alpha))


def power(account: Fraction, s: float, alpha: float) -> Decimal:
    """(R/s)^(-alpha)."""
    ratio = decimal(account / Fraction(s))
    return (-Decimal(alpha) * ratio.ln()).exp() if alpha > 0.0 else Decimal(1)


def decimal(value: Fraction) -> Decimal:
    return Decimal(value.numerator) / Decimal(value.denominator)


class Problem:
    """The offline problem arm by arm, in exact fractions."""

    def __init__(
        self, totals: np.ndarray, alpha: float, initial: np.ndarray, owed: ArmGroups, there: np.ndarray
    ) -> None:
        self.totals, self.alpha, self.owed, self.there = totals, alpha, owed, there
        self.initial = initial

    def accounts(self, x: np.ndarray) -> list[Fraction]:
        found = [Fraction(float(each)) for each in self.initial]
        for row, weights in zip(self.totals, x, strict=True):
            for arm in np.flatnonzero(row * (weights > 0.0)):
                found[self.owed.of_arms[arm]] += Fraction(float(row[arm])) * Fraction(float(weights[arm]))
        return found

    def worth(self, x: np.ndarray) -> Decimal:
        return exact_worth(self.accounts(x), self.owed.entitlements.tolist(), self.alpha)

    def bound(self, accounts: list[Fraction]) -> Decimal:
        """What no policy that keeps the floors is above, by concavity: f(R) + f'(R) (R' - R) for the best R'."""
        s, alpha = self.owed.entitlements.tolist(), self.alpha
        prices = [power(each, s_each, alpha) for each, s_each in zip(accounts, s, strict=True)]
        spent = sum((price * decimal(each) for price, each in zip(prices, accounts, strict=True)), Decimal(0))
        first = zip(prices, self.initial, strict=True)
        best = sum((price * decimal(Fraction(float(each))) for price, each in first), Decimal(0))
        epochs = np.repeat(self.there, len(self.totals) // len(self.there), axis=0)
        for row, there in zip(self.totals, epochs, strict=True):
            best += self._best(
                [prices[g] * Decimal(float(w)) for g, w in zip(self.owed.of_arms, row, strict=True)], there
            )
        return exact_worth(accounts, s, alpha) + best - spent

    def _best(self, worth: list[Decimal], there: np.ndarray) -> Decimal:
        """The most that a distribution which keeps the floors makes of these."""
        arms = np.flatnonzero(there).tolist()
        top = max(worth[arm] for arm in arms)
        if not self.owed.floored:
            floor = min(Fraction(self.owed.arm_floor), Fraction(1, len(arms)))
            return decimal(floor) * sum(worth[arm] for arm in arms) + decimal(1 - floor * len(arms)) * top
        kept, left = Decimal(0), Fraction(1)
        for group, share in enumerate(self.owed.group_floors.tolist()):
            mine = [worth[arm] for arm in arms if self.owed.of_arms[arm] == group]
            if mine:
                kept += Decimal(share) * max(mine)
                left -= Fraction(share)
        return kept + decimal(max(left, Fraction(0))) * top

    def random_policy(self, rng: np.random.Generator) -> np.ndarray:
        """One that keeps the floors."""
        n = self.totals.shape[1]
        found = np.zeros_like(self.totals)
        epochs = np.repeat(self.there, len(self.totals) // len(self.there), axis=0)
        for row, there in enumerate(epochs):
            arms = np.flatnonzero(there)
            own = rng.dirichlet(np.full(len(arms), rng.choice([0.1, 1.0])))
            found[row, arms] = np.nan_to_num(own, nan=1.0 / len(arms))
            floors = np.full(n, self.owed.arm_floor) * there
            for group, share in enumerate(self.owed.group_floors):
                mine = arms[self.owed.of_arms[arms] == group]
                if len(mine):
                    floors[rng.choice(mine)] += share
            found[row] = floors + max(0.0, 1.0 - floors.sum()) * found[row]
            found[row] /= max(1.0, found[row].sum())
        return found


# one case


class Case(searching.Case):
    """Random arguments, what is made of them, and what must be true of it."""

    def log(self, most: int = 5000) -> Log:
        n_rounds = float(self.rng.choice([1, 2, 10, 40, 300, 1000, most, log_uniform(self.rng, 1, 3000)]))
        what, log = log_of(self.rng, max(1, int(self.size * min(n_rounds, most))))
        self.note(what)
        return log

    def settings(self) -> dict[str, Any]:
        rng = self.rng
        confidence = float(rng.choice([0.5, 0.8, 0.95, 0.95, 0.999]))
        return {"confidence": confidence, "n_replicates": 100, "seed": int(rng.integers(5))}

    # what is always true of what was measured

    def is_sound(self, found: Any, n_groups: int, alpha: float) -> None:
        self.expect(found.verdict in ("trustworthy", "thin", "do not use"), f"verdict {found.verdict!r}")
        self.expect(found.verdict == "trustworthy" or found.reasons, "no reason for the verdict")
        self.expect(all(0 < len(reason) < 300 and "nan" not in reason for reason in found.reasons), f"{found.reasons}")
        usable = found.verdict != "do not use"
        for name in (*METRICS, "reward_per_round"):
            self.is_interval(name, getattr(found, name), n_groups, usable, alpha)
        self.expect(np.isfinite(found.cumulative_rewards).all() == usable, f"{found.cumulative_rewards}")
        self.expect(not usable or (found.cumulative_rewards >= 0.0).all(), f"{found.cumulative_rewards}")

    def is_interval(self, name: str, interval: Any, n_groups: int, usable: bool, alpha: float) -> None:
        value, low, high = interval
        if not usable or (name == "alpha_performance" and alpha == math.inf):  # where the sum does not exist
            self.expect(np.isnan(interval).all(), f"{name} {interval} where nothing is known")
            return
        even = 1.0 / n_groups
        ends = {"jain_index": (even, 1.0), "least_share": (0.0, even), "greatest_share": (even, 1.0)}
        if alpha >= 1.0:
            ends["alpha_performance"] = -1e308, 1e302 if alpha == 1.0 else 0.0
        least, most = ends.get(name, (0.0 if name == "reward_per_round" else 1e-6, 1e302))
        self.expect(least <= low <= value <= high <= most, f"{name}: {interval} in [{least}, {most}]")

    def in_another_currency(self, log: Log) -> tuple[float, Log]:
        """The same log with rewards times a power of two, none of them lost."""
        exponents = np.frexp(log.rewards[log.rewards > 0.0])[1] if log.rewards.any() else np.zeros(1, int)
        first, last = -1000 - exponents.min(), 330 - exponents.max()  # no reward below 2^-1000, nor above 2^330
        factor = 2.0 ** int(self.rng.integers(first, last).clip(-1000, 1000)) if first < last else 1.0
        rewards = log.rewards * factor
        columns = (log.contexts, log.arms, rewards, log.propensities)
        return factor, Log(*columns, n_contexts=log.n_contexts, n_arms=log.n_arms, users=log.users)

    def ask(self, call: Callable[[], Any], *arguments: str) -> Any:
        """The same with a gap that is reported as larger than asked for: the solver's own cases check it."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CertificateWarning)
            return super().ask(call, *arguments)

    # kinds

    def evaluate(self) -> None:
        log = self.log()
        what, target = target_of(self.rng, log)
        groups = groups_of(self.rng, log.n_arms)
        said = {"groups": groups, **self.settings()}
        said |= {"alpha": float(self.rng.choice(ANY_ALPHA)), "estimator": str(self.rng.choice([*ESTIMATORS]))}
        self.note(f"evaluate the policy {what!r}, {said}")
        found = self.ask(lambda: evaluation.evaluate(log, target, **said), "log.propensities")
        if found is None:
            return
        self.is_sound(found, groups.for_arms(log.n_arms).n_groups, said["alpha"])
        self.expect(0.0 <= found.effective_sample_size <= log.n_rounds * (1 + 1e-9), f"{found.effective_sample_size}")
        heaviest = float((target[log.contexts, log.arms] / log.propensities).max())
        self.expect(found.verdict != "trustworthy" or heaviest < log.n_rounds, f"trusted with a weight of {heaviest}")
        factor, other = self.in_another_currency(log)
        self.note(f"the same times {factor:g}")
        again = evaluation.evaluate(other, target, **said)
        self.is_sound(again, len(found.accounts), said["alpha"])
        same = (again.verdict, again.reasons, again.effective_sample_size)
        self.expect(same == (found.verdict, found.reasons, found.effective_sample_size), f"{found} is now {again}")
        if found.verdict != "do not use":
            earned, scaled = found.cumulative_rewards, again.cumulative_rewards
            close = np.abs(scaled - factor * earned) <= 1e-9 * factor * earned + 1e-14 * (1.0 + factor)
            self.expect(close.all(), f"{earned} times {factor} is not {scaled}")

    def frontier(self) -> None:
        log = self.log(most=600)
        groups = groups_of(self.rng, log.n_arms, floors=True)
        said = {"groups": groups, **self.settings()}
        alphas = sorted({float(each) for each in self.rng.choice(ANY_ALPHA, 2)})
        self.note(f"frontier of {alphas}, {said}")
        found = self.ask(lambda: evaluation.frontier(log, alphas, **said), "log.propensities")
        if found is None:
            return
        owed = groups.for_arms(log.n_arms)
        n_groups = owed.n_groups
        for side in (found.held_out, found.flattered):
            for each, alpha in zip(side, alphas, strict=True):
                self.is_sound(each, n_groups, alpha)
        for name in METRICS:
            for side, alpha in zip(np.transpose(found.curve(name)), alphas, strict=True):
                self.is_interval(name, side, n_groups, not np.isnan(side).any(), alpha)
        for distributions in found.distributions:
            self.is_policy(distributions, owed, np.ones((1, log.n_arms), dtype=bool))
        found.alpha_for_cost(10.0), found.alpha_for_least_share(0.1)

    def regret(self) -> None:
        log, alpha = self.log(), float(self.rng.choice(ANY_ALPHA))
        groups = groups_of(self.rng, log.n_arms, floors=True)
        said = {"groups": groups, **self.settings()}
        said["confidence"] = max(0.75, said["confidence"])
        self.note(f"regret at {alpha!r}, {said}")
        found = self.ask(lambda: evaluation.regret(log, alpha, **said), "log.propensities")
        if found is not None:
            usable = found.verdict != "do not use"
            self.expect(math.isfinite(found.achieved) and found.achieved > 0.0, f"{found}")
            self.expect(math.isfinite(found.at_most) == usable, f"{found}")
            self.expect(not usable or 0.0 <= found.at_most <= found.optimum_at_most, f"{found}")
            self.expect("nan" not in str(found), str(found))

    def learning(self) -> None:
        log = self.log()
        name, rng = str(self.rng.choice(LEARNERS)), self.rng
        kind, said = POLICIES[name], {"alpha": float(rng.choice(ANY_ALPHA))} if name.startswith("alpha") else {}
        said |= {"feedback": "bandit"} if kind.traits.feedbacks else {}
        self.note("doctor")
        diagnosis = evaluation.doctor(log)
        self.expect(diagnosis.findings, "the doctor says nothing")
        self.expect(all("nan" not in each.what for each in diagnosis.findings), f"{diagnosis.findings}")
        self.note(f"warm start of {name}, {said}")
        weight = float(rng.choice([0.0, 0.3, 1.0, 1e-300]))
        warm = self.ask(lambda: evaluation.warm_start(log, kind, weight=weight, seed=0, **said), "log.rewards")
        if warm is not None:
            p = warm.probabilities(0)
            self.expect((p >= 0.0).all() and abs(math.fsum(p) - 1.0) <= 1e-9, f"{p}")
        groups = groups_of(rng, log.n_arms)
        n_groups = groups.for_arms(log.n_arms).n_groups
        options = {"alpha": float(rng.choice(ANY_ALPHA)), "n_seeds": 2, "groups": groups}
        for play in (evaluation.replay, evaluation.simulate_model):
            self.note(f"{play.__name__} {name}, {options}")
            player = kind(log.n_contexts, log.n_arms, **said)
            found = self.ask(
                lambda play=play, player=player: play(log, player, **options), "log", "log.rewards", "log.propensities"
            )
            if found is not None:
                self.is_sound(found, n_groups, options["alpha"])

    def offline(self) -> None:
        rng = self.rng
        m, n = (int(rng.integers(1, 2 + int(self.size * most))) for most in (12, 8))
        kind, totals = totals_of(rng, m, n)
        alpha, groups = float(rng.choice(ALPHAS)), groups_of(rng, n, floors=True)
        said: dict[str, Any] = {"groups": groups}
        there = np.ones((1, n), dtype=bool)
        if rng.random() < 0.15 and m % 2 == 0:
            there = rng.random((2, n)) < 0.7
            there[:, rng.integers(n)] = True
            totals = np.where(np.repeat(there, m // 2, axis=0), totals, 0.0)
            said["present"] = there
        owed = groups.for_arms(n, n_live=int(there.sum(axis=1).max()))
        initial = np.ones(owed.n_groups)
        if rng.random() < 0.3:
            initial = np.clip(log_uniform(rng, 1e-150, 1e100, owed.n_groups), 1e-150, 1e100)
            said["initial"] = initial
        tolerance = float(rng.choice([1e-9, 1e-9, 1e-3, 0.0, 1.0]))
        self.note(f"totals {kind} {totals.tolist()}, alpha {alpha!r}, tolerance {tolerance:g}, {said}")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            best = offline_optimum(totals, alpha, tolerance=tolerance, **said)
        self.expect(0.0 <= best.gap < math.inf and 0.0 < best.value < math.inf, f"{best}")
        within = best.welfare_gap <= tolerance if alpha > NEAR_ONE else best.gap <= tolerance * best.value
        self.expect(best.certified == within, f"{best}")
        self.expect(best.certified or tolerance < 1e-9, f"a gap of {best.gap / best.value:g}, not {tolerance:g}")
        self.is_policy(best.distributions, owed, np.repeat(there, m // len(there), axis=0))
        problem = Problem(totals, alpha, initial, owed, there)
        with localcontext(prec=DIGITS):
            value, gap = Decimal(best.value), Decimal(best.gap)
            truth = problem.worth(best.distributions)
            bound = problem.bound([Fraction(each) for each in best.accounts.tolist()])
            self.expect(abs(truth - value) <= gap, f"value {value} is {truth}")
            self.expect(bound <= value + gap, f"no more than {value + gap} is claimed, no more than {bound} is true")
            for _ in range(2):
                other = problem.worth(problem.random_policy(rng))
                self.expect(other <= (value + gap) * (1 + Decimal("1e-12")), f"{other} is above {value + gap}")
        certified = metrics.certificates(totals, best.accounts, alpha, **said)
        self.expect(certified.optimum >= best.value * (1 - 1e-9), f"{certified} below {best.value}")
        exponent = float(rng.choice([alpha, 1.0, 8.0, 256.0, math.inf]))  # of the comparison
        prices = None if rng.random() < 0.5 else initial + totals_of(rng, 1, owed.n_groups)[1][0]
        certified = metrics.certificates(totals, best.accounts, exponent, **said, prices=prices)
        self.expect(certified.boxed_welfare_ratio >= 1.0, f"{certified} of accounts that a policy has")

    def is_policy(self, distributions: np.ndarray, owed: ArmGroups, there: np.ndarray) -> None:
        """Rows that are distributions and keep the floors."""
        self.expect(np.isfinite(distributions).all() and (distributions >= 0.0).all(), f"{distributions}")
        sums = distributions.sum(axis=1)
        self.expect((np.abs(sums - 1.0) <= 1e-9).all(), f"rows of {sums}")
        for row, present in zip(distributions, np.broadcast_to(there, distributions.shape), strict=True):
            self.expect(not row[~present].any(), f"{row} plays arms that are not there")
            floor = min(owed.arm_floor, 1.0 / present.sum())
            self.expect((row[present] >= floor * (1 - 1e-9)).all(), f"{row} breaks the floor {floor}")
            for group, share in enumerate(owed.group_floors):
                mine = present & (owed.of_arms == group)
                self.expect(not mine.any() or row[mine].sum() >= share - 1e-9, f"{row} breaks the floor of {group}")

    def curve(self) -> None:
        rng = self.rng
        m, n, n_rounds = int(rng.integers(1, 5)), int(rng.integers(1, 6)), int(rng.integers(1, 60))
        contexts = rng.integers(0, m, n_rounds)
        what, rewards = rewards_of(rng, np.repeat(contexts, n), np.tile(np.arange(n), n_rounds))
        stream = Stream.from_arrays(contexts, np.minimum(rewards.reshape(-1, n), 1e97), n_contexts=m)
        alpha, groups = float(rng.choice(ALPHAS)), groups_of(rng, n, floors=True)
        stops = np.unique(rng.integers(1, n_rounds + 1, 4))
        self.note(f"curve of {m} contexts, rewards {what}, alpha {alpha!r}, rounds {stops.tolist()}, {groups}")
        values, gaps = offline_curve(stream, alpha, stops, groups=groups)
        for stop, value, gap in zip(stops.tolist(), values.tolist(), gaps.tolist(), strict=True):
            best = offline_optimum(context_reward_totals(stream, stop), alpha, groups=groups)
            self.expect(value <= best.value + best.gap and best.value <= value + gap, f"{value} is not {best.value}")

    def metrics(self) -> None:
        rng = self.rng
        n, alpha = int(rng.integers(1, 8)), float(rng.choice(ALPHAS))
        low, high = [(1.0, 1e6), (1e-150, 1e250), (1.0, 1e200), (1e-150, 1.0)][rng.integers(4)]
        earned = np.clip(log_uniform(rng, low, high, n), 1e-150, 1e250) if rng.random() < 0.8 else np.full(n, high)
        s = np.clip(log_uniform(rng, 1e-6, 1e6, n), 1e-6, 1e6) if rng.random() < 0.5 else np.ones(n)
        said = {"groups": None if (s == 1.0).all() else Groups(entitlements=s)}
        self.note(f"metrics of {earned.tolist()}, alpha {alpha!r}, {said}")
        shares, jain = metrics.shares(earned), metrics.jain_index(earned, **said)
        self.expect((shares >= 0.0).all() and abs(math.fsum(shares) - 1.0) <= 1e-12, f"{shares}")
        self.expect(1.0 / n * (1 - 1e-12) <= jain <= 1.0 + 1e-12, f"Jain {jain}")
        self.expect(earned.min() <= metrics.average_reward(earned) * (1 + 1e-12), "average below the least")
        for each in (metrics.utility(earned, alpha), metrics.marginal_utility(earned, alpha)):
            self.expect(np.isfinite(each).all() and (each > 0.0).all(), f"{each}")
        worth = metrics.alpha_performance(earned, alpha, **said)
        with localcontext(prec=DIGITS):
            truth = exact_worth([Fraction(each) for each in earned.tolist()], s.tolist(), alpha)
            self.expect(abs(Decimal(worth) - truth) <= truth * Decimal("1e-12"), f"{worth} is {truth}")
            parts = [
                Fraction(each) / Fraction(s_each) for each, s_each in zip(earned.tolist(), s.tolist(), strict=True)
            ]
            exact = decimal(sum(parts) ** 2 / (n * sum(each**2 for each in parts)))
            self.expect(abs(Decimal(jain) - exact) <= Decimal("1e-12"), f"Jain {jain} is {exact}")
        best = float(rng.choice([worth, 2.0 * min(worth, 1e149), 1e-300, 1e150]))
        if abs(best) <= 1e150:
            for compared in (metrics.standard_regret, metrics.approximate_regret, metrics.performance_ratio):
                self.expect(math.isfinite(compared(best, earned, alpha, **said)), f"{compared.__name__} to {best}")
        seeds = rng.normal(size=(int(rng.integers(1, 6)), 3)) * log_uniform(rng, 1e-300, 1e249)
        level = float(rng.choice([0.5, 0.95, 1 - 2.0**-53]))
        band = metrics.average_over_seeds(seeds, level=level)
        self.expect(
            np.isfinite(band).all() and (band.low <= band.value).all() and (band.value <= band.high).all(), f"{band}"
        )
        probability, degrees = float(log_uniform(rng, 1e-300, 0.5)), int(10.0 ** rng.uniform(0, 20))
        reach = -metrics.student_quantile(probability, degrees)
        wider = -metrics.student_quantile(probability, max(1, degrees // 2))
        self.expect(0.0 <= reach <= wider * (1 + 1e-9), f"t({probability}, {degrees}) is {reach}, beyond {wider}")


Case.kinds = KINDS = {
    "evaluate": Case.evaluate,
    "offline": Case.offline,
    "metrics": Case.metrics,
    "frontier": Case.frontier,
    "curve": Case.curve,
    "regret": Case.regret,
    "learning": Case.learning,
}


if __name__ == "__main__":
    searching.main(Case, __doc__)
