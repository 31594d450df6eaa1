"""Compare two results of the arena: `python -m docs.compare_arena OLD.json [NEW.json]`; NEW is docs/arena.json.

Prints the change of the adaptive policy in every scenario, in points of the gap closed, and counts changes outside the
noise: beyond the sum in quadrature of both intervals. Rounds are the same in both, so these intervals are wide.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path

from alphafair.lab.results import ArenaResults, Score
from docs.paste_arena import RESULTS
from tests.read_results import as_value

OURS = "alpha-fair-adaptive"


def read(path: Path) -> ArenaResults:
    found: ArenaResults = as_value(ArenaResults, json.loads(path.read_text(encoding="utf-8")))
    return found


def scores(results: ArenaResults) -> dict[tuple[str, str, str, float], Score]:
    """The scores of the adaptive policy by scenario, label, feedback and alpha."""
    parts = (results.matches, results.with_features, results.steep)
    return {
        (match.title, score.label, score.feedback, score.alpha): score
        for part in parts
        for match in part
        for score in match.scores
        if score.policy == OURS and score.gap_closed is not None
    }


def changes(old: ArenaResults, new: ArenaResults) -> Iterator[tuple[str, float, float, float, float]]:
    """What changed, the old and the new share, the change and half of its interval, all in points."""
    before = scores(old)
    for key, score in scores(new).items():
        if key in before:
            one, two = before[key].gap_closed, score.gap_closed
            assert one is not None
            assert two is not None
            noise = 50.0 * math.hypot(one.high - one.low, two.high - two.low)
            title, label, feedback, alpha = key
            what = f"{title}, {label}, {feedback}, \u03b1 = {alpha:g}"
            yield what, 100.0 * one.value, 100.0 * two.value, 100.0 * (two.value - one.value), noise


def main(old: Path, new: Path) -> None:
    worse = better = 0
    for what, before, after, change, noise in changes(read(old), read(new)):
        sign = "worse" if change < -noise - 0.05 else "better" if change > noise + 0.05 else ""
        worse, better = worse + (sign == "worse"), better + (sign == "better")
        print(f"{what:62} {before:7.1f} {after:7.1f} {change:+7.1f} \u00b1 {noise:5.1f} {sign}")
    print(f"{better} better, {worse} worse than their noise")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else RESULTS)
