"""The report's pictures, in its order: results in, Figure out; each with the macro that makes its caption."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from alphafair.formatting import ALPHA
from alphafair.lab.pictures import arena, lines, rows


class Picture(NamedTuple):
    """`section` is its place on the page, `of` what it shows, `caption` a macro in templates/captions.html."""

    name: str
    title: str
    section: str
    of: str  # nothing: all that is shown
    drawn: Callable[[Any, str], Figure]
    caption: str

    def run(self, shown: Any) -> Any:
        return getattr(shown, self.of) if self.of else shown

    def draw(self, shown: Any) -> Figure:
        return self.drawn(self.run(shown), self.title)


GAP_CLOSED = Picture("gap-closed", arena.TITLE, "arena", "arena", arena.picture, "arena")
_OVER_TIME: dict[str, tuple[str, Callable[..., Figure]]] = {  # of A, and of B
    **{metric: (title, partial(lines.over_time, metric=metric)) for metric, (title, _) in lines.OVER_TIME.items()},
    "who_gets_what": ("Who gets what, arm by arm", rows.who_gets_what),
}
_TOY = "Which arm is pulled: one context, three arms, no fairness asked"
_SIGN = "The sign of the bandit reward, on the ratings"
_STEP = "The step size: squares of gradients added up, or norms"
_READINGS = "Three readings of when the slope \N{GREEK SMALL LETTER PHI}\N{PRIME} is taken"
_FLOORS = f"FairCB along its floor, against {ALPHA}-FairCB, which has none"
_LIMITS = "Where no online policy can match the optimum"
PICTURES = (
    *(
        Picture(f"{key}-{name.replace('_', '-')}", f"{title} ({setting})", key, key, drawn, name)
        for key, setting in (("A", "full information"), ("B", "bandit feedback"))
        for name, (title, drawn) in _OVER_TIME.items()
    ),
    *(
        Picture(f"C-{name}", title, "C", "C", partial(lines.over_alpha, metric=metric), f"{metric}_over_alpha")
        for metric, (title, _) in lines.OVER_ALPHA.items()
        for name in [metric.replace("_", "-")]
    ),
    Picture("price-of-fairness", "The price of fairness", "price", "C", lines.price, "price"),
    Picture("how-much-was-learned", "How much was learned", "learned", "", rows.learned, "learned"),
    Picture("sign-toy", _TOY, "corrections", "sign", rows.toy, "toy"),
    Picture("sign-ratings", _SIGN, "corrections", "sign", lines.sign, "sign"),
    Picture("step", _STEP, "corrections", "step", lines.step, "step"),
    Picture("readings", _READINGS, "corrections", "readings", lines.readings, "readings"),
    Picture("floor-sweep", _FLOORS, "rivals", "floor_sweep", lines.floor_sweep, "floor_sweep"),
    Picture("impossibility", _LIMITS, "rivals", "impossibility", lines.impossibility, "impossibility"),
    GAP_CLOSED,
)
