"""The engine and a short model of what it promises, side by side through whatever may happen: they never disagree.

The model is plain Python. It knows no policy: arms and propensities it takes from receipts, and holds the engine to
them. Everything else it predicts: every answer, every counter, the position in the log, every account.
"""

from __future__ import annotations

import contextlib
import math
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from alphafair import POLICIES, AlphaFairBandit, Engine, register
from alphafair.engine import Activate, Decide, Observe, Outcome, Receipt, RequestError, Reward, SlateReceipt
from alphafair.engine.state.sides import place_of
from alphafair.errors import InvalidArgument
from tests import FULL
from tests.stores import both_stores, copy_as_crashed, is_postgres, open_store, rows_of

pytestmark = both_stores

START = 1_800_000_000  # seconds
Answer = Receipt | SlateReceipt | Outcome | RequestError
SMALL = {  # so that ends are met often
    "decisions": {"PAGE": 10_000, "RECENT": 2},  # a page has all that is overdue: see test_engine_expiry.py
    "maintenance": {"SEARCH_SECONDS": 600.0},
    "state.replay": {"CHUNK": 16},
    "writer": {"MOST_REQUESTS": 8, "SNAPSHOT_EVERY": 7},
}
EXPERIMENTS: dict[str, dict[str, Any]] = {
    "plain": {"policy": "alpha-fair-adaptive"},
    "default": {
        "policy": "alpha-fair-bandit",
        "reward_range": (-2.0, 2.0),
        "reward_wait": 60.0,
        "default_reward": -1.0,
    },
    "closing": {"policy": "alpha-fair-adaptive", "reward_wait": 100.0},
    "full": {"policy": "alpha-fair", "reward_wait": 60.0, "default_reward": 0.5},
    "stubborn": {"policy": "stubborn"},
    "told": {
        "policy": "alpha-fair-adaptive",
        "features": {"age": "number", "kind": ["new", "*"]},
        "reward_wait": 100.0,
    },
}
FEATURES: tuple[Any, ...] = ({"age": 0.5}, {"age": -2, "kind": "new"}, {"age": True, "kind": "old"})
NO_FEATURES: tuple[Any, ...] = ({"kind": "new"}, {"age": "x"}, {"age": 1, "size": 1}, [1])  # of no decision


class Stubborn(AlphaFairBandit):
    """Refuses to choose from a single arm."""

    name = "stubborn"

    def choose(self, context: Any, *, rng: Any = None, available: Any = None) -> Any:
        if available is not None and sum(available) == 1:
            raise InvalidArgument("available", "a choice", available, "Leave more than one arm.")
        return super().choose(context, rng=rng, available=available)


@dataclass
class Decision:
    seq: int
    experiment: Experiment
    context: str | None  # None once erased
    receipt: Receipt | SlateReceipt
    n_arms: int
    since: int
    active: bool
    active_seq: int
    value: float | None = None
    source: str | None = None  # None while it waits; client, clock, rollback
    late: bool = False  # a reward came when it was settled otherwise
    k: int | None = None
    given: dict[str, float] = field(default_factory=dict)  # rewards of a slate that have arrived

    @property
    def is_own(self) -> bool:
        """Whether the policy made it."""
        return isinstance(self.receipt, SlateReceipt) or self.receipt.source is None

    @property
    def arms(self) -> tuple[str, ...]:
        return self.receipt.arms if isinstance(self.receipt, SlateReceipt) else (self.receipt.arm,)

    @property
    def by_arm(self) -> bool:
        return isinstance(self.receipt, SlateReceipt) and not self.experiment.full


@dataclass
class Log:
    """The events of an experiment; those of a file have times that never fall over all experiments."""

    position: int = 0
    latest: int = 0


@dataclass
class Experiment:
    name: str
    key: int
    log: Log
    created: int
    full: bool
    low: float
    high: float
    wait: int | None
    default: float | None
    arms: list[str] = field(default_factory=lambda: ["ada", "ben"])
    retired: dict[str, int] = field(default_factory=dict)  # and since when
    added: list[tuple[int, Any]] = field(default_factory=list)  # position and account, of arms that came later
    masked: set[str] = field(default_factory=set)
    paused: bool = False
    mode: str = "live"
    share: float = 0.0
    compared: int | None = None  # sides have the decisions after this position; None: there are none yet
    alpha: float = 0.9
    version: int = 0
    contexts: set[str] = field(default_factory=set)
    n_contexts: int = 0
    rewards: int = 0
    counted: Counter[str] = field(default_factory=Counter)  # how other decisions were settled
    earned: dict[str, float] = field(default_factory=lambda: {"ada": 0.0, "ben": 0.0})
    accounts: list[float] = field(default_factory=lambda: [1.0, 1.0])
    past: list[tuple[int, list[float]]] = field(default_factory=list)  # accounts after every position

    @property
    def live(self) -> list[str]:
        return [arm for arm in self.arms if arm not in self.retired]

    @property
    def features(self) -> tuple[Any, ...]:
        """Those that a decision may come with."""
        return FEATURES if self.name == "told" else (None,)

    def unit(self, value: float) -> float:
        return (value - self.low) / (self.high - self.low)


class Model:
    """What the engine promises."""

    def __init__(self) -> None:
        self.clock = START * 1_000_000
        self.logs: list[Log] = []
        self.experiments: dict[str, Experiment] = {}
        self.decisions: list[Decision] = []
        self.ids: dict[str, dict[str, Decision]] = {}  # by experiment; erased ones are not among them

    @property
    def n_events(self) -> int:
        return sum(log.position for log in self.logs)

    def now(self, experiment: Experiment) -> int:
        together = [experiment.log] if is_postgres() else self.logs
        return max(self.clock, *(log.latest for log in together))

    def event(self, experiment: Experiment) -> int:
        log = experiment.log
        log.position += 1
        log.latest = self.now(experiment)
        experiment.past.append((log.position, list(experiment.accounts)))
        return log.position

    def change(self, experiment: Experiment) -> None:
        experiment.version = self.event(experiment)

    def create(self, name: str, options: dict[str, Any]) -> None:
        low, high = options.get("reward_range", (0.0, 1.0))
        wait = options.get("reward_wait")
        log = Log()
        self.logs.append(log)
        experiment = self.experiments[name] = Experiment(
            name,
            len(self.logs),
            log,
            1,
            options["policy"] == "alpha-fair",
            low,
            high,
            None if wait is None else int(wait * 1e6),
            options.get("default_reward"),
        )
        self.change(experiment)

    def waiting(self, experiment: Experiment) -> list[Decision]:
        return [d for d in self.decisions if d.experiment is experiment and d.source is None]

    # the clock

    def expire(self, experiments: Sequence[Experiment], order: Sequence[tuple[int, int]]) -> int:
        """Settle what is due in these experiments, in the order in which the engine has."""
        due = {
            (experiment.key, decision.seq): decision
            for experiment in experiments
            for decision in self.waiting(experiment)
            if experiment.wait is not None and decision.since + experiment.wait <= self.now(experiment)
        }
        order = [each for each in order if each in due]  # others were closed because somebody fell back
        assert sorted(order) == sorted(due)
        for decision in (due[each] for each in order):
            default = decision.experiment.default
            settled = "lapsed" if not decision.active else "expired" if default is None else "defaulted"
            self.close(decision, settled, default if decision.active else None)
        return len(due)

    def close(self, decision: Decision, settled: str, value: float | None = None) -> None:
        decision.source = "clock"
        decision.experiment.counted[settled] += decision.is_own
        self.earn(decision, value)

    def earn(self, decision: Decision, value: float | None) -> None:
        """Book a reward; under full information the sum over arms is what can be known, and arm 0 stands for it."""
        experiment = decision.experiment
        if value is not None and decision.is_own:
            for arm in decision.arms:
                if arm not in decision.given:
                    experiment.accounts[0 if experiment.full else experiment.arms.index(arm)] += experiment.unit(value)
                    experiment.earned[arm] += value
        self.event(experiment)

    # requests: each is compared with the engine's answer

    def answered(self, request: Decide | Observe | Reward | Activate, answer: Answer) -> None:
        if isinstance(request, Decide):
            expected: Any = self.decide(request, answer)
        elif isinstance(request, Observe):
            expected = self.observe(request)
        elif isinstance(request, Reward):
            expected = self.reward(request)
        else:
            expected = self.activate(request)
        got = answer.code if isinstance(answer, RequestError) else answer
        assert got == expected, f"{request}: {answer}"

    def decide(self, request: Decide, answer: Answer) -> str | Receipt | SlateReceipt:
        experiment = self.experiments.get(request.experiment)
        if experiment is None:
            return "unknown_experiment"
        if not isinstance(request.context, str) or not isinstance(request.id, str | None):
            return "bad_label"
        known = self.ids.get(request.id, {}).get(experiment.name) if request.id is not None else None
        if known is not None:
            return known.receipt if (known.context, known.k) == (request.context, request.k) else "id_taken"
        if experiment.paused:
            return "paused"
        if experiment.mode != "live" and request.incumbent is None:
            return "incumbent_required"
        if experiment.mode != "live" and request.k is not None:
            return "bad_request"
        if request.incumbent is not None and request.incumbent not in experiment.arms:
            return "unknown_arm"
        if request.features not in experiment.features:
            return "bad_features"
        if experiment.mode != "live" and place_of(request.context, experiment.name).u >= experiment.share:
            if not request.context:
                return "bad_label"
            assert isinstance(answer, Receipt), answer
            told = Receipt(request.id or answer.id, request.incumbent or "", None, request.context, "incumbent")
            self.decided(experiment, told, deferred=request.deferred)
            return told
        named = experiment.arms if request.available is None else request.available
        if not set(named) <= set(experiment.arms):
            return "unknown_arm"
        playable = set(named) - set(experiment.retired) - experiment.masked
        if not playable:
            return "no_arm_available"
        if request.context == "":
            return "bad_label"
        is_masked = request.available is not None or bool(experiment.masked)
        if experiment.name == "stubborn" and (request.k is not None or (is_masked and len(playable) == 1)):
            return "policy_failed"
        if request.k is None:
            assert isinstance(answer, Receipt), answer
            arms, propensities = (answer.arm,), (answer.propensity,)
        else:
            assert isinstance(answer, SlateReceipt), answer
            arms, propensities = answer.arms, answer.propensities
        assert {*arms} <= playable
        assert len({*arms}) == len(propensities) == min(request.k or 1, len(playable))
        assert all(0.0 < propensity <= 1.0 for propensity in propensities)
        assert set(propensities) == {1.0} or len(playable) > len(arms)
        assert answer.id == request.id or answer.id not in self.ids
        receipt = answer._replace(id=request.id or answer.id, context=request.context)
        self.decided(experiment, receipt, deferred=request.deferred, k=request.k)
        return receipt

    def decided(
        self, experiment: Experiment, receipt: Receipt | SlateReceipt, *, deferred: bool = False, k: int | None = None
    ) -> Decision:
        """A new decision, of whoever made it."""
        if receipt.context not in experiment.contexts:
            experiment.contexts.add(receipt.context)
            experiment.n_contexts += 1
        seq = self.event(experiment)
        waits = len(experiment.arms), self.now(experiment), not deferred, seq
        decision = Decision(seq, experiment, receipt.context, receipt, *waits, k=k)
        if experiment.compared is None and not decision.is_own:
            experiment.compared = seq - 1
        self.decisions.append(decision)
        self.ids.setdefault(receipt.id, {})[experiment.name] = decision
        return decision

    def observe(self, request: Observe) -> Outcome | str:
        experiment = self.experiments.get(request.experiment)
        if experiment is None:
            return "unknown_experiment"
        if not isinstance(request.context, str) or not request.context:
            return "bad_label"
        if request.arm not in experiment.arms:
            return "unknown_arm"
        if not request.source:
            return "bad_label"
        if request.propensity is not None and not 0.0 < request.propensity <= 1.0:
            return "bad_request"
        if not isinstance(request.instead_of, str | None):
            return "bad_label"
        if request.source == "policy" or request.instead_of == request.id:
            return "bad_request"
        id, value = request.id or "", request.reward
        known = self.ids.get(id, {}).get(experiment.name)
        told = Receipt(id, request.arm, request.propensity, request.context, request.source)
        if known is not None:
            same = isinstance(known.receipt, Receipt) and known.receipt._replace(propensity=None)
            if known.context is None or same != told._replace(propensity=None):
                return "id_taken"
            if value is None:
                return Outcome("repeated")
            outcome = self.reward(Reward(id, value, experiment.name))
            return Outcome("recorded") if outcome == Outcome("applied") else outcome
        if value is not None and (type(value) is not float or not experiment.low <= value <= experiment.high):
            return "bad_reward"
        if request.features not in experiment.features:
            return "bad_features"
        replaced = self.ids.get(request.instead_of or "", {}).get(experiment.name)
        decision = self.decided(experiment, told)
        if value is not None:
            decision.source, decision.value = "client", value
            self.event(experiment)
        if replaced is not None and replaced.is_own and replaced.source is None:
            self.close(replaced, "expired" if replaced.active else "lapsed")
        return Outcome("recorded")

    def find(self, request: Reward | Activate) -> Decision | str | None:
        found = self.ids.get(request.id, {})
        if request.experiment is None:
            return next(iter(found.values()), None) if len(found) <= 1 else "ambiguous_id"
        return found.get(request.experiment)

    def reward(self, request: Reward) -> Outcome | str:
        if not isinstance(request.id, str):
            return "bad_request"
        decision = self.find(request)
        if decision is None:
            return Outcome("unknown")
        if isinstance(decision, str):
            return decision
        experiment = decision.experiment
        if decision.by_arm:
            return self.reward_of_slate(decision, request.reward)
        full = experiment.full and decision.is_own
        if isinstance(request.reward, list) != full:
            return "bad_reward"
        values = request.reward if isinstance(request.reward, list) else [request.reward]
        wrong_length = full and len(values) != decision.n_arms
        numbers = all(type(value) is float for value in values)
        if not numbers or wrong_length or not all(experiment.low <= value <= experiment.high for value in values):
            return "bad_reward"
        if decision.source == "client":
            return Outcome("repeated" if decision.value == values[0] else "conflict")
        if decision.source is not None:
            if not decision.late:
                decision.late = True
                self.event(experiment)
            return Outcome("rolled_back" if decision.source == "rollback" else "expired")
        if not decision.active:
            return "not_activated"
        decision.source, decision.value = "client", values[0]
        experiment.rewards += decision.is_own
        self.earn(decision, values[0])
        return Outcome("applied")

    def reward_of_slate(self, decision: Decision, rewards: Any) -> Outcome | str:
        experiment = decision.experiment
        if not isinstance(rewards, dict) or not rewards:
            return "bad_request"
        for arm, value in rewards.items():
            if arm not in decision.arms or type(value) is not float or not experiment.low <= value <= experiment.high:
                return "bad_reward"
        if any(decision.given.get(arm, value) != value for arm, value in rewards.items()):
            return Outcome("conflict")
        new = {arm: value for arm, value in rewards.items() if arm not in decision.given}
        if not new:
            return Outcome("repeated")
        if decision.source is not None:
            if not decision.late:
                decision.late = True
                self.event(experiment)
            return Outcome("rolled_back" if decision.source == "rollback" else "expired")
        if not decision.active:
            return "not_activated"
        for arm, value in new.items():
            experiment.accounts[experiment.arms.index(arm)] += experiment.unit(value)
            experiment.earned[arm] += value
        decision.given |= new
        if len(decision.given) == len(decision.arms):
            decision.source = "client"
            experiment.rewards += 1
        self.event(experiment)
        return Outcome("applied")

    def activate(self, request: Activate) -> Outcome | str:
        if not isinstance(request.id, str):
            return "bad_request"
        decision = self.find(request)
        if decision is None:
            return Outcome("unknown")
        if isinstance(decision, str):
            return decision
        if decision.active:
            return Outcome("repeated")
        if decision.source is not None:
            return Outcome("rolled_back" if decision.source == "rollback" else "expired")
        decision.active, decision.since = True, self.now(decision.experiment)
        decision.active_seq = self.event(decision.experiment)
        return Outcome("activated")

    # changes

    def entry(self, accounts: Sequence[float], live: Sequence[int], account: Any) -> float:
        return min(accounts[i] for i in live) if account == "least" else 1.0 if account == "fresh" else account

    def add_arm(self, experiment: Experiment, arm: str, account: Any) -> None:
        live = [experiment.arms.index(each) for each in experiment.live]
        experiment.accounts.append(self.entry(experiment.accounts, live, account))
        experiment.arms.append(arm)
        experiment.earned[arm] = 0.0
        self.change(experiment)
        experiment.added.append((experiment.version, account))

    def retire_arm(self, experiment: Experiment, arm: str) -> None:
        self.change(experiment)
        experiment.retired[arm] = experiment.version

    def rollback(self, experiment: Experiment, position: int) -> None:
        accounts = next(list(then) for seq, then in reversed(experiment.past) if seq <= position)
        later = [(seq, "add", account) for seq, account in experiment.added if seq > position]
        later += [(seq, "retire", arm) for arm, seq in experiment.retired.items() if seq > position]
        live = [
            i
            for i, arm in enumerate(experiment.arms[: len(accounts)])
            if experiment.retired.get(arm, position + 1) > position
        ]
        for _, kind, what in sorted(later):
            if kind == "add":
                accounts.append(self.entry(accounts, live, what))
                live.append(len(accounts) - 1)
            else:
                live.remove(experiment.arms.index(what))
        experiment.accounts = accounts
        self.change(experiment)
        for decision in self.waiting(experiment):
            if max(decision.seq, decision.active_seq) > position:
                decision.source = "rollback"
                experiment.counted["rolled_back"] += decision.is_own
                self.event(experiment)

    def erase(self, experiment: Experiment, context: str) -> None:
        experiment.contexts.discard(context)
        for decision in self.decisions:
            if decision.experiment is experiment and decision.context == context:
                decision.context = None
                del self.ids[decision.receipt.id][experiment.name]
        self.change(experiment)


LABELS = """select case when d.id like 'erased-%' then null else d.id end, c.label from decision d
    left join context c on c.experiment = d.experiment and c.number = d.context
    where d.experiment = ? order by d.event"""
SETTLED = """select r.event, d.experiment, d.position from reward r join decision d on d.event = r.decision
    where r.experiment = ? and r.position > ? and r.source in ('default', 'expired', 'lapsed')"""
SETTLED += " union all " + SETTLED.replace("reward r", "slate_reward r")
NAMES = st.sampled_from(list(EXPERIMENTS))
MODED = ("plain", "told", "full")  # those of other modes, at times
MODES = (*[("live", 1.0)] * 3, ("watch", 0.0), ("share", 0.25), ("share", 0.75))
PLACES = st.integers(0, 10_000)
ARMS = ("ada", "ben", "cyd", "dan", "eve")
CONTEXTS = ("v0", "v1", "v2", "имя 名前", *(f"w{k}" for k in range(8)))
NO_CONTEXTS: tuple[Any, ...] = ("", 7, None)
VALUES = (0.0, 0.25, 0.5, 0.5, 1.0, 5e-324)
NO_VALUES: tuple[Any, ...] = (2.5, math.nan, math.inf, "0.5", None)  # none is in any range
DECIDES = st.tuples(
    st.just("decide"),
    st.sampled_from([*EXPERIMENTS, *EXPERIMENTS, "nowhere"]),
    st.sampled_from((*CONTEXTS, *CONTEXTS, *NO_CONTEXTS)),
    st.one_of(st.none(), st.integers(0, 30)),
    st.one_of(st.none(), st.none(), st.lists(st.sampled_from(ARMS), max_size=3)),
    st.booleans(),
    st.sampled_from((None, None, 1, 2, 2, 3)),
    st.sampled_from((None,) * 24 + (*FEATURES, *NO_FEATURES, ())),
)
REWARDS = st.tuples(
    st.just("reward"), PLACES, st.sampled_from((*VALUES, *VALUES, *NO_VALUES)), st.one_of(st.none(), st.none(), NAMES)
)
ACTIVATIONS = st.tuples(st.just("activate"), PLACES, st.one_of(st.none(), st.none(), NAMES))
NAMED: tuple[Any, ...] = (7, "nobody", "named-1", "named-2")  # the first is not an id at all
LAST = len(NAMED)  # the place of the last decision
OBSERVATIONS = st.tuples(
    st.just("observe"),
    st.sampled_from([*EXPERIMENTS, *EXPERIMENTS, "nowhere"]),
    st.sampled_from((*CONTEXTS, *CONTEXTS, *NO_CONTEXTS)),
    st.sampled_from((*ARMS[:2] * 4, *ARMS)),
    st.sampled_from((None, None, *VALUES, *VALUES, *NO_VALUES[:2])),
    st.one_of(st.integers(0, 30), st.integers(100, 400)),
    st.sampled_from((*(None, None, 0.5, 1.0) * 3, 0.0, 1.5)),
    st.sampled_from((*("incumbent", "incumbent", "history") * 3, "policy", "")),
    st.one_of(st.none(), PLACES),
)
ASKED = st.one_of(DECIDES, OBSERVATIONS, REWARDS, REWARDS, ACTIVATIONS)


class EngineAndModel(RuleBasedStateMachine):
    """Whatever is done to the engine is done to the model."""

    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.model, self.openings = Model(), 0
        self.engine = self.opened(self.folder / "0.db")
        for name, options in EXPERIMENTS.items():
            self.engine.create(name, arms=["ada", "ben"], **options)
            self.model.create(name, options)

    def opened(self, path: Path) -> Engine:
        self.path, self.openings = path, self.openings + 1
        return Engine(open_store(path), seed=self.openings, clock=lambda: self.model.clock * 1000)

    # requests

    def made(self, asked: tuple[Any, ...]) -> Decide | Observe | Reward | Activate:
        """A request; ids are those of receipts, of decisions that may be in the same group, or of nobody."""
        kind, *rest = asked
        if kind == "decide":
            name, context, id, available, deferred, *more = rest
            k, features = more or (None, None)
            if features is None and name == "told":  # mostly with those that it needs
                features = FEATURES[len(self.model.decisions) % len(FEATURES)]
            named = None if id is None else f"named-{id}"
            experiment, incumbent = self.model.experiments.get(name), None
            if experiment is not None and experiment.mode != "live" and len(self.model.decisions) % 7:
                incumbent = ARMS[len(self.model.decisions) % 3]
            return Decide(name, context, named, available, deferred, k, features or None, incumbent)
        ids = [*NAMED, *reversed(self.model.ids)]
        if kind == "observe":
            *shown, own, propensity, source, place = rest
            waiting = [d.receipt.id for d in self.model.decisions if d.source is None and d.experiment.name == rest[0]]
            ids = [7, "nobody", *waiting * 5, *self.model.ids]
            instead_of = None if place is None else ids[place % len(ids)]
            features = FEATURES[own % len(FEATURES)] if (rest[0] == "told") != (own % 11 == 0) else None
            return Observe(*shown, f"named-{own}", propensity, source, features, instead_of=instead_of)
        id = ids[rest[0] % len(ids)]
        if kind == "activate":
            return Activate(id, rest[1])
        value: Any = rest[1]
        decision = self.model.find(Activate(id, rest[2])) if isinstance(id, str) else None
        if isinstance(decision, Decision) and decision.is_own and decision.experiment.full and rest[0] % 7:
            value = [value] * (decision.n_arms - (rest[0] % 11 == 0))
        elif isinstance(decision, Decision) and decision.by_arm and rest[0] % 7:
            arms = [*decision.arms, "nobody"] if rest[0] % 13 == 0 else decision.arms
            value = {arm: value for slot, arm in enumerate(arms) if (rest[0] // 7) % 3 != slot}
        return Reward(id, value, rest[2])

    def settle_by_the_clock(self) -> int:
        """Settle decisions that the engine has settled since the model's last event.

        A request settles all that is overdue in its log: in a database, of its experiment.
        """
        engine, found = self.engine, list(self.model.experiments.values())
        written = [each for each in found if engine.experiment(each.name).position > each.log.position]
        rows = [row for each in written for row in rows_of(engine, SETTLED, (each.key, each.log.position) * 2)]
        return self.model.expire(written if is_postgres() else found, [(key, seq) for _, key, seq in sorted(rows)])

    @rule(asked=st.lists(ASKED, min_size=1, max_size=8))
    def ask(self, asked: list[tuple[Any, ...]]) -> None:
        requests = [self.made(each) for each in asked]
        answers = self.engine.submit(requests)
        self.settle_by_the_clock()
        for request, answer in zip(requests, answers, strict=True):
            self.model.answered(request, answer)

    @rule(asked=ASKED)
    def ask_one(self, asked: tuple[Any, ...]) -> None:
        request = self.made(asked)
        answer: Answer
        try:
            if isinstance(request, Decide):
                answer = self.engine.decide(*request[:5], **dict(zip(Decide._fields[5:], request[5:], strict=True)))
            elif isinstance(request, Observe):
                told = request._asdict()
                shown = [told.pop(name) for name in Observe._fields[:5]]
                answer = self.engine.observe(*shown, **told)
            elif isinstance(request, Activate):
                request = request._replace(experiment=None)
                answer = self.engine.activate(request.id)
            else:
                request = request._replace(experiment=None)
                answer = self.engine.reward(request.id, request.reward)
        except RequestError as refused:
            answer = refused
        self.settle_by_the_clock()
        self.model.answered(request, answer)

    @rule(context=st.sampled_from(CONTEXTS), name=NAMES, value=st.sampled_from(VALUES))
    def visit(self, context: str, name: str, value: float) -> None:
        """What happens most: a decision, then its reward."""
        if not self.model.experiments[name].paused:
            self.ask([("decide", name, context, None, None, False)])
            self.ask([("reward", LAST, value, None)])

    @rule(
        name=NAMES,
        contexts=st.lists(st.sampled_from(CONTEXTS), min_size=1, max_size=4),
        place=PLACES,
        crash=st.booleans(),
    )
    def refused_then_reopened(self, name: str, contexts: list[str], place: int, crash: bool) -> None:
        """Decisions among one arm, which a policy may refuse; again among all, and again from the file alone."""
        arms = self.model.experiments[name].arms
        self.ask([("decide", name, context, None, [arms[place % len(arms)]], False) for context in contexts])
        self.ask([("decide", name, contexts[0], None, None, False)])
        self.the_same()
        (self.crash if crash else self.restart)()
        self.ask([("decide", name, context, None, None, False) for context in contexts[::-1]])

    @rule(asked=st.lists(st.one_of(DECIDES, OBSERVATIONS), min_size=2, max_size=6))
    def decide_some(self, asked: list[tuple[Any, ...]]) -> None:
        self.ask(asked)

    @rule(asked=st.lists(st.one_of(REWARDS, ACTIVATIONS), min_size=2, max_size=8))
    def settle_some(self, asked: list[tuple[Any, ...]]) -> None:
        self.ask(asked)

    # time

    @rule(seconds=st.sampled_from((1, 20, 50, 70, 200, -30, -500)))
    def time_passes(self, seconds: int) -> None:
        self.model.clock += seconds * 1_000_000

    @rule()
    def expire(self) -> None:
        assert self.engine.expire() == self.settle_by_the_clock()

    # changes

    @rule(name=NAMES, arm=st.sampled_from(ARMS), account=st.sampled_from(("least", "fresh", 3.5)))
    def add_arm(self, name: str, arm: str, account: Any) -> None:
        experiment = self.model.experiments[name]
        if arm in experiment.arms:
            with pytest.raises(RequestError, match="new"):
                self.engine.add_arm(name, arm, account)
        else:
            self.engine.add_arm(name, arm, "fresh" if experiment.full else account)
            self.model.add_arm(experiment, arm, "fresh" if experiment.full else account)

    @rule(name=NAMES, arm=st.sampled_from(ARMS[:4]))
    def retire_arm(self, name: str, arm: str) -> None:
        experiment = self.model.experiments[name]
        if arm not in experiment.arms or experiment.live == [arm]:
            with pytest.raises(RequestError, match=r"an arm of|at least two"):
                self.engine.retire_arm(name, arm)
            return
        self.engine.retire_arm(name, arm)
        if arm not in experiment.retired:
            self.model.retire_arm(experiment, arm)

    @rule(name=NAMES, place=PLACES, masked=st.booleans())
    def mask_arm(self, name: str, place: int, masked: bool) -> None:
        experiment = self.model.experiments[name]
        arm = experiment.arms[place % len(experiment.arms)]
        (self.engine.mask_arm if masked else self.engine.unmask_arm)(name, arm)
        (experiment.masked.add if masked else experiment.masked.discard)(arm)
        self.model.change(experiment)

    @rule(name=NAMES, alpha=st.sampled_from((0.0, 0.5, 0.9, 0.99)))
    def set_alpha(self, name: str, alpha: float) -> None:
        self.engine.set_alpha(name, alpha)
        self.model.experiments[name].alpha = alpha
        self.model.change(self.model.experiments[name])

    @rule(name=NAMES, wait=st.sampled_from((None, 15.0, 60.0, 100.0)), place=st.integers(0, 2))
    def set_wait(self, name: str, wait: float | None, place: int) -> None:
        """Another waiting time holds for decisions that wait already."""
        experiment = self.model.experiments[name]
        default = None if wait is None else (None, experiment.low, experiment.high)[place]
        self.engine.set_terms(name, reward_wait=wait, default_reward=default)
        experiment.wait, experiment.default = None if wait is None else int(wait * 1e6), default
        self.model.change(experiment)

    @rule(name=st.sampled_from(MODED), mode=st.sampled_from(MODES))
    def set_mode(self, name: str, mode: tuple[str, float]) -> None:
        """An incumbent decides for some visitors, for all, or for none."""
        experiment = self.model.experiments[name]
        experiment.mode, experiment.share = mode
        self.engine.set_terms(name, mode=mode[0], **({"share": mode[1]} if mode[0] == "share" else {}))
        self.model.change(experiment)
        experiment.compared = experiment.log.position

    @rule(name=NAMES, pause=st.sampled_from((True, False, False)))
    def pause_or_resume(self, name: str, pause: bool) -> None:
        (self.engine.pause if pause else self.engine.resume)(name)
        self.model.experiments[name].paused = pause
        self.model.change(self.model.experiments[name])

    @rule(name=NAMES, back=st.integers(0, 40))
    def rollback(self, name: str, back: int) -> None:
        experiment = self.model.experiments[name]
        position = max(experiment.created, experiment.log.position - back)
        self.engine.rollback(name, position)
        self.model.rollback(experiment, position)

    @rule(name=NAMES, context=st.sampled_from(CONTEXTS))
    def erase(self, name: str, context: str) -> None:
        experiment = self.model.experiments[name]
        if context in experiment.contexts:
            self.engine.erase(name, context)
            self.model.erase(experiment, context)
        else:
            with pytest.raises(RequestError, match="context must be a context of "):
                self.engine.erase(name, context)

    # files

    @rule()
    def restart(self) -> None:
        self.engine.close()
        self.engine = self.opened(self.path)

    @rule()
    def crash(self) -> None:
        """What is on the disk now is all that is left."""
        path = self.folder / f"{self.openings}.db"
        copy_as_crashed(self.path, path)
        self.engine._store.close()
        self.engine = self.opened(path)

    @rule()
    @precondition(lambda self: self.model.decisions)
    def verify(self) -> None:
        assert self.engine.verify() == self.model.n_events

    # they never disagree

    @invariant()
    def the_same(self) -> None:
        self.compare(self.engine)

    def compare(self, engine: Engine) -> None:
        model = self.model
        assert engine.health()["position"] == model.n_events
        assert engine.experiments() == list(model.experiments)
        for name, experiment in model.experiments.items():
            status = engine.experiment(name)
            mine = [decision for decision in model.decisions if decision.experiment is experiment]
            assert status.arms == tuple(experiment.live)
            assert set(status.retired_arms) == set(experiment.retired)
            assert set(status.masked_arms) == experiment.masked
            assert (status.paused, status.alpha) == (experiment.paused, experiment.alpha)
            assert status.policy_version == experiment.version
            assert status.contexts == experiment.n_contexts
            own = [decision for decision in mine if decision.is_own]
            assert status.decisions == len(own)
            sides = {side.source: side.decisions for side in status.sides or () if side.decisions}
            since = math.inf if experiment.compared is None else experiment.compared
            compared = [decision.receipt for decision in mine if decision.seq > since]
            assert sides == Counter(getattr(receipt, "source", None) or "policy" for receipt in compared)
            assert status.pending == sum(decision.is_own for decision in model.waiting(experiment))
            assert status.rewards == experiment.rewards
            counted = ("defaulted", "expired", "lapsed", "rolled_back")
            assert {name: getattr(status, name) for name in counted} == {k: experiment.counted[k] for k in counted}
            drawn = [arm for decision in own for arm in decision.arms]
            assert status.pulls == {arm: drawn.count(arm) for arm in experiment.arms}
            rows = rows_of(engine, LABELS, (experiment.key,))
            assert rows == [(None if d.context is None else d.receipt.id, d.context) for d in mine]
            assert status.cumulative_rewards == experiment.earned
            accounts = list(status.accounts.values())
            if experiment.full:
                assert sum(accounts) == pytest.approx(sum(experiment.accounts), rel=1e-12)
            else:
                assert accounts == experiment.accounts

    def teardown(self) -> None:
        if not hasattr(self, "engine"):
            return
        try:
            assert self.engine.verify() == self.model.n_events
            with Engine.open(self.path, read_only=True) as reader:
                self.compare(reader)
        finally:
            self.engine.close()
            shutil.rmtree(self.folder)


@pytest.fixture(autouse=True)
def _small_pages() -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        register(Stubborn)
        stack.callback(POLICIES.pop, Stubborn.name)
        for module, sizes in SMALL.items():
            stack.enter_context(mock.patch.multiple(f"alphafair.engine.{module}", **sizes))
        yield


def test_the_engine_and_the_model_never_disagree() -> None:
    some = settings(
        max_examples=(25 if FULL else 12) if not is_postgres() else (8 if FULL else 4),
        stateful_step_count=40,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(EngineAndModel, settings=some)  # type: ignore[no-untyped-call]
