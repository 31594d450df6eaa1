"""From tables to values: every metric seed by seed, and the results of each experiment."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import polars as pl

from alphafair import metrics
from alphafair.experiments import results
from alphafair.experiments.experiment import Contender, Loaded, optimum_key
from alphafair.experiments.match import Match
from alphafair.experiments.paper import FLOORS, LIMIT, UNIFORM
from alphafair.experiments.results import Band, Floats, Series
from alphafair.experiments.run import Work, digest, read, short_digest
from alphafair.offline import context_reward_totals
from alphafair.types import Feedback, Matrix, Stream, Vector

Kind = TypeVar("Kind", bound=results.OverTime)
Samples = dict[str, dict[str, Matrix]]  # by label, by metric: by seed and recorded round
Pulls = Mapping[str, Matrix]  # by label: the share of pulls by seed and arm
COMPARED = ("alpha_performance", "approximate_regret", "jain_index", "standard_regret")  # the paper's four


@dataclass(frozen=True)
class Run:
    """An experiment on its rounds, and the folder of its tables."""

    plan: Loaded
    folder: Path

    def part(self, contender: Contender, alpha: float) -> tuple[Vector, Vector]:
        """What one contender did: R by seed, recorded round and arm, and pulls by seed and arm."""
        table = read(self.folder, contender.key(alpha))
        shape = tuple(table[name].n_unique() for name in ("seed", "round", "arm"))
        rewards, pulls = (table[name].to_numpy().reshape(shape) for name in ("reward", "pulls"))
        return rewards, pulls[:, -1].astype(np.float64)

    @cached_property
    def optimum(self) -> pl.DataFrame:
        """Its value and its gap at every recorded round."""
        return read(self.folder, optimum_key(self.plan.alpha))

    @cached_property
    def samples(self) -> Samples:
        """Every metric of every contender; over time against the optimum too."""
        alpha, found = self.plan.alpha, {}
        for contender in self.plan.contenders:
            rewards, _ = self.part(contender, alpha)
            found[contender.label] = {
                "alpha_performance": metrics.alpha_performance(rewards, alpha),
                "jain_index": metrics.jain_index(rewards),
                "average_reward": metrics.average_reward(rewards),
            }
            if self.plan.n_records > 1:
                best = self.optimum["value"].to_numpy()
                found[contender.label] |= {
                    "standard_regret": metrics.standard_regret(best, rewards, alpha),
                    "approximate_regret": metrics.approximate_regret(best, rewards, alpha),
                    "ratio": metrics.performance_ratio(best, rewards, alpha),
                }
        return found

    def about(self) -> dict[str, Any]:
        """What results on ratings begin with."""
        plan, stream = self.plan, self.plan.stream
        seen = {contender.make(stream, plan.alphas[0]).feedback for contender in plan.contenders}
        n_seeds = plan.n_seeds if Feedback.BANDIT in seen else 1
        labels = tuple(stream.arm_labels or map(str, range(stream.n_arms)))
        rows = results.Rows(plan.rows, plan.min_ratings, plan.reward_floor)
        return {**about(plan, stream, n_seeds), "arm_labels": labels, "settings": rows}


def about(work: Work, stream: Stream, n_seeds: int) -> dict[str, Any]:
    """What any results on some rounds begin with."""
    sizes = {"n_rounds": stream.n_rounds, "n_contexts": stream.n_contexts, "n_arms": stream.n_arms}
    return {"title": work.title, "digest": digest(work), "seeds": tuple(range(n_seeds)), **sizes}


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


def uniform_rewards(stream: Stream) -> Vector:
    """R of uniform play after all rounds, in closed form: 1 + the sum of rewards over n."""
    counts = np.bincount(stream.items, minlength=len(stream.reward_table))
    earned: Vector = 1.0 + counts @ stream.reward_table / stream.n_arms
    return earned


def has_room(optimum: float, certificate: float, uniform: float) -> bool:
    """Whether the optimum is above uniform play for certain, rounding apart: else there is nothing to be learned."""
    return optimum - uniform > certificate + 1e-9 * optimum


def _gap_closed(run: Run, rewards: Matrix) -> Band:
    """(ALG - UNI) / (OPT - UNI): what is drawn is measured from uniform play on the same seeds, as drawn.

    phi is concave, so rewards as drawn are worth less than as expected, whoever plays; uniform play closes nothing.
    Where the optimum is not above uniform play nobody does.
    """
    alpha, (_, best, certificate) = run.plan.alpha, run.optimum.row(-1)
    drawn = run.samples[UNIFORM.label]["alpha_performance"][:, -1] if UNIFORM.label in run.samples else np.empty(0)
    expected = uniform_rewards(run.plan.stream)
    level = float(drawn.mean() if len(drawn) > 1 else metrics.alpha_performance(expected, alpha))
    if not has_room(best, certificate, level):
        return Band(0.0, 0.0, 0.0)
    if len(drawn) > 1:  # the band of the lead, in other units
        return band((metrics.alpha_performance(rewards, alpha) - drawn) / (best - drawn.mean()))
    return band(metrics.gap_closed(best, expected, rewards, alpha))


def _outcome(run: Run, contender: Contender) -> results.Outcome:
    """Every metric over the recorded rounds, with bands over the seeds."""
    alpha, stream = run.plan.alpha, run.plan.stream
    rewards, pulls = run.part(contender, alpha)
    feedback = contender.make(stream, alpha).feedback
    certificates = None
    if feedback is Feedback.FULL:  # what this very run cannot exceed: known from what was seen and earned alone
        bounds = metrics.certificates(context_reward_totals(stream), rewards[0, -1], alpha)
        regrets = {"standard_regret": bounds.standard_regret, "approximate_regret": bounds.approximate_regret}
        certificates = {"ratio": bounds.performance_ratio, **regrets}
    return results.Outcome(
        policy=contender.policy,
        feedback=feedback.value,
        settings=dict(contender.settings),
        n_seeds=len(rewards),
        final_rewards=_floats(rewards[:, -1].mean(axis=0)),
        pull_shares=_floats((pulls / pulls.sum(axis=1, keepdims=True)).mean(axis=0)),
        gap_closed=_gap_closed(run, rewards[:, -1]),
        certificates=certificates,
        **{metric: series(values) for metric, values in run.samples[contender.label].items()},
    )


def over_time(kind: type[Kind], run: Run, **more: Any) -> Kind:
    """Experiments A and B, and those of the corrections."""
    rounds, values, gaps = (tuple(column.to_list()) for column in run.optimum)
    return kind(
        **run.about(),
        alpha=run.plan.alpha,
        rounds=rounds,
        optimum=results.Optimum(values, gaps),
        contenders={each.label: _outcome(run, each) for each in run.plan.contenders},
        **more,
    )


def first(samples: Samples) -> dict[str, results.First]:
    """Who ends best in each of the paper's four, and how far ahead of each of the others, seed by seed."""
    found = {}
    for metric in COMPARED:
        sign = -1.0 if metric.endswith("regret") else 1.0
        ends = {label: sign * each[metric][:, -1] for label, each in samples.items()}
        best = min(ends, key=lambda label: (-ends[label].mean(), label))
        ahead = {label: band(ends[best] - ends[label]) for label in ends if label != best}
        found[metric] = results.First(best, ahead)
    return found


def over_alpha(run: Run, data: str) -> results.OverAlpha:
    """Experiment C."""
    (contender,), alphas = run.plan.contenders, run.plan.alphas
    final = np.array([run.part(contender, alpha)[0][0, -1] for alpha in alphas])
    return results.OverAlpha(
        **run.about(),
        data=data,
        alphas=alphas,
        jain_index=_floats(metrics.jain_index(final)),
        average_reward=_floats(metrics.average_reward(final)),
        final_rewards=tuple(map(_floats, final)),
    )


def over_floor(run: Run) -> results.OverFloor:
    """The floor sweep: where everybody ends, and how far alpha-FairCB is ahead of every floor, seed by seed."""
    fair, bandit, *sweep = ({metric: values[:, -1] for metric, values in each.items()} for each in run.samples.values())
    ours = {"full": fair, "bandit": bandit}
    swept = {"full": sweep[len(FLOORS) :], "bandit": sweep[: len(FLOORS)]}

    def ahead(feedback: str) -> Series:
        level = ours[feedback]["alpha_performance"]
        leads = {str(k): level - each["alpha_performance"] for k, each in enumerate(swept[feedback])}
        return Series.along([*joint_bands(leads).values()])

    return results.OverFloor(
        **run.about(),
        alpha=run.plan.alpha,
        floors=FLOORS,
        fair_cb={
            feedback: {metric: Series.along([band(each[metric]) for each in ends]) for metric in fair}
            for feedback, ends in swept.items()
        },
        alpha_fair={
            feedback: {metric: band(values) for metric, values in ends.items()} for feedback, ends in ours.items()
        },
        ahead={feedback: ahead(feedback) for feedback in ours},
        maxima=tuple(float(each["alpha_performance"].max()) for each in swept["bandit"]),
    )


def impossibility(matches: Sequence[Match], folders: Sequence[Path]) -> results.Limits:
    """OPT/ALG of alpha-FairCB on the two-context instance, against the limit no online policy can beat."""
    alphas = matches[0].alphas

    def ratio(match: Match, folder: Path, alpha: float) -> float:
        """The mean over the seeds."""
        played = [read(folder, task).filter(alpha=alpha) for task in match.tasks()]
        found = [metrics.performance_ratio(each["optimum"][0], each["reward"].to_numpy(), alpha) for each in played]
        return float(np.mean(found))

    pairs = list(zip(matches, folders, strict=True))
    return results.Limits(
        title=LIMIT,
        digest=short_digest([digest(match) for match in matches]),
        seeds=tuple(range(matches[0].course.n_seeds)),
        halves=tuple(dict(match.course.settings)["n_half"] for match in matches),
        alphas=alphas,
        limits=tuple(2.0 / (1.5 ** (1.0 - alpha) + 0.5 ** (1.0 - alpha)) for alpha in alphas),
        ratios=tuple(tuple(ratio(*pair, alpha) for pair in pairs) for alpha in alphas),
    )


def pulls(toy: Run) -> Pulls:
    """How often each arm is pulled, by seed."""
    plan = toy.plan
    return {each.label: toy.part(each, plan.alpha)[1] / plan.stream.n_rounds for each in plan.contenders}


def pull_shares(toy: Loaded, pulled: Pulls) -> results.PullShares:
    """How often each arm is pulled, over all seeds."""
    return results.PullShares(
        **about(toy, toy.stream, toy.n_seeds),
        alpha=toy.alpha,
        arms=_floats(toy.stream.reward_table[0]),
        shares={label: _floats(each.mean(axis=0)) for label, each in pulled.items()},
    )
