"""Services to compare with, as small as their documents show: `python -m benchmarks.contenders NAME PORT`.

- `starlette`: an empty POST, the yardstick: what HTTP alone costs.
- `vowpal_wabbit`, `mabwiser`: what teams write themselves: FastAPI around a library, everything in memory, nothing kept.
"""

from __future__ import annotations

import random
import sys
from importlib import import_module
from typing import Any

import uvicorn

from benchmarks.jobs import N_ARMS
from benchmarks.rivals import ARMS, EPSILON


def starlette() -> Any:
    applications, responses, routing = (
        import_module(f"starlette.{name}") for name in ("applications", "responses", "routing")
    )

    async def nothing(request: Any) -> Any:
        return responses.Response()

    return applications.Starlette(routes=[routing.Route("/", nothing, methods=["POST"])])


def vowpal_wabbit() -> Any:
    model = import_module("vowpalwabbit").Workspace(f"--cb_explore {N_ARMS} --epsilon {EPSILON} --quiet")
    rng = random.Random(0)

    def decide(context: str) -> tuple[int, float]:
        probabilities = model.predict(f"| {context}")
        arm = rng.choices(ARMS, probabilities)[0]
        return arm, probabilities[arm]

    def learn(context: str, arm: int, propensity: float, reward: float) -> None:
        model.learn(f"{arm + 1}:{1 - reward}:{propensity} | {context}")

    return around(decide, learn)


def mabwiser() -> Any:
    mab = import_module("mabwiser.mab")
    model = mab.MAB(ARMS, mab.LearningPolicy.EpsilonGreedy(EPSILON), seed=0)
    model.fit(ARMS, [0.5] * N_ARMS)

    def decide(context: str) -> tuple[int, float]:
        return model.predict(), 1.0  # it knows no propensities

    def learn(context: str, arm: int, propensity: float, reward: float) -> None:
        model.partial_fit([arm], [reward])

    return around(decide, learn)


def around(decide: Any, learn: Any) -> Any:
    """FastAPI with a dictionary of open decisions."""
    fastapi, pydantic = import_module("fastapi"), import_module("pydantic")
    decision_body: Any = pydantic.create_model("Decision", context=(str, ...), id=(str, ...))
    reward_body: Any = pydantic.create_model("Reward", id=(str, ...), reward=(float, ...))
    app, waiting = fastapi.FastAPI(), dict[str, tuple[str, int, float]]()

    async def decisions(body: Any) -> dict[str, Any]:
        arm, propensity = decide(body.context)
        waiting[body.id] = (body.context, arm, propensity)
        return {"id": body.id, "arm": arm, "propensity": propensity, "context": body.context}

    async def rewards(body: Any) -> dict[str, str]:
        learn(*waiting.pop(body.id), body.reward)
        return {"outcome": "applied"}

    decisions.__annotations__["body"], rewards.__annotations__["body"] = decision_body, reward_body
    app.post("/v1/experiments/bench/decisions")(decisions)
    app.post("/v1/experiments/bench/rewards")(rewards)
    return app


CONTENDERS = {"starlette": starlette, "vowpal_wabbit": vowpal_wabbit, "mabwiser": mabwiser}

if __name__ == "__main__":
    name, port = sys.argv[1:]
    app = CONTENDERS[name]()
    uvicorn.run(app, port=int(port), loop="uvloop", http="httptools", access_log=False, log_level="warning")
