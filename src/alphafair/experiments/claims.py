"""Each claim as a sentence, where it comes from, the numbers measured, and a verdict.

A claim is a set of leads, differences that it says are above zero. Policies that were run on the same seeds met the
same draws, so a lead is the mean of the differences seed by seed, with a Student confidence interval; where nothing is
random it is exact. The intervals of one claim hold together with 95%, by Bonferroni's correction. The claim holds if
every interval is above zero, does not hold if one is below, and is not decided if zero lies inside one: then more seeds
are needed.

A claim about ratings is not decided either, whatever its numbers, where the ratings cannot tell: `obstacle` says why.

A claim of the paper that is another of its claims again is not independent: headlines count the others.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from alphafair import metrics
from alphafair.experiments import paper
from alphafair.experiments.measured import Pulls, Samples, band, has_room, joint_bands
from alphafair.experiments.results import Claim, Compared, Experiments, Lead, OnRatings, OverAlpha
from alphafair.types import Matrix, Vector
from alphafair.words import counted, fixed

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
ABOVE_UNIFORM = "\u03b1-FairCB ends above uniform play in \u03b1-performance."  # whether anything is learned at all
NOISE = 0.02  # a curve may step back by so much of its whole range and still count as monotone
LEAST_PULLS = 5  # of every arm in every context by uniform play: the rule of thumb for expected counts in a table
LEAST_ROUNDS = 100  # however few arms and contexts there are

Differences = Mapping[str, Vector]  # what a claim says is above zero, by seed; a single number is exact


def obstacle(run: OnRatings) -> str:
    """Why the rounds cannot decide a claim, if so.

    Fewer rounds than `LEAST_PULLS` per arm and context, or than `LEAST_ROUNDS`, and nobody can have learned anything:
    what differs is how policies start. And where the optimum is not above uniform play, or nothing changes with alpha,
    there is nothing to be learned or to be traded.
    """
    needed = max(LEAST_ROUNDS, LEAST_PULLS * run.n_contexts * run.n_arms)
    if run.n_rounds < needed:
        sizes = f"{counted(run.n_contexts, 'context')} and {counted(run.n_arms, 'arm')}"
        return f"too few rounds to decide: {run.n_rounds:,}, where {sizes} need {needed:,}"
    if isinstance(run, Compared):
        level = run.contenders[UNIFORM].alpha_performance.end.mean
        return "" if has_room(run.best, run.certificate, level) else "the optimum is uniform play: nothing to learn"
    if isinstance(run, OverAlpha):
        return "" if np.ptp(run.final_rewards, axis=0).any() else "\u03b1 changes nothing here"
    return ""


def joint_leads(differences: Differences) -> list[Lead]:
    """Intervals that hold together with 95%."""
    return [Lead(what, each.mean, each.low, each.high) for what, each in joint_bands(differences).items()]


def verdict(leads: Iterable[Lead]) -> str:
    """Whether all are above zero. An interval without width leaves nothing open.

    >>> verdict([Lead("", 2.0, 1.0, 3.0)]), verdict([Lead("", 1.0, -1.0, 3.0)]), verdict([Lead("", 0.0, 0.0, 0.0)])
    ('holds', 'not decided', 'does not hold')
    """
    words = {
        HOLDS if one.low > 0.0 else FAILS if one.high < 0.0 or one.low == one.high == 0.0 else OPEN for one in leads
    }
    return next(word for word in (FAILS, OPEN, HOLDS) if word in words)


def claims(experiments: Experiments, samples: Mapping[str, Samples], pulls: Pulls, data: str) -> tuple[Claim, ...]:
    """All claims, in the order of the experiments."""
    rows, users = obstacle(experiments.A), obstacle(experiments.C)
    uniform = samples["A"][UNIFORM]
    sign = "On ratings, too, the published sign ends below uniform play."
    about_rows = [
        *_full_information(samples["A"]),
        *_bandit(experiments.B, samples["B"]),
        *_floors(samples["floor_sweep"]),
        _compared("S2", "sign", FOUND, sign, samples["sign"], PUBLISHED, [UNIFORM], way="below"),
        _theorem("R1", "readings", "Whenever the slope \u03c6\u2032 is read,", samples["readings"], uniform),
    ]
    found = [
        *(_withheld(claim, rows) for claim in about_rows),
        *(_withheld(claim, users) for claim in _alphas(experiments.C)),
        *_made_here(experiments, pulls),
    ]
    order = ["A", "B", "C", "F", "I", "S", "R"]
    found.sort(key=lambda claim: (order.index(claim.id[0]), claim.id))
    return tuple(replace(claim, data=claim.data or data) for claim in found)


def _withheld(claim: Claim, reason: str) -> Claim:
    return replace(claim, verdict=OPEN, measured=f"{claim.measured}; {reason}") if reason else claim


def _claim(identity: str, experiment: str, source: str, claim: str, measured: str, leads: Sequence[Lead]) -> Claim:
    return Claim(identity, experiment, source, claim, measured, verdict(leads), tuple(leads), data="")


def _everybody(samples: Samples, labels: Iterable[str], metric: str) -> str:
    """Where everybody ends, and over how many seeds."""
    decimals = METRICS[metric][1]
    words, n_seeds = [], 1
    for label in labels:
        ends = samples[label][metric][:, -1]
        found = band(ends)
        spread = f" \u00b1 {fixed((found.high - found.low) / 2.0, decimals)}" if len(ends) > 1 else ""
        words.append(f"{label} {fixed(found.mean, decimals)}{spread}")
        n_seeds = max(n_seeds, len(ends))
    return ", ".join(words) + (f" (\u00b1: 95% over {n_seeds} seeds)" if n_seeds > 1 else "")


def _closest(leads: Sequence[Lead]) -> Lead:
    """The lead that decides: one that is none, or the first to be doubted."""
    return min(leads, key=lambda one: (one.high >= 0.0, one.low))


def turned(lead: Lead) -> Lead:
    """A lead that is none, the other way round: above by -2 is below by 2.

    >>> turned(Lead("ours above theirs", -2.0, -3.0, -1.0))
    Lead(what='ours below theirs', mean=2.0, low=1.0, high=3.0)
    """
    other = {"above": "below", "below": "above"}
    what = re.sub(r"\b(above|below)\b", lambda found: other[found[0]], lead.what, count=1)
    return Lead(what, -lead.mean, -lead.high, -lead.low)


def _said(leads: Sequence[Lead], decimals: int) -> str:
    one = _closest(leads)
    one = turned(one) if one.mean < 0.0 else one
    together = " for all together" if sum(each.high > each.low for each in leads) > 1 else ""
    interval = f"{fixed(one.low, decimals)} to {fixed(one.high, decimals)}"
    limits = f" (95%{together}: {interval})" if one.high > one.low else ""
    return f"{'closest: ' if len(leads) > 1 else ''}{one.what} by {fixed(one.mean, decimals)}{limits}"


def _ahead(samples: Samples, first: str, others: Iterable[str], metric: str, way: str = "above") -> Differences:
    """By how much the first ends above, or below, each of the others, seed by seed."""
    sign = 1.0 if way == "above" else -1.0
    ours = samples[first][metric][:, -1]
    return {f"{first} {way} {other}": sign * (ours - samples[other][metric][:, -1]) for other in others}


def _compared(
    identity: str,
    experiment: str,
    source: str,
    text: str,
    samples: Samples,
    ours: str,
    others: Sequence[str],
    metric: str = "alpha_performance",
    way: str = "above",
) -> Claim:
    """That one ends above, or below, each of the others; with where everybody ends."""
    leads = joint_leads(_ahead(samples, ours, others, metric, way))
    measured = f"{_everybody(samples, (ours, *others), metric)}; {_said(leads, METRICS[metric][1])}"
    return _claim(identity, experiment, source, text, measured, leads)


def _full_information(samples: Samples) -> Iterator[Claim]:
    for identity, metric, words, way in (
        ("A1", "alpha_performance", "the highest \u03b1-performance", "above"),
        ("A2", "approximate_regret", "the lowest approximate regret", "below"),
        ("A3", "standard_regret", "the lowest standard regret", "below"),
        ("A4", "jain_index", "the highest Jain index", "above"),
    ):
        again = " (The same order as A1.)" if way == "below" else ""
        text = f"With full information {ALPHA_FAIR} ends with {words} of the paper's policies.{again}"
        claim = _compared(identity, "A", PAPER, text, samples, ALPHA_FAIR, RIVALS_A, metric, way)
        yield replace(claim, independent=not again)
    hedge, *others = RIVALS_A
    leads = joint_leads(
        {
            f"{what} in {METRICS[metric][0]}": values
            for metric in ("alpha_performance", "jain_index")
            for what, values in _ahead(samples, hedge, (ALPHA_FAIR, *others), metric, "below").items()
        }
    )
    half = len(leads) // 2
    text = f"{hedge} ends worst, in \u03b1-performance and in Jain's index."
    yield _claim("A5", "A", PAPER, text, f"{_said(leads[:half], 2)}; {_said(leads[half:], 3)}", leads)
    yield _theorem("A6", "A", "With full information", {ALPHA_FAIR: samples[ALPHA_FAIR]}, samples[UNIFORM])
    text = f"With full information {ABOVE_UNIFORM}"
    yield _compared("A7", "A", FOUND, text, samples, ALPHA_FAIR, [UNIFORM])


def _bandit(section: Compared, samples: Samples) -> Iterator[Claim]:
    for identity, metric in (("B1", "alpha_performance"), ("B2", "jain_index")):
        text = f"With bandit feedback \u03b1-FairCB ends above the scale-free bandit in {METRICS[metric][0]}."
        yield _compared(identity, "B", PAPER, text, samples, ALPHA_FAIR_BANDIT, [SCALE_FREE], metric)
    differences = samples[ALPHA_FAIR_BANDIT]["jain_index"] - samples[SCALE_FREE]["jain_index"]
    rounds = np.array(section.rounds)
    late = np.flatnonzero(rounds > section.n_rounds / 2)
    leads = joint_leads(
        {f"{ALPHA_FAIR_BANDIT} above {SCALE_FREE} at round {rounds[k]:,}": differences[:, k] for k in late}
    )
    behind = rounds[differences.mean(axis=0) < 0.0]
    until = f"up to round {behind[-1]:,}" if len(behind) else f"at none of the {len(rounds):,} recorded rounds"
    text = "If the scale-free bandit leads in Jain's index at all, it is in the first half of the rounds only."
    measured = f"its mean leads {until}; in the second half, {_said(leads, 3)}"
    yield replace(_claim("B3", "B", PAPER, text, measured, leads), leads=(_closest(leads),))
    ours = {ALPHA_FAIR_BANDIT: samples[ALPHA_FAIR_BANDIT]}
    yield _theorem("B4", "B", "With bandit feedback", ours, samples[UNIFORM])
    text = f"With bandit feedback {ABOVE_UNIFORM}"
    yield _compared("B5", "B", FOUND, text, samples, ALPHA_FAIR_BANDIT, [UNIFORM])


def _theorem(identity: str, name: str, words: str, ours: Samples, uniform: dict[str, Matrix]) -> Claim:
    """The regret bound, as the ratio that it comes to in the long run; uniform play may pass it too."""
    (alpha,) = paper.FULL_INFORMATION.alphas
    factor = metrics.approximation_factor(alpha)
    shown = {**ours, UNIFORM: uniform}
    *leads, idle = (
        joint_leads({f"OPT/ALG of {label} below c_\u03b1": factor - each["ratio"][:, -1]})[0]
        for label, each in shown.items()
    )
    measured = f"c_\u03b1 {fixed(factor, 4)}; OPT/ALG: {_everybody(shown, shown, 'ratio')}"
    measured += "; uniform play passes this too" if verdict([idle]) == HOLDS else ""
    text = f"{words} OPT/ALG of \u03b1-FairCB ends below c_\u03b1, the theorem's limit for long runs."
    return _claim(identity, name, THEOREM, text, measured, leads)


def _alphas(section: OverAlpha) -> Iterator[Claim]:
    first, *_, last = section.alphas
    for identity, metric, words, sign in (
        ("C1", "jain_index", "Jain's index rises", 1.0),
        ("C2", "average_reward", "the average cumulative reward falls", -1.0),
    ):
        values = getattr(section, metric)
        curve = sign * np.array(values)
        setback = float((np.maximum.accumulate(curve) - curve).max() / max(np.ptp(curve), 1e-300))
        ends = f"{fixed(values[0], 3)} at \u03b1 = {first:g} to {fixed(values[-1], 3)} at \u03b1 = {last:g}"
        leads = joint_leads(
            {
                "from the first to the last \u03b1": curve[-1:] - curve[:1],
                f"{NOISE:.0%} of the range, less the largest step back": np.array([NOISE - setback]),
            }
        )
        text = f"As \u03b1 grows {words}, monotonely up to noise."
        measured = f"from {ends}; largest step back {setback:.1%} of the range"
        yield _claim(identity, "C", PAPER, text, measured, leads)


def _floors(samples: Samples) -> Iterator[Claim]:
    floors = paper.FLOORS
    for identity, feedback, ours in (("F1", "full", ALPHA_FAIR), ("F2", "bandit", ALPHA_FAIR_BANDIT)):
        ahead = _ahead(samples, ours, [f"{feedback} {share:g}" for share in floors], "alpha_performance")
        leads = joint_leads(
            {f"above \u03bd = {share:g}/N": each for share, each in zip(floors, ahead.values(), strict=True)}
        )
        text = (
            f"{ours} ends above FairCB ({feedback}) in \u03b1-performance at each of the {len(floors)} floors \u03bd "
            f"tried, from {floors[0]:g}/N up to {floors[-1]:g}/N."
        )
        measured = f"{_everybody(samples, [ours], 'alpha_performance')}; {_said(leads, 2)}"
        yield _claim(identity, "floor_sweep", FOUND, text, measured, leads)


def _made_here(experiments: Experiments, pulls: Pulls) -> Iterator[Claim]:
    """About instances that are made for the purpose, not about ratings."""
    limit = experiments.impossibility
    away = limit.distance(-1)
    text = f"On the two-context instance {ALPHA_FAIR} attains the limit that no online policy can beat."
    measured = f"after {2 * limit.halves[-1]:,} rounds OPT/ALG is within {away:.1e} of the limit, as a part of it"
    leads = joint_leads({"0.001 less the distance from the limit": np.array([1e-3 - away])})
    yield replace(_claim("I1", "impossibility", THEOREM, text, measured, leads), data=MADE_HERE)

    ours, theirs = (pulls[label][:, experiments.sign.toy.worst_arm] for label in (ALPHA_FAIR_BANDIT, PUBLISHED))
    leads = joint_leads({"published sign above 90%": theirs - 0.9, "ours below 10%": 0.1 - ours})
    text = "The published code's sign makes the bandit run to the worst arm."
    measured = f"share of pulls of the worst of three arms: ours {ours.mean():.1%}, published sign {theirs.mean():.1%}"
    yield replace(_claim("S1", "sign", FOUND, text, measured, leads), data=MADE_HERE)
