"""What the page's sentences say where it takes more than a look at the results; the words are in the templates."""

import numpy as np

from alphafair.experiments.results import OverAlpha, OverTime, Series

READINGS = ("before", "next_visit", "after")


def reward_per_arm(run: OverTime, performance: float) -> float:
    """What every arm would have earned if all had earned alike."""
    power = 1.0 - run.alpha
    return float((performance * power / run.n_arms) ** (1.0 / power))


def early_leads(run: OverTime, ours: str) -> list[tuple[str, int]]:
    """Who was more equal earlier but is not at the end, and when last."""
    level = np.array(run.contenders[ours].jain_index.mean)
    found = []
    for label, each in run.ranked("jain_index"):
        ahead = np.flatnonzero(np.array(each.jain_index.mean) > level)
        if len(ahead) and ahead[-1] < len(run.rounds) - 1:
            found.append((label, run.rounds[ahead[-1]]))
    return found


def steps_back(run: OverAlpha, metric: str) -> list[tuple[float, float]]:
    """Of the steps of a metric along alpha those that go against its whole change: by how much, and after which."""
    values = np.array(getattr(run, metric))
    moves = np.diff(values) * (1.0 if values[-1] >= values[0] else -1.0)
    return [(-float(move), alpha) for move, alpha in zip(moves, run.alphas, strict=False) if move < 0.0]


def half_way(run: OverAlpha) -> int | None:
    """The place of the first alpha with half of the equality that the last one has more than the first."""
    jain = np.array(run.jain_index) - run.jain_index[0]
    return int(np.flatnonzero(jain >= jain[-1] / 2.0)[0]) if jain[-1] > 0.0 else None


def differences(run: OverTime, metric: str) -> dict[str, Series]:
    """Every reading of the slope less the default."""
    base = getattr(run.contenders["before"], metric).mean
    return {word.replace("_", " "): getattr(run.contenders[word], metric).minus(base) for word in READINGS}


def largest_difference(run: OverTime) -> tuple[float, str, str]:
    """Of any reading at any round in either metric, as a part of the default's value; whose, and in which."""
    return max(
        (float(np.abs(np.divide(series.mean, getattr(run.contenders["before"], metric).mean)).max()), label, metric)
        for metric in ("alpha_performance", "jain_index")
        for label, series in differences(run, metric).items()
    )
