"""Whether a log can tell what a policy would have earned: enough rounds that look like it, and weights that add up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from alphafair.evaluation.model import divided
from alphafair.evaluation.scores import Scores
from alphafair.kernels.log_scores import GREATEST, SQUARE, WEIGHT, WORTH, WORTH_SQUARE
from alphafair.types import Vector
from alphafair.words import clipped, number, percent

Verdict = Literal["trustworthy", "thin", "do not use"]
FEWEST, FEW = 30.0, 200.0  # rounds' worth of information: below the first nothing holds, below the second little
FEW_REWARDED = 20.0  # rounds' worth of rewards, for every arm
FEW_GROUPS = 50  # of users
GREAT_WEIGHT = 0.03  # of an arm's weights together
MUCH_CUT = 0.25  # of the standard error of an arm's weights
BLIND = 0.001  # of all rounds: where the log cannot tell
FAR, OFF = 5.0, 0.1  # standard errors, and as a part: weights that do not add up


def effective_sample_size(scores: Scores) -> float:
    """(sum w)^2 / sum w^2: as many rounds of the policy itself would tell as much (Kish, 1965)."""
    return _effective(scores.arm_weights[WEIGHT].sum(), scores.arm_weights[SQUARE].sum())


def judge(scores: Scores, arm_labels: Sequence[str]) -> tuple[Verdict, list[str]]:
    """The verdict, and why it is not better."""
    weights, squares = scores.arm_weights[WEIGHT], scores.arm_weights[SQUARE]
    shown = scores.expected / scores.n_rounds > 1e-9  # by the policy
    unusable, thin = [], []
    for arm in np.flatnonzero(shown & (weights == 0.0)).tolist():
        part = percent(scores.expected[arm] / scores.n_rounds)
        unusable.append(f"{_name(arm_labels, arm)} was never shown, and the policy would show it in {part} of rounds")
    if not scores.arm_weights[WORTH].any():
        unusable.append("no round in which the policy could have shown the same arm has a reward above 0")
    often = scores.n_rounds / max(scores.n_contexts, 1)
    off = shown & (weights > 0.0) & (np.abs(weights - scores.expected) > FAR * np.sqrt(squares))
    off &= np.abs(weights - scores.expected) > OFF * scores.expected
    if off.any() and often < len(weights):
        unusable.append(
            f"contexts came {number(often, 2)} times on average, fewer than there are arms: too thin to tell what a "
            "policy earns in each"
        )
    for arm in np.flatnonzero(off).tolist() if often >= len(weights) else ():
        ratio = number(weights[arm] / scores.expected[arm], 2)
        unusable.append(
            f"the weights of {_name(arm_labels, arm)} add up to {ratio} times what they should: its propensities are "
            "wrong, or it was not shown where the policy would show it"
        )
    blind = float(scores.unseen.sum() / scores.n_rounds)
    if blind > BLIND:
        arm = int(scores.unseen.argmax())
        thin.append(
            f"in {percent(blind, 2)} of rounds the policy would show an arm, such as {_name(arm_labels, arm)}, in a "
            "context where the log never did: there is nothing but a guess for them"
        )
    size = effective_sample_size(scores)
    if size < FEWEST:
        unusable.append(f"the log is worth only {number(size, 2)} rounds of the policy")
    elif size < FEW:
        thin.append(f"the log is worth only {number(size, 3)} rounds of the policy")
    greatest = shown * divided(scores.arm_weights[GREATEST], weights, np.zeros_like(weights))
    if greatest.max() > GREAT_WEIGHT:
        arm = int(greatest.argmax())
        thin.append(f"one round carries {percent(greatest[arm], 2)} of the weight of {_name(arm_labels, arm)}")
    cut = shown & (scores.cut > MUCH_CUT * np.sqrt(squares))
    if cut.any():
        arm = int(np.flatnonzero(cut)[(scores.cut[cut] / weights[cut]).argmax()])
        part = percent(scores.cut[arm] / weights[arm], 2)
        thin.append(f"{part} of the weight of {_name(arm_labels, arm)} was cut, and no interval has that in it")
    rewarded = _rewarded(scores)
    poor = shown & (rewarded < FEW_REWARDED)
    if poor.any():
        arm = int(np.flatnonzero(poor)[rewarded[poor].argmin()])
        which = _name(arm_labels, arm) if poor.sum() == 1 else f"{poor.sum()} arms, such as {_name(arm_labels, arm)},"
        thin.append(f"what {which} would earn rests on fewer than {FEW_REWARDED:g} rewarded rounds")
    if len(scores.shares) < min(FEW_GROUPS, scores.n_rounds):
        thin.append(f"there are only {len(scores.shares)} users")
    verdict: Verdict = "do not use" if unusable else "thin" if thin else "trustworthy"
    return verdict, unusable + thin


def _rewarded(scores: Scores) -> Vector:
    """By arm: as many rewarded rounds of the policy itself would tell as much."""
    worth, squares = scores.arm_weights[WORTH], scores.arm_weights[WORTH_SQUARE]
    return divided(worth**2, squares, np.zeros_like(worth))


def _effective(total: float, squares: float) -> float:
    return float(total**2 / squares) if squares > 0.0 else 0.0


def _name(labels: Sequence[str], arm: int) -> str:
    return f"arm {clipped(labels[arm], 24)}"
