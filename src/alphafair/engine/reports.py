"""What readers ask of an experiment: its state at one moment, its contexts, its log page by page, one decision.

Nothing here counts events: counts come from the `Summary` of an experiment. Pages of the log are read over connections
of their own, so a reader never waits for the writer longer than it takes to copy some numbers.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from alphafair import metrics, validate
from alphafair.engine import changes
from alphafair.engine.jobs import ProbabilitiesJob, WhatIfJob
from alphafair.engine.state.experiment import Experiment
from alphafair.engine.state.settings import checked_label
from alphafair.engine.state.status import group_of, status_of
from alphafair.engine.state.summary import Fairness, Summary
from alphafair.engine.store import questions
from alphafair.engine.store.ledger import FoundRow, LogSearch, Store
from alphafair.engine.writers import AllWriters
from alphafair.errors import RequestError
from alphafair.jit import Kernels
from alphafair.precompile import OTHERS
from alphafair.values import Feedback, Vector
from alphafair.values.available import unpacked
from alphafair_client.answers import ChangeRecord, Status

if TYPE_CHECKING:
    from alphafair.engine.export import ExportJob

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


class Bounds(NamedTuple):
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
    bounds: Bounds | None
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


class LogExcerpt(NamedTuple):
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
    features: dict[str, float | str | None] | None  # by name
    changes_since: list[ChangeRecord]
    position: int  # of the last event of the experiment, now


class Reports:
    """What the service shows beside the answers of the engine. Nothing here is written."""

    def __init__(self, writers: AllWriters) -> None:
        self._writers = writers

    def kernels(self, name: str) -> set[Kernels]:
        """Return what the policy of an experiment runs on, and will run on once a decision of others is rewarded.

        The second is expected where others decide too. Nothing for an experiment without a policy that works.
        """
        with self._writers.reading(name) as (_, experiment):
            if not experiment.has_policy:
                return set()
            found = {Kernels.of(experiment.policy)}
            if experiment.has_sides and experiment.policy.learns_from_others:
                found |= {each._replace(flags=each.flags | {OTHERS}) for each in found}
            return found

    def overview(self, name: str, *, history: bool = True) -> Overview:
        """Return an experiment at one moment, with what happened over time and, with `history`, all changes."""
        with self._writers.reading(name) as (writer, experiment):
            found = changes.history(experiment) if history else []
            most = writer.memory.max_contexts_of(experiment)
            return overview_of(experiment, writer.now(), most, found)

    def has(self, name: str) -> bool:
        """Whether there is an experiment with a name, as far as is known without waiting for the writer."""
        return any(name in each.memory.experiments for each in self._writers.all())

    def version(self, name: str) -> int:
        """The position of the last change of an experiment, as far as is known without waiting for the writer."""
        found = [
            each.memory.experiments[name].version for each in self._writers.all() if name in each.memory.experiments
        ]
        return max(found, default=-1)

    def contexts(
        self, name: str, search: str = "", limit: int = 40, offset: int = 0
    ) -> tuple[list[str], int, list[ContextProbabilities]]:
        """Return the live arms, the number of contexts that match, and some: those with the most decisions first.

        A context matches if its label contains `search`, in any case.
        """
        with self._writers.reading(name) as (_, experiment):
            arms, n_contexts = experiment.live_arms, experiment.n_contexts
            experiment.summary.flush()
            counts, contexts = experiment.summary.contexts.copy(), experiment.contexts.copy()
        numbers = matching(contexts, search) if search else np.arange(n_contexts)
        wanted = most_frequent(numbers, counts, offset, limit).tolist()
        labels = labels_of(contexts, wanted)
        found: list[ContextProbabilities] = []
        for first in range(0, len(wanted), AT_ONCE):
            some = wanted[first : first + AT_ONCE]
            with self._writers.reading(name) as (_, experiment):
                probabilities = probabilities_of(experiment, some)
            decisions = [int(counts[each]) if each < len(counts) else 0 for each in some]
            found += map(ContextProbabilities, (labels[each] for each in some), decisions, probabilities)
        return arms, len(numbers), found

    def log_excerpt(self, name: str, wanted: LogFilter, limit: int = 50) -> LogExcerpt:
        """Return decisions, the newest first; a page may be shorter than asked for where few decisions match."""
        with self._writers.reading(name) as (writer, experiment):
            store, last = writer.store, experiment.position
        with store.reader() as reader:
            return excerpt_of(reader, experiment, wanted, last, limit)

    def story(self, name: str, id: str) -> DecisionStory:
        """Return one decision, with the settings of its experiment at that time and the changes since."""
        with self._writers.reading(name) as (writer, experiment):
            store, position, known = writer.store, experiment.position, changes.history(experiment)
        with store.reader() as reader:
            row = questions.log_row(reader, experiment.key, checked_label("id", id))
        if row is None:
            repair = "Check the id. Ids of erased contexts are removed."
            raise RequestError("unknown_decision", "id", f"the id of a decision of {name}", id, repair)
        return story_of(experiment, row, known, position)

    def export_job(self, name: str, format: str) -> ExportJob:
        """Return an export of the log as it is now, to be run by another process."""
        from alphafair.engine.export import ExportJob, checked_format

        with self._writers.reading(name) as (_, experiment):
            until = experiment.position
        format = checked_format(experiment, format)
        of_log = experiment.full, until, format, experiment.has_slates, experiment.has_sources
        return ExportJob(self._writers.store.address, experiment.name, experiment.key, *of_log)

    def what_if_job(self, name: str, rounds: int, source: str | None = None) -> WhatIfJob:
        """Return the price of fairness from the latest `rounds` of a log as it is now, to be run by another process.

        They are decisions of the policy, or of another source.
        """
        with self._writers.reading(name) as (writer, experiment):
            rewards = experiment.tally.rewards + experiment.tally.defaulted
            if source is not None:
                if source not in experiment.tally.sources:
                    known = validate.listed(experiment.tally.sources) or "none"
                    repair = f"There are {known}. Record decisions of others first."
                    raise RequestError("bad_request", "source", f"one who has decided in {name}", source, repair)
                rewards = questions.n_rewarded(writer.store, experiment.key, source, rounds)
            groups = experiment.policy.groups if experiment.has_policy else None
            return WhatIfJob(
                address=self._writers.store.address,
                experiment=experiment.key,
                name=name,
                position=experiment.position,
                full=experiment.full,
                rounds=rounds,
                rewards=rewards,
                reward_range=experiment.settings.reward_range,
                alpha=experiment.alpha,
                groups=None if groups is None or groups.is_default else groups.settings(),
                source=source,
            )

    def probabilities_job(self, story: DecisionStory) -> ProbabilitiesJob:
        """Return the distribution that a decision was drawn from, to be recomputed by another process."""
        row = story.row
        return ProbabilitiesJob(
            address=self._writers.store.address,
            experiment=story.at_that_time.key,
            name=story.experiment,
            position=row.state_version,
            context=row.context,
            available=None if row.available is None else tuple(story.available.tolist()),
            k=None if row.slate is None else row.slate.asked,
            features=_shown_features(story.at_that_time, row),
        )


# at one moment


def overview_of(experiment: Experiment, now: int, max_contexts: int, changes: list[ChangeRecord]) -> Overview:
    """Return copies of what an experiment knows; the caller keeps writers out meanwhile."""
    full = experiment.has_policy and experiment.policy.feedback is Feedback.FULL
    try:
        groups = group_of(experiment) if experiment.has_policy else {}
    except Exception:  # `status` tells what is wrong
        groups = {}
    return Overview(
        now,
        experiment.position,
        status_of(experiment, max_contexts),
        experiment.summary.copy(contexts=False),
        experiment.fairness(),
        _bounds(experiment) if full else None,
        groups,
        list(experiment.playable_since),
        [(at, experiment.retired.get(arm)) for arm, at in enumerate(experiment.added_at)],
        experiment.periods.pulls(experiment),
        changes,
    )


def _bounds(experiment: Experiment) -> Bounds | None:
    """Return the bounds that a policy proves; None where it proves none, or fails."""
    found: list[float | None] = []
    for bound in (metrics.welfare_certificate, metrics.regret_certificate):
        try:
            value = bound(experiment.policy)
            found.append(value if math.isfinite(value) else None)
        except Exception:  # of another alpha, or of a policy without such a bound
            found.append(None)
    return None if found == [None, None] else Bounds(*found)


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


def probabilities_of(experiment: Experiment, contexts: Sequence[int]) -> list[list[float] | None]:
    """Return the current probabilities of live arms in some contexts; None where the policy fails, or has no arm."""
    live = [number for number in range(len(experiment.arms)) if number not in experiment.retired]
    found: list[list[float] | None] = []
    for context in contexts:
        try:
            mask, of_arms = experiment.mask(None), experiment.arm_values
            shown: dict[str, Any] = {} if of_arms is None else {"features": of_arms.present({})}
            found.append(experiment.policy.probabilities(context, available=mask, **shown)[live].tolist())
        except Exception:  # `status` tells what is wrong
            found.append(None)
    return found


# the log


def excerpt_of(store: Store, experiment: Experiment, wanted: LogFilter, last: int, limit: int) -> LogExcerpt:
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
    return LogExcerpt(rows, list(experiment.arms), end, end <= begin)


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


def story_of(experiment: Experiment, row: FoundRow, changes: list[ChangeRecord], position: int) -> DecisionStory:
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
        _values(experiment, row),
        [change for change in changes if change.position > row.position],
        position,
    )


def _values(experiment: Experiment, row: FoundRow) -> dict[str, float | str | None] | None:
    """Return the features of a decision by name."""
    stored = _vector(row.features)
    return None if stored is None or experiment.schema is None else experiment.schema.values(stored)


def _shown_features(then: Experiment, row: FoundRow) -> tuple[Any, ...] | None:
    """Return the features of a decision, or of arms at that time, as the policy got them."""
    if then.arm_values is not None:
        return tuple(map(tuple, then.arm_values.present({}).tolist()))
    columns = then.encoded_features(row.features or b"")
    return None if columns is None else tuple(columns[0].tolist())


def _vector(blob: bytes | None) -> Vector | None:
    return None if blob is None else np.frombuffer(blob, dtype="<f8")


def state_of(row: FoundRow) -> str:
    """Return what has become of a decision."""
    if row.source is not None:
        return STATES[row.source]
    return "deferred" if row.deferred and row.activated_at is None else "pending"
