"""Learning from logs: a bootstrap against a NumPy loop over replicates, memory on a file of 100 million rows, accuracy.

`python -m benchmarks.bench_evaluation accuracy` prints bias, error and coverage of every estimator in several settings;
`... file ROWS` evaluates a Parquet file of so many rows, made for it, in a process of its own.
"""

from __future__ import annotations

import json
import math
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from alphafair import AlphaFairAdaptive, Log, Stream, offline_optimum, simulate
from alphafair.evaluation import ESTIMATORS, LogFile, evaluate
from alphafair.evaluation.estimate import METRICS, PLAIN
from benchmarks.table import Row, duration, faster
from benchmarks.timing import best, seconds

N_ROWS, N_REPLICATES, THEIRS = 1_000_000, 1000, 10  # the loop's replicates are timed on a few
N_CONTEXTS, N_ARMS = 33, 19
FILE_ROWS, LIMIT = 100_000_000, 1e9
N_LOGS = 200


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
    modelled = policy * means.reshape(policy.shape)

    def replicate() -> Any:
        drawn = rng.integers(0, log.n_rounds, log.n_rounds)
        earned = 1.0 + np.bincount(log.arms[drawn], own[drawn], minlength=N_ARMS)
        if estimator == "dr":
            earned += np.bincount(log.contexts[drawn], minlength=N_CONTEXTS) @ modelled
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


def settings() -> Iterator[tuple[str, int, float, Any, Any, Any, Any, bool]]:
    """Name, rounds, alpha, means, how often contexts come, logging policy, the policy asked about, adaptive logging."""
    for name, (n_contexts, n_arms), n_rounds, alpha, kind in (
        ("uneven logging", (4, 5), 2000, 0.9, "mixed"),
        ("fair policy, uneven logging", (4, 5), 2000, 0.9, "fair"),
        ("uniform logging", (20, 10), 5000, 0.5, "uniform"),
        ("rare clicks (thin)", (4, 5), 5000, 0.9, "rare"),
        ("logged by a learner", (4, 5), 4000, 0.9, "adaptive"),
    ):
        rng = np.random.default_rng(1)
        means = rng.uniform(0.2, 1.0, (n_contexts, n_arms)) if kind != "rare" else rng.uniform(0.005, 0.05, (4, 5))
        visits = rng.dirichlet(np.full(n_contexts, 5.0))
        logging = 0.8 * rng.dirichlet(np.full(n_arms, 2.0), n_contexts) + 0.2 / n_arms
        target = 0.9 * rng.dirichlet(np.full(n_arms, 0.7), n_contexts) + 0.1 / n_arms
        if kind == "uniform":
            logging = np.full_like(logging, 1.0 / n_arms)
        if kind in ("fair", "adaptive"):
            target = offline_optimum(n_rounds * visits[:, None] * means, alpha).distributions
            target = 0.8 * target + 0.2 / n_arms if kind == "adaptive" else target
        yield name, n_rounds, alpha, means, visits, logging, target, kind == "adaptive"


def drawn_log(rng: Any, n_rounds: int, means: Any, visits: Any, logging: Any, adaptive: bool) -> Log:
    n_contexts, n_arms = means.shape
    contexts = rng.choice(n_contexts, n_rounds, p=visits)
    if adaptive:
        rewards = (rng.random((n_rounds, n_arms)) < means[contexts]).astype(float)
        stream = Stream.from_arrays(contexts, rewards, n_contexts=n_contexts)
        policy = AlphaFairAdaptive(n_contexts, n_arms, alpha=0.0)
        found = simulate(policy, stream, seed=int(rng.integers(2**31)), log=True).log
        assert found is not None
        return found
    arms = np.minimum((rng.random(n_rounds)[:, None] > logging.cumsum(axis=1)[contexts]).sum(axis=1), n_arms - 1)
    rewards = (rng.random(n_rounds) < means[contexts, arms]).astype(float)
    return Log(contexts, arms, rewards, logging[contexts, arms], n_contexts=n_contexts, n_arms=n_arms)


def accuracy(n_logs: int = N_LOGS) -> None:
    """A table in markdown: for every setting and estimator the bias and root mean squared error, in per cent of the
    truth, of alpha-performance and average reward, and how often each 95% interval covers."""
    heads = ["setting", "estimator", *(f"{m}: bias, error" for m in ("Σφ", "average reward")), *METRICS]
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for name, n_rounds, alpha, means, visits, logging, target, adaptive in settings():
        earned = 1.0 + n_rounds * (visits[:, None] * target * means).sum(axis=0)
        truth = {metric: float(PLAIN[metric](earned, alpha)) for metric in METRICS}
        found: dict[str, list[Any]] = {estimator: [] for estimator in ESTIMATORS}
        for seed in range(n_logs):
            log = drawn_log(np.random.default_rng([7, seed]), n_rounds, means, visits, logging, adaptive)
            for estimator in ESTIMATORS:
                found[estimator].append(evaluate(log, target, alpha=alpha, estimator=estimator, n_replicates=300))
        for estimator, estimates in found.items():
            cells = []
            for metric in ("alpha_performance", "average_reward"):
                errors = np.array([getattr(each, metric).value / truth[metric] - 1.0 for each in estimates])
                errors = 100.0 * errors[np.isfinite(errors)]
                cells.append(f"{errors.mean():+.2f}, {math.sqrt((errors**2).mean()):.2f}")
            for metric in METRICS:
                inside = [getattr(e, metric).low <= truth[metric] <= getattr(e, metric).high for e in estimates]
                cells.append(f"{np.mean(inside):.1%}")
            print(f"| {name} | {estimator} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    job, *rest = sys.argv[1:]
    if job == "accuracy":
        accuracy(*map(int, rest))
    elif job == "make":
        make_file(*rest)
    elif job == "file":
        measure(lambda: LogFile(rest[0]))
    else:
        measure(lambda: random_log(int(rest[0])))
