"""From parts to `results.json`: one section an experiment, in plain numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from alphafair import metrics, streams
from alphafair.experiments.paper import FLOORS
from alphafair.experiments.run import Part, Ran, plain
from alphafair.experiments.value import Contender, Impossibility, Toy
from alphafair.offline import context_reward_totals, offline_optimum
from alphafair.policies import AlphaFair
from alphafair.simulation import simulate
from alphafair.types import Stream, Vector


def _band(samples: Vector) -> dict[str, Any]:
    return plain(metrics.average_over_seeds(samples))


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


def series(ran: Ran, contender: Contender, alpha: float, *, regrets: bool = True) -> dict[str, Any]:
    """Every metric over the recorded rounds, with bands over the seeds."""
    part = ran.part(contender, alpha)
    rewards = part.rewards
    found: dict[str, Any] = {
        "policy": contender.policy,
        "feedback": ran.feedback(contender).value,
        "settings": dict(contender.settings),
        "n_seeds": len(rewards),
        "alpha_performance": _band(metrics.alpha_performance(rewards, alpha)),
        "jain_index": _band(metrics.jain_index(rewards)),
        "average_reward": _band(metrics.average_reward(rewards)),
        "final_rewards": rewards[:, -1].mean(axis=0).tolist(),
        "pull_shares": (part.pulls / part.pulls.sum(axis=1, keepdims=True)).mean(axis=0).tolist(),
    }
    if regrets:
        optimum, _ = ran.optimum(alpha)
        uniform = uniform_rewards(ran.stream, part.rounds[-1:])
        found |= {
            "standard_regret": _band(metrics.standard_regret(optimum, rewards, alpha)),
            "approximate_regret": _band(metrics.approximate_regret(optimum, rewards, alpha)),
            "ratio": _band(metrics.performance_ratio(optimum, rewards, alpha)),
            "gap_closed": _band(metrics.gap_closed(optimum[-1:], uniform, rewards[:, -1:], alpha)[:, 0]),
        }
    return found


def _about(ran: Ran) -> dict[str, Any]:
    experiment, stream = ran.experiment, ran.stream
    return {
        "title": experiment.title,
        "digest": ran.digest,
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


def over_time(ran: Ran) -> dict[str, Any]:
    """Sections A, B, sign and readings."""
    (alpha,) = ran.experiment.alphas
    values, gaps = ran.optimum(alpha)
    contenders = ran.experiment.contenders
    return {
        **_about(ran),
        "alpha": alpha,
        "rounds": ran.part(contenders[0], alpha).rounds.tolist(),
        "optimum": {"values": values.tolist(), "gaps": gaps.tolist()},
        "contenders": {contender.label: series(ran, contender, alpha) for contender in contenders},
    }


def over_alpha(ran: Ran) -> dict[str, Any]:
    """Section C."""
    (contender,) = ran.experiment.contenders
    final = np.array([ran.part(contender, alpha).rewards[0, -1] for alpha in ran.experiment.alphas])
    return {
        **_about(ran),
        "alphas": list(ran.experiment.alphas),
        "jain_index": metrics.jain_index(final).tolist(),
        "average_reward": metrics.average_reward(final).tolist(),
        "final_rewards": final.tolist(),
    }


MEASURES = {
    "jain_index": lambda rewards, alpha: metrics.jain_index(rewards),
    "average_reward": lambda rewards, alpha: metrics.average_reward(rewards),
    "alpha_performance": metrics.alpha_performance,
}


def over_floor(ran: Ran) -> dict[str, Any]:
    """The floor sweep."""
    (alpha,) = ran.experiment.alphas
    fair, bandit, *sweep = ran.experiment.contenders

    def measured(parts: list[Part]) -> dict[str, Any]:
        found = {}
        for name, measure in MEASURES.items():
            bands = [metrics.average_over_seeds(measure(part.rewards[:, -1], alpha)) for part in parts]
            found[name] = {key: [float(getattr(band, key)) for band in bands] for key in ("mean", "low", "high")}
        return found

    def single(contender: Contender) -> dict[str, Any]:
        bands = measured([ran.part(contender, alpha)])
        return {name: {key: values[0] for key, values in band.items()} for name, band in bands.items()}

    parts = [ran.part(contender, alpha) for contender in sweep]
    return {
        **_about(ran),
        "alpha": alpha,
        "floors": list(FLOORS),
        "n_seeds": ran.experiment.n_seeds,
        "fair_cb": {"bandit": measured(parts[: len(FLOORS)]), "full": measured(parts[len(FLOORS) :])},
        "alpha_fair": {"full": single(fair), "bandit": single(bandit)},
    }


def impossibility(instance: Impossibility) -> dict[str, Any]:
    """OPT/ALG of alpha-FairCB on the two-context instance, against the limit no online policy can beat."""
    ratios = []
    for alpha in instance.alphas:
        row = []
        for n_half in instance.halves:
            found = []
            for seed in instance.seeds:
                stream = streams.impossibility(n_half, seed=seed)
                earned = simulate(AlphaFair(2, 2, alpha=alpha), stream).final
                optimum = offline_optimum(context_reward_totals(stream), alpha).value
                found.append(float(metrics.performance_ratio(optimum, earned, alpha)))
            row.append(float(np.mean(found)))
        ratios.append(row)
    limits = [2.0 / (1.5 ** (1.0 - alpha) + 0.5 ** (1.0 - alpha)) for alpha in instance.alphas]
    return {
        "title": "Why c_\u03b1 cannot be 1",
        "digest": instance.digest(),
        "seeds": len(instance.seeds),
        "halves": list(instance.halves),
        "alphas": list(instance.alphas),
        "limits": limits,
        "ratios": ratios,
    }


def toy(instance: Toy) -> dict[str, Any]:
    """How often each arm is pulled, over all seeds."""
    zeros = np.zeros(instance.n_rounds, dtype=np.int32)
    stream = Stream(zeros, zeros, np.array([instance.arms]))
    shares = {}
    for contender in instance.contenders:
        policy = contender.make(stream, 0.0)
        pulls = sum(simulate(policy.fresh(), stream, seed=seed).pulls for seed in instance.seeds)
        shares[contender.label] = (np.asarray(pulls) / np.sum(pulls)).tolist()
    return {"alpha": 0.0, "digest": instance.digest(), "arms": list(instance.arms), "shares": shares}
