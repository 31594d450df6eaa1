"""From parts to `results.json`: one section an experiment, in plain numbers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from alphafair import metrics
from alphafair.experiments.claims import UNIFORM, Samples, joint_leads
from alphafair.experiments.paper import FLOORS
from alphafair.experiments.run import read
from alphafair.experiments.tables import Part, part
from alphafair.experiments.value import Contender, Impossibility, Loaded, Toy, digest, optimum_key
from alphafair.types import Stream, Vector

PERFORMANCE = "alpha_performance"


def _band(samples: Vector) -> dict[str, Any]:
    return {key: np.asarray(value).tolist() for key, value in metrics.average_over_seeds(samples)._asdict().items()}


def _part(folder: Path, contender: Contender, alpha: float) -> Part:
    return part(read(folder, contender.key(alpha)))


def uniform_rewards(stream: Stream, rounds: NDArray[np.int64]) -> Vector:
    """R of uniform play after each of the rounds, in closed form: 1 + the sum of rewards over n."""
    totals = np.zeros(stream.n_arms)
    found, start = [], 0
    for stop in rounds:
        counts = np.bincount(stream.items[start:stop], minlength=len(stream.reward_table))
        totals = totals + counts @ stream.reward_table
        found.append(1.0 + totals / stream.n_arms)
        start = int(stop)
    return np.array(found)


def samples(loaded: Loaded, folder: Path) -> Samples:
    """Every metric of every contender, by seed and recorded round; against the optimum too, where it was recorded."""
    (alpha,) = loaded.experiment.alphas
    found: dict[str, dict[str, Vector]] = {}
    for contender in loaded.experiment.contenders:
        rewards = _part(folder, contender, alpha).rewards
        found[contender.label] = {
            "alpha_performance": metrics.alpha_performance(rewards, alpha),
            "jain_index": metrics.jain_index(rewards),
            "average_reward": metrics.average_reward(rewards),
        }
        if optimum_key(alpha) in loaded.tasks():
            best = read(folder, optimum_key(alpha))["value"].to_numpy()
            found[contender.label] |= {
                "standard_regret": metrics.standard_regret(best, rewards, alpha),
                "approximate_regret": metrics.approximate_regret(best, rewards, alpha),
                "ratio": metrics.performance_ratio(best, rewards, alpha),
            }
    return found


def _gap_closed(loaded: Loaded, best: float, rewards: Vector, measured: Samples) -> dict[str, Any]:
    """(ALG - UNI) / (OPT - UNI): what is drawn is measured from uniform play on the same seeds, as drawn.

    phi is concave, so rewards as drawn are worth less than as expected, whoever plays; uniform play closes nothing.
    """
    (alpha,) = loaded.experiment.alphas
    uniform = measured.get(UNIFORM)
    if uniform is not None and len(drawn := uniform[PERFORMANCE][:, -1]) > 1:
        ahead = metrics.alpha_performance(rewards, alpha) - drawn
        return _band(ahead / (best - drawn.mean()))  # the band of the lead, in other units
    expected = uniform_rewards(loaded.stream, np.array([loaded.stream.n_rounds]))[0]
    return _band(metrics.gap_closed(best, expected, rewards, alpha))


def _series(loaded: Loaded, folder: Path, contender: Contender, measured: Samples) -> dict[str, Any]:
    """Every metric over the recorded rounds, with bands over the seeds."""
    (alpha,) = loaded.experiment.alphas
    _, rewards, pulls = _part(folder, contender, alpha)
    best = float(read(folder, optimum_key(alpha))["value"][-1])
    return {
        "policy": contender.policy,
        "feedback": contender.make(loaded.stream, alpha).feedback.value,
        "settings": dict(contender.settings),
        "n_seeds": len(rewards),
        **{name: _band(values) for name, values in measured[contender.label].items()},
        "final_rewards": rewards[:, -1].mean(axis=0).tolist(),
        "pull_shares": (pulls / pulls.sum(axis=1, keepdims=True)).mean(axis=0).tolist(),
        "gap_closed": _gap_closed(loaded, best, rewards[:, -1], measured),
    }


def _about(loaded: Loaded, n_seeds: int) -> dict[str, Any]:
    experiment, stream = loaded.experiment, loaded.stream
    return {
        "title": experiment.title,
        "digest": digest(loaded),
        "n_rounds": stream.n_rounds,
        "n_contexts": stream.n_contexts,
        "n_arms": stream.n_arms,
        "arm_labels": list(stream.arm_labels or map(str, range(stream.n_arms))),
        "seeds": list(range(n_seeds)),
        "settings": {
            "rows": experiment.rows,
            "min_ratings": experiment.min_ratings,
            "reward_floor": experiment.reward_floor,
        },
    }


def _most_seeds(measured: Samples) -> int:
    return max(len(values) for each in measured.values() for values in each.values())


def over_time(loaded: Loaded, folder: Path, measured: Samples) -> dict[str, Any]:
    """Sections A and B, and those of the corrections."""
    (alpha,) = loaded.experiment.alphas
    best = read(folder, optimum_key(alpha))
    return {
        **_about(loaded, _most_seeds(measured)),
        "alpha": alpha,
        "rounds": best["round"].to_list(),
        "optimum": {"values": best["value"].to_list(), "gaps": best["gap"].to_list()},
        "contenders": {
            contender.label: _series(loaded, folder, contender, measured) for contender in loaded.experiment.contenders
        },
    }


def first(measured: Samples) -> dict[str, Any]:
    """Who ends best in each of the paper's four, and how far ahead of each of the others, seed by seed."""
    found = {}
    for metric in (PERFORMANCE, "approximate_regret", "jain_index", "standard_regret"):
        sign = -1.0 if metric.endswith("regret") else 1.0
        ends = {label: sign * each[metric][:, -1] for label, each in measured.items()}
        best = min(ends, key=lambda label: (-ends[label].mean(), label))
        ahead = {label: _band(ends[best] - ends[label]) for label in ends if label != best}
        found[metric] = {"label": best, "ahead": ahead}
    return found


def over_alpha(loaded: Loaded, folder: Path) -> dict[str, Any]:
    """Section C."""
    (contender,) = loaded.experiment.contenders
    final = np.array([_part(folder, contender, alpha).rewards[0, -1] for alpha in loaded.experiment.alphas])
    return {
        **_about(loaded, 1),
        "alphas": list(loaded.experiment.alphas),
        "jain_index": metrics.jain_index(final).tolist(),
        "average_reward": metrics.average_reward(final).tolist(),
        "final_rewards": final.tolist(),
    }


def over_floor(loaded: Loaded, measured: Samples) -> dict[str, Any]:
    """The floor sweep: bands at the end, as lists along the floors, and how far alpha-FairCB is ahead, seed by seed."""
    fair, bandit, *sweep = measured.values()
    swept = {"bandit": sweep[: len(FLOORS)], "full": sweep[len(FLOORS) :]}

    def ends(each: Mapping[str, Vector]) -> dict[str, Any]:
        return {name: _band(values[:, -1]) for name, values in each.items()}

    def along(bands: list[dict[str, Any]]) -> dict[str, Any]:
        return {side: [band[side] for band in bands] for side in bands[0]}

    def ahead(ours: Mapping[str, Vector], feedback: str) -> dict[str, Any]:
        what = {
            str(place): (ours[PERFORMANCE] - each[PERFORMANCE])[:, -1] for place, each in enumerate(swept[feedback])
        }
        return along([{"mean": one.mean, "low": one.low, "high": one.high} for one in joint_leads(what)])

    return {
        **_about(loaded, _most_seeds(measured)),
        "alpha": loaded.experiment.alphas[0],
        "floors": list(FLOORS),
        "fair_cb": {
            feedback: {name: along([ends(each)[name] for each in runs]) for name in fair}
            for feedback, runs in swept.items()
        },
        "alpha_fair": {"full": ends(fair), "bandit": ends(bandit)},
        "maxima": [float(each[PERFORMANCE][:, -1].max()) for each in swept["bandit"]],  # what the published code plots
        "ahead": {"full": ahead(fair, "full"), "bandit": ahead(bandit, "bandit")},
    }


def impossibility(instance: Impossibility, folder: Path) -> dict[str, Any]:
    """OPT/ALG of alpha-FairCB on the two-context instance, against the limit no online policy can beat."""
    return {
        "title": instance.title,
        "digest": digest(instance),
        "seeds": list(instance.seeds),
        "halves": list(instance.halves),
        "alphas": list(instance.alphas),
        "limits": [2.0 / (1.5 ** (1.0 - alpha) + 0.5 ** (1.0 - alpha)) for alpha in instance.alphas],
        "ratios": [
            [float(read(folder, instance.key(alpha, n_half))["ratio"].to_numpy().mean()) for n_half in instance.halves]
            for alpha in instance.alphas
        ],
    }


def pull_shares(instance: Toy, folder: Path) -> Samples:
    """How often each arm is pulled, by seed."""
    return {
        contender.label: {"pull_shares": _part(folder, contender, 0.0).pulls / instance.n_rounds}
        for contender in instance.contenders
    }


def toy(instance: Toy, measured: Samples) -> dict[str, Any]:
    """How often each arm is pulled, over all seeds."""
    return {
        "title": instance.title,
        "digest": digest(instance),
        "alpha": 0.0,
        "n_rounds": instance.n_rounds,
        "n_contexts": 1,
        "n_arms": len(instance.arms),
        "seeds": list(range(instance.n_seeds)),
        "arms": list(instance.arms),
        "shares": {label: each["pull_shares"].mean(axis=0).tolist() for label, each in measured.items()},
    }
