"""Policy x stream x seed -> Trace: the only loop over a stream, stepwise or compiled from the same two kernels.

Rewards are written down when they are earned, and learned from when they arrive.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from alphafair import validate
from alphafair.drive import has_whole_runs
from alphafair.kernels.loops import Book, Delays, Rounds
from alphafair.policies.base import BasePolicy
from alphafair.types import Account, Decision, Feedback, Indices, Log, Matrix, Policy, Stream, Trace, Vector, frozen

BLOCK = 1 << 16  # rounds per compiled call: random numbers stay small in memory, the progress bar moves
STEPS = 1024  # the same where rounds are played one by one


@dataclass
class _Played:
    """What is written down of a run: see `Trace`."""

    earned: Vector
    pulls: NDArray[np.int64]
    records: Matrix
    every: int
    arms: Indices  # empty unless decisions are kept
    propensities: Vector

    def book(self, start: int, stop: int) -> Book:
        """The pages for rounds [start, stop)."""
        done = start // self.every
        first = (done + 1) * self.every - 1 - start
        arms, propensities = self.arms[start:stop], self.propensities[start:stop]
        return Book(self.earned, self.pulls, arms, propensities, first, self.every, self.records[done:])


def simulate(
    policy: Policy,
    stream: Stream,
    *,
    seed: int | None = 0,
    record_every: int | None = None,
    delay: int | ArrayLike | None = None,
    account: Account = "least",
    log: bool = False,
    progress: bool | Callable[[int], None] = False,
    compiled: bool = True,
) -> Trace:
    """Let a policy play a stream from the first round to the last; the policy keeps what it has learned.

    Parameters
    ----------
    policy
        Any `Policy`, fresh or not, with the stream's first arms; those that arrive later it is told about then. One
        that offers kernels runs compiled, with the same results to the last bit.
    seed
        Of the one uniform number per round; the same seed gives every policy the same numbers.
    record_every
        Keep the cumulative rewards after every so many rounds, and after the last; None keeps the last only.
    delay
        Rounds that a reward waits before `update` is called: one number, or one per round. Rewards are booked in the
        trace when they are earned; those still on their way after the last round arrive then.
    account
        With what account new arms enter: see `BasePolicy.grow`.
    log
        Keep every decision with the reward of its arm, as `trace.log`.
    progress
        Show a bar; or a function to be told, every so often, how many more rounds have been played.
    compiled
        False calls `choose` and `update` once per round, whatever the policy offers.

    >>> from alphafair import AlphaFair, simulate, streams
    >>> stream = streams.stochastic(n_rounds=2000, n_contexts=3, n_arms=4, seed=0)
    >>> trace = simulate(AlphaFair(3, 4, alpha=0.5), stream, record_every=500)
    >>> trace.rounds.tolist(), trace.cumulative_rewards.shape
    ([500, 1000, 1500, 2000], (4, 4))
    """
    validate.stream("stream", stream)
    every = stream.n_rounds if record_every is None else validate.integer("record_every", record_every, low=1)
    _match(policy, stream)
    delays = _delays(delay, stream.n_rounds)
    validate.account(account)
    generator = validate.random_generator("seed", seed)
    n_rounds, n_arms, n_kept = stream.n_rounds, stream.n_arms, stream.n_rounds if log else 0
    played = _Played(
        np.ones(n_arms),
        np.zeros(n_arms, dtype=np.int64),
        np.empty((-(-n_rounds // every), n_arms)),
        every,
        np.empty(n_kept, dtype=np.int32),
        np.empty(n_kept),
    )
    whole = compiled and has_whole_runs(policy) and (delays is None or not stream.epochs)
    waits = None if delays is None or not whole else _waits(delays, policy)
    waiting: list[_Waiting] = []
    with _bar(policy.name, n_rounds, progress) as advance:
        for first, last in pairwise([0, *stream.epochs, n_rounds]):
            if first > 0:
                _change_arms(policy, stream, first, account)
            table = _table(cast(BasePolicy, policy), stream) if whole else stream.reward_table
            for start in range(first, last, BLOCK if whole else STEPS):
                stop = min(start + (BLOCK if whole else STEPS), last)
                uniforms = generator.random(stop - start)
                if whole:
                    _run(cast(BasePolicy, policy), stream, table, start, stop, uniforms, played, waits)
                else:
                    _step(policy, stream, start, stop, uniforms, played, delays, waiting)
                advance(stop - start)
    for _, _, decision, reward in sorted(waiting, key=lambda entry: entry[:2]):
        policy.update(decision, reward)
    played.records[-1] = played.earned
    rounds = np.minimum(np.arange(1, len(played.records) + 1) * every, n_rounds)
    kept = None
    if log:
        kept = Log(
            stream.contexts,
            played.arms,
            stream.reward_table[stream.items, played.arms],
            played.propensities,
            n_contexts=stream.n_contexts,
            n_arms=n_arms,
            context_labels=stream.context_labels,
            arm_labels=stream.arm_labels,
        )
    return Trace(policy.name, policy.feedback, seed, rounds, played.records, played.pulls, kept)


def _match(policy: Policy, stream: Stream) -> None:
    """The stream's arms, contexts and rewards must be what the policy was made for."""
    if not isinstance(policy, Policy):
        repair = "Derive it from alphafair.Policy, or let `alphafair check` tell what it lacks."
        raise validate.Refusal("policy", "a Policy", policy, repair)
    if policy.n_arms != stream.n_first_arms:
        repair = "Make the policy with stream.n_first_arms."
        raise validate.Refusal("stream", f"one of {policy.n_arms} arms", stream.n_first_arms, repair)
    if policy.n_contexts < stream.n_contexts:
        allowed, repair = (
            f"one of at most {policy.n_contexts} contexts",
            f"Call policy.grow({stream.n_contexts}) first.",
        )
        raise validate.Refusal("stream", allowed, stream.n_contexts, repair)
    low, high = policy.reward_range
    least, most = float(stream.reward_table.min()), float(stream.reward_table.max())
    if least < low or most > high:
        allowed, repair = f"in [{low:g}, {high:g}] for {policy.name}", "Map the rewards with alphafair.rescale_rewards."
        raise validate.Refusal("stream.reward_table", allowed, [least, most], repair)


def _delays(delay: int | ArrayLike | None, n_rounds: int) -> Indices | None:
    if delay is None:
        return None
    if np.ndim(delay) == 0:
        return np.full(n_rounds, validate.integer("delay", delay, low=0), dtype=np.int32)
    return validate.indices("delay", delay, None, n_entries=n_rounds)


@contextmanager
def _bar(name: str, total: int, progress: bool | Callable[[int], None]) -> Iterator[Callable[[int], None]]:
    if not isinstance(progress, bool):
        yield progress
        return
    if not progress:
        yield lambda _: None
        return
    from alphafair.progress import progress_bar

    with progress_bar() as bar:
        task = bar.add_task(name, total=total)
        yield lambda rounds: bar.advance(task, rounds)


def _change_arms(policy: Policy, stream: Stream, t: int, account: Account) -> None:
    """Before round t: those that leave, leave; those that arrive, arrive."""
    before, now = stream.present(t - 1), stream.present(t)
    arrived = np.flatnonzero(now & ~before)
    if len(arrived):
        policy.grow(n_arms=int(arrived[-1]) + 1, account=account)
    for arm in np.flatnonzero(before & ~now):
        policy.retire(int(arm))


def _table(policy: BasePolicy, stream: Stream) -> Matrix:
    """The rewards of live arms, a column each."""
    if len(policy.live_arms) == stream.n_arms:
        return stream.reward_table
    return frozen(np.ascontiguousarray(stream.reward_table[:, policy.live_arms]))


def _run(
    policy: BasePolicy,
    stream: Stream,
    table: Matrix,
    start: int,
    stop: int,
    uniforms: Vector,
    played: _Played,
    waits: Delays | None,
) -> None:
    """Rounds [start, stop) in one compiled call; the run sees live arms only."""
    live = policy.live_arms
    book = played.book(start, stop)
    if len(live) < stream.n_arms:
        rows = stop // played.every - start // played.every
        book = book._replace(
            earned=played.earned[live], pulls=played.pulls[live], records=np.empty((rows + 1, len(live)))
        )
    if waits is None:
        rounds = Rounds(stream.contexts[start:stop], stream.items[start:stop], table, uniforms)
        policy.run("play", rounds, book, in_order=True)
    else:
        policy.run("late", Rounds(stream.contexts, stream.items, table, uniforms), book, waits, start, stop)
    if len(live) < stream.n_arms:
        played.earned[live], played.pulls[live] = book.earned, book.pulls
        done = start // played.every
        played.records[done : done + rows] = played.earned
        played.records[done : done + rows, live] = book.records[:rows]
        book.arms[:] = live[book.arms]


def _waits(delays: Indices, policy: Policy) -> Delays:
    """When rewards arrive, and room for as many decisions as ever wait at once."""
    n_rounds = len(delays)
    rounds = np.arange(n_rounds)
    due = rounds + delays
    late = rounds[due > rounds]
    order = late[np.argsort(due[late], kind="stable")]
    came = np.bincount(late, minlength=n_rounds + 1)
    left = np.bincount(np.minimum(due[late], n_rounds), minlength=n_rounds + 1)
    n_slots = int(np.cumsum(came - left).max(initial=0)) + 1
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


def _step(
    policy: Policy,
    stream: Stream,
    start: int,
    stop: int,
    uniforms: Vector,
    played: _Played,
    delays: Indices | None,
    waiting: list[_Waiting],
) -> None:
    """The same rounds through the policy's public methods."""
    replay = _Replay(uniforms)
    full = policy.feedback is Feedback.FULL
    for t in range(start, stop):
        while waiting and waiting[0][0] <= t:
            _, _, decision, reward = heapq.heappop(waiting)
            policy.update(decision, reward)
        decision = policy.choose(int(stream.contexts[t]), rng=replay)
        rewards = stream.rewards(t)[: policy.n_arms]
        played.pulls[decision.arm] += 1
        if full:
            played.earned[: policy.n_arms] += decision.probabilities * rewards
            reward = rewards
        else:
            reward = float(rewards[decision.arm])
            played.earned[decision.arm] += reward
        if delays is None or delays[t] == 0:
            policy.update(decision, reward)
        else:
            policy.expect(decision)
            heapq.heappush(waiting, (t + int(delays[t]), t, decision, reward))
        if len(played.arms):
            played.arms[t], played.propensities[t] = decision.arm, decision.propensity
        if (t + 1) % played.every == 0:
            played.records[t // played.every] = played.earned


class _Replay:
    """Uniform numbers from an array, one by one."""

    def __init__(self, uniforms: Vector) -> None:
        self.random = iter(uniforms.tolist()).__next__
