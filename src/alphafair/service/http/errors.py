"""Errors of the HTTP API: every exception becomes a status and `{"error": {"code", "message", ...}}`, no traceback."""

from __future__ import annotations

import re
from collections.abc import Mapping
from http import HTTPStatus

import msgspec

from alphafair.errors import InvalidArgument, Mismatch, RequestError, Unavailable, Uncertain, encodable
from alphafair_client.api import ErrorAnswer, Problem, status_of

PHRASES = {413: "Request Entity Too Large", 414: "URI Too Long"}  # which Python's versions write differently
FAILED_OUTCOMES = {
    "unknown": ("There is no decision with this id.", "Send the id from the answer to the decision."),
    "conflict": ("This decision already has a different reward.", "The first reward counts; send each reward once."),
    "expired": ("The waiting time of this decision has ended.", "Send rewards sooner, or use a longer reward_wait."),
    "rolled_back": ("This decision was closed by a rollback of the experiment.", "Continue with new decisions."),
}
SEND_AGAIN = "Nothing was written and nothing is lost: send the same request again."
ONCE = "Send the same request again: with the same id it counts once."
LOOK_FIRST = "Before you repeat the change, look whether it was made."
SEE_LOG = "Try again later. The service's log has the details under this answer's request id."
MAX_LENGTH = 600  # characters of a message, an argument or a repair, whatever they quote
_LOCATION = re.compile(r"(?P<message>.*) - at `(key in )?\$\.?(?P<argument>.*)`")


class Failure(Exception):
    """A request that fails, with the answer to send."""

    def __init__(
        self, status: int, problem: Problem, *, outcome: str | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(problem.message)
        error = Problem(problem.code, _cut(problem.message) or "", _cut(problem.argument), _cut(problem.repair))
        self.status, self.answer, self.headers = status, ErrorAnswer(error, outcome), headers or {}
        self.pause = 0.0  # seconds until it is sent, so that who repeats the request at once costs little


def _cut(text: str | None) -> str | None:
    if text is None:
        return None
    return encodable(text if len(text) <= MAX_LENGTH else f"{text[:MAX_LENGTH]}…")


def failure(status: int, code: str, message: str, *, repair: str | None = None, **headers: str) -> Failure:
    """A failure without an argument; underscores in names of headers become dashes."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Failure(status, Problem(code, message, None, repair), headers=named)


def http_failure(status: int, *, repair: str | None = None, headers: Mapping[str, str] | None = None) -> Failure:
    """A failure that HTTP has a phrase for, such as 404 Not Found."""
    phrase = PHRASES.get(status) or HTTPStatus(status).phrase
    return Failure(status, Problem(phrase.lower().replace(" ", "_"), f"{phrase}.", None, repair), headers=headers)


def unknown_method() -> Failure:
    return http_failure(501, repair="See /docs for the methods of each path.")


def outcome_failure(outcome: str) -> Failure | None:
    """The failure for the outcome of a reward or an activation; None for a success."""
    if outcome not in FAILED_OUTCOMES:
        return None
    code, (message, repair) = f"{outcome}_decision", FAILED_OUTCOMES[outcome]
    return Failure(status_of(code), Problem(code, message, "id", repair), outcome=outcome)


def out_of_memory() -> Failure:
    return failure(503, "unavailable", "The service is short of memory.", repair=SEND_AGAIN, retry_after="1")


def as_failure(problem: Exception, *, repeatable: bool = True) -> Failure:
    """The failure for any exception; an unexpected exception becomes 500 without details.

    Where it is not known whether something was written, requests that are `repeatable` get 503, and others 504.
    """
    if isinstance(problem, Failure):
        return problem
    if isinstance(problem, InvalidArgument):
        code = problem.code if isinstance(problem, RequestError) else "bad_request"
        return Failure(status_of(code), Problem(code, str(problem), problem.argument, problem.repair))
    if isinstance(problem, Uncertain) and not repeatable:
        return failure(504, "uncertain", str(problem), repair=LOOK_FIRST, retry_after="1")
    if isinstance(problem, Unavailable | Mismatch):
        repair = ONCE if isinstance(problem, Uncertain) else SEND_AGAIN
        return failure(503, "unavailable", str(problem), repair=repair, retry_after="1")
    if isinstance(problem, MemoryError):
        return out_of_memory()
    if isinstance(problem, msgspec.ValidationError):
        located = _LOCATION.fullmatch(str(problem))
        message, argument = (located["message"], located["argument"] or None) if located else (str(problem), None)
        return Failure(422, Problem("bad_request", message, argument, "See /docs for the expected format."))
    if isinstance(problem, msgspec.DecodeError | UnicodeDecodeError):
        return failure(400, "bad_json", "The body must be JSON in UTF-8.", repair="Send one JSON object.")
    return failure(500, "internal", "An internal error occurred.", repair=SEE_LOG)
