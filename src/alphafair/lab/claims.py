"""Claims: each has a sentence, a source, the numbers measured and a verdict.

A claim is a set of leads, differences that it says are above zero. Policies are compared on the same draws, so a lead
is the mean of the differences by seed with a Student-t interval; where nothing is random it is exact. The intervals of
one claim hold simultaneously with 95% confidence (Bonferroni's correction). A claim holds if every interval is above
zero, does not hold if one is below zero, and is not decided if zero lies inside one: more seeds are needed.

A claim about ratings is not decided either, whatever its numbers, where `undecidable` gives a reason.

A claim of the paper that repeats another one is not independent, and the headline does not count it.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from alphafair import metrics
from alphafair.formatting import counted, fixed, spread
from alphafair.lab import paper
from alphafair.lab.measure import Samples, is_above, joint_intervals, metric_interval
from alphafair.lab.results import Claim, Compared, Experiments, Limits, OnRatings, OverAlpha
from alphafair.values import Interval, Matrix, Vector

HOLDS, FAILS, OPEN = "holds", "does not hold", "not decided"
PAPER, THEOREM, FOUND = "paper", "theorem", "found here"  # sources
SYNTHETIC = "synthetic"
EXPERIMENTS = {"A": "A", "B": "B", "C": "C", "F": "floor_sweep", "I": "impossibility", "S": "sign", "R": "readings"}
ALPHA_FAIR, ALPHA_FAIR_BANDIT = paper.ALPHA_FAIR.label, paper.ALPHA_FAIR_BANDIT.label
RIVALS_A = tuple(rival.label for rival in (paper.HEDGE, paper.FAIR_CB, paper.FAIR_CB_FULL))
SCALE_FREE, PUBLISHED, UNIFORM = paper.SCALE_FREE.label, paper.PUBLISHED_SIGN.label, paper.UNIFORM.label
DECIMALS = {"alpha_performance": 2, "approximate_regret": 2, "standard_regret": 2, "jain_index": 3, "ratio": 4}
AGAIN = "(The same order as A1.)"
BEST_IN = (
    ("A1", "alpha_performance", "above", "highest \u03b1-performance of the paper's policies."),
    ("A2", "approximate_regret", "below", f"lowest approximate regret of the paper's policies. {AGAIN}"),
    ("A3", "standard_regret", "below", f"lowest standard regret of the paper's policies. {AGAIN}"),
    ("A4", "jain_index", "above", "highest Jain index of the paper's policies."),
)
NOISE = 0.02  # a curve that steps back by no more than this part of its range counts as monotone
LEAST_PULLS = 5  # of every arm in every context under uniform play: the rule of thumb for expected counts
LEAST_ROUNDS = 100  # however few arms and contexts there are

Differences = Mapping[str, Vector]  # what a claim says is above zero, by seed; one value is exact
Leads = Mapping[str, Interval]


def undecidable(run: OnRatings) -> str:
    """Why the rounds cannot decide a claim, or an empty string.

    With fewer rounds than `LEAST_PULLS` per arm and context, or than `LEAST_ROUNDS`, policies differ by how they start
    and not by what they learn. Where the optimum is not above uniform play there is nothing to learn, and where alpha
    changes nothing there is no trade-off.
    """
    needed = max(LEAST_ROUNDS, LEAST_PULLS * run.n_contexts * run.n_arms)
    if run.n_rounds < needed:
        sizes = f"{counted(run.n_contexts, 'context')} and {counted(run.n_arms, 'arm')}"
        return f"too few rounds to decide: {run.n_rounds:,}, where {sizes} need {needed:,}"
    if isinstance(run, Compared):
        level = run.contenders[UNIFORM].alpha_performance.last.value
        return "" if is_above(run.best, run.certificate, level) else "the optimum is uniform play: nothing to learn"
    if isinstance(run, OverAlpha):
        return "" if np.ptp(run.final_accounts, axis=0).any() else "\u03b1 changes nothing here"
    return ""


def verdict(leads: Iterable[Interval]) -> str:
    """Whether all leads are above zero.

    >>> verdict([Interval(2.0, 1.0, 3.0)]), verdict([Interval(1.0, -1.0, 3.0)]), verdict([Interval.exact(0.0)])
    ('holds', 'not decided', 'does not hold')
    """
    words = {
        HOLDS if one.low > 0.0 else FAILS if one.high < 0.0 or one.low == one.high == 0.0 else OPEN for one in leads
    }
    return next(word for word in (FAILS, OPEN, HOLDS) if word in words)


def claims(experiments: Experiments, samples: Mapping[str, Samples], data: str) -> tuple[Claim, ...]:
    """All claims, in the order of the experiments."""
    a, b, sweep, readings = (samples[name] for name in ("A", "B", "floor_sweep", "readings"))
    full, bandit = "With full information", "With bandit feedback"
    above_uniform = "\u03b1-FairCB ends above uniform play in \u03b1-performance."  # whether anything is learned at all
    rival, above_rival = [SCALE_FREE], f"{bandit} \u03b1-FairCB ends above the scale-free bandit in"
    published = "On ratings, too, the published sign ends below uniform play."
    found = (
        *(
            _compared(name, PAPER, f"{full} {ALPHA_FAIR} ends with the {words}", a, ALPHA_FAIR, way, RIVALS_A, metric)
            for name, metric, way, words in BEST_IN
        ),
        _worst("A5", a, *RIVALS_A),
        _theorem("A6", full, a, [ALPHA_FAIR], a[UNIFORM]),
        _compared("A7", FOUND, f"{full} {above_uniform}", a, ALPHA_FAIR, "above", [UNIFORM]),
        _compared("B1", PAPER, f"{above_rival} \u03b1-performance.", b, ALPHA_FAIR_BANDIT, "above", rival),
        _compared("B2", PAPER, f"{above_rival} Jain's index.", b, ALPHA_FAIR_BANDIT, "above", rival, "jain_index"),
        _early("B3", experiments.B, b),
        _theorem("B4", bandit, b, [ALPHA_FAIR_BANDIT], b[UNIFORM]),
        _compared("B5", FOUND, f"{bandit} {above_uniform}", b, ALPHA_FAIR_BANDIT, "above", [UNIFORM]),
        _monotone("C1", "Jain's index rises", experiments.C, "jain_index", 1.0),
        _monotone("C2", "the average cumulative reward falls", experiments.C, "average_reward", -1.0),
        _above_floors("F1", sweep, ALPHA_FAIR, "full"),
        _above_floors("F2", sweep, ALPHA_FAIR_BANDIT, "bandit"),
        _limit("I1", experiments.impossibility),
        _worst_arm("S1", samples["toy"]),
        _compared("S2", FOUND, published, samples["sign"], PUBLISHED, "below", [UNIFORM]),
        _theorem("R1", "Whenever the slope \u03c6\u2032 is read,", readings, readings, a[UNIFORM]),
    )
    rows, users = undecidable(experiments.A), undecidable(experiments.C)
    return tuple(_on_data(data, claim, users if claim.experiment == "C" else rows) for claim in found)


def _on_data(data: str, claim: Claim, reason: str) -> Claim:
    """A claim about ratings with the name of the data, and not decided if there is a reason."""
    if claim.data == SYNTHETIC:
        return claim
    claim = replace(claim, data=data)
    return replace(claim, verdict=OPEN, measured=f"{claim.measured}; {reason}") if reason else claim


def _claim(
    name: str, source: str, text: str, differences: Differences, measured: str, decimals: int = 0, *, data: str = ""
) -> Claim:
    """A claim with its leads and verdict; with `decimals`, what was measured ends with the closest lead."""
    leads, experiment = joint_intervals(differences), EXPERIMENTS[name[0]]
    measured += closest_lead(leads, decimals) if decimals else ""
    independent = not text.endswith(AGAIN)
    return Claim(name, experiment, source, text, measured, verdict(leads.values()), leads, data, independent)


def _final_values(samples: Samples, labels: Iterable[str], metric: str) -> str:
    """The final value of each contender, and over how many seeds."""
    (alpha,) = paper.FULL_INFORMATION.alphas
    decimals = DECIMALS[metric]
    words, n_seeds = [], 1
    for label in labels:
        ends = samples[label][metric][:, -1]
        found = metric_interval(metric, ends, samples[label]["pull_shares"].shape[1], alpha)
        text = (label, fixed(found.value, decimals), spread(found, decimals))
        words.append(" ".join(filter(None, text)))
        n_seeds = max(n_seeds, len(ends))
    return ", ".join(words) + (f" (\u00b1: 95% over {n_seeds} seeds)" if n_seeds > 1 else "")


def _closest(leads: Leads) -> str:
    """The lead that decides: one below zero, or else the one with the lowest lower end."""
    return min(leads, key=lambda what: (leads[what].high >= 0.0, leads[what].low))


def positive(what: str, lead: Interval) -> tuple[str, Interval]:
    """A negative lead the other way round: above by -2 is below by 2.

    >>> positive("ours above theirs", Interval(-2.0, -3.0, -1.0))
    ('ours below theirs', Interval(value=2.0, low=1.0, high=3.0))
    """
    if lead.value >= 0.0:
        return what, lead
    other = {"above": "below", "below": "above"}
    what = re.sub(r"\b(above|below)\b", lambda found: other[found[0]], what, count=1)
    return what, Interval(-lead.value, -lead.high, -lead.low)


def closest_lead(leads: Leads, decimals: int) -> str:
    """The lead that decides, in words, with its interval."""
    key = _closest(leads)
    what, lead = positive(key, leads[key])
    joint = " jointly" if sum(each.high > each.low for each in leads.values()) > 1 else ""
    interval = f"{fixed(lead.low, decimals)} to {fixed(lead.high, decimals)}"
    limits = f" (95%{joint}: {interval})" if lead.high > lead.low else ""
    return f"{'closest: ' if len(leads) > 1 else ''}{what} by {fixed(lead.value, decimals)}{limits}"


def _ahead(samples: Samples, first: str, way: str, others: Iterable[str], metric: str) -> Differences:
    """How far the first ends above, or below, each of the others, by seed."""
    sign = 1.0 if way == "above" else -1.0
    ours = samples[first][metric][:, -1]
    return {f"{first} {way} {other}": sign * (ours - samples[other][metric][:, -1]) for other in others}


def _compared(
    name: str,
    source: str,
    text: str,
    samples: Samples,
    ours: str,
    way: str,
    others: Sequence[str],
    metric: str = "alpha_performance",
) -> Claim:
    """One contender ends above, or below, each of the others."""
    finals = _final_values(samples, (ours, *others), metric)
    return _claim(name, source, text, _ahead(samples, ours, way, others, metric), f"{finals}; ", DECIMALS[metric])


def _worst(name: str, samples: Samples, worst: str, *others: str) -> Claim:
    """One contender ends below all others in two metrics; what was measured is the closest lead in each."""
    differences = {
        f"{what} in {metrics.METRICS[metric].label}": values
        for metric in ("alpha_performance", "jain_index")
        for what, values in _ahead(samples, worst, "below", (ALPHA_FAIR, *others), metric).items()
    }
    text = f"{worst} ends worst, in \u03b1-performance and in Jain's index."
    claim = _claim(name, PAPER, text, differences, "")
    leads, half = [*claim.leads.items()], len(differences) // 2
    return replace(claim, measured=f"{closest_lead(dict(leads[:half]), 2)}; {closest_lead(dict(leads[half:]), 3)}")


def _early(name: str, section: Compared, samples: Samples) -> Claim:
    differences = samples[ALPHA_FAIR_BANDIT]["jain_index"] - samples[SCALE_FREE]["jain_index"]
    rounds = np.array(section.rounds)
    late = {
        f"{ALPHA_FAIR_BANDIT} above {SCALE_FREE} at round {rounds[k]:,}": differences[:, k]
        for k in np.flatnonzero(rounds > section.n_rounds / 2)
    }
    behind = rounds[differences.mean(axis=0) < 0.0]
    until = f"up to round {behind[-1]:,}" if len(behind) else f"at none of the {len(rounds):,} recorded rounds"
    text = "If the scale-free bandit leads in Jain's index at all, it is in the first half of the rounds only."
    claim = _claim(name, PAPER, text, late, f"its mean leads {until}; in the second half, ", 3)
    closest = _closest(claim.leads)
    return replace(claim, leads={closest: claim.leads[closest]})


def _theorem(name: str, words: str, samples: Samples, ours: Iterable[str], uniform: dict[str, Matrix]) -> Claim:
    """The regret bound as the ratio that it implies in the long run; uniform play may satisfy it too."""
    (alpha,) = paper.FULL_INFORMATION.alphas
    factor = metrics.approximation_factor(alpha)
    shown = {**{label: samples[label] for label in ours}, UNIFORM: uniform}
    below = {f"OPT/ALG of {label} below c_\u03b1": factor - each["ratio"][:, -1] for label, each in shown.items()}
    what, idle = below.popitem()
    measured = f"c_\u03b1 {fixed(factor, 4)}; OPT/ALG: {_final_values(shown, shown, 'ratio')}"
    measured += "; uniform play satisfies this too" if verdict(joint_intervals({what: idle}).values()) == HOLDS else ""
    text = f"{words} OPT/ALG of \u03b1-FairCB ends below c_\u03b1, the theorem's limit for long runs."
    return _claim(name, THEOREM, text, below, measured)


def _monotone(name: str, words: str, section: OverAlpha, metric: str, sign: float) -> Claim:
    values, alphas = getattr(section, metric), section.alphas
    curve = sign * values
    setback = float((np.maximum.accumulate(curve) - curve).max() / max(np.ptp(curve), 1e-300))
    first, last = (f"{fixed(values[at], 3)} at \u03b1 = {alphas[at]:g}" for at in (0, -1))
    differences = {
        "from the first to the last \u03b1": curve[-1:] - curve[:1],
        f"{NOISE:.0%} of the range, less the largest step back": np.array([NOISE - setback]),
    }
    text = f"As \u03b1 grows {words}, monotonically up to noise."
    measured = f"from {first} to {last}; largest step back {setback:.1%} of the range"
    return _claim(name, PAPER, text, differences, measured)


def _above_floors(name: str, samples: Samples, ours: str, feedback: str) -> Claim:
    first, *_, last = floors = [f"{share:g}" for share in paper.FLOORS]
    ahead = _ahead(samples, ours, "above", [f"{feedback} {floor}" for floor in floors], "alpha_performance")
    differences = {f"above \u03bd = {floor}/N": each for floor, each in zip(floors, ahead.values(), strict=True)}
    where = f"at each of the {len(floors)} floors \u03bd tried, from {first}/N up to {last}/N"
    text = f"{ours} ends above FairCB ({feedback}) in \u03b1-performance {where}."
    return _claim(name, FOUND, text, differences, f"{_final_values(samples, [ours], 'alpha_performance')}; ", 2)


def _limit(name: str, found: Limits) -> Claim:
    text = f"On the two-context instance {ALPHA_FAIR} attains the limit that no online policy can beat."
    away = found.distances[-1]
    measured = f"after {2 * found.halves[-1]:,} rounds OPT/ALG is within {away:.1e} of the limit, as a part of it"
    differences = {"0.001 less the distance from the limit": np.array([1e-3 - away])}
    return _claim(name, THEOREM, text, differences, measured, data=SYNTHETIC)


def _worst_arm(name: str, samples: Samples) -> Claim:
    text = "The published code's sign makes the bandit run to the worst arm."
    ours, theirs = (samples[label]["pull_shares"][:, -1] for label in (ALPHA_FAIR_BANDIT, PUBLISHED))
    measured = f"share of pulls of the worst of three arms: ours {ours.mean():.1%}, published sign {theirs.mean():.1%}"
    differences = {"published sign above 90%": theirs - 0.9, "ours below 10%": 0.1 - ours}
    return _claim(name, FOUND, text, differences, measured, data=SYNTHETIC)
