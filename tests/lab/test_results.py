"""Every number of results.json, for the smoke versions, against the oracle; a number without an oracle is an error."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from alphafair.data.movielens import first_rows, ratings_stream
from alphafair.errors import InvalidArgument
from alphafair.lab import arena
from alphafair.lab.reproduction import Data, measure_all
from alphafair.lab.results import plain
from alphafair.values import Stream
from tests import made_up_results, naive_results
from tests.smoke import smoke_run

TOLERANCE = 1e-9  # sums in another order differ by 1e-13 of themselves, and so do the roots that both sides find


def differences(found: Any, expected: Any, where: str = "results") -> Iterator[str]:
    """Where two results differ. Strings need no oracle, everything else does, on both sides."""
    if isinstance(found, dict) and isinstance(expected, dict):
        for key in sorted(found.keys() | expected.keys()):
            if key not in found:
                yield f"{where}/{key} is missing"
            elif key in expected:
                yield from differences(found[key], expected[key], f"{where}/{key}")
            else:
                yield from (f"{leaf} has no oracle" for leaf in numbers(found[key], f"{where}/{key}"))
    elif isinstance(found, list) and isinstance(expected, list):
        if len(found) != len(expected):
            yield f"{where} has {len(found)} entries, not {len(expected)}"
        for place, (one, other) in enumerate(zip(found, expected, strict=False)):
            yield from differences(one, other, f"{where}/{place}")
    elif isinstance(expected, tuple):
        if not expected[0] <= found <= expected[1]:
            yield f"{where} is {found}, not between {expected[0]} and {expected[1]}"
    elif isinstance(found, float) and isinstance(expected, float):
        if not math.isclose(found, expected, rel_tol=TOLERANCE, abs_tol=TOLERANCE):
            yield f"{where} is {found}, not {expected}"
    elif found != expected:
        yield f"{where} is {found!r}, not {expected!r}"


def numbers(found: Any, where: str) -> Iterator[str]:
    """The paths of all leaves that are not strings."""
    if isinstance(found, dict):
        for key, part in found.items():
            yield from numbers(part, f"{where}/{key}")
    elif isinstance(found, list):
        for place, part in enumerate(found):
            yield from numbers(part, f"{where}/{place}")
    elif not isinstance(found, str):
        yield where


def rounds(stream: Stream) -> naive_results.Rounds:
    return naive_results.Rounds(stream.contexts.tolist(), stream.reward_table[stream.items], stream.n_contexts)


@pytest.mark.compiled
def test_every_number_is_the_oracles(tmp_path_factory: pytest.TempPathFactory) -> None:
    """OPT is checked by two certificates, ours and the oracle's; all that depends on it is recomputed from it."""
    folder, _ = smoke_run("reproduce", tmp_path_factory)
    found = plain(measure_all(Data(), folder / "runs", smoke=True, executor=ThreadPoolExecutor(1)))
    matches = found["experiments"].pop("arena")  # recomputed in test_arena.py
    assert [f"arena-{each['name']}" for each in matches] == [scenario.name for scenario in arena.SHORT]
    for claim in found["claims"]:
        claim["leads"] = list(claim["leads"].values())
    ratings, genres = Data().smoke().read()

    def played(rows: int | None, min_ratings: int | None, reward_floor: float) -> Any:
        some = first_rows(ratings, rows)
        return rounds(ratings_stream(some, genres, min_ratings=min_ratings, reward_floor=reward_floor))

    first, many, poor = played(300, None, 0.2), played(None, 500, 0.2), played(300, None, 0.001)
    best, poor_best = (found["experiments"][key]["optimum"] for key in ("A", "delta"))
    for given, optimum in ((first, best), (poor, poor_best)):
        for value, gap, (low, high) in zip(
            optimum["values"], optimum["gaps"], naive_results.optima(given), strict=True
        ):
            assert low - gap <= value <= high
    values = (np.array(optimum["values"]) for optimum in (best, poor_best))
    wrong = list(differences(found, naive_results.results(first, many, next(values), poor, next(values))))
    assert not wrong, f"{len(wrong)} differences: " + "\n".join(wrong[:20])


def test_differences_finds_every_difference() -> None:
    found = {"a": [1.0, {"b": 2, "word": "x"}], "c": {"d": None}}
    assert list(differences({"gap": 1.0}, {"gap": (0.0, 1.0)})) == []
    assert list(differences({"gap": 1.1}, {"gap": (0.0, 1.0)})) == ["results/gap is 1.1, not between 0.0 and 1.0"]
    assert list(differences(found, json.loads(json.dumps(found)))) == []
    for wrong, where in (
        ({"a": [1.0 + 1e-8, {"b": 2}], "c": {"d": None}}, "results/a/0 is 1.0, not 1.00000001"),
        ({"a": [1.0, {"b": 3}], "c": {"d": None}}, "results/a/1/b is 2, not 3"),
        ({"a": [1.0, {}], "c": {"d": None}}, "results/a/1/b has no oracle"),
        ({"a": [1.0, {"b": 2}]}, "results/c/d has no oracle"),
        ({"a": [1.0], "c": {"d": None}}, "results/a has 2 entries, not 1"),
        ({"a": [1.0, {"b": 2, "e": 5}], "c": {"d": None}}, "results/a/1/e is missing"),
    ):
        assert list(differences(found, wrong)) == [where]


def test_a_contender_that_did_not_take_part_is_named() -> None:
    run = made_up_results.value(made_up_results.made_up_results()).experiments.step
    assert run.of("uniform").policy == "uniform"
    for asked, named in ((("nobody",), "'nobody'"), (("uniform", "slates"), r"'uniform \(slates\)'")):
        with pytest.raises(InvalidArgument, match=f"policy must be that of a contender; got {named}.*uniform"):
            run.of(*asked)
