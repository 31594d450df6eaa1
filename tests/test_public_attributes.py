"""What a policy shows: what its users need, and what is true of its class in two values."""

from alphafair import POLICIES, AlphaFairAdaptive

FACTS = {"name", "feedback", "n_contexts", "n_arms", "n_features", "feature_shape", "alpha", "groups", "settings"}
PERIOD = {"period", "period_rewards", "entry_accounts"}
LEARNED = {
    "accounts",
    "cumulative_rewards",
    "live_arms",
    *PERIOD,
    "surrogate_regret_bound",
    "expected_surrogate_regret_bound",
}
DOES = {"probabilities", "choose", "update", "expect", "forgo", "grow", "retire", "set_alpha", "new_period"}
KEEPS = {"snapshot", "restore", "fresh"}
OF_ITS_CLASS = {"traits", "algorithm", "welfare_algorithm"}


def test_a_policy_shows_what_its_users_need() -> None:
    shown = {name for name in dir(AlphaFairAdaptive(2, 3)) if not name.startswith("_")}
    assert shown == FACTS | LEARNED | DOES | KEEPS | OF_ITS_CLASS


def test_others_add_little_of_their_own() -> None:
    for kind in POLICIES.values():
        settings = next(iter(kind.traits.variants(2, 3).values()))
        shown = {name for name in dir(kind(2, 3, **settings)) if not name.startswith("_")}
        assert len(shown - FACTS - LEARNED - DOES - KEEPS - OF_ITS_CLASS) <= 4, kind
