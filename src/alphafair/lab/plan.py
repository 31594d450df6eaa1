"""Experiments as values: print, compare, hash and shrink them. A `Plan` is a sequence of experiments.

An experiment splits into tasks, picklable values that can run in any thread, process or machine; calling a task returns
a table. Titles and labels are for reports and do not affect what is computed.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
import polars as pl

from alphafair import metrics, preprocessing, streams
from alphafair.algorithms import POLICIES, BasePolicy
from alphafair.data.movielens import Genres, Ratings, first_rows, most_ratings, ratings_stream
from alphafair.groups import Groups
from alphafair.lab.rivals import RIVALS
from alphafair.lab.rivals.one_by_one import simulate_one_by_one
from alphafair.notions import NOTIONS
from alphafair.offline import context_reward_totals, offline_curve, offline_optimum
from alphafair.run import accepted, known_settings, simulate, simulate_against
from alphafair.values import Adversary, Feedback, Matrix, Policy, Stream, Trace, Vector

KINDS: dict[str, type[BasePolicy]] = {
    **POLICIES,
    **{kind.name: kind for kind in RIVALS},
    **{kind.name: kind for kind in NOTIONS},
}
SMOKE_ROUNDS, SMOKE_SEEDS, SMOKE_DELAY, SMOKE_RECORDS, SMOKE_SETTINGS = 400, 3, 20, 5, 2
SMOKE_RATINGS = (("n_rounds", SMOKE_ROUNDS), ("n_contexts", 10), ("n_arms", 19))
SMALLER_MIN_RATINGS = (500, 50)  # where no user has as many ratings as an experiment asks for


def short_digest(content: Any) -> str:
    """The first twelve digits of a hash of JSON content."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]


def stream_digest(stream: Stream) -> str:
    """The first sixteen digits of a hash of all rounds."""
    found = hashlib.sha256()
    for array in (stream.contexts, stream.items, stream.reward_table):
        found.update(f"{array.dtype}{array.shape}".encode())
        found.update(array.data)
    return found.hexdigest()[:16]


@dataclass(frozen=True)
class Contender:
    """A policy with its settings, and the label that reports give it.

    A setting that depends on the rounds is a formula: "sqrt(ln N / T)", or a number of Nths such as "0.5 / N".
    """

    label: str
    policy: str
    settings: tuple[tuple[str, Any], ...] = ()

    @property
    def feedback(self) -> Feedback:
        return Feedback(dict(self.settings).get("feedback") or KINDS[self.policy].feedback)

    @property
    def knows_alpha(self) -> bool:
        return "alpha" in accepted(KINDS[self.policy], {"alpha": 0.0})

    @property
    def unlabeled(self) -> dict[str, Any]:
        return {"policy": self.policy, **dict(self.settings)}

    @property
    def key(self) -> str:
        """Identifies the contender in tables, whatever its label is."""
        return short_digest(self.unlabeled)

    def make(self, stream: Stream, alpha: float) -> BasePolicy:
        """The policy for these rounds, with everything that its constructor asks for."""
        kind = KINDS[self.policy]
        settings = known_settings(kind, stream, alpha)
        settings |= {name: _evaluate(value, stream) for name, value in self.settings}
        if "learning_rate" in dict(self.settings):
            settings.pop("horizon", None)
        return kind(stream.n_contexts, stream.n_arms, **settings)


def settings_by_policy(contenders: Iterable[Contender]) -> dict[str, list[Contender]]:
    """Contenders by the name of their policy."""
    found: dict[str, list[Contender]] = {}
    for each in contenders:
        found.setdefault(each.policy, []).append(each)
    return found


def _evaluate(value: Any, stream: Stream) -> Any:
    """The value of a setting: a formula is evaluated for these rounds."""
    if isinstance(value, str) and value in FORMULAS:
        return FORMULAS[value](stream)
    if value == "sqrt(ln N / T)":
        return math.sqrt(math.log(stream.n_arms) / stream.n_rounds)
    if isinstance(value, str) and value.endswith(" / N"):
        return float(value.removesuffix(" / N")) / stream.n_arms
    return value


def half_of_uniform(stream: Stream) -> Vector:
    """Half the reward per round that uniform play gives every arm."""
    rates: Vector = stream.reward_table[stream.items].mean(axis=0) / (2.0 * stream.n_arms)
    return rates


def _entitled(stream: Stream) -> Groups:
    rates = half_of_uniform(stream)
    return Groups(entitlements=rates / rates.mean())


FORMULAS: Mapping[str, Callable[[Stream], Any]] = {  # settings that depend on the rounds
    "half of uniform": lambda stream: half_of_uniform(stream).tolist(),
    "entitled to half of uniform": _entitled,
    "1% of half of uniform": lambda stream: 0.01 * float(half_of_uniform(stream).mean()) * stream.n_rounds,
    "floor of 0.5 / N": lambda stream: Groups(pull_floor=0.5 / stream.n_arms),
    "halves": lambda stream: [i % 2 for i in range(stream.n_arms)],
    "halves of at least 0.4": lambda stream: Groups([i % 2 for i in range(stream.n_arms)], pull_floor=[0.4, 0.4]),
}


@dataclass(frozen=True)
class FromRatings:
    """Rounds from the ratings that a plan runs on: the first rows, or the users with many ratings."""

    rows: int | None = 5000
    min_ratings: int | None = None
    reward_floor: float = 0.2
    seeded: ClassVar[bool] = False

    def smoke(self) -> Self:
        return replace(self, rows=None if self.rows is None else min(self.rows, 300))

    def fit(self, ratings: Ratings, genres: Genres) -> tuple[Self, Stream]:
        """The rows and the `min_ratings` that these ratings allow, and the rounds."""
        rows, least = first_rows(ratings, self.rows), self.min_ratings
        if least is not None:
            most = most_ratings(rows, genres)
            least = next((fewer for fewer in (least, *SMALLER_MIN_RATINGS) if fewer <= most), None)
        stream = ratings_stream(rows, genres, min_ratings=least, reward_floor=self.reward_floor)
        n_rows = None if self.rows is None else len(rows.users)
        return replace(self, rows=n_rows, min_ratings=least), stream


@dataclass(frozen=True)
class Generated:
    """Rounds from a function of `alphafair.streams`, drawn anew for every seed; ratings are the same for all seeds.

    Optionally only the first rounds, with scaled rewards. Where `n_clusters` is set, contexts are clusters of the
    rounds' features, fitted to the first tenth.
    """

    maker: str
    settings: tuple[tuple[str, Any], ...] = ()
    n_first: int | None = None
    reward_scale: float = 1.0
    n_clusters: int | None = None

    @property
    def seeded(self) -> bool:
        return self.maker != "movielens_small"

    def smoke(self) -> Self:
        """Few rounds, and synthetic ratings instead of a data set."""
        if not self.seeded:
            return replace(self, maker="ratings", settings=SMOKE_RATINGS, n_first=None)
        lengths = ("n_rounds", "n_half")
        short = ((name, min(value, SMOKE_ROUNDS) if name in lengths else value) for name, value in self.settings)
        return replace(self, settings=tuple(short))

    def make(self, seed: int) -> Stream | Adversary:
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


@dataclass(frozen=True)
class ConstantRewards:
    """Rounds with one context, where every arm always pays the same."""

    rewards: tuple[float, ...]
    n_rounds: int
    seeded: ClassVar[bool] = False

    def smoke(self) -> Self:
        return replace(self, n_rounds=min(self.n_rounds, 1000))

    def make(self, seed: int) -> Stream:
        zeros = np.zeros(self.n_rounds, dtype=np.int32)
        return Stream(zeros, zeros, np.array([self.rewards]))


Rounds = FromRatings | Generated | ConstantRewards


class Benchmark(NamedTuple):
    """The optimum in hindsight of some rounds, the gap of its certificate, and the accounts of uniform play.

    Both numbers are in alpha-performance below alpha = 1 and in welfare from 1 on.
    """

    optimum: float
    gap: float
    uniform: Vector


def best_fixed_policy(stream: Stream, alphas: tuple[float, ...], k: int | None = None) -> dict[float, Benchmark]:
    """The benchmark by alpha: the best fixed policy in hindsight, of slates of k arms if that is given."""
    totals, shown = context_reward_totals(stream), min(k or 1, stream.n_arms)
    uniform = 1.0 + totals.sum(axis=0) * shown / stream.n_arms

    def benchmark(alpha: float) -> Benchmark:
        best = offline_optimum(totals, alpha, k=shown)
        found = (best.value, best.gap) if alpha < 1.0 else (best.welfare, best.welfare * best.welfare_gap)
        return Benchmark(*found, uniform)

    return {alpha: benchmark(alpha) for alpha in alphas}


def known_means_policy(means: Matrix, stream: Stream, alphas: tuple[float, ...]) -> dict[float, Benchmark]:
    """The benchmark by alpha of rounds with features: always play the arm with the largest R^-alpha times its mean."""
    rewards = stream.reward_table[stream.items]
    uniform = 1.0 + rewards.sum(axis=0) / stream.n_arms
    found = {}
    for alpha in alphas:
        earned = np.ones(stream.n_arms)
        for mean, reward in zip(means, rewards, strict=True):
            arm = int((mean * earned**-alpha).argmax())
            earned[arm] += reward[arm]
        found[alpha] = Benchmark(metrics.alpha_performance(earned, alpha), 0.0, uniform)
    return found


@dataclass(frozen=True)
class Simulation:
    """One policy on some rounds with one seed: the unit of work of every experiment and of `alphafair simulate`.

    With `k`, policies that show one arm per decision draw the k arms one by one. Calling it returns the trace, the
    rounds that the policy met and the policy in its final state.
    """

    policy: Policy
    rounds: Stream | Adversary
    seed: int
    record_every: int | None = None
    delay: int | None = None
    k: int | None = None

    def __call__(self) -> tuple[Trace, Stream, Policy]:
        if isinstance(self.rounds, Adversary):
            return *simulate_against(self.policy, self.rounds, seed=self.seed, k=self.k), self.policy
        if self.k is not None and not self.policy.traits.slates:
            return simulate_one_by_one(self.policy, self.rounds, self.k, seed=self.seed), self.rounds, self.policy
        options = {"seed": self.seed, "record_every": self.record_every, "delay": self.delay, "k": self.k}
        return simulate(self.policy, self.rounds, **options), self.rounds, self.policy  # type: ignore[arg-type]


@dataclass(frozen=True)
class Experiment:
    """Which rounds, which contenders, which alphas, how many seeds, and how many recorded rounds.

    With `optimum` the best fixed policy in hindsight is solved for as well, at every recorded round. `delay` is the
    number of rounds after which policies see a reward, `k` that of arms that a decision shows. `tuned` are rivals with
    several settings each, of which results show the best. `in_smoke` says what `Plan.smoke` does with the experiment.
    """

    name: str
    title: str
    rounds: Rounds
    contenders: tuple[Contender, ...]
    alphas: tuple[float, ...] = (0.9,)
    n_seeds: int = 30
    n_records: int = 100
    optimum: bool = True
    delay: int | None = None
    tuned: tuple[Contender, ...] = ()
    in_smoke: Literal["shrink", "keep", "drop"] = "shrink"
    k: int | None = None

    @property
    def alpha(self) -> float:
        """The only alpha."""
        (alpha,) = self.alphas
        return alpha

    @property
    def players(self) -> tuple[Contender, ...]:
        """All contenders, with every setting of those that are tuned."""
        return (*self.contenders, *self.tuned)

    def smoke(self) -> Self:
        """The same experiment with few rounds, few seeds and few alphas, which needs no download."""
        if self.in_smoke != "shrink":
            return self
        is_download = isinstance(self.rounds, Generated) and not self.rounds.seeded
        return replace(
            self,
            title=f"synthetic {self.title}" if is_download else self.title,
            rounds=self.rounds.smoke(),
            alphas=self.alphas[:: max(1, len(self.alphas) // 3)],
            n_seeds=min(self.n_seeds, SMOKE_SEEDS),
            n_records=min(self.n_records, SMOKE_RECORDS),
            delay=None if self.delay is None else min(self.delay, SMOKE_DELAY),
            tuned=tuple(
                each for settings in settings_by_policy(self.tuned).values() for each in settings[:SMOKE_SETTINGS]
            ),
        )

    def seeds(self, contender: Contender) -> tuple[int, ...]:
        """The seeds of a contender: one where nothing is random, since accounts are expected under full information."""
        is_random = self.rounds.seeded or contender.feedback is Feedback.BANDIT
        return tuple(range(self.n_seeds if is_random else 1))

    def settings(self, first: Stream) -> dict[str, Any]:
        """Everything that the tables depend on, given the rounds of the first seed."""
        return {
            "rounds": {"kind": type(self.rounds).__name__, **asdict(self.rounds), "first": stream_digest(first)},
            "contenders": [contender.unlabeled for contender in self.players],
            "alphas": self.alphas,
            "n_seeds": self.n_seeds,
            "n_records": self.n_records,
            "optimum": self.optimum,
            "delay": self.delay,
            **({} if self.k is None else {"k": self.k}),
        }

    def tasks(self, first: Stream | Adversary) -> dict[str, Task]:
        """All tasks by name, given the rounds of the first seed.

        Where every seed has rounds of its own there is a task for each seed, so that rounds are made and solved once.
        Otherwise there is one for each contender and alpha, and one for the optimum at each alpha.
        """
        if self.rounds.seeded:
            return {f"seed-{seed}": SeedTask(self, seed, None if seed else first) for seed in range(self.n_seeds)}
        if isinstance(first, Adversary):
            raise TypeError("an adversary is made anew for every seed")
        tasks: dict[str, Task] = {}
        for contender in self.players:
            for alphas in self.alpha_sets(contender):
                name = f"{contender.key}-{alphas[0]:g}"
                tasks[name] = ContenderTask(self, contender, alphas, self.seeds(contender), first)
        if self.optimum:
            tasks |= {f"optimum-{alpha:g}": OptimumTask(self, alpha, first) for alpha in self.alphas}
        return tasks

    def alpha_sets(self, contender: Contender) -> list[tuple[float, ...]]:
        """The alphas that are simulated at once: all of them if the policy does not depend on alpha."""
        return [(alpha,) for alpha in self.alphas] if contender.knows_alpha else [self.alphas]

    def record_every(self, n_rounds: int) -> int | None:
        return None if self.n_records == 1 else -(-n_rounds // self.n_records)


@dataclass(frozen=True)
class SeedTask:
    """All contenders at all alphas on the rounds of one seed, with their benchmark."""

    experiment: Experiment
    seed: int
    rounds: Stream | Adversary | None = field(default=None, compare=False, repr=False)  # None: make them

    def __reduce__(self) -> tuple[Any, ...]:
        return SeedTask, (self.experiment, self.seed)  # a worker elsewhere makes the rounds, which are large

    def __call__(self) -> pl.DataFrame:
        plan, source = self.experiment, self.experiment.rounds
        if not isinstance(source, Generated):
            raise TypeError(f"{source} has the same rounds for every seed")
        rounds = source.make(self.seed) if self.rounds is None else self.rounds
        if isinstance(rounds, Adversary):  # pays every contender differently, so each has its own benchmark
            given, shared = rounds.stream, None
        else:
            given, shared = rounds, benchmarks(source, self.seed, rounds, plan.alphas, plan.k)
        rows: list[tuple[Any, ...]] = []
        for contender in plan.players:
            for alphas in plan.alpha_sets(contender):
                policy = contender.make(given, alphas[0])
                trace, met, _ = Simulation(policy, rounds, self.seed, None, plan.delay, plan.k)()
                found = shared or best_fixed_policy(met, alphas, plan.k)
                rows += [(contender.key, alpha, self.seed, trace.final, *found[alpha]) for alpha in alphas]
        names = ("contender", "alpha", "seed", "accounts", *Benchmark._fields)
        columns = zip(names, zip(*rows, strict=True), strict=True)
        return pl.DataFrame({name: np.array(values) for name, values in columns})


def benchmarks(
    source: Generated, seed: int, stream: Stream, alphas: tuple[float, ...], k: int | None
) -> dict[float, Benchmark]:
    """The best fixed policy, or on rounds with features the policy that knows every mean."""
    if source.n_clusters is None:
        return best_fixed_policy(stream, alphas, k)
    return known_means_policy(streams.described_means(**dict(source.settings), seed=seed), stream, alphas)


@dataclass(frozen=True)
class ContenderTask:
    """One contender with all its seeds: the accounts at every recorded round, and the pulls of the whole run."""

    experiment: Experiment
    contender: Contender
    alphas: tuple[float, ...]  # more than one if the policy does not depend on alpha
    seeds: tuple[int, ...]
    stream: Stream = field(compare=False, repr=False)

    def __call__(self) -> pl.DataFrame:
        policy, plan = self.contender.make(self.stream, self.alphas[0]), self.experiment
        every = self.experiment.record_every(self.stream.n_rounds)
        frames = []
        for seed in self.seeds:
            trace, _, _ = Simulation(policy.fresh(), self.stream, seed, every, plan.delay, plan.k)()
            pulls = np.broadcast_to(trace.pulls, trace.accounts.shape)
            columns = {"seed": seed, "round": trace.rounds, "accounts": trace.accounts, "pulls": pulls}
            frames.append(pl.DataFrame(columns))
        return pl.concat(frames)


@dataclass(frozen=True)
class OptimumTask:
    """The certified optimum of every prefix that is recorded, with its gap and the accounts of uniform play."""

    experiment: Experiment
    alpha: float
    stream: Stream = field(compare=False, repr=False)

    def __call__(self) -> pl.DataFrame:
        n_rounds = self.stream.n_rounds
        every = self.experiment.record_every(n_rounds)
        if every is None:
            found = best_fixed_policy(self.stream, (self.alpha,), self.experiment.k)[self.alpha]
            names = ("round", *Benchmark._fields)
            return pl.DataFrame(
                {name: np.array([value]) for name, value in zip(names, (n_rounds, *found), strict=True)}
            )
        rounds = np.minimum(np.arange(every, n_rounds + every, every), n_rounds)
        values, gaps = offline_curve(self.stream, self.alpha, rounds)
        return pl.DataFrame({"round": rounds, "optimum": values, "gap": gaps})


Task = SeedTask | ContenderTask | OptimumTask


@dataclass(frozen=True)
class Plan:
    """Experiments to run one after another."""

    experiments: tuple[Experiment, ...]

    def __iter__(self) -> Iterator[Experiment]:
        return iter(self.experiments)

    def smoke(self) -> Self:
        """The same plan in small, for a test of the whole way."""
        return replace(self, experiments=tuple(each.smoke() for each in self if each.in_smoke != "drop"))

    def with_seeds(self, n_seeds: int) -> Self:
        return replace(self, experiments=tuple(replace(each, n_seeds=n_seeds) for each in self))
