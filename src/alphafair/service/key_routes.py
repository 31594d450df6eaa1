"""The routes of keys: create, list, rotate, revoke. A key that is limited to some experiments may use none of them.

None of them waits for the writer, which may be busy for long: a key that leaked is revoked now.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Annotated, Any

from litestar import delete, get, post
from litestar.datastructures import State
from litestar.params import PathParameter

from alphafair.service import keys as stored
from alphafair.service.door import ASK_FOR_ANOTHER, actor, current_caller
from alphafair.service.errors import failure
from alphafair.service.keys import Key
from alphafair.service.messages import CreatedKey, KeyAnswer, Keys, NewKey, Rotation
from alphafair.service.responses import ERRORS, ERRORS_OF_NAMES, ERRORS_OF_POSTS, example

PATH = "/v1/keys"
TAGS = ["keys"]
KeyId = Annotated[str, PathParameter(description="The id of a key, which is not its secret.")]
Asked = Annotated[NewKey, example(role="write", name="the shop")]
AskedRotation = Annotated[Rotation, example(grace=3600.0)]


@post(PATH, responses=ERRORS_OF_POSTS, tags=TAGS)
async def create(data: Asked, state: State) -> CreatedKey:
    """Create a key. The answer is the only place where it can be read."""
    _check_unlimited()
    by = actor()

    def make() -> str:
        limits: dict[str, Any] = {"experiments": data.experiments, "expires_in": data.expires_in}
        return stored.create(state.path, data.role, data.name, **limits, by=by)

    return _created(await state.keyring.change(make))


@get(PATH, responses=ERRORS, tags=TAGS)
async def keys(state: State) -> Keys:
    """All keys, without their secrets."""
    _check_unlimited()
    return Keys([_shown(key) for key in await state.keyring.change(lambda: stored.all_of(state.path))])


@post(PATH + "/{id:str}/rotations", responses=ERRORS_OF_POSTS, tags=TAGS)
async def rotate(id: KeyId, data: AskedRotation, state: State) -> CreatedKey:
    """Replace a key by a new one of the same name, role and limits."""
    _check_unlimited()
    by = actor()
    return _created(await state.keyring.change(lambda: stored.rotate(state.path, id, grace=data.grace, by=by)))


@delete(PATH + "/{id:str}", status_code=200, responses=ERRORS_OF_NAMES, tags=TAGS)
async def revoke(id: KeyId, state: State) -> KeyAnswer:
    """Refuse a key from now on."""
    _check_unlimited()
    by = actor()

    def end() -> Key:
        stored.revoke(state.path, id, by=by)
        (key,) = (key for key in stored.all_of(state.path) if key.id == id)
        return key

    return _shown(await state.keyring.change(end))


def _check_unlimited() -> None:
    if current_caller.get().experiments is not None:
        message = "A key that is limited to some experiments cannot manage keys."
        raise failure(403, "forbidden", message, repair=ASK_FOR_ANOTHER)


def _created(token: str) -> CreatedKey:
    return CreatedKey(token.split("_")[1], token)


def _shown(key: Key) -> KeyAnswer:
    created, expires, revoked = map(_moment, (key.created_at, key.expires_at, key.revoked_at))
    return KeyAnswer(
        id=key.id,
        name=key.name,
        role=key.role,  # type: ignore[arg-type]
        experiments=None if key.experiments is None else list(key.experiments),
        valid=key.valid_at(time.time_ns() // 1000),
        created_at=created,  # type: ignore[arg-type]
        created_by=key.created_by,
        expires_at=expires,
        revoked_at=revoked,
        revoked_by=key.revoked_by,
    )


def _moment(at: int | None) -> datetime | None:
    return None if at is None else datetime.fromtimestamp(at / 1e6, UTC)
