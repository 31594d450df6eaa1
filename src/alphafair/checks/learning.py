"""What rewards do to a policy, and what they must not."""

import contextlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from alphafair import jit
from alphafair.checks.subject import NOT_HERE, Subject, is_sound, memory, reward_of, rounds
from alphafair.errors import InvalidArgument
from alphafair.run import has_whole_runs, simulate
from alphafair.values import Decision, Feedback, State, Stream


def leans_toward_reward(subject: Subject) -> str | None:
    """An arm that pays nine times as much as the others is pulled most; how much more often, fairness decides."""
    if not subject.make().traits.learns:
        return f"{NOT_HERE}: the policy says that it does not learn"
    policy = subject.make(2, 4)
    contexts = np.arange(20_000, dtype=np.int32) % 2
    stream = Stream(contexts, np.zeros_like(contexts), np.array([[0.1, 0.1, 0.9, 0.1]]), n_contexts=2)
    simulate(policy, stream.head(2000), seed=3)
    part = simulate(policy, stream, seed=4).pulls / stream.n_rounds
    assert part[2] > 0.265, f"the arm that pays 0.9 instead of 0.1 is pulled in {part[2]:.1%} of rounds, one of 4 arms"
    assert part.argmax() == 2, f"another arm than the one that pays most is pulled most: {part.round(3)}"
    return None


def unseen_rewards_do_not_matter(subject: Subject) -> str | None:
    if subject.make().feedback is Feedback.FULL:
        return f"{NOT_HERE}: the policy sees all rewards"
    stream = rounds(300, 3, 4)
    seen = subject.make()
    rewards = np.stack([stream.rewards(t) for t in range(300)])
    arms = []
    rng = np.random.default_rng(8)
    for t in range(300):
        decision = seen.choose(int(stream.contexts[t]), rng=rng)
        seen.update(decision, float(rewards[t, decision.arm]))
        arms.append(decision.arm)
    other = 1.0 - rewards
    other[np.arange(300), arms] = rewards[np.arange(300), arms]
    blind = subject.make()
    simulate(blind, Stream.from_arrays(stream.contexts, other, n_contexts=3), seed=8)
    assert memory(blind) == memory(seen), "rewards that were never shown changed the policy"
    return None


def names_do_not_matter(subject: Subject) -> None:
    """Rename arms and contexts, and the answer is renamed, also when arms come and go.

    Arms are tried at random first, so that ties, which a policy may break as it likes, are behind it.
    """
    arms, contexts = np.array([2, 0, 3, 1]), np.array([1, 2, 0])
    plain, renamed = subject.make(), subject.make()
    rng = np.random.default_rng(3)

    def go_on(live: list[int]) -> None:
        for t in range(300):
            context, rewards = int(rng.integers(3)), rng.random(plain.n_arms)
            decision = plain.choose(context, rng=rng)
            if t < 200:
                p = np.isin(np.arange(plain.n_arms), live) / len(live)
                decision = Decision(context, int(rng.choice(live)), 1.0 / len(live), p)
            plain.update(decision, reward_of(plain, decision, rewards))
            where = int(np.flatnonzero(arms == decision.arm)[0])
            twin = Decision(int(contexts[context]), where, decision.propensity, decision.probabilities[arms])
            renamed.update(twin, reward_of(renamed, twin, rewards[arms]))
        for context in range(3):
            difference = plain.probabilities(context)[arms] - renamed.probabilities(int(contexts[context]))
            worst = np.abs(difference).max()
            assert worst < 1e-9, f"renaming arms and contexts changed play by {worst}"

    go_on([0, 1, 2, 3])
    for policy in (plain, renamed):
        policy.grow(n_arms=6)
    arms = np.array([2, 0, 3, 1, 5, 4])
    go_on([0, 1, 2, 3, 4, 5])
    plain.retire(3)
    renamed.retire(2)
    go_on([0, 1, 2, 4, 5])


def late_rewards_are_welcome(subject: Subject) -> None:
    policy = subject.make()
    stream = rounds(400, 3, 4)
    delays = np.random.default_rng(5).integers(0, 120, size=400).astype(np.int32)
    simulate(policy, stream, seed=6, delay=delays)
    is_sound(policy, "after late rewards: ")
    asked, told = subject.make(), subject.make()
    rng = np.random.default_rng(2)
    decisions = [asked.choose(int(context), rng=rng) for context in stream.contexts[:40]]
    for t in rng.permutation(40):
        for twin in (asked, told):  # all there is to know is in the decision
            twin.update(decisions[t], reward_of(twin, decisions[t], stream.rewards(int(t))))
    assert memory(asked) == memory(told), "what was learned depends on who chose, or when, not on the decision alone"
    prompt, zero_delay = subject.make(), subject.make()
    simulate(prompt, stream, seed=6)
    simulate(zero_delay, stream, seed=6, delay=0)
    assert memory(prompt) == memory(zero_delay), "a delay of 0 is not the same as no delay"


def stays_finite(subject: Subject) -> None:
    cases = {
        "all floor": (np.full((1, 4), 0.2), 3),
        "all ones": (np.ones((1, 4)), 3),
        "all zeros": (np.zeros((1, 4)), 3),
        "one arm": (np.ones((1, 1)), 3),
        "one context": (np.array([[1.0, 0.2, 0.2, 0.2]]), 1),
        "rewards of 1e-12": (np.array([[1e-12, 1e-13, 0.0, 1e-12]]), 2),
        "rewards too small to be squared": (np.array([[1e-163, 1e-200, 0.0, 5e-324]]), 2),
        "ordinary rewards after tiny ones": (np.array([[5e-324, 1e-200, 0.0, 1e-161], [1.0, 0.2, 0.0, 0.5]]), 2),
    }
    compiled = has_whole_runs(subject.make()) and jit.mode() != "off"
    for name, (table, n_contexts) in cases.items():
        n_rounds = 1_000_000 if compiled and name == "one context" else 2000
        policy = subject.make(n_contexts, table.shape[1])
        contexts = (np.arange(n_rounds) % n_contexts).astype(np.int32)
        items = (np.arange(n_rounds) * len(table) // n_rounds).astype(np.int32)
        trace = simulate(policy, Stream(contexts, items, table, n_contexts=n_contexts), seed=1)
        assert np.isfinite(trace.final).all(), f"{name}: rewards {trace.final}"
        is_sound(policy, f"{name}: ")
        twin = subject.make(n_contexts, table.shape[1])
        twin.restore(policy.snapshot())
        is_sound(twin, f"{name}, restored: ")


def bad_input_is_refused(subject: Subject) -> None:
    """With a ValueError, or a TypeError for what is no number at all, and nothing is changed by it.

    A policy that has no use for a propensity need not look at it. A `InvalidArgument` must name the right argument.
    """
    policy = subject.trained()
    decision = policy.choose(0)
    full = policy.feedback is Feedback.FULL
    good: Any = [0.5, 0.5, 0.5, 0.5] if full else 0.5
    bad_rewards: list[Any] = [math.nan, math.inf, "much", None]
    if full:
        bad_rewards = [[math.nan, 0, 0, 0], [0, math.inf, 0, 0], [0.5, 0.5], 0.5, [[0.5] * 4], "much", None]
    if policy.traits.reward_range == (0.0, 1.0):
        bad_rewards += [[1.5, 0, 0, 0], [-0.1, 0, 0, 0]] if full else [1.5, -0.1]
    calls: list[tuple[str, Callable[[], Any]]] = [
        *(("context", lambda c=c: policy.choose(c)) for c in (-1, 3, 0.5, "x", None)),
        *(("context", lambda c=c: policy.probabilities(c)) for c in (-1, 3, 0.5)),
        *(("available", lambda a=a: policy.choose(0, available=a)) for a in ([False] * 4, [True], [0, 1, 2, 3])),
        *(("reward", lambda r=r: policy.update(decision, r)) for r in bad_rewards),
        ("context", lambda: policy.update(decision._replace(context=3), good)),
        ("arm", lambda: policy.update(decision._replace(arm=4), good)),
        ("decision", lambda: policy.update(None, good)),  # type: ignore[arg-type]
        ("n_contexts", lambda: policy.grow(2)),
        ("n_arms", lambda: policy.grow(n_arms=3)),
        ("account", lambda: policy.grow(n_arms=5, account="much")),  # type: ignore[arg-type]
        ("arm", lambda: policy.retire(4)),
        ("policy", lambda: policy.restore(State("another", 1, {}, {}, {}))),
    ]
    before = memory(policy)
    for argument, call in calls:
        try:
            call()
        except (ValueError, TypeError) as problem:
            if isinstance(problem, InvalidArgument) and argument not in problem.argument:
                raise AssertionError(f"the refusal of a bad {argument} does not name it: {problem}") from None
        else:
            raise AssertionError(f"a bad {argument} was accepted")
        assert memory(policy) == before, f"a refused {argument} changed the policy"
    for propensity in (math.nan, 0.0):
        with contextlib.suppress(ValueError):
            policy.update(decision._replace(propensity=propensity), good)
        is_sound(policy, f"after a propensity of {propensity}: ")
