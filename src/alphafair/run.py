"""Run policies over a stream, against an adversary and over a log, step by step or compiled.

`simulate`, `simulate_all` and `simulate_against` validate their arguments, play all rounds and return a `Trace`.
`over_stream`, `against`, `over_log`, `over_matches` and `over_full_log` are the only loops over rounds.
"""

from __future__ import annotations

import copy
import heapq
import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from alphafair import validate
from alphafair.errors import InvalidArgument
from alphafair.groups import ArmGroups, Groups, GroupsLike, arm_groups
from alphafair.math.adversaries import first_state, react
from alphafair.policy import archive
from alphafair.policy.arguments import fits, matching_features
from alphafair.policy.base import BasePolicy
from alphafair.policy.loops import LEARN, NO_ADVERSARY, Book, Delays, LogSteps, Rounds
from alphafair.policy.slate_loops import SlateSteps
from alphafair.policy.slates import checked_exposures
from alphafair.policy.stepper import feature_table
from alphafair.tasks import in_order
from alphafair.values import (
    ADVERSARIES,
    Account,
    Adversary,
    AvailableArms,
    Decision,
    DescribedDecision,
    DescribedSlate,
    Feedback,
    Indices,
    Log,
    Matrix,
    Period,
    Policy,
    SlateDecision,
    State,
    Stream,
    Trace,
    Vector,
    frozen,
)
from alphafair.values.log import first_entries, refuse_slates, refuse_unknown_propensities

__all__ = ["over_full_log", "over_log", "simulate", "simulate_against", "simulate_all"]

STEPS = 1024  # rounds between two updates of the progress bar, if they are played one by one
# Called with the policy, the stream, the delays, the trace and the numbers of shown arms of every `simulate`: the tests
# check regret bounds here.
after_simulate: list[Callable[[Policy, Stream, Any, Trace, Any], None]] = []


def simulate(
    policy: Policy,
    stream: Stream,
    *,
    seed: int | None = 0,
    record_every: int | None = None,
    delay: int | ArrayLike | None = None,
    account: Account = "least",
    groups: GroupsLike | None = None,
    period: int | None = None,
    carry: float = 0.5,
    log: bool = False,
    k: ArrayLike | None = None,
    exposures: Sequence[float] | None = None,
    progress: bool | Callable[[int], None] = False,
    compiled: bool = True,
) -> Trace:
    """Play all rounds of a stream with a policy, which keeps what it has learned.

    Parameters
    ----------
    policy
        Any `Policy` with the arms of the first round; later arms are added with `grow` when they arrive. A policy with
        kernels runs compiled, with the same results to the last bit.
    seed
        Seed of the uniform numbers, one per round; the same seed gives every policy the same numbers.
    record_every
        Record the accounts every `record_every` rounds and after the last; None: after the last only.
    delay
        Number of rounds before `update` is called with a reward: one number, or one per round. With `k` also a table,
        (n_rounds, k), of the delays of the shown arms in the order of their slots. The trace counts rewards when they
        are earned; those that are still delayed after the last round arrive then.
    account
        The account of new arms: see `BasePolicy.grow`.
    groups
        If arms arrive and the policy has groups: a label for each arm of the stream, or a `Groups` with these labels
        and the entitlements of new groups.
    period
        Start a new period of the policy every so many rounds: see `BasePolicy.new_period`. `trace.periods` has the
        rewards and accounts of each. If arms change in the same round, they change first.
    carry
        The part of every account that a new period keeps.
    log
        Store every decision with its reward, as `trace.log`; with `k` it has an entry for every shown arm.
    k
        Number of arms that a decision shows: one number, or one per round. All shown arms earn, and `trace.pulls`
        counts them all. None: single arms. With delays, slates are played step by step.
    exposures
        How much each of the k slots is looked at, the first 1: see `BasePolicy.choose`. An arm earns its reward times
        the exposure of its slot. Step by step, with bandit feedback.
    progress
        Show a progress bar; or a function that is called with the number of rounds played since its last call.
    compiled
        False: call `choose` and `update` once per round, even if the policy has kernels.

    >>> from alphafair import AlphaFair, simulate, streams
    >>> stream = streams.ratings(n_rounds=2000, n_contexts=3, n_arms=4, seed=0)
    >>> trace = simulate(AlphaFair(3, 4, alpha=0.5), stream, record_every=500)
    >>> trace.rounds.tolist(), trace.accounts.shape
    ([500, 1000, 1500, 2000], (4, 4))
    """
    validate.stream("stream", stream)
    every = stream.n_rounds if record_every is None else validate.integer("record_every", record_every, low=1)
    _match(policy, stream)
    shown = None if k is None else _shown(policy, k, stream)
    looked_at = None if exposures is None else _exposures(policy, exposures, k)
    delays = _delays(delay, stream.n_rounds, shown)
    validate.account(account)
    length = None if period is None else validate.integer("period", period, low=1)
    carry = validate.number("carry", carry, low=0.0, high=1.0)
    of_arrivals = None if groups is None else _matching_groups(groups, policy, stream.n_arms)
    generator = validate.random_generator("seed", seed)
    with _bar(policy.name, stream.n_rounds, progress) as advance:
        played = over_stream(
            policy,
            stream,
            generator,
            every=every,
            delays=delays,
            account=account,
            groups=of_arrivals,
            period=length,
            carry=carry,
            keep=log,
            shown=shown,
            exposures=looked_at,
            compiled=compiled,
            advance=advance,
        )
    trace = _trace(policy, stream, seed, played, _log(stream, played, shown) if log else None)
    for check in after_simulate:
        check(policy, stream, delays, trace, shown)
    return trace


def simulate_all(
    policies: Iterable[Policy],
    stream: Stream,
    *,
    seeds: Iterable[int] = (0,),
    executor: Executor | None = None,
    progress: bool | Callable[[int], None] = False,
    **options: Any,
) -> list[list[Trace]]:
    """Play all rounds of a stream with several policies and several seeds: a list of traces per policy, one per seed.

    Parameters
    ----------
    policies
        Each starts afresh for every seed, and is not changed.
    seeds
        Seeds of the uniform numbers; every policy gets the same.
    executor
        Runs one simulation per policy and seed in its workers, see `alphafair.executors`; traces are the same to the
        last bit. None: in this thread.
    progress
        Show a progress bar of simulations; or a function that is called with the number of them since its last call.
    options
        Those of `simulate`, such as `record_every`.

    >>> from alphafair import AlphaFairAdaptive, Uniform, streams
    >>> stream = streams.ratings(n_rounds=2000, n_contexts=3, n_arms=4, seed=0)
    >>> traces = simulate_all([AlphaFairAdaptive(3, 4, alpha=0.5), Uniform(3, 4)], stream, seeds=range(5))
    >>> len(traces), len(traces[0])
    (2, 5)
    """
    validate.stream("stream", stream)
    chosen = [validate.integer("seeds", seed, low=0) for seed in seeds]
    tasks = [partial(simulate, policy.fresh(), stream, seed=seed, **options) for policy in policies for seed in chosen]
    found = []
    with _bar("Simulating", len(tasks), progress) as advance:
        for trace in in_order(tasks, executor, shared=(stream,)):
            found.append(trace)
            advance(1)
    return [found[first : first + len(chosen)] for first in range(0, len(found), max(1, len(chosen)))]


def simulate_against(
    policy: Policy,
    adversary: Adversary,
    *,
    seed: int | None = 0,
    record_every: int | None = None,
    k: ArrayLike | None = None,
    compiled: bool = True,
) -> tuple[Trace, Stream]:
    """Play against an adversary; return the trace, and the stream that the adversary made for this policy.

    Every policy gets its own rewards, so compare it with the optimum of its own stream. The parameters are those of
    `simulate`.

    >>> from alphafair import AlphaFair, metrics, streams
    >>> adversary = streams.adversary("largest", n_rounds=2000, n_contexts=3, n_arms=4, seed=0)
    >>> trace, stream = simulate_against(AlphaFair(3, 4, alpha=0.5), adversary)
    >>> stream.n_rounds, bool((stream.reward_table == 0.05).any(axis=1).all())
    (2000, True)
    """
    every = adversary.stream.n_rounds if record_every is None else validate.integer("record_every", record_every, low=1)
    _match(policy, adversary.stream)
    generator = validate.random_generator("seed", seed)
    shown = None if k is None else _shown(policy, k, adversary.stream)
    played, stream = against(policy, adversary, generator, every=every, shown=shown, compiled=compiled)
    return _trace(policy, stream, seed, played, None), stream


def _trace(policy: Policy, stream: Stream, seed: int | None, played: Played, log: Log | None) -> Trace:
    rounds = np.minimum(np.arange(1, len(played.records) + 1) * played.every, stream.n_rounds)
    periods = tuple(played.periods)
    return Trace(
        policy.name, policy.feedback, seed, rounds, played.records, played.pulls, log, periods, played.of_contexts
    )


def _log(stream: Stream, played: Played, shown: Indices | None) -> Log:
    available = None if stream.arrivals is None else _present(stream)
    labels: dict[str, Any] = {
        "n_contexts": stream.n_contexts,
        "n_arms": stream.n_arms,
        "context_labels": stream.context_labels,
        "arm_labels": stream.arm_labels,
    }
    if shown is None:
        rewards = stream.reward_table[stream.items, played.arms]
        described: dict[str, Any] = {"features": stream.features, "available": available}
        return Log(stream.contexts, played.arms, rewards, played.propensities, **labels, **described)
    kept = played.arms >= 0  # a decision shows fewer arms than k where fewer are live
    rounds = np.repeat(np.arange(stream.n_rounds), shown)[kept]
    arms, k = played.arms[kept], np.bincount(rounds, minlength=stream.n_rounds)
    positions = (1 + np.arange(len(rounds)) - np.repeat(np.cumsum(k) - k, k)).astype(np.int32)
    looked_at = None if played.exposures is None else played.exposures[positions - 1]
    rewards = stream.reward_table[stream.items[rounds], arms]
    return Log(
        stream.contexts[rounds],
        arms,
        rewards if looked_at is None else looked_at * rewards,
        np.minimum(played.propensities[kept], 1.0) / k[rounds],
        **labels,
        positions=positions,
        exposures=looked_at,
        features=None if stream.features is None else stream.features[rounds],
        available=None if available is None else available.take(rounds),
        decisions=rounds,
    )


def _present(stream: Stream) -> AvailableArms:
    """Return the arms that take part in every round."""
    starts = [0, *stream.epochs]
    epochs = np.searchsorted(starts, np.arange(stream.n_rounds), side="right") - 1
    return AvailableArms.of((np.array([stream.present(t) for t in starts]), epochs))


def _matching_groups(groups: GroupsLike, policy: Policy, n_arms: int) -> ArmGroups:
    """Resolve the groups of the stream's arms, and check that they agree with those of the policy."""
    given, own = arm_groups(groups, n_arms), policy.groups
    if own is None:
        repair = "Use AlphaFair, AlphaFairBandit or AlphaFairAdaptive."
        raise InvalidArgument("groups", f"None: {policy.name} does not support groups", groups, repair)
    known = [own.labels[g] for g in own.of_arms]
    if own.named and known != [given.labels[g] for g in given.of_arms[: len(known)]]:
        raise InvalidArgument(
            "groups", f"the labels of the policy, {validate.listed(known)}, and more", groups, "Use the same labels."
        )
    if given.floored or given.arm_floor > 0.0:
        raise InvalidArgument("groups", "without pull_floor", groups, "Pass floors to the constructor of the policy.")
    if given.entitled and not np.array_equal(given.entitlements[: own.n_groups], own.entitlements):
        allowed = f"the entitlements of the policy, {own.entitlements.tolist()}, and more"
        raise InvalidArgument("groups", allowed, groups, "Use the same entitlements.")
    return given


def _match(policy: Policy, stream: Stream) -> None:
    """Check that the arms, contexts, features and rewards of a stream fit the policy."""
    if Policy not in type(policy).__mro__ and not isinstance(policy, Policy):  # `isinstance` evaluates every attribute
        repair = "Derive it from alphafair.Policy; `alphafair check` lists what is missing."
        raise InvalidArgument("policy", "a Policy", policy, repair)
    if policy.n_arms != stream.n_first_arms:
        raise InvalidArgument(
            "stream",
            f"a stream with {policy.n_arms} arms in its first round",
            stream.n_first_arms,
            "Construct the policy with stream.n_first_arms.",
        )
    if policy.n_contexts < stream.n_contexts:
        raise InvalidArgument(
            "stream",
            f"a stream with at most {policy.n_contexts} contexts",
            stream.n_contexts,
            f"Call policy.grow({stream.n_contexts}) first.",
        )
    matching_features(policy, "stream", stream.features, stream.n_arms)
    low, high = policy.traits.reward_range
    least, most = float(stream.reward_table.min()), float(stream.reward_table.max())
    if least < low or most > high:
        raise InvalidArgument(
            "stream.reward_table",
            f"in [{low:g}, {high:g}] for {policy.name}",
            [least, most],
            "Map the rewards with alphafair.rescale_rewards.",
        )


def _shown(policy: Policy, k: ArrayLike, stream: Stream) -> Indices:
    """Check the number of arms that every decision shows."""
    if not policy.traits.slates:
        repair = "Use AlphaFairAdaptive, AlphaFair, AlphaFairBandit or Uniform."
        raise InvalidArgument("k", f"left out: {policy.name} shows one arm per decision", k, repair)
    limit, n_rounds = int(np.iinfo(np.int32).max), stream.n_rounds
    if np.ndim(k) == 0:
        found = np.full(n_rounds, validate.integer("k", k, low=1, high=limit), dtype=np.int32)
    else:
        found = validate.indices("k", k, None, n_entries=n_rounds, low=1)
    if policy.groups is not None and policy.groups.floored and int(found.max()) > 1:
        raise InvalidArgument("k", "1 with a pull_floor by group", k, "Pass one pull_floor for all arms.")
    if isinstance(policy, BasePolicy) and policy._sided() and int(found.max()) > 1:
        raise InvalidArgument("k", "1 for a policy that is fair to contexts too", k, "Leave it out.")
    return np.asarray(np.minimum(found, stream.n_arms), dtype=np.int32)


def _exposures(policy: Policy, exposures: Sequence[float], k: ArrayLike | None) -> Vector:
    """Check how much each slot is looked at; k is the same in every round."""
    if k is None or np.ndim(k) > 0:
        raise InvalidArgument("exposures", "left out unless k is one number", exposures, "Pass k, the number of slots.")
    given = checked_exposures(cast(BasePolicy, policy), exposures, int(cast(int, k)))
    return np.array(given, dtype=np.float64)


def _delays(delay: int | ArrayLike | None, n_rounds: int, shown: Indices | None = None) -> NDArray[np.int32] | None:
    if delay is None:
        return None
    if shown is not None and np.ndim(delay) == 2:
        table = np.asarray(delay)
        if len(table) != n_rounds or table.shape[1] < shown.max():
            allowed = f"of shape ({n_rounds}, {int(shown.max())}), one per shown arm"
            raise InvalidArgument("delay", allowed, f"shape {table.shape}", "Pass one delay per round and slot.")
        return validate.indices("delay", table.ravel(), None).reshape(table.shape)
    if np.ndim(delay) == 0:
        longest = int(np.iinfo(np.int32).max)
        return np.full(n_rounds, validate.integer("delay", delay, low=0, high=longest), dtype=np.int32)
    return validate.indices("delay", delay, None, n_entries=n_rounds)


@contextmanager
def _bar(name: str, total: int, progress: bool | Callable[[int], None]) -> Iterator[Callable[[int], None]]:
    if callable(progress):
        yield progress
        return
    if not progress:
        yield lambda _: None
        return
    from alphafair.progress import progress_bar

    with progress_bar() as bar:
        task = bar.add_task(name, total=total)
        yield lambda rounds: bar.advance(task, rounds)


@dataclass
class Played:
    """The record of a run: see `Trace`."""

    earned: Vector
    of_contexts: Vector
    pulls: NDArray[np.int64]
    records: Matrix
    every: int
    arms: Indices  # empty unless decisions are stored
    propensities: Vector
    closed: Vector  # `earned` at the start of the period
    periods: list[Period] = field(default_factory=list)
    first_rows: NDArray[np.int64] | None = None  # of every slate in `arms`, and the one after the last
    exposures: Vector | None = None  # of the slots

    @classmethod
    def blank(
        cls,
        n_rounds: int,
        n_arms: int,
        n_contexts: int,
        every: int,
        *,
        keep: bool = False,
        shown: Indices | None = None,
        exposures: Vector | None = None,
    ) -> Played:
        first_rows = None if shown is None else np.append(0, np.cumsum(shown, dtype=np.int64))
        n_rows = n_rounds if first_rows is None else int(first_rows[-1])
        n_kept = n_rows if keep else 0
        return cls(
            np.ones(n_arms),
            np.zeros(n_contexts),
            np.zeros(n_arms, dtype=np.int64),
            np.empty((-(-n_rounds // every), n_arms)),
            every,
            np.full(n_kept, -1, dtype=np.int32),
            np.empty(n_kept),
            np.ones(n_arms),
            first_rows=first_rows,
            exposures=exposures,
        )

    def book(self, start: int, stop: int) -> Book:
        """Return the `Book` for rounds [start, stop)."""
        done = start // self.every
        first = (done + 1) * self.every - 1 - start
        rows = slice(start, stop) if self.first_rows is None else slice(*self.first_rows[[start, stop]].tolist())
        arms, propensities = self.arms[rows], self.propensities[rows]
        return Book(
            self.earned, self.of_contexts, self.pulls, arms, propensities, first, self.every, self.records[done:]
        )

    def close_period(self, policy: Policy, last: int) -> None:
        """Add the period that ends before round `last`."""
        first = self.periods[-1].last if self.periods else 0
        rewards, self.closed = self.earned - self.closed, self.earned.copy()
        self.periods.append(Period(first, last, rewards, policy.entry_accounts, policy.accounts))


def over_stream(
    policy: Policy,
    stream: Stream,
    generator: np.random.Generator,
    *,
    every: int,
    delays: Indices | None = None,
    account: Account = "least",
    groups: ArmGroups | None = None,
    period: int | None = None,
    carry: float = 0.5,
    keep: bool = False,
    shown: Indices | None = None,
    exposures: Vector | None = None,
    compiled: bool = True,
    available: AvailableArms | None = None,
    advance: Callable[[int], None] = lambda rounds: None,
) -> Played:
    """Play all rounds; rewards are recorded when they are earned, and learned from when they arrive.

    With `available` or `exposures`, rounds are played step by step.
    """
    played = Played.blank(
        stream.n_rounds, stream.n_arms, stream.n_contexts, every, keep=keep, shown=shown, exposures=exposures
    )
    boundaries = () if period is None else range(period, stream.n_rounds, period)
    arms_change = bool(stream.epochs) or bool(boundaries)  # `grow`, `retire` or `new_period` may raise
    with _all_or_nothing(policy) if arms_change else nullcontext():
        _play(
            policy,
            stream,
            generator,
            played,
            delays,
            (account, groups),
            (boundaries, carry),
            shown,
            compiled,
            available,
            advance,
        )
    if period is not None:
        played.close_period(policy, stream.n_rounds)
    played.records[-1] = played.earned
    return played


@contextmanager
def _all_or_nothing(policy: Policy) -> Iterator[None]:
    """Restore the policy if a ValueError is raised."""
    before = copy.copy(policy) if isinstance(policy, BasePolicy) else policy.snapshot()
    try:
        yield
    except ValueError:
        if isinstance(policy, BasePolicy):
            archive.take_over(policy, cast(BasePolicy, before))
        else:
            policy.restore(cast(State, before))
        raise


def _play(
    policy: Policy,
    stream: Stream,
    generator: np.random.Generator,
    played: Played,
    delays: Indices | None,
    entry: tuple[Account, ArmGroups | None],
    periods: tuple[Collection[int], float],
    shown: Indices | None,
    compiled: bool,
    available: AvailableArms | None,
    advance: Callable[[int], None],
) -> None:
    """Epoch by epoch, block by block."""
    n_rounds = stream.n_rounds
    whole = compiled and has_whole_runs(policy) and (delays is None or not stream.epochs) and available is None
    whole = whole and (shown is None or delays is None) and played.exposures is None
    waits = None if delays is None or not whole else _waits(delays, policy)
    waiting: list[_Waiting] = []
    boundaries, carry = periods
    for first, last in pairwise(sorted({0, *stream.epochs, *boundaries, n_rounds})):
        if first in stream.epochs:
            _change_arms(policy, stream, first, *entry)
        if first in boundaries:
            _learn_due(policy, waiting, first)
            played.close_period(policy, first)
            policy.new_period(carry)
        live = cast(BasePolicy, policy).live_arms if whole else np.arange(stream.n_arms)
        table = stream.reward_table
        if len(live) < stream.n_arms:
            table = frozen(np.ascontiguousarray(table[:, live]))
        start = first
        while start < last:
            size = STEPS
            if whole:
                stepper = cast(BasePolicy, policy).stepper
                size = stepper.rounds_per_call(n_rounds - start, slates=shown is not None)
            stop = min(start + size, last)
            uniforms = generator.random(stop - start)
            if whole:
                _run(cast(BasePolicy, policy), stream, live, table, start, stop, uniforms, played, waits, shown)
            elif shown is not None:
                _step_slates(policy, stream, start, stop, uniforms, played, shown, delays, waiting)
            else:
                _step(policy, stream, start, stop, uniforms, played, delays, waiting, available)
            advance(stop - start)
            start = stop
    for _, _, decision, reward in sorted(waiting, key=lambda entry: entry[:2]):
        policy.update(decision, reward)


def against(
    policy: Policy,
    adversary: Adversary,
    generator: np.random.Generator,
    *,
    every: int,
    shown: Indices | None = None,
    compiled: bool = True,
) -> tuple[Played, Stream]:
    """Play all rounds of an adversary; what was written down, and the stream that the adversary made of them."""
    given = adversary.stream
    n_rounds, n_arms = given.n_rounds, given.n_arms
    played = Played.blank(n_rounds, n_arms, given.n_contexts, every)
    items, table = np.arange(n_rounds, dtype=np.int32), np.empty((n_rounds, n_arms))
    kind, state = ADVERSARIES.index(adversary.kind), first_state(given.reward_table)
    uniforms = generator.random(n_rounds)
    if compiled and has_whole_runs(policy):
        ours = cast(BasePolicy, policy)
        live, described, start = ours.live_arms, feature_table(given.features, ours.live_arms), 0
        while start < n_rounds:
            stop = start + ours.stepper.rounds_per_call(n_rounds - start, slates=shown is not None)
            features = described[start:stop] if len(described) else described
            rounds = Rounds(given.contexts[start:stop], items[start:stop], table, uniforms[start:stop], features)
            book = played.book(start, stop)
            if shown is None:
                ours.stepper.run(live, "face", stop - start, rounds, book, kind, state, in_order=True)
            else:
                slates = shown[start:stop], _first_rows(shown[start:stop])
                ours.stepper.run_slates(live, "face", stop - start, rounds, *slates, book, kind, state)
            start = stop
    else:
        replay = _Replay(uniforms)
        for t, context in enumerate(given.contexts.tolist()):
            if shown is None:
                decision = _choose(policy, given, t, replay)
                react(kind, state, context, np.array(decision.probabilities), table, t)
                policy.update(decision, _book(policy, played, t, decision, table[t]))
            else:
                slate = _choose_slate(policy, given, t, int(shown[t]), replay)
                react(kind, state, context, np.array(slate.probabilities), table, t)
                cast(BasePolicy, policy).update(slate, _book_slate(policy, played, t, slate, table[t]))
    played.records[-1] = played.earned
    return played, Stream(given.contexts, items, table, n_contexts=given.n_contexts)


def _choose(
    policy: Policy, stream: Stream, t: int, replay: _Replay, available: AvailableArms | None = None
) -> Decision:
    """The policy's decision in round t, which it is shown the features of if it asks for them."""
    masked = _masked(available, t)
    return policy.choose(int(stream.contexts[t]), rng=replay, **_features_of(policy, stream, t), **masked)


def _features_of(policy: Policy, stream: Stream, t: int) -> dict[str, Any]:
    """The features of a round, as an argument of `choose`."""
    if policy.n_features == 0:
        return {}
    features = cast(Matrix, stream.features)[t]
    return {"features": features[: policy.n_arms] if features.ndim == 2 else features}


def _choose_slate(
    policy: Policy, stream: Stream, t: int, k: int, replay: _Replay, exposures: Vector | None = None
) -> SlateDecision:
    """The policy's slate of k arms in round t."""
    described: dict[str, Any] = _features_of(policy, stream, t)
    if exposures is not None:
        described["exposures"] = exposures[:k]
    return cast(BasePolicy, policy).choose(int(stream.contexts[t]), k=k, rng=replay, **described)


def _book_slate(policy: Policy, played: Played, t: int, decision: SlateDecision, rewards: Vector) -> Any:
    """Write down what the slate of round t has earned; what the policy is shown of its rewards."""
    arms = list(decision.arms)
    played.pulls[arms] += 1
    if policy.feedback is Feedback.FULL:
        seen: Any = rewards
        gained = decision.probabilities * rewards
        played.earned[: policy.n_arms] += gained
        played.of_contexts[decision.context] += sum(gained.tolist())  # in the order of compiled runs
    else:
        paid = rewards[arms]
        if decision.exposures is not None:
            paid = paid * decision.exposures
        seen = paid.tolist()
        played.earned[arms] += paid
        for each in seen:
            played.of_contexts[decision.context] += each
    if len(played.arms) and played.first_rows is not None:
        rows = played.first_rows[t] + np.arange(len(arms))
        played.arms[rows], played.propensities[rows] = arms, decision.propensities
    if (t + 1) % played.every == 0:
        played.records[t // played.every] = played.earned
    return seen


def _step_slates(
    policy: Policy,
    stream: Stream,
    start: int,
    stop: int,
    uniforms: Vector,
    played: Played,
    shown: Indices,
    delays: NDArray[np.int32] | None,
    waiting: list[_Waiting],
) -> None:
    """Play slates with the public methods of the policy; rewards that arrive together are learned together."""
    replay, ours = _Replay(uniforms), cast(BasePolicy, policy)
    for t in range(start, stop):
        _learn_due(policy, waiting, t)
        decision = _choose_slate(policy, stream, t, int(shown[t]), replay, played.exposures)
        rewards = _book_slate(policy, played, t, decision, stream.rewards(t)[: policy.n_arms])
        if delays is None:
            ours.update(decision, rewards)
            continue
        ours.expect(decision)
        waits = delays[t] if delays.ndim == 2 else np.full(len(decision.arms), delays[t])
        if policy.feedback is Feedback.FULL:
            later = {int(waits[: len(decision.arms)].max()): rewards}
        else:
            later = dict[int, Any]()
            for arm, reward, wait in zip(decision.arms, rewards, waits.tolist(), strict=False):
                later.setdefault(wait, {})[arm] = reward
        for wait, some in later.items():
            if wait == 0:
                ours.update(decision, some)
            else:
                heapq.heappush(waiting, (t + wait, t, cast(Any, decision), some))


def _first_rows(shown: Indices) -> NDArray[np.int64]:
    """Return the row at which the arms of every slate begin."""
    return np.cumsum(shown, dtype=np.int64) - shown


def _book(policy: Policy, played: Played, t: int, decision: Decision, rewards: Vector) -> Any:
    """Write down what round t has earned; what the policy is shown of its rewards."""
    played.pulls[decision.arm] += 1
    if policy.feedback is Feedback.FULL:
        shown: Any = rewards
        gained = np.asarray(decision.probabilities) * rewards
        played.earned[: policy.n_arms] += gained
        played.of_contexts[decision.context] += sum(gained.tolist())  # in the order of compiled runs
    else:
        shown = float(rewards[decision.arm])
        played.earned[decision.arm] += shown
        played.of_contexts[decision.context] += shown
    if len(played.arms):
        played.arms[t], played.propensities[t] = decision.arm, decision.propensity
    if (t + 1) % played.every == 0:
        played.records[t // played.every] = played.earned
    return shown


def has_whole_runs(policy: Policy) -> bool:
    """Whether a policy can play whole runs in one call."""
    return isinstance(policy, BasePolicy) and policy.stepper.whole_runs


def _change_arms(policy: Policy, stream: Stream, t: int, account: Account, groups: ArmGroups | None) -> None:
    """Before round t: retire departing arms, the last live one after the new arms, and add arriving arms."""
    before, now = stream.present(t - 1), stream.present(t)
    leaving, arrived = np.flatnonzero(before & ~now).tolist(), np.flatnonzero(now & ~before)
    last = leaving[-1:] if not (before & now).any() else []
    for arm in leaving[: len(leaving) - len(last)]:
        policy.retire(arm)
    if len(arrived):
        policy.grow(n_arms=int(arrived[-1]) + 1, account=account, **_groups_of(policy, groups, arrived))
    for arm in last:
        policy.retire(arm)


def _groups_of(policy: Policy, groups: ArmGroups | None, arrived: NDArray[np.int64]) -> dict[str, Any]:
    """What `grow` is to know of the groups of arms that arrive, and of what new ones are entitled to."""
    if groups is None:
        return {}
    numbers, known = groups.of_arms[arrived].tolist(), policy.groups.labels if policy.groups is not None else ()
    labels = [groups.labels[g] for g in numbers]
    new = {groups.labels[g]: float(groups.entitlements[g]) for g in numbers if groups.labels[g] not in known}
    return {"groups": Groups(labels, new if groups.entitled and new else None)}


def _run(
    policy: BasePolicy,
    stream: Stream,
    live: NDArray[np.int64],
    table: Matrix,
    start: int,
    stop: int,
    uniforms: Vector,
    played: Played,
    waits: Delays | None,
    shown: Indices | None = None,
) -> None:
    """Rounds [start, stop) in one compiled call; the run sees live arms only."""
    book = played.book(start, stop)
    if len(live) < stream.n_arms:
        rows = stop // played.every - start // played.every
        book = book._replace(
            earned=played.earned[live], pulls=played.pulls[live], records=np.empty((rows + 1, len(live)))
        )
    features = stream.features if policy.n_features else None
    if shown is not None:
        described = feature_table(None if features is None else features[start:stop], live)
        rounds = Rounds(stream.contexts[start:stop], stream.items[start:stop], table, uniforms, described)
        slates = shown[start:stop], _first_rows(shown[start:stop])
        policy.stepper.run_slates(live, "play", stop - start, rounds, *slates, book, *NO_ADVERSARY)
    elif waits is None:
        described = feature_table(None if features is None else features[start:stop], live)
        rounds = Rounds(stream.contexts[start:stop], stream.items[start:stop], table, uniforms, described)
        policy.stepper.run(live, "play", stop - start, rounds, book, *NO_ADVERSARY, in_order=True)
    else:
        rounds = Rounds(stream.contexts, stream.items, table, uniforms, feature_table(features, live))
        policy.stepper.run(live, "late", stop - start, rounds, book, waits, start, stop)
    if len(live) < stream.n_arms:
        played.earned[live], played.pulls[live] = book.earned, book.pulls
        done = start // played.every
        played.records[done : done + rows] = played.earned
        played.records[done : done + rows, live] = book.records[:rows]
        kept = book.arms >= 0
        book.arms[kept] = live[book.arms[kept]]


def _waits(delays: Indices, policy: Policy) -> Delays:
    """Return when rewards arrive, with slots for the largest number of waiting decisions."""
    n_rounds = len(delays)
    rounds = np.arange(n_rounds)
    due = rounds + delays
    order = np.argsort(due, kind="stable")
    left = np.bincount(np.clip(due, rounds + 1, n_rounds), minlength=n_rounds + 1)
    n_slots = int((rounds + 1 - np.cumsum(left)[:-1]).max())
    width = policy.n_arms if policy.feedback is Feedback.FULL else 2  # the distribution, or arm and propensity
    return Delays(
        due,
        order,
        np.zeros(n_rounds, dtype=np.int32),
        np.arange(n_slots, dtype=np.int32),
        np.array([n_slots, 0]),
        np.empty((n_slots, width)),
    )


_Waiting = tuple[int, int, Decision, Any]  # due, round, decision, reward: entries of a heap


def _learn_due(policy: Policy, waiting: list[_Waiting], t: int) -> None:
    """Learn from the rewards that arrive before round t."""
    while waiting and waiting[0][0] <= t:
        _, _, decision, reward = heapq.heappop(waiting)
        policy.update(decision, reward)


def _step(
    policy: Policy,
    stream: Stream,
    start: int,
    stop: int,
    uniforms: Vector,
    played: Played,
    delays: Indices | None,
    waiting: list[_Waiting],
    available: AvailableArms | None,
) -> None:
    """Play the same rounds with the public methods of the policy."""
    replay = _Replay(uniforms)
    for t in range(start, stop):
        _learn_due(policy, waiting, t)
        decision = _choose(policy, stream, t, replay, available)
        reward = _book(policy, played, t, decision, stream.rewards(t)[: policy.n_arms])
        if delays is not None:
            policy.expect(decision)
        if delays is None or delays[t] == 0:
            policy.update(decision, reward)
        else:
            heapq.heappush(waiting, (t + int(delays[t]), t, decision, reward))


class _Replay:
    """A source of uniform numbers from an array."""

    def __init__(self, uniforms: Vector) -> None:
        self.random = iter(uniforms.tolist()).__next__


def over_log(policy: Policy, log: Log) -> None:
    """Learn from every decision of a log and its reward, in the order of the log: all of it, or nothing.

    For policies with bandit feedback. Compiled, if the policy has kernels.

    >>> from alphafair import AlphaFairBandit, simulate, streams
    >>> stream = streams.ratings(n_rounds=2000, n_contexts=3, n_arms=4, seed=0)
    >>> live, replayed = AlphaFairBandit(3, 4), AlphaFairBandit(3, 4)
    >>> trace = simulate(live, stream, log=True)
    >>> over_log(replayed, trace.log)
    >>> bool((replayed.cumulative_rewards == live.cumulative_rewards).all())
    True
    """
    rewards = _check_log(policy, log)
    refuse_unknown_propensities(log)
    features = matching_features(policy, "log", log.features, log.n_arms)
    if log.has_slates:
        _learn_slates(cast(BasePolicy, policy), log, rewards, features)
    elif not has_whole_runs(policy):
        columns = (log.contexts.tolist(), log.arms.tolist(), log.propensities.tolist(), rewards.tolist())
        with _all_or_nothing(policy):
            for t, (context, arm, propensity, reward) in enumerate(zip(*columns, strict=True)):
                shown = None if features is None else features[t]
                policy.update(DescribedDecision(context, arm, propensity, cast(Vector, None), shown), reward)
    else:
        steps = LogSteps.learning(log.contexts, log.arms, log.propensities, rewards, features)
        archive.follow(cast(BasePolicy, policy), steps, all_or_nothing=True)


def _learn_slates(policy: BasePolicy, log: Log, rewards: Vector, features: NDArray[np.float64] | None) -> None:
    """Learn from a log by decision; the propensity of an entry is that of its slot."""
    if not policy.traits.slates:
        allowed = "one that shows several arms, as the decisions of this log do"
        repair = "Use AlphaFairAdaptive, AlphaFairBandit or Uniform."
        raise InvalidArgument("policy", allowed, policy, repair)
    inclusion = np.minimum(1.0, log.propensities * log.n_shown)
    firsts = first_entries(cast(NDArray[np.int64], log.decisions)).tolist()
    if archive.folds_slates(policy) and features is None and log.exposures is None:
        starts = np.array([*firsts, log.n_rounds])
        shown, n = np.diff(starts), len(firsts)
        steps, no_mask = np.full(n, LEARN, dtype=np.int8), np.full(n, -1, dtype=np.int32)
        columns = (log.contexts[firsts], shown, shown, np.ones(n, dtype=np.bool_), starts, log.arms.astype(np.int64))
        no_masks = np.empty((0, 0), dtype=np.bool_)
        with _all_or_nothing(policy):
            archive.follow_slates(
                policy, SlateSteps(steps, *columns, inclusion, rewards, no_mask, no_masks, np.zeros(n))
            )
        return
    with _all_or_nothing(policy):
        for first, last in pairwise([*firsts, log.n_rounds]):
            arms, shown = log.arms[first:last].tolist(), inclusion[first:last].tolist()
            described = None if features is None else features[first]
            looked_at = None if log.exposures is None else tuple(log.exposures[first:last].tolist())
            slate = DescribedSlate(
                int(log.contexts[first]), tuple(arms), tuple(shown), cast(Vector, None), described, looked_at
            )
            policy.update(slate, rewards[first:last])


def over_matches(policy: Policy, log: Log, generator: np.random.Generator) -> tuple[int, Played]:
    """Draw an arm in every round of a log, and learn from the rounds in which it is the logged arm.

    Returns the number of these rounds and the rewards in them. Arms that were not available are masked. For policies
    with bandit feedback, and logs whose available arms were shown with equal probability: see
    `alphafair.evaluation.replay`.
    """
    _check_log(policy, log)
    refuse_slates(log)
    refuse_unknown_propensities(log)
    features = matching_features(policy, "log", log.features, log.n_arms)
    played = Played.blank(log.n_rounds, log.n_arms, log.n_contexts, log.n_rounds)
    uniforms = generator.random(log.n_rounds)
    if has_whole_runs(policy) and features is None:
        ours = cast(BasePolicy, policy)
        sets, of_sets = log.available or AvailableArms.every(log.n_rounds, log.n_arms)
        columns = log.contexts, log.arms, log.rewards, uniforms
        book, live, matched, start = played.book(0, log.n_rounds), ours.live_arms, 0, 0
        while start < log.n_rounds:
            stop = start + ours.stepper.rounds_per_call(log.n_rounds - start)
            some = (*(column[start:stop] for column in columns), sets, of_sets[start:stop])
            matched += int(ours.stepper.run(live, "match", stop - start, *some, book, in_order=True))
            start = stop
    else:
        matched, replay = 0, _Replay(uniforms)
        rounds = zip(log.contexts.tolist(), log.arms.tolist(), log.rewards.tolist(), strict=True)
        for t, (context, arm, reward) in enumerate(rounds):
            shown = {} if features is None else {"features": features[t]}
            decision = policy.choose(context, rng=replay, **shown, **_masked(log.available, t))
            if decision.arm == arm:
                played.earned[arm] += reward
                played.of_contexts[context] += reward
                played.pulls[arm] += 1
                policy.update(decision, reward)
                matched += 1
    played.records[-1] = played.earned
    return matched, played


def _masked(available: AvailableArms | None, t: int) -> dict[str, Any]:
    """Return the argument `available` of round t, or nothing if all arms are available."""
    mask = None if available is None else available.of_round(t)
    return {} if mask is None else {"available": mask}


def over_full_log(
    policy: Policy,
    contexts: ArrayLike,
    probabilities: ArrayLike,
    rewards: ArrayLike,
    features: ArrayLike | None = None,
) -> None:
    """Learn from a log under full information: the distribution used and the rewards of all arms, a row per round."""
    if policy.feedback is not Feedback.FULL:
        raise InvalidArgument("policy", "a policy with full information", policy, "Use over_log for bandit feedback.")
    seen = validate.indices("contexts", contexts, None)
    used = validate.reward_table("probabilities", probabilities)
    table = validate.reward_table("rewards", rewards)
    for name, array in (("probabilities", used), ("rewards", table)):
        if array.shape != (len(seen), policy.n_arms):
            allowed = f"of shape {(len(seen), policy.n_arms)}"
            raise InvalidArgument(name, allowed, f"shape {array.shape}", "Pass a row per round and a column per arm.")
    fits(policy, "contexts", int(seen.max()) + 1, policy.n_arms)
    rows = None if features is None else validate.feature_rows(features, len(seen), policy.n_arms)
    rows = matching_features(policy, "features", rows, policy.n_arms)
    low, high = policy.traits.reward_range
    if table.min() < low or table.max() > high:
        repair = "Map the rewards with alphafair.rescale_rewards."
        raise InvalidArgument("rewards", f"in [{low:g}, {high:g}]", [table.min(), table.max()], repair)
    if used.min() < 0.0 or np.abs(used.sum(axis=1) - 1.0).max() > 1e-6:
        bad = int(np.argmax(np.abs(used.sum(axis=1) - 1.0)))
        raise InvalidArgument(
            f"probabilities[{bad}]", "a distribution", used[bad], "Pass the distributions of the decisions."
        )
    if not has_whole_runs(policy):
        with _all_or_nothing(policy):
            for t, (context, row, reward) in enumerate(zip(seen.tolist(), used, table, strict=True)):
                arm = int(row.argmax())
                shown = None if rows is None else rows[t]
                policy.update(DescribedDecision(context, arm, float(row[arm]), row, shown), reward)
    else:
        cast(BasePolicy, policy).stepper.fold_full(seen, used, table, rows)


def _check_log(policy: Policy, log: Log) -> Vector:
    """Check that a policy can learn from a log, and return its rewards."""
    if not isinstance(log, Log):
        raise InvalidArgument("log", "a Log", log, "Construct an alphafair.Log.")
    if policy.feedback is not Feedback.BANDIT:
        repair = "A log has the reward of one arm per round; use over_full_log for the rewards of all arms."
        raise InvalidArgument("policy", "a policy with bandit feedback", policy, repair)
    fits(policy, "log", log.n_contexts, log.n_arms)
    return validate.learnable(log.rewards, policy.traits.reward_range)


def accepted(maker: Callable[..., Any], offered: Mapping[str, Any]) -> dict[str, Any]:
    """Return the offered settings that a callable has parameters for."""
    parameters = inspect.signature(maker).parameters
    return {name: value for name, value in offered.items() if name in parameters}


def known_settings(kind: type[Policy], stream: Stream, alpha: float) -> dict[str, Any]:
    """Return alpha, the horizon and the frequencies of contexts, as far as the policy takes them.

    A policy that requires rates of reward gets half of what uniform play earns every arm.
    """
    visits = np.bincount(stream.contexts, minlength=stream.n_contexts)
    frequencies = (visits / stream.n_rounds).tolist()
    offered = {"alpha": alpha, "horizon": stream.n_rounds}
    if "context_weight" not in inspect.signature(kind).parameters:  # else they are of an objective not asked for
        offered["context_weights"] = frequencies
    if requires(kind, "rates"):
        shares = np.bincount(stream.items, minlength=len(stream.reward_table)) / stream.n_rounds
        offered["rates"] = (0.5 * (shares @ stream.reward_table) / stream.n_arms).tolist()
    return accepted(kind, offered)


def requires(kind: type[Policy], setting: str) -> bool:
    """Whether the constructor has no default for a setting."""
    parameters = inspect.signature(kind).parameters
    return setting in parameters and parameters[setting].default is inspect.Parameter.empty
