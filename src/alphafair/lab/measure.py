"""From tables to results: every metric by seed, confidence intervals, and the results of each experiment."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import polars as pl

from alphafair import metrics, streams
from alphafair.evaluation.estimates import possible
from alphafair.groups import Groups
from alphafair.lab import results
from alphafair.lab.plan import Contender, Experiment, Generated, settings_by_policy, short_digest
from alphafair.lab.runner import Run
from alphafair.offline import context_reward_totals
from alphafair.values import Feedback, Interval, Matrix, Stream, Vector

Samples = dict[str, dict[str, Matrix]]  # by label, by metric: by seed and recorded round
COMPARED = ("alpha_performance", "approximate_regret", "jain_index", "standard_regret")  # the paper's four
MEASURED = [field.name for field in fields(results.Outcome) if field.name in metrics.METRICS]
FINAL = ("alpha_performance", "jain_index", "average_reward")  # metrics that need no optimum


def simulated(run: Run, contender: Contender, alpha: float) -> tuple[Vector, Matrix]:
    """R by seed, recorded round and arm, and the shares of pulls by seed and arm."""
    table = run.tables[f"{contender.key}-{alpha:g}"]
    shape = (table["seed"].n_unique(), -1, run.stream.n_arms)
    accounts, pulls = (table[name].to_numpy().reshape(shape) for name in ("accounts", "pulls"))
    return accounts, pulls[:, -1] / run.stream.n_rounds


def optimum_of(run: Run) -> pl.DataFrame:
    """The optimum and its gap at every recorded round."""
    return run.tables[f"optimum-{run.experiment.alpha:g}"].select("round", "optimum", "gap")


def samples_of(run: Run) -> Samples:
    """Every metric of every contender, and the shares of pulls by seed and arm."""
    alpha, found = run.experiment.alpha, {}
    known: dict[str, Any] = {"alpha": alpha}
    if run.experiment.optimum:
        known["optimum"] = optimum_of(run)["optimum"].to_numpy()
    names = [name for name in MEASURED if known.keys() >= {*metrics.METRICS[name].needs}]
    for contender in run.experiment.contenders:
        accounts, pull_shares = simulated(run, contender, alpha)
        found[contender.label] = {"pull_shares": pull_shares} | {
            name: metrics.METRICS[name].measure(accounts, known) for name in names
        }
    return found


def on_rounds(run: Run) -> dict[str, Any]:
    """The fields of `results.OnRounds`."""
    stream, experiment = run.stream, run.experiment
    n_seeds = max(len(experiment.seeds(each)) for each in experiment.contenders)
    sizes = {"n_rounds": stream.n_rounds, "n_contexts": stream.n_contexts, "n_arms": stream.n_arms}
    return {"title": experiment.title, "digest": run.digest, "seeds": tuple(range(n_seeds)), **sizes}


def on_ratings(run: Run) -> dict[str, Any]:
    """The fields of `results.OnRatings`."""
    source, labels = run.experiment.rounds, run.stream.arm_labels
    return {
        **on_rounds(run),
        "arm_labels": tuple(labels or map(str, range(run.stream.n_arms))),
        "settings": {name: getattr(source, name) for name in ("rows", "min_ratings", "reward_floor")},
    }


def confidence_interval(
    samples: Matrix, level: float = 0.95, within: tuple[float, float] = (-math.inf, math.inf)
) -> Interval:
    """The mean over seeds with a Student-t interval, cut off where the mean cannot be."""
    return metrics.average_over_seeds(samples, level=level, within=within)


def metric_interval(metric: str, samples: Matrix, n_arms: int, alpha: float) -> Interval:
    """The interval of a metric of R, within its possible range: Jain's index, for example, is in [1/n, 1]."""
    if metric not in FINAL:
        return confidence_interval(samples)
    return confidence_interval(samples, within=possible(metric, Groups().for_arms(n_arms), alpha))


def stack(intervals: Iterable[Interval]) -> Interval:
    """Intervals of numbers as one interval of arrays."""
    return Interval(*np.transpose([*intervals]))


def joint_intervals(samples: Mapping[str, Vector]) -> dict[str, Interval]:
    """Simultaneous 95% intervals by Bonferroni's correction: of k that are random, each has level 1 - 5% / k."""
    n_random = sum(len(values) > 1 for values in samples.values())
    level = 1.0 - 0.05 / max(n_random, 1)
    return {name: confidence_interval(values, level) for name, values in samples.items()}


def uniform_accounts(stream: Stream) -> Vector:
    """R of uniform play after all rounds, in closed form: 1 + the sum of rewards over n."""
    counts = np.bincount(stream.items, minlength=len(stream.reward_table))
    accounts: Vector = 1.0 + counts @ stream.reward_table / stream.n_arms
    return accounts


def is_above(optimum: float, certificate: float, uniform: float) -> bool:
    """Whether the optimum is above uniform play by more than its certificate's gap and rounding."""
    return optimum - uniform > certificate + 1e-9 * optimum


def _gap_closed(run: Run, samples: Samples, performance: Vector) -> Interval | None:
    """(ALG - UNI) / (OPT - UNI); None where there is no gap to close.

    Where uniform play was drawn too, UNI is paired by seed: phi is concave, so that drawn rewards are worth less than
    expected ones for every policy.
    """
    _, best, certificate = optimum_of(run).row(-1)
    alpha, expected = run.experiment.alpha, uniform_accounts(run.stream)
    if not metrics.has_gap(best, expected, alpha, certified=certificate):
        return None
    uniform = metrics.alpha_performance(expected[None], alpha)
    for each in run.experiment.contenders:
        if each.policy == "uniform" and each.feedback is Feedback.BANDIT and run.experiment.n_seeds > 1:
            uniform = samples[each.label]["alpha_performance"][:, -1]
    return confidence_interval((performance - uniform) / (best - uniform.mean()))


def _outcome(run: Run, contender: Contender, samples: Samples) -> results.Outcome:
    """Every metric over the recorded rounds, with intervals over the seeds."""
    alpha, certificates, vacuous = run.experiment.alpha, None, None
    final = simulated(run, contender, alpha)[0][:, -1]
    own = samples[contender.label]
    if contender.feedback is Feedback.FULL:  # bounds on this very run, from what the policy saw and earned
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
        pull_shares=own["pull_shares"].mean(axis=0),
        gap_closed=_gap_closed(run, samples, own["alpha_performance"][:, -1]),
        certificates=certificates,
        vacuous=vacuous,
        **{
            metric: metric_interval(metric, values, run.stream.n_arms, alpha)
            for metric, values in own.items()
            if metric != "pull_shares"
        },
    )


def over_time(run: Run, samples: Samples) -> dict[str, Any]:
    """The fields of `results.OverTime`."""
    rounds, values, gaps = optimum_of(run)
    return {
        **on_ratings(run),
        "alpha": run.experiment.alpha,
        "rounds": tuple(rounds),
        "optimum": results.Optimum(values.to_numpy(), gaps.to_numpy()),
        "contenders": {each.label: _outcome(run, each, samples) for each in run.experiment.contenders},
    }


def first(samples: Samples) -> dict[str, results.First]:
    """The contender that ends best in each of the paper's four metrics, and its leads, paired by seed."""
    found = {}
    for metric in COMPARED:
        sign = metrics.METRICS[metric].sign
        ends = {label: sign * each[metric][:, -1] for label, each in samples.items()}
        best = min(ends, key=lambda label: (-ends[label].mean(), label))
        ahead = {label: confidence_interval(ends[best] - ends[label]) for label in ends if label != best}
        found[metric] = results.First(best, ahead)
    return found


def over_alpha(run: Run, data: str) -> results.OverAlpha:
    """Experiment C."""
    (contender,), alphas = run.experiment.contenders, run.experiment.alphas
    final = np.array([simulated(run, contender, alpha)[0][0, -1] for alpha in alphas])
    jain, average = metrics.jain_index(final), metrics.average_reward(final)
    return results.OverAlpha(
        **on_ratings(run), data=data, alphas=alphas, jain_index=jain, average_reward=average, final_accounts=final
    )


def over_floor(run: Run, samples: Samples, floors: Sequence[float], ours: Mapping[str, str]) -> results.OverFloor:
    """The final results of FairCB for every floor, and the leads of `ours`, alpha-FairCB's labels by feedback."""
    swept = {feedback: [f"{feedback} {share:g}" for share in floors] for feedback in ours}

    def ends(label: str, metric: str = "alpha_performance") -> Vector:
        return samples[label][metric][:, -1]

    def end(label: str, metric: str) -> Interval:
        return metric_interval(metric, ends(label, metric), run.stream.n_arms, run.experiment.alpha)

    def ahead(feedback: str) -> Interval:
        level = ends(ours[feedback])
        return stack(joint_intervals({label: level - ends(label) for label in swept[feedback]}).values())

    return results.OverFloor(
        **on_ratings(run),
        alpha=run.experiment.alpha,
        floors=tuple(floors),
        fair_cb={
            feedback: {metric: stack(end(label, metric) for label in labels) for metric in FINAL}
            for feedback, labels in swept.items()
        },
        alpha_fair={feedback: {metric: end(label, metric) for metric in FINAL} for feedback, label in ours.items()},
        ahead={feedback: ahead(feedback) for feedback in ours},
        maxima=np.array([ends(label).max() for label in swept["bandit"]]),
    )


def impossibility(runs: Sequence[Run], title: str) -> results.Limits:
    """OPT/ALG of alpha-FairCB on the two-context instance, and the limit for any online policy."""
    experiment = runs[0].experiment

    def ratio(run: Run, alpha: float) -> float:
        """The mean over the seeds."""
        table = pl.concat(run.tables.values()).filter(alpha=alpha)
        best, accounts = (table[name].to_numpy() for name in ("optimum", "accounts"))
        return float(metrics.performance_ratio(best, accounts, alpha).mean())

    def half(run: Run) -> int:
        assert isinstance(run.experiment.rounds, Generated)  # noqa: S101 - for mypy
        return int(dict(run.experiment.rounds.settings)["n_half"])

    return results.Limits(
        title=title,
        digest=short_digest([run.digest for run in runs]),
        seeds=tuple(range(experiment.n_seeds)),
        halves=tuple(half(run) for run in runs),
        alphas=experiment.alphas,
        limits=np.array([2.0 / (1.5 ** (1.0 - alpha) + 0.5 ** (1.0 - alpha)) for alpha in experiment.alphas]),
        ratios=np.array([[ratio(run, alpha) for run in runs] for alpha in experiment.alphas]),
    )


def pull_shares(run: Run, samples: Samples) -> results.PullShares:
    """How often each arm is pulled, over all seeds."""
    shares = {label: each["pull_shares"].mean(axis=0) for label, each in samples.items()}
    arms = run.stream.reward_table[0]
    return results.PullShares(**on_rounds(run), alpha=run.experiment.alpha, arms=arms, shares=shares)


def match(run: Run, promises: Mapping[str, Vector]) -> results.Match:
    """One scenario of the arena: every contender at every alpha, and the leads of the promises."""
    experiment = run.experiment
    return results.Match(
        **on_rounds(run),
        name=experiment.name.removeprefix("arena-"),
        delay=experiment.delay,
        scores=tuple(_score(run, each, alpha) for alpha in experiment.alphas for each in experiment.contenders),
        promises=joint_intervals(promises),
        bound=_bound(experiment),
        tuned=tuple(
            _tuned(run, settings, alpha)
            for alpha in experiment.alphas
            for settings in settings_by_policy(experiment.tuned).values()
        ),
    )


def _tuned(run: Run, settings: Sequence[Contender], alpha: float) -> results.Tuned:
    """The best of several settings of one rival, and the lead of the first contender over it.

    The best is that of the largest mean share of the gap, or of the largest value where there is no gap.
    """
    measured = [gap_closed_by_seed(run, each, alpha) for each in settings]
    value = [float((values if closed is None else closed).mean()) for closed, values in measured]
    at = value.index(max(value))
    ours, _ = gap_closed_by_seed(run, run.experiment.contenders[0], alpha)
    theirs = measured[at][0]
    lead = None if ours is None or theirs is None else confidence_interval(ours - theirs)
    label, _, setting = settings[at].label.partition(": ")
    score = replace(_score(run, settings[at], alpha), label=label)
    return results.Tuned(**vars(score), setting=setting, n_settings=len(settings), lead=lead)


def _bound(experiment: Experiment) -> float | None:
    """The welfare ratio that no online policy can beat in the mean over seeds; None where there is no such limit."""
    source = experiment.rounds
    if isinstance(source, Generated) and source.maker == "dying_arms":
        return streams.dying_arms_bound(**dict(source.settings))
    return None


def _score(run: Run, contender: Contender, alpha: float) -> results.Score:
    closed, performance = gap_closed_by_seed(run, contender, alpha)
    return results.Score(
        label=contender.label,
        policy=contender.policy,
        feedback=contender.feedback.value,
        alpha=alpha,
        n_seeds=len(performance),
        alpha_performance=confidence_interval(performance) if alpha < 1.0 else None,
        gap_closed=None if closed is None else confidence_interval(closed),
        **({} if alpha < 1.0 else _in_welfare(run, contender, alpha)),
    )


def _in_welfare(run: Run, contender: Contender, alpha: float) -> dict[str, Interval]:
    """The fields of a score from alpha = 1 on."""
    earned, best, _, _ = final_accounts(run, contender, alpha)
    known = {"alpha": alpha, "best_welfare": best}
    return {
        name: confidence_interval(metrics.METRICS[name].measure(earned, known)) for name in ("welfare", "welfare_ratio")
    }


def gap_closed_by_seed(run: Run, contender: Contender, alpha: float) -> tuple[Vector | None, Vector]:
    """(ALG - UNI) / (OPT - UNI) with uniform play as expected, and ALG; the first is None where a seed has no gap.

    They are in alpha-performance below alpha = 1 and in welfare from 1 on.
    """
    earned, best, gaps, uniform = final_accounts(run, contender, alpha)
    seeds = zip(best, uniform, gaps, strict=True)
    learnable = all(metrics.has_gap(top, even, alpha, certified=gap) for top, even, gap in seeds)
    closed = metrics.gap_closed(best, uniform, earned, alpha) if learnable else None
    return closed, (metrics.alpha_performance if alpha < 1.0 else metrics.welfare)(earned, alpha)


def final_accounts(run: Run, contender: Contender, alpha: float) -> tuple[Matrix, Vector, Vector, Matrix]:
    """By seed: the final accounts of a contender; and the optimum, its gap and uniform play on the rounds it met."""
    if run.experiment.rounds.seeded:
        mine = pl.concat(run.tables.values()).filter(contender=contender.key, alpha=alpha)
        earned, best, gaps, uniform = (mine[name].to_numpy() for name in ("accounts", "optimum", "gap", "uniform"))
        return earned, best, gaps, uniform
    (alphas,) = (each for each in run.experiment.alpha_sets(contender) if alpha in each)
    earned = simulated(run, contender, alphas[0])[0][:, -1]
    shared = (run.tables[f"optimum-{alpha:g}"][name].to_numpy() for name in ("optimum", "gap", "uniform"))
    best, gaps, uniform = (np.repeat(values, len(earned), axis=0) for values in shared)
    return earned, best, gaps, uniform
