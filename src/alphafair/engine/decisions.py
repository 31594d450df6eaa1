"""Decisions and their rewards: the log is the truth, the policies' state a fold over it.

Requests of all threads gather; one of the callers takes all that wait, draws arms from memory, writes one transaction,
folds it, and only then is anybody answered. A crash at any line loses nothing that was acknowledged and repeats
nothing: what is in memory is never ahead of what is on the disk.
"""

from __future__ import annotations

import contextlib
import json
import random
import secrets
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from alphafair import __version__, validate
from alphafair.engine import memory
from alphafair.engine.erasures import Erasures
from alphafair.engine.events import TABLES, Activated, Change, Context, Decided, Late, Settled
from alphafair.engine.experiment import CODE, LOG, LONGEST_REASON, Experiment, checked_label
from alphafair.engine.expiry import Expiry
from alphafair.engine.fold import Fold
from alphafair.engine.ids import NewIds
from alphafair.engine.integrity import checksum
from alphafair.engine.known import Known, KnownDecisions
from alphafair.engine.ledger import Ledger, Update, commit_bytes
from alphafair.engine.queue import Queue, Ticket
from alphafair.engine.replay import Replay
from alphafair.engine.requests import Activate, Decide, Outcome, Receipt, Request, Reward
from alphafair.engine.snapshots import Snapshots
from alphafair.errors import InvalidArgument, Mismatch, RequestError, Unavailable
from alphafair.memory_limit import memory_limit
from alphafair.values.available import packed

LEAST_PROBE = 1 << 20  # bytes that have to find room before the file counts as available
GROUP = 5_000  # the most requests in one transaction
RETRY = 1.0  # seconds, at least, between two attempts to load what could not be loaded
SNAPSHOT_EVERY = 100_000  # events of an experiment between two snapshots
PAGE = 500  # decisions settled by the clock in one transaction

TIMED = (Change, Decided, Activated, Settled, Late)
APPLIED = Outcome("applied")
_new = tuple.__new__  # a NamedTuple's own constructor takes twice as long


class Decisions:
    """The part of `Engine` that decides and learns."""

    def __init__(
        self,
        ledger: Ledger,
        seed: int | None = None,
        clock: Callable[[], int] = time.time_ns,
        max_contexts: int | None = None,
    ) -> None:
        self._ledger, self._clock = ledger, clock
        self._max_contexts, self._memory = max_contexts, int(memory_limit() * memory.SHARE)
        self._random = random.Random(secrets.randbits(128) if seed is None else seed)  # noqa: S311 - draws arms, no secrets
        self._new_ids = NewIds(seed)
        self._writer = threading.RLock()
        self._waiting = Queue()
        self._stale, self._closed = False, False
        self._problem: str | None = None  # why the last commit failed, or serving or loading did
        self._load_after = 0.0  # when to try to load again, by the monotonic clock
        self._to_prove = LEAST_PROBE  # bytes to be written before the file counts as available; 0 once they were
        self.last_commit_seconds = 0.0
        self.delays: list[float] | None = None  # set a list to be told the seconds from decisions to rewards
        try:
            self._load()
            if not ledger.read_only:
                self._note_upgrade()
            self._erasures = Erasures(ledger)
        except BaseException:
            ledger.close()
            raise

    # the state in memory

    def _load(self) -> None:
        """Fold the log into memory, from the last snapshots on. What was there goes first: two copies may not fit."""
        self._stale = True
        self._keep({})
        began, reason = time.monotonic(), ""
        try:
            position, latest, experiments = self._folded()
        except (OSError, Mismatch, InvalidArgument) as problem:
            self._problem = str(problem)
            raise
        except Exception as problem:
            reason = reason_of(problem)
            LOG.error("Loading %s failed", self._ledger.path, exc_info=problem)
        if reason:  # raised here, so that it does not hold on to what has been loaded
            self._problem = f"{self._ledger.path} cannot be loaded: {reason}"
            self._load_after = time.monotonic() + max(RETRY, time.monotonic() - began)
            raise Unavailable(self._problem)
        self.position, self._latest = position, latest
        self._keep(experiments)
        self._stale = False

    def _folded(self) -> tuple[int, int, dict[int, Experiment]]:
        """What the log leads to: its last position and time, and the experiments."""
        ledger = self._ledger
        with ledger.at_one_moment():
            position = ledger.position
            experiments = Replay(ledger, position).from_snapshots().run()
            for key, number, label in ledger.each("select experiment, number, label from context order by number"):
                if key not in experiments:  # nobody's: `verify` will say so
                    continue
                experiments[key].n_contexts = max(experiments[key].n_contexts, number + 1)
                if label is not None:
                    experiments[key].contexts[label] = number
            last = "select at from {} order by seq desc limit 1"
            times = [ledger.rows(last.format(TABLES[kind])) for kind in TIMED]
        return position, max((at for rows in times for (at,) in rows), default=0), experiments

    def _keep(self, experiments: dict[int, Experiment]) -> None:
        """Have these in memory, and nothing of others."""
        self._keyed = experiments
        self._experiments = {experiment.name: experiment for experiment in experiments.values()}
        self._known = KnownDecisions(self._ledger, experiments)
        self._expiry = Expiry(self._ledger, experiments.values())
        self._snapshots = Snapshots(self._ledger)

    def _note_upgrade(self) -> None:
        """Write down what other code has led to, so that a replay can begin there."""
        fold, upgraded = Fold(self.position, self._now()), list[tuple[Experiment, Change]]()
        for experiment in self._keyed.values():
            if experiment.code != CODE and (state := experiment.saved_state()) is not None:
                body = json.dumps({"code": CODE, "version": __version__, "tally": experiment.tally.to_json()})
                change = Change(fold.next(), experiment.key, "upgrade", body, state, fold.at)
                fold.changed(experiment, change)
                upgraded.append((experiment, change))
        if upgraded:
            self._append(fold)
            for experiment, change in upgraded:
                experiment.apply(change)

    def _now(self) -> int:
        """Microseconds since 1970; never before the last event, whatever the clock does."""
        return max(self._clock() // 1000, self._latest)

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        """Nobody writes meanwhile, and what is in memory is what is on the disk."""
        with self._writer:
            self._check_open()
            self._freshen()
            yield

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """The writer's turn; everything that waits is served first."""
        if self._ledger.read_only:
            raise RequestError(
                "read_only", "engine", "opened for writing", "read_only=True", "Ask the one that writes."
            )
        with self._reading():
            while self._waiting:
                self._serve()
            begun, unavailable = False, None
            try:
                self._recover()
                begun = True
                yield
            except InvalidArgument:
                raise
            except MemoryError as problem:
                unavailable = self._failed(problem, begun)
            except BaseException as problem:
                self._failed(problem, begun)
                raise
            if unavailable is not None:
                raise unavailable

    def _failed(self, problem: BaseException, begun: bool) -> BaseException:
        """Note why requests cannot be served; what is in memory is not trusted any more if some were `begun`.

        The error to answer with: it must not hold on to what is in memory, which is dropped before it is loaded again.
        """
        if isinstance(problem, InvalidArgument):
            return problem
        self._stale = self._stale or begun
        if isinstance(problem, OSError | Mismatch):
            self._problem = str(problem)
            return problem
        self._problem = reason_of(problem)
        traceback.clear_frames(problem.__traceback__)
        if not isinstance(problem, MemoryError):
            return problem
        LOG.error("There is too little memory", exc_info=problem)
        return Unavailable(f"{self._ledger.path} cannot be served: {self._problem}")

    def _check_open(self) -> None:
        if self._closed:
            raise RequestError("closed", "engine", "open", "closed", "Open it again with Engine.open.")

    def _freshen(self) -> None:
        """After a failed write, or for a reader that is behind: what is on the disk is the truth."""
        if self._stale and time.monotonic() < self._load_after:
            raise Unavailable(self._problem or "It cannot be loaded.")
        if self._stale or (self._ledger.read_only and self._ledger.position != self.position):
            self._load()

    def _recover(self, *, prove: bool = False) -> None:
        """Before writing: after a failed commit prove that one as large can succeed, and only then read the file again.

        So a disk that stays full costs a request one attempt to write, and not the time that loading takes.
        """
        if self._problem is None and not prove:
            self._freshen()
            return
        self._ledger.probe(max(self._to_prove, LEAST_PROBE))
        self._freshen()
        self._problem, self._to_prove = None, 0

    def _append(self, fold: Fold, updates: Sequence[Update] = ()) -> None:
        """Write, then fold: the one place where the state moves on."""
        began = time.perf_counter()
        try:
            self._ledger.append(self.position, fold.last, fold.rows, updates)
        except BaseException as problem:
            self._stale, self._problem, self._to_prove = True, reason_of(problem), commit_bytes(fold.rows)
            raise
        self.last_commit_seconds, self._problem, self._to_prove = time.perf_counter() - began, None, 0
        self.position, self._latest = fold.last, max(self._latest, fold.at)
        if self.delays is not None:
            self.delays += fold.delays
        try:
            fold.apply()
        except BaseException:
            self._stale = True
            raise

    # many requests at once

    def submit(self, requests: Sequence[Request]) -> list[Receipt | Outcome | RequestError]:
        """Answer all requests once they are on the disk, in one transaction; what is refused is an answer too."""
        if self._ledger.read_only:
            raise RequestError(
                "read_only", "engine", "opened for writing", "read_only=True", "Ask the one that writes."
            )
        ticket = Ticket(requests)
        self._waiting.wait(ticket, self._lead)
        if ticket.problem is not None:
            raise ticket.problem
        return ticket.answers or []

    def _lead(self, ticket: Ticket) -> None:
        with self._writer:
            while not ticket.served:
                self._serve()

    def _serve(self) -> None:
        group = self._waiting.take(GROUP)
        try:
            answers = self._answer_group(group)
        except BaseException as problem:
            answer = self._failed(problem, begun=False)
            for ticket in group:
                ticket.problem = answer
                ticket.woken.set()
            if not isinstance(problem, Exception):
                raise
            return
        for ticket, own in zip(group, answers, strict=True):
            ticket.answers = own
            ticket.woken.set()
        with contextlib.suppress(Unavailable, MemoryError):  # they are on the disk, whatever becomes of a snapshot
            self._take_snapshots()

    def _answer_group(self, group: Sequence[Ticket]) -> list[list[Receipt | Outcome | RequestError]]:
        """What all of a group are told, once it is on the disk."""
        self._check_open()
        self._recover()
        try:
            ids = [getattr(request, "id", None) for ticket in group for request in ticket.requests]
            self._known.begin_group([id for id in ids if id is not None])
            fold = Fold(self.position, self._now())
            self._settle_overdue(fold)
            answers = [self._answers(ticket.requests, fold) for ticket in group]
            if fold.last > fold.start:
                self._append(fold)
        except BaseException:
            self._stale = True
            raise
        return answers

    def _answers(self, requests: Sequence[Request], fold: Fold) -> list[Receipt | Outcome | RequestError]:
        ways: dict[type, Callable[[Any, Fold], Receipt | Outcome]]
        ways = {Decide: self._decide, Reward: self._reward, Activate: self._activate}
        answers: list[Receipt | Outcome | RequestError] = []
        for request in requests:
            try:
                answers.append(ways.get(type(request), _unknown)(request, fold))
            except RequestError as refused:
                answers.append(refused)
            except InvalidArgument as refused:
                argument, allowed, value, repair = refused.argument, refused.allowed, refused.value, refused.repair
                answers.append(RequestError("bad_request", argument, allowed, value, repair))
        return answers

    def _decide(self, request: Decide, fold: Fold) -> Receipt:
        """Check, draw, and only then change anything: what is refused leaves no trace."""
        name, label, id, available, deferred = request
        experiment = self._experiments.get(name) if type(name) is str else None
        if experiment is None:
            experiment = self._find_experiment(name)
        if type(label) is not str:
            label = checked_label("context", label)
        if id is not None:
            if type(id) is not str or id not in self._known.absent:  # else it has been looked at
                id = checked_label("id", id)
            known = self._known.find(id)
            if known is not None:
                if known.experiment is not experiment or known.label != label:
                    repair = "Use an id once; to ask again, repeat the request as it was."
                    raise RequestError("id_taken", "id", "one that no other decision has", id, repair)
                return Receipt(id, experiment.arms[known.arm], known.propensity, label)
        if experiment.paused:
            raise RequestError("paused", "experiment", "one that is not paused", name, "Resume it first.")
        mask = experiment.mask(available) if experiment.masked or available is not None else None
        number, policy, is_new = experiment.contexts.get(label, -1), experiment.policy, False
        if number < 0:
            checked_label("context", label)
            number, is_new = experiment.n_contexts, True
            self._check_room(experiment, number + 1)
            policy = experiment.policy_for(number)
        arm, propensity, probabilities = experiment.draw(policy, number, self._random, mask)
        used = None if probabilities is None else probabilities.astype("<f8").tobytes()
        could = None if mask is None else packed(mask)
        if is_new:  # nothing is refused from here on
            experiment.add_context(label, number, policy)
            fold.add(Context(experiment.key, number, label))
        fold.last = seq = fold.last + 1
        at = fold.at
        if id is None:
            id = self._new_ids.next()
        known = Known(seq, experiment, number, label, arm, propensity, not deferred, at, used, None)
        version, later = experiment.version, 1 if deferred else 0
        key, tie = experiment.key, checksum(experiment.key, number, label, id)
        row = (seq, id, key, number, arm, propensity, fold.start, version, later, could, used, at, tie)
        fold.decided(row, known)
        self._known.recent[id] = known
        if experiment.wait is not None:
            self._expiry.made(experiment.wait, at)
        return _new(Receipt, (id, experiment.arms[arm], propensity, label))

    def _reward(self, request: Reward, fold: Fold) -> Outcome:
        id, value, name = request
        known = self._find_decision(id, name)
        if known is None:
            return Outcome("unknown")
        experiment = known.experiment
        if type(value) is float and experiment.low <= value <= experiment.high and known.probabilities is None:
            reward: float | None = value
            rewards: bytes | None = None
        else:
            reward, rewards = experiment.checked_reward(value, len(known.probabilities or b"") // 8)
        if known.settled is None and experiment.wait is not None and known.since + experiment.wait <= fold.at:
            self._settle_by_the_clock(known, fold)
        if known.settled is not None:
            first, source, first_rewards = known.settled
            if source == "client":
                return Outcome("repeated" if (reward, rewards) == (first, first_rewards) else "conflict")
            fold.late(known, reward, rewards)
            return _closed(source)
        if not known.active:
            repair = "Activate the decision first: a deferred one counts from then on."
            raise RequestError("not_activated", "id", "an activated decision", id, repair)
        fold.settled(known, reward, "client", rewards)
        fold.delays.append((fold.at - known.since) / 1e6)
        return APPLIED

    def _activate(self, request: Activate, fold: Fold) -> Outcome:
        known = self._find_decision(request.id, request.experiment)
        if known is None:
            return Outcome("unknown")
        if known.active:
            return Outcome("repeated")
        wait = known.experiment.wait
        if known.settled is None and wait is not None and known.since + wait <= fold.at:
            self._settle_by_the_clock(known, fold)
        if known.settled is not None:
            return _closed(known.settled[1])
        fold.activated(known)
        return Outcome("activated")

    # decisions

    def _find_experiment(self, name: Any) -> Experiment:
        experiment = self._experiments.get(name) if isinstance(name, str) else None
        if experiment is None:
            repair = f"There are {validate.listed(self._experiments)}." if self._experiments else "Create it first."
            raise RequestError("unknown_experiment", "experiment", "one of those in the file", name, repair)
        return experiment

    def _find_decision(self, id: Any, name: Any) -> Known | None:
        """A decision of any experiment, or of the one that is named."""
        known = self._known.find(id)
        if known is None or name is None:
            return known
        return known if isinstance(name, str) and known.experiment.name == name else None

    def _max_contexts_of(self, experiment: Experiment) -> int:
        """How many contexts an experiment may have: as said, or those that fit into its share of the memory."""
        if self._max_contexts is not None:
            return self._max_contexts
        n_experiments = len(self._keyed) + (experiment.key not in self._keyed)
        share = self._memory // n_experiments
        return memory.contexts_in(share, experiment.policy) if experiment.has_policy else experiment.n_contexts

    def _check_room(self, experiment: Experiment, n_contexts: int) -> None:
        most = self._max_contexts_of(experiment)
        if n_contexts > most:
            allowed = f"one of at most {most:,} contexts of {experiment.name}"
            repair = (
                "Raise max_contexts (alphafair serve --max-contexts), or use fewer labels, say of similar visitors."
            )
            raise RequestError("too_many_contexts", "context", allowed, f"number {n_contexts:,}", repair)

    # the clock

    @staticmethod
    def _settle_by_the_clock(known: Known, fold: Fold) -> None:
        """The default reward, if there is one; none where there is not, or where the decision never counted."""
        default = known.experiment.default_reward
        if not known.active:
            fold.settled(known, None, "lapsed")
        elif default is None:
            fold.settled(known, None, "expired")
        elif known.probabilities is None:
            fold.settled(known, default, "default")
        else:
            n_arms = len(known.probabilities) // 8
            fold.settled(known, None, "default", np.full(n_arms, default).astype("<f8").tobytes())

    def _settle_overdue(self, fold: Fold) -> int:
        """Settle some of what is overdue; the rest is answered as expired already, and settled with the next groups."""
        n_settled = 0
        for found in self._expiry.overdue(self.position, fold.at, PAGE):
            known = self._known.cached(found.id)
            if known is None:
                experiment, active = self._keyed[found.experiment], bool(found.active)
                arguments = (found.seq, experiment, found.context, None, found.arm, found.propensity, active)
                known = Known(*arguments, found.since, found.probabilities, None)
            self._settle_by_the_clock(known, fold)
            n_settled += 1
        return n_settled

    def expire(self) -> int:
        """Settle every decision whose waiting time is over; how many there were. Requests of others go in between.

        Any request settles some, too, and a reward that comes after the waiting time is late whether or not its
        decision was settled by then.
        """
        n_settled, now = 0, self._now()
        while True:
            with self._writing():
                n_settled += self._expire_page()
                if not self._expiry.is_behind(now):
                    return n_settled

    def maintain(self) -> bool:
        """Do one short piece of the work that can wait; whether there is more. For whoever calls it now and then.

        Decisions whose waiting time is over are settled, what was erased is cleaned away, and snapshots are written.
        """
        with self._writing():
            self._erasures.clean(again=True)
            self._expire_page()
            with contextlib.suppress(Unavailable):
                self._take_snapshots()
            return self._expiry.is_behind(self._now()) or self._snapshots.is_busy

    def _expire_page(self) -> int:
        fold = Fold(self.position, self._now())
        n_settled = self._settle_overdue(fold)
        if n_settled:
            self._append(fold)
        return n_settled

    # snapshots

    def _take_snapshots(self, least: int | None = None) -> None:
        """Do one step towards the snapshots that are due, unless it is the requests' turn.

        With `least` take one of every experiment that has had so many events since the last, all at once.
        """
        due = [
            experiment
            for experiment in self._keyed.values()
            if experiment.unsaved >= (least or max(SNAPSHOT_EVERY, experiment.snapshot_every))
        ]
        if least is not None:
            self._snapshots.finish(due, self.position)
        elif (due or self._snapshots.is_busy) and not self._snapshots.is_resting:
            self._snapshots.step(due, self.position)


def _closed(source: str) -> Outcome:
    """What is said of a decision that was settled without its reward."""
    return Outcome("rolled_back" if source == "rollback" else "expired")


def reason_of(problem: BaseException) -> str:
    """Why something failed, in a line: its kind too where the text is not one of ours."""
    if isinstance(problem, OSError | Mismatch):
        return str(problem)
    return f"{type(problem).__name__}: {problem}"[:LONGEST_REASON].rstrip(": ")


def _unknown(request: object, fold: Fold) -> Outcome:
    raise RequestError("bad_request", "request", "a Decide, Reward or Activate", request, "Make one of those.")
