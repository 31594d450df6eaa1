"""Every error in the one form: what went wrong, with which argument, what to do about it; never a stack trace."""

from __future__ import annotations

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import msgspec
from litestar.exceptions import HTTPException

from alphafair.engine import Mismatch, RequestError, Unavailable
from alphafair.errors import InvalidArgument
from alphafair.service.codes import status_of
from alphafair.service.messages import ErrorAnswer, Problem

LOST = {
    "unknown": ("There is no such decision here.", "Send the id that the decision was answered with."),
    "conflict": ("Another reward was booked for this decision.", "The first one stands; send each reward once."),
    "expired": ("The waiting time of this decision is over.", "Send rewards sooner, or raise reward_wait."),
    "rolled_back": ("A rollback of the experiment has closed this decision.", "Go on with new decisions."),
}
OVERSIGHT = "Try again later; whoever runs the service finds the request id of this answer in its log."
LONGEST = 600  # characters of a message, an argument or a repair
_PLACE = re.compile(r"(?P<what>.*) - at `(key in )?\$\.?(?P<where>.*)`")


class Failure(Exception):
    """A request that is not served, with the answer it gets."""

    def __init__(
        self, status: int, problem: Problem, *, outcome: str | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(problem.message)
        error = Problem(problem.code, *map(_cut, (problem.message, problem.argument, problem.repair)))
        self.status, self.answer, self.headers = status, ErrorAnswer(error, outcome), headers or {}


def _cut(text: Any) -> Any:
    """What is no longer than any sentence of ours, whatever of the caller's stands in it."""
    return text if text is None or len(text) <= LONGEST else f"{text[:LONGEST]}…"


def failure(status: int, code: str, message: str, *, repair: str | None = None, **headers: str) -> Failure:
    """One without an argument to blame; headers are written with underscores."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Failure(status, Problem(code, message, None, repair), headers=named)


def as_failure(problem: Exception) -> Failure:
    """What a client is told about an exception; one that nobody expected is told nothing about."""
    if isinstance(problem, Failure):
        return problem
    if isinstance(problem, InvalidArgument):
        code = problem.code if isinstance(problem, RequestError) else "bad_request"
        return Failure(status_of(code), Problem(code, str(problem), problem.argument, problem.repair))
    if isinstance(problem, Unavailable | Mismatch):
        repair = "Nothing was written and nothing is lost: send the same again."
        return failure(503, "unavailable", str(problem), repair=repair, retry_after="1")
    if isinstance(problem, MemoryError):
        return no_memory()
    if isinstance(problem, msgspec.ValidationError):
        said = _PLACE.fullmatch(str(problem))
        what, where = (said["what"], said["where"] or None) if said else (str(problem), None)
        return Failure(422, Problem("bad_request", what, where, "See /docs for what is expected here."))
    if isinstance(problem, msgspec.DecodeError | UnicodeDecodeError):
        return failure(400, "bad_json", "The body is no JSON in UTF-8.", repair="Send one JSON object.")
    if isinstance(problem, HTTPException) and problem.status_code < 500:
        cause = problem.__cause__  # what a body is refused for is told in the same words with and without the framework
        if isinstance(cause, msgspec.ValidationError | msgspec.DecodeError):
            return as_failure(cause)
        return http_failure(problem.status_code, headers=problem.headers)
    return failure(500, "internal", "Something went wrong here.", repair=OVERSIGHT)


def no_memory() -> Failure:
    """What a client is told where there is too little memory to read its request or to answer it."""
    repair = "Nothing was written and nothing is lost: send the same again."
    return failure(503, "unavailable", "There is too little memory.", repair=repair, retry_after="1")


def http_failure(status: int, *, repair: str | None = None, headers: Mapping[str, str] | None = None) -> Failure:
    """What HTTP has a phrase for: no such page, not this method, too much."""
    phrase = HTTPStatus(status).phrase
    return Failure(status, Problem(phrase.lower().replace(" ", "_"), f"{phrase}.", None, repair), headers=headers)


def lost(outcome: str) -> Failure | None:
    """The failure that an outcome is, if it is one."""
    if outcome not in LOST:
        return None
    code, (message, repair) = f"{outcome}_decision", LOST[outcome]
    return Failure(status_of(code), Problem(code, message, "id", repair), outcome=outcome)
