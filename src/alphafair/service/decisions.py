"""The busy routes: decisions, rewards, activations, one or many at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from litestar import post
from litestar.datastructures import State
from litestar.params import PathParameter

from alphafair.engine import Activate, Decide, RequestError, Reward
from alphafair.service.errors import Failure, as_failure, lost
from alphafair.service.messages import (
    ActivationAnswer,
    ActivationRequest,
    DecisionAnswer,
    DecisionAnswers,
    DecisionBatch,
    DecisionItem,
    DecisionRequest,
    Problem,
    RewardAnswer,
    RewardAnswers,
    RewardBatch,
    RewardItem,
    RewardRequest,
)
from alphafair.service.responses import ERRORS_OF_OUTCOMES, ERRORS_OF_POSTS, example
from alphafair.service.writer import Writer

Name = Annotated[str, PathParameter(description="The name of an experiment.")]
PATH = "/v1/experiments/{name:str}/"
TAGS = ["decide and learn"]
FULL_ERRORS = 10  # of a batch; the others are short, so that an answer is not much longer than its request
Rewards = Annotated[RewardBatch, example(items=[{"id": "order-1", "reward": 0.8}])]
Decisions = Annotated[DecisionBatch, example(items=[{"context": "visitor-7"}, {"context": "visitor-8"}])]
Activation = Annotated[ActivationRequest, example(id="order-1")]
OneReward = Annotated[RewardRequest, example(id="order-1", reward=0.8)]
Decision = Annotated[DecisionRequest, example(context="visitor-7")]


@post(PATH + "decisions", status_code=200, responses=ERRORS_OF_POSTS, tags=TAGS)
async def decide(name: Name, data: Decision, state: State) -> DecisionAnswer:
    """Draw an arm for a context. The same id again gives the same arm again."""
    command = Decide(name, data.context, data.id, data.available, data.deferred)
    id, arm, propensity, context = await _one(state.writer, command)
    return DecisionAnswer(id, arm, propensity, context)


@post(PATH + "rewards", status_code=200, responses=ERRORS_OF_OUTCOMES, tags=TAGS)
async def reward(name: Name, data: OneReward, state: State) -> RewardAnswer:
    """Say what came of a decision. The same reward again does no harm; another one is a conflict."""
    outcome = (await _one(state.writer, Reward(data.id, data.reward, name))).outcome
    if failure := lost(outcome):
        raise failure
    return RewardAnswer(outcome)


@post(PATH + "activations", status_code=200, responses=ERRORS_OF_OUTCOMES, tags=TAGS)
async def activate(name: Name, data: Activation, state: State) -> ActivationAnswer:
    """Say that a deferred decision was shown: from now on it counts."""
    outcome = (await _one(state.writer, Activate(data.id, name))).outcome
    if failure := lost(outcome):
        raise failure
    return ActivationAnswer(outcome)


@post(PATH + "decisions/batch", status_code=200, responses=ERRORS_OF_POSTS, tags=TAGS)
async def decide_many(
    name: Name,
    data: Decisions,
    state: State,
) -> DecisionAnswers:
    """Many decisions in one request: one answer per item, in order; a refused item does not touch the others."""
    commands = [Decide(name, each.context, each.id, each.available, each.deferred) for each in data.items]
    answers = await _many(state.writer, commands)
    errors = _errors({k: as_failure(each) for k, each in enumerate(answers) if isinstance(each, RequestError)})
    return DecisionAnswers(
        [DecisionItem(error=errors[k]) if k in errors else DecisionItem(*each) for k, each in enumerate(answers)]
    )


@post(PATH + "rewards/batch", status_code=200, responses=ERRORS_OF_POSTS, tags=TAGS)
async def reward_many(name: Name, data: Rewards, state: State) -> RewardAnswers:
    """Many rewards in one request: one answer per item, in order."""
    answers = await _many(state.writer, [Reward(each.id, each.reward, name) for each in data.items])
    failures = {
        k: as_failure(each) if isinstance(each, RequestError) else lost(each.outcome) for k, each in enumerate(answers)
    }
    errors = _errors({k: failure for k, failure in failures.items() if failure is not None})
    return RewardAnswers([RewardItem(getattr(each, "outcome", None), errors.get(k)) for k, each in enumerate(answers)])


async def _one(writer: Writer, command: Any) -> Any:
    (answer,) = await writer.submit((command,))
    if isinstance(answer, RequestError):
        raise answer
    return answer


async def _many(writer: Writer, commands: list[Any]) -> list[Any]:
    answers = await writer.submit(commands)
    if isinstance(answers[0], RequestError) and answers[0].code == "unknown_experiment":
        raise answers[0]  # it is the address that is wrong
    return answers


def _errors(failures: Mapping[int, Failure]) -> dict[int, Problem]:
    """The errors of a batch by item: the first few, and the first of a kind, in full; others name one like it."""
    first: dict[tuple[str, str | None], int] = {}
    errors: dict[int, Problem] = {}
    for k, failure in failures.items():
        error = failure.answer.error
        kind = error.code, error.argument
        if kind in first and len(errors) >= FULL_ERRORS:
            error = Problem(error.code, f"As item {first[kind]}: {len(failures)} items are refused.", error.argument)
        first.setdefault(kind, k)
        errors[k] = error
    return errors
