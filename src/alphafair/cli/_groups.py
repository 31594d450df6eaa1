"""Whom to be fair to, as commands take it: a table about arms, and a floor for every arm."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from alphafair.errors import InvalidArgument

if TYPE_CHECKING:
    from alphafair.groups import ArmGroups

GroupsFile = Annotated[
    Path | None,
    typer.Option(
        "--groups",
        metavar="FILE",
        help="A table with a row per arm: arm, and group, entitlement or floor, or several of these.",
    ),
]
PullFloor = Annotated[
    float, typer.Option("--pull-floor", metavar="X", help="The least probability of every arm in every round.")
]
COLUMNS = ("group", "entitlement", "floor")


def read_groups(path: Path | None, arms: Sequence[str] | None, n_arms: int, pull_floor: float) -> ArmGroups:
    """From the columns of a table; entitlement and floor are of the group, or of the arm where there is no group."""
    from alphafair.data.table import collected, named_columns, opened
    from alphafair.groups import Groups

    if path is None:
        return Groups(pull_floor=pull_floor).for_arms(n_arms)
    labels = [str(arm) for arm in arms or range(n_arms)]
    lazy, where, _ = opened(path, ["arm", "group"])
    columns = lazy.collect_schema().names()
    named_columns(where, columns, ["arm"])
    known = [name for name in COLUMNS if name in columns]
    if not known:
        repair = "Add a column group, entitlement or floor."
        raise InvalidArgument(f"{where}: columns", "arm, and what is to be known about it", columns, repair)
    table = collected(lazy.select("arm", *known), where).to_dicts()
    rows, expected = {str(row["arm"]): row for row in table}, {*labels}
    missing, odd = [arm for arm in labels if arm not in rows], [arm for arm in rows if arm not in expected]
    if missing or odd or len(rows) < len(table):
        twice = [arm for arm, times in Counter(str(row["arm"]) for row in table).items() if times > 1]
        repair = f"Missing: {missing[:5]}; unknown: {odd[:5]}; more than once: {twice[:5]}."
        raise InvalidArgument(f"{where}: arm", "every arm of the data, once", f"{len(table)} rows", repair)
    alone = [arm for arm in labels if "group" in known and rows[arm]["group"] is None]
    if alone:
        repair = "Name one: an arm on its own is a group of one arm."
        raise InvalidArgument(f"{where}: group of arm {alone[0]}", "named", None, repair)
    groups = [str(rows[arm]["group"]) for arm in labels] if "group" in known else None
    given: dict[str, Any] = {}
    for name, argument in (("entitlement", "entitlements"), ("floor", "pull_floor")):
        if name in known:
            given[argument] = _by_group(where, name, labels, groups, rows)
    if "pull_floor" in given and pull_floor > 0.0:
        raise InvalidArgument("--pull-floor", "left out with a column floor", pull_floor, "Use one or the other.")
    return Groups(groups, **{"pull_floor": pull_floor, **given}).for_arms(n_arms)


def group_settings(groups: ArmGroups) -> dict[str, Any]:
    """What was said about groups, under that name, as JSON can hold it; nothing where nothing was said."""
    return {} if groups.is_default else {"groups": groups.settings()}


def _by_group(
    where: str, name: str, arms: Sequence[str], groups: Sequence[str] | None, rows: dict[str, Any]
) -> dict[Any, float]:
    """One number per group, which all of its arms must agree about; those without one are left out."""

    found: dict[Any, float] = {}
    for number, arm in enumerate(arms):
        value = rows[arm][name]
        group: Any = number if groups is None else groups[number]
        if value is None:
            continue
        if found.setdefault(group, value) != value:
            allowed = f"the same for all arms of group {group}"
            raise InvalidArgument(f"{where}: {name} of arm {arm}", allowed, value, f"Others have {found[group]}.")
    return found
