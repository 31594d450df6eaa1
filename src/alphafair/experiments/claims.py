"""Each claim of the paper as a sentence, the numbers measured, and a verdict.

A claim is a set of leads, differences that it says are above zero. Policies that were run on the same seeds met the
same draws, so a lead is the mean of the differences seed by seed, with a Student confidence interval of 95%; where
nothing is random it is exact. The claim holds if every interval is above zero, does not hold if one is below, and is
not decided if zero lies inside one: then more seeds are needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from alphafair import metrics
from alphafair.experiments.paper import FLOORS
from alphafair.types import Vector

HOLDS, FAILS, OPEN = "holds", "does not hold", "not decided"
MADE_HERE = "made here"
ALPHA_FAIR, ALPHA_FAIR_BANDIT = "\u03b1-FairCB", "\u03b1-FairCB (bandit)"
RIVALS_A = ("Hedge", "FairCB (bandit)", "FairCB (full)")
SCALE_FREE, PUBLISHED, UNIFORM = "scale-free bandit", "published sign", "uniform"
METRICS = {  # words, decimals
    "alpha_performance": ("\u03b1-performance", 2),
    "approximate_regret": ("c_\u03b1-regret", 2),
    "standard_regret": ("standard regret", 2),
    "jain_index": ("Jain's index", 3),
    "ratio": ("OPT/ALG", 4),
}
NOISE = 0.02  # a curve may step back by so much of its whole range and still count as monotone

Samples = Mapping[str, Mapping[str, Vector]]  # of an experiment: label, metric, one row a seed
Claim = dict[str, Any]


class Lead(NamedTuple):
    """What a claim says is above zero: the mean over seeds and its confidence interval."""

    what: str
    mean: float
    low: float
    high: float


def lead(what: str, differences: Vector | Sequence[float]) -> Lead:
    """One difference a seed; a single one is exact."""
    return Lead(what, *map(float, metrics.average_over_seeds(differences)))


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
    return [{"data": data, **claim} for claim in found]


def _claim(identity: str, experiment: str, claim: str, measured: str, leads: Sequence[Lead]) -> Claim:
    return {
        "id": identity,
        "experiment": experiment,
        "claim": claim,
        "measured": measured,
        "verdict": verdict(leads),
        "leads": [one._asdict() for one in leads],
    }


def _fixed(value: float, digits: int) -> str:
    return f"{value:,.{digits}f}".replace("-", "\N{MINUS SIGN}")


def _listed(samples: Samples, labels: Iterable[str], metric: str) -> str:
    """Where everybody ends."""
    digits = METRICS[metric][1]
    words = []
    for label in labels:
        end = lead(label, samples[label][metric][:, -1])
        spread = f" \u00b1 {_fixed((end.high - end.low) / 2.0, digits)}" if end.high > end.low else ""
        words.append(f"{label} {_fixed(end.mean, digits)}{spread}")
    return ", ".join(words)


def _closest(leads: Sequence[Lead]) -> Lead:
    """The lead that decides: one that is none, or the first to be doubted."""
    return min(leads, key=lambda one: (one.high >= 0.0, one.low))


def _said(leads: Sequence[Lead], digits: int) -> str:
    one = _closest(leads)
    band = f" (95%: {_fixed(one.low, digits)} to {_fixed(one.high, digits)})" if one.high > one.low else ""
    return f"{'closest: ' if len(leads) > 1 else ''}{one.what} by {_fixed(one.mean, digits)}{band}"


def _leads(samples: Samples, first: str, others: Iterable[str], metric: str, *, above: bool = True) -> list[Lead]:
    """By how much the first ends above, or below, each of the others, seed by seed."""
    way, sign = ("above", 1.0) if above else ("below", -1.0)
    ours = samples[first][metric][:, -1]
    return [lead(f"{first} {way} {other}", sign * (ours - samples[other][metric][:, -1])) for other in others]


def _full_information(section: Mapping[str, Any], samples: Samples) -> list[Claim]:
    found = []
    for number, (metric, words, above) in enumerate(
        (
            ("alpha_performance", "the highest \u03b1-performance", True),
            ("approximate_regret", "the lowest c_\u03b1-regret", False),
            ("standard_regret", "the lowest standard regret", False),
            ("jain_index", "the highest Jain index", True),
        ),
        start=1,
    ):
        leads = _leads(samples, ALPHA_FAIR, RIVALS_A, metric, above=above)
        text = f"With full information \u03b1-FairCB ends with {words} of the paper's policies."
        text += "" if above else " (The same order as A1.)"
        measured = f"{_listed(samples, (ALPHA_FAIR, *RIVALS_A), metric)}; {_said(leads, METRICS[metric][1])}"
        found.append(_claim(f"A{number}", "A", text, measured, leads))
    hedge, *others = RIVALS_A
    leads, closest = [], []
    for metric in ("alpha_performance", "jain_index"):
        below = _leads(samples, hedge, (ALPHA_FAIR, *others), metric, above=False)
        leads += [one._replace(what=f"{one.what} in {METRICS[metric][0]}") for one in below]
        closest.append(f"{METRICS[metric][0]}: {_said(below, METRICS[metric][1])}")
    text = "Hedge ends worst, in \u03b1-performance and in Jain's index."
    found.append(_claim("A5", "A", text, "; ".join(closest), leads))
    return [*found, _theorem("A6", "A", "With full information", section, samples, [ALPHA_FAIR])]


def _bandit(section: Mapping[str, Any], samples: Samples) -> list[Claim]:
    found = []
    for number, metric in enumerate(("alpha_performance", "jain_index"), start=1):
        words, digits = METRICS[metric]
        leads = _leads(samples, ALPHA_FAIR_BANDIT, [SCALE_FREE], metric)
        text = f"With bandit feedback \u03b1-FairCB ends above the scale-free bandit in {words}."
        measured = f"{_listed(samples, (ALPHA_FAIR_BANDIT, SCALE_FREE), metric)}; {_said(leads, digits)}"
        found.append(_claim(f"B{number}", "B", text, measured, leads))
    differences = samples[ALPHA_FAIR_BANDIT]["jain_index"] - samples[SCALE_FREE]["jain_index"]
    rounds = np.array(section["rounds"])
    late = rounds > section["n_rounds"] / 2
    bands = zip(*metrics.average_over_seeds(differences[:, late]), strict=True)
    leads = [
        Lead(f"{ALPHA_FAIR_BANDIT} above {SCALE_FREE} at round {t:,}", *map(float, band))
        for t, band in zip(rounds[late], bands, strict=True)
    ]
    behind = rounds[differences.mean(axis=0) < 0.0]
    until = f"up to round {behind[-1]:,}" if len(behind) else f"at none of the {len(rounds):,} recorded rounds"
    text = "If the scale-free bandit leads in Jain's index at all, it is in the first half of the rounds only."
    measured = f"its mean leads {until}; in the second half, {_said(leads, 3)}"
    found.append({**_claim("B3", "B", text, measured, leads), "leads": [_closest(leads)._asdict()]})
    return [*found, _theorem("B4", "B", "With bandit feedback", section, samples, [ALPHA_FAIR_BANDIT])]


def _theorem(
    identity: str, name: str, words: str, section: Mapping[str, Any], samples: Samples, labels: Sequence[str]
) -> Claim:
    """The regret bound, as the ratio that it comes to in the long run."""
    factor = metrics.approximation_factor(float(section["alpha"]))
    leads = [lead(f"OPT/ALG of {label} below c_\u03b1", factor - samples[label]["ratio"][:, -1]) for label in labels]
    shown = [*labels, *({UNIFORM} & samples.keys())]
    measured = f"c_\u03b1 {_fixed(factor, 4)}; OPT/ALG: {_listed(samples, shown, 'ratio')}"
    text = f"{words} OPT/ALG of \u03b1-FairCB ends below c_\u03b1, the theorem's limit for long runs."
    return _claim(identity, name, text, measured, leads)


def _alphas(section: Mapping[str, Any]) -> Iterable[Claim]:
    for number, (metric, words, sign) in enumerate(
        (("jain_index", "Jain's index rises", 1.0), ("average_reward", "the average cumulative reward falls", -1.0)),
        start=1,
    ):
        values = section[metric]
        curve = sign * np.array(values)
        setback = float((np.maximum.accumulate(curve) - curve).max() / max(np.ptp(curve), 1e-300))
        ends = f"{_fixed(values[0], 3)} at \u03b1 = 0 to {_fixed(values[-1], 3)} at \u03b1 = {section['alphas'][-1]:g}"
        leads = [
            lead("from the first to the last \u03b1", [curve[-1] - curve[0]]),
            lead(f"{NOISE:.0%} of the range, less the largest step back", [NOISE - setback]),
        ]
        text = f"As \u03b1 grows {words}, monotonely up to noise."
        yield _claim(f"C{number}", "C", text, f"from {ends}; largest step back {setback:.1%} of the range", leads)


def _floors(samples: Samples) -> Iterable[Claim]:
    for number, (feedback, ours) in enumerate((("full", ALPHA_FAIR), ("bandit", ALPHA_FAIR_BANDIT)), start=1):
        leads = _leads(samples, ours, [f"{feedback} {share:g}" for share in FLOORS], "alpha_performance")
        leads = [one._replace(what=f"above \u03bd = {share:g}/N") for one, share in zip(leads, FLOORS, strict=True)]
        text = f"Whatever floor \u03bd FairCB ({feedback}) is given, {ours} ends above it in \u03b1-performance."
        measured = f"{_listed(samples, [ours], 'alpha_performance')}; {_said(leads, 2)}"
        yield _claim(f"F{number}", "floor_sweep", text, measured, leads)


def _corrections(experiments: Mapping[str, Any], samples: Mapping[str, Samples]) -> Iterable[Claim]:
    limit = experiments["impossibility"]
    away = max(abs(row[-1] - bound) for row, bound in zip(limit["ratios"], limit["limits"], strict=True))
    text = "On the two-context instance \u03b1-FairCB attains the limit that no online policy can beat."
    measured = f"OPT/ALG within {away:.1e} of the limit after {2 * limit['halves'][-1]:,} rounds"
    leads = [lead("0.001 less the distance from the limit", [1e-3 - away])]
    yield {**_claim("I1", "impossibility", text, measured, leads), "data": MADE_HERE}

    worst = int(np.argmin(experiments["sign"]["toy"]["arms"]))
    ours, theirs = (samples["toy"][label]["pull_shares"][:, worst] for label in (ALPHA_FAIR_BANDIT, PUBLISHED))
    leads = [lead("published sign above 90%", theirs - 0.9), lead("ours below 10%", 0.1 - ours)]
    text = "The published code's sign makes the bandit run to the worst arm (found here, not claimed in the paper)."
    measured = f"share of pulls of the worst of three arms: ours {ours.mean():.1%}, published sign {theirs.mean():.1%}"
    yield {**_claim("S1", "sign", text, measured, leads), "data": MADE_HERE}

    ratings = samples["sign"]
    leads = _leads(ratings, PUBLISHED, [UNIFORM], "alpha_performance", above=False)
    text = "On ratings, too, the published sign ends below uniform play (found here, not claimed in the paper)."
    measured = f"{_listed(ratings, (PUBLISHED, UNIFORM), 'alpha_performance')}; {_said(leads, 2)}"
    yield _claim("S2", "sign", text, measured, leads)

    words = "Whenever the slope \u03c6\u2032 is read,"
    yield _theorem("R1", "readings", words, experiments["readings"], samples["readings"], [*samples["readings"]])
