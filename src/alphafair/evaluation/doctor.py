"""What can be checked about a log before anything is estimated from it, in plain words."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from alphafair.data.log_table import AVAILABLE, ROW, Columns, Table, open_table, read_log
from alphafair.data.table import Where, collected, whole
from alphafair.errors import InvalidArgument
from alphafair.evaluation.batches import AnyLog, arm_names, batches, check_log, has_available
from alphafair.evaluation.log_file import LogFile
from alphafair.evaluation.log_scores import SQUARE, WEIGHT, Rows
from alphafair.evaluation.scores import ESTIMATORS, count_cells, score
from alphafair.formatting import clipped, counted, listed, number, percent
from alphafair.values import Log, Vector

if TYPE_CHECKING:
    import polars as pl

GRADES = ("wrong", "look", "fine")
MOST_NAMED = 3
CHANCE = 0.001  # of a false alarm about propensities, over all arms together
HEAVY = 0.05  # of all rounds: what one row should not count for
SMALL = 0.1  # of an even share
ROUNDING = 1e-6  # of a propensity
OFF = 0.02  # as a part: below it, propensities that do not add up do no harm


class Finding(NamedTuple):
    """One thing about a log: "wrong" must be mended, "look" may be as it should, "fine" was checked."""

    grade: Literal["wrong", "look", "fine"]
    what: str


class InversePropensities(NamedTuple):
    """Their mean for every arm that was shown, which should be 1, and how far noise can take it from there."""

    arms: tuple[str, ...]
    means: Vector
    noise: Vector

    @property
    def off(self) -> NDArray[np.bool_]:
        """Farther from 1 than noise and than would be harmless."""
        return np.abs(self.means - 1.0) > np.maximum(self.noise, OFF)


class Diagnosis(NamedTuple):
    """All findings, the worst first."""

    findings: tuple[Finding, ...]
    inverse_propensities: InversePropensities | None = None  # unless rows are wrong

    @property
    def is_sound(self) -> bool:
        return all(finding.grade != "wrong" for finding in self.findings)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        checked = self.inverse_propensities
        arms = [] if checked is None else zip(checked.arms, checked.means.tolist(), checked.noise.tolist(), strict=True)
        return {
            "sound": self.is_sound,
            "findings": [finding._asdict() for finding in self.findings],
            "inverse_propensities": [{"arm": arm, "mean": mean, "noise": noise} for arm, mean, noise in arms],
        }


def doctor(
    source: Any,
    *,
    context: str = "context",
    arm: str = "arm",
    reward: str = "reward",
    propensity: str = "propensity",
    time: str | None = None,
    user: str | None = None,
    id: str | None = None,
    available: str | None = AVAILABLE,
) -> Diagnosis:
    """Look a log over and say what is wrong with which rows.

    `source` is a `Log`, a `LogFile`, or a table as in `Log.from_table`, of which the parameters are. A table is looked
    at row by row first: values that cannot be, ids that are repeated, time that goes backwards. Then, what only many
    rows show: inverse propensities that do not average to one, arms never shown, contexts with few rounds.

    Where decisions were not always drawn among all arms (`available`), inverse propensities are averaged over the
    rounds in which each arm was available.

    >>> rows = {"context": ["a", "a", "b"], "arm": [0, 1, 1], "reward": [1, 0, None], "propensity": [0.5, 1.5, 0.5]}
    >>> for finding in doctor(rows).findings:
    ...     print(finding.grade, "|", finding.what)
    wrong | 1 row has a propensity that is not a number in (0, 1]: source, row 1
    look | 1 row has no reward yet and is left out
    """
    if isinstance(source, Log | LogFile):
        return _of_log(source, [], lambda row: f"row {row}")
    try:
        columns = Columns(context, arm, reward, propensity, time, user, available=available)
        table = open_table(source, columns, extra=id)
    except InvalidArgument as refusal:
        return Diagnosis((Finding("wrong", str(refusal)),))
    findings = list(_of_rows(table, id))
    if any(finding.grade == "wrong" for finding in findings):
        return Diagnosis(_sorted(findings))
    try:
        log = read_log(source, columns._replace(time=None, user=None))
    except InvalidArgument as refusal:  # of the lists of available arms
        return Diagnosis(_sorted([*findings, Finding("wrong", str(refusal))]))
    rows = collected(table.rows.select(ROW), table.label)[ROW]
    return _of_log(log, findings, lambda row: table.where(rows[row]))


def _sorted(findings: list[Finding]) -> tuple[Finding, ...]:
    return tuple(sorted(findings, key=lambda finding: GRADES.index(finding.grade)))


def _of_rows(table: Table, id: str | None) -> Iterator[Finding]:
    """What single rows show."""
    import polars as pl

    columns = table.columns
    waiting = int(collected(table.all_rows.select(pl.col(columns.reward).is_null().sum()), table.label).item())
    if waiting:
        yield Finding("look", f"{_rows(waiting)} no reward yet and {'is' if waiting == 1 else 'are'} left out")
    frame = whole(table.rows, table.label)
    if not len(frame):
        yield Finding("wrong", "there is no row with a reward")
        return
    for name, allowed, inside in (
        (columns.reward, "a finite number", pl.col(columns.reward).cast(pl.Float64, strict=False).is_finite()),
        (
            columns.propensity,
            "a number in (0, 1]",
            pl.col(columns.propensity).cast(pl.Float64, strict=False).is_between(0, 1, closed="right"),
        ),
        (columns.context, "there", pl.col(columns.context).is_not_null()),
        (columns.arm, "there", pl.col(columns.arm).is_not_null()),
    ):
        wrong = frame.select(~inside.fill_null(False)).to_series().arg_true().to_list()
        if wrong:
            named = _places(table, frame, wrong)
            yield Finding("wrong", f"{_rows(len(wrong))} a {name} that is not {allowed}: {named}")
    if id is not None:
        again = frame[id].is_duplicated() & ~frame[id].is_first_distinct()
        if again.any():
            named = _places(table, frame, again.arg_true().to_list())
            yield Finding("wrong", f"{_rows(int(again.sum()))} an id that came before: {named}")
        else:
            yield Finding("fine", "no id is repeated")
    if columns.time is not None:
        back = (frame[columns.time].diff().to_physical() < 0).fill_null(False)
        if back.any():
            named = _places(table, frame, back.arg_true().to_list())
            yield Finding("look", f"{_rows(int(back.sum()))} an earlier time than the row before: {named}")
        else:
            yield Finding("fine", "time never goes backwards")


def _of_log(log: AnyLog, findings: list[Finding], where: Where) -> Diagnosis:
    """What only many rows show, after what single rows do."""
    findings = [*findings, *_of_single_arms(log, where), *_of_small_propensities(log, where)]
    try:
        check_log(log)
    except InvalidArgument as refusal:
        said = refusal.argument.startswith("log.propensities")
        return Diagnosis(_sorted(findings if said else [*findings, Finding("wrong", str(refusal))]))
    checked = inverse_propensities(log)
    many = [*findings, *_of_arms(log), _of_propensities(checked, has_available(log))]
    return Diagnosis(_sorted(many), checked)


def _of_single_arms(log: AnyLog, where: Where) -> Iterator[Finding]:
    """Where one arm alone was available, it was shown with certainty."""
    wrong: list[int] = []
    first = 0
    for rows in batches(log):
        single = np.append(rows.sets.sum(axis=1) == 1, log.n_arms == 1)[rows.of_sets]  # the last is for -1
        wrong += (first + np.flatnonzero(single & (rows.propensities < 1.0 - ROUNDING))).tolist()
        first += len(rows.propensities)
    if wrong:
        named = _some([where(row) for row in wrong[:MOST_NAMED]], len(wrong))
        yield Finding("wrong", f"{_rows(len(wrong))} one available arm and a propensity below 1: {named}")


def _of_small_propensities(log: AnyLog, where: Where) -> Iterator[Finding]:
    """Rows of propensity q or less come at most T n q times among T rounds and n arms, on average."""
    limit = CHANCE / sum(available_arms(rows, log.n_arms) for rows in batches(log))
    heavy = min(1.0 / (HEAVY * log.n_rounds), SMALL / log.n_arms)
    small: list[tuple[int, float]] = []
    first = 0
    for rows in batches(log):
        places = np.flatnonzero(rows.propensities < max(limit, heavy))
        small += [(first + int(row), float(rows.propensities[row])) for row in places]
        first += len(rows.propensities)
    never = [row for row, propensity in small if propensity < limit]
    if never:
        named = _some([where(row) for row in never[:MOST_NAMED]], len(never))
        what = f"a propensity below {limit:.0e}, with which none should have come"
        yield Finding("wrong", f"{_rows(len(never))} {what}: {named}")
    elif small:
        named = _some([where(row) for row, _ in small[:MOST_NAMED]], len(small))
        what = f"a propensity so small that each counts for more than {percent(HEAVY)} of all rounds"
        yield Finding("look", f"{_rows(len(small))} {what}: {named}")


def _of_arms(log: AnyLog) -> Iterator[Finding]:
    cells, names, n_rounds = count_cells(log), arm_names(log), log.n_rounds
    shown = cells.counts.sum(axis=0)
    never = [clipped(names[arm], 24) for arm in np.flatnonzero(shown == 0.0)]
    if never:
        yield Finding("look", f"{counted(len(never), 'arm')} never shown, so nothing can be said of: {_some(never)}")
    few = cells.visits < log.n_arms
    if few.any():
        part = percent(float(cells.visits[few].sum()) / n_rounds)
        thin = counted(int(few.sum()), "context")
        yield Finding("look", f"{thin} came fewer than {log.n_arms} times, once for every arm: {part} of all rounds")
    else:
        yield Finding("fine", "every context came at least as often as there are arms")
    if float(cells.sums.sum()) == 0.0:
        yield Finding("wrong", "no round has a reward above 0")


def available_arms(rows: Rows, n_arms: int) -> int:
    """How many there were, over all rows."""
    sizes = np.append(rows.sets.sum(axis=1), n_arms)  # the last is for -1
    return int(sizes[rows.of_sets].sum())


def inverse_propensities(log: AnyLog) -> InversePropensities:
    """Inverse propensities of an arm, 0 where another was shown, average to 1 where it was available, if true."""
    uniform = np.full((1, log.n_contexts, log.n_arms), 1.0 / log.n_arms)  # weights 1/(n p)
    scores = score(log, uniform, ESTIMATORS["ips"], renormalise=False)
    weights, seen = scores.arm_weights, np.flatnonzero(scores.arm_weights[WEIGHT])
    n_rounds = log.n_arms * scores.expected[seen]  # in which each was available
    means, squares = (log.n_arms**power * weights[row, seen] / n_rounds for power, row in ((1, WEIGHT), (2, SQUARE)))
    errors = np.sqrt(np.maximum(squares - 1.0, 0.0) / n_rounds)  # around 1, as it should be
    limit = NormalDist().inv_cdf(1.0 - CHANCE / (2.0 * max(len(seen), 1)))
    names = arm_names(log)
    return InversePropensities(tuple(names[arm] for arm in seen), means, limit * errors)


def _of_propensities(checked: InversePropensities, with_sets: bool) -> Finding:
    off = np.flatnonzero(checked.off)
    if not len(off):
        return Finding("fine", "inverse propensities average to one for every arm, within their noise")
    said = [f"{clipped(checked.arms[k], 24)} ({number(checked.means[k], 3)})" for k in off]
    where = "over the rounds in which they were available" if with_sets else "for every arm"
    absent = "" if with_sets else " (if it was not always available, a column of available arms must say so)"
    return Finding(
        "wrong",
        f"inverse propensities should average to 1 {where}, and do not for {_some(said)}: below 1 the arm was "
        f"not shown where it should have been{absent}, or propensities are too large; above 1 they are too small",
    )


def _rows(count: int) -> str:
    return f"{counted(count, 'row')} {'has' if count == 1 else 'have'}"


def _places(table: Table, frame: pl.DataFrame, rows: list[int]) -> str:
    return _some([table.where(frame[ROW][row]) for row in rows[:MOST_NAMED]], len(rows))


def _some(named: list[str], count: int | None = None) -> str:
    count = len(named) if count is None else count
    few = named[:MOST_NAMED]
    return listed(few) if count <= len(few) else f"{', '.join(few)} and {count - len(few)} more"
