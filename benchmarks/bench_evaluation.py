"""Learning from logs: a bootstrap against a NumPy loop over replicates, memory on a file of 100 million rows, accuracy.

`python -m benchmarks.bench_evaluation accuracy [LOGS [NAME]]` prints bias, error and coverage of every estimator in all
settings, or in those with such a name;
`... file ROWS` evaluates a Parquet file of so many rows, made for it, in a process of its own.
"""

from __future__ import annotations

import json
import math
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from alphafair import AlphaFairAdaptive, AlphaFairBandit, Log, Stream, offline_optimum, simulate
from alphafair.evaluation import ESTIMATORS, LogFile, evaluate, log_rows
from alphafair.evaluation.estimates import METRICS, PLUG_IN
from alphafair.evaluation.estimators import Scoring, score
from alphafair.jit import long_kernel
from benchmarks.table import Row, duration, faster
from benchmarks.timing import best, seconds

N_ROWS, N_REPLICATES, THEIRS = 1_000_000, 1000, 10  # the loop's replicates are timed on a few
N_CONTEXTS, N_ARMS = 33, 19
FILE_ROWS, LIMIT = 100_000_000, 1e9
N_LOGS = 1000  # tells 90% from 92%
NEVER_CUT = ("ips", "snips", "dr")


def rows() -> Iterator[Row]:
    log, policy = random_log(N_ROWS), np.random.default_rng(1).dirichlet(np.ones(N_ARMS), N_CONTEXTS)
    for estimator in ("ips", "dr"):
        evaluate(log, policy, estimator=estimator, n_replicates=100)  # compiles
        times = best(
            {
                "ours": lambda name=estimator: seconds(lambda: evaluate(log, policy, estimator=name)),
                "theirs": lambda name=estimator: numpy_loop(log, policy, name) * N_REPLICATES / THEIRS,
            },
            3,
        )
        job = f"evaluate, {estimator}: a million rows, 1,000 replicates"
        yield faster(job, times["ours"], "numpy, a loop over replicates", times["theirs"], 20)
    found = in_own_process("memory", str(N_ROWS))
    yield memory_row(f"evaluate, a million rows in memory, 1,000 replicates: {duration(found['seconds'])}", found)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.parquet"
        subprocess.run([sys.executable, "-m", "benchmarks.bench_evaluation", "make", str(path)], check=True)
        size = path.stat().st_size / 1e9
        found = in_own_process("file", str(path))
    yield memory_row(f"evaluate, 100 million rows in Parquet ({size:.2f} GB): {duration(found['seconds'])}", found)


def memory_row(job: str, found: dict[str, float]) -> Row:
    peak = found["bytes"]
    return Row(job, f"{peak / 1e9:.2f} GB", "peak memory", "1 GB", f"{peak / LIMIT:.2f}", "under 1 GB", peak < LIMIT)


def random_log(n_rows: int, seed: int = 0) -> Log:
    rng = np.random.default_rng(seed)
    contexts, arms = (rng.integers(0, n, n_rows).astype(np.int32) for n in (N_CONTEXTS, N_ARMS))
    return Log(contexts, arms, (rng.random(n_rows) < 0.3).astype(float), np.full(n_rows, 1.0 / N_ARMS))


def numpy_loop(log: Log, policy: Any, estimator: str) -> float:
    """Draw rows, add up what they say, arm by arm; scores are made before the loop, as anybody would."""
    rng = np.random.default_rng(0)
    weights = policy[log.contexts, log.arms] / log.propensities
    cells = np.ravel_multi_index((log.contexts, log.arms), policy.shape)
    counts = np.bincount(cells, minlength=policy.size)
    means = np.bincount(cells, log.rewards, minlength=policy.size) / np.maximum(counts, 1)
    own = weights * (log.rewards - means[cells]) if estimator == "dr" else weights * log.rewards
    modeled = policy * means.reshape(policy.shape)

    def replicate() -> Any:
        drawn = rng.integers(0, log.n_rounds, log.n_rounds)
        earned = 1.0 + np.bincount(log.arms[drawn], own[drawn], minlength=N_ARMS)
        if estimator == "dr":
            earned += np.bincount(log.contexts[drawn], minlength=N_CONTEXTS) @ modeled
        return earned

    return seconds(lambda: [replicate() for _ in range(THEIRS)])


def in_own_process(*arguments: str) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.bench_evaluation", *arguments]
    found: dict[str, float] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    return found


def make_file(path: str, n_rows: int = FILE_ROWS) -> None:
    """Rows of a random log, written piece by piece."""
    piece, folder = 5_000_000, Path(path).parent
    parts = []
    for first in range(0, n_rows, piece):
        log = random_log(min(piece, n_rows - first), seed=first)
        columns = {"context": log.contexts, "arm": log.arms, "reward": log.rewards, "propensity": log.propensities}
        parts.append(folder / f"part-{first}.parquet")
        pl.DataFrame(columns).write_parquet(parts[-1])
    pl.scan_parquet(parts).sink_parquet(path)
    for part in parts:
        part.unlink()


def measure(source: Any) -> None:
    policy = np.random.default_rng(1).dirichlet(np.ones(N_ARMS), N_CONTEXTS)
    taken = seconds(lambda: evaluate(source(), policy))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    print(json.dumps({"seconds": taken, "bytes": peak}))


# accuracy


class Setting(NamedTuple):
    """A world that logs are drawn from, and the policy asked about."""

    name: str
    n_rounds: int
    alpha: float
    means: Any
    visits: Any  # how often contexts come
    logging: Any
    target: Any
    learner: Any = None  # who logs, in place of `logging`: a policy, or how often an epsilon-greedy one explores
    purchases: float = 0.0  # one in three buys, for very different sums: the spread of their logarithms


def settings() -> Iterator[Setting]:
    for name, (n_contexts, n_arms), n_rounds, alpha, kind in (
        ("uneven logging", (4, 5), 2000, 0.9, "mixed"),
        ("fair policy, uneven logging", (4, 5), 2000, 0.9, "fair"),
        ("uniform logging", (20, 10), 5000, 0.5, "uniform"),
        ("one context", (1, 6), 800, 0.9, "mixed"),
        ("purchases", (5, 6), 8000, 0.9, 1.0),
        ("purchases, at the border", (5, 6), 4000, 0.9, 1.0),
        ("purchases, very uneven", (3, 4), 40_000, 0.9, 1.5),
        ("purchases, very uneven, fewer", (5, 6), 6000, 0.9, 1.5),
        ("rare clicks", (4, 5), 5000, 0.9, "mixed"),
        ("rare clicks, more rounds", (4, 5), 30_000, 0.9, "mixed"),
        ("rare clicks, logged by ε-greedy, at the border", (4, 5), 45_000, 0.9, constant(0.2)),
        ("logged by a fair learner", (4, 5), 4000, 0.9, "fair learner"),
        ("logged by a greedy learner", (4, 5), 4000, 0.9, "greedy learner"),
        ("logged by ε-greedy, ε = 0.1", (4, 5), 12_000, 0.9, constant(0.1)),
        ("logged by ε-greedy, ε = 0.3", (20, 5), 4000, 0.9, constant(0.3)),
        ("logged by ε-greedy, ε falls", (4, 5), 12_000, 0.9, lambda t: np.minimum(1.0, 5.0 / (t + 1.0) ** (1.0 / 3.0))),
    ):
        rng = np.random.default_rng(1)
        low, high = (0.005, 0.05) if name.startswith("rare clicks") else (0.2, 1.0)
        means = rng.uniform(low, high, (n_contexts, n_arms))
        visits = rng.dirichlet(np.full(n_contexts, 5.0))
        logging = 0.8 * rng.dirichlet(np.full(n_arms, 2.0), n_contexts) + 0.2 / n_arms
        target = 0.9 * rng.dirichlet(np.full(n_arms, 0.7), n_contexts) + 0.1 / n_arms
        learner = {"fair learner": AlphaFairBandit, "greedy learner": AlphaFairAdaptive}.get(kind)
        explores = kind if callable(kind) else None
        if kind == "uniform":
            logging = np.full_like(logging, 1.0 / n_arms)
        if kind == "fair" or learner or explores:
            target = offline_optimum(n_rounds * visits[:, None] * means, alpha).distributions
            target = target if kind == "fair" else 0.8 * target + 0.2 / n_arms
        policy = explores or (learner and learner(n_contexts, n_arms, alpha=0.9 if kind == "fair learner" else 0.0))
        purchases = kind if isinstance(kind, float) else 0.0
        yield Setting(name, n_rounds, alpha, means, visits, logging, target, policy, purchases)


def constant(epsilon: float) -> Callable[[Any], Any]:
    return lambda t: np.full(len(t), epsilon)


@long_kernel
def epsilon_greedy(contexts, rewards, explores, draws, counts, sums, arms, propensities):
    """Show the arm of the best mean so far in the context, first those not yet shown; with probability epsilon any."""
    n = rewards.shape[1]
    for t in range(len(contexts)):
        context, greedy = contexts[t], 0
        for arm in range(n):
            if counts[context, arm] == 0.0:
                greedy = arm
                break
            if sums[context, arm] * counts[context, greedy] > sums[context, greedy] * counts[context, arm]:
                greedy = arm
        arm = int(n * draws[t, 1]) if draws[t, 0] < explores[t] else greedy
        arms[t] = arm
        propensities[t] = explores[t] / n + (1.0 - explores[t] if arm == greedy else 0.0)
        counts[context, arm] += 1.0
        sums[context, arm] += rewards[t, arm]


def drawn_log(rng: Any, setting: Setting) -> Log:
    means, n_rounds = setting.means, setting.n_rounds
    n_contexts, n_arms = means.shape
    contexts = rng.choice(n_contexts, n_rounds, p=setting.visits)
    if setting.learner is not None:
        rewards = (rng.random((n_rounds, n_arms)) < means[contexts]).astype(float)
        if callable(setting.learner):
            arms, propensities = np.zeros(n_rounds, dtype=np.int64), np.zeros(n_rounds)
            explores, draws = setting.learner(np.arange(n_rounds)), rng.random((n_rounds, 2))
            epsilon_greedy(contexts, rewards, explores, draws, *np.zeros((2, *means.shape)), arms, propensities)
            shown = rewards[np.arange(n_rounds), arms]
            return Log(contexts, arms, shown, propensities, n_contexts=n_contexts, n_arms=n_arms)
        stream = Stream.from_arrays(contexts, rewards, n_contexts=n_contexts)
        found = simulate(setting.learner.fresh(), stream, seed=int(rng.integers(2**31)), log=True).log
        assert found is not None
        return found
    cumulative = setting.logging.cumsum(axis=1)[contexts]
    arms = np.minimum((rng.random(n_rounds)[:, None] > cumulative).sum(axis=1), n_arms - 1)
    rewards = (rng.random(n_rounds) < means[contexts, arms]).astype(float)
    if setting.purchases:
        sums = 3.0 * rng.lognormal(-(setting.purchases**2) / 2.0, setting.purchases, n_rounds)  # 3 on average
        rewards = (rng.random(n_rounds) < 1.0 / 3.0) * sums * means[contexts, arms]
    propensities = setting.logging[contexts, arms]
    return Log(contexts, arms, rewards, propensities, n_contexts=n_contexts, n_arms=n_arms)


def accuracy(n_logs: int = N_LOGS, only: str = "") -> None:
    """A table in markdown: for every setting, estimator and verdict that at least a thirtieth of the logs got, the bias
    and root mean squared error, in percent of the truth, and how often each 95% interval covers. "clipped" and
    "switch" are of the logs in which a weight is cut: in others they are "ips" and "dr"."""
    log_rows.MOST_CLUSTERS = 400  # random clusters have the spread of rows, and are faster
    heads = ["setting", "estimator", "verdict", *(f"{m}: bias, error" for m in ("Σφ", "average reward")), *METRICS]
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for setting in (each for each in settings() if only in each.name):
        target, alpha, weights = setting.target, setting.alpha, setting.visits[:, None]
        earned = 1.0 + setting.n_rounds * (weights * target * setting.means).sum(axis=0)
        truth = {metric: float(PLUG_IN[metric](earned, alpha)) for metric in METRICS}
        found: dict[Any, list[Any]] = {}
        for seed in range(n_logs):
            log = drawn_log(np.random.default_rng([7, seed]), setting)
            is_cut = score(log, [Scoring(target[None], ESTIMATORS["clipped"])])[0].cut.any()
            for estimator in ESTIMATORS if is_cut else NEVER_CUT:
                estimate = evaluate(log, target, alpha=alpha, estimator=estimator, n_replicates=200)
                found.setdefault((estimator, estimate.verdict), []).append(estimate)
        for (estimator, verdict), estimates in sorted(
            found.items(), key=lambda each: list(ESTIMATORS).index(each[0][0])
        ):
            if verdict == "do not use" or len(estimates) < n_logs / 30:
                continue
            cells = []
            for metric in ("alpha_performance", "average_reward"):
                errors = 100.0 * np.array([getattr(each, metric).value / truth[metric] - 1.0 for each in estimates])
                cells.append(f"{errors.mean():+.2f}, {math.sqrt((errors**2).mean()):.2f}")
            for metric in METRICS:
                inside = [getattr(e, metric).low <= truth[metric] <= getattr(e, metric).high for e in estimates]
                cells.append(f"{np.mean(inside):.1%}")
            judged = f"{verdict}, {len(estimates)} logs"
            print(f"| {setting.name} | {estimator} | {judged} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    job, *rest = sys.argv[1:]
    if job == "accuracy":
        accuracy(*(int(word) if word.isdecimal() else word for word in rest))
    elif job == "make":
        make_file(*rest)
    elif job == "file":
        measure(lambda: LogFile(rest[0]))
    else:
        measure(lambda: random_log(int(rest[0])))
