"""An experiment is a value: print it, compare it, hash it, shrink it."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Self

import alphafair
from alphafair.kernels import published_sign
from alphafair.policies import POLICIES, AlphaFairBandit, BasePolicy
from alphafair.policies.fitting import known_settings
from alphafair.types import Feedback, Stream


class PublishedSign(AlphaFairBandit):
    """`AlphaFairBandit` with the sign of the code published with the paper; not for use, so not in POLICIES."""

    name: ClassVar[str] = "published-sign"
    _learn = staticmethod(published_sign.learn)


KINDS: dict[str, type[BasePolicy]] = {**POLICIES, PublishedSign.name: PublishedSign}


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

    def seeds(self, feedback: Feedback) -> tuple[int, ...]:
        """Under full information rewards are booked as expected, so one seed says it all."""
        return tuple(range(self.n_seeds if feedback is Feedback.BANDIT else 1))

    def digest(self, data_digest: str) -> str:
        """Names the results: the same experiment on the same data, run by the same code."""
        return _digest([asdict(self), data_digest])

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
class Impossibility:
    """The two-context instance, for rising lengths, at several alphas, under both outcomes of its coin."""

    halves: tuple[int, ...]
    alphas: tuple[float, ...]
    seeds: tuple[int, ...]
    name: str = "impossibility"

    def digest(self) -> str:
        return _digest(asdict(self))

    def smoke(self) -> Self:
        return replace(self, halves=self.halves[:3])


@dataclass(frozen=True)
class Toy:
    """One context, a few arms of fixed pay, alpha 0: who gets pulled."""

    contenders: tuple[Contender, ...]
    arms: tuple[float, ...]
    n_rounds: int
    seeds: tuple[int, ...]
    name: str = "toy"

    def digest(self) -> str:
        return _digest(asdict(self))

    def smoke(self) -> Self:
        return replace(self, seeds=self.seeds[:3])


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps([content, code_digest()], sort_keys=True).encode()).hexdigest()[:12]


@cache
def code_digest() -> str:
    """All code that a result depends on, in sixteen letters: change it, and nothing old is reused."""
    package = Path(alphafair.__file__).parent
    digest = hashlib.sha256()
    for folder in ("", "kernels", "policies", "streams", "experiments"):
        for path in sorted((package / folder).glob("*.py")):
            digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def stream_digest(stream: Stream) -> str:
    """What a stream's rounds are, in sixteen letters."""
    digest = hashlib.sha256()
    for array in (stream.contexts, stream.items, stream.reward_table):
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(array.data)
    return digest.hexdigest()[:16]
