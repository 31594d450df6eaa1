"""Checks of a log before anything is estimated from it."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import NormalDist
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from alphafair.errors import InvalidArgument
from alphafair.evaluation.estimators import ESTIMATORS, SQUARE, WEIGHT, Scoring, score
from alphafair.evaluation.log_rows import AnyLog, LogFile, arm_names, batches, check_log, has_available, has_decisions
from alphafair.evaluation.optima import survey
from alphafair.extras import polars as pl
from alphafair.formatting import clipped, counted, listed, number, percent
from alphafair.tables import Where, as_labels
from alphafair.values import Log, Vector
from alphafair.values.log_table import AVAILABLE, Labels, LogColumns, LogTable

GRADES = ("wrong", "look", "fine")
MOST_NAMED = 3
CHANCE = 0.001  # of a false alarm about propensities, for all arms together
HEAVY = 0.05  # of all rounds: the most that one row should count for
SMALL = 0.1  # of an even share
ROUNDING = 1e-6  # of a propensity
OFF = 0.02  # relative: a smaller error of propensities does no harm


class Finding(NamedTuple):
    """A finding about a log: "wrong" must be corrected, "look" should be checked, "fine" was checked."""

    grade: Literal["wrong", "look", "fine"]
    what: str


class InversePropensities(NamedTuple):
    """The mean inverse propensity of every arm that was shown, which should be 1, and the reach of its noise."""

    arms: tuple[str, ...]
    means: Vector
    noise: Vector

    @property
    def off(self) -> NDArray[np.bool_]:
        """Arms whose mean is farther from 1 than noise explains, and not negligibly."""
        return np.abs(self.means - 1.0) > np.maximum(self.noise, OFF)


class Diagnosis(NamedTuple):
    """All findings, the worst first."""

    findings: tuple[Finding, ...]
    inverse_propensities: InversePropensities | None = None  # None where rows are wrong

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
    decision: str | None = None,
) -> Diagnosis:
    """Check a log, and name the rows that are wrong.

    `source` is a `Log`, a `LogFile`, or a table with the parameters of `Log.from_table`. The rows of a table are
    checked first: values that are not allowed, repeated ids, times that go backwards. Then the log as a whole: inverse
    propensities that do not average to one, arms never shown, contexts with few rounds.

    Where decisions show several arms (`decision`), their rows must agree and show different arms, and an id may repeat
    within a decision.

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
    findings: list[Finding] = []
    try:
        columns = LogColumns(
            context, arm, reward, propensity, time, user, available=available, id=id, decision=decision
        )
        table = LogTable.open(source, columns)
        every = table.table.read()
        frame = every.filter(table.has_reward)
        findings = list(_of_rows(table, frame, every[table.columns.reward].null_count(), len(every) - len(frame)))
        if any(finding.grade == "wrong" for finding in findings):
            return Diagnosis(_sorted(findings))
        labels = Labels.of(*table.labels_in(frame))
        log = Log.from_decisions(table.decode(frame, labels), labels)
    except InvalidArgument as error:
        return Diagnosis(_sorted([*findings, Finding("wrong", str(error))]))
    return _of_log(log, findings, table.where(frame))


def _sorted(findings: list[Finding]) -> tuple[Finding, ...]:
    return tuple(sorted(findings, key=lambda finding: GRADES.index(finding.grade)))


def _of_rows(table: LogTable, frame: pl.DataFrame, n_waiting: int, n_left_out: int) -> Iterator[Finding]:
    """Findings about single rows."""
    columns = table.columns
    if n_waiting and columns.decision is not None:
        rows = counted(n_left_out, "row")
        yield Finding("look", f"{_rows(n_waiting)} no reward yet; their decisions are left out, {rows} in all")
    elif n_waiting:
        yield Finding("look", f"{_rows(n_waiting)} no reward yet and {'is' if n_waiting == 1 else 'are'} left out")
    if not len(frame):
        yield Finding("wrong", "there is no row with a reward")
        return
    where, checks = table.where(frame), columns.checks()
    for name, allowed in (("reward", ""), ("propensity", ""), ("context", "there"), ("arm", "there")):
        column = checks[name]
        if frame.schema[column.name] == pl.Binary:
            allowed = allowed and "UTF-8 text"
        if frame.schema[column.name].is_temporal() and not frame[column.name].has_nulls():
            allowed = allowed and "a date in calendars"
        wrong = column.bad_rows(frame[column.name], table.table.decimal_comma)
        if wrong:
            named = _places(where, wrong)
            allowed = allowed or column.allowed_numbers
            yield Finding("wrong", f"{_rows(len(wrong))} a {column.name} that is not {allowed}: {named}")
    if columns.id is not None:
        ids, places = frame[columns.id], pl.Series(range(len(frame)))
        if columns.decision is not None:  # of the first row of every decision
            places = places.filter(frame[columns.decision].rle_id().is_first_distinct())
            ids = ids.gather(places)
        again = places.filter(ids.is_duplicated() & ~ids.is_first_distinct())
        if len(again):
            named = _places(where, again.to_list())
            yield Finding("wrong", f"{_rows(len(again))} an id that came before: {named}")
        else:
            yield Finding("fine", "no id is repeated")
    if columns.decision is not None:
        yield from _of_decisions(table, frame, columns.decision)
    if columns.time is not None:
        times = checks["time"].convert(frame[columns.time])
        back = (times.diff().to_physical() < 0).fill_null(False)
        if back.any():
            named = _places(where, back.arg_true().to_list())
            yield Finding("look", f"{_rows(int(back.sum()))} an earlier time than the row before: {named}")
        else:
            yield Finding("fine", "time never goes backwards")


def _of_decisions(table: LogTable, frame: pl.DataFrame, decision: str) -> Iterator[Finding]:
    """Findings about rows of one decision."""
    columns, where, runs = table.columns, table.where(frame), frame[decision].rle_id()
    begins, numbers = runs.is_first_distinct(), frame[decision]
    first_of_all = pl.DataFrame([numbers.alias("number")]).select(pl.col("number").is_first_distinct()).to_series()
    pairs = pl.DataFrame({"run": runs, "arm": as_labels(frame[columns.arm])})
    wrong = {
        "a decision that came before, further up": begins & ~first_of_all,
        "an arm that came before in its decision": pairs.is_duplicated() & ~_first_of(pairs),
    }
    for name, same in (("context", columns.context), ("id", columns.id), ("user", columns.user)):
        if same is not None and same != decision:
            given = as_labels(frame[same])
            first = given.filter(begins).gather(runs)
            wrong[f"another {name} than the first of its decision"] = given.ne_missing(first)
    for what, rows in wrong.items():
        if rows.any():
            named = _places(where, rows.arg_true().to_list())
            yield Finding("wrong", f"{_rows(int(rows.sum()))} {what}: {named}")
    if not any(rows.any() for rows in wrong.values()):
        yield Finding("fine", "the rows of every decision agree, and show different arms")


def _first_of(pairs: pl.DataFrame) -> pl.Series:
    return pairs.select(pl.struct(pl.all()).is_first_distinct()).to_series()


def _of_log(log: AnyLog, findings: list[Finding], where: Where) -> Diagnosis:
    """Findings about the log as a whole, after those about single rows."""
    findings = [*findings, *_of_propensity_sizes(log, where)]
    try:
        check_log(log)
    except InvalidArgument as error:
        found = error.argument.startswith("log.propensities")
        return Diagnosis(_sorted(findings if found else [*findings, Finding("wrong", str(error))]))
    checked = inverse_propensities(log)
    many = [*findings, *_of_arms(log), _of_propensities(checked, has_available(log))]
    return Diagnosis(_sorted(many), checked)


def _of_propensity_sizes(log: AnyLog, where: Where) -> Iterator[Finding]:
    """Propensities below 1 of a single available arm, and propensities that are too small.

    Where a decision shows all of its available arms, k of them, every slot shows each with probability 1/k.

    Among T rounds and n available arms, rows of propensity q or less occur at most T n q times on average.
    """
    heavy = min(1.0 / (HEAVY * log.n_rounds), SMALL / log.n_arms)
    single: list[int] = []
    small: list[tuple[int, float]] = []
    n_available = 0
    for _, rows in batches(log):
        sizes = np.append(rows.sets.sum(axis=1), log.n_arms)[rows.of_sets]  # the last is for -1
        n_available += int(sizes.sum())
        all_shown = (sizes == rows.shown) & (rows.propensities * rows.shown < 1.0 - ROUNDING)
        single += (rows.first + np.flatnonzero(all_shown)).tolist()
        places = np.flatnonzero(rows.propensities < max(CHANCE / log.n_rounds, heavy))  # limit is at most the first
        small += [(rows.first + int(row), float(rows.propensities[row])) for row in places]
    if single:
        named = _places(where, single)
        what = "one available arm and a propensity below 1"
        if has_decisions(log):
            what = "no more available arms than slots and a propensity below 1 divided by them"
        yield Finding("wrong", f"{_rows(len(single))} {what}: {named}")
    limit = CHANCE / n_available
    small = [(row, propensity) for row, propensity in small if propensity < max(limit, heavy)]
    never = [row for row, propensity in small if propensity < limit]
    if never:
        what = f"a propensity below {limit:.0e}, with which no row is expected"
        yield Finding("wrong", f"{_rows(len(never))} {what}: {_places(where, never)}")
    elif small:
        what = f"a propensity so small that each counts for more than {percent(HEAVY)} of all rounds"
        yield Finding("look", f"{_rows(len(small))} {what}: {_places(where, [row for row, _ in small])}")


def _of_arms(log: AnyLog) -> Iterator[Finding]:
    cells, names, n_rounds = survey(log).cells, arm_names(log), log.n_rounds
    shown = cells.counts.sum(axis=0)
    never = [clipped(names[arm], 24) for arm in np.flatnonzero(shown == 0.0)]
    if never:
        yield Finding(
            "look", f"{counted(len(never), 'arm')} never shown, so there is no information about: {_some(never)}"
        )
    few = cells.visits < log.n_arms
    if few.any():
        part = percent(float(cells.visits[few].sum()) / n_rounds)
        thin = counted(int(few.sum()), "context")
        yield Finding("look", f"{thin} came fewer than {log.n_arms} times, once for every arm: {part} of all rounds")
    else:
        yield Finding("fine", "every context came at least as often as there are arms")
    if float(cells.sums.sum()) == 0.0:
        yield Finding("wrong", "no round has a reward above 0")


def inverse_propensities(log: AnyLog) -> InversePropensities:
    """The mean of 1{arm shown}/p over the rounds in which an arm was available, which is 1 if propensities are true."""
    uniform = np.full((1, log.n_contexts, log.n_arms), 1.0 / log.n_arms)  # weights 1/(n p)
    scores = score(log, [Scoring(uniform, ESTIMATORS["ips"], renormalize=False)])[0]
    weights, seen = scores.arm_weights, np.flatnonzero(scores.arm_weights[WEIGHT])
    n_rounds = log.n_arms * scores.expected[seen]  # with each arm available
    means, squares = (log.n_arms**power * weights[row, seen] / n_rounds for power, row in ((1, WEIGHT), (2, SQUARE)))
    errors = np.sqrt(np.maximum(squares - 1.0, 0.0) / n_rounds)  # around 1
    limit = NormalDist().inv_cdf(1.0 - CHANCE / (2.0 * max(len(seen), 1)))
    names = arm_names(log)
    return InversePropensities(tuple(names[arm] for arm in seen), means, limit * errors)


def _of_propensities(checked: InversePropensities, with_sets: bool) -> Finding:
    off = np.flatnonzero(checked.off)
    if not len(off):
        return Finding("fine", "inverse propensities average to one for every arm, within their noise")
    means = [f"{clipped(checked.arms[k], 24)} ({number(checked.means[k], 3)})" for k in off]
    where = "over the rounds in which they were available" if with_sets else "for every arm"
    absent = "" if with_sets else " (if it was not always available, add a column of available arms)"
    return Finding(
        "wrong",
        f"inverse propensities should average to 1 {where}, and do not for {_some(means)}: below 1 the arm was "
        f"not shown where it should have been{absent}, or propensities are too large; above 1 they are too small",
    )


def _rows(count: int) -> str:
    return f"{counted(count, 'row')} {'has' if count == 1 else 'have'}"


def _places(where: Where, rows: list[int]) -> str:
    return _some([where(row) for row in rows[:MOST_NAMED]], len(rows))


def _some(named: list[str], count: int | None = None) -> str:
    count = len(named) if count is None else count
    few = named[:MOST_NAMED]
    return listed(few) if count <= len(few) else f"{', '.join(few)} and {count - len(few)} more"
