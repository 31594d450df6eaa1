"""What readers ask of an experiment: its state at one moment, its contexts, its log page by page, one decision.

Nothing here counts events: counts come from the `Summary` of an experiment. Pages of the log are read over connections
of their own, so a reader never waits for the writer longer than it takes to copy some numbers.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from alphafair import metrics
from alphafair.engine.experiment import Experiment
from alphafair.engine.store import questions
from alphafair.engine.store.ledger import FoundRow, LogSearch, Store
from alphafair.engine.summary import Fairness, Summary
from alphafair.values import Feedback, Vector
from alphafair.values.available import unpacked
from alphafair_client.answers import ChangeRecord, Status

AT_ONCE: Final = 25  # contexts whose probabilities are computed while requests wait
STRETCH: Final = 20_000  # positions of the log that one query searches
SEARCH_SECONDS: Final = 0.3  # for a page of the log: with rare filters it may be shorter than asked for
STATES: Final = {  # what has become of a decision, by what settled it
    "client": "rewarded",
    "default": "defaulted",
    "expired": "expired",
    "lapsed": "lapsed",
    "rollback": "rolled_back",
}
SOURCES_OF: Final = {state: source for source, state in STATES.items()}
ERASED: Final = "erased-"


class Certificate(NamedTuple):
    """Bounds that hold for a run with full information; None where the policy has none."""

    welfare_ratio: float | None  # of the best fixed policy's welfare to the present one
    regret: float | None  # OPT - c_alpha times the alpha-performance, at most; below alpha = 1


class Overview(NamedTuple):
    """An experiment at one moment."""

    at: int  # microseconds since 1970
    position: int  # of its last event
    status: Status
    summary: Summary  # a copy, without decisions per context
    fairness: Fairness  # now
    certificate: Certificate | None
    group_of: dict[str, str]  # of every arm; empty where arms are on their own
    playable_since: list[int]  # by arm: when it was added or last unmasked, in microseconds
    lifetimes: list[tuple[int, int | None]]  # by arm: when it was added, and when it was retired
    period_pulls: dict[str, int] | None  # by arm, in the current period; None: the log does not tell
    changes: list[ChangeRecord]  # those that were asked for


class ContextProbabilities(NamedTuple):
    """A context, and the current probabilities of live arms; None where the policy fails."""

    label: str
    decisions: int
    probabilities: list[float] | None


class LogFilter(NamedTuple):
    """Which decisions of the log to return."""

    context: str | None = None
    arm: str | None = None
    state: str | None = None  # one of STATES, or pending, or deferred
    since: int | None = None  # microseconds
    until: int | None = None
    before: int | None = None  # a position


class LogPage(NamedTuple):
    """Decisions, the newest first."""

    rows: list[FoundRow]
    arms: list[str]  # all arms, by number
    searched_to: int  # the position above which everything was searched
    ended: bool  # there are no older ones


class DecisionStory(NamedTuple):
    """One decision, and the settings of its experiment at that time."""

    row: FoundRow
    experiment: str
    at_that_time: Experiment  # without a policy
    available: NDArray[np.bool_]  # by arm
    probabilities: Vector | None  # as stored, under full information
    rewards: Vector | None  # of all arms, as stored
    changes_since: list[ChangeRecord]
    position: int  # of the last event of the experiment, now


def overview(experiment: Experiment, now: int, max_contexts: int, changes: list[ChangeRecord]) -> Overview:
    """Return copies of what an experiment knows; the caller keeps writers out meanwhile."""
    full = experiment.has_policy and experiment.policy.feedback is Feedback.FULL
    try:
        group_of = experiment.group_of if experiment.has_policy else {}
    except Exception:  # `status` tells what is wrong
        group_of = {}
    return Overview(
        now,
        experiment.position,
        experiment.status(max_contexts),
        experiment.summary.copy(contexts=False),
        experiment.fairness(),
        _certificate(experiment) if full else None,
        group_of,
        list(experiment.playable_since),
        [(at, experiment.retired_at.get(arm)) for arm, at in enumerate(experiment.added_at)],
        experiment.period_pulls(),
        changes,
    )


def _certificate(experiment: Experiment) -> Certificate | None:
    """Return the bounds that a policy proves; None where it proves none, or fails."""
    found: list[float | None] = []
    for bound in (metrics.welfare_certificate, metrics.regret_certificate):
        try:
            value = bound(experiment.policy)
            found.append(value if math.isfinite(value) else None)
        except Exception:  # of another alpha, or of a policy without such a bound
            found.append(None)
    return None if found == [None, None] else Certificate(*found)


# contexts


def matching(contexts: Mapping[str, int], search: str) -> NDArray[np.int64]:
    """Return the numbers of the contexts whose label contains a string, in any case."""
    wanted = search.casefold()
    return np.array([number for label, number in contexts.items() if wanted in label.casefold()], dtype=np.int64)


def most_frequent(numbers: NDArray[np.int64], counts: NDArray[np.int64], first: int, n: int) -> NDArray[np.int64]:
    """Return contexts by their number of decisions, the most frequent first, older contexts first among equals."""
    decisions = np.zeros(len(numbers), dtype=np.int64)
    counted = numbers < len(counts)
    decisions[counted] = counts[numbers[counted]]
    order = len(numbers) * decisions - np.arange(len(numbers))  # all differ
    wanted = min(first + n, len(numbers))
    top = np.argpartition(-order, wanted - 1)[:wanted] if wanted < len(numbers) else np.arange(wanted)
    return numbers[top[np.argsort(-order[top])[first:]]]


def labels_of(contexts: Mapping[str, int], numbers: Sequence[int]) -> dict[int, str]:
    """Return the labels of some contexts by number."""
    wanted = set(numbers)
    found = {number: label for label, number in contexts.items() if number in wanted}
    return {number: found.get(number, f"{ERASED}{number}") for number in wanted}


def probabilities(experiment: Experiment, contexts: Sequence[int]) -> list[list[float] | None]:
    """Return the current probabilities of live arms in some contexts; None where the policy fails, or has no arm."""
    live = [number for number in range(len(experiment.arms)) if number not in experiment.retired]
    found: list[list[float] | None] = []
    for context in contexts:
        try:
            found.append(experiment.policy.probabilities(context, available=experiment.mask(None))[live].tolist())
        except Exception:  # `status` tells what is wrong
            found.append(None)
    return found


# the log


def log_page(store: Store, experiment: Experiment, wanted: LogFilter, last: int, limit: int) -> LogPage:
    """Search the log backwards from position `last` until a page is full, or some time has passed."""
    context = None if wanted.context is None else _context_number(experiment, wanted.context)
    arm = None if wanted.arm is None else experiment.arm_numbers.get(wanted.arm, -1)
    end = last if wanted.before is None else min(last, wanted.before - 1)
    if wanted.until is not None:
        end = min(end, _position_before(store, experiment.key, wanted.until, end))
    begin = experiment.changes[0].position
    if wanted.since is not None:
        begin = max(begin, _position_before(store, experiment.key, wanted.since, end))
    state = SOURCES_OF.get(wanted.state or "", wanted.state)
    rows: list[FoundRow] = []
    stop = time.monotonic() + SEARCH_SECONDS
    while end > begin and len(rows) < limit:
        start = max(begin, end - STRETCH)
        search = LogSearch(start, end, limit - len(rows), context, arm, state)
        rows += questions.log_rows(store, experiment.key, search)
        end = rows[-1].position - 1 if len(rows) >= limit else start
        if time.monotonic() > stop:
            break
    return LogPage(rows, list(experiment.arms), end, end <= begin)


def _context_number(experiment: Experiment, label: str) -> int:
    number = experiment.contexts.get(label, -1)
    if number < 0 and label.startswith(ERASED) and label[len(ERASED) :].isascii() and label[len(ERASED) :].isdigit():
        return int(label[len(ERASED) :][:9])
    return number


def _position_before(store: Store, key: int, at: int, last: int) -> int:
    """Return the last position up to `last` until which all decisions were made before a time: times never fall."""
    low, high = 0, last + 1
    while high - low > 1:
        middle = (low + high) // 2
        time_there = questions.decision_time(store, key, middle)
        low, high = (middle, high) if time_there is None or time_there < at else (low, middle)
    return low


def story(experiment: Experiment, row: FoundRow, changes: list[ChangeRecord], position: int) -> DecisionStory:
    """Put together what is known about a decision."""
    created, *later = experiment.changes
    then = Experiment(created)
    for change in later:
        if change.position <= row.policy_version:
            then.note(change)
    available = np.ones(len(then.arms), dtype=np.bool_)
    available[sorted(then.retired)] = False
    if row.available is not None:
        available &= unpacked(row.available, len(then.arms))
    return DecisionStory(
        row,
        experiment.name,
        then,
        available,
        _vector(row.probabilities),
        _vector(row.rewards),
        [change for change in changes if change.position > row.position],
        position,
    )


def _vector(blob: bytes | None) -> Vector | None:
    return None if blob is None else np.frombuffer(blob, dtype="<f8")


def state_of(row: FoundRow) -> str:
    """Return what has become of a decision."""
    if row.source is not None:
        return STATES[row.source]
    return "deferred" if row.deferred and row.activated_at is None else "pending"
