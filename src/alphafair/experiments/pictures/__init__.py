"""The report's pictures: results in, Figure out, and a sentence that says what the numbers show.

`PICTURES` has them in the order of the report. Every sentence is made from the numbers, so it says so when they
contradict the paper.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from alphafair.experiments.pictures import arms, corrections, learned, over_alpha, over_time
from alphafair.figures import ALPHA

Results = Mapping[str, Any]


class Picture(NamedTuple):
    """One picture of the report: `name` is its file's, `section` its place, `needs` the experiments it shows."""

    name: str
    title: str
    section: str
    needs: tuple[str, ...]
    draw: Callable[[Results], Figure]
    sentence: Callable[[Results], str]


PICTURES: dict[str, Picture] = {}


def _add(
    name: str,
    title: str,
    section: str,
    experiment: str,
    draw: Callable[..., Figure],
    sentence: Callable[..., str],
    *arguments: str,
) -> None:
    """A picture of one experiment, from `draw(experiment, title, ...)` and `sentence(experiment, ...)`."""
    PICTURES[name] = Picture(
        name,
        title,
        section,
        (experiment,),
        lambda results: draw(results["experiments"][experiment], title, *arguments),
        lambda results: sentence(results["experiments"][experiment], *arguments),
    )


for _key, _setting in (("A", "full information"), ("B", "bandit feedback")):
    for _series, _title in over_time.TITLES.items():
        _name = f"{_key}-{_series.replace('_', '-')}"
        _add(_name, f"{_title} ({_setting})", _key, _key, over_time.picture, over_time.sentence, _series)
    _title = f"Who gets what, arm by arm ({_setting})"
    _add(f"{_key}-who-gets-what", _title, _key, _key, arms.who_gets_what, arms.who_sentence)

for _series, _title in over_alpha.TITLES.items():
    _name = f"C-{_series.replace('_', '-')}"
    _add(_name, _title, "C", "C", over_alpha.over_alpha, over_alpha.over_alpha_sentence, _series)
_add("price-of-fairness", "The price of fairness", "price", "C", over_alpha.price, over_alpha.price_sentence)
PICTURES["how-much-was-learned"] = Picture(
    "how-much-was-learned",
    learned.TITLE,
    "learned",
    ("A", "B"),
    lambda results: learned.picture(results["experiments"]),
    lambda results: learned.sentence(results["experiments"]),
)
_add(
    "sign-toy",
    "Which arm is pulled: one context, three arms, no fairness asked",
    "corrections",
    "sign",
    corrections.toy,
    corrections.toy_sentence,
)
_add(
    "sign-ratings",
    "The sign of the bandit reward, on the ratings",
    "corrections",
    "sign",
    corrections.sign,
    corrections.sign_sentence,
)
_add(
    "step",
    "The step size: squares of gradients added up, or norms",
    "corrections",
    "step",
    corrections.step,
    corrections.step_sentence,
)
_add(
    "readings",
    "Three readings of when the slope \N{GREEK SMALL LETTER PHI}\N{PRIME} is taken",
    "corrections",
    "readings",
    corrections.readings,
    corrections.readings_sentence,
)
_add(
    "floor-sweep",
    f"FairCB along its floor, against {ALPHA}-FairCB, which has none",
    "rivals",
    "floor_sweep",
    over_alpha.floor_sweep,
    over_alpha.floor_sentence,
)
_add(
    "impossibility",
    "Where no online policy can match the optimum",
    "rivals",
    "impossibility",
    over_alpha.impossibility,
    over_alpha.impossibility_sentence,
)


def available(results: Results) -> list[Picture]:
    """The pictures whose experiments are among the results."""
    return [picture for picture in PICTURES.values() if all(key in results["experiments"] for key in picture.needs)]
