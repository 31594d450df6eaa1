"""What both clients do between a method and the network: requests, answers, and when to send again.

Nothing here does I/O. A call is a generator, its plan: it yields attempts, gets the reply of each sent in or `Lost`
thrown in, yields the pauses between them, and returns what the method returns. A client only carries its plans out.
"""

from __future__ import annotations

import email.utils
import json
import math
import numbers
import os
import random
import re
import reprlib
import secrets
import time
import uuid
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC
from decimal import Decimal
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, SupportsFloat, TypeVar
from urllib.parse import quote

import numpy as np

from alphafair import validate
from alphafair.errors import InvalidArgument
from alphafair.groups import Groups
from alphafair.service.client_http import Lost, Reply, Request
from alphafair.service.codes import status_of

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0  # seconds
LONGEST_TIMEOUT = 1e6  # seconds
BATCH_ITEMS, BATCH_BYTES = (
    1000,
    500_000,
)  # of one request; the service takes 1,000 and, unless it is told otherwise, 1 MB
NOTHING_DONE = (429, 503)  # statuses with which the service says so
TEMPORARY = (408, 429, 502, 503, 504)  # statuses that another attempt may not meet, whoever they are from
CHECK_URL = "Check the url, and what is between this program and the service."

Result = TypeVar("Result")
Reward = SupportsFloat | Mapping[str, SupportsFloat]


class ServiceError(Exception):
    """A call that was refused: the status of the answer, and the parts of its error.

    What cannot be sent, such as a reward that is not a number, is refused in the same form, with status 422, as the
    service would. `code` is the service's own, `bad_answer` for a success that cannot be read, and for answers from
    something between the client and the service the name of their status, such as `bad_gateway`.
    """

    def __init__(self, status: int, code: str, message: str, argument: str | None = None, repair: str | None = None):
        super().__init__(status, code, message, argument, repair)
        self.status, self.code, self.message, self.argument, self.repair = status, code, message, argument, repair

    def __str__(self) -> str:
        where = f" ({self.argument})" if self.argument else ""
        repair = "" if self.repair is None or self.repair in self.message else f" {self.repair}"
        return f"{self.status} {self.code}{where}: {self.message}{repair}"


class Drawn(NamedTuple):
    """A decision: show this arm, and send its reward under this id."""

    id: str
    arm: str
    propensity: float
    context: str


Failure = ServiceError | ConnectionError


class Terms(NamedTuple):
    """How long a call may take, when that is over (by `time.monotonic`), and how often it may be repeated."""

    timeout: float
    deadline: float
    retries: int


class Attempt(NamedTuple):
    """Send this, wait for a connection until the deadline, and for the answer at most so many seconds."""

    request: Request
    deadline: float
    longest: float


class Pause(NamedTuple):
    seconds: float


Plan = Generator[Attempt | Pause, Reply | None, Result]


def terms(timeout: float, retries: int) -> Terms:
    try:
        seconds = validate.number("timeout", timeout, low=0.0, high=LONGEST_TIMEOUT, low_open=True)
    except InvalidArgument as problem:
        raise ServiceError(422, "bad_request", str(problem), problem.argument, problem.repair) from None
    return Terms(seconds, time.monotonic() + seconds, retries)


# Sending, and sending again


def _reply(request: Request, terms: Terms) -> Plan[Reply]:
    """The reply to a request, after as many attempts as it takes and the terms allow.

    Pauses double from 50 ms to 2 s and are shortened at random; a `Retry-After` is added to them. A pause that would
    reach the deadline is not begun: the call ends there. One attempt may take half of the time, so that a connection
    that is dead without a sign leaves the other half for a second one. A request that is not repeatable is sent again
    only where it is certain that it had no effect: it was never sent, or the service itself says so.
    """
    longest = terms.timeout / 2 if request.repeatable else terms.timeout
    bound, attempts = FIRST_PAUSE, 0
    while True:
        attempts += 1
        outcome: Reply | Lost
        try:
            received = yield Attempt(request, terms.deadline, longest)
            assert received is not None  # noqa: S101 - for mypy: nobody sends nothing
            outcome = received
            again, asked = _is_temporary(outcome, request), _retry_after(outcome)
        except Lost as lost:
            outcome = lost
            again, asked = lost.temporary and (request.repeatable or not lost.sent), 0.0
        pause = asked + random.uniform(0.5, 1.0) * bound  # noqa: S311 - so that clients do not come back together
        bound = min(2.0 * bound, LONGEST_PAUSE)
        if not again or attempts > terms.retries or time.monotonic() + pause >= terms.deadline:
            if isinstance(outcome, Reply):
                return outcome
            raise ConnectionError(_no_answer(request, outcome, attempts, terms)) from outcome
        yield Pause(pause)


def _is_temporary(reply: Reply, request: Request) -> bool:
    if reply.status in NOTHING_DONE and _own_error(_json_of(reply)) is not None:
        return True
    return reply.status in TEMPORARY and request.repeatable


def _retry_after(reply: Reply) -> float:
    """The seconds that a reply asks to wait: given as a number, or as a date by the clock of whoever sent it."""
    asked = reply.headers.get("retry-after", "").strip()
    if re.fullmatch(r"\d+(\.\d+)?", asked):
        return float(asked)
    until = _timestamp(asked)
    if until is None:
        return 0.0
    now = _timestamp(reply.headers.get("date", ""))
    return max(until - (time.time() if now is None else now), 0.0)


def _timestamp(date: str) -> float | None:
    try:
        found = email.utils.parsedate_to_datetime(date)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except (IndexError, OverflowError, TypeError, ValueError):
        return None


def _no_answer(request: Request, lost: Lost, attempts: int, terms: Terms) -> str:
    count = "one attempt" if attempts == 1 else f"{attempts} attempts"
    text = f"No answer to {request.method} {request.path} after {count} within {terms.timeout:g} s: {lost}."
    if lost.sent and not request.repeatable:
        text += " Whether it was carried out is not known: look at the experiment before sending it again."
    return text


# Answers


class _Unreadable(Exception):
    """What is wrong with the body of a success."""


def _result(request: Request, reply: Reply, read: Callable[[Mapping[str, Any]], Result]) -> Result:
    """The result that is in a reply; everything but a success is raised."""
    body = _json_of(reply)
    if not 200 <= reply.status < 300 or _own_error(body) is not None:
        raise _error(reply)
    try:
        if not isinstance(body, Mapping):
            raise _Unreadable(f"it is not a JSON object; {_beginning(reply)}")
        return read(body)
    except _Unreadable as problem:
        message = f"The answer to {request.method} {request.path} cannot be read: {problem}."
        raise ServiceError(reply.status, "bad_answer", message, repair=CHECK_URL) from None


def _json_of(reply: Reply) -> Any:
    """The body; None if it is not JSON."""
    try:
        return json.loads(reply.body)
    except (RecursionError, ValueError):
        return None


def _own_error(body: Any, status: int | None = None) -> ServiceError | None:
    """The error in a body, if it has the form of the service; its code says the status where no answer has it."""
    error = body.get("error") if isinstance(body, Mapping) else None
    if not isinstance(error, Mapping) or not isinstance(error.get("code"), str):
        return None
    message, argument, repair = (
        text if isinstance(text := error.get(field), str) else None for field in ("message", "argument", "repair")
    )
    code = error["code"]
    status = status_of(code) if status is None else status
    return ServiceError(status, code, message or "The service gives no reason.", argument, repair)


def _error(reply: Reply) -> ServiceError:
    """What a reply that is no success says, whoever it came from."""
    own = _own_error(_json_of(reply), reply.status)
    if own is not None:
        return own
    try:
        phrase = HTTPStatus(reply.status).phrase
    except ValueError:
        phrase = "Unknown Status"
    code = phrase.lower().replace(" ", "_").replace("-", "_").replace("'", "")
    if 300 <= reply.status < 400:
        place = reprlib.repr(reply.headers.get("location", ""))
        message, repair = f"The url leads to another one, {place}.", "Pass the address of the service itself as url."
    else:
        message, repair = f"This answer is not from the service; {_beginning(reply)}.", CHECK_URL
    return ServiceError(reply.status, code, message, repair=repair)


def _beginning(reply: Reply) -> str:
    text = " ".join(reply.body[:400].decode("utf-8", "replace").split())[:100]
    return f"it begins {text!r}" if text else "it is empty"


def _field(body: Mapping[str, Any], name: str, kind: type[Result]) -> Result:
    value = body.get(name)
    if not isinstance(value, kind):
        raise _Unreadable(f"{name!r} should be a {kind.__name__}; got {reprlib.repr(value)}")
    return value


def _drawn(body: Mapping[str, Any]) -> Drawn:
    id, arm, context = (_field(body, name, str) for name in ("id", "arm", "context"))
    propensity = body.get("propensity")
    if isinstance(propensity, bool) or not isinstance(propensity, int | float) or not 0.0 < propensity <= 1.0:
        raise _Unreadable(f"'propensity' should be a number in (0, 1]; got {reprlib.repr(propensity)}")
    return Drawn(id, arm, float(propensity), context)


def _outcome(body: Mapping[str, Any]) -> str:
    return _field(body, "outcome", str)


def _names(body: Mapping[str, Any]) -> list[str]:
    return [str(name) for name in _field(body, "experiments", list)]


# Requests


def _plain(value: Any) -> Any:
    """The JSON form of what `json` has none for: NumPy's and other numbers, arrays, mappings, iterables."""
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real | Decimal):
        return float(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Iterable) and not isinstance(value, bytes | bytearray):
        return list(value)
    raise TypeError(f"it has no form for {type(value).__name__}")


_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain).encode
_CANNOT_ENCODE = (OverflowError, RecursionError, TypeError, ValueError)


def _encoded(fields: Mapping[str, Any]) -> bytes:
    try:
        return _encode(fields).encode()
    except _CANNOT_ENCODE as problem:
        name, value = next(((name, value) for name, value in fields.items() if not _is_json(value)), (None, fields))
        message = f"{name or 'The call'} cannot be sent as JSON ({problem}); got {reprlib.repr(value)}."
        repair = "Pass finite numbers, strings, and lists and mappings of these."
        raise ServiceError(422, "bad_request", message, name, repair) from None


def _is_json(value: Any) -> bool:
    try:
        return bool(_encode(value).encode())
    except _CANNOT_ENCODE:
        return False


def _refused(argument: str, allowed: str, value: object, repair: str, code: str = "bad_request") -> ServiceError:
    return ServiceError(422, code, f"{argument} must be {allowed}; got {reprlib.repr(value)}.", argument, repair)


def _path(experiment: str, tail: str = "") -> str:
    try:
        if experiment not in ("", ".", ".."):  # which would be another address
            return f"/v1/experiments/{quote(experiment, safe='')}{tail}"
    except (TypeError, ValueError):
        pass
    message = f"experiment must be the name of an experiment; got {reprlib.repr(experiment)}."
    raise ServiceError(
        404, "unknown_experiment", message, "experiment", "Pass one of those that experiments() returns."
    )


def _label(argument: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise _refused(argument, "a string that is not empty", value, "Pass a short name, such as str(value).")
    return value


def _list(argument: str, values: Any) -> list[Any]:
    try:
        if isinstance(values, str | bytes | Mapping):
            raise TypeError
        return list(values)
    except TypeError:
        raise _refused(argument, "a list", values, f"Pass {argument} as a list, even if there is only one.") from None


def _number(argument: str, value: Any) -> float:
    try:
        number = math.nan if isinstance(value, str | bytes | bool | np.bool_) else float(value)
    except (OverflowError, TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        repair = 'Pass a float, or one for every arm by its name: {"ada": 0.2, "ben": 1.0}.'
        raise _refused(argument, "a finite number", value, repair, "bad_reward")
    return number


def _new_id() -> str:
    """As the engine makes them: 96 random bits, after a stamp that keeps ids of one moment together in its index."""
    return f"{(time.time_ns() >> 20) % 2**32:08x}{secrets.token_hex(12)}"


def _decision_fields(context: Any, id: Any, available: Any, deferred: Any) -> dict[str, Any]:
    """A decision without an id gets one, so that another attempt asks for the same decision."""
    return {
        "context": _label("context", context),
        "id": _new_id() if id is None else _label("id", id),
        "available": None if available is None else [_label("available", arm) for arm in _list("available", available)],
        "deferred": deferred,
    }


def _reward_fields(id: Any, reward: Any) -> dict[str, Any]:
    if isinstance(reward, Mapping):
        return {"id": _label("id", id), "reward": {arm: _number("reward", value) for arm, value in reward.items()}}
    return {"id": _label("id", id), "reward": _number("reward", reward)}


def _call(
    terms: Terms,
    method: str,
    path: str,
    read: Callable[[Mapping[str, Any]], Result],
    fields: Mapping[str, Any] | None = None,
    *,
    repeatable: bool = True,
) -> Plan[Result]:
    request = Request(method, path, None if fields is None else _encoded(fields), repeatable)
    reply = yield from _reply(request, terms)
    return _result(request, reply, read)


def create(terms: Terms, name: str, arms: Iterable[str], settings: Mapping[str, Any]) -> Plan[dict[str, Any]]:
    fields = {"name": _label("name", name), "arms": _list("arms", arms), **settings}
    if isinstance(fields.get("groups"), Groups):
        fields["groups"] = vars(fields["groups"])
    return _call(terms, "POST", "/v1/experiments", dict, fields, repeatable=False)


def experiments(terms: Terms) -> Plan[list[str]]:
    return _call(terms, "GET", "/v1/experiments", _names)


def experiment(terms: Terms, name: str) -> Plan[dict[str, Any]]:
    return _call(terms, "GET", _path(name), dict)


def change(terms: Terms, name: str, changes: Mapping[str, Any]) -> Plan[dict[str, Any]]:
    return _call(terms, "PATCH", _path(name), dict, changes, repeatable=False)


def decide(
    terms: Terms, experiment: str, context: str, id: str | None, available: Iterable[str] | None, deferred: bool
) -> Plan[Drawn]:
    fields = _decision_fields(context, id, available, deferred)
    return _call(terms, "POST", _path(experiment, "/decisions"), _drawn, fields)


def reward(terms: Terms, experiment: str, id: str, reward: Reward) -> Plan[str]:
    return _call(terms, "POST", _path(experiment, "/rewards"), _outcome, _reward_fields(id, reward))


def activate(terms: Terms, experiment: str, id: str) -> Plan[str]:
    return _call(terms, "POST", _path(experiment, "/activations"), _outcome, {"id": _label("id", id)})


def decide_many(
    terms: Terms,
    experiment: str,
    contexts: Iterable[str],
    ids: Iterable[str | None] | None,
    available: Iterable[str] | Iterable[Iterable[str] | None] | None,
    deferred: bool | Iterable[bool],
) -> Plan[list[Drawn | Failure]]:
    labels = _list("contexts", contexts)
    arms: Any = None if available is None else _list("available", available)
    if arms is None or all(isinstance(arm, str) for arm in arms):
        arms = [arms] * len(labels)  # the same for all
    columns = {
        "ids": [None] * len(labels) if ids is None else _list("ids", ids),
        "available": arms,
        "deferred": [deferred] * len(labels) if isinstance(deferred, bool | np.bool_) else _list("deferred", deferred),
    }
    for name, column in columns.items():
        if len(column) != len(labels):
            repair = f"There are {len(labels)} contexts."
            raise _refused(name, "as many as contexts", f"{len(column)} of them", repair)
    items = [_item(_decision_fields, *row) for row in zip(labels, *columns.values(), strict=True)]
    return _batch(terms, _path(experiment, "/decisions/batch"), items, _drawn)


def reward_many(terms: Terms, experiment: str, rewards: Iterable[tuple[str, Reward]]) -> Plan[list[str | Failure]]:
    items = [_item(_reward_fields, *_pair(pair)) for pair in _list("rewards", rewards)]
    return _batch(terms, _path(experiment, "/rewards/batch"), items, _outcome)


def download_log(terms: Terms, experiment: str, path: str | os.PathLike[str], format: str) -> Plan[None]:
    """Into a file beside it, which takes its name once it is complete."""
    address = _path(experiment, f"/log?format={quote(str(format), safe='')}")
    with _replaced_at_the_end(Path(os.path.realpath(path))) as file:
        request = Request("GET", address, save_to=file)
        reply = yield from _reply(request, terms)
        if not 200 <= reply.status < 300:
            raise _error(reply)
        if reply.headers.get("content-type", "").startswith("text/html"):
            message = f"The answer to GET {address} is a page, not a log."
            raise ServiceError(reply.status, "bad_answer", message, repair=CHECK_URL)


@contextmanager
def _replaced_at_the_end(path: Path) -> Iterator[BinaryIO]:
    part = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}.part")
    try:
        with part.open("xb") as file:
            yield file
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


# Batches: any number of items, in requests of a size that the service takes

_PLACE = re.compile(r"items\[(\d+)\]\.?(.*)")


def _item(fields: Callable[..., Mapping[str, Any]], *values: Any) -> bytes | ServiceError:
    """An item as JSON, or why it cannot be sent."""
    try:
        return _encoded(fields(*values))
    except ServiceError as problem:
        return problem


def _pair(pair: Any) -> tuple[Any, Any]:
    """An id and a reward; what is not a pair is refused as a reward."""
    try:
        id, reward = [pair] if isinstance(pair, str | bytes) else pair
    except (TypeError, ValueError):
        return "?", pair
    return id, reward


def _batch(
    terms: Terms, path: str, items: Sequence[bytes | ServiceError], read: Callable[[Mapping[str, Any]], Result]
) -> Plan[list[Result | Failure]]:
    """One answer per item, in order; requests are sent one after the other.

    The first request that fails ends it: if nothing was answered before, its failure is raised, otherwise it is the
    answer to its own items and to those that were not sent. Two failures concern single items, and then nothing of the
    request was done: if the service refuses an item while it reads the request (422), the others are sent without it;
    if a request is too long (413), it is sent in halves, down to the item that is too long by itself.
    """
    answers: list[Any] = [item if isinstance(item, ServiceError) else None for item in items]
    waiting = deque(_slices(items))
    answered = False
    while waiting:
        indices = waiting.popleft()
        sent = [item for k in indices if isinstance(item := items[k], bytes)]
        request = Request("POST", path, b'{"items":[%s]}' % b",".join(sent))
        try:
            reply = yield from _reply(request, terms)
            found = _result(request, reply, partial(_items, n=len(indices), read=read))
        except (ServiceError, ConnectionError) as problem:
            refused = _refused_item(problem, len(indices))
            if refused is not None:
                position, error = refused
                answers[indices.pop(position)] = error
                waiting.extendleft([indices] if indices else [])
            elif isinstance(problem, ServiceError) and problem.status == 413:
                half = len(indices) // 2
                waiting.extendleft([indices[half:], indices[:half]])
            elif answered:
                for k in [*indices, *(k for rest in waiting for k in rest)]:
                    answers[k] = problem
                break
            else:
                raise
        else:
            answered = True
            for k, answer in zip(indices, found, strict=True):
                answers[k] = answer
    return answers


def _slices(items: Sequence[bytes | ServiceError]) -> Iterator[list[int]]:
    """The indices of the items of each request."""
    indices, size = list[int](), 0
    for k, item in enumerate(items):
        if isinstance(item, ServiceError):
            continue
        if indices and (len(indices) == BATCH_ITEMS or size + len(item) > BATCH_BYTES):
            yield indices
            indices, size = [], 0
        indices.append(k)
        size += len(item) + 1
    if indices:
        yield indices


def _refused_item(problem: Failure, n: int) -> tuple[int, ServiceError] | None:
    """The position of the item that a request was refused for, and the error as its own."""
    if isinstance(problem, ServiceError) and problem.status == 413 and n == 1:
        return 0, problem
    if not isinstance(problem, ServiceError) or problem.status != 422:
        return None
    place = _PLACE.fullmatch(problem.argument or "")
    if place is None or int(place[1]) >= n:
        return None
    return int(place[1]), ServiceError(422, problem.code, problem.message, place[2] or None, problem.repair)


def _items(body: Mapping[str, Any], n: int, read: Callable[[Mapping[str, Any]], Result]) -> list[Result | ServiceError]:
    found = _field(body, "items", list)
    if len(found) != n:
        raise _Unreadable(f"it has {len(found)} items for {n}")
    return [_item_result(item, read) for item in found]


def _item_result(item: Any, read: Callable[[Mapping[str, Any]], Result]) -> Result | ServiceError:
    error = _own_error(item)
    if error is not None:
        return error
    try:
        if not isinstance(item, Mapping):
            raise _Unreadable(f"it is {reprlib.repr(item)}")
        return read(item)
    except _Unreadable as problem:
        return ServiceError(200, "bad_answer", f"The answer to this item cannot be read: {problem}.", repair=CHECK_URL)
