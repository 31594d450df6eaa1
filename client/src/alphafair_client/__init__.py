"""Clients of the alphafair service: h11, msgspec and the standard library, without NumPy."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "1.1.0"  # of alphafair as well

_NAMES = {
    "client": ("Client", "AsyncClient"),
    "answers": (
        "ServiceError",
        "InvalidArgument",
        "Receipt",
        "SlateReceipt",
        "Outcome",
        "Status",
        "PeriodStatus",
        "GroupStatus",
        "ChangeRecord",
    ),
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names}
__all__ = [*_HOMES, "__version__"]

if TYPE_CHECKING:
    from alphafair_client.answers import ChangeRecord as ChangeRecord
    from alphafair_client.answers import GroupStatus as GroupStatus
    from alphafair_client.answers import InvalidArgument as InvalidArgument
    from alphafair_client.answers import Outcome as Outcome
    from alphafair_client.answers import PeriodStatus as PeriodStatus
    from alphafair_client.answers import Receipt as Receipt
    from alphafair_client.answers import ServiceError as ServiceError
    from alphafair_client.answers import SlateReceipt as SlateReceipt
    from alphafair_client.answers import Status as Status
    from alphafair_client.client import AsyncClient as AsyncClient
    from alphafair_client.client import Client as Client


def __getattr__(name: str) -> Any:
    """Import a module when one of its names is first used: the engine needs the values alone."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
