"""An experiment is a value: print it, compare it, hash it, shrink it."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self

import numpy as np
import polars as pl

import alphafair
from alphafair.experiments import tables
from alphafair.kernels import published_sign, published_step
from alphafair.policies import POLICIES, AlphaFair, AlphaFairBandit, BasePolicy
from alphafair.policies.fitting import known_settings
from alphafair.types import Feedback, Stream

Task = Callable[[], pl.DataFrame]


class Work(Protocol):
    """What the runner asks of an experiment: what names its results, and tasks by name, each of which makes a table."""

    @property
    def name(self) -> str: ...
    @property
    def title(self) -> str: ...
    def settings(self) -> dict[str, Any]: ...
    def tasks(self) -> dict[str, Task]: ...


def digest(work: Work) -> str:
    """Names the results: the same experiment on the same rounds, run by the same code."""
    content = json.dumps([work.settings(), code_digest()], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:12]


class PublishedSign(AlphaFairBandit):
    """`AlphaFairBandit` with the sign of the code published with the paper; not for use, so not in POLICIES."""

    name: ClassVar[str] = "published-sign"
    kernels = AlphaFairBandit.kernels._replace(learn=published_sign.learn)
    look = ("#661100", "*")


class PublishedStep(AlphaFair):
    """`AlphaFair` with the step size of the code published with the paper: no certificate, not for use."""

    name: ClassVar[str] = "published-step"
    kernels = AlphaFair.kernels._replace(learn=published_step.learn, learn_in_order=None)
    look = ("#661100", "*")  # never beside the other
    surrogate_regret_bound = None


KINDS: dict[str, type[BasePolicy]] = {**POLICIES, PublishedSign.name: PublishedSign, PublishedStep.name: PublishedStep}


def resolve(value: Any, stream: Stream) -> Any:
    """A setting that depends on the data, written as words so that a contender stays printable and hashable."""
    if value == "sqrt(ln N / T)":
        return math.sqrt(math.log(stream.n_arms) / stream.n_rounds)
    if isinstance(value, str) and value.endswith(" / N"):
        return float(value.removesuffix(" / N")) / stream.n_arms
    return value


@dataclass(frozen=True)
class Contender:
    """A policy under the name that the report gives it."""

    label: str
    policy: str
    settings: tuple[tuple[str, Any], ...] = ()

    def make(self, stream: Stream, alpha: float) -> BasePolicy:
        kind = KINDS[self.policy]
        settings = known_settings(kind, stream, alpha)
        settings |= {name: resolve(value, stream) for name, value in self.settings}
        if "learning_rate" in dict(self.settings):
            settings.pop("horizon", None)
        return kind(stream.n_contexts, stream.n_arms, **settings)

    def key(self, alpha: float) -> str:
        """Names the table of what it did at this alpha."""
        content = json.dumps([asdict(self), alpha], sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()[:12]

    def played(self, stream: Stream, alpha: float, n_seeds: int, n_records: int) -> pl.DataFrame:
        """Under full information rewards are booked as expected, so one seed says it all."""
        policy = self.make(stream, alpha)
        seeds = range(n_seeds if policy.feedback is Feedback.BANDIT else 1)
        return tables.played(policy, stream, seeds, n_records)


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
        """The same in seconds: few rows, few seeds, few alphas."""
        thin = max(1, len(self.alphas) // 3)
        return replace(
            self,
            rows=None if self.rows is None else min(self.rows, 300),
            alphas=self.alphas[::thin],
            n_seeds=min(self.n_seeds, 3),
            n_records=min(self.n_records, 5),
        )


@dataclass(frozen=True)
class Loaded:
    """An experiment with its rounds."""

    experiment: Experiment
    stream: Stream

    @property
    def name(self) -> str:
        return self.experiment.name

    @property
    def title(self) -> str:
        return self.experiment.title

    def settings(self) -> dict[str, Any]:
        return {**asdict(self.experiment), "rounds": stream_digest(self.stream)}

    def tasks(self) -> dict[str, Task]:
        """One a contender and alpha; over time also the optimum."""
        plan, stream = self.experiment, self.stream
        tasks: dict[str, Task] = {
            contender.key(alpha): partial(contender.played, stream, alpha, plan.n_seeds, plan.n_records)
            for contender in plan.contenders
            for alpha in plan.alphas
        }
        if plan.n_records > 1:
            tasks |= {
                optimum_key(alpha): partial(tables.optimum, stream, alpha, plan.n_records) for alpha in plan.alphas
            }
        return tasks


def optimum_key(alpha: float) -> str:
    return f"optimum-{alpha:g}"


@dataclass(frozen=True)
class Impossibility:
    """The two-context instance, for rising lengths, at several alphas, under both outcomes of its coin."""

    halves: tuple[int, ...]
    alphas: tuple[float, ...]
    seeds: tuple[int, ...]
    name: str = "impossibility"
    title: str = "Why c_\u03b1 cannot be 1"

    def settings(self) -> dict[str, Any]:
        return asdict(self)

    def tasks(self) -> dict[str, Task]:
        return {
            self.key(alpha, n_half): partial(tables.two_contexts, n_half, alpha, self.seeds)
            for alpha in self.alphas
            for n_half in self.halves
        }

    def key(self, alpha: float, n_half: int) -> str:
        return f"{alpha:g}-{n_half}"

    def smoke(self) -> Self:
        return replace(self, halves=self.halves[:3])


@dataclass(frozen=True)
class Toy:
    """One context, a few arms of fixed pay, alpha 0: who gets pulled."""

    contenders: tuple[Contender, ...]
    arms: tuple[float, ...]
    n_rounds: int
    n_seeds: int
    name: str = "toy"
    title: str = "Three arms of fixed pay"

    def settings(self) -> dict[str, Any]:
        return asdict(self)

    def tasks(self) -> dict[str, Task]:
        zeros = np.zeros(self.n_rounds, dtype=np.int32)
        stream = Stream(zeros, zeros, np.array([self.arms]))
        return {
            contender.key(0.0): partial(contender.played, stream, 0.0, self.n_seeds, 1) for contender in self.contenders
        }

    def smoke(self) -> Self:
        return replace(self, n_rounds=min(self.n_rounds, 1000), n_seeds=min(self.n_seeds, 3))


@cache
def code_digest() -> str:
    """All code that a result depends on, in sixteen letters: change it, and nothing old is reused."""
    return _files_digest(*(f"{folder}*.py" for folder in ("", "kernels/", "policies/", "streams/", "experiments/")))


@cache
def report_digest() -> str:
    """The code above and all that draws and lays out the report: change it, and the report is made again."""
    return _files_digest("**/*.py", "experiments/*.css")


def _files_digest(*patterns: str) -> str:
    package = Path(alphafair.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(path for pattern in patterns for path in package.glob(pattern)):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def stream_digest(stream: Stream) -> str:
    """What a stream's rounds are, in sixteen letters."""
    digest = hashlib.sha256()
    for array in (stream.contexts, stream.items, stream.reward_table):
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(array.data)
    return digest.hexdigest()[:16]
