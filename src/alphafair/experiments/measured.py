"""From tables to values: every metric seed by seed, and the results of each experiment."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from alphafair import metrics
from alphafair.experiments import results
from alphafair.experiments.digests import digest
from alphafair.experiments.experiment import Contender, Impossibility, Loaded, Work, optimum_key
from alphafair.experiments.paper import FLOORS, UNIFORM
from alphafair.experiments.results import Band, Floats, Series
from alphafair.experiments.run import read
from alphafair.experiments.tables import Part, part
from alphafair.offline import context_reward_totals
from alphafair.types import Feedback, Matrix, Stream, Vector

Kind = TypeVar("Kind", bound=results.OverTime)
COMPARED = ("alpha_performance", "approximate_regret", "jain_index", "standard_regret")  # the paper's four


@dataclass(frozen=True)
class Measured:
    """Every metric of one contender, by seed and recorded round; against the optimum where that was recorded."""

    alpha_performance: Matrix
    jain_index: Matrix
    average_reward: Matrix
    standard_regret: Matrix | None = None
    approximate_regret: Matrix | None = None
    ratio: Matrix | None = None

    def ends(self, metric: str) -> Vector:
        """At the last round, by seed."""
        found: Matrix = getattr(self, metric)
        return found[:, -1]


Samples = Mapping[str, Measured]  # by label
Pulls = Mapping[str, Matrix]  # by label: the share of pulls by seed and arm


def band(samples: Vector, level: float = 0.95) -> Band:
    """Of one number by seed."""
    return Band(*map(float, metrics.average_over_seeds(samples, level=level)))


def series(samples: Matrix) -> Series:
    """Of one number by seed and round."""
    return Series(*(tuple(side.tolist()) for side in metrics.average_over_seeds(samples)))


def joint_bands(samples: Mapping[str, Vector]) -> dict[str, Band]:
    """Intervals that hold together with 95%, by Bonferroni: of k that are random, each with 1 - 5% / k."""
    n_random = sum(len(values) > 1 for values in samples.values())
    return {name: band(values, 1.0 - 0.05 / max(n_random, 1)) for name, values in samples.items()}


def _floats(values: Vector) -> Floats:
    return tuple(values.tolist())


def _part(folder: Path, contender: Contender, alpha: float) -> Part:
    return part(read(folder, contender.key(alpha)))


def uniform_rewards(stream: Stream) -> Vector:
    """R of uniform play after all rounds, in closed form: 1 + the sum of rewards over n."""
    counts = np.bincount(stream.items, minlength=len(stream.reward_table))
    earned: Vector = 1.0 + counts @ stream.reward_table / stream.n_arms
    return earned


def samples(loaded: Loaded, folder: Path) -> Samples:
    """Every metric of every contender; against the optimum too, where it was recorded."""
    alpha, found = loaded.alpha, {}
    best = read(folder, optimum_key(alpha))["value"].to_numpy() if optimum_key(alpha) in loaded.tasks() else None
    against = (metrics.standard_regret, metrics.approximate_regret, metrics.performance_ratio)
    for contender in loaded.contenders:
        rewards = _part(folder, contender, alpha).rewards
        found[contender.label] = Measured(
            metrics.alpha_performance(rewards, alpha),
            metrics.jain_index(rewards),
            metrics.average_reward(rewards),
            *(() if best is None else (metric(best, rewards, alpha) for metric in against)),
        )
    return found


def has_room(optimum: float, certificate: float, uniform: float) -> bool:
    """Whether the optimum is above uniform play for certain, rounding apart: else there is nothing to be learned."""
    return optimum - uniform > certificate + 1e-9 * optimum


def _gap_closed(loaded: Loaded, best: float, certificate: float, rewards: Matrix, measured: Samples) -> Band:
    """(ALG - UNI) / (OPT - UNI): what is drawn is measured from uniform play on the same seeds, as drawn.

    phi is concave, so rewards as drawn are worth less than as expected, whoever plays; uniform play closes nothing.
    Where the optimum is not above uniform play nobody does.
    """
    alpha = loaded.alpha
    drawn = measured[UNIFORM.label].ends("alpha_performance") if UNIFORM.label in measured else np.empty(0)
    expected = uniform_rewards(loaded.stream)
    level = float(drawn.mean() if len(drawn) > 1 else metrics.alpha_performance(expected, alpha))
    if not has_room(best, certificate, level):
        return Band(0.0, 0.0, 0.0)
    if len(drawn) > 1:  # the band of the lead, in other units
        return band((metrics.alpha_performance(rewards, alpha) - drawn) / (best - drawn.mean()))
    return band(metrics.gap_closed(best, expected, rewards, alpha))


def _outcome(loaded: Loaded, folder: Path, contender: Contender, measured: Samples) -> results.Outcome:
    """Every metric over the recorded rounds, with bands over the seeds."""
    alpha = loaded.alpha
    rewards, pulls = _part(folder, contender, alpha)
    best = read(folder, optimum_key(alpha)).row(-1, named=True)
    feedback = contender.make(loaded.stream, alpha).feedback
    return results.Outcome(
        policy=contender.policy,
        feedback=feedback.value,
        settings=dict(contender.settings),
        n_seeds=len(rewards),
        final_rewards=_floats(rewards[:, -1].mean(axis=0)),
        pull_shares=_floats((pulls / pulls.sum(axis=1, keepdims=True)).mean(axis=0)),
        gap_closed=_gap_closed(loaded, best["value"], best["gap"], rewards[:, -1], measured),
        certificates=_certificates(loaded, rewards[0, -1]) if feedback is Feedback.FULL else None,
        **{name: series(values) for name, values in vars(measured[contender.label]).items()},
    )


def _certificates(loaded: Loaded, earned: Vector) -> dict[str, float]:
    """What this very run cannot exceed, whatever the optimum is: known from what was seen and earned alone."""
    bounds = metrics.certificates(context_reward_totals(loaded.stream), earned, loaded.alpha)
    regrets = {"standard_regret": bounds.standard_regret, "approximate_regret": bounds.approximate_regret}
    return {"ratio": bounds.performance_ratio, **regrets}


def about(work: Work, stream: Stream, n_seeds: int) -> dict[str, Any]:
    """What any results on some rounds begin with."""
    sizes = {"n_rounds": stream.n_rounds, "n_contexts": stream.n_contexts, "n_arms": stream.n_arms}
    return {"title": work.title, "digest": digest(work), "seeds": tuple(range(n_seeds)), **sizes}


def _about_ratings(loaded: Loaded, n_seeds: int) -> dict[str, Any]:
    stream = loaded.stream
    labels = tuple(stream.arm_labels or map(str, range(stream.n_arms)))
    rows = results.Rows(loaded.rows, loaded.min_ratings, loaded.reward_floor)
    return {**about(loaded, stream, n_seeds), "arm_labels": labels, "settings": rows}


def _most_seeds(measured: Samples) -> int:
    return max(len(each.alpha_performance) for each in measured.values())


def over_time(kind: type[Kind], loaded: Loaded, folder: Path, measured: Samples, **more: Any) -> Kind:
    """Experiments A and B, and those of the corrections."""
    alpha = loaded.alpha
    best = read(folder, optimum_key(alpha))
    return kind(
        **_about_ratings(loaded, _most_seeds(measured)),
        alpha=alpha,
        rounds=tuple(best["round"].to_list()),
        optimum=results.Optimum(tuple(best["value"].to_list()), tuple(best["gap"].to_list())),
        contenders={each.label: _outcome(loaded, folder, each, measured) for each in loaded.contenders},
        **more,
    )


def first(measured: Samples) -> dict[str, results.First]:
    """Who ends best in each of the paper's four, and how far ahead of each of the others, seed by seed."""
    found = {}
    for metric in COMPARED:
        sign = -1.0 if metric.endswith("regret") else 1.0
        ends = {label: sign * each.ends(metric) for label, each in measured.items()}
        best = min(ends, key=lambda label: (-ends[label].mean(), label))
        ahead = {label: band(ends[best] - ends[label]) for label in ends if label != best}
        found[metric] = results.First(best, ahead)
    return found


def over_alpha(loaded: Loaded, folder: Path, data: str) -> results.OverAlpha:
    """Experiment C."""
    (contender,) = loaded.contenders
    final = np.array([_part(folder, contender, alpha).rewards[0, -1] for alpha in loaded.alphas])
    return results.OverAlpha(
        **_about_ratings(loaded, 1),
        data=data,
        alphas=loaded.alphas,
        jain_index=_floats(metrics.jain_index(final)),
        average_reward=_floats(metrics.average_reward(final)),
        final_rewards=tuple(map(_floats, final)),
    )


def over_floor(loaded: Loaded, measured: Samples) -> results.OverFloor:
    """The floor sweep: where everybody ends, and how far alpha-FairCB is ahead of every floor, seed by seed."""
    fair, bandit, *sweep = measured.values()
    ours = {"full": fair, "bandit": bandit}
    swept = {"full": sweep[len(FLOORS) :], "bandit": sweep[: len(FLOORS)]}

    def ends(each: Measured) -> dict[str, Band]:
        return {name: band(each.ends(name)) for name in ("alpha_performance", "jain_index", "average_reward")}

    def ahead(feedback: str) -> Series:
        level = ours[feedback].ends("alpha_performance")
        leads = {str(k): level - each.ends("alpha_performance") for k, each in enumerate(swept[feedback])}
        return Series.along([*joint_bands(leads).values()])

    def along(runs: list[Measured]) -> dict[str, Series]:
        found = [ends(each) for each in runs]
        return {name: Series.along([each[name] for each in found]) for name in found[0]}

    return results.OverFloor(
        **_about_ratings(loaded, _most_seeds(measured)),
        alpha=loaded.alpha,
        floors=FLOORS,
        fair_cb={feedback: along(runs) for feedback, runs in swept.items()},
        alpha_fair={feedback: ends(each) for feedback, each in ours.items()},
        ahead={feedback: ahead(feedback) for feedback in ours},
        maxima=tuple(float(each.ends("alpha_performance").max()) for each in swept["bandit"]),
    )


def impossibility(instance: Impossibility, folder: Path) -> results.Limits:
    """OPT/ALG of alpha-FairCB on the two-context instance, against the limit no online policy can beat."""

    def ratio(alpha: float, n_half: int) -> float:
        return float(read(folder, instance.key(alpha, n_half))["ratio"].to_numpy().mean())

    return results.Limits(
        title=instance.title,
        digest=digest(instance),
        seeds=instance.seeds,
        halves=instance.halves,
        alphas=instance.alphas,
        limits=tuple(2.0 / (1.5 ** (1.0 - alpha) + 0.5 ** (1.0 - alpha)) for alpha in instance.alphas),
        ratios=tuple(tuple(ratio(alpha, n_half) for n_half in instance.halves) for alpha in instance.alphas),
    )


def pulls(toy: Loaded, folder: Path) -> Pulls:
    """How often each arm is pulled, by seed."""
    return {each.label: _part(folder, each, toy.alpha).pulls / toy.stream.n_rounds for each in toy.contenders}


def pull_shares(toy: Loaded, pulled: Pulls) -> results.PullShares:
    """How often each arm is pulled, over all seeds."""
    return results.PullShares(
        **about(toy, toy.stream, toy.n_seeds),
        alpha=toy.alpha,
        arms=_floats(toy.stream.reward_table[0]),
        shares={label: _floats(each.mean(axis=0)) for label, each in pulled.items()},
    )
