"""Whole runs of slates in one call, with the same kernels as single steps: a stream, an adversary, or steps of a log.

Decisions of one arm run the kernels of single arms. In streams rewards are learned from immediately, those of a slate
together.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from alphafair.jit import kernel, specialize
from alphafair.math.adversaries import react as adversary_reacts
from alphafair.math.distributions import mask_alone
from alphafair.math.slates import SHOWN, mask_slate
from alphafair.policy.loops import (
    DRAW,
    EXPECT,
    LEARN,
    no_expectation,
    no_features,
    no_preparation,
    no_reaction,
)

if TYPE_CHECKING:
    from alphafair.policy.algorithm import Algorithm

draw: Any = None  # placeholders: `slate_loop` puts in the kernels of the algorithm
learn: Any = None
draw_slate: Any = None
learn_slate: Any = None
prepare: Any = None
prepare_slate: Any = None
expect: Any = None
forgo: Any = None
mask: Any = None
show: Any = None
react: Any = None


class SlateSteps(NamedTuple):
    """Steps of slates in a log, under bandit feedback: LEARN, EXPECT, FORGO or DRAW.

    Step t has the rows from `starts[t]` to `starts[t + 1]` of `arms`, `propensities` and `rewards`: the arms that it is
    about, which for LEARN are those with a reward. `asked` is the number of arms that the decision asked for, `shown`
    that of arms that it showed, `firsts` whether no reward of the decision came before. `drawn` receives the
    propensity of the first arm for every DRAW that gives all arms of the step their propensities, otherwise -1, with
    the mask in row `mask_of` of `masks` unless that is -1.
    """

    steps: Any
    contexts: Any
    asked: Any
    shown: Any
    firsts: Any
    starts: Any
    arms: Any
    propensities: Any
    rewards: Any
    mask_of: Any
    masks: Any
    drawn: Any


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
        paid = 0.0
        for i in range(n):
            rewards[i] = rounds.reward_table[item, i]
            gained = probabilities[i] * rewards[i]
            book.earned[i] += gained
            paid += gained
        book.of_contexts[context] += paid
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
            book.of_contexts[context] += rewards[slot]
        if k == 1:
            learn(memory, context, arms[0], propensities[0], rewards[0])
        else:
            learn_slate(memory, context, k, arms[:k], propensities[:k], rewards[:k], True)
        _record(t, k, slate, probabilities, book, first_rows[t])


@kernel
def _same(log, low, high, p):
    """Whether the probabilities of all arms are those of the rows, and sum to their number."""
    total = 0.0
    for i in range(p.shape[0]):
        total += p[i]
    for row in range(low, high):
        if p[log.arms[row]] != log.propensities[row]:
            return False
    return abs(total - (high - low)) <= 1e-6 * (high - low)


def _fold_bandit(memory, log, p, slate, first, last):
    """Take the steps from `first` up to `last`; return the first one that was refused, or -1."""
    n = p.shape[0]
    arms, propensities, rewards = np.empty(n, dtype=np.int64), np.empty(n), np.empty(n)
    prepared, prepared_for = np.int64(-1), np.int64(0)  # the context and the number of arms of the last `prepare`
    for t in range(first, last):
        context, step, low, high = np.int64(log.contexts[t]), log.steps[t], log.starts[t], log.starts[t + 1]
        if step == DRAW:
            k = min(np.int64(log.asked[t]), n)
            if k == 1:
                draw(memory, context, 0.0, p)
                if log.mask_of[t] >= 0:
                    mask(memory, p, log.masks[log.mask_of[t]], 0.0)
            else:
                draw_slate(memory, context, k, 0.0, p, slate)
                if log.mask_of[t] >= 0:
                    mask_slate(memory, p, log.masks[log.mask_of[t]], k, 0.0, slate)
            prepared, prepared_for = context, k
            log.drawn[t] = log.propensities[low] if _same(log, low, high, p) else -1.0
            continue
        if step == LEARN:
            k, m = min(np.int64(log.shown[t]), n), high - low
            for a in range(m):
                arms[a], propensities[a] = log.arms[low + a], log.propensities[low + a]
                rewards[a] = log.rewards[low + a]
            if k == 1:
                if prepared != context or prepared_for != 1:
                    prepare(memory, context)
                learned = learn(memory, context, arms[0], propensities[0], rewards[0])
            else:
                if prepared != context or prepared_for != k:
                    prepare_slate(memory, context, k)
                learned = learn_slate(memory, context, k, arms[:m], propensities[:m], rewards[:m], log.firsts[t])
            if not learned:
                return t
        else:
            for row in range(low, high):
                if step == EXPECT:
                    expect(memory, context, log.arms[row])
                else:
                    forgo(memory, context, log.arms[row])
        prepared = np.int64(-1)
    return -1


@kernel
def no_preparation_of_slates(memory, context, k):
    """The default of `prepare_slate`: do nothing."""


@cache
def slate_fold(algorithm: Algorithm) -> Any:
    """Return the loop over steps of a log for an algorithm."""
    own: Any = algorithm.draw_slate
    name = f"fold.slates.{own.__module__}.{algorithm.learn_slate.__name__}"  # type: ignore[union-attr]
    steps = {"draw": algorithm.draw, "learn": algorithm.learn, "draw_slate": own}
    steps |= {"learn_slate": algorithm.learn_slate, "mask": algorithm.mask or mask_alone}
    steps |= {"prepare": algorithm.prepare or no_preparation}
    steps |= {"prepare_slate": algorithm.prepare_slate or no_preparation_of_slates}
    steps |= {"expect": algorithm.expect or no_expectation, "forgo": algorithm.forgo or no_expectation}
    return specialize(_fold_bandit, name.replace(".", "_"), **steps)


@cache
def slate_loop(job: str, feedback: str, algorithm: Algorithm) -> Any:
    """Return the loop for an algorithm: `play` a stream, or `face` an adversary."""
    own: Any = algorithm.draw_slate
    name = f"{job}.slates.{feedback}.{own.__module__}.{algorithm.learn_slate.__name__}"  # type: ignore[union-attr]
    learn_one = algorithm.learn
    steps = {"draw": algorithm.draw, "learn": learn_one, "draw_slate": own, "learn_slate": algorithm.learn_slate}
    steps |= {"show": algorithm.show or no_features, "react": adversary_reacts if job == "face" else no_reaction}
    return specialize(_play_full if feedback == "full" else _play_bandit, name.replace(".", "_"), **steps)
