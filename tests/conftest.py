"""Every full-information run of alpha-FairCB in the suite is held to certificate 3 of its theorem.

`simulate` is replaced here, before any other room or test has imported it, so it makes no difference who asks for a
run: a test, a conformance check, an experiment, a command, an example in a docstring. For a policy that played before,
R and the certificate are of everything it ever saw and OPT of this stream alone, which can only be smaller.
"""

from __future__ import annotations

import functools
from typing import Any

from alphafair import AlphaFair, metrics, offline_optimum, simulation
from alphafair.offline import context_reward_totals
from alphafair.types import Policy, Stream, Trace

play = simulation.simulate


@functools.wraps(play)
def simulate(policy: Policy, stream: Stream, **options: Any) -> Trace:
    trace = play(policy, stream, **options)
    if isinstance(policy, AlphaFair):
        best = offline_optimum(context_reward_totals(stream), policy.alpha)
        regret = metrics.approximate_regret(best.value + best.gap, policy.cumulative_rewards, policy.alpha)
        assert regret <= metrics.regret_certificate(policy), f"{policy.name} breaks certificate 3"
    return trace


simulation.simulate = simulate
