"""From parts to `results.json`: one section an experiment, in plain numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from alphafair import metrics
from alphafair.experiments.paper import FLOORS
from alphafair.experiments.run import read
from alphafair.experiments.tables import Part, part
from alphafair.experiments.value import Contender, Impossibility, Loaded, Toy, digest, optimum_key
from alphafair.types import Stream, Vector


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


def series(stream: Stream, contender: Contender, alpha: float, optimum: Vector, folder: Path) -> dict[str, Any]:
    """Every metric over the recorded rounds, with bands over the seeds."""
    rounds, rewards, pulls = _part(folder, contender, alpha)
    uniform = uniform_rewards(stream, rounds[-1:])
    return {
        "policy": contender.policy,
        "feedback": contender.make(stream, alpha).feedback.value,
        "settings": dict(contender.settings),
        "n_seeds": len(rewards),
        "alpha_performance": _band(metrics.alpha_performance(rewards, alpha)),
        "jain_index": _band(metrics.jain_index(rewards)),
        "average_reward": _band(metrics.average_reward(rewards)),
        "final_rewards": rewards[:, -1].mean(axis=0).tolist(),
        "pull_shares": (pulls / pulls.sum(axis=1, keepdims=True)).mean(axis=0).tolist(),
        "standard_regret": _band(metrics.standard_regret(optimum, rewards, alpha)),
        "approximate_regret": _band(metrics.approximate_regret(optimum, rewards, alpha)),
        "ratio": _band(metrics.performance_ratio(optimum, rewards, alpha)),
        "gap_closed": _band(metrics.gap_closed(optimum[-1:], uniform, rewards[:, -1:], alpha)[:, 0]),
    }


def _about(loaded: Loaded) -> dict[str, Any]:
    experiment, stream = loaded.experiment, loaded.stream
    return {
        "title": experiment.title,
        "digest": digest(loaded),
        "n_rounds": stream.n_rounds,
        "n_contexts": stream.n_contexts,
        "n_arms": stream.n_arms,
        "arm_labels": list(stream.arm_labels or map(str, range(stream.n_arms))),
        "seeds": experiment.n_seeds,
        "settings": {
            "rows": experiment.rows,
            "min_ratings": experiment.min_ratings,
            "reward_floor": experiment.reward_floor,
        },
    }


def over_time(loaded: Loaded, folder: Path) -> dict[str, Any]:
    """Sections A, B, sign and readings."""
    (alpha,) = loaded.experiment.alphas
    best = read(folder, optimum_key(alpha))
    values = best["value"].to_numpy()
    return {
        **_about(loaded),
        "alpha": alpha,
        "rounds": best["round"].to_list(),
        "optimum": {"values": values.tolist(), "gaps": best["gap"].to_list()},
        "contenders": {
            contender.label: series(loaded.stream, contender, alpha, values, folder)
            for contender in loaded.experiment.contenders
        },
    }


def over_alpha(loaded: Loaded, folder: Path) -> dict[str, Any]:
    """Section C."""
    (contender,) = loaded.experiment.contenders
    final = np.array([_part(folder, contender, alpha).rewards[0, -1] for alpha in loaded.experiment.alphas])
    return {
        **_about(loaded),
        "alphas": list(loaded.experiment.alphas),
        "jain_index": metrics.jain_index(final).tolist(),
        "average_reward": metrics.average_reward(final).tolist(),
        "final_rewards": final.tolist(),
    }


MEASURES = {
    "jain_index": lambda rewards, alpha: metrics.jain_index(rewards),
    "average_reward": lambda rewards, alpha: metrics.average_reward(rewards),
    "alpha_performance": metrics.alpha_performance,
}


def over_floor(loaded: Loaded, folder: Path) -> dict[str, Any]:
    """The floor sweep."""
    (alpha,) = loaded.experiment.alphas
    fair, bandit, *sweep = loaded.experiment.contenders

    def measured(parts: list[Part]) -> dict[str, Any]:
        found = {}
        for name, measure in MEASURES.items():
            bands = [metrics.average_over_seeds(measure(part.rewards[:, -1], alpha)) for part in parts]
            found[name] = {key: [float(getattr(band, key)) for band in bands] for key in ("mean", "low", "high")}
        return found

    def single(contender: Contender) -> dict[str, Any]:
        bands = measured([_part(folder, contender, alpha)])
        return {name: {key: values[0] for key, values in band.items()} for name, band in bands.items()}

    parts = [_part(folder, contender, alpha) for contender in sweep]
    return {
        **_about(loaded),
        "alpha": alpha,
        "floors": list(FLOORS),
        "n_seeds": loaded.experiment.n_seeds,
        "fair_cb": {"bandit": measured(parts[: len(FLOORS)]), "full": measured(parts[len(FLOORS) :])},
        "alpha_fair": {"full": single(fair), "bandit": single(bandit)},
    }


def impossibility(instance: Impossibility, folder: Path) -> dict[str, Any]:
    """OPT/ALG of alpha-FairCB on the two-context instance, against the limit no online policy can beat."""
    return {
        "title": instance.title,
        "digest": digest(instance),
        "seeds": len(instance.seeds),
        "halves": list(instance.halves),
        "alphas": list(instance.alphas),
        "limits": [2.0 / (1.5 ** (1.0 - alpha) + 0.5 ** (1.0 - alpha)) for alpha in instance.alphas],
        "ratios": [
            [float(read(folder, instance.key(alpha, n_half))["ratio"].to_numpy().mean()) for n_half in instance.halves]
            for alpha in instance.alphas
        ],
    }


def toy(instance: Toy, folder: Path) -> dict[str, Any]:
    """How often each arm is pulled, over all seeds."""
    shares = {
        contender.label: (_part(folder, contender, 0.0).pulls / instance.n_rounds).mean(axis=0).tolist()
        for contender in instance.contenders
    }
    return {"alpha": 0.0, "digest": digest(instance), "arms": list(instance.arms), "shares": shares}
