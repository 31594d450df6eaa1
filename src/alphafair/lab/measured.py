"""From tables to values: every metric seed by seed, and the results of each experiment."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from alphafair import metrics
from alphafair.evaluation.estimates import possible
from alphafair.groups import Groups
from alphafair.lab import results
from alphafair.lab.experiment import Contender, Experiment
from alphafair.lab.match import Match
from alphafair.lab.paper import ALPHA_FAIR, ALPHA_FAIR_BANDIT, FLOORS, LIMIT, UNIFORM
from alphafair.lab.results import Band
from alphafair.lab.run import Work, short_digest
from alphafair.offline import context_reward_totals
from alphafair.values import Feedback, Matrix, Stream, Vector

Tables = Mapping[str, pl.DataFrame]
Samples = dict[str, dict[str, Matrix]]  # by label, by metric: by seed and recorded round
COMPARED = ("alpha_performance", "approximate_regret", "jain_index", "standard_regret")  # the paper's four
AT_THE_END = ("alpha_performance", "jain_index", "average_reward")  # what needs no optimum


@dataclass(frozen=True)
class Run:
    """An experiment on its rounds, and its tables."""

    plan: Experiment
    stream: Stream
    tables: Tables

    def played(self, contender: Contender, alpha: float) -> tuple[Vector, Matrix]:
        """What one contender did: R by seed, recorded round and arm, and shares of pulls by seed and arm."""
        table = self.tables[f"{contender.key}-{alpha:g}"]
        shape = (table["seed"].n_unique(), -1, self.stream.n_arms)
        accounts, pulls = (table[name].to_numpy().reshape(shape) for name in ("accounts", "pulls"))
        return accounts, pulls[:, -1] / self.stream.n_rounds

    @cached_property
    def optimum(self) -> pl.DataFrame:
        """Its value and its gap at every recorded round."""
        return self.tables[f"optimum-{self.plan.alpha:g}"]

    @cached_property
    def samples(self) -> Samples:
        """Every metric of every contender, over time against the optimum too; and shares of pulls, by seed and arm."""
        alpha, found = self.plan.alpha, {}
        for contender in self.plan.contenders:
            accounts, pull_shares = self.played(contender, alpha)
            found[contender.label] = {
                "pull_shares": pull_shares,
                "alpha_performance": metrics.alpha_performance(accounts, alpha),
                "jain_index": metrics.jain_index(accounts),
                "average_reward": metrics.average_reward(accounts),
            }
            if self.plan.n_records > 1:
                best = self.optimum["value"].to_numpy()
                found[contender.label] |= {
                    "standard_regret": metrics.standard_regret(best, accounts, alpha),
                    "approximate_regret": metrics.approximate_regret(best, accounts, alpha),
                    "ratio": metrics.performance_ratio(best, accounts, alpha),
                }
        return found

    def about(self) -> dict[str, Any]:
        """What results on ratings begin with."""
        plan, labels = self.plan, self.stream.arm_labels
        n_seeds = plan.n_seeds if Feedback.BANDIT in {each.feedback for each in plan.contenders} else 1
        return {
            **about(plan.on(self.stream), self.stream, n_seeds),
            "arm_labels": tuple(labels or map(str, range(self.stream.n_arms))),
            "settings": {name: getattr(plan, name) for name in ("rows", "min_ratings", "reward_floor")},
        }


def about(work: Work, stream: Stream, n_seeds: int) -> dict[str, Any]:
    """What any results on some rounds begin with."""
    sizes = {"n_rounds": stream.n_rounds, "n_contexts": stream.n_contexts, "n_arms": stream.n_arms}
    return {"title": work.title, "digest": work.digest, "seeds": tuple(range(n_seeds)), **sizes}


def band(samples: Matrix, level: float = 0.95, within: tuple[float, float] = (-math.inf, math.inf)) -> Band:
    """Of numbers by seed, or by seed and round; it ends where the number cannot be."""
    return Band(*metrics.average_over_seeds(samples, level=level, within=within))


def metric_band(metric: str, samples: Matrix, n_arms: int, alpha: float) -> Band:
    """Of a metric of R, which begins with 1 and never falls: no band of Jain's index reaches below 1/n or above 1."""
    known = metric in AT_THE_END
    return band(samples, within=possible(metric, Groups().for_arms(n_arms), alpha)) if known else band(samples)


def along(bands: Iterable[Band]) -> Band:
    """One of arrays."""
    return Band(*np.transpose([*bands]))


def joint_bands(samples: Mapping[str, Vector]) -> dict[str, Band]:
    """Intervals that hold together with 95%, by Bonferroni: of k that are random, each with 1 - 5% / k."""
    n_random = sum(len(values) > 1 for values in samples.values())
    return {name: band(values, 1.0 - 0.05 / max(n_random, 1)) for name, values in samples.items()}


def uniform_accounts(stream: Stream) -> Vector:
    """R of uniform play after all rounds, in closed form: 1 + the sum of rewards over n."""
    counts = np.bincount(stream.items, minlength=len(stream.reward_table))
    accounts: Vector = 1.0 + counts @ stream.reward_table / stream.n_arms
    return accounts


def has_room(optimum: float, certificate: float, uniform: float) -> bool:
    """Whether the optimum is above uniform play for certain, rounding apart: else there is nothing to be learned."""
    return optimum - uniform > certificate + 1e-9 * optimum


def _gap_closed(run: Run, performance: Vector) -> Band | None:
    """(ALG - UNI) / (OPT - UNI): what is drawn is measured from uniform play on the same seeds, as drawn.

    phi is concave, so rewards as drawn are worth less than as expected, whoever plays; uniform play closes nothing.
    None where there is no gap to close.
    """
    _, best, certificate = run.optimum.row(-1)
    expected = uniform_accounts(run.stream)
    if not metrics.has_gap(best, expected, run.plan.alpha, certified=certificate):
        return None
    uniform = metrics.alpha_performance(expected[None], run.plan.alpha)
    drawn = run.samples.get(UNIFORM.label)
    if drawn is not None and len(drawn["alpha_performance"]) > 1:
        uniform = drawn["alpha_performance"][:, -1]
    return band((performance - uniform) / (best - uniform.mean()))


def _outcome(run: Run, contender: Contender) -> results.Outcome:
    """Every metric over the recorded rounds, with bands over the seeds."""
    alpha, certificates, vacuous = run.plan.alpha, None, None
    final = run.played(contender, alpha)[0][:, -1]
    samples = run.samples[contender.label]
    if contender.feedback is Feedback.FULL:  # what this very run cannot exceed: known from what it saw and earned alone
        bounds = metrics.certificates(context_reward_totals(run.stream), final[0], alpha)
        regrets = {"standard_regret": bounds.standard_regret, "approximate_regret": bounds.approximate_regret}
        certificates, vacuous = {"ratio": bounds.performance_ratio, **regrets}, bounds.vacuous or None
    return results.Outcome(
        label=contender.label,
        policy=contender.policy,
        feedback=contender.feedback.value,
        settings=dict(contender.settings),
        n_seeds=len(final),
        final_accounts=final.mean(axis=0),
        pull_shares=samples["pull_shares"].mean(axis=0),
        gap_closed=_gap_closed(run, samples["alpha_performance"][:, -1]),
        certificates=certificates,
        vacuous=vacuous,
        **{
            metric: metric_band(metric, values, run.stream.n_arms, alpha)
            for metric, values in samples.items()
            if metric != "pull_shares"
        },
    )


def over_time(run: Run) -> dict[str, Any]:
    """What results of experiments A and B, and of the corrections, have."""
    rounds, values, gaps = run.optimum
    return {
        **run.about(),
        "alpha": run.plan.alpha,
        "rounds": tuple(rounds),
        "optimum": results.Optimum(values.to_numpy(), gaps.to_numpy()),
        "contenders": {each.label: _outcome(run, each) for each in run.plan.contenders},
    }


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
    final = np.array([run.played(contender, alpha)[0][0, -1] for alpha in alphas])
    jain, average = metrics.jain_index(final), metrics.average_reward(final)
    return results.OverAlpha(
        **run.about(), data=data, alphas=alphas, jain_index=jain, average_reward=average, final_accounts=final
    )


def over_floor(run: Run) -> results.OverFloor:
    """The floor sweep: where everybody ends, and how far alpha-FairCB is ahead of every floor, seed by seed."""
    ours = {"full": ALPHA_FAIR.label, "bandit": ALPHA_FAIR_BANDIT.label}
    swept = {feedback: [f"{feedback} {share:g}" for share in FLOORS] for feedback in ours}

    def ends(label: str, metric: str = "alpha_performance") -> Vector:
        return run.samples[label][metric][:, -1]

    def end(label: str, metric: str) -> Band:
        return metric_band(metric, ends(label, metric), run.stream.n_arms, run.plan.alpha)

    def ahead(feedback: str) -> Band:
        level = ends(ours[feedback])
        return along(joint_bands({label: level - ends(label) for label in swept[feedback]}).values())

    return results.OverFloor(
        **run.about(),
        alpha=run.plan.alpha,
        floors=FLOORS,
        fair_cb={
            feedback: {metric: along(end(label, metric) for label in labels) for metric in AT_THE_END}
            for feedback, labels in swept.items()
        },
        alpha_fair={
            feedback: {metric: end(label, metric) for metric in AT_THE_END} for feedback, label in ours.items()
        },
        ahead={feedback: ahead(feedback) for feedback in ours},
        maxima=np.array([ends(label).max() for label in swept["bandit"]]),
    )


def impossibility(matches: Sequence[Match], played: Sequence[Tables]) -> results.Limits:
    """OPT/ALG of alpha-FairCB on the two-context instance, against the limit no online policy can beat."""
    alphas = matches[0].alphas

    def ratio(tables: Tables, alpha: float) -> float:
        """The mean over the seeds."""
        table = pl.concat(tables.values()).filter(alpha=alpha)
        best, accounts = (table[name].to_numpy() for name in ("optimum", "accounts"))
        return float(metrics.performance_ratio(best, accounts, alpha).mean())

    return results.Limits(
        title=LIMIT,
        digest=short_digest([match.work.digest for match in matches]),
        seeds=tuple(range(matches[0].course.n_seeds)),
        halves=tuple(dict(match.course.settings)["n_half"] for match in matches),
        alphas=alphas,
        limits=np.array([2.0 / (1.5 ** (1.0 - alpha) + 0.5 ** (1.0 - alpha)) for alpha in alphas]),
        ratios=np.array([[ratio(tables, alpha) for tables in played] for alpha in alphas]),
    )


def toy(run: Run) -> results.PullShares:
    """How often each arm is pulled, over all seeds."""
    shares = {label: each["pull_shares"].mean(axis=0) for label, each in run.samples.items()}
    plan, stream = run.plan, run.stream
    sizes, arms = about(plan.on(stream), stream, plan.n_seeds), stream.reward_table[0]
    return results.PullShares(**sizes, alpha=plan.alpha, arms=arms, shares=shares)
