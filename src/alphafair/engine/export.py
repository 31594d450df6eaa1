"""The exploration log of an experiment, as a `Log` or as a file that any table library reads.

A file is written page by page, each read in a moment of its own: whoever takes it slowly holds up no checkpoint of the
write-ahead log. It is what the log said at one position all the same, since events are only ever added.
"""

from __future__ import annotations

import bisect
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from alphafair import validate
from alphafair.data.csv_text import marked
from alphafair.engine.events import Change
from alphafair.engine.ledger import Ledger
from alphafair.errors import InvalidArgument, RequestError
from alphafair.extras import polars as pl
from alphafair.values.available import ALL, AvailableArms, SetNumbers, unpacked

if TYPE_CHECKING:
    from alphafair.values import Log

FORMATS = ("parquet", "csv", "jsonl")
CHUNK = 20_000  # rows in memory at a time
ROWS = """select d.seq, d.id, ifnull(c.label, 'erased-' || d.context), d.arm, d.propensity, r.reward, r.rewards,
    r.source, d.at, r.at, d.policy_version, d.available from decision d
    left join reward r on r.decision = d.seq and r.seq <= ?3
    left join context c on c.experiment = d.experiment and c.number = d.context
    where d.experiment = ?1 and d.seq > ?2 and d.seq <= ?3 order by d.seq limit ?4"""


class Exported(Protocol):
    """What is asked of an experiment; no policy is needed, and only one that an experiment began with is loaded."""

    @property
    def key(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def full(self) -> bool: ...  # a reward per arm
    @property
    def changes(self) -> Sequence[Change]: ...


class DrawnAmong:
    """Which arms the decisions of an experiment were drawn among.

    Those that were live then, by the changes up to the decision's `policy_version`, less those that the request or
    `mask_arm` left out.
    """

    def __init__(self, experiment: Exported) -> None:
        created, *changes = list(experiment.changes)
        arms: list[str] = list(json.loads(created.body)["arms"])
        live = set(range(len(arms)) if created.state is None else _live_arms(created.state, len(arms)))
        self._since, epochs = [created.seq], [sorted(live)]
        for change in changes:
            if change.kind not in ("add_arm", "retire_arm"):
                continue
            arm = json.loads(change.body)["arm"]
            if change.kind == "add_arm":
                live.add(len(arms))
                arms.append(arm)
            else:
                live.discard(arm)
            self._since.append(change.seq)
            epochs.append(sorted(live))
        self.arms = tuple(arms)  # all that there ever were
        self._live = np.zeros((len(epochs), len(arms)), dtype=np.bool_)
        for row, numbers in zip(self._live, epochs, strict=True):
            row[numbers] = True

    def available(self, versions: Sequence[int], masks: Sequence[bytes | None]) -> AvailableArms:
        """Of decisions, from their `policy_version` and the mask that was written down with them."""
        keys, numbers = list(zip(versions, masks, strict=True)), SetNumbers(len(self.arms))
        different = dict.fromkeys(keys)
        found = numbers.add(np.array([self._drawn_among(*key) for key in different]))
        number = dict(zip(different, found.tolist(), strict=True))
        return AvailableArms(numbers.sets, np.array([number[key] for key in keys], dtype=np.int32))

    def _drawn_among(self, version: int, mask: bytes | None) -> NDArray[np.bool_]:
        live: NDArray[np.bool_] = self._live[bisect.bisect_right(self._since, version) - 1]
        return live if mask is None else live & unpacked(mask, len(self.arms))

    def lists(self, available: AvailableArms, format: str) -> pl.Series:
        """Their labels, in CSV as JSON arrays; null where every arm could be drawn that there ever was."""
        lists: list[Any] = [[self.arms[arm] for arm in np.flatnonzero(each)] for each in available.sets]
        if format == "csv":
            lists = [json.dumps(labels, ensure_ascii=False) for labels in lists]
        places = pl.Series(available.of_rounds).replace(ALL, None).cast(pl.UInt32)
        return pl.Series(lists, dtype=pl.String if format == "csv" else pl.List(pl.String)).gather(places)


def _live_arms(state: bytes, n_arms: int) -> Sequence[int]:
    """Those of the policy that an experiment began with: in files of older versions it may have retired some before."""
    from alphafair.algorithms import load_policy
    from alphafair.values import State

    try:
        return [int(arm) for arm in load_policy(State.from_bytes(state)).live_arms]
    except InvalidArgument:  # a policy that this process does not know, and that was never checked
        return range(n_arms)


def pages(ledger: Ledger, experiment: Exported, until: int, format: str) -> Iterator[pl.DataFrame]:
    """The decisions up to a position, some at a time; rewards per arm are a list under full information."""
    kinds, after, among = schema(experiment, format), 0, DrawnAmong(experiment)
    with ledger.reader() as reader:
        while rows := reader.rows(ROWS, (experiment.key, after, until, CHUNK)):
            after = rows[-1][0]
            columns = [list(column) for column in zip(*rows, strict=True)]
            seq, ids, contexts, arms, propensities, reward, rewards, *rest, versions, masks = columns
            if experiment.full:
                reward = [None if blob is None else np.frombuffer(blob, dtype="<f8").tolist() for blob in rewards]
            arms = [among.arms[arm] for arm in arms]
            available = among.lists(among.available(versions, masks), format)
            values = (seq, ids, contexts, arms, propensities, reward, *rest, versions, available)
            yield pl.DataFrame(dict(zip(kinds, values, strict=True)), schema_overrides=kinds, strict=False)


def schema(experiment: Exported, format: str) -> dict[str, Any]:
    """The columns of an exported log, which are the same however few rows there are."""
    time = pl.Datetime("us", "UTC")
    return {
        "seq": pl.Int64,
        "id": pl.String,
        "context": pl.String,
        "arm": pl.String,
        "propensity": pl.Float64,
        "reward": pl.List(pl.Float64) if experiment.full else pl.Float64,
        "reward_source": pl.String,
        "decided_at": time,
        "rewarded_at": time,
        "policy_version": pl.Int64,
        "available": pl.String if format == "csv" else pl.List(pl.String),
    }


def checked_format(experiment: Exported, format: str | None) -> str:
    """One that the log of this experiment can be written in."""
    format = validate.choice("format", format, FORMATS)
    if format == "csv" and experiment.full:
        repair = "Choose parquet or jsonl."
        raise RequestError("bad_request", "format", "one that has lists, for a reward per arm", format, repair)
    return format


def write(
    ledger: Ledger,
    experiment: Exported,
    until: int,
    target: str | os.PathLike[str] | IO[bytes],
    format: str | None = None,
) -> int:
    """All decisions up to a position into a file, page by page; how many there were."""
    if format is None and isinstance(target, str | os.PathLike):
        format = Path(target).suffix.lstrip(".").lower()
    format = checked_format(experiment, format)
    n_rows = 0

    def counted(*_: Any) -> Iterator[pl.DataFrame]:
        nonlocal n_rows
        for page in pages(ledger, experiment, until, format):
            n_rows += len(page)
            yield page

    if format == "parquet":
        sink = Path(target) if isinstance(target, str | os.PathLike) else target
        pl.io.plugins.register_io_source(counted, schema=schema(experiment, format)).sink_parquet(sink)
        return n_rows
    handle = open(target, "wb") if isinstance(target, str | os.PathLike) else target  # noqa: SIM115 - closed below, if ours
    try:
        if format == "csv":
            handle.write((",".join(schema(experiment, format)) + "\n").encode())
        for page in counted():
            if format == "csv":
                page = page.with_columns(marked(pl.col("id", "context", "arm")))
                page.write_csv(handle, include_header=False)
            else:
                page.write_ndjson(handle)
    finally:
        if handle is not target:
            handle.close()
    return n_rows


def log(ledger: Ledger, experiment: Exported) -> Log:
    """The decisions that have a reward, as arrays; under full information the reward of the arm that was drawn."""
    from alphafair.values import Log

    query = """select d.context, d.arm, {reward}, d.propensity, d.at, d.policy_version, d.available
        from decision d join reward r on r.decision = d.seq
        where d.experiment = ? and (r.reward is not null or r.rewards is not null) order by d.seq"""
    with ledger.reader() as reader:
        rows = reader.rows(query.format(reward="r.rewards" if experiment.full else "r.reward"), (experiment.key,))
        labels = reader.rows(
            "select ifnull(label, 'erased-' || number) from context where experiment = ? order by number",
            (experiment.key,),
        )
    if not rows:
        repair = "A log has decisions with rewards: wait for the first."
        raise RequestError("no_rewards", "experiment", "one that has rewards", experiment.name, repair)
    contexts, arms, rewards, propensities, at, versions, masks = (list(column) for column in zip(*rows, strict=True))
    among = DrawnAmong(experiment)
    if experiment.full:
        rewards = [np.frombuffer(blob, dtype="<f8")[arm] for blob, arm in zip(rewards, arms, strict=True)]
    return Log(
        np.array(contexts, dtype=np.int32),
        np.array(arms, dtype=np.int32),
        np.array(rewards, dtype=np.float64),
        np.array(propensities),
        context_labels=tuple(label for (label,) in labels),
        arm_labels=among.arms,
        timestamps=np.array(at, dtype="datetime64[us]"),
        available=among.available(versions, masks),
    )
