"""alphafair: online decisions that are fair over time, with a guarantee."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from alphafair_client import __version__ as __version__

# Public names by module, in the order of the documentation; a module is imported when one of its names is first used.
# Every policy class of `alphafair.algorithms` is a name of this package too.
_NAMES = {
    "algorithms": ("POLICIES", "BasePolicy", "register", "load_policy"),
    "groups": ("Groups",),
    "values": (
        "Decision",
        "DescribedDecision",
        "Feedback",
        "Log",
        "Policy",
        "SlateDecision",
        "State",
        "Stream",
        "Trace",
    ),
    "run": ("simulate", "simulate_all", "simulate_against"),
    "offline": (
        "offline_optimum",
        "offline_curve",
        "offline_welfare_curve",
        "context_reward_totals",
        "present_arms",
        "CertificateWarning",
    ),
    "preprocessing": ("rescale_rewards",),
    "engine": ("Engine",),
    "errors": ("InvalidArgument",),
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names}
# `import *` omits the clients, which few programs need beside an engine, and `figures`, which needs an extra.
_CLIENTS = ("Client", "AsyncClient", "ServiceError")
_MODULES = (
    "checks",
    "data",
    "engine",
    "errors",
    "evaluation",
    "executors",
    "extend",
    "figures",
    "metrics",
    "preprocessing",
    "run",
    "streams",
    "values",
)

if TYPE_CHECKING:
    from alphafair import checks as checks
    from alphafair import data as data
    from alphafair import engine as engine
    from alphafair import evaluation as evaluation
    from alphafair import executors as executors
    from alphafair import extend as extend
    from alphafair import figures as figures
    from alphafair import metrics as metrics
    from alphafair import preprocessing as preprocessing
    from alphafair import run as run
    from alphafair import streams as streams
    from alphafair import values as values
    from alphafair.algorithms import *
    from alphafair.engine import Engine as Engine
    from alphafair.errors import InvalidArgument as InvalidArgument
    from alphafair.groups import Groups as Groups
    from alphafair.offline import CertificateWarning as CertificateWarning
    from alphafair.offline import context_reward_totals as context_reward_totals
    from alphafair.offline import offline_curve as offline_curve
    from alphafair.offline import offline_optimum as offline_optimum
    from alphafair.offline import offline_welfare_curve as offline_welfare_curve
    from alphafair.offline import present_arms as present_arms
    from alphafair.preprocessing import rescale_rewards as rescale_rewards
    from alphafair.run import simulate as simulate
    from alphafair.run import simulate_against as simulate_against
    from alphafair.run import simulate_all as simulate_all
    from alphafair.values import Decision as Decision
    from alphafair.values import DescribedDecision as DescribedDecision
    from alphafair.values import Feedback as Feedback
    from alphafair.values import Log as Log
    from alphafair.values import Policy as Policy
    from alphafair.values import SlateDecision as SlateDecision
    from alphafair.values import State as State
    from alphafair.values import Stream as Stream
    from alphafair.values import Trace as Trace
    from alphafair_client import AsyncClient as AsyncClient
    from alphafair_client import Client as Client
    from alphafair_client import ServiceError as ServiceError


def __getattr__(name: str) -> Any:
    if name == "__all__":
        value: Any = [*_module("algorithms").CLASSES, *_HOMES, *_MODULES, "__version__"]
        value.remove("figures")
    elif name in _HOMES:
        value = getattr(_module(_HOMES[name]), name)
    elif name in _CLIENTS:
        value = getattr(importlib.import_module("alphafair_client"), name)
    elif name in _MODULES:
        value = _module(name)
    elif name[:1].isupper() and name in _module("algorithms").CLASSES:  # module names are lower case
        value = _module("algorithms").CLASSES[name]
    else:
        raise AttributeError(f"module 'alphafair' has no attribute {name!r}")
    globals()[name] = value
    return value


def _module(name: str) -> Any:
    return importlib.import_module(f"alphafair.{name}")


def __dir__() -> list[str]:
    return sorted(__getattr__("__all__"))
