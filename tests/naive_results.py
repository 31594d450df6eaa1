"""The oracle of results.json: every number of the smoke versions, from `tests.naive` and SciPy's Student t.

Nothing is shared with the package: the settings are the paper's, written out again, and a claim is the list of its
leads. A path is R(t) and the pulls of one seed. A pair stands for a number between the two.
"""

from collections.abc import Iterable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from tests import naive
from tests.naive import Feedback, Matrix, Vector

ALPHA, N_SEEDS, N_RECORDS = 0.9, 3, 5
ALPHAS = (0.0, 0.33, 0.66, 0.99)  # of experiment C
SHARES = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.98, 0.99, 0.999)  # floors times N
PAYS, TOY_ROUNDS = (0.9, 0.5, 0.1), 1000
HALVES, LIMIT_ALPHAS, COINS = (10, 100, 1000), (0.25, 0.5, 0.75, 0.9), (0, 1, 2, 3)
FAIR, FAIR_BANDIT, INDEPENDENT = "\u03b1-FairCB", "\u03b1-FairCB (bandit)", "independent \u03b1-FairCB"
SCALE_FREE, PUBLISHED, PUBLISHED_STEP = "scale-free bandit", "published sign", "published step"
READINGS = ("before", "next_visit", "after")
RIVALS = ("Hedge", "FairCB (bandit)", "FairCB (full)")


class Rounds(NamedTuple):
    contexts: list[int]
    rewards: Matrix
    n_contexts: int


class Path(NamedTuple):
    earned: Matrix  # R after each round
    pulls: Vector


class PublishedSign(naive.AlphaFairBandit):
    """Algorithm 2 with the gain fed as a loss."""

    def learn(self, context: int, arm: int, propensity: float, p: Vector, outcome: naive.Outcome) -> None:
        gain = float(naive.marginal_utility(self.accounts, self.alpha)[arm]) * outcome
        self.learners[context].learn(0, arm, propensity, p, -gain)
        self.accounts[arm] += outcome


class PublishedStep(naive.AlphaFair):
    """Algorithm 1 with S the sum of norms of gradients."""

    def learn(self, context: int, arm: int, propensity: float, p: Vector, outcome: naive.Outcome) -> None:
        g = naive.marginal_utility(self.accounts, self.alpha) * outcome
        self.norms[context] += np.linalg.norm(g)
        x = naive.project_on_simplex(self.distributions[context] + g / np.sqrt(self.norms[context]))
        self.distributions[context] = x
        self.accounts = self.accounts + p * outcome


def path(policy: naive.Policy, rounds: Rounds, feedback: Feedback, seed: int) -> Path:
    """R(t) = R(t-1) + x r under full information, + r_I on the pulled arm under bandit feedback."""
    uniforms = np.random.default_rng(seed).random(len(rounds.contexts))
    arms, used, _ = naive.play(policy, rounds.contexts, rounds.rewards, uniforms, feedback)
    pulled = np.eye(rounds.rewards.shape[1])[arms]
    return Path(1 + np.cumsum((used if feedback == "full" else pulled) * rounds.rewards, axis=0), pulled.sum(axis=0))


def band(values: Matrix, together: int = 1, ends: tuple[float, float] = (-np.inf, np.inf)) -> dict[str, Any]:
    """Mean over seeds, and mean -+ t s / sqrt(n) at 95%, for k intervals together at 1 - 5%/k; one seed: no spread."""
    n, mean = len(values), values.mean(axis=0)
    half = 0 * mean if n == 1 else stats.t.ppf(1 - 0.025 / together, n - 1) * values.std(axis=0, ddof=1) / n**0.5
    low, high = np.maximum(mean - half, ends[0]), np.minimum(mean + half, ends[1])
    return {"value": (mean + 0.0).tolist(), "low": low.tolist(), "high": high.tolist()}


def possible(metric: str, n_arms: int) -> tuple[float, float]:
    """Where a metric ends, if every arm begins with 1."""
    start = {"alpha_performance": n_arms / (1 - ALPHA), "average_reward": 1.0}
    return (1 / n_arms, 1.0) if metric == "jain_index" else (start.get(metric, -np.inf), np.inf)


def records(n_rounds: int) -> list[int]:
    """Every so many rounds, and the last."""
    every = -(-n_rounds // N_RECORDS)
    return [min(t, n_rounds) for t in range(every, n_rounds + every, every)]


def optima(rounds: Rounds) -> list[tuple[float, float]]:
    """OPT of every recorded prefix lies between the two."""
    found = []
    for t in records(len(rounds.contexts)):
        totals = naive.context_reward_totals(rounds.contexts[:t], rounds.rewards[:t], rounds.n_contexts)
        _, value, gap = naive.offline_optimum(totals, ALPHA)
        found.append((value, value + gap))
    return found


class Oracle:
    """All runs on the first rows, made when they are asked for and kept; OPT over time is given."""

    def __init__(self, rounds: Rounds, optima: Vector) -> None:
        self.rounds, self.optima = rounds, optima
        self.T, self.N, self.M = len(rounds.contexts), rounds.rewards.shape[1], rounds.n_contexts
        self.records = records(self.T)
        self.kinds = self.contenders()
        self.paths = cache(self.run)

    def contenders(self) -> dict[str, tuple[type[naive.Policy], Feedback, dict[str, Any]]]:
        """By their names in the report."""
        q = np.bincount(self.rounds.contexts, minlength=self.M) / self.T

        def floored(feedback: Feedback, share: float) -> tuple[type[naive.Policy], Feedback, dict[str, Any]]:
            floor = {"pull_share": share / self.N, "horizon": self.T, "feedback": feedback, "context_weights": q}
            return naive.FairCB, feedback, floor

        return {
            FAIR: (naive.AlphaFair, "full", {"alpha": ALPHA}),
            "Hedge": (naive.Hedge, "full", {"learning_rate": (np.log(self.N) / self.T) ** 0.5}),
            "FairCB (bandit)": floored("bandit", 0.5),
            "FairCB (full)": floored("full", 0.5),
            INDEPENDENT: (naive.IndependentAlphaFair, "full", {"alpha": ALPHA}),
            "uniform": (naive.Uniform, "full", {}),
            "uniform (bandit)": (naive.Uniform, "bandit", {}),
            FAIR_BANDIT: (naive.AlphaFairBandit, "bandit", {"alpha": ALPHA}),
            SCALE_FREE: (naive.ScaleFree, "bandit", {}),
            PUBLISHED: (PublishedSign, "bandit", {"alpha": ALPHA}),
            PUBLISHED_STEP: (PublishedStep, "full", {"alpha": ALPHA}),
            **{word: (naive.AlphaFair, "full", {"alpha": ALPHA, "marginal": word}) for word in READINGS},
            **{f"full {share:g}": floored("full", share) for share in SHARES},
            **{f"bandit {share:g}": floored("bandit", share) for share in SHARES},
        }

    def run(self, label: str) -> list[Path]:
        """One path a seed; nothing is random under full information."""
        kind, feedback, settings = self.kinds[label]
        seeds = range(N_SEEDS if feedback == "bandit" else 1)
        return [path(kind(self.M, self.N, **settings), self.rounds, feedback, seed) for seed in seeds]

    def measured(self, label: str) -> dict[str, Matrix]:
        """Every metric by seed and recorded round."""
        earned = [[run.earned[t - 1] for t in self.records] for run in self.paths(label)]
        performance = np.array([[naive.alpha_performance(R, ALPHA) for R in run] for run in earned])
        return {
            "alpha_performance": performance,
            "jain_index": np.array([[naive.jain_index(R) for R in run] for run in earned]),
            "average_reward": np.array([[R.sum() / self.N for R in run] for run in earned]),
            "standard_regret": self.optima - performance,
            "approximate_regret": self.optima - naive.approximation_factor(ALPHA) * performance,
            "ratio": self.optima / performance,
        }

    def contender(self, label: str, uniform: Vector) -> dict[str, Any]:
        """`uniform` is the alpha-performance of uniform play: as expected, or seed by seed as drawn."""
        runs, found = self.paths(label), self.measured(label)
        ahead = found["alpha_performance"][:, -1] - uniform
        closed = ahead / (self.optima[-1] - sum(uniform) / len(uniform))
        return {
            "n_seeds": len(runs),
            **{name: band(values, ends=possible(name, self.N)) for name, values in found.items()},
            "final_accounts": np.mean([run.earned[-1] for run in runs], axis=0).tolist(),
            "pull_shares": np.mean([run.pulls / self.T for run in runs], axis=0).tolist(),
            "gap_closed": band(closed),
            **(self.certificates(runs[0].earned[-1]) if self.kinds[label][1] == "full" else {}),
        }

    def certificates(self, earned: Vector) -> dict[str, Any]:
        """OPT <= Phi (A / ((1-alpha) Phi))^(1-alpha), A what the best policy would earn at the prices R^-alpha."""
        totals = naive.context_reward_totals(self.rounds.contexts, self.rounds.rewards, self.M)
        prices, phi = earned**-ALPHA, naive.alpha_performance(earned, ALPHA)
        worth = sum(prices) + sum(max(row * prices) for row in totals)
        bound = phi * (worth / ((1 - ALPHA) * phi)) ** (1 - ALPHA)
        assert self.optima[-1] <= bound * (1 + 1e-9)
        found = {
            "ratio": bound / phi,
            "standard_regret": bound - phi,
            "approximate_regret": bound - naive.approximation_factor(ALPHA) * phi,
        }
        each = 1 + sum(max(row) for row in totals) / self.N  # if all there was to earn were shared alike
        vacuous = bound > naive.alpha_performance(np.full(self.N, each), ALPHA)
        return {"certificates": found, **({"vacuous": True} if vacuous else {})}

    def about(self, seeds: int = N_SEEDS) -> dict[str, Any]:
        settings = {"rows": 300, "min_ratings": None, "reward_floor": float(self.rounds.rewards.min())}
        sizes = {"n_rounds": self.T, "n_contexts": self.M, "n_arms": self.N}
        return {"alpha": ALPHA, "seeds": [*range(seeds)], "settings": settings, **sizes}

    def over_time(self, labels: dict[str, str], seeds: int = N_SEEDS) -> dict[str, Any]:
        """`labels` are those of the report, and whose runs they are."""
        expected = [naive.alpha_performance(1 + self.rounds.rewards.sum(axis=0) / self.N, ALPHA)]
        drawn = self.measured("uniform (bandit)")["alpha_performance"][:, -1]
        uniform = drawn if labels.get("uniform") == "uniform (bandit)" else np.array(expected)
        return {
            **self.about(seeds),
            "rounds": self.records,
            "optimum": {"values": self.optima.tolist(), "gaps": [(0.0, 1e-9 * value) for value in self.optima]},
            "contenders": {shown: self.contender(label, uniform) for shown, label in labels.items()},
        }

    def first(self, labels: dict[str, str]) -> dict[str, Any]:
        """Who ends highest, with regrets lowest, and how far from the others, seed by seed."""
        found = {}
        for metric, sign in (
            ("alpha_performance", 1),
            ("jain_index", 1),
            ("standard_regret", -1),
            ("approximate_regret", -1),
        ):
            ends = {shown: sign * self.measured(label)[metric][:, -1] for shown, label in labels.items()}
            best = max(ends, key=lambda shown: ends[shown].mean())
            ahead = {other: band(ends[best] - ends[other]) for other in ends if other != best}
            found[metric] = {"label": best, "ahead": ahead}
        return {"first": found}

    def over_floor(self) -> dict[str, Any]:
        def ends(label: str) -> dict[str, Any]:
            names = ("alpha_performance", "jain_index", "average_reward")
            return {name: band(self.measured(label)[name][:, -1], ends=possible(name, self.N)) for name in names}

        def along(feedback: str) -> dict[str, Any]:
            swept = [ends(f"{feedback} {share:g}") for share in SHARES]
            return {name: {side: [each[name][side] for each in swept] for side in swept[0][name]} for name in swept[0]}

        def ahead(ours: str, feedback: str) -> dict[str, Any]:
            end = self.measured(ours)["alpha_performance"][:, -1]
            swept = [
                band(end - self.measured(f"{feedback} {share:g}")["alpha_performance"][:, -1], len(SHARES))
                for share in SHARES
            ]
            return {side: [each[side] for each in swept] for side in swept[0]}

        return {
            **self.about(),
            "floors": list(SHARES),
            "fair_cb": {feedback: along(feedback) for feedback in ("full", "bandit")},
            "alpha_fair": {"full": ends(FAIR), "bandit": ends(FAIR_BANDIT)},
            "maxima": [max(self.measured(f"bandit {share:g}")["alpha_performance"][:, -1]) for share in SHARES],
            "ahead": {"full": ahead(FAIR, "full"), "bandit": ahead(FAIR_BANDIT, "bandit")},
        }


def over_alpha(rounds: Rounds) -> dict[str, Any]:
    """Experiment C: where Algorithm 1 ends at every alpha."""
    n_arms = rounds.rewards.shape[1]
    policies = [naive.AlphaFair(rounds.n_contexts, n_arms, alpha=alpha) for alpha in ALPHAS]
    final = [path(policy, rounds, "full", 0).earned[-1] for policy in policies]
    return {
        "n_rounds": len(rounds.contexts),
        "n_contexts": rounds.n_contexts,
        "n_arms": n_arms,
        "seeds": [0],
        "settings": {"rows": None, "min_ratings": 500, "reward_floor": 0.2},
        "alphas": list(ALPHAS),
        "jain_index": [naive.jain_index(R) for R in final],
        "average_reward": [float(R.sum() / n_arms) for R in final],
        "final_accounts": [R.tolist() for R in final],
    }


def impossibility() -> dict[str, Any]:
    """n rounds of context 0 that pay (1, 1), then n of context 1 that pay (1, 1/3) or (1/3, 1), by a coin."""

    @cache
    def ratio(alpha: float, n: int, coin: int) -> float:
        late = [1.0, 1 / 3] if coin == 0 else [1 / 3, 1.0]
        rounds = Rounds([0] * n + [1] * n, np.array([[1.0, 1.0]] * n + [late] * n), 2)
        earned = path(naive.AlphaFair(2, 2, alpha=alpha), rounds, "full", 0).earned[-1]
        totals = naive.context_reward_totals(rounds.contexts, rounds.rewards, 2)
        return naive.offline_optimum(totals, alpha)[1] / naive.alpha_performance(earned, alpha)

    coins = [int(np.random.default_rng(seed).integers(0, 2)) for seed in COINS]
    ratios = [[float(np.mean([ratio(a, n, coin) for coin in coins])) for n in HALVES] for a in LIMIT_ALPHAS]
    return {
        "seeds": list(COINS),
        "halves": list(HALVES),
        "alphas": list(LIMIT_ALPHAS),
        "limits": [2 / ((3 / 2) ** (1 - alpha) + (1 / 2) ** (1 - alpha)) for alpha in LIMIT_ALPHAS],
        "ratios": ratios,
    }


def toy_shares() -> dict[str, Matrix]:
    """Pulls a round, by seed, of policies on three arms of fixed pay at alpha 0."""
    rounds = Rounds([0] * TOY_ROUNDS, np.array([PAYS] * TOY_ROUNDS), 1)

    def shares(kind: type[naive.Policy], **settings: float) -> Matrix:
        runs = [path(kind(1, 3, **settings), rounds, "bandit", seed) for seed in range(N_SEEDS)]
        return np.array([run.pulls / TOY_ROUNDS for run in runs])

    return {
        FAIR_BANDIT: shares(naive.AlphaFairBandit, alpha=0.0),
        PUBLISHED: shares(PublishedSign, alpha=0.0),
        "uniform": shares(naive.Uniform),
    }


class Claim(NamedTuple):
    """A source, and what the claim says is above zero, by seed; one value is exact."""

    source: str
    differences: list[Vector]


def claims(oracle: Oracle, c: dict[str, Any], limit: dict[str, Any], shares: dict[str, Matrix]) -> dict[str, Claim]:
    """All of them, by their ids."""

    def end(label: str, metric: str) -> Vector:
        return oracle.measured(label)[metric][:, -1]

    def above(metric: str, one: str, others: Iterable[str], sign: int = 1) -> list[Vector]:
        return [sign * (end(one, metric) - end(other, metric)) for other in others]

    def below(metric: str, one: str, others: Iterable[str]) -> list[Vector]:
        return above(metric, one, others, -1)

    def bounded(labels: Iterable[str]) -> Claim:
        return Claim("theorem", [naive.approximation_factor(ALPHA) - end(label, "ratio") for label in labels])

    def rise(values: list[float], sign: int) -> Claim:
        curve = sign * np.array(values)
        setback = max(curve[:k].max() - curve[k] for k in range(1, len(curve))) / (curve.max() - curve.min())
        return Claim("paper", [np.array([curve[-1] - curve[0]]), np.array([0.02 - max(setback, 0.0)])])

    def floored(ours: str, feedback: str) -> Claim:
        return Claim("found here", above("alpha_performance", ours, [f"{feedback} {share:g}" for share in SHARES]))

    hedge, *others = RIVALS
    worst = [each for metric in ("alpha_performance", "jain_index") for each in below(metric, hedge, [FAIR, *others])]
    jain = oracle.measured(FAIR_BANDIT)["jain_index"] - oracle.measured(SCALE_FREE)["jain_index"]
    late = [jain[:, place] for place, t in enumerate(oracle.records) if t > oracle.T / 2]
    away = max(abs(row[-1] - bound) / bound for row, bound in zip(limit["ratios"], limit["limits"], strict=True))
    ours, theirs = (shares[label][:, 2] for label in (FAIR_BANDIT, PUBLISHED))
    return {
        "A1": Claim("paper", above("alpha_performance", FAIR, RIVALS)),
        "A2": Claim("paper", below("approximate_regret", FAIR, RIVALS)),
        "A3": Claim("paper", below("standard_regret", FAIR, RIVALS)),
        "A4": Claim("paper", above("jain_index", FAIR, RIVALS)),
        "A5": Claim("paper", worst),
        "A6": bounded([FAIR]),
        "A7": Claim("found here", above("alpha_performance", FAIR, ["uniform"])),
        "B1": Claim("paper", above("alpha_performance", FAIR_BANDIT, [SCALE_FREE])),
        "B2": Claim("paper", above("jain_index", FAIR_BANDIT, [SCALE_FREE])),
        "B3": Claim("paper", late),
        "B4": bounded([FAIR_BANDIT]),
        "B5": Claim("found here", above("alpha_performance", FAIR_BANDIT, ["uniform (bandit)"])),
        "C1": rise(c["jain_index"], 1),
        "C2": rise(c["average_reward"], -1),
        "F1": floored(FAIR, "full"),
        "F2": floored(FAIR_BANDIT, "bandit"),
        "I1": Claim("theorem", [np.array([0.001 - away])]),
        "S1": Claim("found here", [theirs - 0.9, 0.1 - ours]),
        "S2": Claim("found here", below("alpha_performance", PUBLISHED, ["uniform (bandit)"])),
        "R1": bounded(READINGS),
    }


def verdict(intervals: list[Any]) -> str:
    if all(each["low"] > 0 for each in intervals):
        return "holds"
    return "does not hold" if any(each["high"] < 0 for each in intervals) else "not decided"


def claim(name: str, found: Claim) -> dict[str, Any]:
    k = sum(len(values) > 1 for values in found.differences) or 1
    leads = [band(values, k) for values in found.differences]
    return {
        "id": name,
        "source": found.source,
        "independent": name not in ("A2", "A3"),
        "verdict": verdict(leads),
        "leads": [min(leads, key=lambda lead: float(lead["low"]))] if name == "B3" else leads,
    }


def results(first: Rounds, many: Rounds, best: Vector, poor: Rounds, poor_best: Vector) -> dict[str, Any]:
    """The numbers of results.json: `first` are the rows of A and B, `many` the users of C, `best` OPT over time.

    `poor` are the first rows again with the published reward floor.
    """
    oracle, poor_oracle = Oracle(first, best), Oracle(poor, poor_best)
    c, limit, shares = over_alpha(many), impossibility(), toy_shares()
    toy = {
        "alpha": 0.0,
        "n_rounds": TOY_ROUNDS,
        "n_contexts": 1,
        "n_arms": 3,
        "seeds": [*range(N_SEEDS)],
        "arms": list(PAYS),
        "shares": {label: x.mean(axis=0).tolist() for label, x in shares.items()},
    }
    alone = {label: label for label in (FAIR, *RIVALS, INDEPENDENT, "uniform")}
    blind = {"uniform": "uniform (bandit)"}
    b = {FAIR_BANDIT: FAIR_BANDIT, SCALE_FREE: SCALE_FREE, **blind}
    return {
        "data": {"stand_in": True},
        "claims": [claim(name, each) for name, each in claims(oracle, c, limit, shares).items()],
        "experiments": {
            "A": oracle.over_time(alone) | oracle.first(alone),
            "B": oracle.over_time(b) | oracle.first(b),
            "C": c,
            "floor_sweep": oracle.over_floor(),
            "impossibility": limit,
            "sign": {
                **oracle.over_time({FAIR_BANDIT: FAIR_BANDIT, PUBLISHED: PUBLISHED, **blind}),
                "toy": toy,
            },
            "step": oracle.over_time({label: label for label in (FAIR, PUBLISHED_STEP, "uniform")}, seeds=1),
            "delta": poor_oracle.over_time({label: label for label in (FAIR, "uniform")}, seeds=1),
            "readings": oracle.over_time(dict(zip(READINGS, READINGS, strict=True)), seeds=1),
        },
    }
