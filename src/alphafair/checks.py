"""What every policy must pass, ours and yours: `alphafair check package:Policy`, or `run_checks` in your tests.

Each check is a function of a `Subject` (how to make the policy) that raises AssertionError, or returns a sentence
that starts with "does not apply". They need nothing but the public protocol; what is compiled is checked where the
policy offers it.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from alphafair.simulation import simulate
from alphafair.streams import stochastic
from alphafair.types import Decision, Feedback, Policy, State, Stream, Vector

Settings = Mapping[str, Any] | Callable[[int, int], Mapping[str, Any]]
NOT_HERE = "does not apply"


@dataclass(frozen=True)
class CheckResult:
    """How one check went."""

    name: str
    passed: bool
    message: str
    seconds: float


@dataclass(frozen=True)
class Subject:
    """A policy class with its settings, which may depend on the numbers of contexts and arms."""

    policy_class: type
    settings: Settings

    def make(self, n_contexts: int = 3, n_arms: int = 4, *, seed: int = 0, **more: Any) -> Policy:
        settings = self.settings(n_contexts, n_arms) if callable(self.settings) else self.settings
        policy: Policy = self.policy_class(n_contexts, n_arms, **{**settings, **more}, seed=seed)
        return policy

    def accepts(self, setting: str) -> bool:
        return setting in inspect.signature(self.policy_class).parameters

    def trained(self, n_rounds: int = 300, **sizes: Any) -> Policy:
        policy = self.make(**sizes)
        simulate(policy, _stream(n_rounds, policy.n_contexts, policy.n_arms), seed=5, compiled=False)
        return policy


def run_checks(
    policy_class: type, settings: Settings | None = None, *, on_start: Callable[[str], None] | None = None
) -> Iterator[CheckResult]:
    """Run every check, one result each, as they come."""
    subject = Subject(policy_class, settings or {})
    for name, check in CHECKS.items():
        if on_start is not None:
            on_start(name)
        started = time.perf_counter()
        try:
            passed, message = True, check(subject) or ""
        except Exception as problem:  # whatever a user's policy raises is a failure to report, not to die of
            passed, message = False, f"{type(problem).__name__}: {problem}"
        yield CheckResult(name, passed, message, time.perf_counter() - started)


def _stream(n_rounds: int, n_contexts: int, n_arms: int, seed: int = 1) -> Stream:
    return stochastic(n_rounds, n_contexts, n_arms, n_items=50, seed=seed)


def _reward(policy: Policy, decision: Decision, rewards: Vector) -> Any:
    return rewards if policy.feedback is Feedback.FULL else float(rewards[decision.arm])


def _memory(policy: Policy) -> str:
    """A digest of all that a policy has learned; its random numbers are not part of it."""
    digest = hashlib.sha256()
    state = policy.snapshot()
    for name in sorted(state.arrays):
        digest.update(name.encode() + np.ascontiguousarray(state.arrays[name]).tobytes())
    digest.update(json.dumps(dict(state.settings), sort_keys=True).encode())
    return digest.hexdigest()


def _run_digest(subject: Subject, *, compiled: bool) -> str:
    policy = subject.make(3, 5)
    trace = simulate(policy, _stream(400, 3, 5), seed=2, record_every=7, compiled=compiled)
    digest = hashlib.sha256(trace.cumulative_rewards.tobytes() + trace.pulls.tobytes())
    digest.update(_memory(policy).encode())
    return digest.hexdigest()


class _Counting:
    """A source of one fixed uniform that counts how often it is asked."""

    def __init__(self, uniform: float = 0.5) -> None:
        self.uniform, self.asked = uniform, 0

    def random(self) -> float:
        self.asked += 1
        return self.uniform


def distribution_sums_to_one(subject: Subject) -> None:
    for policy in (subject.make(), subject.trained(1000), subject.make(1, 1), subject.trained(5, n_arms=300)):
        for context in range(policy.n_contexts):
            p = policy.probabilities(context)
            assert p.shape == (policy.n_arms,), f"shape {p.shape}"
            assert (p >= 0.0).all(), f"a negative probability: {p.min()}"
            assert abs(math.fsum(p) - 1.0) <= 1e-12, f"probabilities sum to {math.fsum(p)!r}"
    fresh = subject.make().probabilities(0)
    assert np.allclose(fresh, 0.25, rtol=0.0, atol=1e-12), f"a policy that knows nothing must be uniform, got {fresh}"


def questions_change_nothing(subject: Subject) -> None:
    policy = subject.trained()
    before = _memory(policy)
    rng = np.random.default_rng(0)
    mask = np.array([True, False, True, True])
    for context in range(3):
        policy.probabilities(context)
        policy.probabilities(context, available=mask)
        policy.choose(context, rng=rng)
        policy.choose(context, rng=rng, available=mask)
        policy.choose(context)
    assert _memory(policy) == before, "probabilities or choose changed what the policy has learned"


def one_uniform_a_choice(subject: Subject) -> None:
    policy = subject.trained()
    for available in (None, np.array([True, True, False, True])):
        source = _Counting()
        policy.choose(1, rng=source, available=available)
        assert source.asked == 1, f"choose drew {source.asked} uniform numbers"
    for uniform in (0.0, math.nextafter(1.0, 0.0)):
        decision = policy.choose(1, rng=_Counting(uniform))
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
    stream = _stream(300, 3, 4)
    first, second = (simulate(subject.make(seed=k), stream, seed=11, record_every=1) for k in (0, 99))
    assert np.array_equal(first.cumulative_rewards, second.cumulative_rewards), "two equal runs earned differently"
    a, b = subject.make(seed=4), subject.make(seed=4)
    assert [a.choose(0)[:3] for _ in range(600)] == [b.choose(0)[:3] for _ in range(600)], "one seed, two paths"


def stepwise_equals_compiled(subject: Subject) -> str | None:
    if subject.make().kernels is None:
        return f"{NOT_HERE}: the policy offers no compiled run"
    assert _run_digest(subject, compiled=True) == _run_digest(subject, compiled=False), "they differ in some bit"
    return None


def interpreted_equals_compiled(subject: Subject) -> str | None:
    if subject.make().kernels is None:
        return f"{NOT_HERE}: the policy offers no compiled run"
    module, name = subject.policy_class.__module__, subject.policy_class.__qualname__
    if module == "__main__" or "<locals>" in name:
        return f"{NOT_HERE}: the class cannot be imported by another process"
    other_mode = "0" if os.environ.get("NUMBA_DISABLE_JIT") == "1" else "1"
    settings = subject.settings(3, 5) if callable(subject.settings) else subject.settings
    answer = subprocess.run(
        [sys.executable, "-m", "alphafair.checks", module, name, json.dumps(dict(settings))],
        env={**os.environ, "NUMBA_DISABLE_JIT": other_mode, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert answer.returncode == 0, f"the other process failed: {answer.stderr[-500:]}"
    assert answer.stdout.strip() == _run_digest(subject, compiled=True), "they differ in some bit"
    return None


def one_compiled_signature(subject: Subject) -> str | None:
    policy = subject.trained()
    found: list[Any] = [policy.kernels.draw, policy.kernels.learn] if policy.kernels else []
    kernels = [kernel for kernel in found if hasattr(kernel, "signatures")]
    if not kernels:
        return f"{NOT_HERE}: the policy has no kernels, or they run interpreted"
    decision = policy.choose(np.int64(1))  # type: ignore[arg-type]
    policy.choose(1, available=np.array([True, True, True, False]))
    rewards: Any = [1, 0, 1, 0] if policy.feedback is Feedback.FULL else 1
    policy.update(Decision(np.int32(1), np.int64(0), np.float32(0.25), np.full(4, 0.25)), rewards)  # type: ignore[arg-type]
    frozen = np.array([0.1, 0.2, 0.3, 0.4])
    frozen.setflags(write=False)
    policy.update(decision, frozen[::1] if policy.feedback is Feedback.FULL else np.float32(0.5))
    for kernel in kernels:
        n = len(kernel.signatures)
        assert n == 1, f"{kernel.__name__} was compiled for {n} signatures: some argument changed its type"
    return None


def leans_toward_reward(subject: Subject) -> str | None:
    if not subject.make().learns:
        return f"{NOT_HERE}: the policy says that it does not learn"
    efficient: dict[str, Any] = {k: v for k, v in {"alpha": 0.0, "pull_floor": 1e-3}.items() if subject.accepts(k)}
    policy = subject.make(2, 4, **efficient)
    contexts = np.arange(20_000, dtype=np.int32) % 2
    stream = Stream(contexts, np.zeros_like(contexts), np.array([[0.1, 0.1, 0.9, 0.1]]), n_contexts=2)
    simulate(policy, stream.head(2000), seed=3)
    early = min(policy.probabilities(context)[2] for context in (0, 1))
    assert early > 0.3, f"after 2,000 rounds the arm that pays 0.9 instead of 0.1 has probability {early:.3f}"
    simulate(policy, stream, seed=4)
    late = min(policy.probabilities(context)[2] for context in (0, 1))
    assert late > 0.9, f"after 22,000 rounds the arm that pays 0.9 instead of 0.1 has probability {late:.3f}"
    return None


def unseen_rewards_do_not_matter(subject: Subject) -> str | None:
    if subject.make().feedback is Feedback.FULL:
        return f"{NOT_HERE}: the policy sees all rewards"
    stream = _stream(300, 3, 4)
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
    assert _memory(blind) == _memory(seen), "rewards that were never shown changed the policy"
    return None


def names_do_not_matter(subject: Subject) -> str | None:
    arms, contexts = np.array([2, 0, 3, 1]), np.array([1, 2, 0])
    plain, renamed = subject.make(), subject.make()
    stream = _stream(300, 3, 4)
    rng = np.random.default_rng(3)
    for t in range(300):
        context = int(stream.contexts[t])
        rewards = stream.rewards(t)
        decision = plain.choose(context, rng=rng)
        plain.update(decision, _reward(plain, decision, rewards))
        where = int(np.flatnonzero(arms == decision.arm)[0])
        twin = Decision(int(contexts[context]), where, decision.propensity, decision.probabilities[arms])
        renamed.update(twin, _reward(renamed, twin, rewards[arms]))
    for context in range(3):
        difference = plain.probabilities(context)[arms] - renamed.probabilities(int(contexts[context]))
        assert np.abs(difference).max() < 1e-9, f"renaming arms and contexts changed play by {np.abs(difference).max()}"
    return None


def late_rewards_are_welcome(subject: Subject) -> None:
    policy = subject.make()
    stream = _stream(400, 3, 4)
    delays = np.random.default_rng(5).integers(0, 120, size=400).astype(np.int32)
    simulate(policy, stream, seed=6, delay=delays)
    for context in range(3):
        p = policy.probabilities(context)
        assert np.isfinite(p).all(), "late rewards made probabilities infinite or NaN"
        assert abs(math.fsum(p) - 1.0) <= 1e-12, f"after late rewards probabilities sum to {math.fsum(p)!r}"
    prompt, zero_delay = subject.make(), subject.make()
    simulate(prompt, stream, seed=6)
    simulate(zero_delay, stream, seed=6, delay=0)
    assert _memory(prompt) == _memory(zero_delay), "a delay of 0 is not the same as no delay"


def masked_arms_are_never_drawn(subject: Subject) -> None:
    policy = subject.trained()
    rng = np.random.default_rng(9)
    for mask in ([True, False, True, False], [False, False, False, True]):
        available = np.array(mask)
        p = policy.probabilities(0, available=available)
        free = policy.probabilities(0)
        assert (p[~available] == 0.0).all(), "a masked arm has a positive probability"
        assert abs(math.fsum(p) - 1.0) <= 1e-12, f"masked probabilities sum to {math.fsum(p)!r}"
        held = free[available].sum()
        if held > 0.0:
            assert np.allclose(p[available], free[available] / held, rtol=1e-12, atol=0.0), "not renormalised"
        for _ in range(200):
            decision = policy.choose(0, rng=rng, available=available)
            assert available[decision.arm], f"arm {decision.arm} was drawn though it was masked"
            assert decision.propensity == p[decision.arm], "the propensity of a masked choice is not the true one"


def snapshot_and_go_on(subject: Subject) -> None:
    policy = subject.trained()
    policy.choose(0)
    state = State.from_bytes(policy.snapshot().to_bytes())
    twin = subject.make()
    twin.restore(state)
    assert _memory(twin) == _memory(policy), "restore lost something"
    stream = _stream(200, 3, 4, seed=2)
    for t in range(200):
        context = int(stream.contexts[t])
        one, two = policy.choose(context), twin.choose(context)
        assert one[:3] == two[:3], f"round {t} after restore went another way"
        policy.update(one, _reward(policy, one, stream.rewards(t)))
        twin.update(two, _reward(twin, two, stream.rewards(t)))
    assert _memory(twin) == _memory(policy), "a restored policy learned otherwise"
    kept = _memory(twin)
    policy.update(policy.choose(0), _reward(policy, policy.choose(0), stream.rewards(0)))
    assert _memory(twin) == kept, "the snapshot shares memory with the policy"


def grown_contexts_start_uniform(subject: Subject) -> None:
    policy = subject.trained()
    before = [policy.probabilities(context) for context in range(3)]
    policy.grow(7)
    assert policy.n_contexts == 7, f"n_contexts is {policy.n_contexts}"
    for context in range(3):
        assert np.array_equal(before[context], policy.probabilities(context)), "growing changed an old context"
    blind = np.array_equal(before[0], before[1]) and np.array_equal(before[0], before[2])
    if not blind:
        p = policy.probabilities(5)
        assert np.allclose(p, 0.25, rtol=0.0, atol=1e-12), f"a new context must start uniform, got {p}"
    decision = policy.choose(6)
    policy.update(decision, _reward(policy, decision, np.array([1.0, 0.2, 0.2, 0.2])))
    twin = subject.make()
    twin.restore(policy.snapshot())
    assert twin.n_contexts == 7, "a snapshot forgot the grown contexts"


def fresh_forgets(subject: Subject) -> None:
    policy = subject.trained()
    assert _memory(policy.fresh()) == _memory(subject.make()), "fresh remembers something"
    assert policy.fresh().choose(0)[:3] == subject.make().choose(0)[:3], "fresh does not start its seed over"


def inputs_are_not_touched(subject: Subject) -> None:
    policy = subject.trained()
    mask = np.array([True, True, False, True])
    rewards = np.array([0.5, 0.25, 1.0, 0.75])
    decision = policy.choose(0, available=mask)
    kept = decision.probabilities.copy()
    policy.update(decision, _reward(policy, decision, rewards))
    for _ in range(300):
        policy.choose(1)
    assert mask.tolist() == [True, True, False, True], "the mask was written to"
    assert rewards.tolist() == [0.5, 0.25, 1.0, 0.75], "the rewards were written to"
    assert np.array_equal(decision.probabilities, kept), "an old decision was written to"


def memory_does_not_grow(subject: Subject) -> None:
    sizes = {n: sum(a.nbytes for a in subject.trained(n).snapshot().arrays.values()) for n in (100, 1000)}
    assert sizes[100] == sizes[1000], f"bytes after 100 and after 1,000 rounds: {sizes}"


def stays_finite(subject: Subject) -> None:
    cases = {
        "all floor": (np.full((1, 4), 0.2), 3),
        "all ones": (np.ones((1, 4)), 3),
        "all zeros": (np.zeros((1, 4)), 3),
        "one arm": (np.ones((1, 1)), 3),
        "one context": (np.array([[1.0, 0.2, 0.2, 0.2]]), 1),
        "rewards of 1e-12": (np.array([[1e-12, 1e-13, 0.0, 1e-12]]), 2),
    }
    compiled = subject.make().kernels is not None and os.environ.get("NUMBA_DISABLE_JIT") != "1"
    for name, (table, n_contexts) in cases.items():
        n_rounds = 1_000_000 if compiled and name == "one context" else 2000
        policy = subject.make(n_contexts, table.shape[1])
        contexts = (np.arange(n_rounds) % n_contexts).astype(np.int32)
        trace = simulate(policy, Stream(contexts, np.zeros_like(contexts), table, n_contexts=n_contexts), seed=1)
        assert np.isfinite(trace.final).all(), f"{name}: rewards {trace.final}"
        for context in range(n_contexts):
            p = policy.probabilities(context)
            assert np.isfinite(p).all(), f"{name}: probabilities {p}"
            assert abs(math.fsum(p) - 1.0) <= 1e-12, f"{name}: probabilities sum to {math.fsum(p)!r}"


def refusals_repair(subject: Subject) -> None:
    policy = subject.trained()
    decision = policy.choose(0)
    full = policy.feedback is Feedback.FULL
    good: Any = [0.5, 0.5, 0.5, 0.5] if full else 0.5
    bad_rewards: list[Any] = [math.nan, math.inf, "much", None]
    if full:
        bad_rewards = [[math.nan, 0, 0, 0], [0, math.inf, 0, 0], [0.5, 0.5], 0.5, [[0.5] * 4], "much", None]
    unit = policy.reward_range == (0.0, 1.0)
    bad_rewards += [[1.5, 0, 0, 0] if full else 1.5, [-0.1, 0, 0, 0] if full else -0.1] if unit else []
    calls: list[tuple[str, Callable[[], Any]]] = [
        *(("context", lambda c=c: policy.choose(c)) for c in (-1, 3, 0.5, "x", None)),
        *(("context", lambda c=c: policy.probabilities(c)) for c in (-1, 3, 0.5)),
        *(("available", lambda a=a: policy.choose(0, available=a)) for a in ([False] * 4, [True], [0, 1, 2, 3])),
        *(("reward", lambda r=r: policy.update(decision, r)) for r in bad_rewards),
        ("context", lambda: policy.update(decision._replace(context=3), good)),
        ("arm", lambda: policy.update(decision._replace(arm=4), good)),
        ("propensity", lambda: policy.update(decision._replace(propensity=math.nan), good)),
        ("propensity", lambda: policy.update(decision._replace(propensity=0.0), good)),
        ("decision", lambda: policy.update(None, good)),  # type: ignore[arg-type]
        ("n_contexts", lambda: policy.grow(2)),
        ("n_arms", lambda: subject.make(3, 0)),
        ("n_contexts", lambda: subject.make(-1, 4)),
        ("policy", lambda: policy.restore(State("another", 1, {}, {}, {}))),
    ]
    if subject.accepts("alpha"):
        calls += [("alpha", partial(subject.make, alpha=a)) for a in (1.0, 1.5, -0.1, math.nan, "much")]
    before = _memory(policy)
    for argument, call in calls:
        try:
            call()
        except ValueError as refusal:
            text = str(refusal)
            assert argument in text, f"the refusal does not name {argument}: {text}"
            assert "got " in text, f"the refusal does not show the value it got: {text}"
        else:
            raise AssertionError(f"a bad {argument} was accepted")
        assert _memory(policy) == before, f"a refused {argument} changed the policy"


CHECKS: dict[str, Callable[[Subject], str | None]] = {
    check.__name__: check
    for check in (
        distribution_sums_to_one,
        questions_change_nothing,
        one_uniform_a_choice,
        propensity_is_the_frequency,
        same_uniforms_same_path,
        stepwise_equals_compiled,
        interpreted_equals_compiled,
        one_compiled_signature,
        leans_toward_reward,
        unseen_rewards_do_not_matter,
        names_do_not_matter,
        late_rewards_are_welcome,
        masked_arms_are_never_drawn,
        snapshot_and_go_on,
        grown_contexts_start_uniform,
        fresh_forgets,
        inputs_are_not_touched,
        memory_does_not_grow,
        stays_finite,
        refusals_repair,
    )
}


if __name__ == "__main__":  # the other process of interpreted_equals_compiled
    import importlib

    module_name, class_name, settings_text = sys.argv[1:4]
    found: Any = importlib.import_module(module_name)
    for part in class_name.split("."):
        found = getattr(found, part)
    print(_run_digest(Subject(found, json.loads(settings_text)), compiled=True))
