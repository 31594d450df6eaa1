"""Made-up results, as results.json has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from alphafair import metrics
from alphafair.formatting import ALPHA
from alphafair.lab.claims import FAILS, HOLDS, OPEN, PAPER
from alphafair.lab.results import Results
from alphafair.values import Matrix, Vector
from tests.read_results import as_value

NASTY = "<b>&"
ARMS = ("Drama", "Comedy", NASTY, "$War$", "Film-Noir")
EXPONENT = 0.9
SERIES = ("alpha_performance", "jain_index", "average_reward", "standard_regret", "approximate_regret", "ratio")


def value(found: dict[str, Any]) -> Results:
    """The same as a value."""
    results: Results = as_value(Results, found)
    return results


def band(values: Matrix) -> dict[str, Any]:
    """The mean over the first axis, the seeds, and an interval."""
    mean = values.mean(axis=0)
    half = 0.0 * mean if len(values) == 1 else 2.0 * values.std(axis=0, ddof=1) / len(values) ** 0.5
    return {side: (mean + sign * half).tolist() for side, sign in (("value", 0.0), ("low", -1.0), ("high", 1.0))}


def contender(
    label: str, policy: str, feedback: str, skew: float, optimum: Vector, rounds: Vector, n_seeds: int = 1
) -> dict[str, Any]:
    """A policy whose arms earn at constant rates, the first ones faster by the skew."""
    slopes = np.arange(len(ARMS), 0.0, -1.0) ** skew
    noise = np.random.default_rng(0).normal(0.0, 0.03, (n_seeds, 1, len(ARMS))) if n_seeds > 1 else np.zeros((1, 1, 1))
    earned = 1.0 + rounds[:, None] * 0.6 * slopes / slopes.sum() * np.exp(noise)
    performance = metrics.alpha_performance(earned, EXPONENT)
    measured = (
        performance,
        metrics.jain_index(earned),
        metrics.average_reward(earned),
        optimum - performance,
        optimum - metrics.approximation_factor(EXPONENT) * performance,
        optimum / performance,
    )
    uniform = float(metrics.alpha_performance(1.0 + np.full(len(ARMS), rounds[-1] * 0.1), EXPONENT))
    room = optimum[-1] - uniform
    bounds = {name: values[0, -1] + 0.1 for name, values in zip(SERIES[3:], measured[3:], strict=True)}
    return {
        "label": label,
        "policy": policy,
        "feedback": feedback,
        **({"certificates": bounds} if feedback == "full" else {}),
        "settings": {"horizon": int(rounds[-1])},
        "n_seeds": n_seeds,
        **{name: band(values) for name, values in zip(SERIES, measured, strict=True)},
        "final_accounts": earned[:, -1].mean(axis=0).tolist(),
        "pull_shares": (slopes / slopes.sum()).tolist(),
        "gap_closed": band((performance[:, -1] - uniform) / room if policy != "uniform" else np.zeros(1)),
    }


def experiment(title: str, entries: Sequence[tuple[str, str, str, float, int]], n_seeds: int) -> dict[str, Any]:
    rounds = np.arange(20.0, 1001.0, 20.0)
    optimum = metrics.alpha_performance(1.0 + 0.14 * rounds[:, None] * np.ones(len(ARMS)), EXPONENT)
    return {
        "title": title,
        "digest": "0123456789ab",
        "settings": {"reward_floor": 0.2, "rows": 1000, "min_ratings": None},
        "alpha": EXPONENT,
        "n_rounds": 1000,
        "n_contexts": 4,
        "n_arms": len(ARMS),
        "arm_labels": list(ARMS),
        "seeds": list(range(n_seeds)),
        "rounds": rounds.astype(int).tolist(),
        "optimum": {"values": optimum.tolist(), "gaps": (1e-9 * optimum).tolist()},
        "contenders": {
            label: contender(label, policy, feedback, skew, optimum, rounds, seeds)
            for label, policy, feedback, skew, seeds in entries
        },
    }


def compared(title: str, entries: Sequence[tuple[str, str, str, float, int]]) -> dict[str, Any]:
    """An experiment with its leads: the differences of the means, plus or minus both intervals."""
    found = experiment(title, entries, 30)
    found["first"] = {}
    for name in SERIES[:2] + SERIES[3:5]:
        sign = -1.0 if name.endswith("regret") else 1.0
        ends = {
            label: [sign * each[name][side][-1] for side in ("value", "high")]
            for label, each in found["contenders"].items()
        }
        best = min(ends, key=lambda label: (-ends[label][0], label))
        ahead = {}
        for label in set(ends) - {best}:
            mean = ends[best][0] - ends[label][0]
            half = abs(ends[best][1] - ends[best][0]) + abs(ends[label][1] - ends[label][0])
            ahead[label] = {"value": mean, "low": mean - half, "high": mean + half}
        found["first"][name] = {"label": best, "ahead": ahead}
    return found


def scenario(title: str, shares: Sequence[float]) -> dict[str, Any]:
    """A match of the arena: every policy closes its share of the gap, plus or minus 0.1."""
    policies = ("alpha-fair-adaptive", "alpha-fair-bandit", "uniform")
    scores = [
        {
            "label": f"{policy} {NASTY}",
            "policy": policy,
            "feedback": "bandit",
            "alpha": EXPONENT,
            "n_seeds": 5,
            "gap_closed": {"value": share, "low": share - 0.1, "high": share + 0.1},
            "alpha_performance": {"value": 100.0 + share, "low": 90.0, "high": 110.0},
        }
        for policy, share in zip(policies, shares, strict=True)
    ]
    promise = {"value": shares[0] - shares[1], "low": 0.01, "high": 1.0}
    sizes = {"n_rounds": 400, "n_contexts": 2, "n_arms": 3, "delay": None, "seeds": list(range(5))}
    names = {"title": title, "name": title, "digest": "aaa"}
    return {**names, **sizes, "scores": scores, "promises": {f"above {NASTY}": promise}, "tuned": []}


def made_up_results(*, stand_in: bool = True, verdicts: Sequence[str] = (HOLDS, FAILS, OPEN)) -> dict[str, Any]:
    """All experiments; one verdict per claim."""
    full = [
        (f"{ALPHA}-FairCB", "alpha-fair", "full", 0.3, 1),
        ("Hedge", "hedge", "full", 6.0, 1),
        (f"FairCB {NASTY}", "fair-cb", "full", 2.0, 1),
        ("FairCB (bandit)", "fair-cb", "bandit", 1.5, 30),
        ("uniform", "uniform", "full", 0.6, 1),
    ]
    bandit = [
        (f"{ALPHA}-FairCB (bandit)", "alpha-fair-bandit", "bandit", 0.5, 30),
        ("scale-free bandit", "scale-free", "bandit", 4.0, 30),
        ("uniform", "uniform", "bandit", 0.6, 30),
    ]
    sign = [bandit[0], ("published sign", "published-sign", "bandit", 1.2, 30), bandit[2]]
    readings = [("before", 0.3), ("next_visit", 0.301), ("after", 0.302)]
    alphas = np.arange(20) / 20.0
    earned = 1.0 + 500.0 * np.arange(len(ARMS), 0.0, -1.0) ** (3.0 * (1.0 - alphas[:, None]))
    earned /= earned.sum(axis=1, keepdims=True) / (1000.0 - 300.0 * alphas[:, None])
    floors = [0.1, 0.5, 0.9]
    ours = contender("", "alpha-fair", "full", 0.3, np.array([60.0]), np.array([1000.0]))
    level = {name: {side: ours[name][side][0] for side in ("value", "low", "high")} for name in SERIES[:3]}
    swept = [contender("", "fair-cb", "full", 2.0 - floor, np.array([60.0]), np.array([1000.0])) for floor in floors]
    sweep = {
        name: {side: [run[name][side][0] for run in swept] for side in ("value", "low", "high")} for name in SERIES[:3]
    }
    ends = [level[SERIES[0]]["value"] - end for end in sweep[SERIES[0]]["value"]]
    ahead = dict.fromkeys(("value", "low", "high"), ends)
    limits = [2.0 / (1.5 ** (1.0 - alpha) + 0.5 ** (1.0 - alpha)) for alpha in (0.5, 0.9)]
    return {
        "command": "alphafair reproduce --jobs 2 && echo done",
        "versions": {"alphafair": "0.0", "python": "3.11", "numpy": "2.0", "numba": "0.60"},
        "data": {
            "name": f"made up {NASTY}",
            "stand_in": stand_in,
            "digest": "fedcba987654",
        },
        "claims": [
            {
                "id": f"A{place}",
                "experiment": "A",
                "source": PAPER,
                "independent": True,
                "claim": f"{ALPHA}-FairCB leads {NASTY}",
                "measured": "2 > 1",
                "verdict": verdict,
                "leads": {"2 above 1": {"value": 1.0, "low": 0.5, "high": 1.5}},
                "data": f"made up {NASTY}",
            }
            for place, verdict in enumerate(verdicts, start=1)
        ],
        "experiments": {
            "A": compared("Full information", full),
            "B": compared("Bandit feedback", bandit),
            "C": {
                "title": f"Many values of {ALPHA}",
                "digest": "ccc",
                "data": f"made up {NASTY}",
                "seeds": [0],
                "settings": {"rows": None, "min_ratings": 500 if stand_in else 5000, "reward_floor": 0.2},
                "n_rounds": 5000,
                "n_contexts": 3,
                "n_arms": len(ARMS),
                "alphas": alphas.tolist(),
                "jain_index": metrics.jain_index(earned).tolist(),
                "average_reward": metrics.average_reward(earned).tolist(),
                "final_accounts": earned.tolist(),
                "arm_labels": list(ARMS),
            },
            "floor_sweep": {
                "title": "FairCB along its floor",
                "alpha": EXPONENT,
                "n_rounds": 1000,
                "n_contexts": 4,
                "n_arms": len(ARMS),
                "arm_labels": list(ARMS),
                "digest": "fff",
                "seeds": list(range(30)),
                "settings": {"rows": 1000, "min_ratings": None, "reward_floor": 0.2},
                "floors": floors,
                "maxima": [end + 1.0 for end in sweep[SERIES[0]]["value"]],
                "fair_cb": {"bandit": sweep, "full": sweep},
                "alpha_fair": {"full": level, "bandit": level},
                "ahead": {"full": ahead, "bandit": ahead},
            },
            "impossibility": {
                "title": "Nobody can win",
                "digest": "iii",
                "seeds": [0, 1, 2, 3],
                "halves": [10, 100, 1000],
                "alphas": [0.5, 0.9],
                "limits": limits,
                "ratios": [[limit * (1.0 - 0.1 / n) for n in (10, 100, 1000)] for limit in limits],
            },
            "sign": {
                **experiment("The sign", sign, 30),
                "toy": {
                    "title": "Three arms",
                    "digest": "ttt",
                    "alpha": 0.0,
                    "n_rounds": 1000,
                    "n_contexts": 1,
                    "n_arms": 3,
                    "seeds": list(range(30)),
                    "arms": [0.9, 0.5, 0.1],
                    "shares": {
                        f"{ALPHA}-FairCB (bandit)": [0.95, 0.03, 0.02],
                        "published sign": [0.02, 0.03, 0.95],
                        "uniform": [1 / 3, 1 / 3, 1 / 3],
                    },
                },
            },
            "step": experiment("Steps", [full[0], ("published step", "published-step", "full", 0.9, 1), full[-1]], 1),
            "delta": {
                **experiment("Rewards", [full[0], full[-1]], 1),
                "settings": {"rows": 1000, "min_ratings": None, "reward_floor": 0.001},
            },
            "arena": [scenario("easy", (0.9, 0.5, 0.0)), scenario("hard", (0.1, 0.2, 0.0))],
            "readings": experiment("Readings", [(word, "alpha-fair", "full", skew, 1) for word, skew in readings], 1),
        },
    }
