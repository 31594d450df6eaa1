"""What the guide to monitoring tells Prometheus to do can be read, and speaks of numbers that there are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from alphafair.engine import Engine
from tests import ROOT
from tests.serving import ARMS, Running, running
from tests.stores import both_stores, open_store
from tools.site import metrics

pytestmark = [both_stores, pytest.mark.compiled]

PAGE = (ROOT / "docs" / "howto" / "monitor_and_alert.md").read_text(encoding="utf-8")
SCRAPE, RULES = (yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL))
METRIC = re.compile(r"\b(?:alphafair|process)_[a-z_]+|\bup\b")
FUNCTIONS = {"sum", "rate", "histogram_quantile"}
WORDS = FUNCTIONS | {"or", "unless"}


@pytest.fixture(scope="module")
def exposed(tmp_path_factory: pytest.TempPathFactory, _store_of_run: None) -> Iterator[set[str]]:
    """The names on /metrics, with those that Prometheus adds itself."""
    with running(tmp_path_factory.mktemp("shop") / "shop.db") as shop:
        assert shop.post("", {"name": "home", "arms": ARMS, "period": "7d"}).status_code == 201
        decision = shop.post("/home/decisions", {"context": "v"}).json()
        assert shop.post("/home/rewards", {"id": decision["id"], "reward": 1.0}).status_code == 200
        contexts = [f"v{k}" for k in range(100)]  # enough for intervals of both sides
        seen = [{"context": context, "arm": ARMS[0], "reward": 0.5} for context in contexts]
        assert shop.post("/home/observations", {"items": seen}).status_code == 200
        drawn = shop.post("/home/decisions/batch", {"items": [{"context": context} for context in contexts]}).json()
        rewards = [{"id": each["id"], "reward": 0.5} for each in drawn["items"]]
        assert shop.post("/home/rewards/batch", {"items": rewards}).status_code == 200
        lines = shop.http.get("/metrics").text.splitlines()
        yield {re.split(r"[{ ]", line)[0] for line in lines if not line.startswith("#")} | {"up"}


def test_the_scrape_config_has_the_job_of_the_rules() -> None:
    (job,) = SCRAPE["scrape_configs"]
    assert set(job) == {"job_name", "authorization", "static_configs"}
    assert f'up{{job="{job["job_name"]}"}}' in RULES["groups"][0]["rules"][0]["expr"]


@pytest.mark.parametrize("rule", RULES["groups"][0]["rules"], ids=lambda rule: rule["alert"])
def test_an_alert_rule_is_complete_and_uses_existing_metrics(rule: dict[str, Any], exposed: set[str]) -> None:
    assert set(rule) == {"alert", "expr", "for", "labels"}
    assert re.fullmatch(r"\d+[smhd]", rule["for"])
    assert rule["labels"]["severity"] in ("page", "ticket")
    expression = rule["expr"]
    asked = set(METRIC.findall(expression))
    assert asked
    assert asked <= exposed
    bare = re.sub(r"\{[^}]*\}|\[\d+[mhd]\]", "", expression)  # without labels and times
    assert set(re.findall(r"[a-z_]+", bare)) - asked <= WORDS
    assert bare.count("(") == bare.count(")") == len(re.findall(rf"\b(?:{'|'.join(FUNCTIONS)})\(", bare))


@pytest.mark.parametrize(("settings", "fires"), [({"default_reward": 0.0}, False), ({}, True)])
def test_the_expiring_alert_is_silent_with_a_default_reward(tmp_path: Path, settings: Any, fires: bool) -> None:
    """Nobody clicks for an hour: with a default reward that is what was said to happen, without one it is a fault."""
    (rule,) = (rule for rule in RULES["groups"][0]["rules"] if rule["alert"] == "AlphafairExpiring")
    now = [1_700_000_000 * 10**9]
    engine = Engine(open_store(tmp_path / "shop.db"), 0, clock=lambda: now[0])
    engine.create("home", arms=ARMS, reward_wait=60.0, **settings)
    with running(tmp_path / "shop.db", engine=engine) as shop:
        before = samples(shop)
        for k in range(20):
            engine.decide("home", "v", deferred=k % 2 == 0)  # every other one is never shown, which is no fault either
        engine.activate(engine.decide("home", "v", deferred=True).id)
        now[0] += 3600 * 10**9
        engine.expire()
        after = samples(shop)
    rose = {name: after[name] - before[name] for name in after}
    expression = re.sub(r"rate\((\w+)\[1h\]\)", lambda rate: str(rose[rate[1]]), rule["expr"])
    assert re.fullmatch(r"[\d.]+ > 0\.5 \* [\d.]+", expression)
    assert eval(expression) is fires
    assert rose["alphafair_decisions_total"] == 21
    assert rose["alphafair_lapsed_total"] == 10


def samples(shop: Running) -> dict[str, float]:
    lines = shop.http.get("/metrics").text.splitlines()
    return {re.split(r"[{ ]", line)[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")}


def test_the_reference_lists_every_metric(exposed: set[str]) -> None:
    named = set(re.findall(r"^\| `(alphafair_[a-z_]+)", metrics.table(), re.MULTILINE))
    bases = {re.sub(r"_(bucket|count|sum|created)$", "", name) for name in exposed if name.startswith("alphafair_")}
    assert named == bases


def test_the_guide_names_metrics_that_there_are(exposed: set[str]) -> None:
    named = set(METRIC.findall(" ".join(re.findall(r"`([^`\n]+)`", PAGE)))) - {"up"}
    assert "alphafair_ready" in named
    assert named <= exposed
