"""The plain Python loop: one decision and one update a round, each library in the way its own documents show."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from alphafair import AlphaFairBandit, Stream
from benchmarks import numpy_loops
from benchmarks.jobs import ALPHA, N_ARMS, N_CONTEXTS, common
from benchmarks.table import Row, faster, named
from benchmarks.timing import best, seconds

ARMS = list(range(N_ARMS))
EPSILON = 0.1
REPEATS = 5
Rounds = list[tuple[int, list[float]]]  # a context and the rewards of all arms


def rows() -> Iterator[Row]:
    """Each rival against our loop, turn by turn, with rounds enough for about half a second a turn."""
    stream = common(100_000)
    rewards = stream.reward_table[stream.items].tolist()
    rounds = list(zip(stream.contexts.tolist(), rewards, strict=True))
    contenders: list[tuple[str, Callable[[Rounds], float], int]] = [
        (f"{named('river')} EpsilonGreedy, blind to contexts", river_epsilon_greedy, 100_000),
        (f"{named('river')} Exp3, blind to contexts", river_exp3, 50_000),
        (f"{named('mabwiser')} EpsilonGreedy, blind to contexts", mabwiser_epsilon_greedy, 4_000),
        (f"{named('mabwiser')} LinGreedy, one-hot contexts", mabwiser_lin_greedy, 400),
        (f"{named('vowpalwabbit')} cb_explore", vowpal_wabbit, 20_000),
        (f"{named('vowpalwabbit')} cb_explore_adf", vowpal_wabbit_adf, 4_000),
        (
            f"{named('numpy')} loop of Hedge, blind to contexts",
            lambda some: numpy_hedge(stream.head(len(some))),
            50_000,
        ),
    ]
    for rival, play, n_rounds in contenders:
        some = rounds[:n_rounds]
        times = best({"ours": partial(ours, rounds), "theirs": partial(play, some)}, REPEATS)
        yield faster("choose + update, AlphaFairBandit", times["ours"], rival, times["theirs"] / n_rounds, 1)


def ours(rounds: Rounds) -> float:
    policy = AlphaFairBandit(N_CONTEXTS, N_ARMS, alpha=ALPHA, seed=0)
    policy.update(policy.choose(0), 1.0)  # compiles
    start = time.perf_counter()
    for context, rewards in rounds:
        decision = policy.choose(context)
        policy.update(decision, rewards[decision.arm])
    return (time.perf_counter() - start) / len(rounds)


def river_epsilon_greedy(rounds: Rounds) -> float:
    from river import bandit

    return _river(bandit.EpsilonGreedy(epsilon=EPSILON, seed=0), rounds)


def river_exp3(rounds: Rounds) -> float:
    from river import bandit

    return _river(bandit.Exp3(gamma=EPSILON, seed=0), rounds)


def _river(policy: object, rounds: Rounds) -> float:
    start = time.perf_counter()
    for _, rewards in rounds:
        arm = policy.pull(ARMS)  # type: ignore[attr-defined]
        policy.update(arm, rewards[arm])  # type: ignore[attr-defined]
    return time.perf_counter() - start


def mabwiser_epsilon_greedy(rounds: Rounds) -> float:
    from mabwiser.mab import MAB, LearningPolicy

    model = MAB(ARMS, LearningPolicy.EpsilonGreedy(EPSILON), seed=0)
    model.fit(ARMS, [0.5] * N_ARMS)
    start = time.perf_counter()
    for _, rewards in rounds:
        arm = model.predict()
        model.partial_fit([arm], [rewards[arm]])
    return time.perf_counter() - start


def mabwiser_lin_greedy(rounds: Rounds) -> float:
    from mabwiser.mab import MAB, LearningPolicy

    features = np.eye(N_CONTEXTS)
    model = MAB(ARMS, LearningPolicy.LinGreedy(EPSILON), seed=0)
    model.fit(ARMS, [0.5] * N_ARMS, features[:N_ARMS])
    start = time.perf_counter()
    for context, rewards in rounds:
        seen = features[context : context + 1]
        arm = model.predict(seen)
        model.partial_fit([arm], [rewards[arm]], seen)
    return time.perf_counter() - start


def vowpal_wabbit(rounds: Rounds) -> float:
    import vowpalwabbit

    model = vowpalwabbit.Workspace(f"--cb_explore {N_ARMS} --epsilon {EPSILON} --quiet")
    rng = random.Random(0)
    start = time.perf_counter()
    for context, rewards in rounds:
        probabilities = model.predict(f"| c{context}")
        arm = rng.choices(ARMS, probabilities)[0]
        model.learn(f"{arm + 1}:{1 - rewards[arm]}:{probabilities[arm]} | c{context}")
    taken = time.perf_counter() - start
    model.finish()
    return taken


def vowpal_wabbit_adf(rounds: Rounds) -> float:
    import vowpalwabbit

    model = vowpalwabbit.Workspace(f"--cb_explore_adf -q CA --epsilon {EPSILON} --quiet")
    rng = random.Random(0)
    actions = [f"|A a{arm}" for arm in ARMS]
    start = time.perf_counter()
    for context, rewards in rounds:
        shared = f"shared |C c{context}"
        probabilities = model.predict([shared, *actions])
        arm = rng.choices(ARMS, probabilities)[0]
        labelled = actions.copy()
        labelled[arm] = f"0:{1 - rewards[arm]}:{probabilities[arm]} {actions[arm]}"
        model.learn([shared, *labelled])
    taken = time.perf_counter() - start
    model.finish()
    return taken


def numpy_hedge(stream: Stream) -> float:
    uniforms = np.random.default_rng(0).random(stream.n_rounds)
    return seconds(lambda: numpy_loops.hedge(stream, uniforms, 0.01))
