"""Whether a log can tell what a policy would have earned: enough rounds that look like it, and weights that add up."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from alphafair.evaluation.log_scores import (
    GREATEST,
    LOG,
    LOG_SQUARE,
    PAID,
    PAID_SQUARE,
    PAID_WEIGHT,
    SQUARE,
    WEIGHT,
    WORTH,
    WORTH_SQUARE,
)
from alphafair.evaluation.model import divided
from alphafair.evaluation.scores import Scores
from alphafair.formatting import clipped, number, percent
from alphafair.values import Matrix, Vector

Verdict = Literal["trustworthy", "thin", "do not use"]
FEWEST, FEW = 30.0, 200.0  # rounds' worth of information: below the first nothing holds, below the second little
FEW_REWARDED = 20.0  # rounds' worth of rewards, for every arm
LOPSIDED = 10.0 / 3.0  # over c: how much the skewness of rewards asks for, beside their spread
FEW_GROUPS = 50  # of users
GREAT_WEIGHT = 0.03  # of an arm's weights together
MUCH_CUT = 0.25  # of the standard error of an arm's weights
BLIND = 0.001  # of all rounds: where the log cannot tell
FAR, OFF = 5.0, 0.1  # standard errors, and as a part: weights that do not add up


def effective_sample_size(scores: Scores) -> float:
    """(sum w)^2 / sum w^2: as many rounds of the policy itself would tell as much (Kish, 1965)."""
    return float(_effective(scores.arm_weights[WEIGHT].sum(), scores.arm_weights[SQUARE].sum()))


def judge(scores: Scores) -> tuple[Verdict, list[str]]:
    """The verdict, and why it is not better."""
    unusable, thin = list(_unusable(scores)), list(_thin(scores))
    size = effective_sample_size(scores)
    if not size >= FEW:
        rounds = "one round" if size == 1.0 else f"{number(size, 2)} rounds"
        (unusable if size < FEWEST else thin).append(f"the log is worth only {rounds} of the policy")
    verdict: Verdict = "do not use" if unusable else "thin" if thin else "trustworthy"
    return verdict, unusable + thin


def _unusable(scores: Scores) -> Iterator[str]:
    """Why there is no number."""
    weights, squares = scores.arm_weights[WEIGHT], scores.arm_weights[SQUARE]
    shown = _shown(scores)
    never = shown & (weights == 0.0)
    if never.any():
        part = percent(float(scores.expected[never].sum()) / scores.n_rounds)
        which, were, they = _which(scores, never, scores.expected)
        yield f"{which} {were} never shown, and the policy would show {they} in {part} of rounds"
    if not scores.arm_weights[WORTH].any():
        yield "no round in which the policy could have shown the same arm has a reward above 0"
    apart = np.abs(weights - scores.expected)
    off = shown & ~never & (apart > np.maximum(FAR * np.sqrt(squares), OFF * scores.expected))
    often = scores.n_rounds / max(scores.n_contexts, 1)
    if off.any() and often < len(weights):
        few = f"rounds per context: {number(often, 2)}, fewer than arms"
        yield f"{few}, which is too thin to tell what a policy earns in each"
    elif off.any():
        ratios = divided(weights, scores.expected, np.ones_like(weights))
        which, _, they = _which(scores, off, np.abs(np.log(np.maximum(ratios, 1e-300))))
        worst = ratios[off][np.abs(np.log(ratios[off])).argmax()]
        yield (
            f"the weights of {which} add up to {number(worst, 2)} times what they should: propensities are wrong, or "
            f"the log did not show {they} where the policy would"
        )


def _thin(scores: Scores) -> Iterator[str]:
    """Why intervals are no more than indications."""
    weights, squares = scores.arm_weights[WEIGHT], scores.arm_weights[SQUARE]
    shown, none = _shown(scores), np.zeros_like(weights)
    blind = float(scores.unseen.sum() / scores.n_rounds)
    if blind > BLIND:
        arm = int(scores.unseen.argmax())
        yield (
            f"in {percent(blind, 2)} of rounds the policy would show an arm, such as {_name(scores, arm)}, in a "
            "context where the log never did: there is nothing but a guess for them"
        )
    greatest = shown * divided(scores.arm_weights[GREATEST], weights, none)
    if greatest.max() > GREAT_WEIGHT:
        arm = int(greatest.argmax())
        yield f"one round carries {percent(greatest[arm], 2)} of the weight of {_name(scores, arm)}"
    cut = shown & (scores.cut > MUCH_CUT * np.sqrt(squares))
    if cut.any():
        parts = cut * divided(scores.cut, weights, none)
        arm = int(parts.argmax())
        part = percent(parts[arm], 2)
        yield f"{part} of the weight of {_name(scores, arm)} was cut, and no interval has that in it"
    paid, rewarded = rewarded_rounds(scores.arm_weights)
    poor = shown & (paid < FEW_REWARDED)
    if poor.any():
        which, _, _ = _which(scores, poor, -paid)
        yield f"what {which} would earn rests on fewer than {FEW_REWARDED:g} rewarded rounds"
    uneven = shown & (rewarded < FEW_REWARDED) & ~poor
    if uneven.any():
        which, _, _ = _which(scores, uneven, -rewarded)
        yield f"rewards are so uneven that those of {which} tell less than {FEW_REWARDED:g} equal ones would"
    if len(scores.shares) < min(FEW_GROUPS, scores.n_rounds):
        yield f"there are only {len(scores.shares)} users"


def _shown(scores: Scores) -> NDArray[np.bool_]:
    """The arms that the policy would show at all."""
    return np.asarray(scores.expected / scores.n_rounds > 1e-9)


def _which(scores: Scores, arms: NDArray[np.bool_], worst: Vector) -> tuple[str, str, str]:
    """Those arms in words, the worst of several by its name; "was" or "were"; "it" or "them"."""
    name = _name(scores, int(np.flatnonzero(arms)[worst[arms].argmax()]))
    return (name, "was", "it") if arms.sum() == 1 else (f"{arms.sum()} arms, such as {name},", "were", "them")


def rewarded_rounds(sums: Matrix) -> tuple[Vector, Vector]:
    """By arm: as many rounds of the policy itself that paid anything, and as many that all pay alike, tell as much.

    (sum w r)^2 / sum (w r)^2 are those that were seen. Where rewards are very uneven most logs lack the largest, and
    look even. So their logarithms, which hardly depend on the largest, are asked as well: of n rounds' worth that paid
    anything, and with c = E r^2/(E r)^2, there are n/c for the spread and LOPSIDED n/c^2 for the skewness.
    """
    paid, seen = _effective(sums[PAID_WEIGHT], sums[PAID_SQUARE]), _effective(sums[WORTH], sums[WORTH_SQUARE])
    c = max(1.0, min(_lognormal(sums), 2.0 * float(paid.sum()) / max(float(seen.sum()), 1e-300)))
    return paid, np.minimum(seen, paid * min(1.0 / c, LOPSIDED / c**2))


def _lognormal(sums: Matrix) -> float:
    """E r^2/(E r)^2 of rewards above 0 if they are lognormal: e^(s^2), with s^2 the variance of log r within arms."""
    paid = np.maximum(sums[PAID], 1.0)
    squares = float((sums[LOG_SQUARE] - sums[LOG] ** 2 / paid).sum())
    return math.exp(min(100.0, max(0.0, squares) / max(1.0, float((paid - 1.0).sum()))))


def _effective(totals: Any, squares: Any) -> Any:
    return divided(totals**2, squares, np.zeros_like(totals))


def _name(scores: Scores, arm: int) -> str:
    return f"arm {clipped(scores.arm_labels[arm], 24)}"
