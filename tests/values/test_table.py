"""Anyone's own rounds, and the Open Bandit Dataset: what they become, and what is refused."""

from __future__ import annotations

import datetime
import gzip
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import polars as pl
import pytest

from alphafair import AlphaFair, InvalidArgument, simulate
from alphafair.streams import Log, click_rates, open_bandit, table
from alphafair.values import Stream

COLUMNS: dict[str, list[Any]] = {
    "context": ["new", "old", "new"],
    "jazz": [1.0, 0.0, 0.25],
    "rock": [0, 1, 1],
}


def check(stream: Stream) -> None:
    assert stream.context_labels == ("new", "old")
    assert stream.arm_labels == ("jazz", "rock")
    assert stream.contexts.tolist() == [0, 1, 0]
    assert [stream.rewards(t).tolist() for t in range(3)] == [[1.0, 0.0], [0.0, 1.0], [0.25, 1.0]]


class AnArrowTable:
    """Something of another library that speaks Arrow and nothing else."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return pl.DataFrame(COLUMNS).__arrow_c_stream__(requested_schema)


def pandas_frame(columns: Any) -> Any:
    return pytest.importorskip("pandas").DataFrame(columns)


@pytest.mark.parametrize(
    "make",
    [dict, pl.DataFrame, pl.LazyFrame, pandas_frame, lambda columns: AnArrowTable()],
    ids=["mapping", "polars", "polars lazy", "pandas", "arrow"],
)
def test_every_table_in_memory_gives_the_same_rounds(make: Callable[[Any], Any]) -> None:
    check(table(make(COLUMNS)))


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.CSV", "a.parquet", "a.arrow", "a.ipc", "a.feather", "a.csv.gz"])
def test_every_file_gives_the_same_rounds(name: str, tmp_path: Path) -> None:
    path, frame = tmp_path / name, pl.DataFrame(COLUMNS)
    if name.endswith(".gz"):
        path.write_bytes(gzip.compress(frame.write_csv().encode()))
    elif name.endswith(".tsv"):
        frame.write_csv(path, separator="\t")
    elif name.lower().endswith(".csv"):
        frame.write_csv(path)
    elif name.endswith(".parquet"):
        frame.write_parquet(path)
    else:
        frame.write_ipc(path)
    check(table(path))
    check(table(str(path)))


CONTENT = "context{0}jazz{0}rock\nnew{0}1{0}0\nold{0}0{0}1\nnew{0}0.25{0}1\n"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.csv.gz"])
def test_text_is_read_however_it_was_saved(name: str, separator: str, encoding: str, tmp_path: Path) -> None:
    written = CONTENT.format(separator).encode(encoding)
    (tmp_path / name).write_bytes(gzip.compress(written) if name.endswith(".gz") else written)
    check(table(tmp_path / name))


def test_a_byte_order_mark_of_the_other_byte_order(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"\xfe\xff" + CONTENT.format(";").encode("utf-16-be"))
    check(table(tmp_path / "a.csv"))


def test_decimal_commas_between_semicolons(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(CONTENT.format(";").replace("0.25", "0,25"))
    check(table(tmp_path / "a.csv"))
    (tmp_path / "a.csv").write_text("context,jazz,rock\n" + "a;b,1,0\n")  # a label may hold another separator
    assert table(tmp_path / "a.csv").context_labels == ("a;b",)
    (tmp_path / "b.csv").write_text('context,"jazz; cool; old",rock\na,1,0\n')  # and so may a name
    assert table(tmp_path / "b.csv").arm_labels == ("jazz; cool; old", "rock")


def test_rows_of_any_text_are_named_by_their_line(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(CONTENT.format(";").replace("0.25", "much").encode("utf-16"))
    with pytest.raises(ValueError, match=r"a\.csv, line 4: jazz must be a finite number; got 'much'"):
        table(tmp_path / "a.csv")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (CONTENT.format(",").encode("utf-16-le"), "with a byte order mark; got 'UTF-16 without one, it seems'. Save"),
        (CONTENT.format(",").encode("utf-16")[:-1], "that can be decoded; got 'UTF-16, damaged or truncated'. Save it"),
        (b"sep=;\n" + CONTENT.format(";").encode(), "a header in its first line; got 'sep=;'. Delete that line"),
        (b"context,caf\xe9,b\nx,1,0\n", "a.csv, line 1 must be UTF-8 text; got b'context,caf\\xe9,b\\n'. Save it as"),
        (b"context,\xe9,\xe8\nx,1,0\n", "a.csv, line 1 must be UTF-8 text; got b'context,\\xe9,\\xe8\\n'. Save it as"),
        (CONTENT.format(",").replace("\n", "\r").encode(), "feeds; got 'carriage returns alone'. Save it with line"),
    ],
    ids=["no mark", "cut off", "separator line", "another code in a name", "in two names", "carriage returns"],
)
def test_text_that_cannot_be_decoded_gets_a_hint(content: bytes, words: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(content)
    with pytest.raises(ValueError, match=re.escape(words)):
        table(tmp_path / "a.csv")


def test_a_repeated_column_is_refused_by_its_name(tmp_path: Path) -> None:
    """Of two columns with one name a mapping keeps one: an arm would be lost in silence."""
    pandas = pytest.importorskip("pandas")
    words = r"columns must be different names; got \['jazz'\]\. Rename all but one of them\."
    (tmp_path / "a.csv").write_text("context;jazz;jazz\na;1;0\n")
    (tmp_path / "a.jsonl").write_text('{"context": "a", "jazz": 1, "jazz": 0}\n')
    for source in (
        pandas.DataFrame([["a", 1, 0]], columns=["context", "jazz", "jazz"]),
        tmp_path / "a.csv",
        tmp_path / "a.jsonl",
    ):
        with pytest.raises(ValueError, match=words):
            table(source)
    with pytest.raises(ValueError, match=r"source: columns must be different names; got \['1'\]"):
        table(pandas.DataFrame([["a", 1, 0]], columns=["context", 1, "1"]))
    (tmp_path / "b.csv").write_text("context,jazz,jazz_duplicated_0\na,1,0\n")
    assert table(tmp_path / "b.csv").arm_labels == ("jazz", "jazz_duplicated_0")


def test_it_can_be_simulated() -> None:
    stream = table(COLUMNS)
    assert simulate(AlphaFair(stream.n_contexts, stream.n_arms), stream).final.tolist() != [1.0, 1.0]


def test_chosen_columns_in_the_order_given() -> None:
    stream = table({**COLUMNS, "note": ["a", "b", "c"]}, arm_columns=["rock", "jazz"])
    assert stream.arm_labels == ("rock", "jazz")
    assert stream.rewards(2).tolist() == [1.0, 0.25]


@pytest.mark.parametrize(
    ("labels", "order"),
    [
        ([10, 9, 100], ("9", "10", "100")),
        (["10", "9", "100"], ("9", "10", "100")),
        (["007", "9", "10"], ("007", "10", "9")),  # codes, not numbers
        (["b", "ä", "a"], ("a", "b", "ä")),
        ([True, False, True], ("false", "true")),
        ([-1, -2, 0], ("-2", "-1", "0")),
    ],
)
def test_any_labels(labels: list[Any], order: tuple[str, ...], tmp_path: Path) -> None:
    stream = table({"who": labels, "x": [1, 2, 3]}, context="who")
    assert stream.context_labels == order
    said = [order[context] for context in stream.contexts]
    assert said == [str(label).lower() if isinstance(label, bool) else str(label) for label in labels]
    pl.DataFrame({"who": labels, "x": [1, 2, 3]}).write_csv(tmp_path / "a.csv")
    assert table(tmp_path / "a.csv", context="who").context_labels == order


@pytest.mark.parametrize(
    "times",
    [
        [3, 1, 1],
        [3.5, -1.0, -1.0],
        [datetime.date(2024, 5, 3), datetime.date(2024, 5, 1), datetime.date(2024, 5, 1)],
        ["10", "9", "9.0"],
        ["2024-05-03", "2024-05-01", "2024-05-01"],
        ["2024-05-01T10:00:00Z", "2024-05-01T11:00:00+02:00", "2024-05-01T09:00:00Z"],
    ],
)
def test_rounds_in_the_order_of_time_with_ties_as_they_come(times: list[Any], tmp_path: Path) -> None:
    columns = {"context": ["c", "a", "b"], "when": times, "x": [3, 1, 2]}
    pl.DataFrame(columns).write_csv(tmp_path / "a.csv")
    for source in (columns, tmp_path / "a.csv", pandas_frame(columns)):
        stream = table(source, time="when")
        assert stream.contexts.tolist() == [0, 1, 2]
        assert [stream.rewards(t).tolist() for t in range(3)] == [[1.0], [2.0], [3.0]]
        assert stream.arm_labels == ("x",)


@pytest.mark.parametrize(
    ("columns", "settings", "words"),
    [
        (
            {"contxt": ["a"], "x": [1]},
            {},
            "source: columns must be names with 'context' among them; got ['contxt', 'x'].",
        ),
        ({"contxt": ["a"], "x": [1]}, {}, "Did you mean 'contxt'?"),
        (COLUMNS, {"arm_columns": ["jaz"]}, "Did you mean 'jazz'?"),
        (
            COLUMNS,
            {"arm_columns": ["polka"]},
            "names with 'polka' among them; got ['context', 'jazz', 'rock']. Pass the name of a column (arm",
        ),
        (
            COLUMNS,
            {"time": "when"},
            "names with 'when' among them; got ['context', 'jazz', 'rock']. Pass the name of a column",
        ),
        ({"user": ["a"], "x": [1]}, {}, "got ['user', 'x']. Pass the name of a column (context=)."),
        ({"context;x;y": ["a"]}, {}, "got ['context;x;y']. Save it with commas between the columns."),
        (COLUMNS, {"arm_columns": ["jazz", "jazz"]}, "arm_columns must be different columns; got ['jazz', 'jazz']"),
        ({"context": ["a"]}, {}, "source: columns must be the context and at least one arm; got ['context']. Add one"),
        (COLUMNS, {"arm_columns": []}, "source: columns must be the context and at least one arm"),
        ({"context": [], "x": []}, {}, "source must be a table with rows; got 'none'. Pass one row per round."),
        ({"context": ["a", "b"], "x": [1.0, np.nan]}, {}, "source, row 1: x must be a finite number; got nan. Correct"),
        ({"context": ["a", "b"], "x": [1.0, np.inf]}, {}, "source, row 1: x must be a finite number; got inf"),
        ({"context": ["a", "b"], "x": [1.0, None]}, {}, "source, row 1: x must be a finite number; got None"),
        ({"context": ["a", "b"], "x": ["1", "one"]}, {}, "source, row 1: x must be a finite number; got 'one'"),
        (
            {"context": ["a"], "x": [1], "note": ["hm"]},
            {},
            "row 0: note must be a finite number; got 'hm'. Correct it, ",
        ),
        ({"context": ["a", None], "x": [1, 2]}, {}, "source, row 1: context must be a value; got None. Fill it in"),
        ({"context": [1.0, np.nan], "x": [1, 2]}, {}, "source, row 1: context must be a value; got nan"),
        (
            {"context": ["a", "b"], "t": [1, None], "x": [1, 2]},
            {"time": "t"},
            "source, row 1: t must be a value; got None",
        ),
        ({"context": ["a"], "t": ["noon"], "x": [1]}, {"time": "t"}, "row 0: t must be a number or a date; got 'noon'"),
        (
            {"context": ["a", "b", "c"], "t": ["2024-01-02", "nope", "no"], "x": [1, 2, 3]},
            {"time": "t"},
            "row 1: t must be a number or a date; got 'nope'. Write dates as 2024-05-31",
        ),
        (
            {"context": ["a", "b"], "t": ["nope", "7"], "x": [1, 2]},
            {"time": "t"},
            "row 0: t must be a number or a date",
        ),
        ({"context": ["a", "b"], "t": ["7", "nan"], "x": [1, 2]}, {"time": "t"}, "row 1: t must be a number or a date"),
        (
            {"context": ["a"], "t": [[1]], "x": [1]},
            {"time": "t"},
            "source: t must be a column of numbers or dates; got 'a list column'. Convert it, or choose another",
        ),
        (
            {"context": [[1], [2]], "x": [1, 2]},
            {},
            "source: context must be a column of strings, numbers, dates or booleans; got 'a list column'",
        ),
        ({"context": ["a", "b"], "x": [[1], [2]]}, {}, "source: x must be a column of numbers; got 'a list column'"),
        ({"context": ["a", ""], "x": [1, 2]}, {}, "source, row 1: context must be a value; got ''. Fill it in"),
        ({"context": ["a", np.nan], "x": [1, 2]}, {}, "source, row 1: context must be a value; got None. Fill it in"),
        ({"context": [b"a", b"\xff"], "x": [1, 2]}, {}, r"source, row 1: context must be UTF-8 text; got b'\xff'"),
        ({"context": ["a", "b"], "x": [1.0, 1e300]}, {}, "row 1: x must be a number in [-1e+100, 1e+100]; got 1e+300"),
        (COLUMNS, {"arm_columns": [0]}, "arm_columns must be names of columns; got [0]. Pass strings."),
        (COLUMNS, {"arm_columns": 7}, "arm_columns must be names of columns; got [7]"),
        (COLUMNS, {"arm_columns": [["jazz"]]}, "arm_columns must be names of columns; got [['jazz']]"),
        (COLUMNS, {"context": 0}, "context must be names of columns; got [0]"),
        (COLUMNS, {"time": 0}, "time must be names of columns; got [0]"),
        (
            COLUMNS,
            {"arm_columns": ["context", "jazz"]},
            "arm_columns must be other columns than the context and the time; got ['context']. Remove them",
        ),
        (COLUMNS, {"arm_columns": "rock", "time": "rock"}, "than the context and the time; got ['rock']"),
    ],
)
def test_a_fault_is_named_with_its_row_and_its_repair(
    columns: dict[str, list[Any]], settings: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        table(columns, **settings)


@pytest.mark.parametrize("missing", [np.nan, None])
def test_gaps_of_pandas_are_gaps(missing: Any) -> None:
    pandas = pytest.importorskip("pandas")
    with pytest.raises(ValueError, match="source, row 1: x must be a finite number; got None"):
        table(pandas.DataFrame({"context": ["a", "b"], "x": [1.0, missing]}))
    with pytest.raises(ValueError, match="source, row 1: context must be a value; got None"):
        table(pandas.DataFrame({"context": [10, missing], "x": [1.0, 2.0]}))
    whole = pandas.DataFrame({"context": pandas.Categorical(["b", "a"]), "x": pandas.array([1, 2], dtype="Int64")})
    assert table(whole).context_labels == ("a", "b")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("context,x\na,1\nb,\n", "a.csv, line 3: x must be a finite number; got None"),
        ("context,x\na,1\nb,one\n", "a.csv, line 3: x must be a finite number; got 'one'"),
        ("context,x\na,1\n,2\n", "a.csv, line 3: context must be a value; got None"),
        ("context,x\na,1\nb,2,3\n", "a.csv, line 3 must be 2 fields; got ['b', '2', '3']. Delete the extra fields"),
        ("", "a.csv must be a table with a header and rows; got 'an empty file'. Save it again."),
        ("\n", "a.csv must be a table with a header and rows; got 'an empty file'. Save it again."),
        ("context,x,y,x\na,1,2,3\n", "a.csv: columns must be different names; got ['x']. Rename all but one of them."),
        ("context,x\n", "a.csv must be a table with rows; got 'a header alone'. Pass one row per round."),
        ('context,x\n"a\nb",1\nc,one\n', "a.csv, line 4: x must be a finite number; got 'one'"),
        ('context,x\n"a\n\nb",one\nc,1\n', "a.csv, line 2: x must be a finite number; got 'one'"),
        ('\n\ncontext,x\n"a\r\nb",1\r\nc,\r\n', "a.csv, line 6: x must be a finite number; got None"),
        ('context,x\n"a\nb",1\nc,2,3\n', "a.csv, line 4 must be 2 fields; got ['c', '2', '3']."),
        ("context,x\na,1\n\nb,2\n", "a.csv, line 3: context must be a value; got None"),
        (
            'context,x\na,1\n"b,2\nc,3\n',
            "a.csv, line 3 must be a row with its quotes in order; got 'unexpected end of d",
        ),
        ("context,x\na,1\nb,1e300\n", "a.csv, line 3: x must be a number in [-1e+100, 1e+100]; got 1e+300"),
    ],
)
def test_a_fault_in_a_csv_file_is_named_with_its_line(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=re.escape(words)) as refusal:
        table(path)
    assert str(refusal.value).startswith(str(path))


def test_a_bad_time_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("context,when,x\na,2024-01-02,1\nb,nope,2\n")
    with pytest.raises(ValueError, match=r"a.csv, line 3: when must be a number or a date; got 'nope'"):
        table(tmp_path / "a.csv", time="when")


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_text_that_is_not_utf8_is_named_with_its_line(name: str, tmp_path: Path) -> None:
    text = 'context,x\n"a\nb",1\né,2\n'.encode("latin-1")
    (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    with pytest.raises(ValueError, match=rf"{name}, line 4 must be UTF-8 text; got b'\\xe9,2\\n'. Save it as UTF-8."):
        table(tmp_path / name)


def test_a_cut_off_gzip_is_refused(tmp_path: Path) -> None:
    whole = gzip.compress(pl.DataFrame({"context": range(9999), "x": range(9999)}).write_csv().encode())
    (tmp_path / "a.csv.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"a.csv.gz must be a table that can be read; got .* It may be truncated"):
        table(tmp_path / "a.csv.gz")


def test_an_arrow_stream_is_read_as_an_arrow_file_is(tmp_path: Path) -> None:
    pl.DataFrame(COLUMNS).write_ipc_stream(tmp_path / "a.arrow")
    check(table(tmp_path / "a.arrow"))
    (tmp_path / "a.arrow").write_bytes((tmp_path / "a.arrow").read_bytes()[:100])
    with pytest.raises(ValueError, match=r"a.arrow must be a table that can be read; got .* It may be truncated"):
        table(tmp_path / "a.arrow")


@pytest.mark.parametrize(
    ("read", "name"),
    [*((table, f"a.{kind}") for kind in ("csv", "tsv", "csv.gz", "parquet", "arrow")), (open_bandit, "a.csv")],
)
def test_an_empty_file_is_called_empty(read: Callable[[Path], object], name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(gzip.compress(b"") if name.endswith(".gz") else b"")
    with pytest.raises(ValueError, match=f"{name} must be a table with a header and rows; got 'an empty file'"):
        read(tmp_path / name)


def test_a_line_with_too_many_fields_is_found_in_every_text_file(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text('context\tx\na\t1\n"b\tc"\t2\nd\t3\t4\n')
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b'context,x\na,1\n"b,c",2\nd,3,4\n'))
    for name in ("a.tsv", "a.csv.gz"):
        with pytest.raises(ValueError, match=f"{name}, line 4 must be 2 fields; got "):
            table(tmp_path / name)


def test_missing_and_unsupported_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError,
        match=r"a.csv must be a file, or a folder of Parquet files; got 'a path that does not exist'. Correct the path",
    ):
        table(tmp_path / "a.csv")
    with pytest.raises(ValueError, match=r" must be a file, or a folder of Parquet files; got 'a folder'. "):
        table(tmp_path)
    (tmp_path / "a.xlsx").write_text("")
    with pytest.raises(ValueError, match=r"a.xlsx must be a file that ends in .csv, .*; got '.xlsx'"):
        table(tmp_path / "a.xlsx")
    pl.DataFrame(COLUMNS).write_parquet(tmp_path / "a.parquet")
    (tmp_path / "a.parquet").write_bytes((tmp_path / "a.parquet").read_bytes()[:-20])
    with pytest.raises(ValueError, match=r"a.parquet must be a table that can be read; got 'ComputeError'"):
        table(tmp_path / "a.parquet")
    for nonsense in ([1, 2], 7):
        with pytest.raises(ValueError, match=r"source must be a table; got .* Pass a path, a polars or pandas frame"):
            table(nonsense)


# The Open Bandit Dataset

LOG = """,timestamp,item_id,position,click,propensity_score,user_feature_0,user_feature_1,user-item_affinity_0
0,2019-11-24 00:00:03.500000+00:00,4,1,0,0.25,u,x,0.0
1,2019-11-24 00:00:01+00:00,2,3,1,0.5,v,x,0.0
2,2019-11-24 00:00:02.000001+00:00,2,2,0,0.5,u,y,0.0
3,2019-11-24 00:00:04.000000+00:00,10,1,1,0.125,u,x,0.0
"""


@pytest.fixture
def log_file(tmp_path: Path) -> Path:
    path = tmp_path / "men.csv"
    path.write_text(LOG)
    return path


def test_a_log_by_hand(log_file: Path) -> None:
    log = open_bandit(log_file)
    assert isinstance(log, Log)
    assert (log.n_rounds, log.n_contexts, log.n_arms) == (4, 2, 3)
    assert (log.context_labels, log.arm_labels) == (("u", "v"), ("2", "4", "10"))
    assert log.contexts.tolist() == [1, 0, 0, 0]  # in the order of time
    assert log.arms.tolist() == [0, 0, 1, 2]
    assert log.rewards.tolist() == [1.0, 0.0, 0.0, 1.0]
    assert log.propensities.tolist() == [0.5, 0.5, 0.25, 0.125]
    assert log.positions.tolist() == [3, 2, 1, 1]
    assert log.timestamps[1] == np.datetime64("2019-11-24T00:00:02.000001")
    assert log.contexts.dtype == log.arms.dtype == np.int32
    with pytest.raises(ValueError, match="read-only"):
        log.rewards[0] = 0.0


def test_contexts_from_several_columns_and_a_floor(log_file: Path) -> None:
    log = open_bandit(log_file, context=["user_feature_0", "user_feature_1"], reward_floor=0.1)
    assert log.context_labels == ("u x", "u y", "v x")
    assert log.contexts.tolist() == [2, 1, 0, 0]
    assert log.rewards.tolist() == [1.0, 0.1, 0.1, 1.0]


def test_no_two_contexts_share_a_label(log_file: Path) -> None:
    """Joined with a plain space, a b + c and a + b c were one."""
    text = LOG
    for old, new in (("u,x", "a b,c"), ("v,x", "a,b c"), ("u,y", "a\\,b\\ c")):
        text = text.replace(old, new)
    log_file.write_text(text)
    log = open_bandit(log_file, context=["user_feature_0", "user_feature_1"])
    assert log.context_labels == (r"a b\ c", r"a\ b c", r"a\\ b\\\ c")
    assert log.contexts.tolist() == [0, 2, 1, 1]
    assert open_bandit(log_file).context_labels == ("a", "a b", "a\\"), "alone it stays as it is"


@pytest.mark.parametrize(
    ("context", "words"),
    [
        ([], "context must be at least one column; got []. Pass one, such as user_feature_0."),
        ([0], "context must be names of columns; got [0]"),
        (["user_feature_0"] * 2, "context must be different columns"),
    ],
)
def test_contexts_are_columns(context: Any, words: str, log_file: Path) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        open_bandit(log_file, context=context)


def test_click_rates_by_hand(log_file: Path) -> None:
    log = open_bandit(log_file)
    stream = click_rates(log, smoothing=2.0)  # the mean of the log is 1/2: every cell starts with 1 of 2
    assert stream.contexts.tolist() == log.contexts.tolist()
    assert (stream.context_labels, stream.arm_labels) == (log.context_labels, log.arm_labels)
    assert stream.rewards(1) == pytest.approx([1 / 3, 1 / 3, 2 / 3])
    assert stream.rewards(0) == pytest.approx([2 / 3, 1 / 2, 1 / 2])
    assert stream.reward_table.shape == (2, 3)
    with pytest.raises(ValueError, match="smoothing must be a number in "):
        click_rates(log, smoothing=0.0)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("10,1,1,0.125", "10,1,1,0", "men.csv, line 5: propensity_score must be a number in (0, 1]; got 0.0. Correct"),
        ("10,1,1,0.125", "10,1,1,", "men.csv, line 5: propensity_score must be a number in (0, 1]; got None"),
        ("10,1,1,0.125", "10,1,1,NaN", "men.csv, line 5: propensity_score must be a number in (0, 1]; got 'NaN'"),
        ("10,1,1,0.125", "10,1,2,0.125", "men.csv, line 5: click must be 0 or 1; got 2.0"),
        ("10,1,1,0.125", "ten,1,1,0.125", "men.csv, line 5: item_id must be an integer of at least 0; got 'ten'"),
        ("10,1,1,0.125", "10,top,1,0.125", "men.csv, line 5: position must be an integer of at least 0; got 'top'"),
        ("10,1,1,0.125", "10,1.5,1,0.125", "men.csv, line 5: position must be an integer of at least 0; got 1.5"),
        ("2019-11-24 00:00:01+00:00", "noon", "men.csv, line 3: timestamp must be a time such as 2019-11-24 00:01:03"),
        ("0.5,v,x", "0.5,,x", "men.csv, line 3: user_feature_0 must be a value; got None"),
        ("click", "clicks", "men.csv: columns must be names with 'click' among them"),
        ("click", "clicks", "Did you mean 'clicks'?"),
    ],
)
def test_a_fault_in_a_log_is_named(old: str, new: str, words: str, log_file: Path) -> None:
    log_file.write_text(LOG.replace(old, new, 1))
    with pytest.raises(ValueError, match=re.escape(words)):
        open_bandit(log_file)


def test_a_log_without_rows_or_without_a_file(log_file: Path) -> None:
    log_file.write_text(LOG.splitlines()[0] + "\n")
    with pytest.raises(ValueError, match=r"men.csv must be a log with rows; got 'a header alone'"):
        open_bandit(log_file)
    with pytest.raises(
        ValueError, match=r"women.csv must be a file, or a folder of Parquet files; got 'a path that does not exist'"
    ):
        open_bandit(log_file.with_name("women.csv"))
    with pytest.raises(ValueError, match=r"men.parquet must be a .csv file of the data set"):
        open_bandit(log_file.with_suffix(".parquet"))


@pytest.mark.parametrize("name", ["a.parquet", "a.feather"])
def test_a_table_without_a_place_in_memory_is_refused_before_it_is_read(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    frame = pl.select(pl.repeat("v", 300_000).alias("context"), pl.repeat(0.5, 300_000).alias("jazz"))
    (frame.write_parquet if name == "a.parquet" else frame.write_ipc)(path)
    with mock.patch("alphafair.tables.memory_limit", return_value=10**6):
        with pytest.raises(
            InvalidArgument, match=r"number of rows must be at most 62500, which fit into memory; got 300000"
        ):
            table(path)
        logged = frame.with_columns(arm=pl.lit("a"), reward=1.0, propensity=0.5)
        (logged.write_parquet if name == "a.parquet" else logged.write_ipc)(path)
        with pytest.raises(InvalidArgument, match=r"rows must be at most \d+, which"):
            Log.from_table(path)


def test_a_compressed_file_without_a_place_in_memory_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(b"context,jazz\n" + b"v,0.5\n" * 300_000))
    assert path.stat().st_size < 10_000
    with (
        mock.patch("alphafair.tables.memory_limit", return_value=10**6),
        pytest.raises(InvalidArgument, match=r"at most 500000 bytes once unpacked"),
    ):
        table(path)
    assert table(path).n_rounds == 300_000
