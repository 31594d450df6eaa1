"""What the log of an incumbent says about fair policies, over HTTP, and what it cannot say without propensities."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from alphafair import Client, ServiceError
from alphafair_client.api import WhatIfAnswer
from tests.serving import Running, running, wait_for

ARMS = ["ada", "ben", "cyd"]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("shop") / "shop.db") as shop:
        for name in ("explores", "greedy", "silent", "mixed"):
            shop.engine.create(name, arms=ARMS, mode="watch")
            shop.engine.observe_many(name, list(history(name)))
        yield shop


def history(name: str) -> Iterator[dict[str, Any]]:
    """Clicks of an incumbent that shows ada most of the time; ben is the better one."""
    rng = np.random.default_rng(4)
    p = np.array([0.8, 0.1, 0.1])
    for k in range(600):
        arm = 0 if name == "greedy" else int(rng.choice(3, p=p))
        told: dict[str, Any] = {} if name == "silent" else {"propensity": 1.0 if name == "greedy" else float(p[arm])}
        if name == "mixed" and k % 3 == 0:
            told = {}
        reward = float(rng.random() < (0.3, 0.6, 0.1)[arm])
        yield {"context": "front", "arm": ARMS[arm], "reward": reward, "unit": f"visitor-{k % 300}", **told}


def evaluated(shop: Running, name: str, source: str | None = "incumbent") -> WhatIfAnswer:
    with Client(shop.url) as client:
        return wait_for(lambda: client.evaluate(name, source), lambda answer: answer.status != "computing")


def test_a_log_with_propensities_is_evaluated(shop: Running) -> None:
    answer = evaluated(shop, "explores")
    assert (answer.status, answer.source, answer.rewards) == ("ready", "incumbent", 600)
    assert answer.sentence == "From the 600 rewarded decisions of incumbent."
    assert answer.curve is not None
    assert answer.present.average_reward == pytest.approx(0.31, abs=0.06)
    greedy, fair = answer.curve.average_reward.value[0], answer.curve.jain_index.value
    assert greedy is not None
    assert greedy > 0.4  # it would show ben
    assert fair[-1] > fair[0]  # type: ignore[operator]
    page = shop.http.get("/experiments/explores/what-if.json?source=incumbent").json()
    assert page["curve"]["average_reward"] == {
        "value": answer.curve.average_reward.value,
        "low": answer.curve.average_reward.low,
        "high": answer.curve.average_reward.high,
    }


def test_without_propensities_nothing_can_be_said(shop: Running) -> None:
    answer = evaluated(shop, "silent")
    assert (answer.status, answer.curve) == ("no propensities", None)
    assert answer.sentence.startswith("No propensities were sent with these decisions")
    assert answer.sentence.endswith("A share of 5% will tell.")


def test_rows_without_propensities_are_left_out_and_counted(shop: Running) -> None:
    answer = evaluated(shop, "mixed")
    assert answer.status == "ready"
    assert "From the 400 rewarded decisions of incumbent. 200 others came without propensities" in answer.sentence
    assert answer.curve is not None
    assert answer.curve.rounds == 400


def test_an_incumbent_that_never_explores_is_no_evidence(shop: Running) -> None:
    answer = evaluated(shop, "greedy")
    assert answer.curve is not None
    assert answer.curve.verdict == "do not use"
    assert answer.sentence.endswith("A share of 5% will tell.")


def test_sources_are_known_ones(shop: Running) -> None:
    with Client(shop.url) as client, pytest.raises(ServiceError, match="There are 'incumbent'") as refused:
        client.evaluate("explores", "ranker")
    assert (refused.value.status, refused.value.argument) == (422, "source")
    own = evaluated(shop, "explores", None)
    assert (own.status, own.source) == ("too few", None)
