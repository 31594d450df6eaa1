"""Send the requests of a client: attempts and pauses, answers and errors, and batches of any number of items.

All of it is generators, which yield what to send and how long to pause, and receive the replies: see `client`.
"""

from __future__ import annotations

import email.utils
import functools
import json
import numbers
import random
import re
import reprlib
import secrets
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from datetime import UTC
from decimal import Decimal
from http import HTTPStatus
from typing import Any, NamedTuple, TypeVar, get_args
from urllib.parse import quote

import msgspec

from alphafair_client.answers import ServiceError, SlateReceipt
from alphafair_client.api import JSON_FORMS, Endpoint, status_of
from alphafair_client.http import HttpRequest, Lost, Reply

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0  # seconds
BATCH_ITEMS, BATCH_BYTES = 1000, 500_000  # of one request; the service accepts 1,000 items and by default 1 MB
NOTHING_DONE = (429, 503)  # statuses with which the service says that it has done nothing
TEMPORARY = (408, 429, 502, 503, 504)  # statuses after which another attempt may succeed, whoever sent them
CHECK_URL = "Check the url, and any proxy between this program and the service."

Result = TypeVar("Result")


class Attempt(NamedTuple):
    """Send a request: wait for a connection until the deadline, then at most `longest` seconds for the reply."""

    request: HttpRequest
    deadline: float
    longest: float


class Pause(NamedTuple):
    seconds: float


class Terms(NamedTuple):
    """How long a call may take, its deadline (of `time.monotonic`), and how often it may be repeated."""

    timeout: float
    deadline: float
    retries: int


Call = Generator[Attempt | Pause, Reply | None, Result]


# sending, and sending again


def call(
    terms: Terms, endpoint: Endpoint, body: Mapping[str, Any] | None = None, *, query: str = "", **parameters: str
) -> Call[Any]:
    """Send a request to an endpoint, and read its answer as the type in the table."""
    sent = None if body is None else encoded(body)
    request = HttpRequest(endpoint.method, path_to(endpoint, parameters) + query, sent, endpoint.repeatable)
    reply = yield from reply_to(request, terms)
    return result_of(request, reply, endpoint.answer)


def reply_to(request: HttpRequest, terms: Terms) -> Call[Reply]:
    """The reply to a request, after as many attempts as needed and allowed.

    Pauses double from 50 ms to 2 s and are shortened at random; a `Retry-After` is added to them. A pause that would
    reach the deadline is not started: the call ends there. One attempt of a repeatable request may take half of the
    time, so that a silently dead connection leaves time for another one. Any other request is sent again only if it
    certainly had no effect: it was never sent, or the service itself says so.
    """
    longest = terms.timeout / 2 if request.repeatable else terms.timeout
    bound, attempts = FIRST_PAUSE, 0
    while True:
        attempts += 1
        outcome: Reply | Lost
        try:
            received = yield Attempt(request, terms.deadline, longest)
            assert received is not None  # noqa: S101 - for mypy
            outcome = received
            again, asked = _is_temporary(outcome, request), retry_after(outcome)
        except Lost as lost:
            outcome = lost
            again, asked = lost.temporary and (request.repeatable or not lost.sent), 0.0
        pause = asked + random.uniform(0.5, 1.0) * bound  # noqa: S311 - so that clients do not return together
        bound = min(2.0 * bound, LONGEST_PAUSE)
        if not again or attempts > terms.retries or time.monotonic() + pause >= terms.deadline:
            if isinstance(outcome, Reply):
                return outcome
            raise ConnectionError(_no_answer(request, outcome, attempts, terms)) from outcome
        yield Pause(pause)


def _is_temporary(reply: Reply, request: HttpRequest) -> bool:
    if reply.status in NOTHING_DONE and _service_error(_json_of(reply)) is not None:
        return True
    return reply.status in TEMPORARY and request.repeatable


def retry_after(reply: Reply) -> float:
    """The seconds to wait that a reply asks for: a number, or a date by the sender's clock."""
    asked = reply.headers.get("retry-after", "").strip()
    if re.fullmatch(r"[0-9]+(\.[0-9]+)?", asked):
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


def _no_answer(request: HttpRequest, lost: Lost, attempts: int, terms: Terms) -> str:
    count = "one attempt" if attempts == 1 else f"{attempts} attempts"
    text = f"No answer to {request.method} {request.path} after {count} within {terms.timeout:g} s: {lost}."
    if lost.sent and not request.repeatable:
        text += " Whether it was carried out is unknown: check the experiment before sending it again."
    return text


# answers


def result_of(request: HttpRequest, reply: Reply, kind: Any) -> Any:
    """The answer in a reply as a value of `kind`; everything but a success is raised."""
    body = _json_of(reply)
    if not 200 <= reply.status < 300 or _service_error(body) is not None:
        raise error_of(reply)
    try:
        return _value(body, kind)
    except msgspec.ValidationError as problem:
        reason = f"{problem}; {_beginning(reply)}"
        message = f"The answer to {request.method} {request.path} cannot be read: {reason}."
        raise ServiceError(reply.status, "bad_answer", message, repair=CHECK_URL) from None


def _value(body: Any, kind: Any) -> Any:
    """JSON as a message or a value of the engine; unknown fields are ignored."""
    if members := get_args(kind):  # receipts are told apart by their fields
        known = set(body) if isinstance(body, Mapping) else set()
        kind = next((each for each in members if known.issuperset(_required(each))), members[0])
    form = JSON_FORMS.get(kind)
    if form is not None and kind is SlateReceipt:
        found: Any = msgspec.convert(body, form)
        return SlateReceipt(found.id, tuple(found.arms), tuple(found.propensities), found.context)
    return msgspec.convert(body, kind) if form is None else kind(*msgspec.structs.astuple(msgspec.convert(body, form)))


@functools.cache
def _required(kind: type) -> frozenset[str]:
    """The fields that the JSON form of a value always has."""
    return frozenset(field.name for field in msgspec.structs.fields(JSON_FORMS[kind]) if field.required)


def _json_of(reply: Reply) -> Any:
    """The body; None if it is not JSON."""
    try:
        return json.loads(reply.body)
    except (RecursionError, ValueError):
        return None


def _service_error(body: Any, status: int | None = None) -> ServiceError | None:
    """Return the error in a body of the service, or None; without a status, it is inferred from the code."""
    error = body.get("error") if isinstance(body, Mapping) else None
    if not isinstance(error, Mapping) or not isinstance(error.get("code"), str):
        return None
    message, argument, repair = (
        text if isinstance(text := error.get(field), str) else None for field in ("message", "argument", "repair")
    )
    code = error["code"]
    status = status_of(code) if status is None else status
    return ServiceError(status, code, message or "The service gives no reason.", argument, repair)


def error_of(reply: Reply) -> ServiceError:
    """The error for a reply that is not a success, whoever sent it."""
    own = _service_error(_json_of(reply), reply.status)
    if own is not None:
        return own
    try:
        phrase = HTTPStatus(reply.status).phrase
    except ValueError:
        phrase = "Unknown Status"
    code = phrase.lower().replace(" ", "_").replace("-", "_").replace("'", "")
    if 300 <= reply.status < 400:
        place = reprlib.repr(reply.headers.get("location", ""))
        message, repair = f"The url redirects to {place}.", "Pass the address of the service itself as url."
    else:
        message, repair = f"This answer is not from the service; {_beginning(reply)}.", CHECK_URL
    return ServiceError(reply.status, code, message, repair=repair)


def _beginning(reply: Reply) -> str:
    text = " ".join(reply.body[:400].decode("utf-8", "replace").split())[:100]
    return f"it begins with {text!r}" if text else "it is empty"


# requests


def _plain(value: Any) -> Any:
    """The JSON form of values that `json` does not know: numbers and arrays of NumPy, mappings, iterables."""
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
    raise TypeError(f"{type(value).__name__} has no JSON form")


_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain).encode
_CANNOT_ENCODE = (OverflowError, RecursionError, TypeError, ValueError)


def encoded(fields: Mapping[str, Any]) -> bytes:
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


def invalid(argument: str, allowed: str, value: object, repair: str, code: str = "bad_request") -> ServiceError:
    return ServiceError(422, code, f"{argument} must be {allowed}; got {reprlib.repr(value)}.", argument, repair)


def path_to(endpoint: Endpoint, parameters: Mapping[str, Any]) -> str:
    for name in parameters.values():
        try:
            if name in ("", ".", ".."):  # which would be another address
                raise ValueError
            return endpoint.path.format(name=quote(name, safe=""))
        except (TypeError, ValueError):
            message = f"experiment must be the name of an experiment; got {reprlib.repr(name)}."
            repair = "Pass one of the names that experiments() returns."
            raise ServiceError(404, "unknown_experiment", message, "experiment", repair) from None
    return endpoint.path


def new_id() -> str:
    """An id like the engine's: 96 random bits after a time stamp, so that new ids are close together in its index."""
    return f"{(time.time_ns() >> 20) % 2**32:08x}{secrets.token_hex(12)}"


# batches: any number of items, in requests of a size that the service accepts

_LOCATION = re.compile(r"items\[([0-9]+)\]\.?(.*)")


def item(fields: Callable[..., Mapping[str, Any]], *values: Any) -> bytes | ServiceError:
    """An item as JSON, or why it cannot be sent."""
    try:
        return encoded(fields(*values))
    except ServiceError as problem:
        return problem


def batch(
    terms: Terms, endpoint: Endpoint, experiment: str, items: Sequence[bytes | ServiceError], kind: Any
) -> Call[list[Any]]:
    """One result per item, in order; requests are sent one after the other.

    The first request that fails ends it: if nothing was answered before, its failure is raised; otherwise it is the
    result of its own items and of those that were not sent. Two failures concern single items, and nothing of the
    request was done: if the service rejects an item while it reads the request (422), the others are sent without it;
    if a request is too long (413), it is sent in halves, down to the item that is too long by itself.
    """
    path = path_to(endpoint, {"name": experiment})
    results: list[Any] = [item if isinstance(item, ServiceError) else None for item in items]
    waiting = deque(slices(items))
    answered = False
    while waiting:
        indices = waiting.popleft()
        sent = [each for k in indices if isinstance(each := items[k], bytes)]
        request = HttpRequest(endpoint.method, path, b'{"items":[%s]}' % b",".join(sent), endpoint.repeatable)
        try:
            reply = yield from reply_to(request, terms)
            found = _item_results(request, reply, len(indices), kind)
        except (ServiceError, ConnectionError) as problem:
            rejected = _rejected_item(problem, len(indices))
            if rejected is not None:
                position, error = rejected
                results[indices.pop(position)] = error
                waiting.extendleft([indices] if indices else [])
            elif isinstance(problem, ServiceError) and problem.status == 413:
                half = len(indices) // 2
                waiting.extendleft([indices[half:], indices[:half]])
            elif answered:
                for k in [*indices, *(k for rest in waiting for k in rest)]:
                    results[k] = problem
                break
            else:
                raise
        else:
            answered = True
            for k, result in zip(indices, found, strict=True):
                results[k] = result
    return results


def slices(items: Sequence[bytes | ServiceError]) -> Iterator[list[int]]:
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


def _rejected_item(problem: ServiceError | ConnectionError, n: int) -> tuple[int, ServiceError] | None:
    """The position of the item that a request was rejected for, and the error as its own."""
    if isinstance(problem, ServiceError) and problem.status == 413 and n == 1:
        return 0, problem
    if not isinstance(problem, ServiceError) or problem.status != 422:
        return None
    place = _LOCATION.fullmatch(problem.argument or "")
    if place is None or int(place[1]) >= n:
        return None
    return int(place[1]), ServiceError(422, problem.code, problem.message, place[2] or None, problem.repair)


class _Items(msgspec.Struct):
    """The answer to a batch, before its items are read one by one."""

    items: list[Any]


def _item_results(request: HttpRequest, reply: Reply, n: int, kind: Any) -> list[Any]:
    items = result_of(request, reply, _Items).items
    if len(items) != n:
        message = f"The answer to {request.method} {request.path} has {len(items)} items for {n}."
        raise ServiceError(reply.status, "bad_answer", message, repair=CHECK_URL)
    return [_item_result(item, kind) for item in items]


def _item_result(item: Any, kind: Any) -> Any:
    error = _service_error(item)
    if error is not None:
        return error
    try:
        return _value(item, kind)
    except msgspec.ValidationError as problem:
        return ServiceError(200, "bad_answer", f"The answer to this item cannot be read: {problem}.", repair=CHECK_URL)
