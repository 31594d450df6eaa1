"""What can go wrong, beside arguments that are refused."""

from __future__ import annotations

from alphafair.validate import Refusal


class Refused(Refusal):
    """A request that was not accepted: `code` says why in one word, the rest is as in every `Refusal`."""

    def __init__(self, code: str, argument: str, allowed: str, value: object, repair: str) -> None:
        super().__init__(argument, allowed, value, repair)
        self.args = (code, argument, allowed, value, repair)
        self.code = code


class Unavailable(OSError):
    """The file cannot be used just now. Nothing was acknowledged, so asking again is safe."""


class Mismatch(Exception):
    """What the log says and what it leads to differ: the file was changed by another hand, or is damaged."""
