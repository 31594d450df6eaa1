"""Paste the tables of the arena into docs/arena.md: `python -m docs.paste_arena`.

They are made from docs/arena.json, the results.json of `alphafair arena`. tests/test_docs.py fails while the page
differs from the results.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from alphafair.formatting import fixed, number, percent
from alphafair.lab.claims import verdict
from alphafair.lab.results import ArenaResults, Match, Score
from tests.read_results import as_value

PAGE, RESULTS = Path(__file__).with_name("arena.md"), Path(__file__).with_name("arena.json")
TABLE = re.compile(
    r"<!-- paste: (?P<part>features )?(?P<feedback>bandit|full) (?P<alpha>0[.\d]*) -->\n.*?(?=\n\n)", re.DOTALL
)
PROMISES = re.compile(r"(<!-- paste: promises -->\n).*?(?=\n\n)", re.DOTALL)


def results() -> ArenaResults:
    found: ArenaResults = as_value(ArenaResults, json.loads(RESULTS.read_text(encoding="utf-8")))
    return found


def table(matches: Sequence[Match], feedback: str, alpha: float) -> str:
    """A row per scenario: percent of the gap closed, half of its interval, and in brackets the alpha-performance."""
    labels = [score.label for score in matches[0].of(feedback, alpha)]
    rows = [f"| scenario | {' | '.join(labels)} |", f"|---|{'---:|' * len(labels)}"]
    for match in matches:
        scores = match.of(feedback, alpha)
        best = max((score.gap_closed.value for score in scores if score.gap_closed), default=0.0)
        rows.append(f"| {match.title} | {' | '.join(cell(score, best) for score in scores)} |")
    return "\n".join(rows)


def cell(score: Score, best: float) -> str:
    """The best share of a row is in bold."""
    if score.gap_closed is None:
        return f"no gap ({number(score.shown.value)})"
    share, half = 100.0 * score.gap_closed.value, 50.0 * (score.gap_closed.high - score.gap_closed.low)
    text = fixed(share, 1)
    bold = "**" if score.gap_closed.value == best else ""
    spread = f" \u00b1 {half:.1f}" if half >= 0.05 else ""
    return f"{bold}{text}{bold}{spread} ({number(score.shown.value)})"


def promises(matches: Sequence[Match]) -> str:
    """A row per promise: how far above its limit the adaptive policy is, in percent of the gap, and the verdict."""
    rows = ["| scenario | adaptive is | by | interval | |", "|---|---|---:|---|---|"]
    for match in matches:
        for what, lead in match.promises.items():
            value, low, high = map(percent, lead)
            rows.append(f"| {match.title} | {what} | {value} | {low} to {high} | {verdict([lead])} |")
    return "\n".join(rows)


def refreshed(page: str) -> str:
    """The page with every table from the results."""
    found = results()

    def paste(block: re.Match[str]) -> str:
        feedback, alpha, part = block["feedback"], block["alpha"], block["part"] or ""
        matches = found.with_features if part else found.matches
        return f"<!-- paste: {part}{feedback} {alpha} -->\n{table(matches, feedback, float(alpha))}"

    return PROMISES.sub(lambda block: block[1] + promises(found.matches), TABLE.sub(paste, page))


if __name__ == "__main__":
    PAGE.write_text(refreshed(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
