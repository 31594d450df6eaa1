"""Answers to requests: decisions, rewards and activations, checked and added to the batch of the next commit."""

from __future__ import annotations

import itertools
import random
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from alphafair import validate
from alphafair.engine.requests import Activate, Decide, Observe, Request, Reward
from alphafair.engine.state.experiment import Experiment
from alphafair.engine.state.settings import checked_label
from alphafair.engine.state.sides import place_of
from alphafair.engine.state.verify import checksum, checksum_of_others
from alphafair.engine.store import questions
from alphafair.engine.store.ledger import Behind, Store
from alphafair.engine.store.slates import Rewards, Slate
from alphafair.engine.store.slates import packed as packed_rewards
from alphafair.errors import InvalidArgument, RequestError
from alphafair.values.available import packed
from alphafair_client.answers import Outcome, Receipt, SlateReceipt

if TYPE_CHECKING:
    from alphafair.algorithms import BasePolicy
    from alphafair.engine.batch import Batch, ExperimentPart
    from alphafair.engine.memory import EngineMemory

RECENT = 10_000  # decisions kept in memory (up to twice as many), so that their rewards need no query
PAGE = 500  # overdue decisions settled in one transaction
STAMP, SIZE, BLOCK = 4, 12, 512  # bytes of an id from the clock and at random, and ids made at a time

MOST_SOURCES = 8  # of an experiment, beside its policy
INCUMBENT = "incumbent"  # the source of arms that `decide` is told and returns
RESERVED = "policy"  # a source that would be taken for the experiment's own policy

APPLIED, RECORDED, REPEATED = Outcome("applied"), Outcome("recorded"), Outcome("repeated")
new_tuple = tuple.__new__  # a NamedTuple's own constructor takes twice as long


class DecisionState(NamedTuple):
    """What may still happen to a decision."""

    active: bool
    waits_since: int
    settled: tuple[float | None, str, bytes | None] | None  # reward, source, rewards of all arms
    has_late_reward: bool = False
    arrived: Rewards | None = None  # by slot of a slate, from clients; None: nothing has


@dataclass(slots=True, eq=False)
class DecisionRecord:
    """What the engine knows of a decision that is on the disk, or will be with the next commit.

    `state` is that on the disk: what a batch changes is known to the batch until it is applied.
    """

    event: int
    experiment: Experiment
    position: int
    context: int
    label: str | None
    arm: int
    propensity: float
    probabilities: bytes | None
    state: DecisionState
    other: DecisionRecord | None = None  # a decision of another experiment that has the same id
    slate: Slate | None = None
    decided_by: str | None = None  # None: the policy
    features: bytes | None = None
    bucket: int | None = None

    def of(self, experiment: Experiment) -> DecisionRecord | None:
        """Return the decision of an experiment with this id."""
        record: DecisionRecord | None = self
        while record is not None and record.experiment is not experiment:
            record = record.other
        return record


class DecisionCache:
    """Decisions by their id: the latest in memory, all others read from the store.

    An id may belong to decisions of several experiments. Then all of them are in memory, or none, linked by `other`.
    """

    def __init__(self, store: Store, experiments: Mapping[int, Experiment]) -> None:
        self._store, self._experiments = store, experiments
        self.clear()

    def clear(self) -> None:
        """Forget everything: the file may have changed."""
        self.recent: dict[str, DecisionRecord] = {}
        self._older: dict[str, DecisionRecord] = {}
        self.absent: set[str] = set()  # valid ids that had no decision before this batch

    def begin_batch(self, ids: Iterable[Any]) -> None:
        """Read all decisions that a batch asks for in one query. Only here are records dropped."""
        if len(self.recent) > RECENT:
            self.recent, self._older = {}, self.recent
        self.absent = set()
        self._read(ids)

    def cached(self, id: str) -> DecisionRecord | None:
        """Return a decision that is in memory."""
        return self.recent.get(id) or self._older.get(id)

    def find(self, id: Any) -> DecisionRecord | None:
        if not isinstance(id, str):
            raise RequestError("bad_request", "id", "the id of a decision", id, "Pass receipt.id.")
        record = self.recent.get(id) or self._older.get(id)
        if record is None and id not in self.absent:
            self._read([id])
            record = self.recent.get(id)
        return record

    def _read(self, ids: Iterable[Any]) -> None:
        recent, older = self.recent, self._older
        wanted = [
            id for id in ids if isinstance(id, str) and not (id in recent or id in older) and validate.is_label(id)
        ]
        for found in questions.find(self._store, wanted):
            experiment = self._experiments.get(found.experiment)
            if experiment is None:  # another writer has it
                continue
            if found.position > experiment.position:  # of another process
                raise Behind(f"{self._store.path}: decision {found.position} of {experiment.name} is not known here.")
            record = DecisionRecord(
                found.event,
                experiment,
                found.position,
                found.context,
                found.label,
                found.arm,
                found.propensity,
                found.probabilities,
                DecisionState(
                    bool(found.is_active),
                    found.waits_since,
                    (found.reward, found.source, found.rewards) if found.is_settled else None,
                    bool(found.has_late_reward),
                    found.arrived,
                ),
                recent.get(found.id),
                found.slate,
                found.decided_by,
                found.features,
                found.bucket,
            )
            recent[found.id] = record
        self.absent.update(id for id in wanted if id not in recent)


class IdGenerator:
    """Ids of 32 hexadecimal digits: eight from the clock, and 96 random bits, which cannot be guessed.

    Ids that are made together start alike, so they are neighbors in the index of ids, and a commit writes few of its
    pages. The random numbers come from the system, not from the generator that draws arms, which could be inferred from
    many ids. A `seed` makes ids repeatable, for tests: a counter replaces the clock.
    """

    def __init__(self, seed: int | None = None) -> None:
        self._bytes = secrets.token_bytes if seed is None else random.Random(f"ids of {seed}").randbytes  # noqa: S311 - for tests
        self._blocks = None if seed is None else itertools.count()
        self._ready: list[str] = []

    def next(self) -> str:
        try:
            return self._ready.pop()
        except IndexError:  # several threads may come here; each makes a block
            moment = time.time_ns() >> 20 if self._blocks is None else next(self._blocks)  # about a millisecond
            stamp = f"{moment % 256**STAMP:0{2 * STAMP}x}"
            digits = self._bytes(SIZE * BLOCK).hex(" ", SIZE)
            made = (stamp + digits.replace(" ", f" {stamp}")).split(" ")
            last = made.pop()
            self._ready = made
            return last


class RequestHandler:
    """Answers requests from the state in memory; the answers hold once the batch is committed.

    A request that is refused changes nothing: everything is checked and the arm drawn before a context, an id or a
    decision is added to memory or to the batch.
    """

    def __init__(self, memory: EngineMemory, chance: random.Random, ids: IdGenerator) -> None:
        self._memory, self._random, self.ids = memory, chance, ids
        self._handlers: dict[type, Callable[[Any, Batch], Receipt | SlateReceipt | Outcome]] = {
            Decide: self.decide,
            Reward: self.reward,
            Activate: self.activate,
            Observe: self.observe,
        }

    def answer(
        self, requests: Sequence[Request], batch: Batch
    ) -> list[Receipt | SlateReceipt | Outcome | RequestError]:
        """Return an answer per request, in their order; a refusal is an answer too."""
        answers: list[Receipt | SlateReceipt | Outcome | RequestError] = []
        for request in requests:
            try:
                answers.append(self._handlers.get(type(request), _refuse)(request, batch))
            except RequestError as refused:
                answers.append(refused)
            except InvalidArgument as refused:
                argument, allowed, value, repair = refused.argument, refused.allowed, refused.value, refused.repair
                answers.append(RequestError("bad_request", argument, allowed, value, repair))
        return answers

    def decide(self, request: Decide, batch: Batch) -> Receipt | SlateReceipt:
        """Check the request, draw an arm or a slate, and only then change anything."""
        memory = self._memory
        name, label, id, available, deferred, k, features, incumbent, incumbent_propensity, unit = request
        experiment = memory.experiments.get(name) if type(name) is str else None
        if experiment is None:
            experiment = memory.find(name)
        if type(label) is not str:
            label = checked_label("context", label)
        others = None
        if id is not None:
            if type(id) is not str or id not in memory.decisions.absent:  # otherwise it has been checked
                id = checked_label("id", id)
            others = batch.find(id)
            record = None if others is None else others.of(experiment)
            if record is not None:
                asked = None if record.slate is None else record.slate.asked
                if record.label != label or asked != k:
                    own = "context" if asked == k else "k"
                    repair = f"Use a new id; to repeat a request, repeat its {own}."
                    raise RequestError("id_taken", "id", f"one that no other decision of {name} has", id, repair)
                return self._receipt(record, id, label)
        if experiment.paused:
            raise RequestError("paused", "experiment", "one that is not paused", name, "Resume it first.")
        part, shown_by_incumbent, place = batch.part(experiment), None, None
        has_sides = experiment.has_sides or part.sources
        if has_sides or incumbent is not None or incumbent_propensity is not None or unit is not None:
            if incumbent is not None or incumbent_propensity is not None or experiment.settings.mode != "live":
                shown_by_incumbent = _checked_incumbent(experiment, incumbent, incumbent_propensity, k)
            of = label if unit is None else checked_label("unit", unit)
            place = place_of(of, experiment.salt) if has_sides else None
        described = columns = None
        if features is not None or experiment.has_features:
            described, columns = experiment.described(features)
        if place is not None and shown_by_incumbent is not None and not experiment.settings.is_ours(place.u):
            self._check_source(experiment, part, INCUMBENT)
            number, grown = self._context(experiment, part, label)
            id = self.ids.next() if id is None else id
            known = (number, label, *shown_by_incumbent, INCUMBENT, described, place.bucket)
            return self._receipt(self._record(batch, part, id, others, grown, known, deferred=deferred), id, label)
        mask = experiment.mask(available) if experiment.masked or available is not None else None
        policy = experiment.policy if part.policy is None else part.policy
        number, grown = self._context(experiment, part, label)
        policy = policy if grown is None else grown
        if k is None:
            slate = None
            arm, propensity, probabilities = experiment.draw(policy, number, self._random, mask, columns)
        else:
            slate, probabilities = experiment.draw_slate(policy, number, k, self._random, mask, columns)
            arm, propensity = slate.arms[0], slate.propensities[0]
        distribution = None if probabilities is None else probabilities.astype("<f8").tobytes()
        among = None if mask is None else packed(mask)
        if id is None:
            id = self.ids.next()
        bucket = None if place is None else place.bucket
        key, tie = experiment.key, checksum(experiment.key, number, label, id, described, bucket, unit)
        # nothing is refused from here on
        if grown is not None:
            batch.add_context(part, number, label, grown)
        event, at, version = part.next(), batch.at, experiment.version
        state = new_tuple(DecisionState, (not deferred, at, None, False, None))
        position, seen = part.position, part.expected
        record = DecisionRecord(
            event, experiment, position, number, label, arm, propensity, distribution, state, others, slate
        )
        record.features, record.bucket = described, bucket
        later = 1 if deferred else 0
        shown = None if slate is None else slate.to_bytes()
        drawn = (number, arm, propensity, seen, version, later, among, distribution)
        batch.decide(part, (event, key, position, id, *drawn, at, tie, shown, None, described, bucket), record)
        if slate is not None:
            return self._receipt(record, id, label)
        return new_tuple(Receipt, (id, experiment.arms[arm], propensity, label, None))

    def observe(self, request: Observe, batch: Batch) -> Outcome:
        """Check the request, and only then record the decision, its reward, and the end of the one it replaces."""
        name, label, arm, reward, id, propensity, source, features, unit, instead_of = request
        memory = self._memory
        experiment = memory.find(name)
        label = checked_label("context", label)
        number_of_arm = experiment.number_of(arm)
        source, told = checked_label("source", source), _checked_propensity(propensity)
        unit = label if unit is None else checked_label("unit", unit)
        is_new = id is None  # and nobody has it
        id = self.ids.next() if is_new else checked_label("id", id)
        replaced = None if instead_of is None else self._replaced(instead_of, id, experiment, batch)
        if source == RESERVED:
            allowed = f"who decided, and not {RESERVED!r}"
            raise RequestError(
                "bad_request", "source", allowed, source, "Decisions of the policy are made by `decide`."
            )
        others = None if is_new else batch.find(id)
        record = None if others is None else others.of(experiment)
        if record is not None:
            if (record.label, record.arm, record.decided_by) != (label, number_of_arm, source):
                repair = "Use a new id; to repeat an observation, repeat its context, arm and source."
                raise RequestError("id_taken", "id", f"one that no other decision of {name} has", id, repair)
            return REPEATED if reward is None else self._repeated_reward(id, reward, experiment, batch)
        value = None if reward is None else _checked_reward(experiment, reward, 0)[0]
        part = batch.part(experiment)
        self._check_source(experiment, part, source)
        described = None
        if features is not None or experiment.has_features:
            described, _ = experiment.described(features)
        number, grown = self._context(experiment, part, label)
        # nothing is refused from here on
        shown = (number, label, number_of_arm, told, source, described, place_of(unit, experiment.salt).bucket)
        record = self._record(batch, part, id, others, grown, shown)
        if value is not None:
            batch.settle(record, batch.state(record), value, "client")
        if replaced is not None:
            waits = _up_to_date(replaced, batch)
            if waits.settled is None:
                batch.settle(replaced, waits, None, "expired" if waits.active else "lapsed")
        return RECORDED

    @staticmethod
    def _check_source(experiment: Experiment, part: ExperimentPart, source: str) -> None:
        known = [*experiment.tally.sources, *part.sources]
        if source not in known and len(known) >= MOST_SOURCES:
            allowed = f"one of the {MOST_SOURCES} sources of {experiment.name}, {validate.listed(known)}"
            raise RequestError("too_many_sources", "source", allowed, source, "Use one label for each who decides.")

    @staticmethod
    def _record(
        batch: Batch,
        part: ExperimentPart,
        id: str,
        others: DecisionRecord | None,
        grown: BasePolicy | None,
        shown: tuple[int, str, int, float, str, bytes | None, int],
        *,
        deferred: bool = False,
    ) -> DecisionRecord:
        """Add a decision of another source: context, label, arm, propensity, source, features and bucket."""
        number, label, arm, told, source, described, bucket = shown
        if grown is not None:
            batch.add_context(part, number, label, grown)
        experiment, at, seen = part.experiment, batch.at, part.expected
        event, position = part.next(), part.position
        drawn = (number, label, arm, told, None, DecisionState(not deferred, at, None))
        record = DecisionRecord(event, experiment, position, *drawn, others, None, source, described, bucket)
        tie = checksum_of_others(experiment.key, number, label, id, source, arm, told, described, bucket)
        row = (event, experiment.key, position, id, number, arm, told, seen, experiment.version, int(deferred))
        batch.observe(part, (*row, None, None, at, tie, None, source, described, bucket), record)
        return record

    def _replaced(self, id: Any, own: str, experiment: Experiment, batch: Batch) -> DecisionRecord | None:
        """Return the decision of the policy that an observation stands for; None if there is none."""
        id = checked_label("instead_of", id)
        if id == own:
            repair = "Leave it out, or pass the id that was asked for."
            raise RequestError("bad_request", "instead_of", "the id of another decision", id, repair)
        found = batch.find(id)
        record = None if found is None else found.of(experiment)
        return record if record is not None and record.decided_by is None else None

    def _repeated_reward(self, id: str, reward: Any, experiment: Experiment, batch: Batch) -> Outcome:
        """Take the reward of an observation that is known: it counts if it is the first one."""
        outcome = self.reward(Reward(id, reward, experiment.name), batch)
        return RECORDED if outcome == APPLIED else outcome

    def _context(self, experiment: Experiment, part: ExperimentPart, label: str) -> tuple[int, BasePolicy | None]:
        """Return the number of a context, and for a new one the policy that has memory for it."""
        number = experiment.contexts.get(label, -1)
        if number < 0:
            number = part.contexts.get(label, -1)
        if number >= 0:
            return number, None
        checked_label("context", label)
        number = experiment.n_contexts + len(part.contexts)
        self._memory.check_contexts(experiment, number + 1)
        return number, experiment.policy_for(experiment.policy if part.policy is None else part.policy, number)

    @staticmethod
    def _receipt(record: DecisionRecord, id: str, label: str) -> Receipt | SlateReceipt:
        arms = record.experiment.arms
        if record.slate is None:
            return Receipt(id, arms[record.arm], record.propensity or None, label, record.decided_by)
        return SlateReceipt(id, tuple(arms[arm] for arm in record.slate.arms), record.slate.propensities, label)

    def reward(self, request: Reward, batch: Batch) -> Outcome:
        id, value, name = request
        record = self._find(id, name, batch)
        if record is None:
            return Outcome("unknown")
        experiment = record.experiment
        settings = experiment.settings
        if record.slate is not None and record.probabilities is None:
            return self._reward_slate(id, record, record.slate, value, batch)
        if type(value) is float and settings.low <= value <= settings.high and record.probabilities is None:
            reward: float | None = value
            rewards: bytes | None = None
        else:
            reward, rewards = _checked_reward(experiment, value, len(record.probabilities or b"") // 8)
        state = batch.state(record) if settings.wait is None else _up_to_date(record, batch)
        if state.settled is not None:
            first, source, first_rewards = state.settled
            if source == "client":
                return Outcome("repeated" if (reward, rewards) == (first, first_rewards) else "conflict")
            batch.late_reward(record, reward, rewards)
            return _closed(source)
        if not state.active:
            raise _not_activated(id)
        batch.settle(record, state, reward, "client", rewards)
        if record.decided_by is None:
            batch.delays.append((batch.at - state.waits_since) / 1e6)
        return APPLIED

    def _reward_slate(self, id: str, record: DecisionRecord, slate: Slate, value: Any, batch: Batch) -> Outcome:
        """Take the rewards of some arms of a slate: those that it has not, unless another one is different."""
        given = _checked_slate_rewards(record.experiment, slate, value)
        state = _up_to_date(record, batch)
        arrived = slate.without_rewards if state.arrived is None else state.arrived
        is_new = np.isnan(arrived) & ~np.isnan(given)
        if (~np.isnan(arrived) & ~np.isnan(given) & (arrived != given)).any():
            return Outcome("conflict")
        if not is_new.any():
            return Outcome("repeated")
        new = np.where(is_new, given, np.nan)
        if state.settled is not None:
            batch.late_reward(record, None, packed_rewards(new))
            return _closed(state.settled[1])
        if not state.active:
            raise _not_activated(id)
        batch.settle_slate(record, state, new, "client")
        batch.delays.append((batch.at - state.waits_since) / 1e6)
        return APPLIED

    def activate(self, request: Activate, batch: Batch) -> Outcome:
        record = self._find(request.id, request.experiment, batch)
        if record is None:
            return Outcome("unknown")
        if batch.state(record).active:
            return Outcome("repeated")
        state = _up_to_date(record, batch)
        if state.settled is not None:
            return _closed(state.settled[1])
        batch.activate(record)
        return Outcome("activated")

    def _find(self, id: Any, name: Any, batch: Batch) -> DecisionRecord | None:
        """Return the decision with an id, of the experiment that is named, or of the only one that has it."""
        record = batch.find(id)
        if record is None:
            return None
        if name is None:
            if record.other is not None:
                raise id_in_several(id)
            return record
        experiment = self._memory.experiments.get(name) if isinstance(name, str) else None
        return None if experiment is None else record.of(experiment)

    def settle_overdue(self, batch: Batch) -> int:
        """Settle some overdue decisions; return how many. The rest are answered as expired until later batches."""
        n_settled, memory = 0, self._memory
        for overdue, search in memory.deadlines.overdue(batch.at, PAGE):
            batch.search(search)
            for found in overdue:
                experiment = search.deadline.experiment
                cached = memory.decisions.cached(found.id)
                record = None if cached is None else cached.of(experiment)
                if record is None:
                    arguments = (found.event, experiment, found.made, found.context, None, found.arm, found.propensity)
                    slate = None if found.slate is None else Slate.from_bytes(found.slate)
                    arrived = None
                    if slate is not None:
                        arrived = questions.rewards_by_slot(memory.store, found.event, slate)
                    state = DecisionState(bool(found.is_active), found.waits_since, None, False, arrived)
                    source = (found.decided_by, found.features, found.bucket)
                    record = DecisionRecord(*arguments, found.probabilities, state, None, slate, *source)
                _settle_overdue(record, batch.state(record), batch)
                n_settled += 1
        return n_settled


def _checked_reward(experiment: Experiment, value: Any, n_arms: int) -> tuple[float | None, bytes | None]:
    """Return a reward as it is stored: one number, or under full information one per arm.

    `n_arms` is the number of arms when the decision was made, 0 where one number is expected. Rewards of all arms
    may be passed by label, or in the order of arms.
    """
    settings = experiment.settings
    allowed = f"in [{settings.low:g}, {settings.high:g}]"
    if n_arms:
        if isinstance(value, Mapping):
            arms = experiment.arms[:n_arms]
            missing = [arm for number, arm in enumerate(arms) if number not in experiment.retired and arm not in value]
            unknown = [arm for arm in value if experiment.arm_numbers.get(arm, n_arms) >= n_arms]
            if missing or unknown:
                some = f"Missing: {validate.listed(missing) or 'none'}; unknown: {validate.listed(unknown) or 'none'}."
                raise RequestError("bad_reward", "reward", "a value for every arm", f"{len(value)} values", some)
            value = [value.get(arm, settings.low) for arm in arms]
        try:
            rewards = validate.floats("reward", "a number per arm", value, "Pass a list, or a mapping by label.")
        except InvalidArgument as refused:
            raise RequestError("bad_reward", *refused.args) from None
        if rewards.shape != (n_arms,) or not ((rewards >= settings.low) & (rewards <= settings.high)).all():
            repair = "Pass one per arm, in the order of the experiment's arms."
            raise RequestError("bad_reward", "reward", f"{n_arms} numbers {allowed}", value, repair)
        return None, rewards.astype("<f8").tobytes()
    try:
        is_number = not isinstance(value, str | bytes | bool) and not getattr(value, "ndim", 0)
        number = float(value) if is_number and not np.ma.is_masked(value) else np.nan
    except Exception:  # it cannot be converted, or is too large
        number = np.nan
    if not settings.low <= number <= settings.high:
        repair = f"{experiment.name} was created with this reward_range."
        raise RequestError("bad_reward", "reward", f"a number {allowed}", value, repair)
    return number, None


def _checked_incumbent(experiment: Experiment, arm: Any, propensity: Any, k: Any) -> tuple[int, float] | None:
    """Return the number of the arm that the program would show itself, and its propensity; None in mode live."""
    mode = experiment.settings.mode
    if arm is None and mode != "live":
        allowed = f"passed in every decision: {experiment.name} has the mode {mode!r}"
        repair = "Pass the arm that you would show without the experiment."
        raise RequestError("incumbent_required", "incumbent", allowed, None, repair)
    if arm is None:
        repair = "Pass incumbent as well, or leave it out."
        raise RequestError("bad_request", "incumbent_propensity", "passed with incumbent", propensity, repair)
    if k is not None and mode != "live":
        repair = "Make a decision for each slot, with a context such as home/3."
        raise RequestError("bad_request", "k", f"left out in mode {mode!r}: the incumbent shows one arm", k, repair)
    number, told = experiment.number_of(arm, "incumbent"), _checked_propensity(propensity, "incumbent_propensity")
    return None if mode == "live" else (number, told)


def _checked_propensity(value: Any, argument: str = "propensity") -> float:
    """Return a propensity as it is stored: 0 if it is unknown."""
    if value is None:
        return 0.0
    try:
        is_number = not isinstance(value, str | bytes | bool) and not getattr(value, "ndim", 0)
        number = float(value) if is_number else np.nan
    except Exception:  # it cannot be converted, or is too large
        number = np.nan
    if not 0.0 < number <= 1.0:
        repair = "Pass the probability with which the arm was chosen, or leave it out."
        raise RequestError("bad_request", argument, "a number in (0, 1]", value, repair)
    return number


def _checked_slate_rewards(experiment: Experiment, slate: Slate, value: Any) -> Rewards:
    """Return the rewards of a slate by slot, NaN where an object from arm to reward has none."""
    labels = [experiment.arms[arm] for arm in slate.arms]
    settings = experiment.settings
    if not isinstance(value, Mapping) or not value:
        is_reward = type(value) in (int, float) and settings.low <= value <= settings.high  # type: ignore[operator]
        example = value if is_reward else settings.high
        allowed = "an object with rewards of shown arms"
        raise RequestError("bad_request", "reward", allowed, value, f'Send {{"{labels[0]}": {example:g}}}.')
    given = slate.without_rewards
    for arm, reward in value.items():
        if arm not in labels:
            allowed = f"of shown arms, {validate.listed(labels)}"
            raise RequestError("bad_reward", "reward", allowed, arm, "Pass a reward per shown arm.")
        given[labels.index(arm)] = _checked_reward(experiment, reward, 0)[0]
    return given


def _not_activated(id: str) -> RequestError:
    repair = "Activate the decision first: a deferred decision counts from then on."
    return RequestError("not_activated", "id", "an activated decision", id, repair)


def _up_to_date(record: DecisionRecord, batch: Batch) -> DecisionState:
    """Return the state of a decision, which is settled first if it is overdue."""
    state, wait = batch.state(record), record.experiment.settings.wait
    if state.settled is None and wait is not None and state.waits_since + wait <= batch.at:
        _settle_overdue(record, state, batch)
        return batch.state(record)
    return state


def _settle_overdue(record: DecisionRecord, state: DecisionState, batch: Batch) -> None:
    """Apply the default reward; close the decision where there is none, or where it was never activated."""
    default = record.experiment.settings.default_reward
    if not state.active:
        batch.settle(record, state, None, "lapsed")
    elif default is None:
        batch.settle(record, state, None, "expired")
    elif record.probabilities is None:
        batch.settle(record, state, default, "default")
    else:
        n_arms = len(record.probabilities) // 8
        batch.settle(record, state, None, "default", np.full(n_arms, default).astype("<f8").tobytes())


def random_source(seed: int | None) -> random.Random:
    """Return what arms are drawn with; repeatable with a `seed`."""
    return random.Random(secrets.randbits(128) if seed is None else seed)  # noqa: S311 - draws arms, no secrets


def id_in_several(id: Any) -> RequestError:
    """Return the error for an id that says too little."""
    repair = "Several experiments have a decision with this id: pass the name of one."
    return RequestError("ambiguous_id", "experiment", f"passed with the id {id}", None, repair)


def _closed(source: str) -> Outcome:
    """Return the answer for a decision that was settled without its reward."""
    return Outcome("rolled_back" if source == "rollback" else "expired")


def _refuse(request: object, batch: Batch) -> Outcome:
    raise RequestError("bad_request", "request", "a Decide, Reward, Activate or Observe", request, "Pass one of those.")
