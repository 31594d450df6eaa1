"""Take the screenshots of the page of the service in README.md and docs/: `python -m tools.make_screenshots`.

A shop is simulated: a quarter of an hour of visitors, with a clock that runs ahead, so that this takes seconds. It
starts at alpha 0, which shows the best seller of every segment, and becomes fair after five minutes.
"""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

from alphafair.engine import Decide, Engine, Reward
from alphafair.engine.store.sqlite import SqliteStore
from examples.shop.shop import BUYS, SELLERS
from tests.browsers import Clock, chromium
from tests.serving import running
from tools.site import DOCS

FOLDER = DOCS / "screenshots"
MINUTES, PER_SECOND = 15, 24
PICTURES = [  # the file, the theme, the view, and what it waits for
    ("page-live", "light", "shop/live", "#heat-map td.p"),
    ("page-what-if", "dark", "market/what-if", "#alpha-now"),
]
SIZE = {"width": 1280, "height": 1130}


def history(engine: Engine, clock: Clock) -> None:
    """Visitors of a shop for a quarter of an hour; rewards arrive some seconds later, and alpha and the arms change."""
    world, segments = random.Random(0), list(BUYS)
    chances = {segment: [*chance, 0.35] for segment, chance in BUYS.items()}
    sellers = [*SELLERS, "Eve"]
    engine.create("shop", arms=SELLERS, alpha=0.0, reward_wait=3600.0, default_reward=0.0)
    due: list[tuple[float, Reward]] = []
    for second in range(60 * MINUTES):
        if second == 300:
            engine.set_alpha("shop", 0.9)
        if second == 600:
            engine.add_arm("shop", "Eve")
        visitors = [world.choice(segments) for _ in range(world.randint(PER_SECOND - 8, PER_SECOND + 8))]
        for visitor, receipt in zip(visitors, engine.submit([Decide("shop", each) for each in visitors]), strict=True):
            bought = float(world.random() < chances[visitor][sellers.index(receipt.arm)])
            due.append((second + world.lognormvariate(0.5, 1.2), Reward(receipt.id, bought)))
        engine.submit([reward for at, reward in due if at <= second])
        due = [(at, reward) for at, reward in due if at > second]
        clock.advance(1.0)
    clock.catch_up()
    engine.create("market", arms=SELLERS, alpha=0.5)
    for _ in range(120):
        visitors = world.choices(segments, k=100)
        receipts = engine.submit([Decide("market", each) for each in visitors])
        chosen = [chances[visitor][sellers.index(each.arm)] for visitor, each in zip(visitors, receipts, strict=True)]
        rewards = [float(world.random() < chance) for chance in chosen]
        engine.submit([Reward(each.id, reward) for each, reward in zip(receipts, rewards, strict=True)])


def take(folder: Path) -> list[Path]:
    """Write the screenshots to a folder."""
    with tempfile.TemporaryDirectory() as scratch, chromium() as browser:
        path, clock = Path(scratch) / "shop.db", Clock(60.0 * MINUTES)
        engine = Engine(SqliteStore(path), seed=0, clock=clock)
        history(engine, clock)
        with running(path, engine=engine) as shop:
            pictures = [
                ("page-live", "light", "shop/live", "#heat-map td.p"),
                ("page-what-if", "dark", "market/what-if", "#alpha-now"),
            ]
            made = []
            for name, theme, view, ready in pictures:
                page = browser.new_page(viewport=SIZE, color_scheme=theme, reduced_motion="reduce")
                page.goto(f"{shop.url}/experiments/{view}")
                page.locator(ready).first.wait_for(timeout=60_000)
                made.append(folder / f"{name}.png")
                page.screenshot(path=made[-1])
                page.close()
    return made


if __name__ == "__main__":
    for path in take(FOLDER):
        print(f"{path.stat().st_size:7,} bytes  {path}")
