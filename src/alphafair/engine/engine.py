"""The engine: experiments in one file, decided and learned durably."""

from __future__ import annotations

import contextlib
import copy
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import IO, Any, Self

from alphafair import validate
from alphafair.engine import copies, history
from alphafair.engine.decisions import Decisions
from alphafair.engine.erasures import NOTE
from alphafair.engine.events import Change, Context
from alphafair.engine.experiment import (
    CODE,
    LOG,
    Experiment,
    change_policy,
    checked_label,
    checked_settings,
    checked_start,
    state_of,
)
from alphafair.engine.export_job import ExportJob
from alphafair.engine.files import DatabaseFiles
from alphafair.engine.fold import Fold
from alphafair.engine.history import ChangeRecord
from alphafair.engine.integrity import check_rows
from alphafair.engine.ledger import Ledger, Update
from alphafair.engine.replay import Replay, put_back
from alphafair.engine.requests import Activate, Decide, Outcome, Receipt, Reward, Status, Value
from alphafair.errors import InvalidArgument, Mismatch, PolicyFailed, RequestError, Unavailable
from alphafair.groups import Groups, Labels
from alphafair.values import Account, Log, State

DEFAULT_POLICY = "alpha-fair-adaptive"
STILL_OPEN = """select d.id, d.seq from decision d left join activation a on a.decision = d.seq
    left join reward r on r.decision = d.seq
    where d.experiment = ? and max(d.seq, ifnull(a.seq, 0)) > ? and r.seq is null order by d.seq"""


class Engine(Decisions):
    """Experiments in one file; many threads may call one engine, and one process at a time may write.

    Contexts and arms are your own strings; contexts appear by themselves. Whatever is answered is on the disk.

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
        """The engine of a file, made if it is not there or empty (`create`); read-only beside another that writes.

        A `seed` makes the draws of this opening repeatable, for tests. An experiment takes `max_contexts` contexts and
        refuses more; by default as many as fit into its equal share of half of the memory.
        """
        if max_contexts is not None:
            max_contexts = validate.integer("max_contexts", max_contexts, low=1)
        if (read_only or not create) and DatabaseFiles(path).is_empty:
            allowed = "a file that alphafair made, not an empty one" if Path(path).exists() else "a file that is there"
            raise InvalidArgument("path", allowed, str(path), "Look for a typo.")
        return cls(Ledger(path, read_only=read_only), seed, max_contexts=max_contexts)

    @property
    def readable_by_others(self) -> bool:
        """Whether other users of this machine can open the file."""
        return self._ledger.files.readable_by_others

    @property
    def was_empty(self) -> bool:
        """Whether the file was not there, or had no bytes, before this engine opened it."""
        return self._ledger.was_empty

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

    def close(self) -> None:
        """Answer what waits, keep a snapshot so that opening is quick, and let the file go."""
        with self._writer:
            if self._closed:
                return
            try:
                if not self._ledger.read_only:
                    while self._waiting:
                        self._serve()
                    if not self._stale and self._problem is None:
                        with contextlib.suppress(Unavailable):  # the log is enough to open it again
                            self._take_snapshots(least=1)
            finally:
                self._closed = True
                self._ledger.close()

    # one request at a time

    def decide(
        self,
        experiment: str,
        context: str,
        id: str | None = None,
        available: Sequence[str] | None = None,
        deferred: bool = False,
    ) -> Receipt:
        """Draw an arm for a context. The same `id` again is answered with the same arm and propensity.

        `available` names the arms that can be played this time; a `deferred` decision counts once it is activated.
        """
        return self._one(Decide(experiment, context, id, available, deferred))  # type: ignore[return-value]

    def reward(self, id: str, reward: Value) -> Outcome:
        """What the arm of a decision has earned: applied, repeated, conflict, unknown, expired or rolled_back."""
        return self._one(Reward(id, reward))  # type: ignore[return-value]

    def activate(self, id: str) -> Outcome:
        """A deferred decision was carried out: activated, repeated, unknown, expired or rolled_back."""
        return self._one(Activate(id))  # type: ignore[return-value]

    def _one(self, request: Decide | Reward | Activate) -> Receipt | Outcome:
        (answer,) = self.submit([request])
        if isinstance(answer, RequestError):
            raise answer
        return answer

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
        **settings: Any,
    ) -> None:
        """A new experiment, with any registered policy ("alpha-fair-adaptive") and its settings, such as `alpha`.

        `groups` says whom to be fair to: the group of every arm, or a `Groups` with entitlements and floors by label.
        Its `labels` may be a mapping from arm to group here. Without labels entitlements and floors are those of arms.

        Rewards lie in `reward_range`. After `reward_wait` seconds a decision without a reward gets `default_reward`, or
        is closed without one. `start` is what a policy has learned elsewhere, for the arms and `contexts` in order; the
        policy and its settings are then those of `start`, and what contradicts them is refused.
        """
        checked_label("name", name)
        labels = [checked_label("arms", arm) for arm in validate.labels("arms", arms, 1)]
        known = [checked_label("contexts", label) for label in validate.labels("contexts", contexts, 0)]
        low = validate.number("reward_range[0]", reward_range[0], low=validate.ANY_REWARD[0], high=0.0 + 1e99)
        high = validate.number("reward_range[1]", reward_range[1], low=low, high=validate.ANY_REWARD[1], low_open=True)
        if reward_wait is not None:
            reward_wait = validate.number("reward_wait", reward_wait, low=0.0, high=1e9, low_open=True)
        if default_reward is not None:
            default_reward = validate.number("default_reward", default_reward, low=low, high=high)
            if reward_wait is None:
                repair = "Say reward_wait too: how long to wait before it is applied."
                raise RequestError("bad_request", "default_reward", "given with a reward_wait", default_reward, repair)
        if groups is not None:
            settings["groups"] = groups
        if start is not None:
            ready = checked_start(start, policy, labels, known, settings)
            policy, settings = ready.name, dict(ready.settings)
        else:
            policy = DEFAULT_POLICY if policy is None else policy
            settings = checked_settings(policy, labels, settings)
        body = {
            "code": CODE,
            "name": name,
            "arms": labels,
            "policy": policy,
            "settings": settings,
            "reward_range": [low, high],
            "reward_wait": reward_wait,
            "default_reward": default_reward,
            "n_contexts": len(known),
        }
        with self._writing():
            if name in self._experiments:
                raise RequestError(
                    "experiment_exists", "name", "new", name, "Choose another, or use the one that is there."
                )
            fold = Fold(self.position, self._now())
            seq = fold.next()
            blob = None if start is None else start.to_bytes()
            created = Change(seq, seq, "create", json.dumps(body), blob, fold.at, self._actor.get())
            experiment = Experiment(created)
            experiment.policy = experiment.first_policy()
            self._check_room(experiment, len(known))
            fold.changed(experiment, created)
            for number, label in enumerate(known):
                fold.add(Context(seq, number, label))
            self._append(fold)
            experiment.contexts = {label: number for number, label in enumerate(known)}
            self._keyed[seq] = self._experiments[name] = experiment
            self._expiry.add(experiment)

    def experiments(self) -> list[str]:
        """The names of all experiments, as they were created."""
        with self._reading():
            return list(self._experiments)

    def experiment(self, name: str) -> Status:
        """How an experiment stands."""
        with self._reading():
            experiment = self._find_experiment(name)
            return Status.of(experiment, self._max_contexts_of(experiment))

    def add_arm(
        self,
        name: str,
        arm: str,
        account: Account = "least",
        *,
        group: str | None = None,
        entitlement: float | None = None,
    ) -> None:
        """A new arm, which enters with the least account of the live ones (or "fresh", or a number): see `grow`.

        Where arms have groups, say which is its; an `entitlement` is that of a new group.
        """
        with self._writing():
            said = {"group": group, "entitlement": entitlement}
            self._change(name, "add_arm", self._find_experiment(name).checked_arrival(arm, account, **said))

    def retire_arm(self, name: str, arm: str) -> None:
        """Never draw an arm again; rewards of it that come late are still booked."""
        with self._writing():
            experiment = self._find_experiment(name)
            number = experiment.number_of(arm)
            if number not in experiment.retired and len(experiment.live_arms) > 1:
                self._change(name, "retire_arm", {"arm": number})
            elif number not in experiment.retired:
                raise RequestError("last_arm", "arm", "one of at least two live arms", arm, "Add another first.")

    def mask_arm(self, name: str, arm: str) -> None:
        """Do not draw an arm until it is unmasked: out of stock, say."""
        with self._writing():
            self._change(name, "mask_arm", {"arm": self._find_experiment(name).number_of(arm)})

    def unmask_arm(self, name: str, arm: str) -> None:
        """Draw an arm again."""
        with self._writing():
            self._change(name, "unmask_arm", {"arm": self._find_experiment(name).number_of(arm)})

    def set_alpha(self, name: str, alpha: float) -> None:
        """Be fair by another alpha from here on; accounts and what was learned stay."""
        with self._writing():
            self._change(name, "set_alpha", {"alpha": validate.alpha(alpha)})

    def pause(self, name: str) -> None:
        """Refuse decisions until `resume`; rewards are still taken."""
        with self._writing():
            self._change(name, "pause", {})

    def resume(self, name: str) -> None:
        """Decide again."""
        with self._writing():
            self._change(name, "resume", {})

    def rollback(self, name: str, position: int) -> None:
        """Forget what was learned after a position, as a new event; arms, masks and alpha stay as they are.

        Decisions made since are closed: their rewards will be answered with "rolled_back". Nothing is deleted.
        """
        with self._writing():
            experiment = self._find_experiment(name)
            position = validate.integer("position", position, low=experiment.key, high=self.position)
            position = max([position, *(end for start, end in experiment.rollbacks() if start <= position)])
            with self._ledger.reader() as past:
                policy = Replay(past, position, only=experiment.key).from_snapshots().run()[experiment.key].policy
            still_open = [id for id, _ in self._ledger.rows(STILL_OPEN, (experiment.key, position))]
            fold = Fold(self.position, self._now())
            seq = fold.next()
            with failing_alone(experiment, f"going back to position {position}"):
                put_back(self._ledger, experiment, policy, position, seq)
                state = state_of(policy)
            body = json.dumps({"position": position, "closed": len(still_open), "tally": experiment.tally.to_json()})
            change = Change(seq, experiment.key, "rollback", body, state, fold.at, self._actor.get())
            fold.changed(experiment, change)
            for id in still_open:
                known = self._known.find(id)
                if known is not None:
                    fold.settled(known, None, "rollback")
            self._append(fold)
            experiment.note(change)
            experiment.policy = policy

    def erase(self, name: str, context: str) -> None:
        """Remove a context's label, and the ids of its decisions, from the file for good; the numbers stay.

        The label may come again: it is then a context that nobody has seen. See `erasures_pending` for the last traces.
        """
        with self._writing():
            experiment = self._find_experiment(name)
            number = experiment.contexts.get(checked_label("context", context))
            if number is None:
                raise RequestError("unknown_context", "context", "one that was seen", context, "Nothing of it is kept.")
            decisions = self._ledger.rows(
                "select seq from decision where experiment = ? and context = ?", (experiment.key, number)
            )
            ids = [(f"erased-{self._new_ids.next()}", seq) for (seq,) in decisions]
            updates: list[Update] = [
                ("update context set label = null where experiment = ? and number = ?", [(experiment.key, number)]),
                ("update decision set id = ?, checksum = null where seq = ?", ids),
                NOTE,
            ]
            self._change(name, "erase", {"context": number}, updates)
            del experiment.contexts[context]
            self._known.forget()
            self._erasures.clean()

    @property
    def erasures_pending(self) -> int:
        """Erasures of which bytes may be left in unused parts of the file.

        They go when nobody reads the file any more, or, if it has over 32 MiB, when it is next opened for writing.
        """
        with self._reading():
            return self._erasures.n_pending

    def _change(self, name: str, kind: str, body: dict[str, Any], updates: Sequence[Update] = ()) -> None:
        """Try it on a copy of the policy, write it down, go on with the copy."""
        experiment = self._find_experiment(name)
        fold = Fold(self.position, self._now())
        change = Change(fold.next(), experiment.key, kind, json.dumps(body), None, fold.at, self._actor.get())
        policy = None
        if kind in ("add_arm", "retire_arm", "set_alpha"):
            policy = experiment.policy
            with failing_alone(experiment, f"trying {kind}"):
                policy = copy.deepcopy(policy)
                change_policy(policy, change)
        fold.changed(experiment, change)
        self._append(fold, updates)
        experiment.apply(change, policy)

    @contextlib.contextmanager
    def acting_as(self, name: str) -> Iterator[None]:
        """Changes made inside are recorded as those of `name`: see `history`."""
        before = self._actor.set(name)
        try:
            yield
        finally:
            self._actor.reset(before)

    # looking back

    def history(self, name: str) -> list[ChangeRecord]:
        """Every change of an experiment: its creation, alpha, arms, pauses, roll-backs, erasures; when, and by whom."""
        with self._reading():
            experiment = self._find_experiment(name)
            return history.of(self._ledger, experiment)

    def log(self, name: str) -> Log:
        """All decisions that have a reward, in their order."""
        from alphafair.engine import export  # polars takes longer to load than the rest of the engine

        with self._reading():
            experiment = self._find_experiment(name)
        return export.log(self._ledger, experiment)

    def export(self, name: str, target: str | os.PathLike[str] | IO[bytes], format: str | None = None) -> int:
        """Write all decisions as parquet, csv or jsonl, by the file's ending or as said; how many there were."""
        from alphafair.engine import export

        with self._reading():
            experiment, until = self._find_experiment(name), self.position
        return export.write(self._ledger, experiment, until, target, format)

    def export_job(self, name: str, format: str) -> ExportJob:
        """The same, to be done by another process: the log as it stands now."""
        from alphafair.engine import export

        with self._reading():
            experiment, until = self._find_experiment(name), self.position
        format = export.checked_format(experiment, format)
        return ExportJob(str(self._ledger.files.path), experiment.key, experiment.full, until, format)

    def verify(self, progress: Callable[[int], None] | None = None) -> int:
        """Fold the whole log again and compare every propensity, every snapshot and the state in memory, bit by bit.

        Before that, the rows are looked at: whether each decision's context, label and id belong together, and each
        reward has its decision. The number of events; `Mismatch` says where the first difference is. What older code
        did cannot be done again: its events are taken as they are, up to the state written down at the upgrade.
        """
        with self._reading(), self._ledger.reader() as reader:
            sound = reader.rows("pragma integrity_check(1)")[0][0]
            if sound != "ok":
                raise Mismatch(f"{reader.path} is damaged: {sound}.")
            with reader.at_one_moment():
                is_same = reader.position == self.position  # else somebody has written since
                check_rows(reader, {key: each.contexts for key, each in self._keyed.items()} if is_same else None)
            for experiment in self._keyed.values():
                if experiment.code != CODE and experiment.has_policy:
                    repair = "Open the file for writing once, which notes the upgrade, or verify with the code of then."
                    raise RequestError("other_code", "experiment", "written by this code", experiment.name, repair)
            replay = Replay(reader, self.position, check=True).from_upgrades()
            again, unproved = replay.run(progress or (lambda events: None)), list[PolicyFailed]()
            for key, experiment in self._keyed.items():
                counted = {**vars(again[key].tally), "settled_to": experiment.tally.settled_to}
                if counted != vars(experiment.tally):
                    raise Mismatch(
                        f"{experiment.name}: counted {experiment.tally}, but the log has {again[key].tally}."
                    )
                if key not in replay.unproved and experiment.has_policy and again[key].has_policy:
                    replay.compare(again[key], experiment.policy.snapshot(), "the state in memory")
                else:
                    reason = experiment.unhealthy or again[key].unhealthy or "it failed while its log was done again"
                    unproved.append(PolicyFailed(experiment.name, reason))
            if unproved:  # all else is as it should be
                raise unproved[0]
            return self.position

    def backup(self, path: str | os.PathLike[str]) -> int:
        """A consistent copy of the file, made while it is in use; how many events it contains."""
        self._ledger.files.check()
        return copies.copy(self._ledger.files.path, path)

    def health(self, *, probe: bool = True) -> dict[str, Any]:
        """Whether requests can be served, and if not, why.

        They can if the last commit worked and the file is still the one that was opened. After a failed commit, or
        before the first, a write as large as a commit is tried and taken back; without `probe` that is left to others,
        and the answer takes no time.
        """
        if not (self._closed or self._ledger.read_only):
            if self._problem is None:
                self._check_files()
            if probe and (self._problem is not None or self._to_prove):
                self._try_to_recover()
        reason = "closed" if self._closed else self._problem
        if reason is None and self._to_prove and not self._ledger.read_only:
            reason = "Nothing was written yet."
        return {
            "ready": reason is None,
            "reason": reason,
            "position": self.position,
            "waiting": len(self._waiting),
            "last_commit_seconds": self.last_commit_seconds,
            "clock_behind_seconds": max(0.0, (self._latest - self._clock() // 1000) / 1e6),
            "unhealthy": {each.name: each.unhealthy for each in list(self._keyed.values()) if each.unhealthy},
        }

    def _check_files(self) -> None:
        try:
            self._ledger.files.check()
        except Unavailable as problem:
            self._problem = str(problem)

    def _try_to_recover(self) -> None:
        if self._writer.acquire(blocking=False):  # else somebody writes, and will know soon
            try:
                self._recover(prove=True)
            except Exception as problem:
                self._failed(problem, begun=False)
            finally:
                self._writer.release()


@contextlib.contextmanager
def failing_alone(experiment: Experiment, doing: str) -> Iterator[None]:
    """A policy may refuse; whatever else it raises is a failure of its own, before anything has changed."""
    try:
        yield
    except (InvalidArgument, Unavailable):
        raise
    except Exception as problem:
        what = f"{doing}: {type(problem).__name__}: {problem}"
        raise PolicyFailed(experiment.name, what) from problem


def restore(backup: str | os.PathLike[str], path: str | os.PathLike[str], *, keep_keys: bool = False) -> int:
    """A new file from a backup; the number of events.

    The copy is brought up to date where the backup is of an older version, and verified before it takes its name. It
    has no keys of the service, unless they are kept: some of them may have been revoked since the backup was made.
    """

    def verified(part: Path) -> None:
        with Engine.open(part, create=False) as engine:
            if not keep_keys:
                engine._ledger.remove_keys()
            try:
                engine.verify()
            except PolicyFailed as failed:  # all else is as it should be, and is not held back for it
                LOG.warning("%s cannot be verified. %s", failed.value, failed)

    return copies.copy(backup, path, verified)
