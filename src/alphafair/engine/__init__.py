"""Durable decisions and rewards: an append-only event log in SQLite, and policies whose state follows from it.

Modules are loaded when they are first used: an export, in a process of its own, needs neither policies nor kernels.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from alphafair.errors import Mismatch as Mismatch
from alphafair.errors import PolicyFailed as PolicyFailed
from alphafair.errors import RequestError as RequestError
from alphafair.errors import Unavailable as Unavailable
from alphafair.errors import Uncertain as Uncertain
from alphafair_client.answers import LONGEST_LABEL as LONGEST_LABEL
from alphafair_client.answers import ChangeRecord as ChangeRecord
from alphafair_client.answers import GroupStatus as GroupStatus
from alphafair_client.answers import Outcome as Outcome
from alphafair_client.answers import PeriodStatus as PeriodStatus
from alphafair_client.answers import Receipt as Receipt
from alphafair_client.answers import SlateReceipt as SlateReceipt
from alphafair_client.answers import Status as Status

_NAMES = {
    "engine": ("Engine",),
    "copies": ("copy", "restore"),
    "export": ("ExportJob",),
    "requests": ("Activate", "Decide", "Observe", "Reward"),
    "store.sqlite": ("SqliteStore",),
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names}
_ANSWERS = ("ChangeRecord", "GroupStatus", "Outcome", "PeriodStatus", "Receipt", "SlateReceipt", "Status")
__all__ = [*_NAMES["engine"], *_NAMES["copies"], *sorted([*_ANSWERS, *_NAMES["requests"]])]

if TYPE_CHECKING:
    from alphafair.engine.copies import copy as copy
    from alphafair.engine.copies import restore as restore
    from alphafair.engine.engine import Engine as Engine
    from alphafair.engine.export import ExportJob as ExportJob
    from alphafair.engine.requests import Activate as Activate
    from alphafair.engine.requests import Decide as Decide
    from alphafair.engine.requests import Observe as Observe
    from alphafair.engine.requests import Reward as Reward
    from alphafair.engine.store.sqlite import SqliteStore as SqliteStore


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
