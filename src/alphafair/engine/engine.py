"""The engine: experiments in one file, whose decisions and rewards are durable."""

from __future__ import annotations

import contextlib
import copy
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self

import numpy as np

from alphafair import validate
from alphafair.engine import reports
from alphafair.engine.backup import copy_database
from alphafair.engine.decisions import RequestHandler
from alphafair.engine.experiment import (
    CODE,
    DEFAULT_CARRY,
    LOG,
    POLICY_CHANGES,
    Experiment,
    change_policy,
    checked_label,
    checked_period,
    checked_settings,
    checked_start,
    state_bytes,
)
from alphafair.engine.files import DatabaseFiles
from alphafair.engine.live import LiveState
from alphafair.engine.maintenance import Erasures
from alphafair.engine.replay import policy_at, rollback_position, rolled_back
from alphafair.engine.reports import ContextProbabilities, DecisionStory, LogFilter, LogPage, Overview
from alphafair.engine.requests import (
    Activate,
    ChangeRecord,
    Decide,
    Outcome,
    Queue,
    Receipt,
    Request,
    Reward,
    Status,
    Ticket,
    Value,
)
from alphafair.engine.steps import Batch
from alphafair.engine.store import Change, Context, SqliteStore, Statement
from alphafair.engine.verify import check_rows, check_states
from alphafair.errors import InvalidArgument, PolicyFailed, RequestError, Unavailable
from alphafair.formatting import json_alpha
from alphafair.groups import Groups, Labels
from alphafair.values import Account, Log, State

if TYPE_CHECKING:
    from alphafair.engine.export import ExportJob

DEFAULT_POLICY = "alpha-fair-adaptive"
MOST_REQUESTS = 5_000  # in one transaction
NOT_IN_HISTORY = ("books", "code", "summary", "tally")  # fields of a change that only the engine uses


class Engine:
    """Experiments in one file. Many threads may call one engine; one process at a time may write to a file.

    Contexts and arms are your own strings; contexts are added when they are first used. Every answer is on the disk.

    >>> import os, tempfile
    >>> from alphafair import Engine
    >>> folder = tempfile.TemporaryDirectory()
    >>> engine = Engine.open(os.path.join(folder.name, "shop.db"), seed=7)
    >>> engine.create("home", arms=["ada", "ben"], alpha=0.9)
    >>> receipt = engine.decide("home", "visitor-7")
    >>> engine.reward(receipt.id, 0.8).outcome
    'applied'
    >>> engine.reward(receipt.id, 0.8).outcome
    'repeated'
    >>> engine.verify()
    3
    >>> engine.close(); folder.cleanup()
    """

    _actor: ContextVar[str | None] = ContextVar("actor", default=None)

    def __init__(
        self,
        store: SqliteStore,
        seed: int | None = None,
        clock: Callable[[], int] = time.time_ns,
        max_contexts: int | None = None,
    ) -> None:
        self._store = store
        self._writer = threading.RLock()
        self._waiting = Queue()
        self._closed = False
        try:
            self._live = LiveState(store, clock, max_contexts)
            self._erasures = Erasures(store)
        except BaseException:
            store.close()
            raise
        self._handler = RequestHandler(self._live, seed)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        read_only: bool = False,
        create: bool = True,
        seed: int | None = None,
        max_contexts: int | None = None,
    ) -> Self:
        """Open a file, and create a missing or empty one if `create` is true; `read_only` works beside a writer.

        A `seed` makes draws repeatable, for tests. An experiment accepts `max_contexts` contexts and refuses more; by
        default as many as fit into its equal share of half of the memory.
        """
        if max_contexts is not None:
            max_contexts = validate.integer("max_contexts", max_contexts, low=1)
        if (read_only or not create) and DatabaseFiles(path).is_empty:
            allowed = "a file that alphafair made, not an empty one" if Path(path).exists() else "an existing file"
            raise InvalidArgument("path", allowed, str(path), "Check the path for a typo.")
        return cls(SqliteStore(path, read_only=read_only), seed, max_contexts=max_contexts)

    @property
    def position(self) -> int:
        """The position of the last event."""
        return self._live.position

    @property
    def readable_by_others(self) -> bool:
        """Whether other users of this machine can open the file."""
        return self._store.files.readable_by_others

    @property
    def was_empty(self) -> bool:
        """Whether the file did not exist, or had no bytes, before this engine opened it."""
        return self._store.was_empty

    @property
    def last_commit_seconds(self) -> float:
        """How long the last commit took."""
        return self._live.last_commit_seconds

    @property
    def delays(self) -> list[float] | None:
        """Set a list to collect the seconds from decisions to rewards in it."""
        return self._live.delays

    @delays.setter
    def delays(self, delays: list[float] | None) -> None:
        self._live.delays = delays

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

    def close(self) -> None:
        """Answer waiting requests, save snapshots so that opening is quick, and close the file."""
        with self._writer:
            if self._closed:
                return
            try:
                if not self._store.read_only:
                    while self._waiting:
                        self._serve()
                    if not self._live.is_stale and self._live.problem is None:
                        with contextlib.suppress(Unavailable):  # the log is enough to open it again
                            self._live.take_snapshots(least=1)
            finally:
                self._closed = True
                self._store.close()

    # turns

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        """Keep writers out, with a state in memory that is the one on the disk."""
        with self._writer:
            self._check_open()
            self._live.refresh()
            yield

    @contextlib.contextmanager
    def _writing(self) -> Iterator[Batch]:
        """Take the writer's turn, after all waiting requests are answered; with an empty batch.

        No boundary of a period lies before the moment of the batch.
        """
        self._check_writable()
        with self._reading():
            while self._waiting:
                self._serve()
            begun, unavailable = False, None
            try:
                self._live.recover()
                begun = True
                yield self._live.begin_periods()
            except InvalidArgument:
                raise
            except MemoryError as problem:
                unavailable = self._live.fail(problem, begun)
            except BaseException as problem:
                self._live.fail(problem, begun)
                raise
            if unavailable is not None:
                raise unavailable

    def _check_open(self) -> None:
        if self._closed:
            raise RequestError("closed", "engine", "open", "closed", "Open it again with Engine.open.")

    def _check_writable(self) -> None:
        if self._store.read_only:
            repair = "Open the file without read_only=True, or send the request to the process that writes."
            raise RequestError("read_only", "engine", "opened for writing", "read_only=True", repair)

    # decisions and rewards

    def decide(
        self,
        experiment: str,
        context: str,
        id: str | None = None,
        available: Sequence[str] | None = None,
        deferred: bool = False,
    ) -> Receipt:
        """Draw an arm for a context. Repeating an `id` returns the same arm and propensity.

        `available` lists the arms that can be played this time; a `deferred` decision counts once it is activated.
        """
        return self._submit_one(Decide(experiment, context, id, available, deferred))  # type: ignore[return-value]

    def reward(self, id: str, reward: Value) -> Outcome:
        """Report the reward of a decision: applied, repeated, conflict, unknown, expired or rolled_back."""
        return self._submit_one(Reward(id, reward))  # type: ignore[return-value]

    def activate(self, id: str) -> Outcome:
        """Report that a deferred decision was carried out: activated, repeated, unknown, expired or rolled_back."""
        return self._submit_one(Activate(id))  # type: ignore[return-value]

    def _submit_one(self, request: Request) -> Receipt | Outcome:
        (answer,) = self.submit([request])
        if isinstance(answer, RequestError):
            raise answer
        return answer

    def submit(self, requests: Sequence[Request]) -> list[Receipt | Outcome | RequestError]:
        """Answer all requests in one transaction, once they are on the disk; a refusal is an answer too."""
        self._check_writable()
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
        """Answer all waiting tickets in one commit."""
        tickets = self._waiting.take(MOST_REQUESTS)
        try:
            answers = self._answer(tickets)
        except BaseException as problem:
            answer = self._live.fail(problem, begun=False)
            for ticket in tickets:
                ticket.problem = answer
                ticket.woken.set()
            if not isinstance(problem, Exception):
                raise
            return
        for ticket, own in zip(tickets, answers, strict=True):
            ticket.answers = own
            ticket.woken.set()
        with contextlib.suppress(Unavailable, MemoryError):  # the answers are on the disk, with or without a snapshot
            self._live.take_snapshots()

    def _answer(self, tickets: Sequence[Ticket]) -> list[list[Receipt | Outcome | RequestError]]:
        """Return the answers to all tickets, once they are on the disk."""
        self._check_open()
        live = self._live
        live.recover()
        try:
            ids = [getattr(request, "id", None) for ticket in tickets for request in ticket.requests]
            live.decisions.begin_batch([id for id in ids if id is not None])
            batch = live.begin_periods()
            self._handler.settle_overdue(batch)
            answers = [self._handler.answer(ticket.requests, batch) for ticket in tickets]
            if batch.last > batch.start:
                live.commit(batch)
        except BaseException:
            live.is_stale = True
            raise
        return answers

    # waiting times

    def expire(self) -> int:
        """Settle every overdue decision and return how many there were; other requests are answered in between.

        Any request settles some, too, and a reward that arrives after the waiting time is late whether or not its
        decision has been settled by then.
        """
        n_settled, now = 0, self._live.now()
        while True:
            with self._writing():
                n_settled += self._expire_page()
                if not self._live.deadlines.is_behind(now):
                    return n_settled

    def maintain(self) -> bool:
        """Do one short piece of background work and return whether there is more. Call it now and then.

        Settles overdue decisions, rewrites a file after erasures, and writes snapshots.
        """
        with self._writing():
            self._erasures.clean(again=True)
            self._expire_page()
            with contextlib.suppress(Unavailable):
                self._live.take_snapshots()
            return self._live.deadlines.is_behind(self._live.now()) or self._live.snapshots.is_busy

    def _expire_page(self) -> int:
        batch = self._live.batch()
        n_settled = self._handler.settle_overdue(batch)
        if n_settled:
            self._live.commit(batch)
        return n_settled

    # experiments

    def create(
        self,
        name: str,
        *,
        arms: Sequence[str],
        policy: str | None = None,
        reward_range: tuple[float, float] = (0.0, 1.0),
        reward_wait: float | None = None,
        default_reward: float | None = None,
        start: State | None = None,
        contexts: Sequence[str] = (),
        groups: Groups | Labels | Mapping[str, Any] | None = None,
        period: str | float | None = None,
        period_start: str | datetime | None = None,
        carry: float = DEFAULT_CARRY,
        **settings: Any,
    ) -> None:
        """Create an experiment, with any registered policy ("alpha-fair-adaptive") and its settings, such as `alpha`.

        `groups` is the group of every arm, or a `Groups` with entitlements and floors by label. Its `labels` may be a
        mapping from arm to group here. Without labels, entitlements and floors are those of arms.

        Rewards lie in `reward_range`. After `reward_wait` seconds a decision without a reward gets `default_reward`, or
        is closed without one. `start` is the snapshot of a policy, for the arms and `contexts` in order; the policy and
        its settings are then those of `start`, and arguments that differ from them are refused.

        A `period`, such as "7d" or a number of seconds, makes fairness count per period: at its end every account R
        becomes 1 + carry (R - 1). Periods start every `period` from `period_start` on (ISO 8601; UTC unless it has an
        offset), by default from the creation on.
        """
        checked_label("name", name)
        labels = [checked_label("arms", arm) for arm in validate.labels("arms", arms, 1)]
        named = [checked_label("contexts", label) for label in validate.labels("contexts", contexts, 0)]
        low = validate.number("reward_range[0]", reward_range[0], low=validate.ANY_REWARD[0], high=0.0 + 1e99)
        high = validate.number("reward_range[1]", reward_range[1], low=low, high=validate.ANY_REWARD[1], low_open=True)
        if reward_wait is not None:
            reward_wait = validate.number("reward_wait", reward_wait, low=0.0, high=1e9, low_open=True)
        if default_reward is not None:
            default_reward = validate.number("default_reward", default_reward, low=low, high=high)
            if reward_wait is None:
                repair = "Pass reward_wait as well: the seconds after which it is applied."
                raise RequestError("bad_request", "default_reward", "passed with reward_wait", default_reward, repair)
        periods = checked_period(period, period_start, carry)
        if groups is not None:
            settings["groups"] = groups
        if start is not None:
            ready = checked_start(start, policy, labels, named, settings)
            policy, settings = ready.name, dict(ready.settings)
        else:
            policy = DEFAULT_POLICY if policy is None else policy
            settings = checked_settings(policy, labels, settings)
        if "alpha" in settings:
            settings["alpha"] = json_alpha(settings["alpha"])
        body = {
            "code": CODE,
            "name": name,
            "arms": labels,
            "policy": policy,
            "settings": settings,
            "reward_range": [low, high],
            "reward_wait": reward_wait,
            "default_reward": default_reward,
            "n_contexts": len(named),
            **periods,
        }
        with self._writing():
            if name in self._live.experiments:
                raise RequestError("experiment_exists", "name", "new", name, "Choose another, or use the existing one.")
            batch = self._live.batch()
            seq = batch.next()
            state = None if start is None else start.to_bytes()
            created = Change(seq, seq, "create", json.dumps(body), state, batch.at, self._actor.get())
            experiment = Experiment(created)
            experiment.policy = experiment.first_policy()
            self._live.check_contexts(experiment, len(named))
            batch.change(experiment, created)
            for number, label in enumerate(named):
                batch.add(Context(seq, number, label))
            self._live.commit(batch)
            experiment.contexts = {label: number for number, label in enumerate(named)}
            self._live.add(experiment)

    def experiments(self) -> list[str]:
        """Return the names of all experiments, in the order of their creation."""
        with self._reading():
            return list(self._live.experiments)

    def experiment(self, name: str) -> Status:
        """Return the current state of an experiment."""
        with self._reading():
            experiment = self._live.find(name)
            return experiment.status(self._live.max_contexts_of(experiment))

    def add_arm(
        self,
        name: str,
        arm: str,
        account: Account = "least",
        *,
        group: str | None = None,
        entitlement: float | None = None,
    ) -> None:
        """Add an arm, which starts with the least account of the live arms (or "fresh", or a number): see `grow`.

        Where arms have groups, pass its `group`; an `entitlement` is that of a new group.
        """
        with self._writing():
            experiment = self._live.find(name)
            self._change(experiment, "add_arm", experiment.checked_arrival(arm, account, group, entitlement))

    def retire_arm(self, name: str, arm: str) -> None:
        """Never draw an arm again; its late rewards still count."""
        with self._writing():
            experiment = self._live.find(name)
            number = experiment.number_of(arm)
            if number not in experiment.retired and len(experiment.live_arms) > 1:
                self._change(experiment, "retire_arm", {"arm": number})
            elif number not in experiment.retired:
                raise RequestError("last_arm", "arm", "one of at least two live arms", arm, "Add another first.")

    def mask_arm(self, name: str, arm: str) -> None:
        """Do not draw an arm until it is unmasked: out of stock, for example."""
        with self._writing():
            experiment = self._live.find(name)
            self._change(experiment, "mask_arm", {"arm": experiment.number_of(arm)})

    def unmask_arm(self, name: str, arm: str) -> None:
        """Draw a masked arm again."""
        with self._writing():
            experiment = self._live.find(name)
            self._change(experiment, "unmask_arm", {"arm": experiment.number_of(arm)})

    def set_alpha(self, name: str, alpha: float) -> None:
        """Use another alpha from now on, from 0 to inf; accounts and what was learned about rewards stay."""
        with self._writing():
            self._change(self._live.find(name), "set_alpha", {"alpha": json_alpha(validate.alpha(alpha))})

    def new_period(self, name: str, carry: float | None = None) -> None:
        """Start a period now: every account R becomes 1 + carry (R - 1); by default with the experiment's `carry`.

        What was learned about rewards stays. Periods that end by the calendar still end when they would have.
        """
        with self._writing() as batch:
            experiment = self._live.find(name)
            part = experiment.carry if carry is None else validate.number("carry", carry, low=0.0, high=1.0)
            self._change(experiment, "new_period", experiment.period_change(batch.at, part), batch=batch)

    def set_period(
        self,
        name: str,
        period: str | float | None,
        *,
        period_start: str | datetime | None = None,
        carry: float | None = None,
    ) -> None:
        """Let periods end by another calendar from now on; None: by `new_period` alone. See `create`.

        The current period goes on until the next boundary of the new calendar. Boundaries lie at `period_start` plus
        whole periods; by default the calendar stays if the length of a period does, and starts now otherwise. `carry`
        stays unless it is passed.
        """
        with self._writing() as batch:
            experiment = self._live.find(name)
            body = experiment.period_setting(batch.at, period, period_start, carry)
            self._change(experiment, "set_period", body, batch=batch)
            self._live.find_periodic()

    def pause(self, name: str) -> None:
        """Refuse decisions until `resume`; rewards are still accepted."""
        with self._writing():
            self._change(self._live.find(name), "pause", {})

    def resume(self, name: str) -> None:
        """Accept decisions again."""
        with self._writing():
            self._change(self._live.find(name), "resume", {})

    def _change(
        self,
        experiment: Experiment,
        kind: str,
        body: dict[str, Any],
        statements: Sequence[Statement] = (),
        batch: Batch | None = None,
    ) -> None:
        """Try a change on a copy of the policy, write it, and continue with the copy."""
        batch = self._live.batch() if batch is None else batch
        change = Change(batch.next(), experiment.key, kind, json.dumps(body), None, batch.at, self._actor.get())
        policy = None
        if kind in POLICY_CHANGES:
            policy = experiment.policy
            with _as_policy_failure(experiment, f"trying {kind}"):
                policy = copy.deepcopy(policy)
                change_policy(policy, change)
        batch.change(experiment, change)
        self._live.commit(batch, statements)
        experiment.apply(change, policy)

    def rollback(self, name: str, position: int) -> None:
        """Forget what was learned after a position, as a new event; arms, masks, alpha and period stay as they are.

        Decisions made since are closed: their rewards are answered with "rolled_back". Nothing is deleted.
        """
        with self._writing():
            experiment = self._live.find(name)
            position = validate.integer("position", position, low=experiment.key, high=self.position)
            position = rollback_position(experiment, position)
            policy = policy_at(self._store, experiment, position)
            still_open = self._store.open_after(experiment.key, position)
            batch = self._live.batch()
            seq = batch.next()
            with _as_policy_failure(experiment, f"rolling back to position {position}"):
                policy = rolled_back(self._store, experiment, policy, position, seq)
                state = state_bytes(policy)
            summary = experiment.summary_at(batch.at)
            counts = {"closed": len(still_open), "tally": experiment.tally.to_json(), "summary": len(summary)}
            body = json.dumps({"position": position, **counts})
            change = Change(seq, experiment.key, "rollback", body, state + summary, batch.at, self._actor.get())
            batch.change(experiment, change)
            for id in still_open:
                record = self._live.decisions.find(id)
                if record is not None:
                    batch.settle(record, None, "rollback")
            self._live.commit(batch)
            experiment.note(change)
            experiment.policy = policy

    def erase(self, name: str, context: str) -> None:
        """Remove a context's label, and the ids of its decisions, from the file permanently; the numbers stay.

        The same label is a new context afterwards. See `erasures_pending` for the last traces.
        """
        with self._writing():
            experiment = self._live.find(name)
            number = experiment.contexts.get(checked_label("context", context))
            if number is None:
                repair = "There is nothing to erase."
                raise RequestError("unknown_context", "context", f"a context of {name}", context, repair)
            statements = self._store.erasure(experiment.key, number, self._handler.ids.next)
            self._change(experiment, "erase", {"context": number}, statements)
            del experiment.contexts[context]
            self._live.decisions.clear()
            self._erasures.clean()

    @property
    def erasures_pending(self) -> int:
        """Erasures of which bytes may be left in unused parts of the file.

        They are removed when no other process reads the file, or, if it has over 32 MiB, when it is next opened for
        writing.
        """
        with self._reading():
            return self._store.n_erasures

    @contextlib.contextmanager
    def acting_as(self, name: str) -> Iterator[None]:
        """Record changes made inside as changes by `name`: see `history`."""
        before = self._actor.set(name)
        try:
            yield
        finally:
            self._actor.reset(before)

    def history(self, name: str) -> list[ChangeRecord]:
        """Return every change, oldest first: creation, alpha, arms, periods, pauses, rollbacks, erasures."""
        with self._reading():
            return _history(self._live.find(name))

    # reports

    def overview(self, name: str, *, changes_after: int | None = 0) -> Overview:
        """Return an experiment at one moment, with what happened over time, and its changes after a position."""
        with self._reading():
            experiment = self._live.find(name)
            changes = [] if changes_after is None else _history(experiment, changes_after)
            return self._overview(experiment, changes)

    def overviews(self) -> list[Overview]:
        """Return all experiments at one moment, without their changes."""
        with self._reading():
            return [self._overview(experiment, []) for experiment in self._live.experiments.values()]

    def _overview(self, experiment: Experiment, changes: list[ChangeRecord]) -> Overview:
        live = self._live
        return reports.overview(experiment, live.now(), live.position, live.max_contexts_of(experiment), changes)

    def has(self, name: str) -> bool:
        """Whether there is an experiment with a name, as far as is known without waiting for the writer."""
        return name in self._live.experiments

    def frequent_contexts(
        self, name: str, search: str = "", limit: int = 40, offset: int = 0
    ) -> tuple[list[str], int, list[ContextProbabilities]]:
        """Return the live arms, the number of contexts that match, and some: those with the most decisions first.

        A context matches if its label contains `search`, in any case.
        """
        with self._reading():
            experiment = self._live.find(name)
            arms, n_contexts = experiment.live_arms, experiment.n_contexts
            experiment.summary.flush()
            counts, items = experiment.summary.contexts.copy(), list(experiment.contexts.items())
        numbers = reports.matching(items, search) if search else np.arange(n_contexts)
        wanted = reports.most_frequent(numbers, counts, offset, limit).tolist()
        labels = reports.labels_of(items, wanted)
        found: list[ContextProbabilities] = []
        for first in range(0, len(wanted), reports.AT_ONCE):
            some = wanted[first : first + reports.AT_ONCE]
            with self._reading():
                probabilities = reports.probabilities(self._live.find(name), some)
            decisions = [int(counts[each]) if each < len(counts) else 0 for each in some]
            found += map(ContextProbabilities, (labels[each] for each in some), decisions, probabilities)
        return arms, len(numbers), found

    def log_page(self, name: str, wanted: LogFilter, limit: int = 50) -> LogPage:
        """Return decisions, the newest first; a page may be shorter than asked for where few decisions match."""
        with self._reading():
            experiment, last = self._live.find(name), self.position
        with self._store.reader() as reader:
            return reports.log_page(reader, experiment, wanted, last, limit)

    def decision_story(self, name: str, id: str) -> DecisionStory:
        """Return one decision, with the settings of its experiment at that time and the changes since."""
        with self._reading():
            experiment, position = self._live.find(name), self.position
            changes = _history(experiment)
        with self._store.reader() as reader:
            row = reader.log_row(checked_label("id", id))
        if row is None or row.experiment != experiment.key:
            repair = "Check the id. Ids of erased contexts are removed."
            raise RequestError("unknown_decision", "id", f"the id of a decision of {name}", id, repair)
        return reports.story(experiment, row, changes, position)

    # logs, copies and proof

    def log(self, name: str) -> Log:
        """Return all decisions that have a reward, in their order."""
        from alphafair.engine.export import read_log

        with self._reading():
            experiment = self._live.find(name)
        return read_log(self._store, experiment)

    def export(self, name: str, target: str | os.PathLike[str] | IO[bytes], format: str | None = None) -> int:
        """Write all decisions as parquet, csv or jsonl, by the file's suffix or `format`; return how many."""
        from alphafair.engine.export import write_log

        with self._reading():
            experiment, until = self._live.find(name), self.position
        return write_log(self._store, experiment, until, target, format)

    def export_job(self, name: str, format: str) -> ExportJob:
        """Return an export of the log as it is now, to be run by another process."""
        from alphafair.engine.export import ExportJob, checked_format

        with self._reading():
            experiment, until = self._live.find(name), self.position
        format = checked_format(experiment, format)
        return ExportJob(str(self._store.files.path), experiment.key, experiment.full, until, format)

    def calculation_job(self, name: str) -> dict[str, Any]:
        """Return what another process needs to read the log of an experiment as it is now, as plain values."""
        with self._reading():
            experiment = self._live.find(name)
            groups = experiment.policy.groups if experiment.has_policy else None
            return {
                "path": str(self._store.files.path),
                "experiment": experiment.key,
                "name": name,
                "full": experiment.full,
                "position": self.position,
                "rewards": experiment.tally.rewards + experiment.tally.defaulted,
                "reward_range": [experiment.low, experiment.high],
                "alpha": experiment.alpha,
                "groups": None if groups is None or groups.is_default else groups.settings(),
            }

    def verify(self, progress: Callable[[int], None] | None = None) -> int:
        """Replay the whole log and compare every propensity, every snapshot and the state in memory, bit by bit.

        First the rows are checked: each decision's context, label and id must belong together, and each reward must
        have its decision. Returns the number of events; raises `Mismatch` with the first difference. Steps of older
        code cannot be repeated exactly, so they are accepted up to the state saved at the upgrade.
        """
        with self._reading(), self._store.reader() as reader:
            reader.check_pages()
            with reader.at_one_moment():
                is_same = reader.position == self.position  # otherwise another process has written since
                labels = {key: each.contexts for key, each in self._live.by_key.items()}
                check_rows(reader, labels if is_same else None)
            check_states(reader, self.position, self._live.by_key, progress)
            return self.position

    def backup(self, path: str | os.PathLike[str]) -> int:
        """Write a consistent copy of the file while it is in use; return its number of events."""
        self._store.files.check()
        return copy_database(self._store.files.path, path)

    def health(self, *, probe: bool = True) -> dict[str, Any]:
        """Return whether requests can be served, and if not, why.

        They can if the last commit succeeded and the file is still the one that was opened. After a failed commit, or
        before the first, a write as large as a commit is tried and rolled back; without `probe` it is not, and the
        answer takes no time.
        """
        live = self._live
        if not (self._closed or self._store.read_only):
            if live.problem is None:
                self._check_files()
            if probe and (live.problem is not None or live.must_probe):
                self._try_to_recover()
        reason = "closed" if self._closed else live.problem
        if reason is None and live.must_probe and not self._store.read_only:
            reason = "Nothing has been written yet."
        return {
            "ready": reason is None,
            "reason": reason,
            "position": self.position,
            "waiting": len(self._waiting),
            "last_commit_seconds": live.last_commit_seconds,
            "clock_behind_seconds": live.clock_behind_seconds,
            "unhealthy": {each.name: each.unhealthy for each in list(live.by_key.values()) if each.unhealthy},
        }

    def _check_files(self) -> None:
        try:
            self._store.files.check()
        except Unavailable as problem:
            self._live.problem = str(problem)

    def _try_to_recover(self) -> None:
        if self._writer.acquire(blocking=False):  # otherwise a request is being written, and its result sets the state
            try:
                self._live.recover(probe=True)
            except Exception as problem:
                self._live.fail(problem, begun=False)
            finally:
                self._writer.release()


@contextlib.contextmanager
def _as_policy_failure(experiment: Experiment, doing: str) -> Iterator[None]:
    """Raise `PolicyFailed` for whatever a policy raises, apart from refusals, before anything has changed."""
    try:
        yield
    except (InvalidArgument, Unavailable):
        raise
    except Exception as problem:
        what = f"{doing}: {type(problem).__name__}: {problem}"
        raise PolicyFailed(experiment.name, what) from problem


def _history(experiment: Experiment, after: int = 0) -> list[ChangeRecord]:
    """Return the changes after a position."""
    return [
        ChangeRecord(
            change.seq,
            datetime.fromtimestamp(change.at / 1e6, UTC),
            change.kind,
            change.by,
            _details(experiment, change),
        )
        for change in experiment.changes
        if change.seq > after
    ]


def _details(experiment: Experiment, change: Change) -> dict[str, Any]:
    """Return the fields of a change for readers, with arms by label, and periods in seconds and by their date."""
    details = {key: value for key, value in json.loads(change.body).items() if key not in NOT_IN_HISTORY}
    if change.kind in ("create", "set_period"):
        if details.get("period") is not None:
            details["period"] /= 1e6
        if "period_start" in details:
            details["period_start"] = datetime.fromtimestamp(details["period_start"] / 1e6, UTC).isoformat()
    if isinstance(details.get("arm"), int):
        details["arm"] = experiment.arms[details["arm"]]
    return details


def restore(backup: str | os.PathLike[str], path: str | os.PathLike[str], *, keep_keys: bool = False) -> int:
    """Make a new file from a backup; return its number of events.

    The copy is migrated where the backup is of an older version, and verified before it takes its name. Keys of the
    service are removed unless `keep_keys` is true: some may have been revoked since the backup.
    """

    def verified(part: Path) -> None:
        with Engine.open(part, create=False) as engine:
            if not keep_keys:
                engine._store.remove_keys()
            try:
                engine.verify()
            except PolicyFailed as failed:  # everything else was proved
                LOG.warning("%s cannot be verified. %s", failed.value, failed)

    return copy_database(backup, path, verified)
