"""What is usually done, beside a fair policy, on real ratings: the table and the picture of README.md.

`python -m tools.compare_with_others` prints the table; with `--picture` it writes docs/pictures/effect.svg again. The
rounds are those of all MovieLens users with at least 500 ratings: 43 contexts, 19 genres as arms, 40,034 visits, one
reward seen per visit. Numbers are means over five seeds.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from alphafair import AlphaFairAdaptive, FairCB, Stream, Uniform, metrics, simulate, streams
from alphafair.extend import Array, BasePolicy, Feedback, PlainPolicy
from alphafair.lab.rivals import FairEpsilonGreedy, FairThompson, FairUCB

PICTURE = Path(__file__).parents[1] / "docs" / "pictures" / "effect.svg"
SEEDS = range(5)


class Quotas(PlainPolicy):
    """UCB on rewards, re-ranked: the arm furthest below half of an equal share of all visits is shown first."""

    name = "quotas"
    feedback = Feedback.BANDIT
    sums = Array("contexts", "arms")
    counts = Array("contexts", "arms", first=1.0)

    def __init__(self, n_contexts: int, n_arms: int, *, seed: int | None = None) -> None:
        super().__init__(n_contexts, n_arms, settings={}, seed=seed)

    def distribution(self, context: int) -> NDArray[np.float64]:
        pulls = self.counts.sum(axis=0) - self.counts.shape[0]
        behind = 0.5 * (pulls.sum() + 1.0) / len(pulls) - pulls
        counts = self.counts[context]
        bounds = self.sums[context] / counts + 0.1 * np.sqrt(np.log(counts.sum() + 1.0) / counts)
        shown = behind.argmax() if behind.max() > 0.0 else bounds.argmax()
        return np.eye(len(pulls))[shown]

    def learn(self, context: int, arm: int, propensity: float, reward: float) -> None:
        self.sums[context, arm] += reward
        self.counts[context, arm] += 1.0


class Line(NamedTuple):
    """A row of the table: means over seeds."""

    title: str
    reward: float  # per visit
    least: float  # share of all reward
    jain: float
    accounts: NDArray[np.float64]  # of the first seed


CONTENDERS: dict[str, Callable[[int, int, int], BasePolicy]] = {
    "ε-greedy, ε = 0.1": lambda m, n, seed: FairEpsilonGreedy(m, n, alpha=0.0, epsilon=0.1, seed=seed),
    "UCB": lambda m, n, seed: FairUCB(m, n, alpha=0.0, width=0.1, seed=seed),
    "Thompson sampling": lambda m, n, seed: FairThompson(m, n, alpha=0.0, scale=0.1, seed=seed),
    "UCB, re-ranked by quotas of visits": lambda m, n, seed: Quotas(m, n, seed=seed),
    "FairCB: a floor on visits": lambda m, n, seed: FairCB(m, n, horizon=40_034, seed=seed),
    "every arm alike": lambda m, n, seed: Uniform(m, n, feedback="bandit", seed=seed),
    "`AlphaFairAdaptive`, α = 0.5": lambda m, n, seed: AlphaFairAdaptive(m, n, alpha=0.5, seed=seed),
    "`AlphaFairAdaptive`, α = 1": lambda m, n, seed: AlphaFairAdaptive(m, n, alpha=1.0, seed=seed),
}


def measure(title: str, stream: Stream) -> Line:
    runs = [
        simulate(CONTENDERS[title](stream.n_contexts, stream.n_arms, seed), stream, seed=seed).final for seed in SEEDS
    ]
    return Line(
        title,
        float(np.mean([run.sum() - stream.n_arms for run in runs])) / stream.n_rounds,
        float(np.mean([metrics.shares(run).min() for run in runs])),
        float(np.mean([metrics.jain_index(run) for run in runs])),
        runs[0],
    )


def table(lines: list[Line]) -> str:
    rows = ["| on the same visits | reward per visit | poorest genre's share | Jain's index |", "|---|--:|--:|--:|"]
    for line in lines:
        rows.append(f"| {line.title} | {line.reward:.3f} | {line.least:.2%} | {line.jain:.2f} |")
    return "\n".join(rows)


def picture(before: Line, after: Line) -> str:
    """Two rows of bars, what every genre earns, as SVG that is readable on light and dark grounds."""
    width, height, bar = 720, 250, 30
    largest = max(float(before.accounts.max()), float(after.accounts.max()))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif"'
        ' font-size="13" fill="#777777" role="img">'
    ]
    for row, (line, color) in enumerate(((before, "#cc6677"), (after, "#4477aa"))):
        base = 112 + 118 * row
        words = f"{line.title.replace('`', '')}: {line.reward:.2f} per visit, the poorest genre has {line.least:.1%}"
        parts.append(f'<text x="10" y="{base - 90}">{words}</text>')
        for k, earned in enumerate(sorted(line.accounts, reverse=True)):
            tall = max(80.0 * float(earned) / largest, 0.5)
            parts.append(
                f'<rect x="{10 + k * (bar + 7)}" y="{base - tall:.1f}" width="{bar}" height="{tall:.1f}" fill="{color}"/>'
            )
        parts.append(f'<path d="M10 {base}h{width - 20}" stroke="#999999"/>')
    return "\n".join([*parts, "</svg>\n"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--picture", action="store_true", help="write docs/pictures/effect.svg")
    chosen = parser.parse_args()
    stream = streams.movielens_small(min_ratings=500)
    if chosen.picture:
        PICTURE.parent.mkdir(exist_ok=True)
        drawn = picture(*(measure(title, stream) for title in ("UCB", "`AlphaFairAdaptive`, α = 1")))
        PICTURE.write_text(drawn, encoding="utf-8")
        return
    print(table([measure(title, stream) for title in CONTENDERS]))


if __name__ == "__main__":
    main()
