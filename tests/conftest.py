"""Every run in the suite of a policy that bounds its own regret is held to it, arms coming and going included.

`simulate` is replaced here, before any other room or test has imported it, so it makes no difference who asks for a
run: a test, a conformance check, an experiment, a command, an example in a docstring. For a policy that played before,
R and the certificate are of everything it ever saw and OPT of this stream alone, which can only be smaller. The bound
asked for is that of docs/theory.md, without the c_alpha n that `metrics.regret_certificate` adds after the paper.
"""

from __future__ import annotations

import functools
import os
from typing import Any

import numpy as np

os.environ.setdefault("ALPHAFAIR_JIT", "now")  # what is tested is machine code, unless NUMBA_DISABLE_JIT says otherwise

from alphafair import metrics, offline_optimum, run
from alphafair.groups import Groups
from alphafair.offline import context_reward_totals, present_arms
from alphafair.values import Policy, Stream, Trace

play = run.simulate


def booked_totals(stream: Stream, delay: Any) -> np.ndarray:
    """What the best policy could earn, by the epoch in which rewards arrive: from arms that were there throughout."""
    if delay is None or not stream.epochs:
        return context_reward_totals(stream)
    starts = np.array([0, *stream.epochs])
    due = np.minimum(np.arange(stream.n_rounds) + delay, stream.n_rounds - 1)
    epochs = np.searchsorted(starts, due, side="right") - 1
    totals = np.zeros((len(starts), stream.n_contexts, stream.n_arms))
    for t, epoch in enumerate(epochs):
        there = stream.present(t) & stream.present(int(starts[epoch]))
        totals[epoch, stream.contexts[t]] += np.where(there, stream.rewards(t), 0.0)
    return totals.reshape(-1, stream.n_arms)


@functools.wraps(play)
def simulate(policy: Policy, stream: Stream, **options: Any) -> Trace:
    trace = play(policy, stream, **options)
    if policy.surrogate_regret_bound is not None and policy.alpha < 1.0 and not trace.periods:  # type: ignore[operator]
        fair: Any = policy
        n, alpha, accounts = fair.n_arms, fair.alpha, fair.accounts
        groups = policy.groups or Groups().for_arms(n)
        initial = np.ones(groups.n_groups)
        if stream.arrivals is not None:
            first = np.full(groups.n_groups, stream.n_rounds)
            np.minimum.at(first, groups.of_arms, stream.arrivals[:n])
            entered = accounts - (groups.accounts(trace.final[:n]) - 1.0)  # what newcomers were taken to have earned
            initial = np.where(first > 0, entered, 1.0)
        totals, there = booked_totals(stream, options.get("delay"))[:, :n], present_arms(stream)[:, :n]
        best = offline_optimum(totals, alpha, initial=initial, present=there, groups=groups)
        regret = metrics.approximate_regret(best.value + best.gap, accounts, alpha, groups=groups)
        bound = (1.0 - alpha) ** alpha * policy.surrogate_regret_bound
        rounding = 1e-10 * best.value
        assert regret <= bound + rounding, f"{policy.name} breaks its certificate: {regret} > {bound}"
    return trace


run.simulate = simulate
