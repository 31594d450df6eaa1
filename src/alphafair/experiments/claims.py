"""Each claim as a sentence, where it comes from, the numbers measured, and a verdict.

A claim is a set of leads, differences that it says are above zero. Policies that were run on the same seeds met the
same draws, so a lead is the mean of the differences seed by seed, with a Student confidence interval; where nothing is
random it is exact. The intervals of one claim hold together with 95%, by Bonferroni's correction. The claim holds if
every interval is above zero, does not hold if one is below, and is not decided if zero lies inside one: then more seeds
are needed.

A claim of the paper that is another of its claims again is not independent: headlines count the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from alphafair import metrics
from alphafair.experiments import paper
from alphafair.types import Vector

HOLDS, FAILS, OPEN = "holds", "does not hold", "not decided"
PAPER, THEOREM, FOUND = "paper", "theorem", "found here"  # sources
MADE_HERE = "made here"
ALPHA_FAIR, ALPHA_FAIR_BANDIT = paper.ALPHA_FAIR.label, paper.ALPHA_FAIR_BANDIT.label
RIVALS_A = tuple(rival.label for rival in (paper.HEDGE, paper.FAIR_CB, paper.FAIR_CB_FULL))
SCALE_FREE, PUBLISHED, UNIFORM = (
    contender.label for contender in (paper.SCALE_FREE, paper.PUBLISHED_SIGN, paper.UNIFORM)
)
METRICS = {  # words, decimals
    "alpha_performance": ("\u03b1-performance", 2),
    "approximate_regret": ("approximate regret", 2),
    "standard_regret": ("standard regret", 2),
    "jain_index": ("Jain's index", 3),
    "ratio": ("OPT/ALG", 4),
}
NOISE = 0.02  # a curve may step back by so much of its whole range and still count as monotone

Samples = Mapping[str, Mapping[str, Vector]]  # of an experiment: label, metric, one row a seed
Differences = dict[str, Vector]  # what a claim says is above zero, one number a seed; a single one is exact
Claim = dict[str, Any]


class Lead(NamedTuple):
    """What a claim says is above zero: the mean over seeds and its confidence interval."""

    what: str
    mean: float
    low: float
    high: float


def joint_leads(differences: Differences) -> list[Lead]:
    """Intervals that hold together with 95%: of k that are random, each with 1 - 5% / k."""
    n_random = sum(len(values) > 1 for values in differences.values())
    level = 1.0 - 0.05 / max(n_random, 1)
    return [
        Lead(what, *map(float, metrics.average_over_seeds(values, level=level))) for what, values in differences.items()
    ]


def verdict(leads: Iterable[Lead]) -> str:
    """Whether all are above zero. An interval without width leaves nothing open.

    >>> verdict([Lead("", 2.0, 1.0, 3.0)]), verdict([Lead("", 1.0, -1.0, 3.0)]), verdict([Lead("", 0.0, 0.0, 0.0)])
    ('holds', 'not decided', 'does not hold')
    """
    words = {
        HOLDS if one.low > 0.0 else FAILS if one.high < 0.0 or one.low == one.high == 0.0 else OPEN for one in leads
    }
    return next(word for word in (FAILS, OPEN, HOLDS) if word in words)


def claims(experiments: Mapping[str, Any], samples: Mapping[str, Samples], data: str) -> list[Claim]:
    """All claims, in the order of the experiments."""
    found = [
        *_full_information(experiments["A"], samples["A"]),
        *_bandit(experiments["B"], samples["B"]),
        *_alphas(experiments["C"]),
        *_floors(samples["floor_sweep"]),
        *_corrections(experiments, samples),
    ]
    return [{"data": data, "independent": True, **claim} for claim in found]


def _claim(
    identity: str, experiment: str, source: str, claim: str, measured: str, leads: Sequence[Lead], **more: Any
) -> Claim:
    return {
        "id": identity,
        "experiment": experiment,
        "source": source,
        "claim": claim,
        "measured": measured,
        "verdict": verdict(leads),
        "leads": [one._asdict() for one in leads],
        **more,
    }


def _fixed(value: float, digits: int) -> str:
    return f"{value:,.{digits}f}".replace("-", "\N{MINUS SIGN}")


def _listed(samples: Samples, labels: Iterable[str], metric: str) -> str:
    """Where everybody ends, and over how many seeds."""
    digits = METRICS[metric][1]
    words, n_seeds = [], 1
    for label in labels:
        ends = samples[label][metric][:, -1]
        mean, low, high = metrics.average_over_seeds(ends)
        spread = f" \u00b1 {_fixed(float(high - low) / 2.0, digits)}" if len(ends) > 1 else ""
        words.append(f"{label} {_fixed(float(mean), digits)}{spread}")
        n_seeds = max(n_seeds, len(ends))
    return ", ".join(words) + (f" (\u00b1: 95% over {n_seeds} seeds)" if n_seeds > 1 else "")


def _closest(leads: Sequence[Lead]) -> Lead:
    """The lead that decides: one that is none, or the first to be doubted."""
    return min(leads, key=lambda one: (one.high >= 0.0, one.low))


def _said(leads: Sequence[Lead], digits: int) -> str:
    one = _closest(leads)
    together = " for all together" if sum(each.high > each.low for each in leads) > 1 else ""
    band = f" (95%{together}: {_fixed(one.low, digits)} to {_fixed(one.high, digits)})" if one.high > one.low else ""
    return f"{'closest: ' if len(leads) > 1 else ''}{one.what} by {_fixed(one.mean, digits)}{band}"


def _ahead(samples: Samples, first: str, others: Iterable[str], metric: str, *, above: bool = True) -> Differences:
    """By how much the first ends above, or below, each of the others, seed by seed."""
    way, sign = ("above", 1.0) if above else ("below", -1.0)
    ours = samples[first][metric][:, -1]
    return {f"{first} {way} {other}": sign * (ours - samples[other][metric][:, -1]) for other in others}


def _full_information(section: Mapping[str, Any], samples: Samples) -> list[Claim]:
    found = []
    for number, (metric, words, above) in enumerate(
        (
            ("alpha_performance", "the highest \u03b1-performance", True),
            ("approximate_regret", "the lowest approximate regret", False),
            ("standard_regret", "the lowest standard regret", False),
            ("jain_index", "the highest Jain index", True),
        ),
        start=1,
    ):
        leads = joint_leads(_ahead(samples, ALPHA_FAIR, RIVALS_A, metric, above=above))
        text = f"With full information {ALPHA_FAIR} ends with {words} of the paper's policies."
        text += "" if above else " (The same order as A1.)"
        measured = f"{_listed(samples, (ALPHA_FAIR, *RIVALS_A), metric)}; {_said(leads, METRICS[metric][1])}"
        found.append(_claim(f"A{number}", "A", PAPER, text, measured, leads, independent=above))
    hedge, *others = RIVALS_A
    worst = {
        f"{what} in {METRICS[metric][0]}": values
        for metric in ("alpha_performance", "jain_index")
        for what, values in _ahead(samples, hedge, (ALPHA_FAIR, *others), metric, above=False).items()
    }
    leads = joint_leads(worst)
    half = len(leads) // 2
    measured = f"{_said(leads[:half], 2)}; {_said(leads[half:], 3)}"
    text = f"{hedge} ends worst, in \u03b1-performance and in Jain's index."
    found.append(_claim("A5", "A", PAPER, text, measured, leads))
    return [
        *found,
        _theorem("A6", "A", "With full information", section, samples, [ALPHA_FAIR], samples[UNIFORM]),
        _above_uniform("A7", "A", "With full information", samples, ALPHA_FAIR),
    ]


def _bandit(section: Mapping[str, Any], samples: Samples) -> list[Claim]:
    found = []
    for number, metric in enumerate(("alpha_performance", "jain_index"), start=1):
        words, digits = METRICS[metric]
        leads = joint_leads(_ahead(samples, ALPHA_FAIR_BANDIT, [SCALE_FREE], metric))
        text = f"With bandit feedback \u03b1-FairCB ends above the scale-free bandit in {words}."
        measured = f"{_listed(samples, (ALPHA_FAIR_BANDIT, SCALE_FREE), metric)}; {_said(leads, digits)}"
        found.append(_claim(f"B{number}", "B", PAPER, text, measured, leads))
    differences = samples[ALPHA_FAIR_BANDIT]["jain_index"] - samples[SCALE_FREE]["jain_index"]
    rounds = np.array(section["rounds"])
    late = np.flatnonzero(rounds > section["n_rounds"] / 2)
    leads = joint_leads(
        {f"{ALPHA_FAIR_BANDIT} above {SCALE_FREE} at round {rounds[k]:,}": differences[:, k] for k in late}
    )
    behind = rounds[differences.mean(axis=0) < 0.0]
    until = f"up to round {behind[-1]:,}" if len(behind) else f"at none of the {len(rounds):,} recorded rounds"
    text = "If the scale-free bandit leads in Jain's index at all, it is in the first half of the rounds only."
    measured = f"its mean leads {until}; in the second half, {_said(leads, 3)}"
    found.append(_claim("B3", "B", PAPER, text, measured, leads) | {"leads": [_closest(leads)._asdict()]})
    return [
        *found,
        _theorem("B4", "B", "With bandit feedback", section, samples, [ALPHA_FAIR_BANDIT], samples[UNIFORM]),
        _above_uniform("B5", "B", "With bandit feedback", samples, ALPHA_FAIR_BANDIT),
    ]


def _above_uniform(identity: str, name: str, words: str, samples: Samples, ours: str) -> Claim:
    """Whether anything is learned at all."""
    leads = joint_leads(_ahead(samples, ours, [UNIFORM], "alpha_performance"))
    text = f"{words} \u03b1-FairCB ends above uniform play in \u03b1-performance."
    measured = f"{_listed(samples, (ours, UNIFORM), 'alpha_performance')}; {_said(leads, 2)}"
    return _claim(identity, name, FOUND, text, measured, leads)


def _theorem(
    identity: str,
    name: str,
    words: str,
    section: Mapping[str, Any],
    samples: Samples,
    labels: Sequence[str],
    uniform: Mapping[str, Vector],
) -> Claim:
    """The regret bound, as the ratio that it comes to in the long run; uniform play may pass it too."""
    factor = metrics.approximation_factor(float(section["alpha"]))
    shown = {label: samples[label] for label in labels} | {UNIFORM: uniform}
    *leads, idle = (
        joint_leads({f"OPT/ALG of {label} below c_\u03b1": factor - each["ratio"][:, -1]})[0]
        for label, each in shown.items()
    )
    measured = f"c_\u03b1 {_fixed(factor, 4)}; OPT/ALG: {_listed(shown, shown, 'ratio')}"
    measured += "; uniform play passes this too" if verdict([idle]) == HOLDS else ""
    text = f"{words} OPT/ALG of \u03b1-FairCB ends below c_\u03b1, the theorem's limit for long runs."
    return _claim(identity, name, THEOREM, text, measured, leads)


def _alphas(section: Mapping[str, Any]) -> Iterable[Claim]:
    first, *_, last = section["alphas"]
    for number, (metric, words, sign) in enumerate(
        (("jain_index", "Jain's index rises", 1.0), ("average_reward", "the average cumulative reward falls", -1.0)),
        start=1,
    ):
        values = section[metric]
        curve = sign * np.array(values)
        setback = float((np.maximum.accumulate(curve) - curve).max() / max(np.ptp(curve), 1e-300))
        ends = f"{_fixed(values[0], 3)} at \u03b1 = {first:g} to {_fixed(values[-1], 3)} at \u03b1 = {last:g}"
        leads = joint_leads(
            {
                "from the first to the last \u03b1": curve[-1:] - curve[:1],
                f"{NOISE:.0%} of the range, less the largest step back": np.array([NOISE - setback]),
            }
        )
        text = f"As \u03b1 grows {words}, monotonely up to noise."
        yield _claim(
            f"C{number}", "C", PAPER, text, f"from {ends}; largest step back {setback:.1%} of the range", leads
        )


def _floors(samples: Samples) -> Iterable[Claim]:
    floors = paper.FLOORS
    for number, (feedback, ours) in enumerate((("full", ALPHA_FAIR), ("bandit", ALPHA_FAIR_BANDIT)), start=1):
        ahead = _ahead(samples, ours, [f"{feedback} {share:g}" for share in floors], "alpha_performance")
        leads = joint_leads(
            {f"above \u03bd = {share:g}/N": each for share, each in zip(floors, ahead.values(), strict=True)}
        )
        text = (
            f"{ours} ends above FairCB ({feedback}) in \u03b1-performance at each of the {len(floors)} floors \u03bd "
            f"tried, from {floors[0]:g}/N up to {floors[-1]:g}/N."
        )
        measured = f"{_listed(samples, [ours], 'alpha_performance')}; {_said(leads, 2)}"
        yield _claim(f"F{number}", "floor_sweep", FOUND, text, measured, leads)


def _corrections(experiments: Mapping[str, Any], samples: Mapping[str, Samples]) -> Iterable[Claim]:
    limit = experiments["impossibility"]
    away = max(abs(row[-1] / bound - 1.0) for row, bound in zip(limit["ratios"], limit["limits"], strict=True))
    text = f"On the two-context instance {ALPHA_FAIR} attains the limit that no online policy can beat."
    measured = f"after {2 * limit['halves'][-1]:,} rounds OPT/ALG is within {away:.1e} of the limit, as a part of it"
    leads = joint_leads({"0.001 less the distance from the limit": np.array([1e-3 - away])})
    yield _claim("I1", "impossibility", THEOREM, text, measured, leads, data=MADE_HERE)

    worst = int(np.argmin(experiments["sign"]["toy"]["arms"]))
    ours, theirs = (samples["toy"][label]["pull_shares"][:, worst] for label in (ALPHA_FAIR_BANDIT, PUBLISHED))
    leads = joint_leads({"published sign above 90%": theirs - 0.9, "ours below 10%": 0.1 - ours})
    text = "The published code's sign makes the bandit run to the worst arm."
    measured = f"share of pulls of the worst of three arms: ours {ours.mean():.1%}, published sign {theirs.mean():.1%}"
    yield _claim("S1", "sign", FOUND, text, measured, leads, data=MADE_HERE)

    ratings = samples["sign"]
    leads = joint_leads(_ahead(ratings, PUBLISHED, [UNIFORM], "alpha_performance", above=False))
    text = "On ratings, too, the published sign ends below uniform play."
    measured = f"{_listed(ratings, (PUBLISHED, UNIFORM), 'alpha_performance')}; {_said(leads, 2)}"
    yield _claim("S2", "sign", FOUND, text, measured, leads)

    words, readings, uniform = "Whenever the slope \u03c6\u2032 is read,", samples["readings"], samples["A"][UNIFORM]
    yield _theorem("R1", "readings", words, experiments["readings"], readings, [*readings], uniform)
