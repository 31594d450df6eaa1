"""Running experiments: parts are written as they are done, so a stopped run goes on where it was.

A part is one contender at one alpha, all seeds: the cumulative rewards of every arm at every recorded round, as a
Parquet file in a folder named by the experiment's digest. Kernels release the GIL, so threads use all cores.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from alphafair.experiments.value import Contender, Experiment, stream_digest
from alphafair.offline import offline_curve
from alphafair.simulation import simulate
from alphafair.types import Feedback, Stream, Vector


class Part(NamedTuple):
    """What one contender did at one alpha: R by seed, recorded round and arm, and pulls by seed and arm."""

    rounds: NDArray[np.int64]
    rewards: Vector
    pulls: Vector


@dataclass(frozen=True)
class Ran:
    """An experiment with its stream and the folder of its parts."""

    experiment: Experiment
    stream: Stream
    digest: str
    folder: Path

    def part(self, contender: Contender, alpha: float) -> Part:
        return read_part(self._path(contender, alpha))

    def feedback(self, contender: Contender) -> Feedback:
        return contender.make(self.stream, self.experiment.alphas[0]).feedback

    def _path(self, contender: Contender, alpha: float) -> Path:
        key = hashlib.sha256(json.dumps([asdict(contender), alpha], sort_keys=True).encode()).hexdigest()[:12]
        return self.folder / f"{key}.parquet"

    def optimum(self, alpha: float) -> tuple[Vector, Vector]:
        """The certified optimum of every recorded prefix, with its gaps."""
        path = self.folder / f"optimum-{alpha:g}.parquet"
        if not path.exists():
            rounds = record_rounds(self.stream.n_rounds, self.experiment.n_records)
            values, gaps = offline_curve(self.stream, alpha, rounds)
            _write(pl.DataFrame({"round": rounds, "value": values, "gap": gaps}), path)
        table = pl.read_parquet(path)
        return table["value"].to_numpy(), table["gap"].to_numpy()


def record_every(n_rounds: int, n_records: int) -> int:
    return -(-n_rounds // n_records)


def record_rounds(n_rounds: int, n_records: int) -> NDArray[np.int64]:
    """The rounds that `simulate` records: every so many, and the last."""
    every = record_every(n_rounds, n_records)
    return np.minimum(np.arange(1, -(-n_rounds // every) + 1) * every, n_rounds)


def run(
    experiment: Experiment,
    stream: Stream,
    folder: Path,
    *,
    jobs: int | None = None,
    advance: Callable[[int], None] = lambda parts: None,
) -> Ran:
    """Run what has not been run; `advance` is told of every part that is there."""
    digest = experiment.digest(stream_digest(stream))
    ran = Ran(experiment, stream, digest, folder / f"{experiment.name}-{digest}")
    ran.folder.mkdir(parents=True, exist_ok=True)
    (ran.folder / "experiment.json").write_text(json.dumps(asdict(experiment), indent=2, sort_keys=True) + "\n")
    with ThreadPoolExecutor(max_workers=jobs or os.cpu_count()) as pool:
        futures = []
        for contender in experiment.contenders:
            for alpha in experiment.alphas:
                if ran._path(contender, alpha).exists():
                    advance(1)
                else:
                    futures.append(pool.submit(_run_part, ran, contender, alpha))
        try:
            for future in as_completed(futures):
                future.result()
                advance(1)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return ran


def _run_part(ran: Ran, contender: Contender, alpha: float) -> None:
    experiment, stream = ran.experiment, ran.stream
    policy = contender.make(stream, alpha)
    every = record_every(stream.n_rounds, experiment.n_records)
    frames = []
    for seed in experiment.seeds(policy.feedback):
        trace = simulate(policy.fresh(), stream, seed=seed, record_every=every)
        n_records, n_arms = trace.cumulative_rewards.shape
        frames.append(
            pl.DataFrame(
                {
                    "seed": np.full(n_records * n_arms, seed, dtype=np.int32),
                    "round": np.repeat(trace.rounds, n_arms),
                    "arm": np.tile(np.arange(n_arms, dtype=np.int32), n_records),
                    "reward": trace.cumulative_rewards.ravel(),
                    "pulls": np.tile(trace.pulls, n_records),
                }
            )
        )
    _write(pl.concat(frames), ran._path(contender, alpha))


def read_part(path: Path) -> Part:
    table = pl.read_parquet(path)
    rounds = table["round"].unique(maintain_order=True).to_numpy()
    n_seeds, n_arms = table["seed"].n_unique(), table["arm"].n_unique()
    shape = (n_seeds, len(rounds), n_arms)
    pulls = table["pulls"].to_numpy().reshape(shape)[:, -1].astype(np.float64)
    return Part(rounds, table["reward"].to_numpy().reshape(shape), pulls)


def _write(table: pl.DataFrame, path: Path) -> None:
    """All of the file or nothing of it."""
    partial = path.with_suffix(f".{os.getpid()}.part")
    table.write_parquet(partial)
    partial.replace(path)


def plain(band: Any) -> dict[str, Any]:
    """A `metrics.Band` as JSON has it."""
    return {key: np.asarray(value).tolist() for key, value in band._asdict().items()}
