"""Columns of any type: read the same everywhere, or refused by name with a repair; also rows that mean harm."""

from __future__ import annotations

import datetime
import json
import random
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import polars as pl
import pytest

from alphafair import InvalidArgument, Log, streams
from alphafair.evaluation import LogFile, doctor, evaluate, frontier

N_ROWS = 40
DAY = datetime.datetime(2024, 5, 31, 12)
LABELS: dict[str, tuple[list[Any], Any, tuple[str, str]]] = {  # two values, their type, and the labels in order
    "float32": ([0.1, 0.2], pl.Float32, ("0.1", "0.2")),
    "small floats": ([1e-7, 2e-7], None, ("1e-7", "2e-7")),
    "negative zero": ([-0.0, 1.0], None, ("0.0", "1.0")),
    "datetime": (
        [DAY, DAY.replace(year=2025)],
        pl.Datetime("us"),
        ("2024-05-31 12:00:00.000000", "2025-05-31 12:00:00.000000"),
    ),
    "milliseconds": (
        [DAY, DAY.replace(year=2025)],
        pl.Datetime("ms"),
        ("2024-05-31 12:00:00.000", "2025-05-31 12:00:00.000"),
    ),
    "zone": (
        [DAY, DAY.replace(year=2025)],
        pl.Datetime("us", "UTC"),
        ("2024-05-31 12:00:00.000000+00:00", "2025-05-31 12:00:00.000000+00:00"),
    ),
    "date": ([DAY.date(), DAY.date().replace(year=2025)], None, ("2024-05-31", "2025-05-31")),
    "time": ([datetime.time(1), datetime.time(2)], None, ("01:00:00", "02:00:00")),
    "binary": ([b"x", b"y"], None, ("x", "y")),
    "decimal": ([Decimal("1.10"), Decimal("2.00")], None, ("1.10", "2.00")),
    "categorical": (["x", "y"], pl.Categorical, ("x", "y")),
    "enum": (["x", "y"], pl.Enum(["y", "x"]), ("x", "y")),
    "boolean": ([True, False], None, ("false", "true")),
    "large integers": ([2**70, 9], pl.Int128, ("9", str(2**70))),
    "many digits": (["9" * 5000, "1"], None, ("1", "9" * 5000)),
    "negative": ([-2, -10], pl.Int8, ("-10", "-2")),
    "escapes": (["\x1b[2J", "\u202e"], None, ("\x1b[2J", "\u202e")),
}
REFUSED: dict[str, tuple[list[Any], Any]] = {
    "a list": ([[1], [2]], None),
    "an array": ([[1, 2], [3, 4]], pl.Array(pl.Int64, 2)),
    "a struct": ([{"a": 1}, {"a": 2}], None),
    "an object": ([object(), object()], pl.Object),
    "a duration": ([datetime.timedelta(1), datetime.timedelta(2)], None),
}


def rows(**changed: Any) -> pl.DataFrame:
    """A log of two contexts and two arms; a changed column has the given values in turn."""
    half = N_ROWS // 2
    given = {
        "context": pl.Series(["u", "v"] * half),
        "arm": pl.Series(["a", "a", "b", "b"] * (half // 2)),
        "reward": pl.Series([0.1, 0.2, 0.3, 0.4] * (half // 2)),
        "propensity": pl.Series([0.5] * N_ROWS),
    }
    return pl.DataFrame(given | changed)


def column(values: list[Any], dtype: Any) -> pl.Series:
    return pl.Series([values[row % 2] for row in range(N_ROWS)], dtype=dtype)


def arm_column(values: list[Any], dtype: Any) -> pl.Series:
    return pl.Series([values[row // 2 % 2] for row in range(N_ROWS)], dtype=dtype)


@pytest.mark.parametrize("name", LABELS)
def test_labels_of_every_type_are_the_same_everywhere(name: str, tmp_path: Path) -> None:
    values, dtype, labels = LABELS[name]
    lists = pl.Series([pl.Series(values, dtype=dtype)] * N_ROWS)
    frame = rows(context=column(values, dtype), arm=arm_column(values, dtype), available=lists)
    log = Log.from_table(frame)
    assert (log.context_labels, log.arm_labels) == (labels, labels)
    assert log.available is not None
    assert log.available.table().all()
    assert doctor(frame).is_sound
    frame.write_parquet(tmp_path / "log.parquet")
    file = LogFile(tmp_path / "log.parquet")
    assert (file.context_labels, file.arm_labels) == (labels, labels)
    stream = streams.table(frame, arm_columns=["reward"])
    assert stream.context_labels == labels
    assert log.contexts.tolist() == stream.contexts.tolist()


@pytest.mark.parametrize("role", ["context", "arm", "reward", "propensity", "user", "time", "position", "id"])
@pytest.mark.parametrize("name", REFUSED)
def test_other_types_are_refused_by_their_name(name: str, role: str) -> None:
    frame = rows(**{role: column(*REFUSED[name])})
    words = f"source: {role} must be a column of .*; got '{name} column'. Convert it"
    named: dict[str, Any] = {} if role in ("context", "arm", "reward", "propensity") else {role: role}
    if role != "id":
        with pytest.raises(InvalidArgument, match=words):
            Log.from_table(frame, **named)
    if role != "position":
        (finding,) = doctor(frame, **named).findings
        assert finding.grade == "wrong"
        assert f"{role} must be a column of" in finding.what
    if role == "reward":
        with pytest.raises(InvalidArgument, match=words):
            streams.table(frame, arm_columns=["reward"])


class Cell(NamedTuple):
    """A hostile column, for the search below."""

    name: str
    values: Any


def cells() -> list[Cell]:
    """Columns of every kind of container and type, most of them wrong somewhere."""
    known = [Cell(name, column(values, dtype)) for name, (values, dtype, _) in LABELS.items()]
    known += [Cell(name, column(*REFUSED[name])) for name in REFUSED]
    day = np.datetime64("2024-01-01")
    numpy = {
        kind: np.array([first, second] * (N_ROWS // 2), dtype=kind)
        for kind, first, second in (
            *(
                ("g", 0.5, 0.25),
                ("S1", b"x", b"y"),
                ("U1", "x", "y"),
                ("O", "x", np.nan),
                ("c16", 1j, 2j),
                ("f2", 0.5, 0.25),
            ),
            *(("M8[s]", day, day), ("M8[Y]", day, day), ("m8[s]", 1, 2), ("V2", b"ab", b"cd"), ("?", True, False)),
        )
    }
    pairs: dict[str, tuple[Any, Any]] = {
        "missing": (None, None),
        "NaN": ("x", float("nan")),
        "NA": ("x", pd.NA),
        "NaT": (pd.NaT, pd.Timestamp("2024-01-01")),
        "not a number": (0.5, float("nan")),
        "infinite": (0.5, float("inf")),
        "mixed": (1, "x"),
        "mixed dates": (DAY, DAY.date()),
        "bytes and text": (b"a", "a"),
        "not UTF-8": (b"\xff", b"a"),
        "empty": ("", "a"),
        "large": (2**200, 1),
        "fractions": (Fraction(1, 2), 1),
        "sets": ({"a"}, {"b"}),
        "half of a pair": ("\ud800", "a"),
        "deep": ("[" * 100_000 + "]" * 100_000, "a"),
        "JSON": ('["a", "b"]', '["a", "b", 1.50, 9' + "9" * 5000 + "]"),
        "half in JSON": ('["a", "b"]', '["a", "b", "\\ud800"]'),
        "lists": (["a", "b"], ["b", "a"]),
        "tuples": (("a", "b"), ("a", "b")),
        "arrays": (np.array(["a", "b"]), np.array(["a", "b"])),
        "lists with gaps": (["a", None], ["a"]),
        "empty lists": ([], ["a"]),
        "lists of structs": ([{"a": 1}], [{"a": 2}]),
    }
    mixed = {name: [*pair] * (N_ROWS // 2) for name, pair in pairs.items()}
    pandas = {
        "period": pd.Series(pd.period_range("2024-01", periods=2, freq="M").to_list() * (N_ROWS // 2)),
        "category": pd.Series(["x", "y"] * (N_ROWS // 2), dtype="category"),
        "Int64": pd.Series([1, None] * (N_ROWS // 2), dtype="Int64"),
        "utc": pd.Series(pd.to_datetime(["2024-01-01", "2024-01-02"] * (N_ROWS // 2), utc=True)),
        "timedelta": pd.Series(pd.to_timedelta([1, 2] * (N_ROWS // 2), unit="s")),
    }
    return [*known, *(Cell(name, values) for name, values in (numpy | mixed | pandas).items())]


def no_crash(call: Callable[[], Any]) -> Any:
    """The result of a call that may refuse its arguments, and must not fail otherwise."""
    try:
        return call()
    except InvalidArgument:
        return None


@pytest.mark.parametrize("role", ["context", "arm", "reward", "propensity", "available", "user", "time"])
def test_a_column_of_any_type_is_read_or_refused(role: str) -> None:
    base = rows().to_dict(as_series=False)
    named: dict[str, Any] = {role: role} if role in ("user", "time") else {}
    for cell in cells():
        try:
            frames = [base | {role: cell.values}, pd.DataFrame(base | {role: [*cell.values]})]
        except (TypeError, ValueError):  # pandas has no such column
            frames = [base | {role: cell.values}]
        for frame in frames:
            log = no_crash(partial(Log.from_table, frame, **named))
            found = doctor(frame, **named)
            assert (log is not None) or not found.is_sound, cell.name
            no_crash(partial(streams.table, frame, arm_columns=["reward"], time=named.get("time")))


def test_what_was_read_can_be_evaluated() -> None:
    settings: dict[str, Any] = {"n_replicates": 100}
    for cell in random.Random(0).sample(cells(), 12):
        log = no_crash(partial(Log.from_table, rows().to_dict(as_series=False) | {"context": cell.values}))
        if log is not None:
            assert evaluate(log, "uniform", **settings).reward_per_round.value > 0.0
            assert frontier(log, [0.5], **settings).verdict in ("trustworthy", "thin", "do not use")


def test_nothing_is_dropped_silently() -> None:
    base = rows().to_dict(as_series=False)
    with pytest.raises(
        InvalidArgument, match="source, row 3: reward must be a value of the type of the others; got 1606"
    ):
        Log.from_table(base | {"reward": [1, None, 2, 2**200] * (N_ROWS // 4)})
    for gap in (float("nan"), None, pd.NA, ""):
        with pytest.raises(InvalidArgument, match=r"source, row 1: context must be a value; got (None|''). Fill it in"):
            Log.from_table(base | {"context": ["u", gap] * (N_ROWS // 2)})


def test_an_empty_label_is_missing_in_every_format(tmp_path: Path) -> None:
    frame, path = rows(context=column(["u", ""], None)), tmp_path / "log.csv"
    frame.write_csv(path, quote_style="always")
    with pytest.raises(InvalidArgument, match="line 3: context must be a value; got ''"):
        Log.from_table(path)
    frame.write_ndjson(tmp_path / "log.jsonl")
    with pytest.raises(InvalidArgument, match="row 1: context must be a value; got ''"):
        Log.from_table(tmp_path / "log.jsonl")


def test_a_panic_of_polars_is_an_error_with_a_repair() -> None:
    class Arrow:
        schema = (SimpleNamespace(name="c", type="decimal256(50, 2)"),)

        def __arrow_c_stream__(self, requested: object = None) -> object:
            raise pl.exceptions.PanicException("not implemented")

    with pytest.raises(
        InvalidArgument, match="source: c must be a column of a type that polars has; got 'a decimal256"
    ):
        Log.from_table(Arrow())
    Arrow.schema = ()
    with pytest.raises(InvalidArgument, match=r"source must be a table; got .* not implemented"):
        Log.from_table(Arrow())


def test_a_column_of_arrow_that_polars_cannot_read_is_named() -> None:
    class Arrow:
        def __init__(self, names: list[str]) -> None:
            self.column_names = names

        def select(self, names: list[str]) -> Arrow:
            return Arrow(names)

        def __arrow_c_stream__(self, requested: object = None) -> object:
            if "when" in self.column_names:
                raise pl.exceptions.ComputeError("unable to parse time zone: '+05:30'. Please check.\n\nHint")
            return pl.DataFrame({name: [1] for name in self.column_names}).__arrow_c_stream__(requested)

    words = r"source: when must be a column that can be read; .*Convert it \(times: to UTC\).*time zone: '\+05:30'"
    with pytest.raises(InvalidArgument, match=words):
        Log.from_table(Arrow(["context", "when", "arm"]))


def test_a_file_of_types_that_polars_lacks_is_refused_in_one_line(tmp_path: Path) -> None:
    """An unknown time zone makes the schema of the whole file unreadable, by an error that is no `Exception`."""
    path = tmp_path / "log.arrow"
    rows(when=column([DAY, DAY], pl.Datetime("us", "Etc/UTC"))).write_ipc(path)
    path.write_bytes(path.read_bytes().replace(b"Etc/UTC", b"No/Zone"))
    words = "must be a table of column types that polars has"
    with pytest.raises(InvalidArgument, match=rf"{words}; .*unable to parse time zone: 'No/Zone'"):
        Log.from_table(path)
    assert words in str(doctor(path).findings[0])


@pytest.mark.parametrize("kind", [pl.Datetime("us"), pl.Duration("ms")])
def test_values_that_python_lacks_are_shown_by_their_type(kind: pl.DataType) -> None:
    far = pl.Series([2**62] * N_ROWS).cast(kind)
    with pytest.raises(InvalidArgument, match=r"row 0: available must be a list .*; got 'a d[a-z]* that Python lacks'"):
        Log.from_table(rows(available=far))


@pytest.mark.parametrize("role", ["context", "arm", "user", "time"])
@pytest.mark.parametrize("kind", [pl.Datetime("us"), pl.Datetime("ms"), pl.Datetime("ms", "Europe/Berlin"), pl.Date])
def test_dates_beyond_calendars_are_refused(kind: Any, role: str) -> None:
    far = 2**30 if kind == pl.Date else 2**63 - 1
    dates = pl.Series([far, 0, -far, 1] * (N_ROWS // 4), dtype=pl.Int32 if kind == pl.Date else pl.Int64).cast(kind)
    named = {role: role} if role in ("user", "time") else {}
    frame = rows(**{role: dates})
    with pytest.raises(
        InvalidArgument, match=rf"row 0: {role} must be .* date.*; got 'a date(time)? that Python lacks'"
    ):
        Log.from_table(frame, **named)
    finding = doctor(frame, **named).findings[0]
    assert finding.grade == "wrong"
    assert "date" in finding.what
    near = pl.Series([95_000_000, -95_000_000] * (N_ROWS // 2), dtype=pl.Int32).cast(pl.Date).cast(kind)
    assert len(Log.from_table(rows(**{role: near}), **named).arms) == N_ROWS


@pytest.mark.parametrize(
    "values", [[Decimal("1"), Decimal("NaN")], [DAY, DAY.replace(tzinfo=datetime.UTC)]], ids=["NaN", "zone"]
)
def test_a_column_that_no_table_can_have_is_named(values: list[Any]) -> None:
    columns = {"context": ["x", "y"], "arm": ["0", "1"], "reward": [0.1, 0.2], "propensity": [0.5, 0.5]}
    with pytest.raises(InvalidArgument, match="source: context must be a column that can be read"):
        Log.from_table({**columns, "context": values})


def test_arms_that_are_no_integers_beside_integers() -> None:
    frame = rows(arm=arm_column([7, 10], None), available=pl.Series([["7", "10", "x", "07"]] * N_ROWS))
    assert Log.from_table(frame).arm_labels == ("07", "10", "7", "x")
    assert Log.from_table(frame).arms.tolist() == [2, 2, 1, 1] * (N_ROWS // 4)


# JSON lines


def json_lines(path: Path, change: Callable[[int], dict[str, Any]], n_rows: int = 400) -> Path:
    """A log of JSON lines, some of whose rows are changed; a value of `...` takes the name away."""
    draw = random.Random(1)
    with path.open("w") as file:
        for row in range(n_rows):
            given = {"context": f"c{row % 3}", "arm": f"a{draw.randrange(2)}", "reward": row % 2, "propensity": 0.5}
            kept = {name: value for name, value in (given | change(row)).items() if value is not ...}
            file.write(json.dumps(kept) + "\n")
    return path


def test_masks_that_begin_late_in_json_lines_are_honored(tmp_path: Path) -> None:
    path = json_lines(tmp_path / "log.jsonl", lambda row: {"available": ["a0", "a1", "é"]} if row >= 300 else {})
    log = Log.from_table(path)
    assert log.available is not None
    assert LogFile(path).has_available
    assert log.arm_labels == ("a0", "a1", "é")
    assert log.available.of_rounds.tolist() == [-1] * 400  # all three, or not said
    late = json_lines(
        tmp_path / "late.jsonl",
        lambda row: {"masks": ["a0", "a1"], "arm": "a2" if row < 9 else "a1"} if row % 300 == 299 else {},
    )
    assert Log.from_table(late, available="masks").available is not None


@pytest.mark.parametrize(
    ("change", "labels"),
    [
        (lambda row: {"reward": 0.5} if row == 200 else {}, ("c0", "c1", "c2")),
        (lambda row: {"reward": None} if row < 300 else {}, ("c0", "c1", "c2")),
        (lambda row: {"reward": ...} if row < 300 else {}, ("c0", "c1", "c2")),
        (lambda row: {"propensity": 1} if row < 300 else {}, ("c0", "c1", "c2")),
        (lambda row: {"context": 7} if row < 300 else {}, ("7", "c0", "c1", "c2")),
        (lambda row: {"note": {"a": row} if row % 2 else [row]}, ("c0", "c1", "c2")),
        (
            lambda row: {"reward": True, "context": row % 2 == 0} if row > 200 else {},
            ("c0", "c1", "c2", "false", "true"),
        ),
    ],
    ids=[
        "mixed numbers",
        "late rewards",
        "late column",
        "integers first",
        "ids become text",
        "other columns",
        "booleans",
    ],
)
def test_json_lines_are_read_by_all_their_rows(change: Any, labels: tuple[str, ...], tmp_path: Path) -> None:
    path = json_lines(tmp_path / "log.jsonl", change)
    log = Log.from_table(path)
    assert log.context_labels == LogFile(path).context_labels == labels
    assert log.n_rounds == (100 if "null" in path.read_text() or "reward" not in path.read_text()[:100] else 400)
    assert doctor(path).is_sound or log.propensities.max() == 1.0


def test_arms_of_json_lines_are_those_of_their_masks(tmp_path: Path) -> None:
    path = json_lines(
        tmp_path / "log.jsonl", lambda row: {"arm": 1.0 if row % 2 else 1e-7, "available": [1e-7, 1.0, 0.50]}
    )
    assert Log.from_table(path).arm_labels == ("0.0000001", "0.5", "1")


def test_a_stream_has_the_columns_of_all_rows_of_json_lines(tmp_path: Path) -> None:
    path = json_lines(tmp_path / "log.jsonl", lambda row: {"arm": ..., "late": 1.0 if row > 200 else ...})
    with pytest.raises(InvalidArgument, match="row 0: late must be a finite number; got None"):
        streams.table(path)


@pytest.mark.parametrize(
    "line",
    [
        b'{"context": NaN}',
        b"[1]",
        b"3",
        b'{"context": ',
        b'\xef\xbb\xbf{"a": 1}',
        b"\xff",
        b'{"context": ' + b"[" * 100_000,
    ],
    ids=["constant", "list", "number", "truncated", "mark", "not UTF-8", "deep"],
)
def test_a_line_that_is_no_json_object_is_named(line: bytes, tmp_path: Path) -> None:
    path = json_lines(tmp_path / "log.jsonl", lambda _: {})
    text = path.read_bytes().splitlines()
    for place in (0, 250):
        path.write_bytes(b"\n".join([*text[:place], line, *text[place:]]))
        for read in (Log.from_table, streams.table, LogFile):
            with pytest.raises(InvalidArgument, match=f"log.jsonl, line {place + 1} must be a JSON object; got "):
                read(path)
        assert not doctor(path).is_sound
