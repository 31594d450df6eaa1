"""The policies. To add one: write its file, then add its line here; everything else finds it."""

from __future__ import annotations

from alphafair import validate
from alphafair.policies.alpha_fair import AlphaFair
from alphafair.policies.alpha_fair_bandit import AlphaFairBandit
from alphafair.policies.base import BasePolicy
from alphafair.policies.fair_cb import FairCB
from alphafair.policies.hedge import Hedge
from alphafair.policies.independent_alpha_fair import IndependentAlphaFair
from alphafair.policies.scale_free import ScaleFree
from alphafair.policies.uniform import Uniform
from alphafair.types import State

POLICIES: dict[str, type[BasePolicy]] = {
    policy.name: policy
    for policy in (
        AlphaFair,
        AlphaFairBandit,
        IndependentAlphaFair,
        ScaleFree,
        Hedge,
        FairCB,
        Uniform,
    )
}


def load_policy(state: State) -> BasePolicy:
    """The policy that a snapshot belongs to, with all that it had learned."""
    kind = POLICIES[validate.choice("state.policy", state.policy, POLICIES)]
    settings = {key: value for key, value in state.settings.items() if key != "uniforms"}
    try:
        policy = kind(**settings)
    except TypeError as problem:
        raise validate.Refusal(
            "state.settings", f"those of {kind.__name__}", settings, f"The snapshot is damaged: {problem}."
        ) from None
    policy.restore(state)
    return policy


__all__ = [
    "POLICIES",
    "AlphaFair",
    "AlphaFairBandit",
    "BasePolicy",
    "FairCB",
    "Hedge",
    "IndependentAlphaFair",
    "ScaleFree",
    "Uniform",
    "load_policy",
]
