"""The policies, one file per algorithm. To add one, write its file and import it here, in the order of tables."""
# ruff: noqa: I001 - not sorted: this is the order of every table and figure

from collections.abc import Mapping
from typing import Any

from alphafair.errors import InvalidArgument
from alphafair import validate
from alphafair.policy.base import BasePolicy as BasePolicy
from alphafair.policy import archive
from alphafair.policy.archive import check_kind, check_state, live_of
from alphafair.values import State

from alphafair.algorithms.alpha_fair_adaptive import AlphaFairAdaptive as AlphaFairAdaptive
from alphafair.algorithms.alpha_fair import AlphaFair as AlphaFair
from alphafair.algorithms.alpha_fair_bandit import AlphaFairBandit as AlphaFairBandit
from alphafair.algorithms.independent_alpha_fair import IndependentAlphaFair as IndependentAlphaFair
from alphafair.algorithms.scale_free import ScaleFree as ScaleFree
from alphafair.algorithms.hedge import Hedge as Hedge
from alphafair.algorithms.fair_cb import FairCB as FairCB
from alphafair.algorithms.uniform import Uniform as Uniform

CLASSES: dict[str, type[BasePolicy]] = {
    name: kind
    for name, kind in [*vars().items()]
    if isinstance(kind, type) and issubclass(kind, BasePolicy) and kind is not BasePolicy
}
POLICIES: dict[str, type[BasePolicy]] = {}


def register(kind: type[BasePolicy]) -> type[BasePolicy]:
    """Make a policy available by its name to everything that lists, plots or loads policies; also a decorator."""
    if not isinstance(kind, type) or not issubclass(kind, BasePolicy):
        raise InvalidArgument("kind", "a class derived from BasePolicy", kind, "Pass the class itself.")
    known = POLICIES.get(kind.name)
    if known is not None and known is not kind:
        repair = "Choose another name."
        raise InvalidArgument("kind.name", f"different from the name of {known.__name__}", kind.name, repair)
    POLICIES[kind.name] = kind
    return kind


for _kind in CLASSES.values():
    register(_kind)


def load_policy(state: State) -> BasePolicy:
    """Build the policy of a snapshot, with everything that it had learned.

    >>> from alphafair import AlphaFair, State, load_policy
    >>> policy = AlphaFair(n_contexts=2, n_arms=3, alpha=0.5, seed=1)
    >>> blob = policy.snapshot().to_bytes()
    >>> load_policy(State.from_bytes(blob))
    AlphaFair(2, 3, alpha=0.5)
    """
    check_state(state)
    kind = POLICIES[validate.choice("state.policy", state.policy, POLICIES)]
    state = archive.of_this_version(kind, state)
    check_kind(state, kind.name, kind._version)
    settings, live = dict(state.settings), live_of(state)
    n_contexts, _ = settings.pop("n_contexts", None), settings.pop("n_arms")
    try:
        first = n_contexts if _weighs_contexts(settings) else 1
        policy: BasePolicy = archive.build(kind, first, live, settings, None)
    except TypeError as problem:
        raise InvalidArgument(
            "state.settings", f"the settings of {kind.__name__}", settings, f"The snapshot is damaged: {problem}."
        ) from None
    policy.restore(state)
    return policy


def _weighs_contexts(settings: Mapping[str, Any]) -> bool:
    """Whether the settings of a policy, or of the one inside it, fit one number of contexts only."""
    inside = settings.get("inside")
    return settings.get("context_weights") is not None or (isinstance(inside, Mapping) and _weighs_contexts(inside))
