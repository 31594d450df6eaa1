"""The engine: experiments in a file or a database, whose decisions and rewards are durable."""

from __future__ import annotations

import contextlib
import copy
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from datetime import datetime
from typing import IO, Any, Self, TypeVar, Unpack, overload

from alphafair import validate
from alphafair.engine import changes
from alphafair.engine.addresses import open_store
from alphafair.engine.batch import Batch
from alphafair.engine.changes import CHANGES
from alphafair.engine.clock import Clock, steady_ns
from alphafair.engine.memory import prove_loading
from alphafair.engine.requests import Activate, Decide, Observe, Request, Reward, Value
from alphafair.engine.state.experiment import CODE, Experiment, state_bytes
from alphafair.engine.state.replay import policy_at, rollback_position, rolled_back
from alphafair.engine.state.settings import DEFAULT_CARRY, Settings
from alphafair.engine.state.status import status_of, summary_at
from alphafair.engine.state.verify import check_rows, check_states, check_store
from alphafair.engine.store import questions
from alphafair.engine.store.ledger import Change, Context, Statement, Store
from alphafair.engine.writer import Writer
from alphafair.engine.writers import AllWriters, check_new
from alphafair.errors import InvalidArgument, PolicyFailed, RequestError, Unavailable
from alphafair.groups import Groups, Labels
from alphafair.values import Account, Log, State
from alphafair_client.answers import ChangeRecord, NewTerms, Outcome, Receipt, SlateReceipt, Status

Result = TypeVar("Result")


class Engine:
    """Experiments in a file or a database. Many threads may call one engine.

    One process at a time may write to a file; any number may write to a database. Contexts and arms are your own
    strings; contexts are added when they are first used. Every answer is on the disk.

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
        store: Store,
        seed: int | None = None,
        clock: Callable[[], int] = time.time_ns,
        max_contexts: int | None = None,
        steady: Callable[[], int] | None = None,
    ) -> None:
        self._store = store
        self._clock = Clock(clock, steady, judged=not store.opened.together)
        if store.opened.lock is not None:
            self._clock.restore(store.opened.lock.record)
        try:
            self.writers = AllWriters(store, self._clock, seed, max_contexts)
            if not store.opened.read_only:
                store.compact(at_once=True)
            self._check_clock()
        except BaseException:
            store.close()
            raise

    @classmethod
    def open(
        cls,
        address: str | os.PathLike[str],
        *,
        read_only: bool = False,
        create: bool = True,
        seed: int | None = None,
        max_contexts: int | None = None,
    ) -> Self:
        """Open a file, or a database at an address such as `postgresql://user@host/name`.

        A missing or empty one is created if `create` is true; `read_only` works beside a writer. A `seed` makes draws
        repeatable, for tests. An experiment accepts `max_contexts` contexts and refuses more; by default as many as fit
        into its equal share of half of the memory.
        """
        if max_contexts is not None:
            max_contexts = validate.integer("max_contexts", max_contexts, low=1)
        store = open_store(address, read_only=read_only, create=create, prove=prove_loading)
        return cls(store, seed, max_contexts=max_contexts, steady=steady_ns)

    @property
    def position(self) -> int:
        """The number of events of all experiments, each of which has positions of its own: see `Status.position`.

        Events of other processes are counted once they have been taken in.
        """
        return sum(each.memory.position for each in self.writers.all())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

    def close(self) -> None:
        """Answer waiting requests, save snapshots so that opening is quick, and close the file."""
        if self.writers.is_closed:
            return
        with contextlib.ExitStack() as stack:
            stack.callback(self._store.close)
            stack.callback(self._check_clock)
            stack.callback(self.writers.close)

    def _writing(self, name: str, work: Callable[[Writer, Experiment, Batch], Result]) -> Result:
        """Change an experiment in the writer's turn, with an empty batch; `work` may be called several times.

        No boundary of a period lies before the moment of the batch.
        """
        self._check_writable()
        writer = self.writers.of(name)
        return writer.write(lambda batch: work(writer, writer.memory.find(name), batch))

    def _check_writable(self) -> None:
        if self._store.opened.read_only:
            repair = "Open it without read_only=True, or send the request to the process that writes."
            raise RequestError("read_only", "engine", "opened for writing", "read_only=True", repair)

    # decisions and rewards

    @overload
    def decide(
        self,
        experiment: str,
        context: str,
        id: str | None = None,
        available: Sequence[str] | None = None,
        deferred: bool = False,
        *,
        k: None = None,
        features: Mapping[str, Any] | None = None,
        incumbent: str | None = None,
        incumbent_propensity: float | None = None,
        unit: str | None = None,
    ) -> Receipt: ...
    @overload
    def decide(
        self,
        experiment: str,
        context: str,
        id: str | None = None,
        available: Sequence[str] | None = None,
        deferred: bool = False,
        *,
        k: int,
        features: Mapping[str, Any] | None = None,
        unit: str | None = None,
    ) -> SlateReceipt: ...
    def decide(
        self,
        experiment: str,
        context: str,
        id: str | None = None,
        available: Sequence[str] | None = None,
        deferred: bool = False,
        *,
        k: int | None = None,
        features: Mapping[str, Any] | None = None,
        incumbent: str | None = None,
        incumbent_propensity: float | None = None,
        unit: str | None = None,
    ) -> Receipt | SlateReceipt:
        """Draw an arm for a context. Repeating an `id` in an experiment returns the same arm and propensity.

        `available` lists the arms that can be played this time; a `deferred` decision counts once it is activated.

        With `k` draw a slate of k different arms, or of all that can be played if they are fewer: all are shown and all
        are rewarded. Any k may follow any other.

        `features` are values by name, as declared at the creation.

        `incumbent` is the arm that you would show without the experiment. In mode "watch" it is what comes back, with
        `source` "incumbent"; in mode "share" for units that are not ours; in mode "live" it is not used. A `unit` is
        whom the decision is made for, such as a visitor; by default the context. The same unit has the same side.
        """
        asked = (available, deferred, k, features, incumbent, incumbent_propensity, unit)
        return self._submit_one(Decide(experiment, context, id, *asked))  # type: ignore[return-value]

    def decide_many(
        self,
        experiment: str,
        contexts: Iterable[str],
        *,
        k: int | Iterable[int | None] | None = None,
        features: Iterable[Mapping[str, Any] | None] | None = None,
        incumbent: Iterable[str | None] | None = None,
        incumbent_propensity: Iterable[float | None] | None = None,
        unit: Iterable[str | None] | None = None,
    ) -> list[Receipt | SlateReceipt | RequestError]:
        """Draw for each context, in order and in one transaction; an item that is refused is its exception.

        `k` is one number for all contexts, or one or None per context; `features`, `incumbent`, `incumbent_propensity`
        and `unit` have those of each context. See `submit` for ids and available arms.
        """
        labels = list(contexts)
        columns: dict[str, list[Any]] = {
            "k": [*k] if isinstance(k, Iterable) else [k] * len(labels),
        }
        told = {"incumbent": incumbent, "incumbent_propensity": incumbent_propensity, "unit": unit}
        for name, values in {"features": features, **told}.items():
            columns[name] = [None] * len(labels) if values is None else [*values]
        for name, column in columns.items():
            if len(column) != len(labels):
                raise InvalidArgument(name, "as many as contexts", len(column), f"There are {len(labels)} contexts.")
        rows = zip(labels, *columns.values(), strict=True)
        found = self.submit([Decide(experiment, label, None, None, False, *asked) for label, *asked in rows])
        return found  # type: ignore[return-value]

    def reward(self, id: str, reward: Value, experiment: str | None = None) -> Outcome:
        """Report the reward of a decision: applied, repeated, conflict, unknown, expired or rolled_back.

        Of a slate pass the rewards of some or all of its arms, by label; the others may follow in any order. Only new
        ones count; if one differs from the reward that its arm has, nothing is applied.

        Pass the `experiment` where several have a decision with this id.
        """
        return self._submit_one(Reward(id, reward, experiment))  # type: ignore[return-value]

    def activate(self, id: str, experiment: str | None = None) -> Outcome:
        """Report that a deferred decision was carried out: activated, repeated, unknown, expired or rolled_back.

        Pass the `experiment` where several have a decision with this id.
        """
        return self._submit_one(Activate(id, experiment))  # type: ignore[return-value]

    def observe(
        self,
        experiment: str,
        context: str,
        arm: str,
        reward: float | None = None,
        id: str | None = None,
        *,
        propensity: float | None = None,
        source: str = "incumbent",
        features: Mapping[str, Any] | None = None,
        unit: str | None = None,
        instead_of: str | None = None,
    ) -> Outcome:
        """Record a decision that somebody else made, and learn from its reward: recorded or repeated.

        `source` is a label for who decided, at most eight in an experiment; `propensity` the probability with which
        they chose the arm, if it is known. `unit` is whom the decision was made for, by default the context. Without a
        reward it may follow by `reward`, for which you pass an `id`. Accounts, counts and bounds are those of the
        policy's own decisions, and stay as they are.

        Repeating an `id` with the same context, arm and source records nothing; a reward in it counts if it is the
        first. `instead_of` is the id of a decision that was not carried out because of this one: if it still waits for
        its reward, it is closed, and no arm pays for what nobody saw.
        """
        told = (propensity, source, features, unit, instead_of)
        return self._submit_one(Observe(experiment, context, arm, reward, id, *told))  # type: ignore[return-value]

    def observe_many(self, experiment: str, items: Iterable[Mapping[str, Any]]) -> list[Outcome | RequestError]:
        """Record decisions of others, in order and in one transaction; an item that is refused is its exception.

        An item has the arguments of `observe` by name.
        """
        found = self.submit([_observation(experiment, item) for item in items])
        return found  # type: ignore[return-value]

    def _submit_one(self, request: Request) -> Receipt | SlateReceipt | Outcome:
        (answer,) = self.submit([request])
        if isinstance(answer, RequestError):
            raise answer
        return answer

    def submit(self, requests: Sequence[Request]) -> list[Receipt | SlateReceipt | Outcome | RequestError]:
        """Answer all requests once they are on the disk, in one transaction; a refusal is an answer too.

        In a database, where experiments are written side by side, each experiment has a transaction of its own.
        """
        self._check_writable()
        return self.writers.submit(requests)

    # time

    def accept_clock(self) -> None:
        """Take the clock of this machine for right, after it has jumped ahead and writing was refused.

        The time of an event cannot be taken back: from then on waiting times and periods follow this clock.
        """
        self._check_writable()
        self.writers.check_open()
        self._clock.accept()
        if self.writers.is_shared:
            self.writers.probe()
        self._check_clock()

    def _check_clock(self) -> None:
        """Look at the clock, and keep what is accepted for the next process."""
        lock = self._store.opened.lock
        if lock is not None and self._clock.problem is None and lock.record != self._clock.record:
            lock.write(self._clock.record)

    def expire(self) -> int:
        """Settle every overdue decision and return how many there were; other requests are answered in between.

        Any request settles some, too, and a reward that arrives after the waiting time is late whether or not its
        decision has been settled by then.
        """
        self._check_writable()
        self.writers.check_open()
        return sum(each.expire() for each in self.writers.all())

    def maintain(self) -> bool:
        """Do one short piece of background work and return whether there is more. Call it now and then.

        Settles overdue decisions, rewrites a file after erasures, and writes snapshots. Of a database it also takes in
        what other processes have written.
        """
        self._check_writable()
        self.writers.check_open()
        if not self.writers.is_shared:
            return any(each.maintain(self._maintain_file) for each in self.writers.all())
        self.writers.look()
        more = [each.maintain() for each in self.writers.all()]
        return any(more)

    def _maintain_file(self) -> None:
        self._check_clock()
        self._store.compact(at_once=False)

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
        features: Mapping[str, Any] | None = None,
        arm_features: Mapping[str, Any] | None = None,
        mode: str = "live",
        share: float | None = None,
        salt: str | None = None,
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

        `features` of every decision, by name: "number", "number?" if it may be missing, or a list of 2 to 50 labels, in
        which "*" stands for all others. They stay as they are declared here. `arm_features` declares features of arms
        instead; their values are terms, see `set_terms`, and every live arm needs those that are required.

        In `mode` "live" the policy decides. In "watch" the incumbent does, whose arm is passed to `decide`: it is
        recorded, and the policy learns from it. In "share" the policy decides for a `share` of the units, in (0, 1),
        by a hash keyed with `salt`, by default the name: a larger share moves units to the policy alone.
        """
        if groups is not None:
            settings["groups"] = groups
        calendar = (period, period_start, carry)
        terms = {
            "reward_range": reward_range,
            "reward_wait": reward_wait,
            "default_reward": default_reward,
            "features": features,
            "features_of_arms": arm_features,
            "mode": mode,
            "share": share,
            "salt": salt,
        }
        checked, named = Settings.checked(name, arms, contexts, terms, calendar, policy, settings, start)
        state = None if start is None else start.to_bytes()
        self._check_writable()

        def create(writer: Writer) -> None:
            writer.write(lambda batch: work(writer, batch))

        def work(writer: Writer, batch: Batch) -> None:
            memory = writer.memory
            check_new(name, memory.experiments)
            key = batch.numbers.new_key() if memory.key is None else memory.key
            part = batch.create(key, name, checked.to_json(CODE), state, self._actor.get())
            experiment = part.experiment
            experiment.policy = experiment.settings.first_policy(state)
            memory.check_contexts(experiment, len(named))
            experiment.contexts = {label: number for number, label in enumerate(named)}
            part.rows[Context] += [Context(key, number, label) for number, label in enumerate(named)]
            batch.also(lambda: memory.add(experiment))
            writer.commit(batch)

        self.writers.create(name, create)

    def experiments(self) -> list[str]:
        """Return the names of all experiments, in the order of their creation."""
        return self.writers.names()

    def experiment(self, name: str) -> Status:
        """Return the current state of an experiment."""
        with self.writers.reading(name) as (writer, experiment):
            return status_of(experiment, writer.memory.max_contexts_of(experiment))

    def add_arm(
        self,
        name: str,
        arm: str,
        account: Account = "least",
        *,
        group: str | None = None,
        entitlement: float | None = None,
        features: Mapping[str, Any] | None = None,
    ) -> None:
        """Add an arm, which starts with the least account of the live arms (or "fresh", or a number): see `grow`.

        Where arms have groups, pass its `group`; an `entitlement` is that of a new group. Where they have features,
        pass them by name.
        """
        self._change(name, "add_arm", arm, account, group, entitlement, features)

    def retire_arm(self, name: str, arm: str) -> None:
        """Never draw an arm again; its late rewards still count."""
        self._change(name, "retire_arm", arm)

    def mask_arm(self, name: str, arm: str) -> None:
        """Do not draw an arm until it is unmasked: out of stock, for example."""
        self._change(name, "mask_arm", arm)

    def unmask_arm(self, name: str, arm: str) -> None:
        """Draw a masked arm again."""
        self._change(name, "unmask_arm", arm)

    def set_alpha(self, name: str, alpha: float) -> None:
        """Use another alpha from now on, from 0 to inf; accounts and what was learned about rewards stay."""
        self._change(name, "set_alpha", alpha)

    def new_period(self, name: str, carry: float | None = None) -> None:
        """Start a period now: every account R becomes 1 + carry (R - 1); by default with the experiment's `carry`.

        What was learned about rewards stays. Periods that end by the calendar still end when they would have.
        """
        self._change(name, "new_period", carry)

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
        self._change(name, "set_period", period, period_start, carry)

    def set_terms(self, name: str, **terms: Unpack[NewTerms]) -> None:
        """Change terms while it runs, all of them at once; what is not passed stays, and None returns to the default.

        `groups`, `entitlements` and `pull_floor` are those of `create`, by arm or group: what is left out of `groups`
        and `entitlements` stays. What was learned about rewards stays; see `Policy.set_groups` for the accounts.
        `reward_wait` and `default_reward` hold for decisions that wait already. `arm_features` are values by arm and
        name, where an experiment declares them; arms that are left out keep theirs. `mode`, `share` and `salt` say who
        decides from now on: see `create`. The report of sides begins again with them.
        """
        self._change(name, "terms", terms)

    def pause(self, name: str) -> None:
        """Refuse decisions until `resume`; rewards are still accepted."""
        self._change(name, "pause")

    def resume(self, name: str) -> None:
        """Accept decisions again."""
        self._change(name, "resume")

    def _change(self, name: str, kind: str, *arguments: Any) -> None:
        """Make a change of a kind, if there is anything to change: see `changes`."""

        def work(writer: Writer, experiment: Experiment, batch: Batch) -> None:
            body = CHANGES[kind].check(experiment, batch.at, *arguments)
            if body is not None:
                self._commit_change(writer, experiment, batch, kind, body)

        self._writing(name, work)

    def _commit_change(
        self,
        writer: Writer,
        experiment: Experiment,
        batch: Batch,
        kind: str,
        body: dict[str, Any],
        statements: Sequence[Statement] = (),
    ) -> None:
        """Try a change on a copy of the policy, write it, and continue with the copy."""
        policy = None
        change = batch.change(
            experiment, kind, json.dumps(body), lambda change: experiment.apply(change, policy), by=self._actor.get()
        )
        if changes.concerns_policy(change):
            policy = experiment.policy
            with _as_policy_failure(experiment, f"trying {kind}"):
                policy = copy.deepcopy(policy)
                changes.apply_to_policy(policy, change)
        batch.also(lambda: writer.memory.follow_terms(experiment))
        writer.commit(batch, statements)

    def rollback(self, name: str, position: int) -> None:
        """Forget what was learned after a position, as a new event; arms, masks, alpha and period stay as they are.

        Decisions made since are closed: their rewards are answered with "rolled_back". Nothing is deleted.
        """

        def work(writer: Writer, experiment: Experiment, batch: Batch) -> None:
            store = writer.store
            target = validate.integer("position", position, low=1, high=experiment.position)
            target = rollback_position(experiment, target)
            policy = policy_at(store, experiment, target)
            still_open = questions.open_after(store, experiment.key, target)
            with _as_policy_failure(experiment, f"rolling back to position {target}"):
                policy = rolled_back(store, experiment, policy, target, experiment.position + 1)
                state = state_bytes(policy)
            summary = summary_at(experiment, batch.at)
            counts = {"closed": len(still_open), "tally": experiment.tally.to_json(), "summary": len(summary)}
            body = json.dumps({"position": target, **counts})

            def effect(change: Change) -> None:
                experiment.note(change)
                experiment.policy = policy

            batch.change(experiment, "rollback", body, effect, state=state + summary, by=self._actor.get())
            for id in still_open:
                record = batch.find(id)
                mine = None if record is None else record.of(experiment)
                if mine is not None:
                    batch.settle(mine, batch.state(mine), None, "rollback")
            writer.commit(batch)

        self._writing(name, work)

    def erase(self, name: str, context: str) -> None:
        """Remove a context's label, and the ids of its decisions, from the file permanently; the numbers stay.

        The same label is a new context afterwards. See `erasures_pending` for the last traces.
        """

        def work(writer: Writer, experiment: Experiment, batch: Batch) -> None:
            body = changes.existing_context(experiment, batch.at, context)
            statements = questions.erasure(writer.store, experiment.key, body["context"], self.writers.ids.next)

            def forget() -> None:
                del experiment.contexts[context]
                writer.memory.decisions.clear()

            batch.also(forget)
            self._commit_change(writer, experiment, batch, "erase", body, statements)
            self._store.compact(at_once=False)

        self._writing(name, work)

    @property
    def erasures_pending(self) -> int:
        """Erasures of which bytes may be left in unused parts of the file.

        They are removed when no other process reads the file, or, if it has over 32 MiB, when it is next opened for
        writing. A database removes them on its own, by vacuuming; they are not counted.
        """
        self.writers.check_open()
        if self.writers.is_shared:
            return 0
        (writer,) = self.writers.all()
        with writer.reading():
            return questions.n_erasures(self._store)

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
        with self.writers.reading(name) as (_, experiment):
            return changes.history(experiment)

    # logs, copies and proof

    def log(self, name: str, source: str | None = None) -> Log:
        """Return all decisions of the policy that have a reward, in their order.

        Pass a `source` for those that it has made instead; propensities that it has not told are nan.
        """
        from alphafair.engine.export import read_log

        with self.writers.reading(name) as (writer, experiment):
            store = writer.store
        return read_log(store, experiment, source=source)

    def export(self, name: str, target: str | os.PathLike[str] | IO[bytes], format: str | None = None) -> int:
        """Write all decisions as parquet, csv or jsonl, by the file's suffix or `format`; return how many."""
        from alphafair.engine.export import write_log

        with self.writers.reading(name) as (writer, experiment):
            store, until = writer.store, experiment.position
        return write_log(store, experiment, until, target, format)

    def verify(self, progress: Callable[[int], None] | None = None) -> int:
        """Replay the whole log and compare every propensity, every snapshot and the state in memory, bit by bit.

        First the rows are checked: each decision's context, label and id must belong together, and each reward must
        have its decision. Returns the number of events; raises `Mismatch` with the first difference. Steps of older
        code cannot be repeated exactly, so they are accepted up to the state saved at the upgrade.
        """
        writers = self.writers.found()
        n_events, unproved = 0, list[PolicyFailed]()
        for each in writers:
            with each.reading() as memory, each.store.reader() as reader:
                reader.check_pages()
                with reader.at_one_moment():
                    is_same = not memory.is_behind()  # otherwise another process has written since
                    labels = {key: found.contexts for key, found in memory.by_key.items()}
                    check_rows(reader, labels.keys(), labels if is_same else None)
                    if each is writers[0]:
                        check_store(reader)
                try:
                    check_states(reader, memory.by_key, progress)
                except PolicyFailed as failed:
                    unproved.append(failed)
                n_events += memory.position
        if unproved:
            raise unproved[0]
        return n_events

    def backup(self, path: str | os.PathLike[str]) -> int:
        """Write a consistent copy into a new file, while it is in use; return its number of events."""
        from alphafair.engine.copies import backup

        self._store.probe()
        return backup(self._store.address, path)

    def health(self, *, probe: bool = True) -> dict[str, Any]:
        """Return whether requests can be served, and if not, why.

        They can if the last commit succeeded, and the file is still the one that was opened or the database answers.
        After a failed commit, or before the first, a write as large as a commit is tried and rolled back. Without
        `probe` nothing is tried, and the answer takes no time: it is what was found the last time.
        """
        reason, writers = self.writers.problem(probe=probe), self.writers.all()
        experiments = [found for each in writers for found in list(each.memory.by_key.values())]
        return {
            "ready": reason is None,
            "reason": reason,
            "position": self.position,
            "waiting": sum(len(each.queue) for each in writers),
            "last_commit_seconds": self.writers.last_commit_seconds,
            "clock_behind_seconds": max((each.clock_behind_seconds for each in writers), default=0.0),
            "unhealthy": {each.name: each.unhealthy for each in experiments if each.unhealthy},
        }


def _observation(experiment: str, item: Any) -> Observe:
    known = Observe._fields[1:]
    if not isinstance(item, Mapping) or not {"context", "arm"} <= item.keys() <= {*known}:
        allowed = f"mappings with context and arm, and any of {', '.join(known[2:])}"
        raise InvalidArgument("items", allowed, item, "Pass a mapping per decision.")
    return Observe(experiment, **item)


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
