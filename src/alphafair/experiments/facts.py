"""What the page's sentences say where it takes more than a look at the results; the words are in the templates."""

from typing import NamedTuple

import numpy as np

from alphafair import metrics
from alphafair.experiments.results import Curve, Entry, OverAlpha, OverFloor, OverTime, Series

READINGS = ("before", "next_visit", "after")
PUBLISHED_FLOOR = 0.98  # of FairCB, times N, in the published settings


def reward_per_arm(run: OverTime, performance: float) -> float:
    """What every arm would have earned if all had earned alike."""
    power = 1.0 - run.alpha
    return float((performance * power / run.n_arms) ** (1.0 / power))


def early_leads(run: OverTime, ours: str) -> list[tuple[str, int]]:
    """Who was more equal earlier but is not at the end, and when last."""
    level = np.array(run.contenders[ours].jain_index.mean)
    found = []
    for curve in run.ranked("jain_index"):
        ahead = np.flatnonzero(np.array(curve.series.mean) > level)
        if len(ahead) and ahead[-1] < len(run.rounds) - 1:
            found.append((curve.label, run.rounds[ahead[-1]]))
    return found


class Extremes(NamedTuple):
    """The worst-off and the best-off arm under one contender."""

    label: str
    least: float
    worst_off: str
    best_off: str
    share: float


def extremes(run: OverTime) -> tuple[Extremes, Extremes]:
    """Under the contender whose worst-off arm does best, and under the one whose worst-off arm does worst."""

    def least(entry: Entry) -> float:
        return min(entry.outcome.final_rewards)

    def of(entry: Entry) -> Extremes:
        rewards = np.array(entry.outcome.final_rewards)
        low, high = int(rewards.argmin()), int(rewards.argmax())
        share = float(metrics.shares(rewards)[high])
        return Extremes(entry.label, float(rewards[low]), run.arm_labels[low], run.arm_labels[high], share)

    return of(max(run.ordered, key=least)), of(min(run.ordered, key=least))


class Steps(NamedTuple):
    """How a metric goes with alpha: how many steps go against its change, and the largest of those."""

    rises: bool
    n_steps: int
    n_against: int
    largest: float
    part: float | None  # of the change, if there is one
    after: float  # this alpha


def steps(run: OverAlpha, metric: str) -> Steps:
    values = np.array(getattr(run, metric))
    change = float(values[-1] - values[0])
    moves = np.diff(values) * (1.0 if change >= 0.0 else -1.0)
    worst = int(moves.argmin())
    back = -float(moves[worst])
    part = back / abs(change) if change else None
    return Steps(change >= 0.0, len(moves), int((moves < 0.0).sum()), back, part, run.alphas[worst])


def half_way(run: OverAlpha) -> int | None:
    """The place of the first alpha with half of the equality that the last one has more than the first."""
    jain = np.array(run.jain_index) - run.jain_index[0]
    return int(np.flatnonzero(jain >= jain[-1] / 2.0)[0]) if jain[-1] > 0.0 else None


def published_floor(run: OverFloor) -> int:
    """The place of the floor in the published settings, or of the one next below."""
    return run.floors.index(max(floor for floor in run.floors if floor <= PUBLISHED_FLOOR))


def differences(run: OverTime, metric: str) -> list[Curve]:
    """Every reading of the slope less the default."""
    base = np.array(getattr(run.contenders["before"], metric).mean)
    found = []
    for label in READINGS:
        each = run.contenders[label]
        series = Series.exact((np.array(getattr(each, metric).mean) - base).tolist())
        found.append(Curve(label.replace("_", " "), each.policy, each.feedback, series))
    return found


def largest_difference(run: OverTime) -> tuple[float, str, str]:
    """Of any reading at any round in either metric, as a part of the default's value; whose, and in which."""
    found = []
    for metric in ("alpha_performance", "jain_index"):
        base = np.array(getattr(run.contenders["before"], metric).mean)
        others = differences(run, metric)[1:]
        found += [(float(np.abs(np.array(each.series.mean) / base).max()), each.label, metric) for each in others]
    return max(found)
