"""Every error that this package raises on purpose."""

from __future__ import annotations

from alphafair_client.answers import InvalidArgument as InvalidArgument
from alphafair_client.answers import shown as shown

REPAIR = (
    "Nothing is lost, and rewards are still stored: roll the experiment back to an earlier position, or repair the "
    "policy and open the file again."
)


def encodable(text: str) -> str:
    """Return a text that UTF-8 can hold: half a pair of surrogates becomes an escape."""
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()


class RequestError(InvalidArgument):
    """A request to an engine that was rejected; `code` is the reason in one word."""

    def __init__(self, code: str, argument: str, allowed: str, value: object, repair: str) -> None:
        super().__init__(argument, allowed, value, repair)
        self.args = (code, argument, allowed, value, repair)
        self.code = code


class PolicyFailed(RequestError):
    """The policy of an experiment raised an error or returned an invalid distribution. Other experiments go on."""

    def __init__(self, experiment: str, reason: str) -> None:
        super().__init__("policy_failed", "experiment", "one whose policy works", experiment, REPAIR)
        self.args = (experiment, reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"The policy of {self.value} failed: {self.reason}. {self.repair}"


class Unavailable(OSError):
    """The database cannot be used at the moment. Nothing was acknowledged, so retrying is safe."""


class Uncertain(Unavailable):
    """It is unknown whether a request was carried out, or known that it was, and something failed afterwards.

    The database was lost while it was written to, for example. A decision, a reward or an activation may be sent again
    with the same id, and counts once.
    """


class Mismatch(Exception):
    """The event log and what follows from it differ: the file was changed by another program, or is damaged."""


class WorkerFailed(RuntimeError):
    """The workers of an executor cannot be used: they run other code, or die again and again."""


class MissingExtra(ImportError):
    """A function or command whose optional dependency is not installed; the message has the command that installs it.

    >>> print(MissingExtra("alphafair.figures", "matplotlib", "lab"))
    alphafair.figures needs matplotlib: pip install 'alphafair[lab]'
    """

    def __init__(self, user: str, package: str, extra: str) -> None:
        super().__init__(f"{user} needs {package}: pip install 'alphafair[{extra}]'", name=package)
        self.extra = extra
