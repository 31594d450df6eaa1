"""One text for both stores: the schema, and questions with named parameters.

Words in braces stand for what SQLite and PostgreSQL write differently. In the schema they are types. In questions
`{within d}` are the events of the table `d` between two positions of an experiment, and `{found d}` is the table
`decision` as `d`, reduced to the ids of the parameter `ids`. Flags are compared as integers.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from importlib import resources
from typing import Any, Final, NamedTuple

FIRST: Final = 13  # the version that one text makes, in both stores; each later one is a text of its own beside it
ONLY_SQLITE: Final = "-- sqlite only"
_WORD = re.compile(r"\{(\w+)(?: (\w+))?\}")
_PARAMETER = re.compile(r"(?<!:):(\w+)")
_COMMENT = re.compile(r" *--[^\n]*")
_TABLE = re.compile(r"create table (\w+) \((.*?)\)[^(),]*;", re.DOTALL)
_LATER_COLUMN = re.compile(r"alter table (\w+) add column (\w+) (double precision|\w+)")
_COLUMN = re.compile(r"(?!primary|unique)(\w+) (double precision|\w+)(.*)", re.DOTALL)
_EVENT = "event {int} primary key,\n    experiment {int} not null,\n    position {int} not null"


class Step(NamedTuple):
    """One text of the schema: it brings the version before to `number`; the first one makes a new store."""

    number: int
    name: str
    text: str


def read_steps(*folders: str) -> list[Step]:
    """Return the texts of a folder of the schema, in their order."""
    files = resources.files("alphafair.engine.store").joinpath("schema", *folders).iterdir()
    found = [(file.name, file) for file in files if file.name.endswith(".sql")]
    return [Step(int(name[:4]), name[5:-4], file.read_text(encoding="utf-8")) for name, file in sorted(found)]


STEPS: Final = read_steps()
NEWEST: Final = STEPS[-1].number  # the version of the schema


@dataclass(frozen=True)
class Dialect:
    """What a word in braces stands for in one kind of store."""

    name: str  # of the store, in messages
    argument: str  # of whoever opens one
    types: dict[str, str]
    within: str
    found: str
    has_marks: bool  # and erasures, and space to be tried

    def __hash__(self) -> int:
        return hash(self.name)

    @functools.cached_property
    def steps(self) -> list[Step]:
        """The statements that make a new store, and those of each later version."""
        texts = (text if self.has_marks else text.partition(ONLY_SQLITE)[0] for _, _, text in STEPS)
        return [step._replace(text=self.types_in(text)) for step, text in zip(STEPS, texts, strict=True)]

    @property
    def schema(self) -> str:
        """The statements of all versions."""
        return "".join(step.text for step in self.steps)

    def types_in(self, text: str) -> str:
        words = self.types | {"event": _EVENT}
        for _ in range(2):  # `event` has types, too
            text = _WORD.sub(lambda found: words[found[1]], text)
        return "\n".join(re.sub(r" ;", ";", line).rstrip() for line in text.splitlines()) + "\n"

    @functools.cached_property
    def tables(self) -> dict[str, dict[str, str]]:
        """The columns of every table, with their types."""
        schema = _COMMENT.sub("", self.schema)
        found = {name: _columns(body) for name, body in _TABLE.findall(schema)}
        for table, column, type_ in _LATER_COLUMN.findall(schema):
            found[table][column] = type_
        return found

    @functools.cached_property
    def constraints(self) -> set[tuple[str, str]]:
        """`primary key` and `unique` of every table that has one."""
        found = _TABLE.findall(_COMMENT.sub("", self.schema))
        return {(name, key) for name, body in found for key in ("primary key", "unique") if key in body}

    @functools.cache  # noqa: B019 - there are two of them
    def question(self, text: str) -> str:
        """Return a question without words in braces."""
        return _WORD.sub(lambda found: getattr(self, found[1]).format(found[2]), text)

    @functools.cache  # noqa: B019
    def numbered(self, text: str) -> tuple[str, tuple[str, ...]]:
        """Return a question with $1, $2 for its parameters, and their names in this order."""
        names: list[str] = []

        def number(found: re.Match[str]) -> str:
            if found[1] not in names:
                names.append(found[1])
            return f"${names.index(found[1]) + 1}"

        return _PARAMETER.sub(number, self.question(text)), tuple(names)


def _columns(body: str) -> dict[str, str]:
    """Return the columns of a table: parts between commas that are outside of parentheses."""
    parts = re.split(r",(?![^()]*\))", body)
    found = (_COLUMN.fullmatch(part.strip()) for part in parts)
    return {each[1]: each[2] for each in found if each is not None}


SQLITE: Final = Dialect(
    "file",
    "path",
    {"int": "integer", "real": "real", "bytes": "blob", "strict": "strict", "keyed": "strict, without rowid"},
    "{0}.event between :low and :high and {0}.experiment = :experiment and {0}.position > :after "
    "and {0}.position <= :until",
    "(select value from json_each(:ids)) wanted cross join decision {0} on {0}.id = wanted.value",
    True,
)
POSTGRES: Final = Dialect(
    "database",
    "address",
    {"int": "bigint", "real": "double precision", "bytes": "bytea", "strict": "", "keyed": ""},
    "{0}.event between :low and :high",  # exact; with the experiment beside it a plan may take nine times as long
    # `offset 0`: one id after the other by their index, never by going through a table
    "unnest(:ids::text[]) as wanted(id) cross join lateral (select * from decision where id = wanted.id offset 0) {0}",
    False,
)


def as_dict(names: tuple[str, ...], values: dict[str, Any]) -> list[Any]:
    """Return values in the order of their parameters."""
    return [values[name] for name in names]
