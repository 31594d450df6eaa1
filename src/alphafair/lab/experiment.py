"""An experiment is a value: print it, compare it, hash it, shrink it.

Its settings say what is computed and nothing else; titles and labels are for the report and may change freely.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np
import polars as pl

from alphafair.algorithms import POLICIES, BasePolicy
from alphafair.lab.published import PublishedSign, PublishedStep
from alphafair.lab.rival import GuaranteedLearner, OptimisticFrankWolfe
from alphafair.lab.run import Task, Work, short_digest, stream_digest
from alphafair.offline import offline_curve
from alphafair.run import known_settings, simulate
from alphafair.values import Feedback, Stream

UNLISTED = (PublishedSign, PublishedStep, OptimisticFrankWolfe, GuaranteedLearner)
KINDS: dict[str, type[BasePolicy]] = {**POLICIES, **{kind.name: kind for kind in UNLISTED}}


def resolve(value: Any, stream: Stream) -> Any:
    """A setting that depends on the data, written as words so that a contender stays printable and hashable."""
    if value == "sqrt(ln N / T)":
        return math.sqrt(math.log(stream.n_arms) / stream.n_rounds)
    if isinstance(value, str) and value.endswith(" / N"):
        return float(value.removesuffix(" / N")) / stream.n_arms
    return value


@dataclass(frozen=True)
class Contender:
    """A policy under the label that the report gives it."""

    label: str
    policy: str
    settings: tuple[tuple[str, Any], ...] = ()

    @property
    def feedback(self) -> Feedback:
        return Feedback(dict(self.settings).get("feedback") or KINDS[self.policy].feedback)

    def make(self, stream: Stream, alpha: float) -> BasePolicy:
        kind = KINDS[self.policy]
        settings = known_settings(kind, stream, alpha)
        settings |= {name: resolve(value, stream) for name, value in self.settings}
        if "learning_rate" in dict(self.settings):
            settings.pop("horizon", None)
        return kind(stream.n_contexts, stream.n_arms, **settings)

    def unlabelled(self) -> dict[str, Any]:
        return {"policy": self.policy, **dict(self.settings)}

    @property
    def key(self) -> str:
        """Names it in tables: what it is, not what it is called."""
        return short_digest(self.unlabelled())

    def played(self, stream: Stream, alpha: float, n_seeds: int, n_records: int) -> pl.DataFrame:
        """The accounts of all arms at every recorded round, and their pulls at the end, seed by seed.

        Under full information rewards are booked as expected, so one seed says it all.
        """
        policy, every = self.make(stream, alpha), record_every(stream.n_rounds, n_records)
        frames = []
        for seed in range(n_seeds if self.feedback is Feedback.BANDIT else 1):
            trace = simulate(policy.fresh(), stream, seed=seed, record_every=every)
            pulls = np.broadcast_to(trace.pulls, trace.accounts.shape)
            columns = {"seed": seed, "round": trace.rounds, "accounts": trace.accounts, "pulls": pulls}
            frames.append(pl.DataFrame(columns))
        return pl.concat(frames)


def record_every(n_rounds: int, n_records: int) -> int:
    return -(-n_rounds // n_records)


def optimum(stream: Stream, alpha: float, n_records: int) -> pl.DataFrame:
    """The certified optimum of every prefix that `simulate` records, with its gaps: every so many rounds, and all."""
    every = record_every(stream.n_rounds, n_records)
    rounds = np.minimum(np.arange(every, stream.n_rounds + every, every), stream.n_rounds)
    values, gaps = offline_curve(stream, alpha, rounds)
    return pl.DataFrame({"round": rounds, "value": values, "gap": gaps})


@dataclass(frozen=True)
class Experiment:
    """Which rounds, which contenders, which alphas, how many seeds.

    `rows`, `min_ratings` and `reward_floor` say which part of a ratings data set is played.
    """

    name: str
    title: str
    contenders: tuple[Contender, ...]
    alphas: tuple[float, ...] = (0.9,)
    rows: int | None = 5000
    min_ratings: int | None = None
    reward_floor: float = 0.2
    n_seeds: int = 30
    n_records: int = 100

    def smoke(self) -> Self:
        """The same, small: few rows, few seeds, few alphas."""
        thin = max(1, len(self.alphas) // 3)
        return replace(
            self,
            rows=None if self.rows is None else min(self.rows, 300),
            alphas=self.alphas[::thin],
            n_seeds=min(self.n_seeds, 3),
            n_records=min(self.n_records, 5),
        )

    @property
    def alpha(self) -> float:
        """The only one."""
        (alpha,) = self.alphas
        return alpha

    def on(self, stream: Stream) -> Work:
        """To be played on these rounds: a task per contender and alpha; over time also the optimum."""
        tasks: dict[str, Task] = {}
        for alpha in self.alphas:
            for contender in self.contenders:
                play = partial(contender.played, stream, alpha, self.n_seeds, self.n_records)
                tasks[f"{contender.key}-{alpha:g}"] = play
            if self.n_records > 1:
                tasks[f"optimum-{alpha:g}"] = partial(optimum, stream, alpha, self.n_records)
        settings = {
            "contenders": [contender.unlabelled() for contender in self.contenders],
            "alphas": self.alphas,
            "n_seeds": self.n_seeds,
            "n_records": self.n_records,
            "rounds": stream_digest(stream),
        }
        return Work(self.name, self.title, settings, tasks)
