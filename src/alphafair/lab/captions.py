"""The captions of the report's figures: each function takes results and returns sentences."""

from __future__ import annotations

from collections.abc import Sequence

from alphafair.formatting import ALPHA, capital, distinguished, fixed, listed, number, percent
from alphafair.lab.results import (
    Compared,
    Experiments,
    Limits,
    Match,
    Outcome,
    OverAlpha,
    OverFloor,
    OverTime,
    Sign,
)
from alphafair.metrics import METRICS
from alphafair.values import Interval

NO_GAP = "there is no gap to close: the optimum is barely better than uniform play"


def with_interval(found: Interval, digits: int = 4) -> str:
    """An estimate, with its confidence interval if it has one.

    >>> with_interval(Interval(1.5, 1.25, 1.75)), with_interval(Interval.exact(2.0))
    ('1.500 (95%: 1.250 to 1.750)', '2')
    """
    text = number(found.value, digits)
    return f"{text} (95%: {number(found.low, digits)} to {number(found.high, digits)})" if found.random else text


def side(lead: float) -> str:
    """
    >>> side(0.5), side(-2.0)
    ('0.500 above', '2 below')
    """
    return f"{number(abs(lead), 3)} {'above' if lead > 0.0 else 'below'}"


def verb(subjects: Sequence[object], singular: str, plural: str) -> str:
    return plural if len(subjects) > 1 else singular


def not_significant(run: Compared, metric: str) -> str:
    """A remark on the contenders whose difference to the best is not significant."""
    close = run.first[metric].close
    return f" (not significantly different from {listed(close)})" if close else ""


# experiments A and B


def alpha_performance(run: Compared) -> str:
    ranked = run.ranked("alpha_performance")
    first, last = ranked[0], ranked[-1]
    highest, lowest = first.alpha_performance.last, last.alpha_performance.last.value
    uniform = number(run.of("uniform").alpha_performance.last.value)

    def each(performance: float) -> str:
        return number(run.reward_per_arm(performance), 3)

    text = (
        f"{capital(first.label)} ends highest, at {with_interval(highest)}{not_significant(run, 'alpha_performance')}: "
        f"as good as if every arm had earned {each(highest.value)}. The optimum is {number(run.best)}, or "
        f"{each(run.best)} per arm; {last.label} ends lowest, at {number(lowest)}, or {each(lowest)} per arm. "
    )
    others = [(one.label, one.gap_closed) for one in run.outcomes if one.policy != "uniform"]
    closed = {label: gap for label, gap in others if gap is not None}
    if not closed:
        return f"{text}{capital(NO_GAP)} ({uniform})."
    below = [label for label, gap in closed.items() if gap.high < 0.0]
    doubtful = [label for label, gap in closed.items() if gap.low < 0.0 <= gap.high]
    who = capital(listed(below)) if below else "No policy"
    text += f"{who} {verb(below, 'ends', 'end')} below uniform play ({uniform})"
    return text + (f"; the difference is not significant for {listed(doubtful)}." if doubtful else ".")


def jain_index(run: Compared) -> str:
    first, *rest = run.ranked("jain_index")
    ours = next(one.label for one in (first, *rest) if one.policy in ("alpha-fair", "alpha-fair-bandit"))
    others = listed([f"{one.label} {number(one.jain_index.last.value, 3)}" for one in rest])
    text = (
        f"{capital(first.label)} ends most equal, at {with_interval(first.jain_index.last, 3)}"
        f"{not_significant(run, 'jain_index')}; then {others}. "
        f"If one arm received everything, it would be {number(1.0 / run.n_arms, 2)}."
    )
    earlier = run.early_leads(ours)
    if earlier:
        who = listed([f"{label} (last at round {at:,})" for label, at in earlier])
        text += f" Earlier {who} {verb(earlier, 'was', 'were')} more equal than {ours}."
    return text


def standard_regret(run: Compared) -> str:
    ranked = run.ranked("standard_regret")

    def end(one: Outcome) -> str:
        found = one.standard_regret.last
        size = found if found.value > 0.0 else Interval(-found.value, -found.high, -found.low)
        return f"{with_interval(size, 3)} {'below' if found.value > 0.0 else 'above'} the optimum"

    text = (
        f"{capital(ranked[0].label)} ends best, {end(ranked[0])}{not_significant(run, 'standard_regret')}; "
        f"{ranked[-1].label} ends worst, {end(ranked[-1])}. "
    )
    if min(one.standard_regret.value.min() for one in ranked) < 0.0:
        text += "Negative regret means that a policy is ahead of every fixed policy. "
    return f"{text}The optimum is certified to within {number(run.certificate, 2)}."


def approximate_regret(run: Compared) -> str:
    ranked = run.ranked("approximate_regret")
    lowest, highest = ranked[0].approximate_regret.last, ranked[-1].approximate_regret.last.value
    uniform = run.of("uniform").approximate_regret.last.value
    text = (
        f"{capital(ranked[0].label)} ends lowest, at {with_interval(lowest)}"
        f"{not_significant(run, 'approximate_regret')}; {ranked[-1].label} ends highest, at {number(highest)}. A "
        f"policy's score is multiplied by {number(run.factor)} here, so the optimum itself is at "
        f"{number((1.0 - run.factor) * run.best)}"
    )
    if uniform < 0.0:
        text += (
            f", and uniform play, which learns nothing, is at {number(uniform)}: a negative value alone proves "
            "nothing, so read it with the standard regret"
        )
    return f"{text}."


def who_gets_what(run: Compared) -> str:
    kindest = max(run.outcomes, key=lambda one: one.least)
    harshest = min(run.outcomes, key=lambda one: one.least)

    def under(one: Outcome) -> str:
        rewards, names = one.final_accounts, run.arm_labels
        return (
            f"{one.label}, with {number(one.least, 3)} for {names[rewards.argmin()]}, where {names[rewards.argmax()]} "
            f"takes {percent(rewards.max() / rewards.sum())} of all reward"
        )

    text = f"The worst-off arm is best off under {under(kindest)}"
    return text + (f"; it is worst off under {under(harshest)}." if harshest.label != kindest.label else ".")


# experiment C


def over_alpha(run: OverAlpha, metric: str) -> str:
    values, back = getattr(run, metric), run.steps_back(metric)
    change, n_steps = values[-1] - values[0], len(values) - 1
    name = {"jain_index": "Jain's index", "average_reward": "The average cumulative reward"}[metric]
    text = (
        f"{name} {'rises' if change >= 0.0 else 'falls'} from {number(values[0])} at {ALPHA} = {run.alphas[0]:g} to "
        f"{number(values[-1])} at {ALPHA} = {run.alphas[-1]:g}"
    )
    if not back:
        return f"{text}, at every one of its {n_steps} steps."
    size, alpha = max(back, key=lambda step: step[0])
    part = f" ({percent(size / abs(change), 2)} of the whole change)" if change else ""
    return (
        f"{text}; {len(back)} of {n_steps} steps {verb(back, 'goes', 'go')} the other way, the largest by "
        f"{number(size, 2)}{part} after {ALPHA} = {alpha:g}."
    )


def price(run: OverAlpha) -> str:
    jain, reward, half = run.jain_index, run.average_reward, run.half_way()
    cost = 1.0 - reward[-1] / reward[0]
    text = (
        f"From {ALPHA} = {run.alphas[0]:g} to {run.alphas[-1]:g} Jain's index goes from {number(jain[0], 3)} to "
        f"{number(jain[-1], 3)} and the average reward from {number(reward[0])} to {number(reward[-1])} "
        f"({percent(abs(cost))} {'less' if cost >= 0.0 else 'more'})"
    )
    if half is None:
        return f"{text}: on these data {ALPHA} buys no equality."
    return (
        f"{text}; half of that gain in equality is reached at {ALPHA} = {run.alphas[half]:g}, at a cost of "
        f"{percent(1.0 - reward[half] / reward[0])}."
    )


# how much was learned, and the corrections


def learned(experiments: Experiments) -> str:
    return (
        f"With full information (experiment A), {_farthest(experiments.A)}. With bandit feedback (experiment B), "
        f"{_farthest(experiments.B)}."
    )


def _farthest(run: Compared) -> str:
    found = [(one.label, one.learned) for one in run.outcomes if one.policy != "uniform"]
    closed = {label: share for label, share in found if share is not None}
    if not closed:
        return NO_GAP
    label, share = max(closed.items(), key=lambda item: item[1].value)
    limits = f" (95%: {percent(share.low)} to {percent(share.high)})" if share.random else ""
    if share.value <= 0.0:
        return f"no policy beats uniform play; {label} comes closest, at {percent(share.value)} of the gap{limits}"
    text = f"{label} closes the largest share of the gap, {percent(share.value)}{limits}"
    behind = [f"{other} ({percent(each.value)})" for other, each in closed.items() if each.high < 0.0]
    return text + (f", while {listed(behind)} {verb(behind, 'ends', 'end')} behind uniform play" if behind else "")


def toy(run: Sign) -> str:
    parts = [
        f"{label} pulls the best arm in {percent(shares[0])} of the rounds and the worst in {percent(shares[-1])}"
        for label, shares in run.toy.shares.items()
    ]
    return f"{capital('; '.join(parts))}."


def sign(run: Sign) -> str:
    level, parts = run.of("uniform").alpha_performance.last.value, []
    for one in run.ranked("alpha_performance"):
        if one.policy != "uniform":
            gap, lead = one.gap_closed, one.alpha_performance.last.value - level
            doubt = ", which is not significant" if gap is not None and gap.low <= 0.0 <= gap.high else ""
            parts.append(f"{one.label} ends {side(lead)} uniform play{doubt}")
    return f"{capital('; '.join(parts))}. The optimum is {number(run.best - level, 3)} above uniform play."


def step(run: OverTime) -> str:
    first, *rest = (
        f"{one.label} at {number(one.standard_regret.last.value, 3)}" for one in run.ranked("standard_regret")
    )
    return f"Standard regret ends lowest for {first}; then {listed(rest)}."


def readings(run: OverTime) -> str:
    default, *others = run.outcomes
    level = default.alpha_performance.last.value
    differences = [
        f"{percent((one.alpha_performance - default.alpha_performance.value).last.value / level, 2)} "
        f"({one.label.replace('_', ' ')})"
        for one in others
    ]
    size, label, metric = run.largest_difference()
    return (
        f"The final {ALPHA}-performance differs from the default's by {listed(differences)}; the largest difference at "
        f"any recorded round, in either metric, is {percent(size, 2)} ({label}, {METRICS[metric].label})."
    )


# pull floors, the limit and the arena


def floor_sweep(run: OverFloor) -> str:
    parts = []
    for feedback, setting in (("full", "With full information"), ("bandit", "With bandit feedback")):
        swept = run.fair_cb[feedback]["alpha_performance"].value
        best, ahead = int(swept.argmax()), run.ahead[feedback]
        theirs, ours = distinguished(swept[best], run.alpha_fair[feedback]["alpha_performance"].value)
        last = " (the highest tried, so a higher one may do better)" if best == len(swept) - 1 else ""
        where = (
            "above" if ahead.low[best] > 0.0 else "below" if ahead.high[best] < 0.0 else "not significantly different"
        )
        parts.append(
            f"{setting}, FairCB reaches its highest {ALPHA}-performance, {theirs}, at a floor of "
            f"{run.floors[best]:g}/N{last}; {ALPHA}-FairCB, which needs no floor, ends at {ours}, {where}."
        )
    return " ".join(parts)


def impossibility(run: Limits) -> str:
    rows = zip(run.ratios, run.alphas, run.limits, strict=True)
    ratios = [f"{fixed(row[-1], 4)} at {ALPHA} = {alpha:g} (limit {fixed(limit, 4)})" for row, alpha, limit in rows]
    return (
        f"With n = {run.halves[-1]:,} OPT/ALG is {listed(ratios)}. The largest relative distance to a limit is "
        f"{run.distances[-1]:.1e}, against {run.distances[0]:.1e} with n = {run.halves[0]:,}."
    )


def arena(matches: Sequence[Match]) -> str:
    ours, first = matches[0].scores[0].label, []
    for match in matches:
        closed = [(score.gap_closed.value, score.label) for score in match.scores if score.gap_closed is not None]
        first += [max(closed, key=lambda pair: pair[0])[1]] if closed else []
    others = list(dict.fromkeys(label for label in first if label != ours))
    elsewhere = f"; in the others {listed(others)} {verb(others, 'does', 'do')}" if others else ""
    return f"{capital(ours)} closes the largest share in {first.count(ours)} of {len(matches)} scenarios{elsewhere}."


def tuned(matches: Sequence[Match]) -> str:
    """In how many cases the adaptive policy is behind the best tuned rival, significantly or not."""
    bests = [match.best_tuned(alpha) for match in matches for alpha in match.alphas]
    leads = [best.lead for best in bests if best is not None and best.lead is not None]
    behind, ahead = sum(lead.high < 0.0 for lead in leads), sum(lead.low > 0.0 for lead in leads)
    return (
        f"Of {len(leads)} pairs of a scenario and an {ALPHA}, the adaptive policy is significantly ahead of the best "
        f"tuned rival in {ahead}, behind it in {behind}, and neither in {len(leads) - ahead - behind}."
    )
