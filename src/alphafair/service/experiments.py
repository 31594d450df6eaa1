"""The routes of experiments: begin, look, change, take the log home."""

from __future__ import annotations

import asyncio
import inspect
import re
from typing import Annotated, Literal
from urllib.parse import quote

from litestar import delete, get, patch, post
from litestar.datastructures import State
from litestar.params import QueryParameter
from litestar.response import Stream
from msgspec import UNSET, structs

from alphafair import metrics
from alphafair.engine import Engine, Status
from alphafair.errors import InvalidArgument
from alphafair.groups import Groups
from alphafair.service.decisions import Name
from alphafair.service.door import actor, check_sees, current_caller
from alphafair.service.messages import (
    Change,
    ChangeItem,
    ExperimentAnswer,
    Experiments,
    GroupsOfArms,
    History,
    NewExperiment,
)
from alphafair.service.responses import ERRORS, ERRORS_OF_NAMES, ERRORS_OF_POSTS, example

PATH = "/v1/experiments"
TAGS = ["experiments"]
Erased = Annotated[str, QueryParameter(description="The context to forget.")]
Format = Annotated[Literal["parquet", "csv", "jsonl"], QueryParameter(description="How the table is written.")]
Begun = Annotated[NewExperiment, example(name="home", arms=["ada", "ben"], alpha=0.9)]
Changed = Annotated[Change, example(alpha=0.5)]
MEDIA = {"parquet": "application/vnd.apache.parquet", "csv": "text/csv", "jsonl": "application/jsonl"}
OF_ENGINE = {*inspect.signature(Engine.create).parameters, *NewExperiment.__struct_fields__}  # no policy's own


@post(PATH, responses=ERRORS_OF_POSTS, tags=TAGS, response_description="The experiment.")
async def create(data: Begun, state: State) -> ExperimentAnswer:
    """Begin an experiment."""
    arguments = {field: value for field, value in structs.asdict(data).items() if value is not UNSET}
    settings = arguments.pop("settings")
    if isinstance(data.groups, GroupsOfArms):
        arguments["groups"] = structs.asdict(data.groups)
    for name in settings.keys() & OF_ENGINE:
        repair = f"Send it as {name!r}." if name in data.__struct_fields__ else "Leave it out."
        raise InvalidArgument(f"settings.{name}", "a setting of the policy", settings[name], repair)

    check_sees(current_caller.get(), data.name)
    by = actor()

    def begin() -> ExperimentAnswer:
        with state.engine.acting_as(by):
            state.engine.create(**arguments, **settings)
        return described(state.engine, data.name)

    answer: ExperimentAnswer = await state.writer.run(begin)
    return answer


@get(PATH, responses=ERRORS, tags=TAGS, sync_to_thread=True)
def experiments(state: State) -> Experiments:
    """The names of all experiments that the key is for."""
    return Experiments([name for name in state.engine.experiments() if current_caller.get().sees(name)])


@get(PATH + "/{name:str}", responses=ERRORS_OF_NAMES, tags=TAGS, sync_to_thread=True)
def experiment(name: Name, state: State) -> ExperimentAnswer:
    """One experiment as it stands."""
    return described(state.engine, name)


@patch(PATH + "/{name:str}", responses=ERRORS_OF_POSTS, tags=TAGS)
async def change(name: Name, data: Changed, state: State) -> ExperimentAnswer:
    """Change an experiment while it runs: exactly one of the fields."""
    given = {field: value for field, value in structs.asdict(data).items() if value is not UNSET}
    about = {field: given.pop(field) for field in ("group", "entitlement") if field in given}
    if len(given) != 1 or (about and "add_arm" not in given):
        got = sorted({*given, *about})
        raise InvalidArgument("the body", "an object with exactly one change", got, "Send one at a time.")
    ((field, value),) = given.items()
    by = actor()

    def alter() -> ExperimentAnswer:
        with state.engine.acting_as(by):
            if field == "paused":
                (state.engine.pause if value else state.engine.resume)(name)
            else:
                getattr(state.engine, "set_alpha" if field == "alpha" else field)(name, value, **about)
        return described(state.engine, name)

    answer: ExperimentAnswer = await state.writer.run(alter)
    return answer


@delete(PATH + "/{name:str}/contexts", status_code=200, responses=ERRORS_OF_NAMES, tags=TAGS)
async def erase(name: Name, label: Erased, state: State) -> ExperimentAnswer:
    """Remove a context's label, and the ids of its decisions, for good; the numbers stay."""

    by = actor()

    def forget() -> ExperimentAnswer:
        with state.engine.acting_as(by):
            state.engine.erase(name, label)
        return described(state.engine, name)

    answer: ExperimentAnswer = await state.writer.run(forget)
    return answer


@get(PATH + "/{name:str}/history", responses=ERRORS_OF_NAMES, tags=TAGS, sync_to_thread=True)
def history(name: Name, state: State) -> History:
    """Every change of an experiment: when, how, and by whose key."""
    return History([ChangeItem(*change) for change in state.engine.history(name)])


@get(PATH + "/{name:str}/log", responses=ERRORS_OF_NAMES, tags=TAGS, media_type="application/octet-stream")
async def download_log(name: Name, state: State, format: Format = "parquet") -> Stream:
    """The exploration log: context, arm, propensity and reward of every decision. Few clients at a time."""
    job = await asyncio.to_thread(state.engine.export_job, name, format)
    chunks = await state.exports.begin(job)
    headers = {"content-disposition": _attachment(name, format)}
    return Stream(chunks, media_type=MEDIA[format], headers=headers)


def _attachment(name: str, format: str) -> str:
    """Under which name a log is saved: headers are ASCII, names that Python gave to experiments need not be."""
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", name)
    also = "" if plain == name else f"; filename*=UTF-8''{quote(name, safe='')}.{format}"
    return f'attachment; filename="{plain}.{format}"{also}'


def described(engine: Engine, name: str) -> ExperimentAnswer:
    status = engine.experiment(name)
    known = {**vars(status), **fairness(status)}
    return ExperimentAnswer(**{field: known[field] for field in ExperimentAnswer.__struct_fields__})


def fairness(status: Status) -> dict[str, float | None]:
    """How equal groups are, or arms, for what they are entitled to; where the policy keeps accounts."""
    if not status.accounts or status.alpha is None:
        return {"jain_index": None, "alpha_performance": None}
    accounts, groups = [*status.accounts.values()], None
    if status.groups is not None and status.groups.entitlements is not None:
        entitlements = status.groups.entitlements
        groups = Groups(entitlements=[entitlements[label] for label in status.accounts])
    return {
        "jain_index": float(metrics.jain_index(accounts, groups=groups)),
        "alpha_performance": float(metrics.alpha_performance(accounts, status.alpha, groups=groups)),
    }
