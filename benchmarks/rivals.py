"""One decision and one update per round with each rival, in the way its own documents show; the seconds it takes.

Every function is given the rounds, a context and the rewards of all arms, and looks only at the reward of its arm.
"""

from __future__ import annotations

import random
import time
from importlib import import_module
from typing import Any

import numpy as np

from benchmarks.jobs import N_ARMS, N_CONTEXTS

Rounds = list[tuple[int, list[float]]]
ARMS = list(range(N_ARMS))
EPSILON = 0.1


def river_epsilon_greedy(rounds: Rounds) -> float:
    return _river(import_module("river.bandit").EpsilonGreedy(epsilon=EPSILON, seed=0), rounds)


def river_exp3(rounds: Rounds) -> float:
    return _river(import_module("river.bandit").Exp3(gamma=EPSILON, seed=0), rounds)


def _river(policy: Any, rounds: Rounds) -> float:
    start = time.perf_counter()
    for _, rewards in rounds:
        arm = policy.pull(ARMS)
        policy.update(arm, rewards[arm])
    return time.perf_counter() - start


def mabwiser_epsilon_greedy(rounds: Rounds) -> float:
    mab = import_module("mabwiser.mab")
    model = mab.MAB(ARMS, mab.LearningPolicy.EpsilonGreedy(EPSILON), seed=0)
    model.fit(ARMS, [0.5] * N_ARMS)
    start = time.perf_counter()
    for _, rewards in rounds:
        arm = model.predict()
        model.partial_fit([arm], [rewards[arm]])
    return time.perf_counter() - start


def mabwiser_lin_greedy(rounds: Rounds) -> float:
    mab = import_module("mabwiser.mab")
    features = np.eye(N_CONTEXTS)
    model = mab.MAB(ARMS, mab.LearningPolicy.LinGreedy(EPSILON), seed=0)
    model.fit(ARMS, [0.5] * N_ARMS, features[:N_ARMS])
    start = time.perf_counter()
    for context, rewards in rounds:
        seen = features[context : context + 1]
        arm = model.predict(seen)
        model.partial_fit([arm], [rewards[arm]], seen)
    return time.perf_counter() - start


def vowpal_wabbit(rounds: Rounds) -> float:
    model = import_module("vowpalwabbit").Workspace(f"--cb_explore {N_ARMS} --epsilon {EPSILON} --quiet")
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
    model = import_module("vowpalwabbit").Workspace(f"--cb_explore_adf -q CA --epsilon {EPSILON} --quiet")
    rng = random.Random(0)
    actions = [f"|A a{arm}" for arm in ARMS]
    start = time.perf_counter()
    for context, rewards in rounds:
        shared = f"shared |C c{context}"
        probabilities = model.predict([shared, *actions])
        arm = rng.choices(ARMS, probabilities)[0]
        labeled = actions.copy()
        labeled[arm] = f"0:{1 - rewards[arm]}:{probabilities[arm]} {actions[arm]}"
        model.learn([shared, *labeled])
    taken = time.perf_counter() - start
    model.finish()
    return taken
