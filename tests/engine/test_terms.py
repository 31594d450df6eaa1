"""Terms that change while an experiment runs: one kind of change, the same after a replay, a rollback and elsewhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from alphafair import Engine
from alphafair.engine import RequestError
from alphafair.engine.terms import TERMS
from alphafair.errors import InvalidArgument
from tests.clocks import Clock
from tests.engine.test_periods import replayed
from tests.stores import both_stores, is_postgres, live_state, open_store, rows_of

pytestmark = both_stores
ARMS = ["ada", "ben", "cyd", "dan"]


@pytest.fixture
def engine(engine: Engine) -> Engine:
    engine.create("home", arms=ARMS, alpha=0.9)
    return engine


def play(engine: Engine, n_rounds: int = 20, seed: int = 0) -> None:
    rng = np.random.default_rng(seed)
    for k in range(n_rounds):
        receipt = engine.decide("home", f"segment-{k % 3}")
        assert engine.reward(receipt.id, float(rng.random())).outcome == "applied"


def same_again(engine: Engine, clock: Clock) -> Engine:
    """The same state after a replay of everything, to the bit."""
    found, before = engine.experiment("home"), live_state(engine, "home").find("home").policy.snapshot()
    assert engine.verify() == engine.position
    again = replayed(engine, clock)
    assert again.experiment("home") == found
    after = live_state(again, "home").find("home").policy.snapshot()
    assert {name: array.tobytes() for name, array in before.arrays.items()} == {
        name: array.tobytes() for name, array in after.arrays.items()
    }
    return again


def test_groups_entitlements_and_floors_follow_each_change(engine: Engine, clock: Clock) -> None:
    play(engine)
    alone = engine.experiment("home").accounts
    engine.set_terms("home", groups={"ada": "north", "ben": "south", "cyd": "north", "dan": "south"})
    accounts = engine.experiment("home").accounts
    assert accounts == pytest.approx(
        {"north": alone["ada"] + alone["cyd"] - 1.0, "south": alone["ben"] + alone["dan"] - 1.0}, rel=1e-12
    )
    play(engine, seed=1)
    engine.add_arm("home", "eve", group="west", entitlement=2.0)
    engine.set_terms("home", groups={"dan": "west"}, entitlements={"north": 3.0})
    groups = engine.experiment("home").groups
    assert groups is not None
    assert groups.labels == {"ada": "north", "ben": "south", "cyd": "north", "dan": "west", "eve": "west"}
    assert groups.entitlements == {"north": 3.0, "south": 1.0, "west": 2.0}
    engine.set_terms("home", pull_floor={"south": 0.25})
    groups = engine.experiment("home").groups
    assert groups is not None
    assert groups.pull_floor == {"north": 0.0, "south": 0.25, "west": 0.0}
    policy = live_state(engine, "home").find("home").policy
    assert policy.probabilities(0)[1] >= 0.25 - 1e-12
    play(engine, seed=2)
    last = engine.history("home")[-1]
    assert (last.kind, last.details) == ("terms", {"set": {"pull_floor": {"south": 0.25, "north": 0.0, "west": 0.0}}})
    engine = same_again(engine, clock)
    engine.set_terms("home", groups=None, entitlements=None, pull_floor=0.05)
    play(engine, seed=3)
    groups = engine.experiment("home").groups
    assert groups is not None
    assert (groups.labels, groups.entitlements, groups.pull_floor) == (None, None, 0.05)
    engine.set_terms("home", entitlements={"ben": 4.0})
    groups = engine.experiment("home").groups
    assert groups is not None
    assert groups.entitlements == {"ada": 1.0, "ben": 4.0, "cyd": 1.0, "dan": 1.0, "eve": 1.0}
    engine.set_terms("home", pull_floor={"ada": 0.5}, entitlements={"ada": 2.0})
    assert engine.history("home")[-1].details["set"]["entitlements"] == {**groups.entitlements, "ada": 2.0}
    engine.set_terms("home", pull_floor=None)
    same_again(engine, clock)


def test_a_rollback_keeps_the_terms(engine: Engine, clock: Clock) -> None:
    play(engine)
    before = engine.experiment("home")
    engine.set_terms("home", groups=dict(zip(ARMS, "abab", strict=True)), reward_wait=60.0)
    engine.set_terms("home", entitlements={"b": 2.0})
    play(engine)
    engine.rollback("home", before.position)
    after = engine.experiment("home")
    assert after.groups is not None
    assert after.groups.entitlements == {"a": 1.0, "b": 2.0}
    assert after.reward_wait == 60.0
    assert after.accounts["a"] == pytest.approx(before.accounts["ada"] + before.accounts["cyd"] - 1.0)
    same_again(engine, clock)


def test_there_and_back_gives_the_old_accounts(engine: Engine) -> None:
    play(engine)
    engine.new_period("home", 0.5)
    play(engine, seed=1)
    engine.set_terms("home", groups=dict(zip(ARMS, "aabb", strict=True)))
    engine.new_period("home", 0.25)
    play(engine, seed=2)
    before = engine.experiment("home").accounts
    engine.set_terms("home", groups={"ben": "b", "cyd": "c"})
    engine.set_terms("home", groups={"ben": "a", "cyd": "b"})
    assert engine.experiment("home").accounts == pytest.approx(before, rel=1e-12)


# waits and defaults


def test_a_shorter_wait_settles_what_waits_and_a_longer_one_spares_it(engine: Engine, clock: Clock) -> None:
    first = [engine.decide("home", "a").id for _ in range(3)]
    engine.set_terms("home", reward_wait=1000.0)
    clock.now += 500.0
    assert engine.reward(first[0], 1.0).outcome == "applied"
    engine.set_terms("home", reward_wait=100.0, default_reward=0.25)
    assert engine.reward(first[1], 1.0).outcome == "expired"
    status = engine.experiment("home")
    assert (status.reward_wait, status.default_reward) == (100.0, 0.25)
    later = engine.decide("home", "a").id
    assert engine.experiment("home").defaulted == 2  # both that had waited for 500 seconds
    engine.set_terms("home", reward_wait=None, default_reward=None)
    clock.now += 1e6
    assert engine.reward(later, 0.5).outcome == "applied"
    pending = engine.decide("home", "b").id
    clock.now += 1e3
    engine.set_terms("home", reward_wait=10.0)
    engine.decide("home", "b")
    assert engine.reward(pending, 0.5).outcome == "expired"
    again = same_again(engine, clock)
    assert again.experiment("home").reward_wait == 10.0


def test_a_shorter_wait_settles_many_a_request(engine: Engine, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    from alphafair.engine import decisions, maintenance

    monkeypatch.setattr(maintenance, "SEARCH_SECONDS", 60.0)
    monkeypatch.setattr(decisions, "PAGE", 10)
    for _ in range(25):
        engine.decide("home", "a")
    engine.set_terms("home", reward_wait=1000.0)
    clock.now += 100.0
    engine.set_terms("home", reward_wait=1.0)
    counts = []
    for _ in range(4):
        engine.decide("home", "a")
        counts.append(engine.experiment("home").expired)
    assert counts == [10, 20, 25, 25]
    engine.verify()


def test_the_second_side_follows_each_change(engine: Engine, clock: Clock) -> None:
    play(engine)
    before = live_state(engine, "home").find("home").policy.probabilities(0)
    engine.set_terms("home", context_weight=0.5, context_share=0.6)
    assert not np.array_equal(live_state(engine, "home").find("home").policy.probabilities(0), before)
    play(engine, seed=1)
    found = engine.experiment("home")
    assert (found.context_weight, found.context_share, found.context_share_bound) == (0.5, 0.6, None)
    assert found.largest_context_debt is not None  # by predictions
    engine.add_arm("home", "eve")
    engine.set_terms("home", groups={**dict.fromkeys(ARMS, "a"), "eve": "b"})
    play(engine, seed=2)
    engine = same_again(engine, clock)
    engine.set_terms("home", context_weight=None, context_share=None)
    found = engine.experiment("home")
    assert (found.context_weight, found.context_share, found.largest_context_debt) == (0.0, 0.0, None)
    play(engine, seed=3)
    assert engine.history("home")[-1].details == {"set": {"context_weight": 0.0, "context_share": 0.0}}
    same_again(engine, clock)


def test_a_promise_with_full_information_has_its_bound(engine: Engine, clock: Clock) -> None:
    engine.create("full", arms=ARMS, feedback="full", alpha=1.0, context_share=0.7)
    rng = np.random.default_rng(0)
    for k in range(30):
        engine.reward(engine.decide("full", f"segment-{k % 4}").id, dict(zip(ARMS, rng.random(4), strict=True)))
        found = engine.experiment("full")
        assert found.largest_context_debt <= found.context_share_bound
    policy = live_state(engine, "full").find("full").policy
    assert found.context_share_bound == policy.context_share_bound
    assert found.largest_context_debt == policy.context_debts.max()
    assert engine.verify() == engine.position


# elsewhere


def test_another_node_follows_the_terms(tmp_path: Path, clock: Clock) -> None:
    if not is_postgres():
        pytest.skip("a file has one writer")
    one, two = (Engine(open_store(tmp_path / "shared.db"), seed=seed, clock=clock) for seed in (1, 2))
    one.create("home", arms=ARMS, alpha=0.9)
    waiting = two.decide("home", "a").id
    one.set_terms("home", groups=dict(zip(ARMS, "aabb", strict=True)), reward_wait=5.0)
    play(two, 3)
    clock.now += 10.0
    two.decide("home", "a")
    assert two.reward(waiting, 1.0).outcome == "expired"
    assert [*two.experiment("home").accounts] == ["a", "b"]
    one.decide("home", "b")
    assert one.experiment("home").accounts == two.experiment("home").accounts
    assert two.verify() == one.verify()


# refusals

NAMED = dict(zip(ARMS, "aabb", strict=True))
REFUSALS: dict[str, tuple[dict[str, Any], str, str]] = {
    "nothing": ({}, "bad_request", "terms must be some of groups, entitlements"),
    "misspelled": ({"mod": "watch"}, "bad_request", "got 'mod'. Did you mean 'mode'?"),
    "everybody": ({"mode": "share", "share": 1}, "bad_request", "share must be a number in (0, 1); got 1. Pass 0.05"),
    "unknown": ({"alpha": 0.5}, "bad_request", "got 'alpha'. Other settings are those of the creation"),
    "no mapping": ({"groups": ["a", "b"]}, "bad_request", "groups must be a mapping from arm to label"),
    "unknown arm": ({"groups": {"bem": "a"}}, "unknown_arm", "groups must be an arm of home; got 'bem'"),
    "label": ({"groups": {"ada": ""}}, "bad_label", "groups must be a string of 1 to 200"),
    "some arms": ({"groups": {"ada": "a"}}, "bad_request", "Add 'ben', 'cyd', 'dan'"),
    "unknown group": ({"groups": NAMED, "entitlements": {"c": 2.0}}, "unknown_group", "got 'c'. There are 'a', 'b'"),
    "arm for group": ({"groups": NAMED, "pull_floor": {"ada": 0.1}}, "unknown_group", "got 'ada'. There are 'a'"),
    "numbers alone": ({"entitlements": [1.0, 2.0]}, "bad_request", "entitlements must be a mapping from group"),
    "too large": ({"pull_floor": 0.3}, "bad_request", "pull_floor must be at most 0.25, which is 1 over 4 arms"),
    "sum": ({"pull_floor": {"ada": 0.7, "ben": 0.4}}, "bad_request", "a sum of at most 1"),
    "entitlement": ({"entitlements": {"ada": 0.0}}, "bad_request", "entitlements must be a number"),
    "wait": ({"reward_wait": 0.0}, "bad_request", "reward_wait must be a number"),
    "weight": ({"context_weight": 1.0}, "bad_request", "context_weight must be a number in [0, 1); got 1.0."),
    "share": ({"context_share": 1.5}, "bad_request", "context_share must be a number in [0, 1); got 1.5."),
    "no room": ({"context_share": 0.5, "pull_floor": 0.2}, "bad_request", "context_share must be below 0.2"),
    "default": ({"default_reward": 0.5}, "bad_request", "Pass reward_wait as well"),
    "range": ({"reward_wait": 5.0, "default_reward": 2.0}, "bad_request", "default_reward must be a number in"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_refused_terms_change_nothing(engine: Engine, case: str) -> None:
    terms, code, sentence = REFUSALS[case]
    play(engine, 3)
    before, position = engine.experiment("home"), engine.position
    with pytest.raises(InvalidArgument) as refused:
        engine.set_terms("home", **terms)
    assert sentence in str(refused.value)
    assert getattr(refused.value, "code", "bad_request") == code
    assert (engine.experiment("home"), engine.position) == (before, position)
    play(engine, 3)


def test_numbers_of_arms_are_not_those_of_groups(engine: Engine) -> None:
    engine.set_terms("home", entitlements={"ada": 2.0}, pull_floor={"ben": 0.1})
    with pytest.raises(InvalidArgument, match="entitlements must be passed as well"):
        engine.set_terms("home", groups=NAMED)
    engine.set_terms("home", groups=NAMED, entitlements={"a": 3.0}, pull_floor=None)
    with pytest.raises(InvalidArgument, match="entitlements must be passed as well"):
        engine.set_terms("home", groups=None)
    engine.set_terms("home", groups={"ada": "c", "ben": "c"})  # group a is empty
    groups = engine.experiment("home").groups
    assert groups is not None
    assert (groups.labels, groups.entitlements) == ({"ada": "c", "ben": "c", "cyd": "b", "dan": "b"}, None)
    engine.verify()


def test_a_policy_without_groups_keeps_its_other_terms(engine: Engine) -> None:
    engine.create("plain", arms=ARMS, policy="uniform")
    for terms in ({"groups": NAMED}, {"entitlements": None}, {"pull_floor": 0.0}, {"pull_floor": None}):
        with pytest.raises(RequestError, match="uniform does not support groups"):
            engine.set_terms("plain", **terms)  # type: ignore[typeddict-item]
    with pytest.raises(RequestError, match="context_weight must be left as it is: uniform is fair to arms alone"):
        engine.set_terms("plain", context_weight=0.5)
    with pytest.raises(RequestError, match="context_weights must be left out"):
        engine.create("fixed", arms=ARMS, context_weight=0.5, context_weights=[1.0])
    engine.set_terms("plain", reward_wait=5.0)
    assert engine.experiment("plain").reward_wait == 5.0


def test_terms_are_kept_as_json(engine: Engine) -> None:
    """Their names and values are those of the log for ever; readers see labels in place of numbers."""
    engine.set_terms("home", groups=NAMED, reward_wait=3)
    ((body,),) = rows_of(engine, "select body from change where kind = 'terms'")
    assert json.loads(body) == {"set": {"groups": ["a", "a", "b", "b"], "reward_wait": 3.0}}
    assert engine.history("home")[-1].details == {"set": {"groups": NAMED, "reward_wait": 3.0}}


def test_terms_that_concern_no_policy_do_not_need_one(engine: Engine) -> None:
    experiment = live_state(engine, "home").find("home")
    experiment.drop_policy("learning", "a test")
    engine.set_terms("home", reward_wait=5.0)
    assert engine.experiment("home").reward_wait == 5.0
    with pytest.raises(Exception, match="The policy of home failed"):
        engine.set_terms("home", pull_floor=0.1)


def test_every_term_says_what_holds_afterwards() -> None:
    assert all(term.guarantee.endswith(".") for term in TERMS.values())
