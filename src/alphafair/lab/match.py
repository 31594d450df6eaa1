"""A course is rounds to be played, as a value; a match is who plays on it: a task, and a table, per seed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, NamedTuple, Self

import numpy as np
import polars as pl

from alphafair import metrics, preprocessing, streams
from alphafair.lab.experiment import KINDS, Contender
from alphafair.lab.run import Task, Work, stream_digest
from alphafair.offline import context_reward_totals, offline_optimum
from alphafair.run import accepted, simulate, simulate_against
from alphafair.values import Adversary, Feedback, Matrix, Stream, Vector

SMOKE_ROUNDS, SMOKE_SEEDS, SMOKE_DELAY = 400, 3, 20
SMOKE_RATINGS = (("n_rounds", SMOKE_ROUNDS), ("n_contexts", 10), ("n_arms", 19))
LENGTHS = ("n_rounds", "n_half")  # settings of makers


@dataclass(frozen=True)
class Course:
    """Rounds to be played: what makes them, for every seed anew; ratings are the same for all seeds.

    `maker` is a function of `alphafair.streams`. Of what it makes the first rounds may be taken, rewards may be scaled,
    and policies may learn of them late. Of rounds with features contexts are clusters, found in the first tenth.
    """

    name: str
    title: str
    maker: str
    settings: tuple[tuple[str, Any], ...]
    n_seeds: int = 20
    n_first: int | None = None
    reward_scale: float = 1.0
    delay: int | None = None
    n_clusters: int | None = None

    @property
    def seeded(self) -> bool:
        return self.maker != "movielens_small"

    def made(self, seed: int) -> Stream | Adversary:
        seeds = {"seed": seed} if self.seeded else {}
        made: Stream | Adversary = getattr(streams, self.maker)(**dict(self.settings), **seeds)
        if isinstance(made, Adversary):
            return made
        if self.n_clusters is not None and made.features is not None:
            first = made.features[: max(made.n_rounds // 10, self.n_clusters)]
            return preprocessing.cluster(first, self.n_clusters, seed=seed).stream(made)
        if self.reward_scale != 1.0:
            made = replace(made, reward_table=made.reward_table * self.reward_scale)
        return made if self.n_first is None else made.head(self.n_first)

    def limits(self, seed: int, stream: Stream, alphas: tuple[float, ...]) -> dict[float, Limits]:
        """The best fixed policy; or, of rounds with features, who knows every mean."""
        if self.n_clusters is None:
            return limits(stream, alphas)
        return known_limits(streams.described_means(**dict(self.settings), seed=seed), stream, alphas)

    def smoke(self) -> Self:
        """The same, small: few rounds, few seeds, and synthetic ratings, which need no download."""
        short = tuple((name, min(value, SMOKE_ROUNDS) if name in LENGTHS else value) for name, value in self.settings)
        delay = None if self.delay is None else min(self.delay, SMOKE_DELAY)
        smaller = replace(self, settings=short, n_seeds=min(self.n_seeds, SMOKE_SEEDS), delay=delay)
        if self.seeded:
            return smaller
        title = f"synthetic {self.title}"
        return replace(smaller, title=title, maker="ratings", settings=SMOKE_RATINGS, n_first=None)


@cache  # the digest, not the rounds
def _digest(course: Course) -> str:
    made = course.made(0)
    return stream_digest(made.stream if isinstance(made, Adversary) else made)


@dataclass(frozen=True)
class Match:
    """All contenders on one course: a task per seed, so that rounds are made and optima found once for all."""

    course: Course
    contenders: tuple[Contender, ...]
    alphas: tuple[float, ...]

    @property
    def work(self) -> Work:
        course = self.course
        tasks: dict[str, Task] = {f"seed-{seed}": partial(self.played, seed) for seed in range(course.n_seeds)}
        settings = {
            "maker": course.maker,
            "settings": dict(course.settings),
            "first_rounds": _digest(course),  # those of seed 0
            "reward_scale": course.reward_scale,
            "delay": course.delay,
            "n_seeds": course.n_seeds,
            "contenders": [contender.unlabelled() for contender in self.contenders],
            "alphas": self.alphas,
        }
        return Work(f"arena-{course.name}", course.title, settings, tasks)

    def played(self, seed: int) -> pl.DataFrame:
        """What arms earned with every contender at every alpha; beside it the limits of the rounds that it met."""
        made = self.course.made(seed)
        given = made.stream if isinstance(made, Adversary) else made
        fixed = self.course.limits(seed, given, self.alphas) if given is made else None
        rows: list[tuple[Any, ...]] = []
        for contender in self.contenders:
            for alphas in self._played_at_once(contender):
                if seed > 0 and not self.course.seeded and contender.feedback is Feedback.FULL:
                    continue  # neither rounds nor rewards are drawn: one seed says it all
                policy = contender.make(given, alphas[0])
                if isinstance(made, Adversary):
                    trace, met = simulate_against(policy, made, seed=seed)
                else:
                    trace, met = simulate(policy, made, seed=seed, delay=self.course.delay), made
                found = fixed or limits(met, alphas)
                rows += [(contender.key, alpha, trace.final, *found[alpha]) for alpha in alphas]
        columns = zip(("contender", "alpha", "accounts", *Limits._fields), zip(*rows, strict=True), strict=True)
        return pl.DataFrame({name: np.array(values) for name, values in columns})

    def _played_at_once(self, contender: Contender) -> list[tuple[float, ...]]:
        """Who knows nothing of alpha plays once for all of them."""
        knows = accepted(KINDS[contender.policy], {"alpha": 0.0})
        return [(alpha,) for alpha in self.alphas] if knows else [self.alphas]


class Limits(NamedTuple):
    """Of some rounds at one alpha: the optimum in hindsight, how far it may be off, and R of uniform play."""

    optimum: float
    gap: float
    uniform: Vector


def limits(stream: Stream, alphas: tuple[float, ...]) -> dict[float, Limits]:
    totals = context_reward_totals(stream)
    uniform = 1.0 + totals.sum(axis=0) / stream.n_arms
    best = {alpha: offline_optimum(totals, alpha) for alpha in alphas}
    return {alpha: Limits(each.value, each.gap, uniform) for alpha, each in best.items()}


def known_limits(means: Matrix, stream: Stream, alphas: tuple[float, ...]) -> dict[float, Limits]:
    """What the arm of the largest R^-alpha times its mean earns, round by round: nobody knows more than means."""
    rewards = stream.reward_table[stream.items]
    uniform = 1.0 + rewards.sum(axis=0) / stream.n_arms
    found = {}
    for alpha in alphas:
        earned = np.ones(stream.n_arms)
        for mean, reward in zip(means, rewards, strict=True):
            arm = int((mean * earned**-alpha).argmax())
            earned[arm] += reward[arm]
        found[alpha] = Limits(metrics.alpha_performance(earned, alpha), 0.0, uniform)
    return found
