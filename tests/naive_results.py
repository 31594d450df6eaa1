"""The slow oracle of results.json: every number of the smoke versions, from `tests.naive` and Student's t of SciPy.

Nothing is shared with the package: settings are the paper's, written out again, and a claim is the list of its leads.
`Rounds` are contexts and the rewards of all arms, round by round. A path is R(t) and the pulls of one seed. A pair
stands for a number between the two.
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
SHARES = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.98)  # floors times N
PAYS, TOY_ROUNDS = (0.9, 0.5, 0.1), 1000
HALVES, LIMIT_ALPHAS, COINS = (10, 100, 1000), (0.25, 0.5, 0.75, 0.9), (0, 1, 2, 3)
FAIR, FAIR_BANDIT, INDEPENDENT = "\u03b1-FairCB", "\u03b1-FairCB (bandit)", "independent \u03b1-FairCB"
SCALE_FREE, PUBLISHED = "scale-free bandit", "published sign"
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
        gain = float(naive.marginal_utility(self.cumulative_rewards, self.alpha)[arm]) * outcome
        self.learners[context].learn(0, arm, propensity, p, -gain)
        self.cumulative_rewards[arm] += outcome


def path(policy: naive.Policy, rounds: Rounds, feedback: Feedback, seed: int) -> Path:
    """R(t) = R(t-1) + x r under full information, + r_I on the pulled arm under bandit feedback."""
    uniforms = np.random.default_rng(seed).random(len(rounds.contexts))
    arms, used, _ = naive.play(policy, rounds.contexts, rounds.rewards, uniforms, feedback)
    pulled = np.eye(rounds.rewards.shape[1])[arms]
    return Path(1 + np.cumsum((used if feedback == "full" else pulled) * rounds.rewards, axis=0), pulled.sum(axis=0))


def band(values: Matrix) -> dict[str, Any]:
    """Mean over seeds, and mean -+ t s / sqrt(n) at 95%; one seed has no spread."""
    n, mean = len(values), values.mean(axis=0)
    half = 0 * mean if n == 1 else stats.t.ppf(0.975, n - 1) * values.std(axis=0, ddof=1) / n**0.5
    return {"mean": (mean + 0.0).tolist(), "low": (mean - half).tolist(), "high": (mean + half).tolist()}


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
            floor = {"pull_floor": share / self.N, "horizon": self.T, "feedback": feedback, "context_weights": q}
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

    def contender(self, label: str) -> dict[str, Any]:
        runs, found = self.paths(label), self.measured(label)
        uniform = naive.alpha_performance(1 + self.rounds.rewards.sum(axis=0) / self.N, ALPHA)
        closed = (found["alpha_performance"][:, -1] - uniform) / (self.optima[-1] - uniform)
        return {
            "n_seeds": len(runs),
            **{name: band(values) for name, values in found.items()},
            "final_rewards": np.mean([run.earned[-1] for run in runs], axis=0).tolist(),
            "pull_shares": np.mean([run.pulls / self.T for run in runs], axis=0).tolist(),
            "gap_closed": band(closed),
        }

    def about(self, seeds: int = N_SEEDS) -> dict[str, Any]:
        settings = {"rows": 300, "min_ratings": None, "reward_floor": 0.2}
        sizes = {"n_rounds": self.T, "n_contexts": self.M, "n_arms": self.N}
        return {"alpha": ALPHA, "seeds": seeds, "settings": settings, **sizes}

    def over_time(self, labels: dict[str, str], seeds: int = N_SEEDS) -> dict[str, Any]:
        """`labels` are those of the report, and whose runs they are."""
        return {
            **self.about(seeds),
            "rounds": self.records,
            "optimum": {"values": self.optima.tolist(), "gaps": [(0.0, 1e-9 * value) for value in self.optima]},
            "contenders": {shown: self.contender(label) for shown, label in labels.items()},
        }

    def over_floor(self) -> dict[str, Any]:
        def ends(label: str) -> dict[str, Any]:
            names = ("alpha_performance", "jain_index", "average_reward")
            return {name: band(self.measured(label)[name][:, -1]) for name in names}

        def along(feedback: str) -> dict[str, Any]:
            swept = [ends(f"{feedback} {share:g}") for share in SHARES]
            return {name: {side: [each[name][side] for each in swept] for side in swept[0][name]} for name in swept[0]}

        return {
            **self.about(),
            "floors": list(SHARES),
            "n_seeds": N_SEEDS,
            "fair_cb": {feedback: along(feedback) for feedback in ("full", "bandit")},
            "alpha_fair": {"full": ends(FAIR), "bandit": ends(FAIR_BANDIT)},
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
        "seeds": 1,
        "settings": {"rows": None, "min_ratings": 500, "reward_floor": 0.2},
        "stand_in": True,
        "alphas": list(ALPHAS),
        "jain_index": [naive.jain_index(R) for R in final],
        "average_reward": [float(R.sum() / n_arms) for R in final],
        "final_rewards": [R.tolist() for R in final],
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
        "seeds": len(COINS),
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


def leads(oracle: Oracle, c: dict[str, Any], limit: dict[str, Any], shares: dict[str, Matrix]) -> dict[str, list[Any]]:
    """What every claim says is above zero, seed by seed; exact where there is one value."""

    def end(label: str, metric: str) -> Vector:
        return oracle.measured(label)[metric][:, -1]

    def less(metric: str, one: str, others: Iterable[str]) -> list[Vector]:
        return [end(one, metric) - end(other, metric) for other in others]

    def above(metric: str, one: str, others: Iterable[str]) -> list[Any]:
        return [band(values) for values in less(metric, one, others)]

    def below(metric: str, one: str, others: Iterable[str]) -> list[Any]:
        return [band(-values) for values in less(metric, one, others)]

    def exact(value: float) -> Any:
        return band(np.array([value]))

    def rise(curve: Vector) -> list[Any]:
        setback = max(curve[:k].max() - curve[k] for k in range(1, len(curve))) / (curve.max() - curve.min())
        return [exact(curve[-1] - curve[0]), exact(0.02 - max(setback, 0.0))]

    factor = naive.approximation_factor(ALPHA)
    hedge, *others = RIVALS
    jain = oracle.measured(FAIR_BANDIT)["jain_index"] - oracle.measured(SCALE_FREE)["jain_index"]
    late = [band(jain[:, place]) for place, t in enumerate(oracle.records) if t > oracle.T / 2]
    away = max(abs(row[-1] - bound) for row, bound in zip(limit["ratios"], limit["limits"], strict=True))
    return {
        "A1": above("alpha_performance", FAIR, RIVALS),
        "A2": below("approximate_regret", FAIR, RIVALS),
        "A3": below("standard_regret", FAIR, RIVALS),
        "A4": above("jain_index", FAIR, RIVALS),
        "A5": [x for metric in ("alpha_performance", "jain_index") for x in below(metric, hedge, [FAIR, *others])],
        "A6": [band(factor - end(FAIR, "ratio"))],
        "B1": above("alpha_performance", FAIR_BANDIT, [SCALE_FREE]),
        "B2": above("jain_index", FAIR_BANDIT, [SCALE_FREE]),
        "B3": [min(late, key=lambda lead: float(lead["low"]))],
        "B4": [band(factor - end(FAIR_BANDIT, "ratio"))],
        "C1": rise(np.array(c["jain_index"])),
        "C2": rise(-np.array(c["average_reward"])),
        "F1": above("alpha_performance", FAIR, [f"full {share:g}" for share in SHARES]),
        "F2": above("alpha_performance", FAIR_BANDIT, [f"bandit {share:g}" for share in SHARES]),
        "I1": [exact(0.001 - away)],
        "S1": [band(shares[PUBLISHED][:, 2] - 0.9), band(0.1 - shares[FAIR_BANDIT][:, 2])],
        "S2": below("alpha_performance", PUBLISHED, ["uniform (bandit)"]),
        "R1": [band(factor - end(label, "ratio")) for label in READINGS],
    }


def verdict(intervals: list[Any]) -> str:
    if all(each["low"] > 0 for each in intervals):
        return "holds"
    return "does not hold" if any(each["high"] < 0 for each in intervals) else "not decided"


def results(first: Rounds, many: Rounds, best: Vector) -> dict[str, Any]:
    """The numbers of results.json: `first` are the rows of A and B, `many` the users of C, `best` OPT over time."""
    oracle = Oracle(first, best)
    c, limit, shares = over_alpha(many), impossibility(), toy_shares()
    toy = {"alpha": 0.0, "arms": list(PAYS), "shares": {label: x.mean(axis=0).tolist() for label, x in shares.items()}}
    alone = {label: label for label in (FAIR, *RIVALS, INDEPENDENT, "uniform")}
    blind = {"uniform": "uniform (bandit)"}
    return {
        "data": {"stand_in": True},
        "claims": [
            {"id": name, "leads": each, "verdict": verdict(each)}
            for name, each in leads(oracle, c, limit, shares).items()
        ],
        "experiments": {
            "A": oracle.over_time(alone),
            "B": oracle.over_time({FAIR_BANDIT: FAIR_BANDIT, SCALE_FREE: SCALE_FREE, **blind}),
            "C": c,
            "floor_sweep": oracle.over_floor(),
            "impossibility": limit,
            "sign": {
                **oracle.over_time({FAIR_BANDIT: FAIR_BANDIT, PUBLISHED: PUBLISHED, **blind}),
                "toy": toy,
            },
            "readings": oracle.over_time(dict(zip(READINGS, READINGS, strict=True)), seeds=1),
        },
    }
