"""Whole runs in one call: the very same `draw` and `learn`, once a round.

`earned` gathers x r (full information: expected) or r of the pulled arm (bandit: realised) on top of what it
holds; `pulls` counts the draws; `records` takes `earned` after round `first_record` (counted from 0 in this
call) and after every `record_every`-th round from there.
"""

from functools import cache
from typing import Any

import numpy as np

from alphafair.jit import kernel, specialise
from alphafair.kernels.prefetch import prefetch

draw: Any = None  # the policy's kernels, put in by `horizon`
learn: Any = None


AHEAD = 4  # rounds between asking for a row and using it


@kernel
def _ask_ahead(t, learners, contexts, reward_table, items):
    """Have the rows of a round to come in the cache when its turn comes."""
    later = min(t + AHEAD, contexts.shape[0] - 1)
    prefetch(learners, contexts[later])
    prefetch(reward_table, items[later])


@kernel
def _note(t, earned, first_record, record_every, records):
    """Copy what has been earned, if round t is one to be recorded."""
    past = t - first_record
    if past >= 0 and past % record_every == 0:
        for i in range(earned.shape[0]):
            records[past // record_every, i] = earned[i]


def _full(
    shared, learners, contexts, items, reward_table, uniforms, earned, pulls, first_record, record_every, records
):
    n = earned.shape[0]
    probabilities = np.empty(n)
    rewards = np.empty(n)
    for t in range(contexts.shape[0]):
        _ask_ahead(t, learners, contexts, reward_table, items)
        context = np.int64(contexts[t])
        item = np.int64(items[t])
        arm, _ = draw(shared, learners, context, uniforms[t], probabilities)
        pulls[arm] += 1
        for i in range(n):
            rewards[i] = reward_table[item, i]
            earned[i] += probabilities[i] * rewards[i]
        learn(shared, learners, context, probabilities, rewards)
        _note(t, earned, first_record, record_every, records)


def _bandit(
    shared, learners, contexts, items, reward_table, uniforms, earned, pulls, first_record, record_every, records
):
    probabilities = np.empty(earned.shape[0])
    for t in range(contexts.shape[0]):
        _ask_ahead(t, learners, contexts, reward_table, items)
        context = np.int64(contexts[t])
        arm, propensity = draw(shared, learners, context, uniforms[t], probabilities)
        reward = reward_table[np.int64(items[t]), arm]
        pulls[arm] += 1
        earned[arm] += reward
        learn(shared, learners, context, arm, propensity, reward)
        _note(t, earned, first_record, record_every, records)


@cache
def horizon(feedback: str, draw: Any, learn: Any) -> Any:
    """The compiled loop for one policy's kernels."""
    template = _full if feedback == "full" else _bandit
    name = f"{feedback}.{draw.__module__}.{draw.__name__}.{learn.__module__}.{learn.__name__}"
    return specialise(template, name.replace(".", "_"), draw=draw, learn=learn)
