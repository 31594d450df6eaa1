"""The report's pictures, in its order: results in, Figure out; each with the macro that makes its caption."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from alphafair.experiments.pictures import arena, arms, corrections, learned, over_alpha, over_time, rivals
from alphafair.experiments.results import Experiments
from alphafair.words import ALPHA


class Picture(NamedTuple):
    """`section` is its place on the page, `of` what it shows, `caption` a macro in templates/captions.html."""

    name: str
    title: str
    section: str
    of: str  # nothing: all of them
    drawn: Callable[[Any, str], Figure]
    caption: str

    def run(self, experiments: Experiments) -> Any:
        return getattr(experiments, self.of) if self.of else experiments

    def draw(self, experiments: Experiments) -> Figure:
        return self.drawn(self.run(experiments), self.title)


def _over_time(key: str, setting: str) -> list[Picture]:
    """The pictures of A, and of B."""
    drawn = {
        metric: (title, partial(over_time.picture, metric=metric)) for metric, (title, _) in over_time.METRICS.items()
    }
    drawn["who_gets_what"] = ("Who gets what, arm by arm", arms.who_gets_what)  # type: ignore[assignment]
    return [
        Picture(f"{key}-{name.replace('_', '-')}", f"{title} ({setting})", key, key, draw, name)
        for name, (title, draw) in drawn.items()
    ]


def _over_alpha(metric: str, title: str) -> Picture:
    name = f"C-{metric.replace('_', '-')}"
    return Picture(name, title, "C", "C", partial(over_alpha.picture, metric=metric), f"{metric}_over_alpha")


_TOY = "Which arm is pulled: one context, three arms, no fairness asked"
_SIGN = "The sign of the bandit reward, on the ratings"
_STEP = "The step size: squares of gradients added up, or norms"
_READINGS = "Three readings of when the slope \N{GREEK SMALL LETTER PHI}\N{PRIME} is taken"
_FLOORS = f"FairCB along its floor, against {ALPHA}-FairCB, which has none"
_LIMITS = "Where no online policy can match the optimum"
PICTURES = (
    *_over_time("A", "full information"),
    *_over_time("B", "bandit feedback"),
    *(_over_alpha(metric, title) for metric, (title, _) in over_alpha.METRICS.items()),
    Picture("price-of-fairness", "The price of fairness", "price", "C", over_alpha.price, "price"),
    Picture("how-much-was-learned", "How much was learned", "learned", "", learned.picture, "learned"),
    Picture("sign-toy", _TOY, "corrections", "sign", corrections.toy, "toy"),
    Picture("sign-ratings", _SIGN, "corrections", "sign", corrections.sign, "sign"),
    Picture("step", _STEP, "corrections", "step", corrections.step, "step"),
    Picture("readings", _READINGS, "corrections", "readings", corrections.readings, "readings"),
    Picture("floor-sweep", _FLOORS, "rivals", "floor_sweep", rivals.floor_sweep, "floor_sweep"),
    Picture("impossibility", _LIMITS, "rivals", "impossibility", rivals.impossibility, "impossibility"),
    Picture("gap-closed", arena.TITLE, "arena", "arena", arena.picture, "arena"),
)
