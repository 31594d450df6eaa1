"""Published notions of fairness on one benchmark: 35 policies, 4 worlds, and how fair each was by every notion.

Promised are half an equal share of the pulls, half of what uniform play gives every arm, and 0.4 to 0.6 of the
probability for the arms with even numbers; merit is exp(4 mu). Policies play with bandit feedback, one instance per
context, apart from those "of one context", which is how they were published. Widths of 0.1 and 0.3, eta 100 and c 0.1
were chosen on these worlds; everything else is a published constant.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import polars as pl

from alphafair.lab.fairness import Fairness, fairness_of
from alphafair.lab.plan import Contender, Experiment, Generated, Plan, Rounds
from alphafair.lab.results import OnRounds
from alphafair.lab.runner import Progress, Run, no_progress, run_plan
from alphafair.pages import versions
from alphafair.run import simulate
from alphafair.values import Adversary, Decision, Matrix, Stream

N_ROUNDS, N_SEEDS, N_PHASES = 20_000, 3, 6
SMOKE_CONTENDERS = ("uniform", "adaptive 0", "Fair-Learn", "Fair-Learn, one context")
ONE_CONTEXT = ", one context"  # at the end of a label: one learner for all contexts, as published

_UNIFORM_RATES = ("rates", "half of uniform")
_FAIR_CB = (("feedback", "bandit"), ("pull_share", "0.5 / N"), ("context_weights", None))  # they are not known


def _adaptive(label: str, alpha: float, *more: tuple[str, Any]) -> Contender:
    return Contender(f"adaptive {label}", "alpha-fair-adaptive", (("feedback", "bandit"), ("alpha", alpha), *more))


def _promised(label: str, *settings: tuple[str, Any]) -> Contender:
    return Contender(f"adaptive 0, promised {label}", "promised", settings)


CONTENDERS = (
    Contender("uniform", "uniform", (("feedback", "bandit"),)),
    _adaptive("0", 0.0),
    _adaptive(".5", 0.5),
    _adaptive(".9", 0.9),
    _adaptive("1", 1.0),
    _adaptive("2", 2.0),
    _adaptive("inf", float("inf")),
    _adaptive("5, entitled", 5.0, ("groups", "entitled to half of uniform")),
    _adaptive("0, floor", 0.0, ("groups", "floor of 0.5 / N")),
    _adaptive(".9, floor", 0.9, ("groups", "floor of 0.5 / N")),
    _adaptive("0, halves", 0.0, ("groups", "halves of at least 0.4")),
    _promised("pulls 0", ("tolerance", 0.0)),
    _promised("pulls 10", ("tolerance", 10.0)),
    _promised("reward 0", ("of", "reward"), _UNIFORM_RATES, ("tolerance", 0.0)),
    _promised("reward 1%", ("of", "reward"), _UNIFORM_RATES, ("tolerance", "1% of half of uniform")),
    Contender("Frank-Wolfe UCB .9", "optimistic-frank-wolfe", (("alpha", 0.9),)),
    Contender("FairCB", "fair-cb", _FAIR_CB),
    Contender("Fair-Learn", "fair-learn"),
    Contender("Fair-Learn, width .1", "fair-learn", (("width", 0.1),)),
    Contender(f"Fair-Learn{ONE_CONTEXT}", "fair-learn"),
    Contender("rate UCB", "rate-ucb"),
    Contender("rate UCB, width .1", "rate-ucb", (("width", 0.1),)),
    Contender("LFG 10", "lfg"),
    Contender("LFG 100", "lfg", (("eta", 100.0),)),
    Contender("LFG 100, width .1", "lfg", (("eta", 100.0), ("width", 0.1))),
    Contender("FairBandits", "fair-bandits"),
    Contender("FairX", "fairx"),
    Contender("FairX, width .3", "fairx", (("width", 0.3),)),
    Contender("BanditQ", "bandit-q", (_UNIFORM_RATES,)),
    Contender("BanditQ, queue first", "bandit-q", (_UNIFORM_RATES, ("queue_first", True))),
    Contender("revenue", "guaranteed-revenue", (_UNIFORM_RATES,)),
    Contender(f"revenue{ONE_CONTEXT}", "guaranteed-revenue", (_UNIFORM_RATES,)),
    Contender("constrained greedy, halves", "constrained-greedy", (("groups", "halves"), ("low", 0.4), ("high", 0.6))),
    Contender("Nash confidence bound", "nash-confidence-bound"),
    Contender("Nash confidence bound, c .1", "nash-confidence-bound", (("c", 0.1),)),
)


class Recorder:
    """A policy that also keeps the probabilities of every round; with `n_contexts`, all contexts are one to it."""

    def __init__(self, policy: Any, n_rounds: int, n_contexts: int | None = None) -> None:
        self._policy, self._one = policy, n_contexts is not None
        self.n_contexts = policy.n_contexts if n_contexts is None else n_contexts
        self.probabilities = np.empty((n_rounds, policy.n_arms))
        self._n_played = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._policy, name)

    def choose(self, context: int, **options: Any) -> Decision:
        decision: Decision = self._policy.choose(0 if self._one else context, **options)
        self.probabilities[self._n_played] = decision.probabilities
        self._n_played += 1
        return decision


@dataclass(frozen=True)
class World(Experiment):
    """An experiment whose table is a row of `Fairness` for every contender and seed."""

    def with_fewer(self) -> Self:
        few = tuple(each for each in self.contenders if each.label in SMOKE_CONTENDERS)
        return replace(self.smoke(), contenders=few, n_seeds=min(self.n_seeds, 2))

    def tasks(self, first: Stream | Adversary) -> dict[str, Any]:
        """A task for each contender and seed."""
        return {
            f"{key(contender)}-{seed}": FairnessTask(self, contender, seed, None if seed else first)
            for contender in self.contenders
            for seed in range(self.n_seeds)
        }

    def settings(self, first: Stream) -> dict[str, Any]:
        labels = [key(contender) for contender in self.contenders]
        return {**super().settings(first), "alphas": [], "optimum": False, "contenders": labels}

    def rounds_of(self, seed: int) -> Stream:
        if not isinstance(self.rounds, Generated):
            raise TypeError(f"{self.rounds} are no generated rounds")
        made = self.rounds.make(seed)
        if isinstance(made, Adversary):
            raise TypeError("an adversary has no rewards of its own")
        return made


def key(contender: Contender) -> str:
    """The key of a contender; one learner for all contexts differs from one per context."""
    return contender.key + "-one" * contender.label.endswith(ONE_CONTEXT)


@dataclass(frozen=True)
class FairnessTask:
    """One contender on the rounds of one seed."""

    world: World
    contender: Contender
    seed: int
    rounds: Stream | Adversary | None = field(default=None, compare=False, repr=False)  # None: make them

    def __reduce__(self) -> tuple[Any, ...]:
        return FairnessTask, (self.world, self.contender, self.seed)  # a worker elsewhere makes the rounds

    def __call__(self) -> pl.DataFrame:
        stream = self.rounds if isinstance(self.rounds, Stream) else self.world.rounds_of(self.seed)
        found = measured(self.contender, stream, self.seed, phases_of(self.world.rounds, stream))
        return pl.DataFrame({name: [value] for name, value in found._asdict().items()}, strict=False)


def measured(contender: Contender, stream: Stream, seed: int, phases: Any = None) -> Fairness:
    """Play a contender on a stream, and measure the run by every notion."""
    alone = contender.label.endswith(ONE_CONTEXT)
    given = replace(stream, contexts=np.zeros_like(stream.contexts), n_contexts=1) if alone else stream
    policy: Any = Recorder(contender.make(given, 0.0), stream.n_rounds, stream.n_contexts if alone else None)
    log = simulate(policy, stream, seed=seed, log=True, compiled=False).log
    probabilities: Matrix = policy.probabilities
    return fairness_of(stream, log.arms if log is not None else None, probabilities, phases=phases)


def phases_of(rounds: Rounds, stream: Stream) -> Any:
    """The phase of every round of a stream whose means change in phases; None otherwise."""
    if isinstance(rounds, Generated) and rounds.maker == "phases":
        return np.arange(stream.n_rounds) * dict(rounds.settings)["n_phases"] // stream.n_rounds
    return None


def _world(name: str, title: str, rounds: Rounds) -> World:
    return World(f"notions-{name}", title, rounds, CONTENDERS, (0.0,), n_seeds=N_SEEDS, n_records=1, optimum=False)


_SIZES = (("n_rounds", N_ROUNDS), ("n_contexts", 12), ("n_arms", 10))
WORLDS = Plan(
    (
        _world("stationary", "stationary", Generated("stationary", _SIZES)),
        _world("ratings", "ratings", Generated("movielens_small", n_first=N_ROUNDS)),
        _world("clicks", "clicks", Generated("sparse_clicks", (*_SIZES, ("rates", (0.0, 0.05)), ("best", None)))),
        _world("drift", "drift", Generated("phases", (*_SIZES, ("n_phases", N_PHASES)))),
    )
)


def smoke_plan() -> Plan:
    """A few policies on few rounds of every world."""
    return Plan(tuple(each.with_fewer() if isinstance(each, World) else each for each in WORLDS))


@dataclass(frozen=True)
class NotionRow:
    """The measures of one policy in one world, by seed; those that are not defined are left out."""

    label: str
    policy: str
    measures: Mapping[str, tuple[float, ...]]

    def mean(self, measure: str) -> float | None:
        values = self.measures.get(measure)
        return None if values is None else float(np.mean(values))


@dataclass(frozen=True)
class WorldResults(OnRounds):
    name: str
    rows: tuple[NotionRow, ...]

    def of(self, label: str) -> NotionRow:
        return next(row for row in self.rows if row.label == label)

    def cost(self, label: str, against: str = "adaptive 0") -> float:
        """The share of the reward of another policy, by default of alpha = 0, that this one loses."""
        ours, best = self.of(label).mean("reward"), self.of(against).mean("reward")
        return 1.0 - (ours or 0.0) / (best or 1.0)


@dataclass(frozen=True)
class NotionsResults:
    command: str
    versions: dict[str, str]
    worlds: tuple[WorldResults, ...]


def world_results(run: Run) -> WorldResults:
    """The measures of a world, from its tables."""
    experiment, stream = run.experiment, run.stream
    rows = []
    for contender in experiment.contenders:
        tables = [run.tables[f"{key(contender)}-{seed}"] for seed in range(experiment.n_seeds)]
        values = {name: tuple(table[name][0] for table in tables) for name in Fairness._fields}
        known = {name: tuple(map(float, each)) for name, each in values.items() if None not in each}
        rows.append(NotionRow(contender.label, contender.policy, known))
    return WorldResults(
        title=experiment.title,
        digest=run.digest,
        seeds=tuple(range(experiment.n_seeds)),
        n_rounds=stream.n_rounds,
        n_contexts=stream.n_contexts,
        n_arms=stream.n_arms,
        name=experiment.name.removeprefix("notions-"),
        rows=tuple(rows),
    )


def run_notions(
    folder: Path,
    *,
    smoke: bool = False,
    n_seeds: int | None = None,
    command: str = "alphafair notions",
    executor: Executor | None = None,
    progress: Progress = no_progress,
) -> NotionsResults:
    """Run every policy in every world that has not been run; `executor` and `progress` as in `run_plan`."""
    plan = smoke_plan() if smoke else WORLDS
    plan = plan if n_seeds is None else plan.with_seeds(n_seeds)
    runs = run_plan(plan, folder, executor=executor, progress=progress)
    return NotionsResults(command, versions(), tuple(map(world_results, runs)))


def write_notions(folder: Path, *, progress: Progress = no_progress, **options: Any) -> NotionsResults:
    """Run the benchmark, and write its page, its figures in three formats and results.json."""
    from alphafair.lab.notions_page import write_notions_page

    found = run_notions(folder / "runs", progress=progress, **options)
    write_notions_page(found, folder, progress)
    return found
