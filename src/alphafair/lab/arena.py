"""The arena: all policies in all scenarios, and how much of the gap to the optimum each closes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

from alphafair.lab import measure, paper
from alphafair.lab.plan import Contender, Experiment, Generated, Plan
from alphafair.lab.results import ArenaResults, Match
from alphafair.lab.runner import Progress, Run, no_progress, run_plan
from alphafair.pages import versions
from alphafair.values import Vector

ALPHAS = (0.0, 0.5, 0.9)
STEEP_ALPHAS = (1.0, 2.0, 5.0, math.inf)
ADAPTIVE = Contender("adaptive", "alpha-fair-adaptive", (("feedback", "bandit"),))
ADAPTIVE_FULL = Contender("adaptive", "alpha-fair-adaptive", (("feedback", "full"),))
GUARANTEED = Contender("guaranteed alone", "guaranteed-learner")
RIVAL = Contender("Frank-Wolfe UCB", "optimistic-frank-wolfe")
FAIR_CB, FAIR_CB_FULL = (replace(contender, label="FairCB") for contender in (paper.FAIR_CB, paper.FAIR_CB_FULL))
BANDIT = (ADAPTIVE, GUARANTEED, paper.ALPHA_FAIR_BANDIT, RIVAL, FAIR_CB, paper.SCALE_FREE, paper.UNIFORM_BANDIT)
FULL = (ADAPTIVE_FULL, paper.ALPHA_FAIR, paper.INDEPENDENT, paper.HEDGE, FAIR_CB_FULL, paper.UNIFORM)
MARGIN = 0.05  # of the gap: the adaptive policy may be below its guaranteed learner by so much

N_FEATURES, N_CLUSTERS = 8, 32
FEATURES = tuple(
    Contender(label, "alpha-fair-adaptive", (("feedback", feedback), *more))
    for feedback in ("bandit", "full")
    for label, more in (("features and clusters", (("n_features", N_FEATURES),)), ("clusters alone", ()))
)


def _grid(label: str, policy: str, short: str, **values: tuple[float, ...]) -> tuple[Contender, ...]:
    """A contender for every combination of settings; `short` are the settings in labels, as in "ε {epsilon}"."""
    found = []
    for chosen in product(*values.values()):
        settings = dict(zip(values, chosen, strict=True))
        found.append(Contender(f"{label}: {short.format(**settings)}", policy, tuple(settings.items())))
    return tuple(found)


WIDTHS = (0.002, 0.005, 0.02, 0.1, 0.3, 1.0)
TUNED = (
    *_grid(
        "ε-greedy",
        "fair-epsilon-greedy",
        "ε {epsilon:g}, prior {prior:g}",
        epsilon=(0.01, 0.03, 0.1),
        prior=(2.0, 10.0),
    ),
    *_grid("UCB", "fair-ucb", "{width:g}", width=WIDTHS),
    *_grid(
        "discounted UCB", "fair-discounted-ucb", "{width:g}, {discount:g}", width=WIDTHS[1:], discount=(0.999, 0.9999)
    ),
    *_grid("Thompson", "fair-thompson", "{scale:g}", scale=WIDTHS),
)
LIN_UCB = _grid(
    "LinUCB", "fair-lin-ucb", "{width:g}", n_features=(N_FEATURES,), width=(0.03, 0.1, 0.2, 0.3, 1.0, 2.0, 4.0)
)
N_SEEDS, N_SHORT_SEEDS, N_LARGE_SEEDS = 20, 100, 10  # short runs vary more, and large ones take long

SMALL = (("n_rounds", 30_000), ("n_contexts", 12), ("n_arms", 10))
LARGE = (("n_rounds", 100_000), ("n_contexts", 50), ("n_arms", 100))
MANY = (("n_rounds", 30_000), ("n_contexts", 300), ("n_arms", 19))
CLICKS = (("n_rounds", 100_000), ("n_contexts", 12), ("n_arms", 10))
FEW = (("n_rounds", 500), ("n_contexts", 5), ("n_arms", 5))
HUNDRED = (("n_rounds", 30_000), ("n_contexts", 10), ("n_arms", 100))
FORTY = (("n_rounds", 60_000), ("n_contexts", 30), ("n_arms", 40))
SEEN = (("n_rounds", 30_000), ("n_contexts", 6), ("n_arms", 10))


def _scenario(name: str, title: str, rounds: Generated, delay: int | None = None, n_seeds: int = N_SEEDS) -> Experiment:
    contenders, tuned = (FEATURES, (*TUNED, *LIN_UCB)) if rounds.n_clusters else ((*BANDIT, *FULL), TUNED)
    return Experiment(
        f"arena-{name}", title, rounds, contenders, ALPHAS, n_seeds=n_seeds, n_records=1, delay=delay, tuned=tuned
    )


SCENARIOS = Plan(
    (
        _scenario("ratings-5000", "ratings 5,000", Generated("movielens_small", n_first=5_000)),
        _scenario("ratings-20000", "ratings 20,000", Generated("movielens_small", n_first=20_000)),
        _scenario("ratings", "ratings, all", Generated("movielens_small")),
        _scenario("stationary-small", "stationary 12 x 10", Generated("stationary", SMALL)),
        _scenario("stationary-large", "stationary 50 x 100", Generated("stationary", LARGE), n_seeds=N_LARGE_SEEDS),
        _scenario("short", "500 rounds", Generated("stationary", FEW), n_seeds=N_SHORT_SEEDS),
        _scenario("hundred-arms", "stationary 10 x 100", Generated("stationary", HUNDRED), n_seeds=N_LARGE_SEEDS),
        _scenario("forty-arms", "stationary 30 x 40", Generated("stationary", FORTY), n_seeds=N_LARGE_SEEDS),
        _scenario("drift-slow", "drift, 6 phases", Generated("phases", (*SMALL, ("n_phases", 6)))),
        _scenario("drift-fast", "drift, 20 phases", Generated("phases", (*SMALL, ("n_phases", 20)))),
        _scenario("day-and-night", "day and night", Generated("day_and_night", SMALL)),
        _scenario("zipf-contexts", "zipf contexts", Generated("zipf_contexts", MANY)),
        _scenario("clicks-one-best", "clicks, one best", Generated("sparse_clicks", CLICKS)),
        _scenario(
            "clicks", "clicks 0 to 5%", Generated("sparse_clicks", (*CLICKS, ("rates", (0.0, 0.05)), ("best", None)))
        ),
        _scenario("purchases", "purchases", Generated("purchases", CLICKS)),
        _scenario("lognormal", "lognormal rewards", Generated("lognormal_rewards", SMALL)),
        _scenario("pareto", "Pareto rewards", Generated("pareto_rewards", SMALL)),
        _scenario(
            "impossibility", "impossibility", Generated("impossibility", (("n_half", 5_000), ("reward_floor", 0.2)))
        ),
        _scenario("tiny", "tiny rewards", Generated("stationary", SMALL, reward_scale=2.0**-20)),
        _scenario("late-100", "100 rounds late", Generated("stationary", SMALL), delay=100),
        _scenario("late-1000", "1,000 rounds late", Generated("stationary", SMALL), delay=1_000),
        _scenario("ratings-late", "ratings, 10 late", Generated("movielens_small", n_first=20_000), delay=10),
        _scenario("settled", "settled lowered", Generated("adversary", (("kind", "settled"), *SEEN))),
        _scenario("largest", "largest p lowered", Generated("adversary", (("kind", "largest"), *SEEN))),
        _scenario("halving", "favorite halved", Generated("adversary", (("kind", "halving"), *SEEN))),
    )
)
FEATURE_SCENARIOS = Plan(
    tuple(
        _scenario(f"described-{kind}", title, Generated("described", settings, n_clusters=N_CLUSTERS))
        for kind, title, n_rounds in (
            ("linear", "linear", 30_000),
            ("changing", "changing halfway", 30_000),
            ("quadratic", "quadratic", 30_000),
            ("clusters", "hidden clusters", 30_000),
            ("clicks", "sparse clicks", 60_000),
        )
        for settings in [(("kind", kind), ("n_rounds", n_rounds), ("n_arms", 10), ("n_features", N_FEATURES))]
    )
)
STEEP = ("ratings-5000", "ratings-20000", "stationary-small", "drift-slow")
STEEP_SCENARIOS = Plan(
    tuple(
        replace(each, name=f"arena-steep-{name}", alphas=STEEP_ALPHAS)
        for name in STEEP
        for each in SCENARIOS
        if each.name == f"arena-{name}"
    )
)
DYING_ARMS = (("n_arms", 10), ("n_rounds", 40_000))
DYING_SCENARIOS = Plan(  # the lengths of the phases depend on alpha, so each alpha has its own rounds
    tuple(
        Experiment(
            f"arena-dying-arms-{alpha:g}",
            f"dying arms, \u03b1 = {alpha:g}",
            Generated("dying_arms", (*DYING_ARMS, ("alpha", alpha))),
            (*BANDIT, *FULL),
            (alpha,),
            n_seeds=N_SEEDS,
            n_records=1,
        )
        for alpha in STEEP_ALPHAS
    )
)
SLATE_ALPHAS = (0.5, 1.0)
ONE_BY_ONE = Contender("drawn one by one", "adaptive-one-by-one")
SLATE_BANDIT = (ADAPTIVE, ONE_BY_ONE, paper.ALPHA_FAIR_BANDIT, paper.UNIFORM_BANDIT)
SLATE_FULL = (ADAPTIVE_FULL, paper.ALPHA_FAIR, paper.UNIFORM)
SLATE_TUNED = tuple(each for each in TUNED if each.policy != "fair-discounted-ucb")
N_SLATE_SEEDS = {"ratings-5000": 40, "short": 24}  # 12 elsewhere
TWENTY = (("n_contexts", 20), ("n_arms", 10))
SLATE_ROUNDS = {
    "ratings-5000": ("ratings 5,000", Generated("movielens_small", n_first=5_000)),
    "ratings-20000": ("ratings 20,000", Generated("movielens_small", n_first=20_000)),
    "stationary": ("stationary 20 x 10", Generated("stationary", (("n_rounds", 20_000), *TWENTY))),
    "drift": ("drift, 4 phases", Generated("phases", (("n_rounds", 20_000), *TWENTY, ("n_phases", 4)))),
    "clicks": (
        "clicks, one best",
        Generated(
            "sparse_clicks",
            (("n_rounds", 60_000), ("n_contexts", 10), ("n_arms", 10), ("rates", (0.002, 0.01)), ("best", 0.03)),
        ),
    ),
    "short": ("500 rounds", Generated("stationary", (("n_rounds", 500), ("n_contexts", 5), ("n_arms", 10)))),
    "lognormal": ("lognormal rewards", Generated("lognormal_rewards", (("n_rounds", 30_000), *TWENTY))),
}


def slate_scenarios(k: int) -> Plan:
    """The scenarios in which every decision shows k arms; 100% is the best fixed policy of such slates."""
    return Plan(
        tuple(
            Experiment(
                f"arena-{name}-{k}",
                title,
                rounds,
                (*SLATE_BANDIT, *SLATE_FULL),
                SLATE_ALPHAS,
                n_seeds=N_SLATE_SEEDS.get(name, 12),
                n_records=1,
                tuned=SLATE_TUNED,
                k=k,
            )
            for name, (title, rounds) in SLATE_ROUNDS.items()
        )
    )


NOT_IN_REPORT = (
    *("ratings", "stationary-large", "short", "hundred-arms", "forty-arms"),
    *("purchases", "lognormal", "pareto"),
)
SHORT = Plan(  # for the report: bandit feedback at the paper's alpha, without the longest and the late scenarios
    tuple(
        replace(each, contenders=BANDIT, tuned=(), alphas=paper.BANDIT_FEEDBACK.alphas, n_seeds=5)
        for each in SCENARIOS
        if each.delay is None and each.name.removeprefix("arena-") not in NOT_IN_REPORT
    )
)


def match(run: Run) -> Match:
    """The results of one scenario, with the promises where an adversary plays; one seed cannot decide those."""
    source = run.experiment.rounds
    is_adversary = isinstance(source, Generated) and source.maker == "adversary"
    return measure.match(run, dict(promises(run)) if is_adversary and run.experiment.n_seeds > 1 else {})


def promises(run: Run) -> Iterator[tuple[str, Vector]]:
    """How far the adaptive policy is above each limit against an adversary that sees the distribution, by seed.

    The limits are its guaranteed learner alone, less a margin, and the paper's bandit policy, each against the same
    adversary.
    """
    for alpha in run.experiment.alphas:
        ours, _ = measure.gap_closed_by_seed(run, ADAPTIVE, alpha)
        for other, margin in ((GUARANTEED, MARGIN), (paper.ALPHA_FAIR_BANDIT, 0.0)):
            theirs, _ = measure.gap_closed_by_seed(run, other, alpha)
            if ours is None or theirs is None:
                continue  # no gap to close
            less = f" less {margin:.0%} of the gap" if margin else ""
            yield f"above {other.label}{less} at \u03b1 = {alpha:g}", ours - theirs + margin


def run_arena(
    folder: Path,
    *,
    smoke: bool = False,
    n_seeds: int | None = None,
    k: int | None = None,
    command: str = "alphafair arena",
    executor: Executor | None = None,
    progress: Progress = no_progress,
) -> ArenaResults:
    """Run every scenario that has not been run; `executor` and `progress` as in `run_plan`.

    With `k` those of `slate_scenarios`. Scenarios with features need scikit-learn for clusters, and are left out where
    it is not installed.
    """
    play = partial(run_plan, folder=folder, executor=executor, progress=progress)

    def matches(plan: Plan) -> tuple[Match, ...]:
        plan = plan.smoke() if smoke else plan
        return tuple(map(match, play(plan if n_seeds is None else plan.with_seeds(n_seeds))))

    if k is not None:
        return ArenaResults(command, versions(), SLATE_ALPHAS, matches(slate_scenarios(k)), (), k=k)
    with_features = matches(FEATURE_SCENARIOS) if find_spec("sklearn") is not None else ()
    steep, dying = matches(STEEP_SCENARIOS), matches(DYING_SCENARIOS)
    return ArenaResults(command, versions(), ALPHAS, matches(SCENARIOS), with_features, steep, dying)


def write_arena(folder: Path, *, progress: Progress = no_progress, **options: Any) -> ArenaResults:
    """Run the arena, and write its page, its figure in three formats and results.json; options as in `run_arena`."""
    from alphafair.lab.report import write_arena_page

    found = run_arena(folder / "runs", progress=progress, **options)
    write_arena_page(found, folder, progress)
    return found
