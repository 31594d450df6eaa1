"""Tables of published notions of fairness, from docs/background/data/notions.json: results of `alphafair notions`."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from alphafair.lab.fairness import MEASURES
from alphafair.lab.notions import NotionRow, WorldResults

RESULTS = Path(__file__).parents[2] / "docs" / "background" / "data" / "notions.json"
BEST = "adaptive 0"  # costs are what is lost against it
FEWER = ("jain_index", "least_reward")  # measures that the tables of the site leave out


class Answer(NamedTuple):
    """A row of the page "Which fairness do you need?": the costs are those of these policies, the dearest of each."""

    owed: str
    use: str
    labels: tuple[str, ...]
    missing: str


ANSWERS = (
    Answer(
        "nothing, but nobody starves", "`AlphaFairAdaptive(alpha=.5)`", ("adaptive .5",), "promises in writing; envy"
    ),
    Answer(
        "everybody a fair return, no envy",
        "`AlphaFairAdaptive(alpha=1)`",
        ("adaptive 1",),
        "exposure by merit; short waits",
    ),
    Answer(
        "the poorest as much as possible",
        "`AlphaFairAdaptive(alpha=math.inf)`, or 2",
        ("adaptive 2",),
        "visitors of the worst context pay; the costs are those of 2",
    ),
    Answer(
        "some are entitled to more, or to a rate of income",
        "`Groups(entitlements=...)`, `alpha` of 2 or more",
        ("adaptive 5, entitled",),
        "a promise in writing; the costs are those of 5",
    ),
    Answer(
        "a rate of income by contract, the rest for profit",
        '`Promised(AlphaFairAdaptive(alpha=0), of="reward")`',
        ("adaptive 0, promised reward 0",),
        "logs that can evaluate others",
    ),
    Answer(
        "a share of exposure by contract, a few pulls late",
        '`Promised(AlphaFairAdaptive(alpha=0), of="pulls")`',
        ("adaptive 0, promised pulls 10",),
        "the same; and pulls can be worth little",
    ),
    Answer(
        "a share of exposure by contract, at every time",
        '`Promised(..., of="pulls", tolerance=0)`',
        ("adaptive 0, promised pulls 0",),
        "the same",
    ),
    Answer(
        "a chance in every single round, or logs that can be evaluated",
        "`Groups(pull_floor=...)`, `RateUCB`",
        ("adaptive 0, floor",),
        "less reward: for logs alone a floor of 0.002 is enough",
    ),
    Answer(
        "every group within bounds, in every context",
        "`Groups(labels, pull_floor={...})`",
        ("adaptive 0, halves",),
        "fairness inside a group",
    ),
    Answer(
        "exposure in proportion to merit",
        "`FairX(width=.3)`",
        ("FairX, width .3",),
        "it works only with many rounds per context",
    ),
    Answer(
        "never to favor a worse arm",
        "`FairBandits`",
        ("FairBandits",),
        "everything else: it is uniform play until its intervals separate",
    ),
    Answer(
        "fairness to visitors, the early ones too",
        "`AlphaFairAdaptive(alpha=0)`, or `NashConfidenceBound` with small constants",
        ("Nash confidence bound, c .1",),
        "fairness to arms; the costs are those of the second",
    ),
)


@cache
def results() -> tuple[WorldResults, ...]:
    """The worlds of the results."""

    def row(found: dict[str, Any]) -> NotionRow:
        measures = {name: tuple(values) for name, values in found["measures"].items()}
        return NotionRow(found["label"], found["policy"], measures)

    worlds = json.loads(RESULTS.read_text(encoding="utf-8"))["worlds"]
    return tuple(
        WorldResults(**{**world, "seeds": tuple(world["seeds"]), "rows": tuple(map(row, world["rows"]))})
        for world in worlds
    )


def costs() -> str:
    """What each promise costs: the share of the reward of alpha = 0 that is lost in every world."""
    names = ", ".join(world.title for world in results())
    rows = [f"| what you owe | use | what it costs ({names}) | what you do not get |", "|---|---|--:|---|"]
    for answer in ANSWERS:
        lost = (max(world.cost(label, BEST) for label in answer.labels) for world in results())
        shown = ", ".join(f"{max(0.0, share):.0%}" for share in lost)
        rows.append(f"| {answer.owed} | {answer.use} | {shown} | {answer.missing} |")
    return "\n".join(rows)


def table(name: str) -> str:
    """All measures of all policies in one world, means over the seeds."""
    (world,) = (each for each in results() if each.name == name)
    names = [measure for measure in MEASURES if measure not in FEWER]
    titles = " | ".join(MEASURES[measure].title for measure in names)
    rows = [f"| policy | {titles} |", "|---|" + "--:|" * len(names)]
    for row in world.rows:
        means = {measure: row.mean(measure) for measure in names}
        cells = ("" if value is None else MEASURES[measure].text(value) for measure, value in means.items())
        rows.append(f"| {row.label} | {' | '.join(cells)} |")
    return "\n".join(rows)


def measures() -> str:
    """What the columns are."""
    rows = ["| column | what it is, and what is best |", "|---|---|"]
    rows += [f"| {each.title} | {each.meaning} |" for name, each in MEASURES.items() if name not in FEWER]
    return "\n".join(rows)


def block(what: str) -> str:
    """`costs`, `measures`, or the table of a world by its name."""
    return {"costs": costs, "measures": measures}[what]() if what in ("costs", "measures") else table(what)
