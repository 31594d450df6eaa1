"""Whole runs in one call, with the same `draw` and `learn` as single steps.

play    rounds of a stream; every reward is learned from immediately
face    the same against an adversary, which sets the rewards after it has seen the distribution
late    rounds of a stream with delayed rewards
fold    the steps of a log, in its order: LEARN from a reward, EXPECT one, FORGO one, DRAW the same arm again, or
        OBSERVE the reward of a decision that somebody else made
match   rounds of a log; only those count in which the policy draws the logged arm
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from alphafair.jit import kernel, specialize
from alphafair.math.adversaries import react as adversary_reacts
from alphafair.math.distributions import mask_alone

if TYPE_CHECKING:
    from alphafair.policy.algorithm import Algorithm

draw: Any = None  # placeholders: `loop` puts in the kernels of the algorithm
prepare: Any = None
learn: Any = None
expect: Any = None
forgo: Any = None
observe: Any = None
show: Any = None
mask: Any = None
react: Any = None

AHEAD = 4  # rounds between prefetching a row and using it
LINE, MOST_BYTES = 64, 1024  # of a cache line; beyond so many bytes the processor prefetches by itself
LEARN, EXPECT, FORGO, DRAW, OBSERVE = range(5)  # steps of a log
FREE, LEARNED = 0, 1  # counters of `Delays`
ARM, PROPENSITY = 0, 1  # of a waiting decision under bandit feedback
NO_ADVERSARY = -1, np.empty((0, 0, 0))  # kind and state, if there is no adversary


class Rounds(NamedTuple):
    """Rounds of a stream, the uniform number of each, and a row of features for each, or none."""

    contexts: Any
    items: Any
    reward_table: Any
    uniforms: Any
    features: Any


class Book(NamedTuple):
    """The record of a run.

    `earned` is increased by x r (full information: expected) or by r of the pulled arm (bandit: realized), and
    `of_contexts` by their sum. `arms` and
    `propensities` hold decisions, up to their length. `records` gets a copy of `earned` after round `first_record`,
    counted from 0 in this call, and every `record_every` rounds from there.
    """

    earned: Any
    of_contexts: Any
    pulls: Any
    arms: Any
    propensities: Any
    first_record: int
    record_every: int
    records: Any


class Delays(NamedTuple):
    """When rewards arrive, and the decisions that wait for them, for all rounds of a stream.

    `due` is the round before which a reward is learned from (its own round: right after it); `order` sorts all rounds
    by it. A decision waits in slot `slots[t]` of `waiting`; `free` is a stack of slots.
    """

    due: Any
    order: Any
    slots: Any
    free: Any
    counters: Any
    waiting: Any


class LogSteps(NamedTuple):
    """The steps of a log: LEARN, EXPECT, FORGO, DRAW or OBSERVE, each with its decision and reward.

    OBSERVE has no propensity: whatever is in its column is ignored.

    `drawn` receives the probability of the arm of every DRAW, with the mask in row `mask_of` of `masks` unless that is
    -1; `features` has a row per step, or none.
    """

    steps: Any
    contexts: Any
    arms: Any
    propensities: Any
    rewards: Any
    features: Any
    mask_of: Any
    masks: Any
    drawn: Any

    @classmethod
    def learning(cls, contexts: Any, arms: Any, propensities: Any, rewards: Any, features: Any = None) -> Self:
        """Make steps that are all LEARN."""
        n = len(contexts)
        steps, no_mask = np.full(n, LEARN, dtype=np.int8), np.full(n, -1, dtype=np.int32)
        no_masks = np.empty((0, 0), dtype=np.bool_)
        return cls(steps, contexts, arms, propensities, rewards, features, no_mask, no_masks, np.zeros(n))

    def part(self, which: slice) -> Self:
        """Return some of the steps; what is written to `drawn` is written to its array."""
        columns: dict[str, Any] = {name: getattr(self, name)[which] for name in PER_STEP}
        if self.features is not None and len(self.features):
            columns["features"] = self.features[which]
        return self._replace(**columns)


PER_STEP = ("steps", "contexts", "arms", "propensities", "rewards", "mask_of", "drawn")  # of `LogSteps`


def _hint() -> Any:  # pragma: no cover - machine code alone
    """Return an intrinsic that prefetches the cache line `offset` bytes into array[row], for writing."""
    from llvmlite import ir
    from numba import types
    from numba.extending import intrinsic

    @intrinsic
    def hint(typing_context: Any, array: Any, row: Any, offset: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            header = context.make_array(signature.args[0])(context, builder, arguments[0])
            stride = builder.extract_value(header.strides, 0)
            place = builder.add(builder.mul(arguments[1], stride), arguments[2])
            address = builder.gep(builder.bitcast(header.data, ir.IntType(8).as_pointer()), [place])
            number = ir.IntType(32)
            kind = ir.FunctionType(ir.VoidType(), [address.type, number, number, number])
            prefetch = builder.module.declare_intrinsic("llvm.prefetch", [address.type], kind)
            builder.call(prefetch, [address, number(1), number(3), number(1)])
            return context.get_dummy_value()

        return types.void(array, types.intp, types.intp), codegen

    return hint


@kernel
def hint(array, row, offset):
    """Do nothing in plain Python; machine code uses `_hint`."""


hint.__kernel__["instead"] = _hint


@kernel
def prefetch(array, row):
    """Prefetch the first bytes of array[row]."""
    for offset in range(0, min(array.strides[0], MOST_BYTES), LINE):
        hint(array, row, offset)


@kernel
def _prefetch_ahead(t, memory, rounds):
    """Prefetch the rows of a later round: with many contexts they are not in the cache."""
    later = min(t + AHEAD, rounds.contexts.shape[0] - 1)
    prefetch(memory.contexts, rounds.contexts[later])
    prefetch(memory.context_scalars, rounds.contexts[later])
    prefetch(rounds.reward_table, rounds.items[later])


@kernel
def _check_drawn(propensity):
    """Stop a run whose probabilities are zeros or NaN."""
    if not propensity > 0.0:
        raise ArithmeticError("the policy's probabilities are not a distribution")


@kernel
def _record(t, arm, propensity, book):
    """Count the pull, store the decision if there is space, and record `earned` if it is time."""
    book.pulls[arm] += 1
    if t < book.arms.shape[0]:
        book.arms[t] = arm
        book.propensities[t] = propensity
    past = t - book.first_record
    if past >= 0 and past % book.record_every == 0:
        for i in range(book.earned.shape[0]):
            book.records[past // book.record_every, i] = book.earned[i]


@kernel
def _release(delays, past):
    """Free the slot of a decision that has been learned from."""
    delays.free[delays.counters[FREE]] = delays.slots[past]
    delays.counters[FREE] += 1
    delays.counters[LEARNED] += 1


@kernel
def _slot(delays, t):
    """Allocate a slot for the decision of round t."""
    delays.counters[FREE] -= 1
    delays.slots[t] = delays.free[delays.counters[FREE]]
    return delays.slots[t]


@kernel
def _next_due(delays, t, n_rounds):
    """Return the round whose reward arrives next, if by round t or after the last round; else -1."""
    k = delays.counters[LEARNED]
    if k < n_rounds:
        past = delays.order[k]
        if past < t and (delays.due[past] <= t or t == n_rounds):
            return past
    return -1


def _play_full(memory, rounds, book, kind, state):
    n = book.earned.shape[0]
    probabilities, rewards = np.empty(n), np.empty(n)
    for t in range(rounds.contexts.shape[0]):
        _prefetch_ahead(t, memory, rounds)
        context, item = np.int64(rounds.contexts[t]), np.int64(rounds.items[t])
        show(memory, rounds.features, t)
        arm, propensity = draw(memory, context, rounds.uniforms[t], probabilities)
        _check_drawn(propensity)
        react(kind, state, context, probabilities, rounds.reward_table, item)
        paid = 0.0
        for i in range(n):
            rewards[i] = rounds.reward_table[item, i]
            gained = probabilities[i] * rewards[i]
            book.earned[i] += gained
            paid += gained
        book.of_contexts[context] += paid
        learn(memory, context, probabilities, rewards)
        _record(t, arm, propensity, book)


def _play_bandit(memory, rounds, book, kind, state):
    probabilities = np.empty(book.earned.shape[0])
    for t in range(rounds.contexts.shape[0]):
        _prefetch_ahead(t, memory, rounds)
        context, item = np.int64(rounds.contexts[t]), np.int64(rounds.items[t])
        show(memory, rounds.features, t)
        arm, propensity = draw(memory, context, rounds.uniforms[t], probabilities)
        _check_drawn(propensity)
        react(kind, state, context, probabilities, rounds.reward_table, item)
        reward = rounds.reward_table[item, arm]
        book.earned[arm] += reward
        book.of_contexts[context] += reward
        learn(memory, context, arm, propensity, reward)
        _record(t, arm, propensity, book)


def _late_full(memory, rounds, book, delays, start, stop):
    n = book.earned.shape[0]
    probabilities, rewards = np.empty(n), np.empty(n)
    for t in range(start, stop + 1):  # pragma: no branch - the last iteration returns
        while True:
            past = _next_due(delays, t, rounds.contexts.shape[0])
            if past < 0:
                break
            context, item = np.int64(rounds.contexts[past]), np.int64(rounds.items[past])
            for i in range(n):
                probabilities[i] = delays.waiting[delays.slots[past], i]
                rewards[i] = rounds.reward_table[item, i]
            show(memory, rounds.features, past)
            prepare(memory, context)
            learn(memory, context, probabilities, rewards)
            _release(delays, past)
        if t == stop:
            return
        context, item = np.int64(rounds.contexts[t]), np.int64(rounds.items[t])
        show(memory, rounds.features, t)
        arm, propensity = draw(memory, context, rounds.uniforms[t - start], probabilities)
        _check_drawn(propensity)
        slot = _slot(delays, t)
        paid = 0.0
        for i in range(n):
            delays.waiting[slot, i] = probabilities[i]
            gained = probabilities[i] * rounds.reward_table[item, i]
            book.earned[i] += gained
            paid += gained
        book.of_contexts[context] += paid
        _record(t - start, arm, propensity, book)


def _late_bandit(memory, rounds, book, delays, start, stop):
    probabilities = np.empty(book.earned.shape[0])
    for t in range(start, stop + 1):  # pragma: no branch - the last iteration returns
        while True:
            past = _next_due(delays, t, rounds.contexts.shape[0])
            if past < 0:
                break
            context, item = np.int64(rounds.contexts[past]), np.int64(rounds.items[past])
            waiting = delays.waiting[delays.slots[past]]
            arm, propensity = np.int64(waiting[ARM]), waiting[PROPENSITY]
            show(memory, rounds.features, past)
            prepare(memory, context)
            learn(memory, context, arm, propensity, rounds.reward_table[item, arm])
            _release(delays, past)
        if t == stop:
            return
        context, item = np.int64(rounds.contexts[t]), np.int64(rounds.items[t])
        show(memory, rounds.features, t)
        arm, propensity = draw(memory, context, rounds.uniforms[t - start], probabilities)
        _check_drawn(propensity)
        book.earned[arm] += rounds.reward_table[item, arm]
        book.of_contexts[context] += rounds.reward_table[item, arm]
        expect(memory, context, arm)
        slot = _slot(delays, t)
        delays.waiting[slot, ARM], delays.waiting[slot, PROPENSITY] = arm, propensity
        _record(t - start, arm, propensity, book)


def _fold_full(memory, features, contexts, probabilities, rewards):
    n = rewards.shape[1]
    used, seen = np.empty(n), np.empty(n)
    for t in range(contexts.shape[0]):
        for i in range(n):
            used[i], seen[i] = probabilities[t, i], rewards[t, i]
        show(memory, features, t)
        prepare(memory, np.int64(contexts[t]))
        learn(memory, np.int64(contexts[t]), used, seen)


def _fold_bandit(memory, log, p):
    """Return the first step that was refused, or -1; `p` is scratch."""
    n_steps, prepared = (
        log.steps.shape[0],
        np.int64(-1),
    )  # the context of the last `prepare`
    for t in range(n_steps):
        later = log.contexts[min(t + AHEAD, n_steps - 1)]
        prefetch(memory.contexts, later)
        prefetch(memory.context_scalars, later)
        context, arm, step = np.int64(log.contexts[t]), log.arms[t], log.steps[t]
        if show(memory, log.features, t):
            prepared = np.int64(-1)
        if step == LEARN:
            if prepared != context:
                prepare(memory, context)
            if not learn(memory, context, arm, log.propensities[t], log.rewards[t]):
                return t
            prepared = np.int64(-1)
        elif step == EXPECT:
            expect(memory, context, arm)
            prepared = np.int64(-1)
        elif step == FORGO:
            forgo(memory, context, arm)
            prepared = np.int64(-1)
        elif step == OBSERVE:
            observe(memory, context, arm, log.rewards[t])
            prepared = np.int64(-1)
        else:
            draw(memory, context, 0.0, p)
            prepared = context
            if log.mask_of[t] >= 0:
                mask(memory, p, log.masks[log.mask_of[t]], 0.0)
            log.drawn[t] = p[arm]
    return -1


def _match_bandit(memory, contexts, arms, rewards, uniforms, sets, of_sets, book):
    """Return how many rounds matched."""
    probabilities = np.empty(book.earned.shape[0])
    matched = 0
    for t in range(contexts.shape[0]):
        context = np.int64(contexts[t])
        arm, propensity = draw(memory, context, uniforms[t], probabilities)
        if of_sets[t] >= 0:
            arm, propensity = mask(memory, probabilities, sets[of_sets[t]], uniforms[t])
        _check_drawn(propensity)
        if arm == arms[t]:
            book.earned[arm] += rewards[t]
            book.of_contexts[context] += rewards[t]
            learn(memory, context, arm, propensity, rewards[t])
            _record(matched, arm, propensity, book)
            matched += 1
    return matched


TEMPLATES: dict[tuple[str, str], Any] = {
    ("play", "full"): _play_full,
    ("play", "bandit"): _play_bandit,
    ("face", "full"): _play_full,
    ("face", "bandit"): _play_bandit,
    ("late", "full"): _late_full,
    ("late", "bandit"): _late_bandit,
    ("fold", "full"): _fold_full,
    ("match", "bandit"): _match_bandit,
    ("fold", "bandit"): _fold_bandit,
}


@kernel
def no_expectation(memory, context, arm):
    """The default of `expect` and `forgo`: do nothing."""


@kernel
def no_observation(memory, context, arm, reward):
    """The default of `observe`: do nothing."""


@kernel
def no_preparation(memory, context):
    """The default of `prepare`: do nothing."""


@kernel
def no_features(memory, features, t):
    """The default of `show`: ignore features."""
    return False


@kernel
def no_reaction(kind, state, context, probabilities, reward_table, item):
    """The reaction of a stream: none."""


@cache
def loop(job: str, feedback: str, algorithm: Algorithm, in_order: bool) -> Any:
    """Return the loop for an algorithm; `in_order`: rewards are learned from immediately, and no arm is masked."""
    learn = (algorithm.learn_in_order if in_order else None) or algorithm.learn
    name = f"{job}.{feedback}.{algorithm.draw.__module__}.{algorithm.draw.__name__}.{learn.__module__}.{learn.__name__}"
    steps = {"draw": algorithm.draw, "learn": learn, "react": adversary_reacts if job == "face" else no_reaction}
    steps |= {"show": algorithm.show or no_features, "mask": algorithm.mask or mask_alone}
    steps |= {"expect": algorithm.expect or no_expectation, "forgo": algorithm.forgo or no_expectation}
    steps |= {"prepare": algorithm.prepare or no_preparation, "observe": algorithm.observe or no_observation}
    return specialize(TEMPLATES[job, feedback], name.replace(".", "_"), **steps)
