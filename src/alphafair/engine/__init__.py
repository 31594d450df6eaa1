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

_NAMES = {
    "engine": ("Engine",),
    "copies": ("copy", "restore"),
    "export": ("ExportJob",),
    "experiment": ("LONGEST_LABEL",),
    "requests": (
        "Activate",
        "ChangeRecord",
        "Decide",
        "GroupStatus",
        "Outcome",
        "PeriodStatus",
        "Receipt",
        "Reward",
        "Status",
    ),
    "store.sqlite": ("SqliteStore",),
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names}
__all__ = [*_NAMES["engine"], *_NAMES["copies"], *_NAMES["requests"]]

if TYPE_CHECKING:
    from alphafair.engine.copies import copy as copy
    from alphafair.engine.copies import restore as restore
    from alphafair.engine.engine import Engine as Engine
    from alphafair.engine.experiment import LONGEST_LABEL as LONGEST_LABEL
    from alphafair.engine.export import ExportJob as ExportJob
    from alphafair.engine.requests import Activate as Activate
    from alphafair.engine.requests import ChangeRecord as ChangeRecord
    from alphafair.engine.requests import Decide as Decide
    from alphafair.engine.requests import GroupStatus as GroupStatus
    from alphafair.engine.requests import Outcome as Outcome
    from alphafair.engine.requests import PeriodStatus as PeriodStatus
    from alphafair.engine.requests import Receipt as Receipt
    from alphafair.engine.requests import Reward as Reward
    from alphafair.engine.requests import Status as Status
    from alphafair.engine.store.sqlite import SqliteStore as SqliteStore


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
