"""What a policy shows: what its users need, and what is true of its class in two values."""

import inspect
from typing import Any

from alphafair import POLICIES, AlphaFairAdaptive
from alphafair.algorithms import Hedge
from alphafair.lab.plan import KINDS

FACTS = {
    "name",
    "feedback",
    "n_contexts",
    "n_arms",
    "n_features",
    "feature_shape",
    "alpha",
    "groups",
    "settings",
    "seed",
}
PERIOD = {"period", "period_rewards", "entry_accounts"}
LEARNED = {
    "accounts",
    "cumulative_rewards",
    "live_arms",
    *PERIOD,
    "surrogate_regret_bound",
    "expected_surrogate_regret_bound",
    "most_shown",
    "trust",
    "learns_from_others",
}
DOES = {
    "probabilities",
    "choose",
    "update",
    "expect",
    "forgo",
    "observe",
    "observe_log",
    "grow",
    "retire",
    "set_alpha",
    "set_groups",
    "new_period",
}
KEEPS = {"snapshot", "restore", "fresh"}
OF_ITS_CLASS = {"traits", "algorithm", "welfare_algorithm"}
RUNS_IT = {"stepper"}
SIDES = {"context_weight", "context_weights", "context_accounts", "context_entry_accounts"}  # of policies fair to both
PROMISE = {"context_share", "context_debts", "context_share_bound"}
CHANGES_THEM = {"set_sides", "sides_algorithm", "promise_algorithm"}


def test_a_policy_shows_what_its_users_need() -> None:
    shown = {name for name in dir(AlphaFairAdaptive(2, 3)) if not name.startswith("_")}
    assert shown == FACTS | LEARNED | DOES | KEEPS | OF_ITS_CLASS | RUNS_IT | SIDES | PROMISE | CHANGES_THEM | {
        "features_of",
        "regressor",
    }


def test_others_add_little_of_their_own() -> None:
    for kind in POLICIES.values():
        settings = next(iter(kind.traits.variants(2, 3).values()))
        shown = {name for name in dir(kind(2, 3, **settings)) if not name.startswith("_")}
        others = (
            shown
            - FACTS
            - LEARNED
            - DOES
            - KEEPS
            - OF_ITS_CLASS
            - RUNS_IT
            - SIDES
            - PROMISE
            - CHANGES_THEM
            - {*inspect.signature(kind).parameters}
        )
        assert len(others) <= 4, kind


def test_arguments_of_the_constructor_are_attributes() -> None:
    for kind in KINDS.values():
        parameters = {*inspect.signature(kind).parameters}
        required: dict[str, Any] = {"n_features": 2} if kind.name == "fair-lin-ucb" else {}
        for variant in kind.traits.variants(2, 3).values():
            settings = {**required, **variant}
            policy = kind(2, 3, seed=7, **settings)
            for name, value in {"n_contexts": 2, "n_arms": 3, "seed": 7, **settings}.items():
                assert getattr(policy, name) == value, (kind, name)
            assert parameters <= {*dir(policy)}, kind


def test_an_argument_that_is_not_given_is_its_default() -> None:
    policy = Hedge(2, 3, learning_rate=0.25)
    assert (policy.learning_rate, policy.horizon) == (0.25, None)
    assert (Hedge(2, 3, horizon=50).learning_rate, Hedge(2, 3).learning_rate) == (None, None)


def test_feedback_has_one_default() -> None:
    parameters = [inspect.signature(kind).parameters for kind in POLICIES.values()]
    assert {each["feedback"].default for each in parameters if "feedback" in each} == {"bandit"}
