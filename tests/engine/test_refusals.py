"""What is refused changes nothing: not the file, not the memory, not the neighbors in the same commit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from alphafair import AlphaFair, AlphaFairAdaptive, Engine, FairCB, Groups
from alphafair.algorithms import BasePolicy
from alphafair.engine import Decide, GroupStatus, Mismatch, Outcome, Receipt, RequestError, Reward
from alphafair.engine.batch import Batch
from alphafair.engine.decisions import RequestHandler
from alphafair.errors import InvalidArgument
from alphafair.policy.stepper import Stepper
from tests.stores import both_stores, execute, live_state, rows_of

pytestmark = both_stores

ARMS = ("ada", "ben")


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with Engine.open(tmp_path / "shop.db", seed=1) as engine:
        yield engine


def learned(policy: BasePolicy, n_rounds: int = 5) -> BasePolicy:
    for t in range(n_rounds):
        policy.update(policy.choose(t % policy.n_contexts), 0.5)
    return policy


# an experiment that goes on from a state is checked as one that starts afresh


def test_a_start_with_features_is_refused(engine: Engine) -> None:
    state = AlphaFairAdaptive(1, 2, n_features=3, seed=0).snapshot()
    with pytest.raises(RequestError, match=r"start must be a state with features of shape \(\); got"):
        engine.create("home", arms=ARMS, start=state, contexts=["v"])
    assert engine.experiments() == []
    assert engine.position == 0


def test_a_start_that_expects_rewards_is_refused(engine: Engine) -> None:
    policy = AlphaFairAdaptive(1, 2, seed=0)
    policy.expect(policy.choose(0))
    with pytest.raises(RequestError, match=r"start must be a state without pending rewards; got 1\.0"):
        engine.create("home", arms=ARMS, start=policy.snapshot(), contexts=["v"])
    assert engine.experiments() == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            {"policy": "hedge"},
            "policy must be left out, or the same as in start (policy='alpha-fair-adaptive'); got 'hedge'",
        ),
        ({"policy": "alpha-fare"}, "policy must be"),
        ({"alpha": 0.5}, "alpha must be left out, or the same as in start (alpha=0.9); got 0.5"),
        ({"alpha": -1.5}, "alpha must be"),
        ({"beta": 1.0}, "beta must be left out: alpha-fair-adaptive accepts"),
        ({"groups": ["x", "x"]}, "groups must be left out, or the same as in start (groups=None)"),
        ({"groups": Groups(pull_floor=0.1)}, "groups must be left out, or the same as in start (groups=None)"),
        (
            {"alpha": 0.5, "groups": ["x", "x"]},
            "alpha, groups must be left out, or the same as in start (alpha=0.9, groups=None); got {'alpha': 0.5,",
        ),
        ({"pull_floor": 0.1}, "pull_floor must be left out"),
        ({"seed": 3}, "seed must be left out"),
        ({"n_arms": 2}, "n_arms must be left out"),
    ],
)
def test_arguments_that_differ_from_a_start_are_refused_by_name(
    engine: Engine, arguments: dict[str, Any], words: str
) -> None:
    state = learned(AlphaFairAdaptive(1, 2, alpha=0.9, seed=0)).snapshot()
    with pytest.raises(InvalidArgument) as refusal:
        engine.create("home", arms=ARMS, start=state, contexts=["v"], **arguments)
    assert words in str(refusal.value)
    assert engine.experiments() == []


def test_arguments_equal_to_those_of_a_start_are_accepted(engine: Engine) -> None:
    state = learned(AlphaFairAdaptive(1, 2, alpha=0.9, seed=0)).snapshot()
    engine.create("home", arms=ARMS, start=state, contexts=["v"], policy="alpha-fair-adaptive", alpha=0.9)
    state = AlphaFair(1, 2, groups=Groups(["x", "y"], pull_floor=[0.2, 0.1]), seed=0).snapshot()
    floors = {"x": 0.2, "y": 0.1}
    engine.create("next", arms=ARMS, start=state, contexts=["v"], groups=Groups(["x", "y"], pull_floor=floors))
    assert engine.experiment("next").groups == GroupStatus({"ada": "x", "ben": "y"}, None, floors)
    assert engine.experiment("next").policy == "alpha-fair"


def test_groups_of_a_start_are_labels(engine: Engine) -> None:
    state = AlphaFair(1, 2, groups=[0, 1], seed=0).snapshot()
    with pytest.raises(RequestError, match="groups must be a string"):
        engine.create("home", arms=ARMS, start=state, contexts=["v"])


@pytest.mark.parametrize("start", [b"", {}, "alpha-fair"])
def test_a_start_is_a_state(engine: Engine, start: Any) -> None:
    with pytest.raises(InvalidArgument, match="state must be a State"):
        engine.create("home", arms=ARMS, start=start)


def test_contexts_may_be_named_without_a_start(engine: Engine, tmp_path: Path) -> None:
    """The policy knows of them before anything is drawn: compiled code looks where it is told to."""
    names = [f"v{k}" for k in range(40)]
    for policy in ("alpha-fair-adaptive", "alpha-fair", "hedge"):
        settings = {"horizon": 100} if policy == "hedge" else {}
        engine.create(policy, arms=ARMS, policy=policy, contexts=names, **settings)  # type: ignore[arg-type]
        assert live_state(engine, policy).experiments[policy].policy.n_contexts == 40
        assert engine.decide(policy, "v39").propensity == 0.5
        assert engine.experiment(policy).contexts == 40
    engine.verify()


# a decision is checked, then drawn, and only then is anything noted


class Door:
    """Every policy refuses to draw as long as it is shut."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.shut = False
        for kind, method in ((Stepper, "draw_alone"), (BasePolicy, "choose")):
            monkeypatch.setattr(kind, method, self.guarded(getattr(kind, method)))

    def guarded(self, inside: Any) -> Any:
        def ask(*arguments: Any, **options: Any) -> Any:
            if self.shut:
                raise InvalidArgument("anything", "accepted", arguments, "Ask later.")
            return inside(*arguments, **options)

        return ask


@pytest.mark.parametrize("policy", ["alpha-fair-adaptive", "alpha-fair", "fair-cb"])
@pytest.mark.parametrize("available", [None, ["ada", "ben"]])
def test_a_refused_context_leaves_no_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str, available: list[str] | None
) -> None:
    path = tmp_path / "shop.db"
    engine = Engine.open(path, seed=1)
    engine.create("home", arms=ARMS, policy=policy)
    door = Door(monkeypatch)
    for n_contexts in range(3):
        door.shut = True
        with pytest.raises(InvalidArgument, match="anything must be accepted"):
            engine.decide("home", "refused", "a", available)
        assert engine.position == 1 + n_contexts
        assert engine.experiment("home").contexts == n_contexts
        door.shut = False
        engine.verify()
        if n_contexts == 1:  # a snapshot is taken, and found again
            engine.close()
            engine = Engine.open(path, seed=2)
            engine.verify()
        engine.decide("home", f"other {n_contexts}", f"{n_contexts}", available)
    first = engine.decide("home", "refused", "a", available)
    assert engine.experiment("home").contexts == 4
    engine.verify()
    engine.close()
    with Engine.open(path, seed=3) as engine:
        assert engine.decide("home", "refused", "a", available) == first
        rows = rows_of(engine, "select c.label, d.id from decision d join context c on c.number = d.context")
        assert sorted(rows) == [("other 0", "0"), ("other 1", "1"), ("other 2", "2"), ("refused", "a")]
        engine.verify()


def add_contexts_before_the_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inject a fault: a context is added to memory before a draw that may be refused."""
    decide = RequestHandler.decide

    def faulty(handler: RequestHandler, request: Decide, batch: Batch) -> Receipt:
        experiment = handler._memory.experiments[request.experiment]
        if request.context not in experiment.contexts:
            number = experiment.n_contexts
            policy = experiment.policy_for(experiment.policy, number)
            experiment.add_contexts({request.context: number}, policy)
        return decide(handler, request, batch)

    monkeypatch.setattr(RequestHandler, "decide", faulty)


@pytest.mark.parametrize("policy", ["alpha-fair-adaptive", "alpha-fair"])
@pytest.mark.parametrize("is_faulty", [False, True])
def test_verify_finds_a_context_that_was_added_before_its_draw(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str, is_faulty: bool
) -> None:
    """In memory after the refusal, in the file after the next decision, and once another label has its number."""
    path = tmp_path / "shop.db"
    if is_faulty:
        add_contexts_before_the_draw(monkeypatch)
    expected = pytest.raises(Mismatch, match=r"has no row") if is_faulty else nullcontext()
    with Engine.open(path, seed=1) as engine:
        engine.create("home", arms=ARMS, policy=policy)
        engine.mask_arm("home", "ada")
        with pytest.raises(RequestError):
            engine.decide("home", "ann", "ann's", available=["ada"])
        with expected:
            engine.verify()
        engine.decide("home", "ann", "ann's")
        with expected:
            engine.verify()
    with Engine.open(path, read_only=True) as reader, expected:
        reader.verify()
    if is_faulty:  # ann's label was never written: a file in which bob has her number must not pass either
        execute(path, "insert into context values (1, 0, 'bob')")
        expected = pytest.raises(Mismatch, match=r"was not made for context 0, which is 'bob'")
    with Engine.open(path, read_only=True) as reader, expected:
        reader.verify()


def test_a_policy_that_cannot_grow_refuses_new_contexts_and_nothing_more(engine: Engine) -> None:
    engine.create("home", arms=ARMS)
    engine.decide("home", "first")
    policy = live_state(engine, "home").experiments["home"].policy

    def grow(*_: Any, **__: Any) -> None:
        raise InvalidArgument("n_contexts", "at most 1", 2, "Use the context that there is.")

    policy.grow = grow  # type: ignore[method-assign]
    for _ in range(2):
        with pytest.raises(InvalidArgument):
            engine.decide("home", "second")
    assert engine.experiment("home").contexts == 1
    del policy.grow  # type: ignore[method-assign]
    engine.decide("home", "third")
    engine.verify()
    assert rows_of(engine, "select number, label from context order by number") == [(0, "first"), (1, "third")]


# nothing that one request brings touches another in the same commit


class Name(str):
    """What a table library's strings are: not quite the built-in ones."""


ODD: list[Any] = [
    Decide("home", 7),  # type: ignore[arg-type]
    Decide("home", None),  # type: ignore[arg-type]
    Decide("home", np.array(["v", "w"])),  # type: ignore[arg-type]
    Decide("home", np.array(["v", "w"]), "good"),  # type: ignore[arg-type]
    Decide("home", ["v"], "good"),  # type: ignore[arg-type]
    Decide(np.array(["home", "away"]), "v"),  # type: ignore[arg-type]
    Decide(["home"], "v"),  # type: ignore[arg-type]
    Decide("home", "v", 7),  # type: ignore[arg-type]
    Decide("home", "v", np.array(["a", "b"])),  # type: ignore[arg-type]
    Decide("home", "v", "\x00"),
    Decide("home", "v", None, 7),  # type: ignore[arg-type]
    Decide("home", "v", None, "ada"),
    Decide("home", "v", None, [["ada"]]),  # type: ignore[list-item]
    Decide("home", "v", None, [np.array(["ada", "ben"])]),  # type: ignore[list-item]
    Decide("home", "v", None, np.array([True, False])),  # type: ignore[arg-type]
    Decide("home", "v", None, []),
    Reward("good", 10**400),
    Reward("good", -(10**400)),
    Reward("good", float("nan")),
    Reward("good", "0.5"),  # type: ignore[arg-type]
    Reward("good", np.array([0.5, 0.5])),  # type: ignore[arg-type]
    Reward("good", {"ada": 0.5}),
    Reward("good", 1j),  # type: ignore[arg-type]
    Reward("good", np.ma.masked),
    Reward("good", True),
    Reward("full", 10**400),
    Reward("full", [10**400, 0]),
    Reward("full", [float("nan"), 0.5]),
    Reward("full", {"ada": float("inf"), "ben": 0.5}),
    Reward("full", {"ada": 10**400, "ben": 0.5}),
    Reward("full", {"ada": "x", "ben": 0.5}),  # type: ignore[dict-item]
    Reward("full", np.ma.masked_array([0.5, 0.5], [True, False])),
    Reward("full", {7: 0.5, "ada": 0.5, "ben": 0.5}),  # type: ignore[dict-item]
    Reward(7, 0.5),  # type: ignore[arg-type]
    Reward(np.array(["a", "b"]), 0.5),  # type: ignore[arg-type]
    Reward("good", 0.5, np.array(["home", "away"])),  # type: ignore[arg-type]
    "nonsense",
    None,
]


@pytest.mark.parametrize("odd", range(len(ODD)))
def test_an_invalid_request_does_not_affect_others(engine: Engine, odd: int) -> None:
    engine.create("home", arms=ARMS)
    engine.create("all", arms=ARMS, policy="alpha-fair")
    drawn = engine.submit([Decide("home", "v", "good"), Decide("all", "v", "full")])
    assert all(isinstance(each, Receipt) for each in drawn)
    requests = [Decide("home", "w", "before"), ODD[odd], Decide("home", "x", "after"), Reward("good", 0.25)]
    before, refused, after, booked = engine.submit(requests)
    assert isinstance(refused, RequestError) or refused == Outcome("unknown"), refused
    assert isinstance(before, Receipt)
    assert isinstance(after, Receipt)
    assert booked == Outcome("applied")
    assert len(str(refused)) < 400
    assert engine.position == 7
    assert engine.reward("full", [0.5, 0.5]) == Outcome("applied")
    assert engine.health()["ready"]
    engine.verify()


def test_strings_of_other_libraries_are_accepted(engine: Engine) -> None:
    engine.create("home", arms=ARMS)
    for kind in (str, Name, np.str_):
        first = engine.decide(kind("home"), kind("v"), kind("a"), [kind("ada"), kind("ben")])
        assert type(first.context) is type(first.id) is str
        assert first == engine.decide("home", "v", "a")
        assert engine.reward(kind("a"), 0.5).outcome in ("applied", "repeated")
        engine.decide(kind("home"), kind("v"))
    status = engine.experiment("home")
    assert (status.contexts, status.decisions, status.rewards) == (1, 4, 1)
    engine.verify()


def test_numbers_of_other_libraries_are_accepted(engine: Engine) -> None:
    engine.create("home", arms=ARMS)
    for k, value in enumerate([np.float64(0.5), np.float32(0.5), np.int64(1), 1, np.array(0.5), np.array([0.5])[0]]):
        engine.decide("home", "v", str(k))
        assert engine.reward(str(k), value) == Outcome("applied")  # type: ignore[arg-type]
    engine.verify()


@pytest.mark.parametrize("context", [7, None, ["v"], {"v": 1}])
def test_erasing_an_invalid_label_is_refused(engine: Engine, context: Any) -> None:
    engine.create("home", arms=ARMS)
    engine.decide("home", "v")
    with pytest.raises(RequestError):
        engine.erase("home", context)
    assert engine.health()["ready"]
    assert engine.position == 2


def test_fair_cb_with_weights_of_its_own_may_start(engine: Engine) -> None:
    state = FairCB(2, 2, horizon=100, context_weights=[0.5, 0.5], seed=0).snapshot()
    engine.create("home", arms=ARMS, start=state, contexts=["a", "b"])
    for context in ("a", "b", "c"):
        engine.reward(engine.decide("home", context).id, 0.5)
    engine.verify()
