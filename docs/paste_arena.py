"""Paste the tables of the arena into docs/arena.md: `python -m docs.paste_arena`.

They are made from docs/arena.json, which is the results.json that `alphafair arena` has written. tests/test_docs.py
runs this too, and fails while the page says something else than the results.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from alphafair.formatting import fixed, number, percent
from alphafair.lab.claims import verdict
from alphafair.lab.results import Arena, Meeting, Score
from tests.read_results import as_value

PAGE, RESULTS = Path(__file__).with_name("arena.md"), Path(__file__).with_name("arena.json")
TABLE = re.compile(
    r"<!-- paste: (?P<part>described )?(?P<feedback>bandit|full) (?P<alpha>0[.\d]*) -->\n.*?(?=\n\n)", re.DOTALL
)
PROMISES = re.compile(r"(<!-- paste: promises -->\n).*?(?=\n\n)", re.DOTALL)


def results() -> Arena:
    found: Arena = as_value(Arena, json.loads(RESULTS.read_text(encoding="utf-8")))
    return found


def table(meetings: Sequence[Meeting], feedback: str, alpha: float) -> str:
    """A row per course: percent of the gap closed with half of its band, and in brackets the alpha-performance."""
    labels = [score.label for score in meetings[0].of(feedback, alpha)]
    rows = [f"| course | {' | '.join(labels)} |", f"|---|{'---:|' * len(labels)}"]
    for meeting in meetings:
        scores = meeting.of(feedback, alpha)
        best = max((score.gap_closed.mean for score in scores if score.gap_closed), default=0.0)
        rows.append(f"| {meeting.title} | {' | '.join(cell(score, best) for score in scores)} |")
    return "\n".join(rows)


def cell(score: Score, best: float) -> str:
    """The best share of a row is in bold."""
    if score.gap_closed is None:
        return f"no gap ({number(score.alpha_performance.mean)})"
    share, half = 100.0 * score.gap_closed.mean, 50.0 * (score.gap_closed.high - score.gap_closed.low)
    text = fixed(share, 1)
    bold = "**" if score.gap_closed.mean == best else ""
    band = f" \u00b1 {half:.1f}" if half >= 0.05 else ""
    return f"{bold}{text}{bold}{band} ({number(score.alpha_performance.mean)})"


def promises(meetings: Sequence[Meeting]) -> str:
    """A row per promise: how far above its limit the adaptive policy is, in percent of the gap, and the verdict."""
    rows = ["| course | adaptive is | by | interval | |", "|---|---|---:|---|---|"]
    for meeting in meetings:
        for lead in meeting.promises:
            mean, low, high = (percent(side) for side in (lead.mean, lead.low, lead.high))
            rows.append(f"| {meeting.title} | {lead.what} | {mean} | {low} to {high} | {verdict([lead])} |")
    return "\n".join(rows)


def refreshed(page: str) -> str:
    """The page with every table as the results have it."""
    found = results()

    def paste(block: re.Match[str]) -> str:
        feedback, alpha, part = block["feedback"], block["alpha"], block["part"] or ""
        meetings = found.described if part else found.meetings
        return f"<!-- paste: {part}{feedback} {alpha} -->\n{table(meetings, feedback, float(alpha))}"

    return PROMISES.sub(lambda block: block[1] + promises(found.meetings), TABLE.sub(paste, page))


if __name__ == "__main__":
    PAGE.write_text(refreshed(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
