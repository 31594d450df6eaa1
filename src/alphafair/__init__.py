"""alphafair: online decisions that are fair over time, with a guarantee."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# The room each public name lives in; nothing loads before it is used.
_ROOMS = {
    "AlphaFair": "policies",
    "AlphaFairBandit": "policies",
    "IndependentAlphaFair": "policies",
    "ScaleFree": "policies",
    "Hedge": "policies",
    "FairCB": "policies",
    "Uniform": "policies",
    "POLICIES": "policies",
    "load_policy": "policies",
    "Decision": "types",
    "Feedback": "types",
    "Policy": "types",
    "State": "types",
    "Stream": "types",
    "Trace": "types",
    "simulate": "simulation",
    "offline_optimum": "offline",
    "offline_curve": "offline",
    "rescale_rewards": "rewards",
    "Refusal": "validate",
}
_MODULES = ("checks", "data", "figures", "metrics", "policies", "streams", "types")

__all__ = [  # noqa: RUF022 - in the order a reader meets them
    "AlphaFair",
    "AlphaFairBandit",
    "IndependentAlphaFair",
    "ScaleFree",
    "Hedge",
    "FairCB",
    "Uniform",
    "POLICIES",
    "load_policy",
    "Decision",
    "Feedback",
    "Policy",
    "State",
    "Stream",
    "Trace",
    "simulate",
    "offline_optimum",
    "offline_curve",
    "rescale_rewards",
    "Refusal",
    "checks",
    "data",
    "figures",
    "metrics",
    "policies",
    "streams",
    "types",
    "__version__",
]

if TYPE_CHECKING:
    from alphafair import checks, data, figures, metrics, policies, streams, types
    from alphafair.offline import offline_curve, offline_optimum
    from alphafair.policies import (
        POLICIES,
        AlphaFair,
        AlphaFairBandit,
        FairCB,
        Hedge,
        IndependentAlphaFair,
        ScaleFree,
        Uniform,
        load_policy,
    )
    from alphafair.rewards import rescale_rewards
    from alphafair.simulation import simulate
    from alphafair.types import Decision, Feedback, Policy, State, Stream, Trace
    from alphafair.validate import Refusal


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        value = getattr(importlib.import_module(f"alphafair.{_ROOMS[name]}"), name)
    elif name in _MODULES:
        value = importlib.import_module(f"alphafair.{name}")
    else:
        raise AttributeError(f"module 'alphafair' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
