"""The options for groups of arms: a table about arms, and a floor for every arm."""

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
        help="A table with a row per arm and the columns arm and group, entitlement or floor.",
    ),
]
PullFloor = Annotated[
    float, typer.Option("--pull-floor", metavar="X", help="The least probability of every arm in every round.")
]
COLUMNS = ("group", "entitlement", "floor")


def read_groups(path: Path | None, arms: Sequence[str] | None, n_arms: int, pull_floor: float) -> ArmGroups:
    """Read groups from a table; entitlement and floor are of the group, or of the arm where there is no group."""
    from alphafair.groups import Groups
    from alphafair.tables import Column, open_table

    if path is None:
        return Groups(pull_floor=pull_floor).for_arms(n_arms)
    labels = [str(arm) for arm in arms or range(n_arms)]
    table = open_table(path)
    table.require(["arm"])
    known = [name for name in COLUMNS if name in table.columns]
    if not known:
        repair = "Add a column group, entitlement or floor."
        raise InvalidArgument(f"{table.label}: columns", "arm, and one of these", table.columns, repair)
    table = table.select("arm", *known)
    frame = table.read()
    found = table.column(frame, Column("arm")).to_list()
    if sorted(found) != sorted(labels):
        missing, unknown = (
            [arm for arm in some if arm not in {*others}] for some, others in ((labels, found), (found, labels))
        )
        repeated = [arm for arm, times in Counter(found).items() if times > 1]
        repair = f"Missing: {missing[:5]}; unknown: {unknown[:5]}; more than once: {repeated[:5]}."
        raise InvalidArgument(f"{table.label}: arm", "every arm of the data, once", f"{len(found)} rows", repair)
    place = {arm: row for row, arm in enumerate(found)}
    groups = None
    if "group" in known:
        column = Column("group", repair="Name one: an arm on its own is a group of one arm.")
        names = table.column(frame, column).to_list()
        groups = [names[place[arm]] for arm in labels]
    given: dict[str, Any] = {}
    for name, argument in (("entitlement", "entitlements"), ("floor", "pull_floor")):
        if name in known:
            numbers = Column(name, "number").read_optional(frame[name], table.where, table.decimal_comma).to_list()
            given[argument] = _by_group(table.label, name, labels, groups, [numbers[place[arm]] for arm in labels])
    if "pull_floor" in given and pull_floor > 0.0:
        repair = "Use one or the other."
        raise InvalidArgument("--pull-floor", "omitted where the file has a column floor", pull_floor, repair)
    return Groups(groups, **{"pull_floor": pull_floor, **given}).for_arms(n_arms)


def group_settings(groups: ArmGroups) -> dict[str, Any]:
    """The settings of groups for JSON; empty where there are none."""
    return {} if groups.is_default else {"groups": groups.settings()}


def _by_group(
    where: str, name: str, arms: Sequence[str], groups: Sequence[str] | None, values: Sequence[float | None]
) -> dict[Any, float]:
    """One number per group, on which its arms must agree; groups without one are left out."""
    found: dict[Any, float] = {}
    for number, (arm, value) in enumerate(zip(arms, values, strict=True)):
        group: Any = number if groups is None else groups[number]
        if value is not None and found.setdefault(group, value) != value:
            allowed = f"the same for all arms of group {group}"
            raise InvalidArgument(f"{where}: {name} of arm {arm}", allowed, value, f"Others have {found[group]}.")
    return found
