"""How often the page draws: counted, with messages and a clock of the test's own, in a real browser."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from alphafair.engine import Decide, Engine, Reward
from tests.browsers import chromium, watched
from tests.serving import ARMS, Running, running

pytestmark = pytest.mark.compiled

CHARTS = {"fairness", "reward", "shares-over-time"}
COUNTING = """
window.redraws = {}; // of each chart: uPlot clears its canvas before it draws
const clear = CanvasRenderingContext2D.prototype.clearRect;
CanvasRenderingContext2D.prototype.clearRect = function (...where) {
    const chart = this.canvas.closest("section")?.id;
    redraws[chart] = (redraws[chart] ?? 0) + 1;
    return clear.apply(this, where);
};

window.changes = []; // of elements
const differs = ({ type, target, oldValue, attributeName }) =>
    oldValue !== (type === "attributes" ? target.getAttribute(attributeName) : target.nodeValue);
window.counting = () => {
    window.redraws = {};
    window.changes = [];
    const told = (found) => changes.push(...found.filter((each) => each.type === "childList" || differs(each)));
    new MutationObserver(told).observe(document.getElementById("content"), {
        subtree: true, childList: true, characterData: true, characterDataOldValue: true,
        attributes: true, attributeOldValue: true,
    });
};

window.streams = []; // the messages of the service come from the test
window.EventSource = class extends EventTarget {
    static CLOSED = 2;
    constructor() {
        super();
        this.readyState = 1;
        streams.push(this);
    }
    close() { this.readyState = 2; }
};
window.send = (kind, data) => {
    for (const stream of streams.filter((each) => each.readyState === 1))
        stream.dispatchEvent(new MessageEvent(kind, { data: JSON.stringify(data) }));
};

let hidden = false;
Object.defineProperty(Document.prototype, "hidden", { get: () => hidden });
window.hide = (now) => {
    hidden = now;
    document.dispatchEvent(new Event("visibilitychange"));
};
"""


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    path = tmp_path_factory.mktemp("redraws") / "shop.db"
    engine = Engine.open(path, seed=0)
    engine.create("home", arms=ARMS, alpha=0.9)
    receipts = engine.submit([Decide("home", f"visitor-{k % 30}") for k in range(200)])
    engine.submit([Reward(each.id, float(k % 3 == 0)) for k, each in enumerate(receipts[:180])])
    engine.set_alpha("home", 0.5)
    with running(path, engine=engine) as found:
        yield found


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@contextmanager
def watching(browser: Any, shop: Running, **options: Any) -> Iterator[tuple[Any, dict[str, Any]]]:
    """The page of an experiment with the clock stopped, all charts in the viewport, and the state that it shows."""
    size = {"viewport": {"width": 1600, "height": 4000}, **options}
    with watched(browser, shop.url, **size) as page:
        page.add_init_script(COUNTING)
        page.clock.install()
        page.goto("/experiments/home/live")
        page.locator("#heat-map td.p").first.wait_for()
        page.clock.pause_at(page.evaluate("Date.now() + 10_000"))
        state = shop.http.get("/experiments/home/live.json").json()
        send(page, "state", state)
        page.clock.run_for(2000)
        observed(page)
        page.evaluate("counting()")
        yield page, state


def observed(page: Any) -> None:
    """Wait until the browser has told all its observers what is in the viewport."""
    page.evaluate("new Promise((done) => new IntersectionObserver(done).observe(document.body))")


def send(page: Any, kind: str, data: dict[str, Any]) -> None:
    page.evaluate("([kind, data]) => send(kind, data)", [kind, data])


def later(state: dict[str, Any], more: int) -> dict[str, Any]:
    """The state after some more decisions, a while later."""
    found: dict[str, Any] = json.loads(json.dumps(state))
    found["at"] += 0.1 * more
    found["position"] += more
    found["experiment"]["decisions"] += more
    found["series"]["decisions"][-1] += more
    return found


def redraws(page: Any) -> dict[str, int]:
    found: dict[str, int] = page.evaluate("redraws")
    return found


def decisions(page: Any) -> str:
    text: str = page.locator('[data-figure="decisions"]').inner_text()
    return text


def test_each_message_draws_each_chart_once(browser: Any, shop: Running) -> None:
    with watching(browser, shop) as (page, state):
        send(page, "state", later(state, 1))
        page.clock.run_for(5000)
        assert redraws(page) == dict.fromkeys(CHARTS, 1)
        assert decisions(page) == "201"


def test_nothing_changes_when_nothing_has_changed(browser: Any, shop: Running) -> None:
    with watching(browser, shop) as (page, state):
        page.locator("#delays summary").click()
        page.locator("#delays tbody th").first.wait_for()  # the browser tells of the click a little later
        page.evaluate("counting()")
        for _ in range(5):
            send(page, "state", state)
            page.clock.run_for(2000)
        assert redraws(page) == {}
        assert page.evaluate("changes.map((each) => [each.type, each.target.outerHTML, each.attributeName])") == []


def test_a_burst_is_drawn_a_few_times(browser: Any, shop: Running) -> None:
    with watching(browser, shop) as (page, state):
        for k in range(100):  # in a second
            send(page, "state", later(state, k + 1))
            page.clock.run_for(10)
        page.clock.run_for(500)
        found = redraws(page)
        assert found.keys() == CHARTS
        assert 2 <= min(found.values()) <= max(found.values()) <= 3
        assert decisions(page) == "300"


def test_messages_that_come_at_once_are_drawn_once(browser: Any, shop: Running) -> None:
    with watching(browser, shop) as (page, state):
        page.evaluate(
            "(states) => states.forEach((each) => send('state', each))", [later(state, k) for k in range(100)]
        )
        page.clock.run_for(1000)
        assert redraws(page) == dict.fromkeys(CHARTS, 1)
        assert decisions(page) == "299"


def test_a_hidden_page_does_nothing(browser: Any, shop: Running) -> None:
    with watching(browser, shop) as (page, state):
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        send(page, "state", later(state, 1))
        page.evaluate("hide(true)")
        page.clock.run_for(60_000)
        assert redraws(page) == {}
        assert page.evaluate("changes.length") == 0
        assert page.evaluate("streams.filter((each) => each.readyState === 1).length") == 0
        assert asked == []
        page.evaluate("hide(false)")
        send(page, "state", later(state, 2))
        page.clock.run_for(1000)
        assert page.evaluate("streams.filter((each) => each.readyState === 1).length") == 1
        assert redraws(page) == dict.fromkeys(CHARTS, 1)
        assert decisions(page) == "202"


def test_a_chart_out_of_sight_is_drawn_when_it_is_seen(browser: Any, shop: Running) -> None:
    with watching(browser, shop, viewport={"width": 390, "height": 600}) as (page, state):
        for k in range(5):
            send(page, "state", later(state, k + 1))
            page.clock.run_for(1000)
        assert "shares-over-time" not in redraws(page)
        assert decisions(page) == "205"
        page.locator("#shares-over-time .plot").scroll_into_view_if_needed()
        observed(page)
        assert redraws(page)["shares-over-time"] == 1


@pytest.mark.parametrize("path", ["/", "/experiments/home/live"])
def test_nothing_moves_between_messages(browser: Any, shop: Running, path: str) -> None:
    """An animation that runs, or a transition that each message begins again, draws sixty times a second."""
    with watched(browser, shop.url) as page:
        page.emulate_media(reduced_motion="no-preference")
        page.add_init_script(COUNTING)
        page.goto(path)
        page.locator(".card:visible").first.wait_for()
        page.evaluate("Promise.all(document.getAnimations().map((each) => each.finished))")  # of the word "Loading"
        page.evaluate("streams[0].dispatchEvent(new Event('open'))")
        page.locator("#connection").wait_for()
        assert page.evaluate("document.getAnimations().length") == 0
        state = shop.http.get("/index.json" if path == "/" else f"{path}.json").json()
        for share in state.get("shares", []):
            share["rewards"], share["decisions"] = 0.5 * share["rewards"], 0.25
        state["at"] += 60.0
        state["delays"] = {
            **state.get("delays", {}),
            "counts": [*range(len(state.get("delays", {}).get("counts", [])))],
        }
        send(page, "state", state)
        page.evaluate("new Promise((done) => setTimeout(() => requestAnimationFrame(done)))")
        assert page.evaluate("document.getAnimations().length") == 0
