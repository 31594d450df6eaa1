"""The exploration log of an experiment, as a `Log` or as a file that any table library reads."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import polars as pl

from alphafair import validate
from alphafair.engine.errors import Refused
from alphafair.engine.experiment import Experiment
from alphafair.engine.ledger import Ledger
from alphafair.types import Log

FORMATS = ("parquet", "csv", "jsonl")
CHUNK = 100_000  # rows in memory at a time
ROWS = """select d.seq, d.id, ifnull(c.label, 'erased-' || d.context), d.arm, d.propensity, r.reward, r.rewards,
    r.source, d.at, r.at, d.policy_version from decision d left join reward r on r.decision = d.seq
    left join context c on c.experiment = d.experiment and c.number = d.context
    where d.experiment = ? and d.seq > ? order by d.seq limit ?"""
TIME = pl.Datetime("us", "UTC")


def pages(ledger: Ledger, experiment: Experiment) -> Iterator[pl.DataFrame]:
    """The decisions of an experiment, some at a time; rewards per arm are a list under full information."""
    kinds, after = schema(experiment), 0
    with ledger.reader() as reader:
        while rows := reader.rows(ROWS, (experiment.key, after, CHUNK)):
            after = rows[-1][0]
            columns = [list(column) for column in zip(*rows, strict=True)]
            seq, ids, contexts, arms, propensities, reward, rewards, sources, decided, rewarded, versions = columns
            if experiment.full:
                reward = [None if blob is None else np.frombuffer(blob, dtype="<f8").tolist() for blob in rewards]
            arms = [experiment.arms[arm] for arm in arms]
            values = (seq, ids, contexts, arms, propensities, reward, sources, decided, rewarded, versions)
            yield pl.DataFrame(dict(zip(kinds, values, strict=True)), schema_overrides=kinds, strict=False)


def schema(experiment: Experiment) -> dict[str, Any]:
    """The columns of an exported log, which are the same however few rows there are."""
    return {
        "seq": pl.Int64,
        "id": pl.String,
        "context": pl.String,
        "arm": pl.String,
        "propensity": pl.Float64,
        "reward": pl.List(pl.Float64) if experiment.full else pl.Float64,
        "reward_source": pl.String,
        "decided_at": TIME,
        "rewarded_at": TIME,
        "policy_version": pl.Int64,
    }


def write(
    ledger: Ledger, experiment: Experiment, target: str | os.PathLike[str] | IO[bytes], format: str | None = None
) -> int:
    """All decisions into a file, page by page; how many there were."""
    if format is None and isinstance(target, str | os.PathLike):
        format = Path(target).suffix.lstrip(".").lower()
    format = validate.choice("format", format, FORMATS)
    if format == "csv" and experiment.full:
        repair = "Choose parquet or jsonl."
        raise Refused("bad_request", "format", "one that has lists, for a reward per arm", format, repair)
    n_rows = 0

    def counted(*_: Any) -> Iterator[pl.DataFrame]:
        nonlocal n_rows
        for page in pages(ledger, experiment):
            n_rows += len(page)
            yield page

    if format == "parquet":
        from polars.io.plugins import register_io_source

        sink = Path(target) if isinstance(target, str | os.PathLike) else target
        register_io_source(counted, schema=schema(experiment)).sink_parquet(sink)
        return n_rows
    handle = open(target, "wb") if isinstance(target, str | os.PathLike) else target  # noqa: SIM115 - closed below, if ours
    try:
        if format == "csv":
            handle.write((",".join(schema(experiment)) + "\n").encode())
        for page in counted():
            if format == "csv":
                page.write_csv(handle, include_header=False)
            else:
                page.write_ndjson(handle)
    finally:
        if handle is not target:
            handle.close()
    return n_rows


def log(ledger: Ledger, experiment: Experiment) -> Log:
    """The decisions that have a reward, as arrays; under full information the reward of the arm that was drawn."""
    query = """select d.context, d.arm, {reward}, d.propensity, d.at from decision d join reward r on r.decision = d.seq
        where d.experiment = ? and (r.reward is not null or r.rewards is not null) order by d.seq"""
    with ledger.reader() as reader:
        rows = reader.rows(query.format(reward="r.rewards" if experiment.full else "r.reward"), (experiment.key,))
        labels = reader.rows(
            "select ifnull(label, 'erased-' || number) from context where experiment = ? order by number",
            (experiment.key,),
        )
    if not rows:
        repair = "A log has decisions with rewards: wait for the first."
        raise Refused("no_rewards", "experiment", "one that has rewards", experiment.name, repair)
    contexts, arms, rewards, propensities, at = (list(column) for column in zip(*rows, strict=True))
    if experiment.full:
        rewards = [np.frombuffer(blob, dtype="<f8")[arm] for blob, arm in zip(rewards, arms, strict=True)]
    return Log(
        np.array(contexts, dtype=np.int32),
        np.array(arms, dtype=np.int32),
        np.array(rewards, dtype=np.float64),
        np.array(propensities),
        context_labels=tuple(label for (label,) in labels),
        arm_labels=tuple(experiment.arms),
        timestamps=np.array(at, dtype="datetime64[us]"),
    )
