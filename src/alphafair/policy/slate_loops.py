"""Whole runs of slates in one call, with the same kernels as single steps: of a stream, or against an adversary.

Decisions of one arm run the kernels of single arms. Rewards are learned from immediately, those of a slate together.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from alphafair.jit import kernel, specialize
from alphafair.math.adversaries import react as adversary_reacts
from alphafair.math.slates import SHOWN
from alphafair.policy.loops import no_features, no_reaction

if TYPE_CHECKING:
    from alphafair.policy.algorithm import Algorithm

draw: Any = None  # placeholders: `slate_loop` puts in the kernels of the algorithm
learn: Any = None
draw_slate: Any = None
learn_slate: Any = None
show: Any = None
react: Any = None


@kernel
def _check_shown(found, k):
    """Stop a run whose probabilities do not sum to k."""
    if found != k:
        raise ArithmeticError("the policy's probabilities do not sum to the number of shown arms")


@kernel
def _record(t, k, slate, probabilities, book, first_row):
    """Count the pulls, store the decision if there is space, and record `earned` if it is time."""
    for slot in range(k):
        arm = slate[SHOWN, slot]
        book.pulls[arm] += 1
        if first_row + slot < book.arms.shape[0]:
            book.arms[first_row + slot] = arm
            book.propensities[first_row + slot] = probabilities[arm]
    past = t - book.first_record
    if past >= 0 and past % book.record_every == 0:
        for i in range(book.earned.shape[0]):
            book.records[past // book.record_every, i] = book.earned[i]


def _play_full(memory, rounds, shown, first_rows, book, kind, state):
    n = book.earned.shape[0]
    probabilities, rewards, slate = np.empty(n), np.empty(n), np.zeros((2, n), dtype=np.int64)
    for t in range(rounds.contexts.shape[0]):
        context, item, k = np.int64(rounds.contexts[t]), np.int64(rounds.items[t]), min(np.int64(shown[t]), n)
        show(memory, rounds.features, t)
        if k == 1:
            arm, propensity = draw(memory, context, rounds.uniforms[t], probabilities)
            slate[SHOWN, 0] = arm
            _check_shown(1 if propensity > 0.0 else 0, k)
        else:
            _check_shown(draw_slate(memory, context, k, rounds.uniforms[t], probabilities, slate), k)
        react(kind, state, context, probabilities, rounds.reward_table, item)
        for i in range(n):
            rewards[i] = rounds.reward_table[item, i]
            book.earned[i] += probabilities[i] * rewards[i]
        if k == 1:
            learn(memory, context, probabilities, rewards)
        else:
            learn_slate(memory, context, k, probabilities, rewards)
        _record(t, k, slate, probabilities, book, first_rows[t])


def _play_bandit(memory, rounds, shown, first_rows, book, kind, state):
    n = book.earned.shape[0]
    probabilities, slate = np.empty(n), np.zeros((2, n), dtype=np.int64)
    arms, propensities, rewards = np.empty(n, dtype=np.int64), np.empty(n), np.empty(n)
    for t in range(rounds.contexts.shape[0]):
        context, item, k = np.int64(rounds.contexts[t]), np.int64(rounds.items[t]), min(np.int64(shown[t]), n)
        show(memory, rounds.features, t)
        if k == 1:
            arm, propensity = draw(memory, context, rounds.uniforms[t], probabilities)
            slate[SHOWN, 0] = arm
            _check_shown(1 if propensity > 0.0 else 0, k)
        else:
            _check_shown(draw_slate(memory, context, k, rounds.uniforms[t], probabilities, slate), k)
        react(kind, state, context, probabilities, rounds.reward_table, item)
        for slot in range(k):
            arms[slot] = slate[SHOWN, slot]
            propensities[slot] = probabilities[arms[slot]]
            rewards[slot] = rounds.reward_table[item, arms[slot]]
            book.earned[arms[slot]] += rewards[slot]
        if k == 1:
            learn(memory, context, arms[0], propensities[0], rewards[0])
        else:
            learn_slate(memory, context, k, arms[:k], propensities[:k], rewards[:k], True)
        _record(t, k, slate, probabilities, book, first_rows[t])


@cache
def slate_loop(job: str, feedback: str, algorithm: Algorithm) -> Any:
    """Return the loop for an algorithm: `play` a stream, or `face` an adversary."""
    own: Any = algorithm.draw_slate
    name = f"{job}.slates.{feedback}.{own.__module__}.{algorithm.learn_slate.__name__}"  # type: ignore[union-attr]
    learn_one = algorithm.learn
    steps = {"draw": algorithm.draw, "learn": learn_one, "draw_slate": own, "learn_slate": algorithm.learn_slate}
    steps |= {"show": algorithm.show or no_features, "react": adversary_reacts if job == "face" else no_reaction}
    return specialize(_play_full if feedback == "full" else _play_bandit, name.replace(".", "_"), **steps)
