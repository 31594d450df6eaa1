"""The table of seeded faults fits the tree; `make soak` plays them. And the choice of tests by what has changed."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from tests import mutants, quick, seeded
from tests.imports import files_of_tests
from tests.seeded_faults import FAULTS

ROOMS = {
    *("math", "algorithms", "policy", "offline", "metrics", "evaluation", "values", "groups", "validate", "formatting"),
    *(
        "tables",
        "streams",
        "data",
        "preprocessing",
        "run",
        "lab",
        "checks",
        "cli",
        "engine",
        "service",
        "service/page",
        "notions",
    ),
    *("notions", seeded.CLIENT),
}


def test_every_seeded_fault_has_its_place_and_its_tests() -> None:
    assert seeded.problems(FAULTS) == []
    assert len(FAULTS) >= 60
    assert len({(fault.file, fault.before) for fault in FAULTS}) == len(FAULTS)
    assert [room for room in sorted(ROOMS) if not any(fault.is_in(room) for fault in FAULTS)] == []


def test_a_fault_without_its_place_or_tests_is_named() -> None:
    lost = FAULTS[0]._replace(
        before="nobody writes this", tests=("tests/project/test_seeded.py::test_that_is_not_there",)
    )
    assert seeded.problems([lost]) == [
        f"{lost.file} has 0 times: nobody writes this",
        f"tests/project/test_seeded.py::test_that_is_not_there is not there: {lost.after.strip()}",
    ]


def test_faults_at_random_parse_and_change_one_place() -> None:
    texts = {}
    for site in mutants.draw(seeded.PACKAGE, 200, seed=3):
        text = texts.setdefault(site.file, (seeded.PACKAGE / site.file).read_text())
        assert text[site.start : site.end] == site.before != site.after
        ast.parse(text[: site.start] + site.after + text[site.end :])
    assert mutants.draw(seeded.PACKAGE, 8, seed=1) != mutants.draw(seeded.PACKAGE, 8, seed=2)
    assert {site.kind for site in mutants.draw(seeded.PACKAGE, 4, seed=1)} == {*mutants.KINDS}


@pytest.mark.parametrize(
    ("line", "changed"),
    [
        ("x = a + b", {("operator", "x = a - b"), ("statement", "pass")}),
        ("x = a <= 2", {("operator", "x = a < 2"), ("constant", "x = a <= 3"), ("statement", "pass")}),
        (
            "return f(a, 0.5)",
            {("arguments", "return f(0.5, a)"), ("constant", "return f(a, 1.0)"), ("statement", "pass")},
        ),
        ("return max(a, b)", {("statement", "pass")}),
        ("a += not b", {("operator", "a -= not b"), ("operator", "a += b"), ("statement", "pass")}),
        ('raise ValueError("too many" + a)', {("statement", "pass")}),
    ],
)
def test_every_kind_of_change(line: str, changed: set[tuple[str, str]], tmp_path: Path) -> None:
    head = "def g(a: int = b) -> int:\n    "
    (tmp_path / "one.py").write_text(head + line + "\n")
    ((_, kinds),) = mutants.sites(tmp_path).items()
    text = head + line
    found = {
        (one.kind, (text[: one.start] + one.after + text[one.end :])[len(head) :])
        for each in kinds.values()
        for one in each
    }
    assert found == changed


def test_imports_lead_to_the_modules_that_define_names() -> None:
    imports = quick.imports_of(seeded.ROOT)
    src = "src/alphafair/"
    found = imports.direct("tests/evaluation/test_evaluate.py")
    assert src + "algorithms/alpha_fair_bandit.py" in found  # through two packages
    assert src + "engine/requests.py" in imports.direct("tests/engine/test_faults.py")
    closest = imports.closest_tests(src + "math/adahedge.py")
    assert closest[0] == "tests/algorithms/test_adahedge.py"
    assert "tests/math/test_math.py" not in imports.closest_tests(src + "service/sessions.py")
    assert "tests/cli/test_commands.py" in imports.closest_tests(src + "cli/frontier.py")


def test_quick_chooses_what_depends_on_what_has_changed() -> None:
    every = {*files_of_tests(seeded.ROOT)}
    assert quick.chosen_files(None) >= every
    assert quick.chosen_files(["pyproject.toml"]) >= every
    assert "tests/algorithms/test_adahedge.py" in quick.chosen_files(["src/alphafair/math/adahedge.py"])
    page = quick.chosen_files(["src/alphafair/service/page/main.js"])
    assert "tests/page/test_page.py" in page
    assert "tests/math/test_math.py" not in page
    assert quick.chosen_files(["tests/math/test_cholesky.py"]) == {"tests/math/test_cholesky.py"}


def test_every_slow_test_is_there() -> None:
    """Also after tests were renamed: an entry that fits nothing would let slow tests into `make check`."""
    for name in json.loads(quick.SLOW.read_text()):
        file = name.rpartition(" of ")[2].partition("::")[0]
        assert (seeded.ROOT / file).is_file(), name
