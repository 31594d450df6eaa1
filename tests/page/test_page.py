"""The page without a browser: its JSON has the ledger's numbers, its events miss nothing."""

from __future__ import annotations

import asyncio
import dataclasses
import html
import json
import math
import posixpath
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import httpx
import numpy as np
import pytest

from alphafair import metrics
from alphafair.algorithms import POLICIES
from alphafair.engine import Decide, Engine, Reward, jobs
from alphafair.engine.reports import most_frequent
from alphafair.engine.state.summary import SECOND, Summary
from alphafair.groups import Groups
from alphafair.service import keys, shared
from alphafair.service.api.handlers import CHANGE_OPTIONS
from alphafair.service.page import calculations, marks, sentences, views, watchers
from alphafair.service.page import handlers as page_handlers
from alphafair.service.page.files import PageFiles, Shown
from alphafair.service.page.views import sparkline
from alphafair.service.routes import ENDPOINTS
from alphafair.service.shares import Places
from alphafair_client.api import ChangedTerms, ChangeRequest
from tests.clocks import Clock
from tests.page.visiting import PAGES, Events, applied, get, play, watching
from tests.serving import ARMS, Running, error, running, wait_for, wait_until_ready
from tests.stores import both_stores, live_state, open_store, sqlite_only

pytestmark = both_stores

HOSTILE = [
    "<script>alert(1)</script>",
    "\u202eright to left",
    "x" * 200,
    "🙂 & \"quotes\" 'too'",
    "a/b?c=d&e#f%2F",
    "../..",
]


# the JSON of every view


def test_all_experiments_at_a_glance(shop: Running) -> None:
    play(shop.engine, "home", 50)
    shop.engine.create("second", arms=["a", "b"], policy="uniform", feedback="bandit")
    shop.engine.pause("second")
    found = get(shop, "/index.json")
    assert found["position"] == shop.engine.position
    home, second = found["items"]
    status = shop.engine.experiment("home")
    for field in ("name", "policy", "feedback", "alpha", "decisions", "rewards", "pending", "contexts", "welfare"):
        assert home[field] == getattr(status, field), field
    assert home["jain_index"] == metrics.jain_index([*status.accounts.values()])
    assert home["decisions_per_second"] > 0.0
    assert sum(home["sparkline"]["decisions"]) == 50
    assert home["sparkline"]["start"] <= found["at"]
    assert len(home["sparkline"]["decisions"]) == len(home["sparkline"]["reward_per_decision"]) <= 60
    assert time.time() - 60.0 < home["last_event"] <= time.time()
    assert (home["marks"], [mark["code"] for mark in second["marks"]]) == ([], ["paused"])
    assert second["jain_index"] is None


@pytest.mark.parametrize("policy", ["alpha-fair-adaptive", "uniform"])
def test_fairness_is_unknown_before_the_first_reward(shop: Running, policy: str) -> None:
    options: dict[str, Any] = {"alpha": 0.9} if policy != "uniform" else {"feedback": "bandit"}
    shop.engine.create("new", arms=ARMS, policy=policy, **options)
    receipts = shop.engine.submit([Decide("new", f"v{k}") for k in range(30)])
    live = get(shop, "/experiments/new/live.json")
    (item,) = (each for each in get(shop, "/index.json")["items"] if each["name"] == "new")
    assert (item["jain_index"], item["welfare"]) == (None, None)
    assert (live["experiment"]["jain_index"], live["experiment"]["welfare"]) == (None, None)
    assert set(live["series"]["jain_index"]) == set(live["series"]["welfare"]) == {None}
    shop.engine.submit([Reward(each.id, 0.25 + (each.arm == "ada") / 2) for each in receipts])
    live = get(shop, "/experiments/new/live.json")
    (item,) = (each for each in get(shop, "/index.json")["items"] if each["name"] == "new")
    status = shop.engine.experiment("new")
    counted = status.accounts or status.cumulative_rewards  # without accounts, of the rewards
    expected = metrics.jain_index([*counted.values()])
    assert item["jain_index"] == live["experiment"]["jain_index"] == pytest.approx(expected)
    assert live["series"]["jain_index"][-1] == pytest.approx(expected)
    assert item["welfare"] == status.welfare


def test_entitlements_have_a_history(shop: Running) -> None:
    shop.engine.add_arm("home", "dan")
    shop.engine.retire_arm("home", "ada")
    changes = {change.kind: change.at.timestamp() for change in shop.engine.history("home")}
    found = {each["label"]: each["live_spans"] for each in get(shop, "/experiments/home/live.json")["shares"]}
    assert found["ada"] == [[changes["create"], changes["retire_arm"]]]
    assert found["ben"] == [[changes["create"], None]]
    assert found["dan"] == [[changes["add_arm"], None]]


@sqlite_only("asks no store")
@pytest.mark.parametrize(
    ("lifetimes", "spans"),
    [
        ([(0, 10), (5, 20), (30, None)], [(0, 20), (30, None)]),
        ([(5, 8), (0, 10)], [(0, 10)]),
        ([(0, 10), (10, 20)], [(0, 20)]),
        ([(0, None), (3, 9)], [(0, None)]),
        ([(0, 10), (11, 12)], [(0, 10), (11, 12)]),
    ],
)
def test_the_lifetimes_of_a_group_are_those_of_its_arms_together(lifetimes: Any, spans: Any) -> None:
    found: Any = SimpleNamespace(lifetimes=lifetimes)
    assert views._spans(found, range(len(lifetimes))) == spans


def test_the_current_period_has_shares_of_its_own(shop: Running) -> None:
    groups = {"labels": ["x", "y", "x"], "entitlements": {"x": 3.0}}
    shop.engine.create("market", arms=ARMS, alpha=0.9, groups=groups)
    play(shop.engine, "market", 20)
    assert get(shop, "/experiments/market/live.json")["period_shares"] is None
    before = shop.engine.experiment("market")
    shop.engine.new_period("market")
    play(shop.engine, "market", 30, seed=2)
    found, status = get(shop, "/experiments/market/live.json"), shop.engine.experiment("market")
    pulls = {arm: status.pulls[arm] - before.pulls[arm] for arm in ARMS}
    assert found["period_pulls"] == pulls
    one, other = found["period_shares"]
    assert (one["label"], one["n_decisions"], other["n_decisions"]) == ("x", pulls["ada"] + pulls["cyd"], pulls["ben"])
    assert other["decisions"] == pulls["ben"] / 30
    rewards = status.periods[-1].rewards
    assert one["reward_sum"] == pytest.approx(rewards["ada"] + rewards["cyd"])
    assert found["shares"][0]["n_decisions"] > one["n_decisions"]
    first, last = found["books"]
    assert first["rewards"] == {
        "x": pytest.approx(before.cumulative_rewards["ada"] + before.cumulative_rewards["cyd"]),
        "y": pytest.approx(before.cumulative_rewards["ben"]),
    }
    accounts = status.periods[0].accounts
    expected = metrics.jain_index([*accounts.values()], groups=Groups(entitlements=[3.0, 1.0]))
    assert first["jain_index"] == pytest.approx(expected)
    assert (first["ended"], last["ended"]) == (last["started"], None)


def test_one_experiment_has_the_numbers_of_the_ledger(shop: Running) -> None:
    play(shop.engine, "home", 80)
    shop.engine.set_alpha("home", 0.5)
    found = get(shop, "/experiments/home/live.json")
    assert found["experiment"] == get(shop, "/v1/experiments/home")
    status, series = shop.engine.experiment("home"), found["series"]
    assert sum(series["decisions"]) == status.decisions == 80
    assert sum(series["rewards"]) == status.rewards == 72
    assert series["arms"] == ARMS
    for arm, decisions, earned in zip(ARMS, series["arm_decisions"], series["arm_reward_sums"], strict=True):
        assert sum(decisions) == status.pulls[arm]
        assert sum(earned) == pytest.approx(status.cumulative_rewards[arm])
    assert sum(series["reward_sums"]) == pytest.approx(sum(status.cumulative_rewards.values()))
    assert series["welfare"][-1] == status.welfare
    assert [change["kind"] for change in found["changes"]] == ["create", "set_alpha"]
    assert found["changes"] == get(shop, "/v1/experiments/home/history")["items"]
    assert sum(found["delays"]["counts"]) == 72
    assert len(found["delays"]["edges"]) == len(found["delays"]["counts"]) + 1
    assert found["certificate"] is None
    for share in found["shares"]:
        assert share["entitled"] == pytest.approx(1 / 3)
        assert share["decisions"] == status.pulls[share["label"]] / 80
        assert share["account"] == status.accounts[share["label"]]
    assert sum(share["rewards"] for share in found["shares"]) == pytest.approx(1.0)
    assert error(shop.http.get("/experiments/nope/live.json"))["code"] == "unknown_experiment"


def test_groups_have_shares_and_full_information_a_certificate(shop: Running) -> None:
    groups = {"labels": ["x", "y", "x"], "entitlements": {"x": 3.0}}
    shop.engine.create("full", arms=ARMS, policy="alpha-fair", alpha=0.5, groups=groups)
    for k in range(20):
        receipt = shop.engine.decide("full", f"v{k % 3}")
        shop.engine.reward(receipt.id, dict.fromkeys(ARMS, 0.5))
    shop.engine.retire_arm("full", "ben")
    found = get(shop, "/experiments/full/live.json")
    one, other = found["shares"]
    assert (one["label"], one["arms"], one["live"], other["live"]) == ("x", ["ada", "cyd"], True, False)
    assert (one["entitled"], other["entitled"]) == (1.0, 0.0)
    policy = live_state(shop.engine, "full").experiments["full"].policy
    assert found["certificate"]["welfare_ratio"] == metrics.welfare_certificate(policy)
    assert found["certificate"]["regret"] == metrics.regret_certificate(policy)
    assert "No fixed policy" in found["certificate"]["sentence"]


def test_no_context_is_served_below_what_the_accounts_allow(shop: Running) -> None:
    entitled = {"labels": ["x", "y", "y"], "entitlements": {"x": 2.0, "y": 1.0}, "pull_floor": {"x": 0.1, "y": 0.2}}
    for name, alpha, groups in (("plain", 1.0, None), ("floors", 1.0, {"pull_floor": 0.05}), ("both", 0.5, entitled)):
        shop.engine.create(name, arms=ARMS, alpha=alpha, groups=groups)
        assert get(shop, f"/experiments/{name}/live.json")["least_context"] is None
        for k in range(40):
            receipt = shop.engine.decide(name, f"v{k % 3}")
            shop.engine.reward(receipt.id, 0.9 if receipt.arm == "ada" else 0.2)
        found = get(shop, f"/experiments/{name}/live.json")["least_context"]
        accounts = shop.engine.experiment(name).accounts
        levels = [accounts["x"] / 2.0, accounts["y"]] if name == "both" else [*accounts.values()]
        left = {"plain": 1.0, "floors": 0.85, "both": 0.7}[name]
        assert found["share"] == pytest.approx(left * (min(levels) / max(levels)) ** alpha, rel=1e-9)
        assert found["sentence"] == f"No context has to be served below {found['share']:.0%} of its best."
        assert found["note"] == "True of the best fixed policy; a run also explores."
    shop.engine.set_alpha("plain", math.inf)
    assert get(shop, "/experiments/plain/live.json")["least_context"] is None, "nothing is known of max-min"


@sqlite_only("asks no store")
@pytest.mark.parametrize(
    ("share", "debt", "bound", "parts"),
    [
        (0.6, 1.43, 2.896, ("60%", "at most 2.9 rewards; the largest debt now is 1.4.")),
        (0.625, -3.0, 2.91, ("62.5%", "at most 3.0 rewards; no context has a debt now.")),
        (0.5, 0.0, 2.5 + 1e-12, ("50%", "at most 2.5 rewards; no context has a debt now.")),
    ],
)
def test_a_promise_is_said_with_its_bound_rounded_up(share: float, debt: float, bound: float, parts: Any) -> None:
    status: Any = SimpleNamespace(context_share=share, largest_context_debt=debt, context_share_bound=bound)
    expected = "Every context gets {} of its best, but for {}".format(*parts)
    assert views.context_promise(status).sentence == expected


def test_a_promise_is_shown_as_what_it_is(shop: Running) -> None:
    """With full information the bound and the largest debt; with bandit feedback a target."""
    assert get(shop, "/experiments/home/live.json")["context_promise"] is None
    for name, start in (
        ("full", "Every context gets 60% of its best, but"),
        ("bandit", "Every context should get 60%"),
    ):
        shop.engine.create(name, arms=ARMS, alpha=1.0, feedback=name, context_share=0.6)
        for k in range(12):
            receipt = shop.engine.decide(name, f"v{k % 2}")
            earned = {arm: float(arm == ARMS[k // 2 % 3]) for arm in ARMS}
            shop.engine.reward(receipt.id, earned if name == "full" else earned[receipt.arm])
        found = get(shop, f"/experiments/{name}/live.json")
        debt, bound = (found["experiment"][key] for key in ("largest_context_debt", "context_share_bound"))
        assert (bound is None) == (name == "bandit")
        assert found["context_promise"]["sentence"].startswith(start)
        missing = f"the largest debt now is {debt:.1f}." if debt > 0.0 else "no context has a debt now."
        assert found["context_promise"]["sentence"].endswith(missing)
        expected = sentences.A_TARGET if bound is None else sentences.AS_COUNTED
        assert found["context_promise"]["note"] == expected
        share = metrics.least_context_share([*found["experiment"]["accounts"].values()], 1.0)
        assert (found["least_context"] is None) == (share < 0.6)


def test_books_of_past_periods_are_shown(shop: Running) -> None:
    play(shop.engine, "home", 20)
    shop.engine.new_period("home")
    periods = get(shop, "/experiments/home/live.json")["experiment"]["periods"]
    assert [period["number"] for period in periods] == [0, 1]
    assert sum(periods[0]["rewards"].values()) > 0.0


def test_contexts_are_listed_by_their_decisions_and_searched(shop: Running) -> None:
    for k, label in enumerate(["rare", "Often", "some", "oft"]):
        shop.engine.submit([Decide("home", label)] * (1, 9, 4, 9)[k])
    shop.engine.mask_arm("home", "ben")
    found = get(shop, "/experiments/home/contexts.json")
    assert [(row["label"], row["decisions"]) for row in found["items"]] == [
        ("Often", 9),
        ("oft", 9),
        ("some", 4),
        ("rare", 1),
    ]
    assert (found["total"], found["arms"]) == (4, ARMS)
    policy = live_state(shop.engine, "home").experiments["home"].policy
    expected = policy.probabilities(1, available=[True, False, True])
    assert found["items"][0]["probabilities"] == expected.tolist()
    assert found["items"][0]["probabilities"][1] == 0.0
    found = get(shop, "/experiments/home/contexts.json?search=OFT&limit=1&offset=1")
    assert (found["total"], [row["label"] for row in found["items"]]) == (2, ["oft"])
    assert get(shop, "/experiments/home/contexts.json?search=nobody")["items"] == []
    shop.engine.erase("home", "Often")
    assert get(shop, "/experiments/home/contexts.json")["items"][0]["label"] == "erased-1"
    for wrong in ("limit=0", "limit=201", "offset=-1", "limit=x", "other=1"):
        assert shop.http.get(f"/experiments/home/contexts.json?{wrong}").status_code == 422


def test_policies_are_described_for_the_form(shop: Running) -> None:
    items = {item["name"]: item for item in get(shop, "/policies.json")["items"]}
    assert next(iter(items)) == shop.engine.experiment("home").policy
    assert set(items) == set(POLICIES)
    guarantees = {name: {each["feedback"]: each["holds"] for each in items[name]["guarantees"]} for name in items}
    assert guarantees["alpha-fair-adaptive"] == {"bandit": "on average", "full": "every run"}
    assert guarantees["alpha-fair"] == {"full": "every run"}
    assert guarantees["uniform"] == {"bandit": None, "full": None}
    assert [item["needs"] for item in items.values()] == [[]] * len(items), "every setting has a default"
    assert "alpha" not in items["uniform"]["takes"]
    assert all(item["summary"] for item in items.values())


def test_keys_are_listed_as_the_page_shows_them(locked: tuple[Running, dict[str, str]]) -> None:
    shop, tokens = locked
    headers = {"authorization": f"Bearer {tokens['admin']}"}
    assert get(shop, "/keys.json", headers=headers) == get(shop, "/v1/keys", headers=headers)


def test_frequent_contexts_are_computed_once_for_all_readers(shop: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.engine.submit([Decide("home", f"v{k}") for k in range(30)])
    looks: list[int] = []
    find = shop.service.reports.contexts
    monkeypatch.setattr(shop.service.reports, "contexts", lambda *asked: looks.append(1) or find(*asked))
    monkeypatch.setattr(shared, "SECONDS", 60.0)
    path = "/experiments/home/contexts.json?limit=12"
    first = [get(shop, path) for _ in range(5)]
    assert len(looks) == 1
    assert first[1:] == first[:-1]
    shop.engine.erase("home", "v0")
    assert get(shop, path)["items"][0]["label"] == "erased-0"  # a change is seen at once
    monkeypatch.setattr(shared, "SECONDS", 0.0)
    shop.engine.decide("home", "v7")
    assert get(shop, path)["items"][0]["label"] == "v7"


def test_the_most_frequent_contexts_are_found_without_sorting_all() -> None:
    world = np.random.default_rng(0)
    for n, first, wanted in [(1, 0, 3), (50, 0, 7), (50, 45, 20), (5000, 30, 12), (10, 20, 5)]:
        numbers, counts = np.flatnonzero(world.random(2 * n) < 0.5), world.integers(0, 6, n)
        decisions = [int(counts[each]) if each < len(counts) else 0 for each in numbers]
        expected = sorted(range(len(numbers)), key=lambda k: (-decisions[k], k))[first : first + wanted]
        assert most_frequent(numbers, counts, first, wanted).tolist() == numbers[expected].tolist()


# the log


def test_the_log_is_filtered_and_paged(shop: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("alphafair.engine.reports.STRETCH", 10)
    ids = play(shop.engine, "home", 60)
    shop.engine.create("noise", arms=ARMS)
    play(shop.engine, "noise", 30)
    pages, before = [], ""
    while before is not None:
        page = get(shop, f"/experiments/home/log.json?limit=7&before={before}")
        pages.append(page["items"])
        before = page["next"]
    rows = [row for page in pages for row in page]
    assert [row["id"] for row in rows] == ids[::-1]
    assert all(len(page) == 7 for page in pages[:-1])
    exported = {
        row["id"]: row
        for row in map(json.loads, shop.http.get("/v1/experiments/home/log?format=jsonl").text.splitlines())
    }
    for row in rows:
        same = exported[row["id"]]
        assert [row[name] for name in ("context", "arm", "propensity", "reward")] == [
            same[name] for name in ("context", "arm", "propensity", "reward")
        ]
        assert row["position"] == same["seq"]
    for query, keep in {
        "context=visitor 3": lambda row: row["context"] == "visitor 3",
        "arm=ada": lambda row: row["arm"] == "ada",
        "state=pending": lambda row: row["reward"] is None,
        "state=rewarded&arm=ben": lambda row: row["reward"] is not None and row["arm"] == "ben",
        f"since={rows[20]['at']}": lambda row: row["at"] >= rows[20]["at"],
        f"until={rows[20]['at']}": lambda row: row["at"] < rows[20]["at"],
        "context=nobody": lambda row: False,
        "arm=nobody": lambda row: False,
        "state=expired": lambda row: False,
    }.items():
        found = get(shop, f"/experiments/home/log.json?limit=500&{query}")
        assert [row["id"] for row in found["items"]] == [row["id"] for row in rows if keep(row)], query
        assert found["next"] is None
    for wrong in ("state=lost", "limit=0", "since=yesterday", "until=1e300", "before=x"):
        assert shop.http.get(f"/experiments/home/log.json?{wrong}").status_code == 422


def test_every_state_of_a_decision_can_be_found(tmp_path: Path) -> None:
    now = [1_800_000_000.0]
    engine = Engine(open_store(tmp_path / "shop.db"), seed=0, clock=lambda: int(now[0] * 1e9))
    with running(tmp_path / "shop.db", engine=engine) as shop:
        engine.create("home", arms=ARMS, reward_wait=60.0)
        engine.create("default", arms=ARMS, reward_wait=60.0, default_reward=0.5)
        engine.decide("home", "v", id="expired")
        engine.decide("home", "v", id="lapsed", deferred=True)
        engine.decide("default", "v", id="defaulted")
        now[0] += 100.0
        engine.expire()
        assert engine.reward("expired", 0.25).outcome == "expired"
        position = engine.experiment("home").position
        engine.decide("home", "v", id="rolled_back")
        engine.rollback("home", position)
        engine.decide("home", "v", id="pending")
        engine.decide("home", "v", id="deferred", deferred=True)
        engine.decide("home", "v", id="activated", deferred=True)
        engine.activate("activated")
        engine.decide("home", "v", id="rewarded")
        engine.reward("rewarded", 0.75)
        for state in ("expired", "lapsed", "rolled_back", "deferred", "rewarded"):
            found = get(shop, f"/experiments/home/log.json?state={state}")["items"]
            assert [(row["id"], row["state"]) for row in found] == [(state, state)]
        found = get(shop, "/experiments/home/log.json?state=pending")["items"]
        assert [row["id"] for row in found] == ["activated", "pending"]
        found = get(shop, "/experiments/default/log.json?state=defaulted")["items"]
        assert [(row["id"], row["reward"]) for row in found] == [("defaulted", 0.5)]
        story = get(shop, "/experiments/home/decision.json?id=expired")
        assert (story["source"], story["row"]["reward"], story["late_reward"]) == ("expired", None, 0.25)
        assert get(shop, "/experiments/home/decision.json?id=activated")["activated_at"] == now[0]


@pytest.mark.compiled
def test_the_story_of_a_decision(shop: Running) -> None:
    play(shop.engine, "home", 20)
    shop.engine.set_alpha("home", 0.5)
    shop.engine.mask_arm("home", "cyd")
    before = live_state(shop.engine, "home").experiments["home"].policy.probabilities(0, available=[True, False, False])
    receipt = shop.engine.decide("home", "visitor 0", available=["ada", "cyd"])
    shop.engine.set_alpha("home", 0.75)
    shop.engine.add_arm("home", "dan")
    path = f"/experiments/home/decision.json?id={receipt.id}"
    first = get(shop, path)
    assert first["probabilities_status"] == "computing"
    story = wait_for(lambda: get(shop, path), lambda found: found["probabilities_status"] != "computing", 120.0)
    assert story["probabilities_status"] == "recomputed", story["probabilities_sentence"]
    assert [arm["arm"] for arm in story["arms"]] == ARMS
    assert [arm["probability"] for arm in story["arms"]] == before.tolist() == [1.0, 0.0, 0.0]
    assert [arm["available"] for arm in story["arms"]] == [True, False, False]
    assert [arm["drawn"] for arm in story["arms"]] == [True, False, False]
    assert story["settings"] == {
        "alpha": 0.5,
        "arms": ARMS,
        "masked_arms": ["cyd"],
        "policy": "alpha-fair-adaptive",
        "period": 0,
        "version": story["row"]["position"] - 1,
    }
    assert [change["kind"] for change in story["changes_since"]] == ["set_alpha", "add_arm"]
    assert story["events_since"] == 2
    other = shop.engine.decide("home", "visitor 3").id
    path = f"/experiments/home/decision.json?id={other}"
    story = wait_for(lambda: get(shop, path), lambda found: found["probabilities_status"] != "computing", 120.0)
    assert story["probabilities_status"] == "recomputed"
    assert sum(arm["probability"] for arm in story["arms"]) == pytest.approx(1.0)
    assert error(shop.http.get("/experiments/home/decision.json?id=nobody"))["code"] == "unknown_decision"
    shop.engine.create("second", arms=ARMS)
    assert shop.http.get(f"/experiments/second/decision.json?id={other}").status_code == 404


def test_no_experiment_gets_the_distributions_of_another(shop: Running) -> None:
    """In a database, every experiment counts its positions from 1."""
    shop.engine.create("three", arms=["a1", "a2", "a3"])
    shop.engine.create("two", arms=["b1", "b2"])
    ids = {}
    for name, arms in (("three", ["a1", "a3"]), ("two", ["b1", "b2"])):
        ids[name] = [shop.engine.decide(name, "v", available=arms).id for _ in range(2)]
    for name, distribution in (("three", [0.5, 0.0, 0.5]), ("two", [0.5, 0.5]), ("three", [0.5, 0.0, 0.5])):
        for id in ids[name]:
            path = f"/experiments/{name}/decision.json?id={id}"
            story = wait_for(
                lambda path=path: get(shop, path), lambda found: found["probabilities_status"] != "computing"
            )
            assert story["probabilities_status"] == "recomputed", story["probabilities_sentence"]
            assert [arm["probability"] for arm in story["arms"]] == distribution


def test_jobs_of_two_experiments_differ() -> None:
    """Results are kept by their jobs, so every kind of job is compared by its experiment."""
    for kind in jobs.Job.__subclasses__():
        fields = {each.name: each.name for each in dataclasses.fields(kind)}
        assert kind(**fields) == kind(**fields)
        assert kind(**fields) != kind(**fields | {"experiment": "other"})
        assert hash(kind(**fields)) != hash(kind(**fields | {"experiment": "other"}))


def test_stored_distributions_are_shown(shop: Running) -> None:
    shop.engine.create("full", arms=ARMS, policy="alpha-fair")
    receipt = shop.engine.decide("full", "v")
    shop.engine.reward(receipt.id, [0.1, 0.2, 0.3])
    story = get(shop, f"/experiments/full/decision.json?id={receipt.id}")
    assert story["probabilities_status"] == "stored"
    assert [arm["reward"] for arm in story["arms"]] == [0.1, 0.2, 0.3]
    assert sum(arm["probability"] for arm in story["arms"]) == pytest.approx(1.0)


# what if


@pytest.mark.compiled
def test_what_another_alpha_would_have_earned(shop: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    assert get(shop, "/experiments/home/what-if.json")["status"] == "too few"
    play(shop.engine, "home", 300, contexts=2)
    path = "/experiments/home/what-if.json"
    assert get(shop, path)["status"] == "computing"
    found = wait_for(lambda: get(shop, path), lambda found: found["status"] != "computing", 120.0)
    assert found["status"] == "ready", found["sentence"]
    curve, log = found["curve"], shop.engine.log("home")
    assert (curve["rounds"], found["rewards"]) == (log.n_rounds, 270)
    assert curve["position"] == shop.engine.position
    for band in ("average_reward", "jain_index", "least_share"):
        assert [len(curve[band][side]) for side in ("value", "low", "high")] == [len(curve["alphas"])] * 3
    known = [each for side in ("low", "high") for each in curve["average_reward"][side] if each is not None]
    assert all(0.0 <= each <= 1.0 for each in known)  # as rewards are
    assert all(reason.startswith("at alpha = ") for reason in curve["reasons"])
    assert found["present"]["average_reward"] == pytest.approx(float(log.rewards.mean()))
    assert found["present"]["alpha"] == 0.9
    computed = curve["computed_at"]
    play(shop.engine, "home", 100, contexts=2)
    assert get(shop, path)["curve"]["computed_at"] == computed  # it is not old enough to be computed again
    monkeypatch.setattr(page_handlers, "GROWN_SECONDS", 0.0)
    assert get(shop, path)["status"] == "computing"
    found = wait_for(lambda: get(shop, path), lambda found: found["status"] != "computing", 120.0)
    assert found["curve"]["rounds"] == 360
    assert get(shop, path)["status"] == "ready"  # and not again before the log has grown
    assert get(shop, f"{path}?renew=true")["status"] == "computing"


def test_a_curve_that_has_to_wait_has_not_failed(shop: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    play(shop.engine, "home", 120)
    monkeypatch.setattr(calculations.Calculations, "get", lambda *arguments, **options: None)
    path = "/experiments/home/what-if.json"
    assert get(shop, path)["status"] == "computing"
    answer = shop.http.get(f"{path}?renew=true")
    assert (answer.status_code, error(answer)["code"]) == (503, "busy")
    id = shop.engine.decide("home", "v").id
    assert get(shop, f"/experiments/home/decision.json?id={id}")["probabilities_status"] == "computing"


def test_a_failed_calculation_is_reported(shop: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    play(shop.engine, "home", 120)
    monkeypatch.setattr("sys.executable", "/no/such/program")
    path = "/experiments/home/what-if.json"
    found = wait_for(lambda: get(shop, path), lambda found: found["status"] != "computing", 120.0)
    assert found["status"] == "failed"
    assert "no/such/program" in found["sentence"]


# events


def drain(events: Events) -> None:
    while True:
        events.next()


def assert_current(shop: Running, state: dict[str, Any]) -> None:
    """What a browser has is what the JSON says, apart from rates and the time."""
    now = get(shop, "/experiments/home/live.json")
    for name in ("position", "experiment", "series", "changes", "shares", "delays", "last_event"):
        assert state[name] == now[name], name


def test_events_lead_to_the_state_of_the_json(shop: Running) -> None:
    play(shop.engine, "home", 30)
    with watching(shop, "/experiments/home/events") as answer:
        events = Events(answer)
        first = events.next()
        assert (first["event"], first["id"]) == ("state", str(shop.engine.position))
        state = first["data"]
        for k in range(3):
            play(shop.engine, "home", 5, seed=k)
            if k == 1:
                shop.engine.set_alpha("home", 0.5)
            while state["position"] < shop.engine.position:
                event = events.next()
                assert event["event"] == "update"
                state = applied(state, event["data"])
        assert_current(shop, state)
        shop.engine.add_arm("home", "dan")
        while (event := events.next())["event"] != "state":
            pass
        assert event["data"]["series"]["arms"] == [*ARMS, "dan"]


def test_a_reader_that_reconnects_misses_nothing(shop: Running) -> None:
    play(shop.engine, "home", 10)
    with watching(shop, "/experiments/home/events") as answer:
        seen = Events(answer).next()
    play(shop.engine, "home", 10)
    with watching(shop, "/experiments/home/events", seen["id"]) as answer:
        again = Events(answer).next()
        state = again["data"] if again["event"] == "state" else applied(seen["data"], again["data"])
        assert_current(shop, state)


def test_a_reader_that_has_seen_everything_is_not_sent_it_again(shop: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchers, "HEARTBEAT", 0.2)
    play(shop.engine, "home", 10)
    with watching(shop, "/experiments/home/events") as answer:
        seen = Events(answer).next()
    with watching(shop, "/experiments/home/events", seen["id"]) as answer:
        events = Events(answer)
        assert events.next(comments=True) == {"comment": "alive"}
        shop.engine.decide("home", "v")
        event = events.next()
        assert event["event"] == "update"
        assert_current(shop, applied(seen["data"], event["data"]))


def test_the_position_survives_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    with running(path) as shop:
        shop.engine.create("home", arms=ARMS)
        play(shop.engine, "home", 10)
        with watching(shop, "/experiments/home/events") as answer:
            seen = Events(answer).next()
    with running(path, engine=Engine.open(path, seed=1)) as shop:
        play(shop.engine, "home", 10)
        with watching(shop, "/experiments/home/events", seen["id"]) as answer:
            again = Events(answer).next()
        assert again["event"] == "state"
        assert_current(shop, again["data"])


def test_stopping_the_service_ends_its_streams(tmp_path: Path) -> None:
    with running(tmp_path / "shop.db") as shop:
        with watching(shop, "/events") as answer:
            events = Events(answer)
            assert events.next()["event"] == "state"
            shop.server.stop()
            with pytest.raises(EOFError):
                drain(events)
        shop.thread.join(10.0)
        assert not shop.thread.is_alive()


def test_many_watchers_share_one_look(shop: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    overview = shop.service.reports.overview
    monkeypatch.setattr(shop.service.reports, "overview", lambda name: looks.append(1) or overview(name))
    clients = [httpx.Client(base_url=shop.url, timeout=60.0) for _ in range(10)]
    streams = [client.stream("GET", "/experiments/home/events") for client in clients]
    readers = [Events(stream.__enter__()) for stream in streams]
    for reader in readers:
        assert reader.next()["event"] == "state"
    for k in range(3):
        shop.engine.decide("home", f"v{k}")
        for reader in readers:
            while reader.next()["data"]["position"] < shop.engine.position:
                pass
    assert shop.service.watchers.places.n_held == 10
    assert len(looks) < 10
    for stream, client in zip(streams, clients, strict=True):
        stream.__exit__(None, None, None)
        client.close()


def test_a_message_is_followed_by_a_longer_pause(shop: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    assert watchers.EVERY < watchers.PACE <= 1.0  # a page shows what happens within a second
    pauses: list[float] = []
    sleep = asyncio.sleep

    async def recorded(seconds: float) -> None:
        if seconds in (0.011, 0.012):
            pauses.append(seconds)
        await sleep(seconds)

    monkeypatch.setattr(asyncio, "sleep", recorded)
    monkeypatch.setattr(watchers, "EVERY", 0.011)
    monkeypatch.setattr(watchers, "PACE", 0.012)
    monkeypatch.setattr(watchers, "IDLE", 3600.0)
    with watching(shop, "/experiments/home/events") as answer:
        events = Events(answer)
        for n_messages in (1, 2, 3):
            events.next()
            expected = n_messages, [0.011]
            wait_for(lambda: (pauses.count(0.012), pauses[-1:]), expected.__eq__)
            shop.engine.decide("home", "v")


def test_only_so_many_may_watch(shop: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shop.service.watchers, "places", Places(1, 1))
    with watching(shop, "/events") as answer:
        Events(answer).next()
        with httpx.Client(base_url=shop.url) as other:
            assert error(other.get("/events"))["code"] == "too_many_watchers"
    assert error(shop.http.get("/experiments/nope/events"))["code"] == "unknown_experiment"


def test_one_key_has_half_of_the_streams(
    locked: tuple[Running, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    shop, tokens = locked
    monkeypatch.setattr(shop.service.watchers, "places", Places(4, 2, for_admins=1))

    def begun(role: str) -> int:
        answer = stack.enter_context(watching(shop, "/events", authorization=f"Bearer {tokens[role]}"))
        return answer.status_code

    with ExitStack() as stack:
        assert [begun("read") for _ in range(3)] == [200, 200, 503]
        assert [begun(role) for role in ("log", "write", "log", "elsewhere", "admin")] == [200, 200, 503, 503, 200]
    wait_for(lambda: shop.service.watchers.places.n_held, lambda n: n == 0)


def test_a_stream_ends_with_its_key(locked: tuple[Running, dict[str, str]], monkeypatch: pytest.MonkeyPatch) -> None:
    shop, tokens = locked
    monkeypatch.setattr(watchers, "HEARTBEAT", 0.2)
    headers = {"authorization": f"Bearer {tokens['read']}"}
    with watching(shop, "/events", **headers) as answer:
        events = Events(answer)
        assert [item["name"] for item in events.next()["data"]["items"]] == ["home", "other"]
        keys.revoke(shop.service.address, tokens["read"].split("_")[1])
        while (event := events.next())["event"] != "closed":
            pass
        assert event["data"]["error"]["code"] == "unauthorized"
        with pytest.raises(EOFError):
            events.next()


# starting


def test_a_service_that_compiles_is_starting(shop: Running) -> None:
    wait_until_ready(shop.http)
    shop.service.compiled = False
    (mark,) = get(shop, "/index.json")["marks"]
    assert (mark["code"], mark["severity"]) == ("starting", "info")


# files and headers


def test_every_page_is_the_shell_with_strict_headers(shop: Running) -> None:
    for path in PAGES:
        answer = shop.http.get(path)
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        policy = answer.headers["content-security-policy"]
        assert "default-src 'self'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "same-origin"
        assert "<script>" not in answer.text
        assert " style=" not in answer.text
        assert "{{" not in answer.text
        head = shop.http.head(path)
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["content-length"] == answer.headers["content-length"]
    assert shop.http.get("/experiments/nope/live").status_code == 404


def embedded(text: str, name: str) -> Any:
    """The JSON that the HTML of a page has under a name."""
    (found,) = re.findall(rf'<meta name="{name}" content="([^"]*)">', text)
    return json.loads(html.unescape(found))


def test_every_page_says_what_it_shows_and_which_role_it_needs(shop: Running) -> None:
    name = """a&b "c" '<d>' {{page}}"""
    shop.engine.create(name, arms=ARMS)
    for endpoint in ENDPOINTS:
        if endpoint.view is None:
            continue
        text = shop.http.get(endpoint.path.replace("{name}", quote(name, safe=""))).text
        able = [role for role, row in keys.ROLES.items() if endpoint.role in row.includes]
        expected = {"view": endpoint.view, "name": name if endpoint.parameters else None, "role": endpoint.role}
        assert embedded(text, "page") == {**expected, "roles": able}
        assert f'static/views/{endpoint.view}.js"' in text
        said = embedded(text, "sentences")
        assert said["roles"] == {role: row.may for role, row in keys.ROLES.items()}
        assert said["signing_out"] == sentences.SIGNING_OUT


def test_a_guarantee_is_named_for_every_kind_of_change() -> None:
    """Each dialog takes its own; the fields of a change are the kinds, apart from options and values."""
    folder = Path(sentences.__file__).with_name("static")
    used = {
        kind for file in folder.rglob("*.js") for kind in re.findall(r"sentences\.guarantees\.(\w+)", file.read_text())
    }
    assert used == {*sentences.GUARANTEES}
    kinds = {*ChangeRequest.__struct_fields__} - {*CHANGE_OPTIONS, "paused", "alpha", "period", "terms"}
    others = {"pause", "resume", "set_alpha", "set_period", "erase", "key"}
    assert {*sentences.GUARANTEES} == kinds | others | {*ChangedTerms.__struct_fields__}


def test_a_page_asks_for_everything_at_once(shop: Running) -> None:
    """The scripts of a view are all named in its HTML, so none waits for another one."""
    for path in PAGES:
        text = shop.http.get(path).text
        named = set(re.findall(r'(?:src|modulepreload" href)="/static/([^"]+[.]js)"', text))
        view = path.rpartition("/")[2].replace("-", "_") or "home"
        assert {"main.js", f"views/{view}.js"} <= named
        for module in named:
            for other in re.findall(
                r'(?:from|^import) "([^"]+)"', shop.http.get(f"/static/{module}").text, re.MULTILINE
            ):
                assert posixpath.normpath(posixpath.join(posixpath.dirname(module), other)) in named, (path, other)
    shop.engine.create("a&b 'c'", arms=ARMS)
    text = shop.http.get("/experiments/a%26b%20%27c%27/live").text
    (data,) = re.findall(r'as="fetch" href="(/exp[^"]+)"', text)
    assert data == "/experiments/a%26b%20&#x27;c&#x27;/live.json"
    assert shop.http.get(data.replace("&#x27;", "'")).status_code == 200


def test_files_have_types_and_hashes(shop: Running) -> None:
    for path, kind in {
        "style.css": "text/css; charset=utf-8",
        "main.js": "text/javascript; charset=utf-8",
        "icon.svg": "image/svg+xml",
        "vendor/uplot/uPlot.esm.js": "text/javascript; charset=utf-8",
    }.items():
        answer = shop.http.get(f"/static/{path}")
        assert (answer.status_code, answer.headers["content-type"]) == (200, kind)
        again = shop.http.get(f"/static/{path}", headers={"if-none-match": answer.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
    missing = ("nope.js", "../page_files.py", "%2e%2e/page_files.py", "", "shell.html", "vendor", "vendor/../main.js")
    for path in missing:
        request = f"GET /static/{path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n".encode()
        assert shop.raw(request).startswith(b"HTTP/1.1 404"), path


def test_behind_a_prefix_addresses_have_it(tmp_path: Path) -> None:
    with running(tmp_path / "shop.db", root_path='/fair"><b') as shop:
        text = shop.http.get("/").text
        assert 'content="/fair&quot;&gt;&lt;b"' in text
        assert shop.http.get("/fair%22%3E%3Cb/static/style.css").status_code == 200
    shell = PageFiles("/fair").shell(Shown("home")).body.decode()
    assert 'href="/fair/static/style.css"' in shell


def test_the_prefix_is_part_of_redirects_and_cookies(tmp_path: Path) -> None:
    token = keys.create(tmp_path / "shop.db", "read", "me")
    with running(tmp_path / "shop.db", root_path="/fair") as shop:
        for path in ("/", "/fair/"):
            assert shop.http.get(path).headers["location"] == "/fair/sign-in?next=%2F"
        answer = shop.http.post("/fair/session", json={"key": token})
        assert "Path=/fair" in answer.headers["set-cookie"].split("; ")


@pytest.mark.parametrize("label", HOSTILE)
def test_hostile_labels_stay_strings(shop: Running, label: str) -> None:
    shop.engine.create("hostile", arms=[label, "other"])
    receipt = shop.engine.decide("hostile", label, id=label)
    shop.engine.reward(receipt.id, 0.5)
    assert get(shop, "/experiments/hostile/live.json")["series"]["arms"] == [label, "other"]
    assert get(shop, "/experiments/hostile/contexts.json", params={"search": label})["items"][0]["label"] == label
    (row,) = get(shop, "/experiments/hostile/log.json", params={"context": label})["items"]
    assert (row["id"], row["context"]) == (label, label)
    assert get(shop, "/experiments/hostile/decision.json", params={"id": label})["row"] == row
    answer = shop.http.get("/experiments/hostile/live.json")
    assert answer.headers["content-type"] == "application/json"


# marks


def codes(shop: Running) -> list[str]:
    return [mark["code"] for mark in get(shop, "/index.json")["items"][0]["marks"]]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def timed(tmp_path: Path, clock: Clock) -> Iterator[Running]:
    engine = Engine(open_store(tmp_path / "timed.db"), seed=0, clock=clock)
    engine.create("home", arms=ARMS, reward_wait=1000.0)
    with running(tmp_path / "timed.db", engine=engine) as shop:
        yield shop


def test_silence_is_marked(timed: Running, clock: Clock) -> None:
    play(timed.engine, "home", 20)
    timed.engine.submit([Decide("home", "v")] * 100)
    assert codes(timed) == []
    clock.now += 50.0
    timed.engine.decide("home", "v")
    assert codes(timed) == []  # less than a minute is no silence, however quick rewards were
    clock.now += 250.0
    (mark,) = get(timed, "/experiments/home/live.json")["marks"]
    assert (mark["code"], mark["severity"]) == ("no_rewards", "warning")
    assert mark["sentence"] == "No reward has arrived for 5 minutes, while 101 decisions were made."
    timed.engine.reward(timed.engine.decide("home", "v").id, 0.5)
    assert codes(timed) == []


def test_a_starved_arm_is_marked(timed: Running, clock: Clock) -> None:
    for _ in range(4):
        answers: Any = timed.engine.submit([Decide("home", "v", None, ["ada", "ben"])] * 100)
        timed.engine.submit([Reward(each.id, 0.5) for each in answers])
        clock.now += 10.0
    (mark,) = get(timed, "/index.json")["items"][0]["marks"]
    assert mark["code"] == "arm_starved"
    assert mark["sentence"].startswith("cyd was not drawn once in the last ")
    timed.engine.mask_arm("home", "cyd")
    assert codes(timed) == []  # nobody expects it to be drawn
    timed.engine.unmask_arm("home", "cyd")
    assert codes(timed) == []  # nor at once


def test_rising_expiries_are_marked(timed: Running, clock: Clock) -> None:
    for _ in range(30):
        play(timed.engine, "home", 10)
        clock.now += 30.0
    answers = timed.engine.submit([Decide("home", "v")] * 60)
    assert len(answers) == 60
    clock.now += 2000.0
    timed.engine.expire()
    assert "expiries_rising" in codes(timed)


def test_expiries_that_do_not_rise_are_not_marked(timed: Running, clock: Clock) -> None:
    """Two in three decisions never get a reward, which is as it always was."""
    for _ in range(40):
        play(timed.engine, "home", 20)
        timed.engine.submit([Decide("home", "v")] * 36)
        clock.now += 500.0
        timed.engine.expire()
    summary = timed.service.reports.overview("home").summary
    assert summary.expired[: summary.n_buckets].sum() > 1000
    assert codes(timed) == []


def test_a_failing_policy_and_a_slow_disk_are_marked(timed: Running) -> None:
    experiment = live_state(timed.engine, "home").experiments["home"]
    experiment.failed("drawing an arm", "ValueError: no")
    assert codes(timed)[0] == "unhealthy"
    timed.service.measures.commit_seconds = 2.0 * marks.SLOW_COMMIT
    found = get(timed, "/index.json")["marks"]
    assert "slow_disk" in [mark["code"] for mark in found]
    assert "node_behind" not in [mark["code"] for mark in found]
    live_state(timed.engine).latest += 10**8
    assert "node_behind" in [mark["code"] for mark in get(timed, "/index.json")["marks"]]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(1.2, "1 second"), (59.0, "59 seconds"), (150.0, "2 minutes"), (7300.0, "2 hours"), (90_000.0, "1 day")],
)
def test_durations_are_in_their_largest_unit(seconds: float, text: str) -> None:
    assert marks.duration(seconds) == text


def test_a_sparkline_ends_now() -> None:
    found = Summary(1_800_000_000 * SECOND, 2)
    for second in range(300):
        found.advance((1_800_000_000 + second) * SECOND)
        found.arm_decisions[found.bucket] += 1
        found.rewards[found.bucket] += 1
        found.arm_rewards[found.bucket, 0] += 0.5
    line = sparkline(found, (1_800_000_000 + 299) * SECOND)
    assert (len(line.decisions), line.width, line.start) == (60, 4.0, 1_800_000_060.0)
    assert line.decisions == [8] * 60
    assert line.reward_per_decision == [0.5] * 60
    later = sparkline(found, (1_800_000_000 + 419) * SECOND)
    assert later.decisions == [8] * 30 + [0] * 30
    assert later.reward_per_decision[-1] is None
    assert np.isclose(later.start + 60 * later.width, 1_800_000_420.0)
