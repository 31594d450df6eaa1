"""What the page's sentences say, worked out from results; the words themselves are in the templates."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from alphafair import metrics
from alphafair.experiments.claims import FAILS, HOLDS, OPEN, PAPER
from alphafair.experiments.results import Band, Claim, Compared, Curve, OverAlpha, OverFloor, OverTime, Sign
from alphafair.words import told_apart

PUBLISHED_FLOOR = 0.98  # of FairCB, times N, in the published settings


def verdicts(claims: tuple[Claim, ...]) -> dict[str, int]:
    """How many of the paper's independent claims came out in which way."""
    found = [claim.verdict for claim in claims if claim.source == PAPER and claim.independent]
    return {word: found.count(word) for word in (HOLDS, FAILS, OPEN)}


def close_to_first(run: Compared, metric: str) -> list[str]:
    """Whom the seeds do not tell from the one who ends best."""
    return [label for label, ahead in sorted(run.first[metric].ahead.items()) if ahead.low <= 0.0]


def reward_per_arm(run: OverTime, performance: float) -> float:
    """What every arm would have earned if all had earned alike."""
    power = 1.0 - run.alpha
    return float((performance * power / run.n_arms) ** (1.0 / power))


class AgainstUniform(NamedTuple):
    """Who ends below uniform play, whom the seeds do not tell from it, and where it ends itself."""

    below: list[str]
    doubtful: list[str]
    level: float


def against_uniform(run: OverTime) -> AgainstUniform:
    """By the gap closed, which is a difference seed by seed."""
    gaps = {label: each.gap_closed for label, each in run.ordered if each.policy != "uniform"}
    below = [label for label, gap in gaps.items() if gap.high < 0.0]
    doubtful = [label for label, gap in gaps.items() if gap.low < 0.0 <= gap.high]
    return AgainstUniform(below, doubtful, run.of("uniform").alpha_performance.end.mean)


class Lead(NamedTuple):
    label: str
    above: float
    doubtful: bool


def leads_over_uniform(run: Sign) -> list[Lead]:
    """How far above uniform play everybody else ends, the best first."""
    level = run.of("uniform").alpha_performance.end.mean
    found = []
    for curve in run.ranked("alpha_performance"):
        gap = run.contenders[curve.label].gap_closed
        if curve.policy != "uniform":
            found.append(Lead(curve.label, curve.end.mean - level, gap.low <= 0.0 <= gap.high))
    return found


class EarlyLeads(NamedTuple):
    """Who was more equal than alpha-FairCB earlier but not at the end, and when last."""

    ours: str
    leads: list[tuple[str, int]]


def early_leads(run: OverTime) -> EarlyLeads:
    curves = run.ranked("jain_index")
    ours = next(curve for curve in curves if curve.policy in ("alpha-fair", "alpha-fair-bandit"))
    found = []
    for curve in curves:
        ahead = np.flatnonzero(np.array(curve.series.mean) > np.array(ours.series.mean))
        if len(ahead) and ahead[-1] < len(run.rounds) - 1:
            found.append((curve.label, run.rounds[ahead[-1]]))
    return EarlyLeads(ours.label, found)


class Extremes(NamedTuple):
    """The worst-off and the best-off arm under one contender."""

    label: str
    least: float
    worst_off: str
    best_off: str
    share: float


def extremes(run: OverTime) -> tuple[Extremes, Extremes]:
    """Under the contender whose worst-off arm does best, and under the one whose worst-off arm does worst."""
    least = {label: min(each.final_rewards) for label, each in run.ordered}

    def of(label: str) -> Extremes:
        rewards = np.array(run.contenders[label].final_rewards)
        low, high = int(rewards.argmin()), int(rewards.argmax())
        share = float(metrics.shares(rewards)[high])
        return Extremes(label, float(rewards[low]), run.arm_labels[low], run.arm_labels[high], share)

    return of(max(least, key=lambda label: least[label])), of(min(least, key=lambda label: least[label]))


class Farthest(NamedTuple):
    """Who closes most of the gap, and everybody who ends behind uniform play."""

    label: str
    learned: Band
    behind: list[tuple[str, float]]


def farthest(run: OverTime) -> Farthest:
    learned = {label: each.learned for label, each in run.ordered if each.policy != "uniform"}
    first = max(learned, key=lambda label: learned[label].mean)
    behind = [(label, each.mean) for label, each in learned.items() if each.high < 0.0]
    return Farthest(first, learned[first], behind)


class Steps(NamedTuple):
    """How a metric goes with alpha: how many steps go against the whole change, and the largest of those."""

    rises: bool
    n_steps: int
    n_against: int
    largest: float
    part: float | None  # of the whole change, if there is one
    after: float  # this alpha


def steps(run: OverAlpha, metric: str) -> Steps:
    values = np.array(run.values(metric))
    change = float(values[-1] - values[0])
    moves = np.diff(values) * (1.0 if change >= 0.0 else -1.0)
    worst = int(moves.argmin())
    back = -float(moves[worst])
    part = back / abs(change) if change else None
    return Steps(change >= 0.0, len(moves), int((moves < 0.0).sum()), back, part, run.alphas[worst])


class Price(NamedTuple):
    """What the way from the first to the last alpha costs, as a part of the reward, and what half of it costs."""

    cost: float
    half: tuple[float, float] | None  # the alpha where half of the equality is there, and its cost


def price(run: OverAlpha) -> Price:
    jain, reward = np.array(run.jain_index), np.array(run.average_reward)
    costs, gain = 1.0 - reward / reward[0], jain[-1] - jain[0]
    if gain <= 0.0:
        return Price(float(costs[-1]), None)
    half = int(np.flatnonzero(jain - jain[0] >= gain / 2.0)[0])
    return Price(float(costs[-1]), (run.alphas[half], float(costs[half])))


class BestFloor(NamedTuple):
    """The best floor of FairCB in hindsight, against no floor at all."""

    floor: float
    is_last: bool
    theirs: str
    ours: str
    verdict: str


def best_floor(run: OverFloor, feedback: str) -> BestFloor:
    mean = run.fair_cb[feedback].alpha_performance.mean
    best = mean.index(max(mean))
    theirs, ours = told_apart(mean[best], run.alpha_fair[feedback].alpha_performance.mean)
    ahead = run.ahead[feedback][best]
    verdict = "above" if ahead.low > 0.0 else "below" if ahead.high < 0.0 else "not told apart from it by these seeds"
    return BestFloor(run.floors[best], best == len(mean) - 1, theirs, ours, verdict)


def published_floor(run: OverFloor) -> int:
    """The place of the floor in the published settings, or of the one next below."""
    return run.floors.index(max(floor for floor in run.floors if floor <= PUBLISHED_FLOOR))


class Readings(NamedTuple):
    """What the other readings of the slope change: parts of the default's performance at the end, and the most."""

    ends: list[tuple[float, str]]
    largest: float
    label: str
    metric: str


def differences(run: OverTime, metric: str) -> list[Curve]:
    """Every reading less the default."""
    base = np.array(run.contenders["before"].series(metric).mean)
    found = []
    for curve in run.curves(metric):
        mean = tuple((np.array(curve.series.mean) - base).tolist())
        found.append(curve._replace(series=type(curve.series)(mean, mean, mean)))
    return sorted(found, key=lambda curve: ("before", "next_visit", "after").index(curve.label))


def readings(run: OverTime) -> Readings:
    ends, largest = [], (0.0, "", "")
    for metric in ("alpha_performance", "jain_index"):
        base = np.array(run.contenders["before"].series(metric).mean)
        for curve in differences(run, metric)[1:]:
            label = curve.label.replace("_", " ")
            largest = max(largest, (float(np.abs(np.array(curve.series.mean) / base).max()), label, metric))
            if metric == "alpha_performance":
                ends.append((curve.end.mean / float(base[-1]), label))
    return Readings(ends, *largest)
