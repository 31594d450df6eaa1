"""Policy x stream x seed -> Trace."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from alphafair import validate
from alphafair.types import Decision, Feedback, Policy, Stream, Trace, Vector

BLOCK = 1 << 16  # rounds a compiled call: random numbers stay small in memory, the progress bar moves


def simulate(
    policy: Policy,
    stream: Stream,
    *,
    seed: int | None = 0,
    record_every: int | None = None,
    delay: int | ArrayLike | None = None,
    progress: bool | Callable[[int], None] = False,
    compiled: bool = True,
) -> Trace:
    """Let a policy play a stream from the first round to the last; the policy keeps what it has learned.

    Parameters
    ----------
    policy
        Any `Policy`, fresh or not. One that offers `play` runs compiled, with the same results to the last bit.
    seed
        Of the one uniform number a round; the same seed gives every policy the same numbers.
    record_every
        Keep the cumulative rewards after every so many rounds, and after the last; None keeps the last only.
    delay
        Rounds that a reward waits before `update` is called: one number, or one a round. Rewards are booked in the
        trace when they are earned; those still on their way after the last round arrive then.
    progress
        Show a bar; or a function to be told, every so often, how many more rounds have been played.
    compiled
        False calls `choose` and `update` once a round, whatever the policy offers.

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
    generator = validate.random_generator("seed", seed)
    n_whole = stream.n_rounds // every
    records = np.empty((n_whole + (stream.n_rounds % every > 0), stream.n_arms))
    ledger: dict[str, Any] = {
        "earned": np.ones(stream.n_arms),
        "pulls": np.zeros(stream.n_arms, dtype=np.int64),
        "record_every": every,
    }
    whole_runs = compiled and delays is None and hasattr(policy, "play")
    waiting: list[tuple[int, int, Decision, Any]] = []  # due, round, decision, reward: a heap
    with _bar(policy.name, stream.n_rounds, progress) as advance:
        for start in range(0, stream.n_rounds, BLOCK if whole_runs else 1024):
            stop = min(start + (BLOCK if whole_runs else 1024), stream.n_rounds)
            uniforms = generator.random(stop - start)
            done = start // every
            rounds = {**ledger, "first_record": (done + 1) * every - 1 - start, "records": records[done:]}
            if whole_runs:
                policy.play(stream, start, stop, uniforms, **rounds)  # type: ignore[attr-defined]
            else:
                _step(policy, stream, start, stop, uniforms, delays, waiting, **rounds)
            advance(stop - start)
    for _, _, decision, reward in sorted(waiting, key=lambda entry: entry[:2]):
        policy.update(decision, reward)
    records[-1] = ledger["earned"]
    rounds_recorded = np.minimum(np.arange(1, len(records) + 1) * every, stream.n_rounds)
    return Trace(policy.name, policy.feedback, seed, rounds_recorded, records, ledger["pulls"])


def _step(
    policy: Policy,
    stream: Stream,
    start: int,
    stop: int,
    uniforms: Vector,
    delays: Any,
    waiting: list[tuple[int, int, Decision, Any]],
    *,
    earned: Vector,
    pulls: Any,
    first_record: int,
    record_every: int,
    records: Vector,
) -> None:
    """The same rounds through the policy's public methods."""
    replay = _Replay(uniforms)
    full = policy.feedback is Feedback.FULL
    for t in range(start, stop):
        while waiting and waiting[0][0] <= t:
            _, _, decision, reward = heapq.heappop(waiting)
            policy.update(decision, reward)
        decision = policy.choose(int(stream.contexts[t]), rng=replay)
        rewards = stream.rewards(t)
        pulls[decision.arm] += 1
        if full:
            earned += decision.probabilities * rewards
            reward = rewards
        else:
            reward = float(rewards[decision.arm])
            earned[decision.arm] += reward
        if delays is None or delays[t] == 0:
            policy.update(decision, reward)
        else:
            heapq.heappush(waiting, (t + int(delays[t]), t, decision, reward))
        past = t - start - first_record
        if past >= 0 and past % record_every == 0:
            records[past // record_every] = earned


class _Replay:
    """Uniform numbers from an array, one by one."""

    def __init__(self, uniforms: Vector) -> None:
        self.random = iter(uniforms.tolist()).__next__


def _match(policy: Policy, stream: Stream) -> None:
    """The stream's arms, contexts and rewards must be what the policy was made for."""
    if policy.n_arms != stream.n_arms:
        raise validate.Refusal(
            "stream", f"one of {policy.n_arms} arms", stream.n_arms, "Make the policy with stream.n_arms."
        )
    if policy.n_contexts < stream.n_contexts:
        raise validate.Refusal(
            "stream",
            f"one of at most {policy.n_contexts} contexts",
            stream.n_contexts,
            f"Call policy.grow({stream.n_contexts}) first.",
        )
    low, high = getattr(policy, "reward_range", validate.ANY_REWARD)
    least, most = float(stream.reward_table.min()), float(stream.reward_table.max())
    if least < low or most > high:
        raise validate.Refusal(
            "stream.reward_table",
            f"in [{low:g}, {high:g}] for {policy.name}",
            [least, most],
            "Map the rewards with alphafair.rescale_rewards.",
        )


def _delays(delay: int | ArrayLike | None, n_rounds: int) -> Any:
    if delay is None:
        return None
    if np.ndim(delay) == 0:
        return np.full(n_rounds, validate.integer("delay", delay, low=0))
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
