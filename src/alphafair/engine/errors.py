"""What can go wrong, beside arguments that are refused."""

from __future__ import annotations

from alphafair.validate import Refusal

REPAIR = (
    "Nothing is lost and rewards are still written down: roll the experiment back to a position before, or mend the "
    "policy and open the file again."
)


class Refused(Refusal):
    """A request that was not accepted: `code` says why in one word, the rest is as in every `Refusal`."""

    def __init__(self, code: str, argument: str, allowed: str, value: object, repair: str) -> None:
        super().__init__(argument, allowed, value, repair)
        self.args = (code, argument, allowed, value, repair)
        self.code = code


class PolicyFailed(Refused):
    """A policy raised an error, or what it gave is no distribution; requests of other experiments are served."""

    def __init__(self, experiment: str, reason: str) -> None:
        super().__init__("policy_failed", "experiment", "one whose policy works", experiment, REPAIR)
        self.args = (experiment, reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"The policy of {self.value} failed: {self.reason}. {self.repair}"


class Unavailable(OSError):
    """The file cannot be used just now. Nothing was acknowledged, so asking again is safe."""


class Mismatch(Exception):
    """What the log says and what it leads to differ: the file was changed by another hand, or is damaged."""
