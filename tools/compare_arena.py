"""Compare two runs of the arena: `python -m tools.compare_arena OLD [NEW]`.

OLD and NEW are folders of `alphafair arena`, or two results.json; NEW is docs/background/data/arena.json if it is left
out. Prints the change of the adaptive policy in every scenario, in points of the gap closed, and counts changes outside
the noise, half of a 95% interval. Both runs have the same seeds. Folders have the numbers of every seed, so changes are
paired by seed; results do not, so the noise is the sum in quadrature of both intervals, which is wide.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator
from pathlib import Path

import polars as pl
from scipy import stats

from alphafair.lab import arena, measure
from alphafair.lab.plan import Experiment, Generated
from alphafair.lab.results import ArenaResults
from alphafair.lab.runner import Run
from alphafair.values import Interval, Vector
from alphafair.values.stream import Adversary
from tests.read_results import as_value
from tools.site.arena import RESULTS

OURS = "alpha-fair-adaptive"
PLANS = (arena.SCENARIOS, arena.FEATURE_SCENARIOS, arena.STEEP_SCENARIOS)
Change = tuple[str, float, float, float, float]  # what, the old and the new share, the change and its noise, in points


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path, metavar="OLD")
    parser.add_argument("new", type=Path, metavar="NEW", nargs="?", default=RESULTS)
    chosen = parser.parse_args()
    if chosen.old.is_dir() != chosen.new.is_dir():
        parser.error(f"OLD and NEW must be two folders or two files; got {chosen.old} and {chosen.new}")
    changes = paired if chosen.old.is_dir() else unpaired
    worse = better = 0
    for what, before, after, change, noise in changes(chosen.old, chosen.new):
        sign = "worse" if change < -noise - 0.05 else "better" if change > noise + 0.05 else ""
        worse, better = worse + (sign == "worse"), better + (sign == "better")
        print(f"{what:62} {before:7.1f} {after:7.1f} {change:+7.1f} \u00b1 {noise:5.1f} {sign}")
    print(f"{better} better, {worse} worse than their noise")


def name(title: str, label: str, feedback: str, alpha: float) -> str:
    return f"{title}, {label}, {feedback}, \u03b1 = {alpha:g}"


# folders


def paired(old: Path, new: Path) -> Iterator[Change]:
    """The mean change over the seeds of both, and half of its interval by Student's t."""
    before, after = dict(shares(old)), dict(shares(new))
    for what in before.keys() & after.keys():
        assert len(before[what]) == len(after[what]), what
    for what, share in after.items():
        if what in before:
            change = share - before[what]
            n = len(change)
            noise = float(stats.t.ppf(0.975, n - 1) * change.std(ddof=1) / math.sqrt(n)) if n > 1 else 0.0
            yield what, before[what].mean(), share.mean(), float(change.mean()), noise


def shares(folder: Path) -> Iterator[tuple[str, Vector]]:
    """Percent of the gap that the adaptive policy closes, by seed, in every scenario of a folder."""
    for experiment in (each for plan in PLANS for each in plan):
        run = read_run(experiment, folder)
        for contender in experiment.contenders if run else ():
            for alpha in experiment.alphas if contender.policy == OURS else ():
                assert run is not None
                closed, _ = measure.gap_closed_by_seed(run, contender, alpha)
                if closed is not None:
                    yield name(experiment.title, contender.label, contender.feedback.value, alpha), 100.0 * closed


def read_run(experiment: Experiment, folder: Path) -> Run | None:
    """The newest run of an experiment, which may be one of other code; None if there is none."""
    homes = [*(folder / "runs").glob(f"{experiment.name}-{12 * '[0-9a-f]'}")]
    if not homes:
        return None
    home = max(homes, key=lambda each: each.stat().st_mtime)
    tables = {path.stem: pl.read_parquet(path) for path in home.glob("*.parquet")}
    source = experiment.rounds
    assert isinstance(source, Generated)
    rounds = source.make(0)
    return Run(experiment, rounds.stream if isinstance(rounds, Adversary) else rounds, home.name, tables)


# files


def unpaired(old: Path, new: Path) -> Iterator[Change]:
    """The change of the means, and the sum in quadrature of half of both intervals."""
    before = dict(intervals(old))
    for what, two in intervals(new):
        if what in before:
            one = before[what]
            noise = 50.0 * math.hypot(one.high - one.low, two.high - two.low)
            yield what, 100.0 * one.value, 100.0 * two.value, 100.0 * (two.value - one.value), noise


def intervals(path: Path) -> Iterator[tuple[str, Interval]]:
    results: ArenaResults = as_value(ArenaResults, json.loads(path.read_text(encoding="utf-8")))
    for match in (*results.matches, *results.with_features, *results.steep):
        for score in match.scores:
            if score.policy == OURS and score.gap_closed is not None:
                yield name(match.title, score.label, score.feedback, score.alpha), score.gap_closed


if __name__ == "__main__":
    main()
