"""The exploration log of an experiment, as a `Log` or as a file that any table library reads.

A file is written page by page, each page read in a transaction of its own: a slow consumer does not hold up checkpoints
of the write-ahead log. It is the log at one position all the same, since events are only ever added.

`alphafair.jobs` runs an `ExportJob` in a process of its own, which takes no time of Python from a service.
"""

from __future__ import annotations

import bisect
import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from alphafair import validate
from alphafair.engine.addresses import open_store
from alphafair.engine.store import questions
from alphafair.engine.store.ledger import Change, Store
from alphafair.engine.store.slates import Slate
from alphafair.errors import InvalidArgument, RequestError
from alphafair.extras import polars as pl
from alphafair.values.available import ALL, AvailableArms, SetNumbers, unpacked
from alphafair.values.features import FEATURE, FeatureSchema

if TYPE_CHECKING:
    from alphafair.values import Log

FORMATS = ("parquet", "csv", "jsonl")
PAGE_ROWS = 20_000  # in memory at a time


class Exported(Protocol):
    """What an export needs of an experiment; no policy, so that nothing is compiled."""

    @property
    def key(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def full(self) -> bool: ...  # a reward per arm
    @property
    def has_slates(self) -> bool: ...  # whether decisions show several arms
    @property
    def has_sources(self) -> bool: ...  # whether others have decided, too
    @property
    def changes(self) -> Sequence[Change]: ...


class ArmsOverTime:
    """Which arms the decisions of an experiment were drawn among.

    Those that were live by the changes up to the decision's `policy_version`, less those that the request or `mask_arm`
    left out.
    """

    def __init__(self, experiment: Exported) -> None:
        created, *changes = list(experiment.changes)
        arms: list[str] = list(json.loads(created.body)["arms"])
        live = set(range(len(arms)) if created.state is None else _live_arms(created.state, len(arms)))
        self._since, epochs = [created.position], [sorted(live)]
        for change in changes:
            if change.kind not in ("add_arm", "retire_arm"):
                continue
            arm = json.loads(change.body)["arm"]
            if change.kind == "add_arm":
                live.add(len(arms))
                arms.append(arm)
            else:
                live.discard(arm)
            self._since.append(change.position)
            epochs.append(sorted(live))
        self.labels = tuple(arms)  # all arms that there ever were
        self._live = np.zeros((len(epochs), len(arms)), dtype=np.bool_)
        for row, numbers in zip(self._live, epochs, strict=True):
            row[numbers] = True

    def available(self, versions: Sequence[int], masks: Sequence[bytes | None]) -> AvailableArms:
        """Return the available arms of decisions, from their `policy_version` and logged mask."""
        keys, numbers = list(zip(versions, masks, strict=True)), SetNumbers(len(self.labels))
        different = dict.fromkeys(keys)
        found = numbers.add(np.array([self._drawn_among(*key) for key in different]))
        number = dict(zip(different, found.tolist(), strict=True))
        return AvailableArms(numbers.sets, np.array([number[key] for key in keys], dtype=np.int32))

    def _drawn_among(self, version: int, mask: bytes | None) -> NDArray[np.bool_]:
        live: NDArray[np.bool_] = self._live[bisect.bisect_right(self._since, version) - 1]
        return live if mask is None else live & unpacked(mask, len(self.labels))

    def column(self, available: AvailableArms, format: str) -> pl.Series:
        """Return lists of labels, in CSV as JSON arrays; null where every arm was available that there ever was."""
        lists: list[Any] = [[self.labels[arm] for arm in np.flatnonzero(each)] for each in available.sets]
        if format == "csv":
            lists = [json.dumps(labels, ensure_ascii=False) for labels in lists]
        places = pl.Series(available.of_rounds).replace(ALL, None).cast(pl.UInt32)
        return pl.Series(lists, dtype=pl.String if format == "csv" else pl.List(pl.String)).gather(places)


def _live_arms(state: bytes, n_arms: int) -> Sequence[int]:
    """Return the live arms of the policy that an experiment started with: older versions accepted retired ones."""
    from alphafair.algorithms import load_policy
    from alphafair.values import State

    try:
        return [int(arm) for arm in load_policy(State.from_bytes(state)).live_arms]
    except InvalidArgument:  # a policy that is not registered in this process
        return range(n_arms)


def features_of(experiment: Exported) -> FeatureSchema | None:
    """Return the features that decisions have, if any."""
    declared = json.loads(experiment.changes[0].body).get("features")
    return None if declared is None else FeatureSchema(declared)


def _period_numbers(experiment: Exported) -> Callable[[int], int]:
    """Return the function from the position of a reward to the number of the period whose books it is in."""
    begun = [change for change in experiment.changes if change.kind == "new_period"]
    since = [change.position for change in begun]
    numbers = [0, *(int(json.loads(change.body)["period"]) for change in begun)]
    return lambda position: numbers[bisect.bisect_right(since, position)]


def read_log(store: Store, experiment: Exported, latest: int | None = None, source: str | None = None) -> Log:
    """Return the decisions that have a reward, as arrays; under full information with the reward of the drawn arm.

    They are those of the policy, or of another `source`, whose propensities are nan where they are unknown. With
    `latest`, only so many of them, the last ones.
    """
    from alphafair.values import Log

    with store.reader() as reader:
        rows = questions.rewarded(reader, experiment.key, latest, source)
        labels = questions.labels(reader, experiment.key)
    parted = experiment.has_slates or experiment.full
    seen = [shown for number, row in enumerate(rows) for shown in _shown(number, row)] if parted else rows
    if not seen:
        repair = "Wait for the first reward: a log has decisions with rewards only."
        if source is not None:
            raise RequestError("no_rewards", "source", "one whose decisions have rewards", source, repair)
        raise RequestError("no_rewards", "experiment", "one that has rewards", experiment.name, repair)
    contexts, arms, rewards, slots, propensities, at, versions, masks, features, buckets, _, decisions = zip(
        *seen, strict=True
    )
    over_time, others, declared = ArmsOverTime(experiment), dict[str, Any](), features_of(experiment)
    if declared is not None:
        numbers = np.frombuffer(b"".join(features), dtype="<f8").reshape(-1, len(declared.names))
        others["features"] = declared.encoded(numbers)
    if source is not None and None not in buckets:  # decisions of one unit depend on each other
        others["users"] = np.array(buckets, dtype=np.int64)
    if experiment.has_slates:
        others |= {"positions": np.array(slots, dtype=np.int32), "decisions": np.array(decisions, dtype=np.int32)}
    return Log(
        np.array(contexts, dtype=np.int32),
        np.array(arms, dtype=np.int32),
        np.array(rewards, dtype=np.float64),
        np.array(propensities) if source is None else np.array([each or np.nan for each in propensities]),
        context_labels=tuple(labels),
        arm_labels=over_time.labels,
        timestamps=np.array(at, dtype="datetime64[us]"),
        available=over_time.available(versions, masks) if source is None else None,
        **others,
    )


def _shown(number: int, row: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """Yield the shown arms of a row of `questions.rewarded`, or none if the reward of one is missing.

    A row of it has the arm's reward, then its slot in place of all rewards, and the number of the decision at the end.
    The propensity of an arm of a slate is that of its slot, as slots are shuffled: its own divided by their number.
    """
    context, arm, reward, found, propensity, *rest, blob, _ = row
    slate = Slate(1, (arm,), (propensity,)) if blob is None else Slate.from_bytes(blob)
    if found is None:
        rewards = [reward]
    elif isinstance(found, bytes):
        rewards = np.frombuffer(found, dtype="<f8")[list(slate.arms)].tolist()
    else:
        rewards = list(found)
    if not np.isnan(rewards).any():
        for slot, (each, p) in enumerate(zip(slate.arms, slate.propensities, strict=True)):
            yield context, each, rewards[slot], slot + 1, p / len(slate.arms), *rest, blob, number


def checked_format(experiment: Exported, format: str | None) -> str:
    """Return a format that the log of this experiment can be written in."""
    format = validate.choice("format", format, FORMATS)
    if format == "csv" and experiment.full:
        repair = "Use parquet or jsonl."
        raise RequestError("bad_request", "format", "one that has lists, for a reward per arm", format, repair)
    return format


def schema(experiment: Exported, format: str) -> dict[str, Any]:
    """Return the columns of an exported log and their types, which do not depend on its rows.

    Where others have decided, too, `source` is who did, and null for the policy; their `propensity` is null if it is
    unknown, and so is `available`.
    Where decisions show several arms, a row is a shown arm, its slot of k, and the probability that it is in this slot.
    """
    time = pl.Datetime("us", "UTC")
    of_slates = {"slot": pl.Int64, "k": pl.Int64} if experiment.has_slates else {}
    return {
        "seq": pl.Int64,
        "id": pl.String,
        "context": pl.String,
        "arm": pl.String,
        "propensity": pl.Float64,
        **of_slates,
        "reward": pl.List(pl.Float64) if experiment.full else pl.Float64,
        "reward_source": pl.String,
        "decided_at": time,
        "rewarded_at": time,
        "period": pl.Int64,
        "policy_version": pl.Int64,
        "available": pl.String if format == "csv" else pl.List(pl.String),
        **({"source": pl.String, "bucket": pl.Int64} if experiment.has_sources else {}),
        **_feature_types(features_of(experiment)),
    }


def _feature_types(declared: FeatureSchema | None) -> dict[str, Any]:
    """Return a column per feature: numbers, or labels."""
    kinds = {} if declared is None else declared.declared
    return {FEATURE + name: pl.Float64 if isinstance(kind, str) else pl.String for name, kind in kinds.items()}


def _feature_columns(declared: FeatureSchema, blobs: Sequence[bytes]) -> list[list[Any]]:
    """Return the values of every feature: None where one is missing."""
    values = [declared.values(np.frombuffer(blob, dtype="<f8")) for blob in blobs]
    return [[each[name] for each in values] for name in declared.names]


def pages(store: Store, experiment: Exported, until: int, format: str) -> Iterator[pl.DataFrame]:
    """Yield the decisions up to a position, some at a time; under full information rewards are lists."""
    columns, after, over_time = schema(experiment, format), 0, ArmsOverTime(experiment)
    number_of, declared = _period_numbers(experiment), features_of(experiment)
    with store.reader() as reader:
        while rows := questions.exported(reader, experiment.key, after, until, PAGE_ROWS):
            begin, after = after, rows[-1][0]
            of_slates: tuple[list[int], ...] = ()
            if experiment.has_slates:
                settled_at = questions.settlements(reader, experiment.key, begin, after, until)
                shown = [each for row in rows for each in _slots(row, settled_at.get(row[-1], []))]
                rows, of_slates = [row for *_, row in shown], ([slot for slot, *_ in shown], [k for _, k, _ in shown])
            values = [list(column) for column in zip(*rows, strict=True)]
            seq, ids, contexts, arms, propensities, reward, rewards, *rest, settled, versions, masks, _, _ = values
            if experiment.full:
                of_arms = zip(reward, rewards, arms, strict=True)
                reward = [_list_of(*each, len(over_time.labels)) for each in of_arms]
            arms = [over_time.labels[arm] for arm in arms]
            period = [None if value is None else number_of(at) for value, at in zip(reward, settled, strict=True)]
            available = over_time.column(over_time.available(versions, masks), format)
            features: list[list[Any]] = []
            if declared is not None:
                blobs = questions.decided_features(reader, experiment.key, begin, after)
                features = _feature_columns(declared, [blobs[position] for position in seq])
            of_sources: tuple[list[Any], ...] = ()
            if experiment.has_sources:
                made_by = questions.decided_by(reader, experiment.key, begin, after)
                sources, buckets = map(list, zip(*(made_by.get(each, (None, None)) for each in seq), strict=True))
                of_sources = sources, buckets
                propensities = [each or None for each in propensities]
                available = available.to_frame("a").select(pl.when(pl.Series(sources).is_null()).then("a")).to_series()
            page = (seq, ids, contexts, arms, propensities, *of_slates, reward, *rest, period, versions, available)
            page += of_sources
            yield pl.DataFrame(
                dict(zip(columns, (*page, *features), strict=True)), schema_overrides=columns, strict=False
            )


def _list_of(reward: float | None, rewards: bytes | None, arm: int, n_arms: int) -> list[float | None] | None:
    """Return the rewards of all arms; of the decision of another source, only that of the shown one is known."""
    if rewards is not None:
        found: list[float | None] = np.frombuffer(rewards, dtype="<f8").tolist()
        return found
    return None if reward is None else [reward if number == arm else None for number in range(n_arms)]


def _slots(row: tuple[Any, ...], settled: Sequence[questions.Settlement]) -> Iterator[tuple[int, int, tuple[Any, ...]]]:
    """Yield slot, k and the row of every shown arm of a decision, a row of `questions.exported`."""
    *start, _, _, reward, rewards, source, at, rewarded_at, position, version, mask, blob, event = row
    if blob is None:
        yield 1, 1, row
        return
    slate = Slate.from_bytes(blob)
    k = len(slate.arms)
    for slot, (each, p) in enumerate(zip(slate.arms, slate.propensities, strict=True)):
        end: tuple[Any, ...] = reward, rewards, source, at, rewarded_at, position  # those of the decision
        for settlement in settled:
            if np.isnan(settlement.rewards).all() or not np.isnan(settlement.rewards[slot]):  # closed, or rewarded
                found = float(settlement.rewards[slot])
                mine = None if np.isnan(found) else found
                end = mine, rewards, settlement.source, at, settlement.at, settlement.position
                break
        yield slot + 1, k, (*start, each, p / k, *end, version, mask, blob, event)


def write_log(
    store: Store,
    experiment: Exported,
    until: int,
    target: str | os.PathLike[str] | IO[bytes],
    format: str | None = None,
) -> int:
    """Write all decisions up to a position into a file, page by page; return how many there were."""
    if format is None and isinstance(target, str | os.PathLike):
        format = Path(target).suffix.lstrip(".").lower()
    format = checked_format(experiment, format)
    n_rows = 0

    def counted(*_: Any) -> Iterator[pl.DataFrame]:
        nonlocal n_rows
        for page in pages(store, experiment, until, format):
            n_rows += len(page)
            yield page

    if format == "parquet":
        sink = Path(target) if isinstance(target, str | os.PathLike) else target
        pl.io.plugins.register_io_source(counted, schema=schema(experiment, format)).sink_parquet(sink)
    elif isinstance(target, str | os.PathLike):
        with open(target, "wb") as file:
            _write_text(counted(), schema(experiment, format), file, format)
    else:
        _write_text(counted(), schema(experiment, format), target, format)
    return n_rows


def _write_text(found: Iterator[pl.DataFrame], columns: dict[str, Any], file: IO[bytes], format: str) -> None:
    from alphafair.tables import escape_formulas

    labels = [name for name, kind in columns.items() if name.startswith(FEATURE) and kind == pl.String]
    texts = ["id", "context", "arm", *(["source"] if "source" in columns else []), *labels]
    if format == "csv":
        pl.DataFrame(schema=columns).write_csv(file)  # names may need quotes
    for page in found:
        if format == "csv":
            page.with_columns(escape_formulas(pl.col(texts))).write_csv(file, include_header=False)
        else:
            page.write_ndjson(file)


class ExportJob(NamedTuple):
    """What to export, and up to which position."""

    address: str  # may have a password
    name: str
    experiment: int
    full: bool
    until: int
    format: str
    has_slates: bool = False
    has_sources: bool = False

    def run(self, target: IO[bytes]) -> None:
        store = open_store(self.address, read_only=True)
        try:
            found = questions.changes(store, self.experiment, self.until)
            changes = [change._replace(state=None) for change in found]
            others = self.has_slates, self.has_sources
            experiment = ExperimentRecord(self.experiment, self.name, self.full, changes, *others)
            write_log(store, experiment, self.until, target, self.format)
        finally:
            store.close()


class ExperimentRecord(NamedTuple):
    """What an export needs of an experiment, read from the file."""

    key: int
    name: str
    full: bool
    changes: list[Change]
    has_slates: bool = False
    has_sources: bool = False
