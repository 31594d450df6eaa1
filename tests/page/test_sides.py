"""The page while a policy watches, shares the traffic and takes over: its sentence, its picture, its buttons."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from alphafair import Engine
from alphafair.engine import Decide, Reward
from alphafair.engine.store.sqlite import SqliteStore
from tests import ROOT
from tests.browsers import Clock, chromium, watched
from tests.serving import Running, running

SCREENSHOTS = ROOT / "output" / "screenshots"
ARMS = ["ada", "ben", "cyd"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    path, clock = tmp_path_factory.mktemp("sides") / "shop.db", Clock(600.0)
    engine = Engine(SqliteStore(path), seed=0, clock=clock)
    engine.create("home", arms=ARMS, alpha=0.9, mode="watch")
    visit(engine, clock, 200)
    engine.set_terms("home", mode="share", share=0.2)
    visit(engine, clock, 3000, seed=1)
    clock.catch_up()
    with running(path, engine=engine) as found:
        yield found


def visit(engine: Engine, clock: Clock, n: int, seed: int = 0) -> None:
    """The incumbent shows ada four times out of five; ben earns most."""
    rng, chance = np.random.default_rng(seed), {"ada": 0.3, "ben": 0.7, "cyd": 0.4}
    for _ in range(10):
        clock.advance(20.0)
        asked = [
            Decide(
                "home",
                "front",
                incumbent=ARMS[int(rng.choice(3, p=[0.8, 0.1, 0.1]))],
                unit=f"visitor-{rng.integers(2000)}",
            )
            for _ in range(n // 10)
        ]
        receipts = engine.submit(asked)
        engine.submit([Reward(each.id, float(rng.random() < chance[each.arm])) for each in receipts])


def test_the_sides_are_told_drawn_and_changed(browser: Any, shop: Running) -> None:
    from playwright.sync_api import expect

    with watched(browser, shop.url) as page:
        page.set_viewport_size({"width": 1280, "height": 900})
        page.goto("/experiments/home/live")
        card = page.locator("#sides")
        expect(card).to_be_visible()
        said = card.locator('[data-fact="sides"]')
        expect(said).to_contain_text("20% of visitors:")
        expect(said).to_contain_text("more than beside it; welfare")
        (ours, theirs) = shop.engine.experiment("home").sides or ()
        assert ours.mean_reward is not None
        expect(said).to_contain_text(f"{ours.mean_reward.value:.3f} per decision")
        expect(card.locator("table").first.locator("tbody tr")).to_have_count(2)
        expect(card).to_contain_text(f"{theirs.decisions:,}")
        expect(card.locator(".plot")).to_have_attribute("data-points", re.compile("[1-9]"))
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=SCREENSHOTS / "sides.png", full_page=True)
        page.goto("/experiments/home/what-if")
        with page.expect_request(lambda request: "what-if.json?source=incumbent" in request.url):
            page.get_by_label("Decisions of").select_option("incumbent")
        expect(page.locator("[data-status]")).to_be_visible()
        page.goto("/experiments/home/live")
        card.get_by_role("button", name="Go live").click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("everybody sees what the policy draws")
        expect(dialog).to_contain_text("with the mode live")
        dialog.get_by_label("Mode", exact=True).select_option("share")
        dialog.get_by_label("Share of visitors, in %").fill("50")
        expect(dialog).to_contain_text("with the mode share and a share of 50%")
        expect(dialog).to_contain_text("A larger share moves visitors to this policy alone")
        page.screenshot(path=SCREENSHOTS / "sides-dialog.png")
        dialog.get_by_role("button", name="Change who decides").click()
        expect(said).to_contain_text("50% of visitors: no rewards yet")
        assert shop.engine.experiment("home").share == 0.5
        card.get_by_role("button", name="Go back to watching").click()
        page.get_by_role("dialog").get_by_role("button", name="Change who decides").click()
        expect(said).to_contain_text("The policy watches")
        assert shop.engine.experiment("home").mode == "watch"


def test_features_of_arms_are_changed_by_name(browser: Any, shop: Running) -> None:
    from playwright.sync_api import expect

    shop.engine.create("ads", arms=ARMS[:2], arm_features={"price": "number"})
    shop.engine.set_terms("ads", arm_features={"ada": {"price": 9.5}, "ben": {"price": 4}})
    with watched(browser, shop.url) as page:
        page.goto("/experiments/ads/live")
        page.get_by_role("button", name="Actions").click()
        page.get_by_text("Change features of arms").click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("Nothing yet: no feature is changed.")
        dialog.get_by_label("Features").fill('{"ben": {"price": 5}}')
        expect(dialog).to_contain_text("with new features of ben,")
        dialog.get_by_role("button", name="Change the features").click()
        expect(dialog).to_be_hidden()
    values = shop.engine.experiment("ads").features_by_arm
    assert values == {"ada": {"price": 9.5}, "ben": {"price": 5.0}}
