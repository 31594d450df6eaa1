"""The conformance suite: what every policy must pass.

Each check is a function of a `Subject` (how to make the policy). It raises AssertionError, or returns a sentence that
starts with "does not apply".
"""

import contextlib
import hashlib
import math
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from alphafair import jit
from alphafair.checks.subject import (
    NOT_APPLICABLE,
    Counting,
    Subject,
    assert_same_path,
    assert_valid,
    memory,
    reward_of,
    rounds,
)
from alphafair.errors import InvalidArgument
from alphafair.run import has_whole_runs, simulate
from alphafair.values import Account, Decision, Feedback, Policy, State, Stream

N_THREADS, N_CALLS = 8, 300


# drawing and masks


def distribution_sums_to_one(subject: Subject) -> None:
    for policy in (subject.make(), subject.trained(1000), subject.make(1, 1), subject.trained(5, n_arms=300)):
        assert_valid(policy)


def questions_change_nothing(subject: Subject) -> None:
    policy = subject.trained()
    before = memory(policy)
    rng = np.random.default_rng(0)
    mask = np.array([True, False, True, True])
    for context in range(3):
        policy.probabilities(context)
        policy.probabilities(context, available=mask)
        policy.choose(context, rng=rng)
        policy.choose(context, rng=rng, available=mask)
        policy.choose(context)
    assert memory(policy) == before, "probabilities or choose changed what the policy has learned"


def one_uniform_per_choice(subject: Subject) -> None:
    for available in (None, np.array([True, True, False, True])):
        source = Counting()
        subject.make().choose(1, rng=source, available=available)
        assert source.calls == 1, f"choose drew {source.calls} uniform numbers"
    policy = subject.trained()
    for uniform in (0.0, math.nextafter(1.0, 0.0)):
        decision = policy.choose(1, rng=Counting(uniform))
        assert decision.propensity > 0.0, f"uniform {uniform} drew an arm of probability 0"


def propensity_is_the_frequency(subject: Subject) -> None:
    policy = subject.trained()
    rng = np.random.default_rng(7)
    n_draws = 20_000
    counts = np.zeros(policy.n_arms, dtype=np.int64)
    p = policy.probabilities(2)
    for _ in range(n_draws):
        decision = policy.choose(2, rng=rng)
        counts[decision.arm] += 1
        assert decision.propensity == decision.probabilities[decision.arm], "propensity is not that of the arm"
    assert np.array_equal(decision.probabilities, p), "choose and probabilities disagree"
    assert not decision.probabilities.flags.writeable, "a decision's probabilities must be read-only"
    for arm in range(policy.n_arms):
        low, high = binomial_band(n_draws, float(p[arm]), 1e-6)
        assert low <= counts[arm] <= high, f"arm {arm} of probability {p[arm]} came {counts[arm]} times of {n_draws}"


def binomial_band(n: int, p: float, tail: float) -> tuple[int, int]:
    """Counts of n draws of probability p that are exceeded, on each side, with probability at most `tail`."""
    if p in (0.0, 1.0):
        return int(n * p), int(n * p)
    k = np.arange(n + 1)
    log_factorial = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, n + 1)))])
    log_mass = log_factorial[n] - log_factorial - log_factorial[::-1] + k * math.log(p) + (n - k) * math.log1p(-p)
    mass = np.exp(log_mass)
    low = int(np.searchsorted(np.cumsum(mass), tail))
    high = n - int(np.searchsorted(np.cumsum(mass[::-1]), tail))
    return low, high


def same_uniforms_same_path(subject: Subject) -> None:
    stream = rounds(300, 3, 4)
    first, second = (simulate(subject.make(seed=k), stream, seed=11, record_every=1) for k in (0, 99))
    assert np.array_equal(first.accounts, second.accounts), "two equal runs earned differently"
    a, b = subject.make(seed=4), subject.make(seed=4)
    assert [a.choose(0)[:3] for _ in range(600)] == [b.choose(0)[:3] for _ in range(600)], "one seed, two paths"


def masked_arms_are_never_drawn(subject: Subject) -> None:
    policy = subject.trained()
    rng = np.random.default_rng(9)
    for mask in ([True, False, True, False], [False, False, False, True]):
        available = np.array(mask)
        p = policy.probabilities(0, available=available)
        assert (p[~available] == 0.0).all(), "a masked arm has a positive probability"
        assert abs(math.fsum(p) - 1.0) <= 1e-12, f"masked probabilities sum to {math.fsum(p)!r}"
        for _ in range(200):
            decision = policy.choose(0, rng=rng, available=available)
            assert available[decision.arm], f"arm {decision.arm} was drawn though it was masked"
            assert decision.propensity == p[decision.arm], "the propensity of a masked choice is not the true one"


def inputs_are_not_touched(subject: Subject) -> None:
    policy = subject.trained()
    mask = np.array([True, True, False, True])
    rewards = np.array([0.5, 0.25, 1.0, 0.75])
    decision = policy.choose(0, available=mask)
    kept = decision.probabilities.copy()
    policy.update(decision, reward_of(policy, decision, rewards))
    for _ in range(300):
        policy.choose(1)
    assert mask.tolist() == [True, True, False, True], "the mask was written to"
    assert rewards.tolist() == [0.5, 0.25, 1.0, 0.75], "the rewards were written to"
    assert np.array_equal(decision.probabilities, kept), "an old decision was written to"


# compiled runs


NO_KERNELS = f"{NOT_APPLICABLE}: the policy has no compiled runs"
TURNED_OFF = f"{NOT_APPLICABLE}: kernels run interpreted, because of NUMBA_DISABLE_JIT"


def run_digest(subject: Subject, *, compiled: bool) -> str:
    """Return a digest of the trace and memory of a run, compiled or step by step."""
    policy = subject.make(3, 5)
    trace = simulate(policy, rounds(400, 3, 5), seed=2, record_every=7, compiled=compiled)
    digest = hashlib.sha256(trace.accounts.tobytes() + trace.pulls.tobytes())
    digest.update(memory(policy).encode())
    return digest.hexdigest()


def stepwise_equals_compiled(subject: Subject) -> str | None:
    if not has_whole_runs(subject.make()):
        return NO_KERNELS
    with jit.using_mode("now"):
        assert run_digest(subject, compiled=True) == run_digest(subject, compiled=False), "results differ"
    return None


def interpreted_equals_compiled(subject: Subject) -> str | None:
    if not has_whole_runs(subject.make()):
        return NO_KERNELS
    if not can_compile():
        return TURNED_OFF
    for compiled in (True, False):
        digests = set()
        for mode in ("now", "off"):
            with jit.using_mode(mode):
                digests.add(run_digest(subject, compiled=compiled))
        assert len(digests) == 1, "results differ"
    return None


def can_compile() -> bool:
    with jit.using_mode("now"):
        return jit.mode() == "now"


def one_compiled_signature(subject: Subject) -> str | None:
    if not has_whole_runs(subject.make()) or not can_compile():
        return f"{NOT_APPLICABLE}: the policy has no kernels, or they run interpreted"
    with jit.using_mode("now"):
        policy: Any = subject.trained()
        decision = policy.choose(np.int64(1))
        policy.choose(1, available=np.array([True, True, True, False]))
        rewards: Any = [1, 0, 1, 0] if policy.feedback is Feedback.FULL else 1
        policy.update(Decision(np.int32(1), np.int64(0), np.float32(0.25), np.full(4, 0.25)), rewards)  # type: ignore[arg-type]
        for notify in (policy.expect, policy.forgo):
            notify(Decision(np.int32(1), np.int64(0), np.float32(0.25), np.full(4, 0.25)))  # type: ignore[arg-type]
            notify(policy.choose(1))
        frozen = np.array([0.1, 0.2, 0.3, 0.4])
        frozen.setflags(write=False)
        policy.update(decision, frozen[::1] if policy.feedback is Feedback.FULL else np.float32(0.5))
        for kernel in policy.stepper.kernels().values():
            n = len(kernel.signatures)
            assert n <= 1, f"{kernel.__name__} was compiled for {n} signatures: some argument changed its type"
    return None


# learning


def leans_toward_reward(subject: Subject) -> str | None:
    """An arm with nine times the reward of the others is pulled most often; by how much depends on fairness.

    From alpha = 1 on, fairness gives an arm that pays more everywhere no more pulls. There every context has another
    best arm.
    """
    if not subject.make().traits.learns:
        return f"{NOT_APPLICABLE}: the policy declares that it does not learn"
    policy = subject.make(2, 4)
    if policy.alpha is not None and policy.alpha >= 1.0:
        if np.ndim(policy.accounts) == 2:  # type: ignore[arg-type]
            return f"{NOT_APPLICABLE}: from alpha = 1 on, fairness within a context gives its best arm no more pulls"
        own = np.arange(20_000, dtype=np.int32) % 4
        stream = Stream(own, own, 0.1 + 0.8 * np.eye(4), n_contexts=4)
        log = simulate(subject.make(4, 4), stream, seed=3, log=True).log
        right = float((log.arms == log.contexts).mean())  # type: ignore[union-attr]
        assert right > 0.265, f"the arm that pays 0.9 instead of 0.1 is pulled in {right:.1%} of rounds, one of 4 arms"
        return None
    contexts = np.arange(20_000, dtype=np.int32) % 2
    stream = Stream(contexts, np.zeros_like(contexts), np.array([[0.1, 0.1, 0.9, 0.1]]), n_contexts=2)
    simulate(policy, stream.head(2000), seed=3)
    part = simulate(policy, stream, seed=4).pulls / stream.n_rounds
    hint, alpha = "", getattr(policy, "settings", {}).get("alpha")
    if policy.alpha is None and isinstance(alpha, (int, float)) and alpha >= 1.0:
        hint = (
            f". Its settings have alpha = {alpha:g}, where fairness gives this arm no more pulls, but its attribute "
            "alpha is None: set self.alpha before super().__init__"
        )
    words = f"the arm that pays 0.9 instead of 0.1 is pulled in {part[2]:.1%} of rounds, one of 4 arms{hint}"
    assert part[2] > 0.265, words
    assert part.argmax() == 2, f"another arm than the one that pays most is pulled most: {part.round(3)}{hint}"
    return None


def unseen_rewards_do_not_matter(subject: Subject) -> str | None:
    if subject.make().feedback is Feedback.FULL:
        return f"{NOT_APPLICABLE}: the policy sees all rewards"
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
    """Renaming arms and contexts renames the answers, also when arms come and go.

    Arms are first played at random, so that no ties remain, which a policy may break in any way.
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
            same = Decision(int(contexts[context]), where, decision.propensity, decision.probabilities[arms])
            renamed.update(same, reward_of(renamed, same, rewards[arms]))
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
    assert_valid(policy, "after late rewards: ")
    chooser, other = subject.make(), subject.make()
    rng = np.random.default_rng(2)
    decisions = [chooser.choose(int(context), rng=rng) for context in stream.contexts[:40]]
    for t in rng.permutation(40):
        for policy in (chooser, other):  # everything is in the decision
            policy.update(decisions[t], reward_of(policy, decisions[t], stream.rewards(int(t))))
    assert memory(chooser) == memory(other), "learning depends on more than the decision"
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
        assert_valid(policy, f"{name}: ")
        restored = subject.make(n_contexts, table.shape[1])
        restored.restore(policy.snapshot())
        assert_valid(restored, f"{name}, restored: ")


def bad_input_is_refused(subject: Subject) -> None:
    """Invalid input raises ValueError, or TypeError for values that are not numbers, and changes nothing.

    A policy that does not use propensities need not check them. An `InvalidArgument` must name the right argument.
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
                raise AssertionError(f"the error for an invalid {argument} does not name it: {problem}") from None
        else:
            raise AssertionError(f"an invalid {argument} was accepted")
        assert memory(policy) == before, f"a refused {argument} changed the policy"
    for propensity in (math.nan, 0.0):
        with contextlib.suppress(ValueError):
            policy.update(decision._replace(propensity=propensity), good)
        assert_valid(policy, f"after a propensity of {propensity}: ")


# contexts and arms that come and go


def contexts_may_be_added(subject: Subject) -> None:
    policy = subject.trained()
    before = [policy.probabilities(context) for context in range(3)]
    policy.grow(7)
    assert policy.n_contexts == 7, f"n_contexts is {policy.n_contexts}"
    assert_valid(policy, "after new contexts: ")
    for context in range(3):
        assert np.array_equal(before[context], policy.probabilities(context)), "growing changed an old context"
    decision = policy.choose(6)
    policy.update(decision, reward_of(policy, decision, np.array([1.0, 0.2, 0.2, 0.2])))
    restored = subject.make()
    restored.restore(policy.snapshot())
    assert restored.n_contexts == 7, "a snapshot forgot the grown contexts"


def arms_may_be_added(subject: Subject) -> None:
    accounts: tuple[Account, ...] = ("least", "fresh", 2.5)
    for account in accounts:
        policy = subject.trained()
        old = policy.choose(1)
        policy.grow(n_arms=6, account=account)
        assert policy.n_arms == 6, f"n_arms is {policy.n_arms}"
        assert_valid(policy, f"with new arms of account {account}: ")
        policy.update(old, reward_of(policy, old, np.array([0.5, 1.0, 0.0, 0.25])))
        for arm in range(6):  # all of them can be drawn, learned from and masked
            only = np.arange(6) == arm
            decision = policy.choose(0, available=only)
            assert decision.arm == arm, f"arm {decision.arm} was drawn where only arm {arm} was available"
            policy.update(decision, reward_of(policy, decision, np.linspace(0.0, 1.0, 6)))
        assert_valid(policy, f"with new arms of account {account}, after their rewards: ")


def retired_arms_are_never_drawn(subject: Subject) -> None:
    policy = subject.trained()
    waiting = [policy.choose(0, available=np.arange(4) == 1) for _ in range(2)]
    late = np.array([0.25, 1.0, 0.5, 0.0])
    policy.retire(1)
    _plays_without(policy, 1)
    policy.update(waiting[0], reward_of(policy, waiting[0], late))
    _plays_without(policy, 1)
    policy.grow(n_arms=6)
    assert policy.n_arms == 6, f"a retired arm keeps its number, so n_arms is 6, not {policy.n_arms}"
    policy.update(waiting[1], reward_of(policy, waiting[1], late))
    _plays_without(policy, 1)
    before = memory(policy)
    for what, call in (
        ("a retired arm was retired again", lambda: policy.retire(1)),
        ("a retired arm was the only one available", lambda: policy.choose(0, available=np.arange(6) == 1)),
    ):
        try:
            call()
        except ValueError:
            assert memory(policy) == before, f"{what}: refused, but something changed"
        else:
            raise AssertionError(f"{what}, and no error was raised")


def _plays_without(policy: Policy, arm: int) -> None:
    assert_valid(policy, "after an arm was retired: ")
    rng = np.random.default_rng(4)
    for context in range(policy.n_contexts):
        p = policy.probabilities(context)
        assert p[arm] == 0.0, f"a retired arm has probability {p[arm]}"
        for _ in range(100):
            decision = policy.choose(context, rng=rng)
            assert decision.arm != arm, "a retired arm was drawn"
            assert decision.propensity == p[decision.arm], "the propensity is not the true one beside a retired arm"


def snapshot_after_changes(subject: Subject) -> None:
    policy = subject.trained()
    policy.grow(5, 6)
    policy.retire(2)
    stream = rounds(200, 5, 6, seed=3)
    for t in range(100):
        decision = policy.choose(int(stream.contexts[t]))
        policy.update(decision, reward_of(policy, decision, stream.rewards(t)))
    restored = subject.make()
    restored.restore(State.from_bytes(policy.snapshot().to_bytes()))
    assert (restored.n_contexts, restored.n_arms) == (5, 6), (
        f"restored with {restored.n_contexts} contexts, {restored.n_arms} arms"
    )
    assert_same_path(policy, restored, stream, 100)
    _plays_without(restored, 2)


# snapshots, memory and threads


def snapshot_and_go_on(subject: Subject) -> None:
    policy = subject.trained()
    policy.choose(0)
    taken = policy.snapshot()
    before = taken.to_bytes()
    state = State.from_bytes(before)
    restored = subject.make()
    restored.restore(state)
    assert memory(restored) == memory(policy), "restore lost something"
    stream = rounds(200, 3, 4, seed=2)
    assert_same_path(policy, restored, stream)
    kept = memory(restored)
    policy.update(policy.choose(0), reward_of(policy, policy.choose(0), stream.rewards(0)))
    assert memory(restored) == kept, "the snapshot shares memory with the policy"
    assert taken.to_bytes() == before, "later updates changed the snapshot"


def fresh_forgets(subject: Subject) -> None:
    policy = subject.trained()
    assert memory(policy.fresh()) == memory(subject.make()), "fresh remembers something"
    assert policy.fresh().choose(0)[:3] == subject.make().choose(0)[:3], "fresh does not start its seed over"
    policy.retire(1)
    fresh = policy.fresh()
    restored = policy.fresh()
    restored.restore(State.from_bytes(fresh.snapshot().to_bytes()))
    assert memory(restored) == memory(fresh), "fresh with a retired arm is not what its snapshot restores"
    rewards = fresh.cumulative_rewards
    assert rewards is None or not rewards.any(), f"fresh with a retired arm has rewards: {rewards}"


def memory_does_not_grow(subject: Subject) -> str | None:
    """The memory does not grow with the number of rounds, for policies with compiled runs."""
    if not has_whole_runs(subject.make()):
        return f"{NOT_APPLICABLE}: the policy has no compiled runs, so its memory may grow"
    sizes = {n: sum(a.nbytes for a in subject.trained(n).snapshot().arrays.values()) for n in (100, 1000)}
    assert sizes[100] == sizes[1000], f"bytes after 100 and after 1,000 rounds: {sizes}"
    return None


def threads_may_share_a_policy(subject: Subject) -> None:
    """Eight threads at once: distributions are consistent, and every reward is counted once."""
    policy = subject.make(3, 40)
    before = _booked(policy)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(N_THREADS) as pool:
            earned = list(pool.map(lambda seed: _choose_and_learn(policy, seed, N_CALLS), range(N_THREADS)))
    finally:
        sys.setswitchinterval(interval)
    assert_valid(policy, "after eight threads: ")
    if before is not None:
        booked, total = _booked(policy) - before, sum(earned)
        assert abs(booked - total) <= 1e-9 * total, f"rewards of {total!r} were passed and {booked!r} counted"


def _choose_and_learn(policy: Policy, seed: int, n_rounds: int) -> float:
    """Return the sum of rewards passed to `update`: expected ones under full information, like the accounts."""
    rng, earned = np.random.default_rng(seed), 0.0
    full = policy.feedback is Feedback.FULL
    for _ in range(n_rounds):
        decision = policy.choose(int(rng.integers(policy.n_contexts)))
        total = math.fsum(decision.probabilities)
        assert abs(total - 1.0) <= 1e-12, f"a decision's probabilities sum to {total!r}"
        rewards = rng.random(policy.n_arms)
        policy.update(decision, reward_of(policy, decision, rewards))
        earned += float(decision.probabilities @ rewards) if full else float(rewards[decision.arm])
    return earned


def _booked(policy: Policy) -> Any:
    """Return the sum of all rewards, or None without accounts."""
    return None if policy.cumulative_rewards is None else float(np.sum(policy.cumulative_rewards))
