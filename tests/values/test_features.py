"""Features by name and type: golden values, what is refused, and the way there and back."""

from __future__ import annotations

import gzip
import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alphafair import InvalidArgument, Log
from alphafair.values import FeatureSchema
from tests import ROOT

GOLDEN = json.loads((ROOT / "tests" / "fixtures" / "golden-adoption.json").read_text())["features"]
DECLARED = {"age": "number", "visits": "number?", "segment": ["new", "loyal", "*"], "device": ["phone", "desk"]}
SCHEMA = FeatureSchema(DECLARED)
GOOD = {"age": 31, "device": "desk"}


def naive(declared: dict[str, Any], values: dict[str, Any]) -> list[float]:
    """The columns of one decision, written from the table of the documentation."""
    found: list[float] = []
    for name, kind in declared.items():
        value = values.get(name)
        if kind == "number":
            found.append(float(value))  # type: ignore[arg-type]
        elif kind == "number?":
            found += [0.0, 1.0] if value is None else [float(value), 0.0]
        else:
            label = value if value in kind else "*"
            found += [1.0 if each == label else 0.0 for each in kind]
    return found


def test_golden_values() -> None:
    schema = FeatureSchema(GOLDEN["features"])
    assert list(schema.columns) == GOLDEN["columns"]
    for row in GOLDEN["rows"]:
        expected = [math.nan if each == "nan" else each for each in row["stored"]]
        stored = schema.stored(row["values"])
        assert np.array_equal(stored, expected, equal_nan=True)
        assert schema.encoded(stored).tolist() == row["encoded"]


labels = st.text(st.characters(min_codepoint=33, max_codepoint=0x24F, exclude_categories=["Cc", "Cs"]), max_size=4)
names = labels.filter(bool)
kinds = st.sampled_from(["number", "number?"]) | st.lists(names, min_size=2, max_size=5, unique=True)
schemas = st.dictionaries(names, kinds, min_size=1, max_size=8)


@st.composite
def decisions(draw: st.DrawFn) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A declaration and values that it allows."""
    declared = draw(schemas)
    number = st.floats(-1e50, 1e50) | st.booleans() | st.integers(-(10**9), 10**9)
    rows = []
    for _ in range(draw(st.integers(1, 3))):
        values: dict[str, Any] = {}
        for name, kind in declared.items():
            among = number if isinstance(kind, str) else st.sampled_from(kind)
            if kind == "number?" or "*" in kind:
                among = among | st.none()
            if "*" in kind:
                among = among | st.just("some other label")
            values[name] = draw(among)
        rows.append({name: value for name, value in values.items() if value is not None or draw(st.booleans())})
    return declared, rows


@given(decisions())
def test_values_come_back_and_columns_are_those_of_the_table(case: tuple[dict[str, Any], list[dict[str, Any]]]) -> None:
    declared, rows = case
    schema = FeatureSchema(json.loads(json.dumps(declared)))
    stored = np.array([schema.stored(row) for row in rows])
    assert stored.shape == (len(rows), len(declared))
    assert schema.are_possible(stored).all()
    assert schema.encoded(stored).tolist() == [naive(declared, row) for row in rows]  # all rows at once
    assert schema.encoded(stored).shape[1] == len(schema.columns)
    for row in stored:
        again = schema.stored(schema.values(row))
        assert np.array_equal(again, row, equal_nan=True)


@pytest.mark.parametrize(
    ("values", "argument", "words"),
    [
        ({"agee": 1.0}, "features.agee", "left out: declared are 'age', 'visits', 'segment', 'device'"),
        ({**GOOD, "agee": 1.0}, "features.agee", "got 1.0. Did you mean 'age'?"),
        ({"age": None, "device": "desk"}, "features.age", "as declared (number)"),
        ({"device": "desk"}, "features.age", "It is required"),
        ({**GOOD, "age": "31"}, "features.age", "got '31'. Pass a number, without quotation marks."),
        ({**GOOD, "age": math.nan}, "features.age", "Pass a number."),
        ({**GOOD, "age": math.inf}, "features.age", "finite"),
        ({**GOOD, "age": 2e50}, "features.age", "at most 1e+50"),
        ({**GOOD, "age": 10**400}, "features.age", "at most 1e+50"),
        ({**GOOD, "age": 1j}, "features.age", "finite"),
        ({**GOOD, "visits": "4"}, "features.visits", "Leave it out where it is missing"),
        ({**GOOD, "visits": math.nan}, "features.visits", "as declared (number?)"),
        ({**GOOD, "device": "car"}, "features.device", "one of 'phone', 'desk'"),
        ({"age": 31}, "features.device", "one of 'phone', 'desk'"),
        ({**GOOD, "device": ["desk"]}, "features.device", "one of 'phone', 'desk'"),
        ([31.0], "features", "an object from name to value"),
        (None, "features.age", "It is required"),
        ({**GOOD, "\ud800" * 50: 1}, "features." + "\\ud800" * 40, "left out"),
    ],
)
def test_values_that_are_refused(values: Any, argument: str, words: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        SCHEMA.stored(values)
    assert refused.value.argument == argument
    assert words in str(refused.value)


def test_numbers_of_other_types() -> None:
    schema = FeatureSchema({"x": "number"})
    for value in (np.float32(0.5), np.int8(3), Fraction(1, 2), True, np.True_, -1e50):
        assert schema.stored({"x": value}).tolist() == [float(value)]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("declared", "argument"),
    [
        ({}, "features"),
        ([], "features"),
        ({f"f{k}": "number" for k in range(51)}, "features"),
        ({f"f{k}": "number?" for k in range(33)}, "features"),  # 66 columns
        ({"a": [str(k) for k in range(50)], "b": [str(k) for k in range(15)]}, "features"),
        ({"": "number"}, "features"),
        ({1: "number"}, "features"),
        ({"a\n": "number"}, "features"),
        ({"age": "float"}, "features.age"),
        ({"age": None}, "features.age"),
        ({"age": ["only"]}, "features.age"),
        ({"age": ["one", "one"]}, "features.age"),
        ({"age": ["one", ""]}, "features.age"),
        ({"age": ["one", 2]}, "features.age"),
        ({"age": [str(k) for k in range(51)]}, "features.age"),
    ],
)
def test_declarations_that_are_refused(declared: Any, argument: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        FeatureSchema(declared)
    assert refused.value.argument == argument


def test_the_largest_declarations() -> None:
    assert len(FeatureSchema({f"f{k}": "number" for k in range(50)}).columns) == 50
    assert len(FeatureSchema({f"f{k}": "number?" for k in range(32)}).columns) == 64


@pytest.mark.parametrize(
    ("row", "possible"),
    [
        ([1.0, math.nan, 2.0, 1.0], True),
        ([math.nan, 0.0, 2.0, 1.0], False),
        ([math.inf, 0.0, 2.0, 1.0], False),
        ([1.0, -math.inf, 2.0, 1.0], False),
        ([1.0, 0.0, 3.0, 1.0], False),
        ([1.0, 0.0, 0.5, 1.0], False),
        ([1.0, 0.0, -1.0, 1.0], False),
        ([1.0, 0.0, 2.0, math.nan], False),
    ],
)
def test_what_can_have_been_stored(row: list[float], possible: bool) -> None:
    assert SCHEMA.are_possible(np.array([[1.0, 0.0, 0.0, 0.0], row])).tolist() == [True, possible]


# tables

ROWS = {
    "context": ["home", "page", "home"],
    "arm": ["a", "b", "a"],
    "reward": [1.0, 0.0, 1.0],
    "propensity": [0.5, 0.5, 0.5],
    "age": [31, 20, 40],
    "visits": [4.5, None, 2.0],
    "segment": ["new", "vip", None],
    "device": ["desk", "phone", "phone"],
}
EXPECTED = [
    naive(DECLARED, {name: ROWS[name][t] for name in DECLARED})  # type: ignore[index]
    for t in range(3)
]


def test_columns_of_a_table(tmp_path: Path) -> None:
    frame = pl.DataFrame(ROWS)
    frame.write_csv(tmp_path / "log.csv")
    nan = frame.with_columns(pl.col("visits").fill_null(math.nan))
    exported = frame.rename({name: f"feature.{name}" for name in DECLARED})
    for source in (ROWS, nan, tmp_path / "log.csv", exported):
        log = Log.from_table(source, features=DECLARED)
        assert log.features is not None
        assert log.features.tolist() == EXPECTED
    assert Log.from_table(ROWS).features is None
    in_time = Log.from_table({**ROWS, "at": [3, 1, 2]}, time="at", features=SCHEMA)
    assert in_time.features is not None
    assert in_time.features.tolist() == [EXPECTED[1], EXPECTED[2], EXPECTED[0]]
    both = Log.from_table({**ROWS, "reward": [1, None, 1]}, features={"age": "number", "arm": ["a", "b"]})
    assert both.features is not None
    assert both.features.tolist() == [[31, 1, 0], [40, 1, 0]]  # the column of arms is a feature, too


def test_json_lines_are_searched_for_features(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    lines = [json.dumps({name: column[t] for name, column in ROWS.items() if column[t] is not None}) for t in range(3)]
    path.write_text("\n".join(lines))
    found = Log.from_table(path, features=DECLARED).features
    assert found is not None
    assert found.tolist() == EXPECTED


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("age", None, "row 1: age must be a finite number"),
        ("age", math.inf, "row 1: age must be a finite number of at most 1e+50 in size; got inf"),
        ("visits", -math.inf, "row 1: visits must be a finite number"),
        ("device", "car", "row 1: device must be one of 'phone', 'desk'; got 'car'"),
        ("device", None, "row 1: device must be one of 'phone', 'desk'"),
    ],
)
def test_rows_that_are_refused(column: str, value: Any, words: str) -> None:
    values = [*ROWS[column]]
    values[1] = value
    with pytest.raises(InvalidArgument, match=r"row 1") as refused:
        Log.from_table({**ROWS, column: values}, features=DECLARED)
    assert words in str(refused.value)


def test_columns_that_are_refused() -> None:
    with pytest.raises(InvalidArgument, match=r"features='age'"):
        Log.from_table({name: column for name, column in ROWS.items() if name != "age"}, features=DECLARED)
    with pytest.raises(InvalidArgument, match="numbers"):
        Log.from_table({**ROWS, "age": [[1], [2], [3]]}, features=DECLARED)
    with pytest.raises(InvalidArgument, match=r"features\.age"):
        Log.from_table(ROWS, features={"age": "float"})


def test_a_compressed_file(tmp_path: Path) -> None:
    path = tmp_path / "log.csv.gz"
    path.write_bytes(gzip.compress(pl.DataFrame(ROWS).write_csv().encode()))
    found = Log.from_table(path, features=DECLARED).features
    assert found is not None
    assert found.tolist() == EXPECTED
