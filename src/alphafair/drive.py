"""Learning from decisions that were made before, here or elsewhere, in the order of the log; stepwise or compiled.

`alphafair.simulate` lets a policy play.
"""

from __future__ import annotations

from typing import cast

import numpy as np
from numpy.typing import ArrayLike

from alphafair import validate
from alphafair.policies.base import BasePolicy
from alphafair.types import Decision, Feedback, Log, Policy, Vector


def over_log(policy: Policy, log: Log) -> None:
    """Learn from every decision of a log and its reward, in the order of the log: all of it, or nothing.

    For a policy that learns from one reward per round. Compiled, where the policy offers it.

    >>> from alphafair import AlphaFairBandit, simulate, streams
    >>> stream = streams.stochastic(n_rounds=2000, n_contexts=3, n_arms=4, seed=0)
    >>> live, twin = AlphaFairBandit(3, 4), AlphaFairBandit(3, 4)
    >>> trace = simulate(live, stream, log=True)
    >>> over_log(twin, trace.log)
    >>> bool((twin.cumulative_rewards == live.cumulative_rewards).all())
    True
    """
    if policy.feedback is not Feedback.BANDIT:
        repair = "A log knows the reward of the shown arm only; over_full_log takes the rewards of all arms."
        raise validate.Refusal("policy", "one with bandit feedback", policy, repair)
    _fits(policy, "log", log.n_contexts, log.n_arms)
    low, high = policy.reward_range
    rewards = validate.column("log.rewards", log.rewards, log.n_rounds, low, high)
    if not has_whole_runs(policy):
        columns = (log.contexts.tolist(), log.arms.tolist(), log.propensities.tolist(), rewards.tolist())
        before = policy.snapshot()
        try:
            for context, arm, propensity, reward in zip(*columns, strict=True):
                policy.update(Decision(context, arm, propensity, cast(Vector, None)), reward)
        except ValueError:
            policy.restore(before)
            raise
    else:
        cast(BasePolicy, policy).fold_log(log.contexts, log.arms, log.propensities, rewards)


def over_full_log(policy: Policy, contexts: ArrayLike, probabilities: ArrayLike, rewards: ArrayLike) -> None:
    """The same for a policy that sees all rewards: the distribution used and a reward per arm, one row per round."""
    if policy.feedback is not Feedback.FULL:
        raise validate.Refusal("policy", "one with full information", policy, "over_log takes one reward per round.")
    seen = validate.indices("contexts", contexts, None)
    used = validate.reward_table("probabilities", probabilities)
    table = validate.reward_table("rewards", rewards)
    for name, array in (("probabilities", used), ("rewards", table)):
        if array.shape != (len(seen), policy.n_arms):
            allowed = f"of shape {(len(seen), policy.n_arms)}"
            raise validate.Refusal(name, allowed, f"shape {array.shape}", "Give a row per round, a column per arm.")
    _fits(policy, "contexts", int(seen.max()) + 1, policy.n_arms)
    low, high = policy.reward_range
    if table.min() < low or table.max() > high:
        repair = "Map the rewards with alphafair.rescale_rewards."
        raise validate.Refusal("rewards", f"in [{low:g}, {high:g}]", [table.min(), table.max()], repair)
    if used.min() < 0.0 or np.abs(used.sum(axis=1) - 1.0).max() > 1e-6:
        bad = int(np.argmax(np.abs(used.sum(axis=1) - 1.0)))
        raise validate.Refusal(f"probabilities[{bad}]", "a distribution", used[bad], "Pass those of the decisions.")
    if not has_whole_runs(policy):
        for context, row, reward in zip(seen.tolist(), used, table, strict=True):
            arm = int(row.argmax())
            policy.update(Decision(context, arm, float(row[arm]), row), reward)
    else:
        cast(BasePolicy, policy).fold_full_log(seen, used, table)


def _fits(policy: Policy, argument: str, n_contexts: int, n_arms: int) -> None:
    if n_contexts > policy.n_contexts or n_arms > policy.n_arms:
        allowed = f"of at most {policy.n_contexts} contexts and {policy.n_arms} arms"
        repair = f"Call policy.grow({max(n_contexts, policy.n_contexts)}, {max(n_arms, policy.n_arms)}) first."
        raise validate.Refusal(argument, allowed, [n_contexts, n_arms], repair)


def has_whole_runs(policy: Policy) -> bool:
    """Not one that has its own way to choose or to learn on top of the kernels."""
    if policy.kernels is None or not isinstance(policy, BasePolicy):
        return False
    kind = type(policy)
    return kind.choose is BasePolicy.choose and kind.update is BasePolicy.update
