"""The checks of policies that show several arms per decision: `traits.slates`."""

import hashlib
import math
from typing import Any

import numpy as np

from alphafair import jit
from alphafair.checks.conformance import TURNED_OFF, can_compile
from alphafair.checks.subject import NOT_APPLICABLE, Counting, Subject, memory, rounds
from alphafair.run import simulate
from alphafair.values import Feedback, Policy, SlateDecision, State, Vector

ONE_ARM = f"{NOT_APPLICABLE}: the policy shows one arm per decision"


def shows_slates(policy: Any) -> bool:
    """Whether a policy shows several arms; with floors of groups, or fair to contexts too, it does not."""
    one_arm = (policy.groups is not None and policy.groups.floored) or getattr(
        policy, "context_accounts", None
    ) is not None
    return bool(policy.traits.slates) and not one_arm


def rewards_of(policy: Policy, decision: SlateDecision, rewards: Vector) -> Any:
    return rewards if policy.feedback is Feedback.FULL else rewards[list(decision.arms)].tolist()


def train(policy: Any, n_rounds: int, seed: int) -> list[tuple[int, ...]]:
    """Play slates of random numbers of arms, from the policy's own random numbers; return them."""
    rng, stream, shown = np.random.default_rng(seed), rounds(n_rounds, policy.n_contexts, policy.n_arms, seed), []
    for t in range(n_rounds):
        decision = policy.choose(int(stream.contexts[t]), k=int(rng.integers(1, policy.n_arms + 1)))
        policy.update(decision, rewards_of(policy, decision, stream.rewards(t)))
        shown.append(decision.arms)
    return shown


def slates_sum_to_k(subject: Subject) -> str | None:
    policy: Any = subject.make(3, 6)
    if not shows_slates(policy):
        return ONE_ARM
    train(policy, 100, 3)
    floor = 0.0 if policy.groups is None else policy.groups.arm_floor
    before, rng = memory(policy), np.random.default_rng(4)
    for n in range(100):
        k, available = int(rng.integers(1, 9)), rng.random(6) < 0.7
        available[rng.integers(6)] = True
        mask = available if n % 2 else None
        there = available if n % 2 else np.ones(6, dtype=bool)
        source = Counting(float(rng.random()))
        p, decision = policy.probabilities(n % 3, k=k, available=mask), None
        decision = policy.choose(n % 3, k=k, available=mask, rng=source)
        assert source.calls == 1, f"choose drew {source.calls} uniform numbers"
        assert np.array_equal(p, decision.probabilities), "probabilities and choose differ"
        arms, expected = list(decision.arms), min(k, int(there.sum()))
        assert len(arms) == len({*arms}) == expected, f"{expected} different arms, got {arms}"
        assert there[arms].all(), "an arm was shown though it was masked"
        assert abs(math.fsum(p) - expected) <= 1e-12, f"probabilities of a slate of {expected} sum to {math.fsum(p)!r}"
        assert p.max() <= 1.0, f"a probability of {p.max()!r}"
        assert (p[there] >= floor * (1.0 - 1e-12)).all(), "a probability below the floor"
        assert not p[~there].any(), "a masked arm has a positive probability"
        assert decision.propensities == tuple(p[arms]), "propensities are not those of the shown arms"
    assert memory(policy) == before, "probabilities or choose changed what the policy has learned"
    return None


def slates_of_one_arm_are_decisions(subject: Subject) -> str | None:
    one: Any = subject.make()
    if not one.traits.slates:
        return ONE_ARM
    other: Any = subject.make()
    stream = rounds(100, 3, 4)
    for t in range(100):
        context, rewards = int(stream.contexts[t]), stream.rewards(t)
        single, slate = one.choose(context), other.choose(context, k=1)
        assert (single.arm, single.propensity) == (*slate.arms, *slate.propensities), "k=1 draws another arm"
        one.update(single, rewards if one.feedback is Feedback.FULL else float(rewards[single.arm]))
        other.update(slate, rewards_of(other, slate, rewards))
    assert memory(one) == memory(other), "k=1 learns something else"
    return None


def slate_digest(subject: Subject, *, compiled: bool) -> str:
    """Return a digest of the trace and memory of a run with slates, compiled or step by step."""
    policy = subject.make(3, 5)
    k = np.random.default_rng(2).integers(1, 6, 200)
    trace = simulate(policy, rounds(200, 3, 5), seed=2, record_every=7, k=k, compiled=compiled)
    digest = hashlib.sha256(trace.accounts.tobytes() + trace.pulls.tobytes())
    digest.update(memory(policy).encode())
    return digest.hexdigest()


def slates_agree_in_every_mode(subject: Subject) -> str | None:
    if not shows_slates(subject.make()):
        return ONE_ARM
    with jit.using_mode("off"):
        interpreted = slate_digest(subject, compiled=False)
        assert slate_digest(subject, compiled=True) == interpreted, "whole runs differ from single steps"
    if not can_compile():
        return TURNED_OFF
    with jit.using_mode("now"):
        for compiled in (True, False):
            assert slate_digest(subject, compiled=compiled) == interpreted, "machine code differs"
    return None


def slates_go_on_after_a_snapshot(subject: Subject) -> str | None:
    policy: Any = subject.make()
    if not shows_slates(policy):
        return ONE_ARM
    train(policy, 60, 1)
    restored: Any = subject.make()
    restored.restore(State.from_bytes(policy.snapshot().to_bytes()))
    assert train(policy, 60, 2) == train(restored, 60, 2), "a restored policy shows other slates"
    assert memory(restored) == memory(policy), "a restored policy learned differently"
    return None
