"""Policy x stream x seed -> Trace."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import ArrayLike

from alphafair import run, validate
from alphafair.algorithms.fitting import matching_features
from alphafair.available import AvailableArms
from alphafair.groups import ArmGroups, GroupsLike, arm_groups
from alphafair.played import Played
from alphafair.types import Account, Adversary, Indices, Log, Policy, Stream, Trace


def simulate(
    policy: Policy,
    stream: Stream,
    *,
    seed: int | None = 0,
    record_every: int | None = None,
    delay: int | ArrayLike | None = None,
    account: Account = "least",
    groups: GroupsLike | None = None,
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
        Keep the accounts after every so many rounds, and after the last; None keeps the last only.
    delay
        Rounds that a reward waits before `update` is called: one number, or one per round. Rewards are booked in the
        trace when they are earned; those still on their way after the last round arrive then.
    account
        With what account new arms enter: see `BasePolicy.grow`.
    groups
        Where arms arrive, and the policy is fair to groups: a label for each of the stream's arms, or a `Groups` with
        these and with entitlements of the groups that arrive.
    log
        Keep every decision with the reward of its arm, as `trace.log`.
    progress
        Show a bar; or a function to be told, every so often, how many more rounds have been played.
    compiled
        False calls `choose` and `update` once per round, whatever the policy offers.

    >>> from alphafair import AlphaFair, simulate, streams
    >>> stream = streams.ratings(n_rounds=2000, n_contexts=3, n_arms=4, seed=0)
    >>> trace = simulate(AlphaFair(3, 4, alpha=0.5), stream, record_every=500)
    >>> trace.rounds.tolist(), trace.accounts.shape
    ([500, 1000, 1500, 2000], (4, 4))
    """
    validate.stream("stream", stream)
    every = stream.n_rounds if record_every is None else validate.integer("record_every", record_every, low=1)
    _match(policy, stream)
    delays = _delays(delay, stream.n_rounds)
    validate.account(account)
    of_arrivals = None if groups is None else _matching_groups(groups, policy, stream.n_arms)
    generator = validate.random_generator("seed", seed)
    with _bar(policy.name, stream.n_rounds, progress) as advance:
        played = run.over_stream(
            policy,
            stream,
            generator,
            every=every,
            delays=delays,
            account=account,
            groups=of_arrivals,
            keep=log,
            compiled=compiled,
            advance=advance,
        )
    return _trace(policy, stream, seed, played, _log(stream, played) if log else None)


def simulate_against(
    policy: Policy,
    adversary: Adversary,
    *,
    seed: int | None = 0,
    record_every: int | None = None,
    compiled: bool = True,
) -> tuple[Trace, Stream]:
    """Let a policy play against an adversary; the run, and the stream that the adversary made for this policy.

    Every policy meets rewards of its own, so compare it with the optimum of its own stream, and what it earned too.
    Parameters are those of `simulate`.

    >>> from alphafair import AlphaFair, metrics, streams
    >>> adversary = streams.adversary("largest", n_rounds=2000, n_contexts=3, n_arms=4, seed=0)
    >>> trace, stream = simulate_against(AlphaFair(3, 4, alpha=0.5), adversary)
    >>> stream.n_rounds, bool((stream.reward_table == 0.05).any(axis=1).all())
    (2000, True)
    """
    every = adversary.stream.n_rounds if record_every is None else validate.integer("record_every", record_every, low=1)
    _match(policy, adversary.stream)
    generator = validate.random_generator("seed", seed)
    played, stream = run.against(policy, adversary, generator, every=every, compiled=compiled)
    return _trace(policy, stream, seed, played, None), stream


def _trace(policy: Policy, stream: Stream, seed: int | None, played: Played, log: Log | None) -> Trace:
    rounds = np.minimum(np.arange(1, len(played.records) + 1) * played.every, stream.n_rounds)
    return Trace(policy.name, policy.feedback, seed, rounds, played.records, played.pulls, log)


def _log(stream: Stream, played: Played) -> Log:
    return Log(
        stream.contexts,
        played.arms,
        stream.reward_table[stream.items, played.arms],
        played.propensities,
        n_contexts=stream.n_contexts,
        n_arms=stream.n_arms,
        context_labels=stream.context_labels,
        arm_labels=stream.arm_labels,
        features=stream.features,
        available=None if stream.arrivals is None else _present(stream),
    )


def _present(stream: Stream) -> AvailableArms:
    """Where arms come and go, decisions are drawn among those that are there."""
    starts = [0, *stream.epochs]
    epochs = np.searchsorted(starts, np.arange(stream.n_rounds), side="right") - 1
    return AvailableArms.of((np.array([stream.present(t) for t in starts]), epochs))


def _matching_groups(groups: GroupsLike, policy: Policy, n_arms: int) -> ArmGroups:
    """The groups of the stream's arms, which are those of the policy for the arms that it has."""
    given, own = arm_groups(groups, n_arms), policy.groups
    if own is None:
        repair = "Policies with groups= are AlphaFair, AlphaFairBandit and AlphaFairAdaptive."
        raise validate.Refusal("groups", f"left out: {policy.name} has none", groups, repair)
    known = [own.labels[g] for g in own.of_arms]
    if own.named and known != [given.labels[g] for g in given.of_arms[: len(known)]]:
        raise validate.Refusal(
            "groups", f"those of the policy, {validate.listed(known)}, and more", groups, "Use the same labels."
        )
    if given.floored or given.arm_floor > 0.0:
        raise validate.Refusal(
            "groups", "without pull_floor", groups, "Floors are those that the policy was made with."
        )
    if given.entitled and not np.array_equal(given.entitlements[: own.n_groups], own.entitlements):
        allowed = f"entitled as in the policy, {own.entitlements.tolist()}, and more"
        raise validate.Refusal("groups", allowed, groups, "Use the same entitlements.")
    return given


def _match(policy: Policy, stream: Stream) -> None:
    """The stream's arms, contexts and rewards must be what the policy was made for."""
    if Policy not in type(policy).__mro__ and not isinstance(policy, Policy):  # the latter asks for every attribute
        repair = "Derive it from alphafair.Policy, or let `alphafair check` tell what it lacks."
        raise validate.Refusal("policy", "a Policy", policy, repair)
    if policy.n_arms != stream.n_first_arms:
        raise validate.Refusal(
            "stream", f"one of {policy.n_arms} arms", stream.n_first_arms, "Make the policy with stream.n_first_arms."
        )
    if policy.n_contexts < stream.n_contexts:
        raise validate.Refusal(
            "stream",
            f"one of at most {policy.n_contexts} contexts",
            stream.n_contexts,
            f"Call policy.grow({stream.n_contexts}) first.",
        )
    matching_features(policy, "stream", stream.features, stream.n_arms)
    low, high = policy.traits.reward_range
    least, most = float(stream.reward_table.min()), float(stream.reward_table.max())
    if least < low or most > high:
        raise validate.Refusal(
            "stream.reward_table",
            f"in [{low:g}, {high:g}] for {policy.name}",
            [least, most],
            "Map the rewards with alphafair.rescale_rewards.",
        )


def _delays(delay: int | ArrayLike | None, n_rounds: int) -> Indices | None:
    if delay is None:
        return None
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
