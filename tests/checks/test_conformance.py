"""Every policy, in every variant that its class names, passes every check; and so does a sound one of a user's own."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from alphafair import Hedge, InvalidArgument, Policy, Stream, register, simulate
from alphafair.algorithms import POLICIES
from alphafair.checks import CHECKS, NOT_APPLICABLE, Subject
from tests import INTERPRETED

VARIANTS = [(name, variant) for name, kind in POLICIES.items() for variant in kind.traits.variants(3, 4)]


def subject_of(name: str, variant: str) -> Subject:
    kind = POLICIES[name]
    return Subject(kind, lambda n_contexts, n_arms: kind.traits.variants(n_contexts, n_arms)[variant])


@pytest.fixture(params=VARIANTS, ids=["-".join(filter(None, pair)) for pair in VARIANTS])
def subject(request: pytest.FixtureRequest) -> Subject:
    return subject_of(*request.param)


def test_every_policy_is_checked() -> None:
    assert {name for name, _ in VARIANTS} == set(POLICIES)
    assert len(VARIANTS) > 2 * len(POLICIES)


def test_a_name_belongs_to_one_class() -> None:
    class Twin(Hedge):
        pass

    with pytest.raises(InvalidArgument, match=r"kind\.name must be different from the name of Hedge; got 'hedge'"):
        register(Twin)
    assert POLICIES["hedge"] is Hedge


@pytest.mark.parametrize("odd", [int, Hedge(1, 2, horizon=9), Policy, None])
def test_only_classes_derived_from_base_policy_can_be_registered(odd: Any) -> None:
    before = {**POLICIES}
    with pytest.raises(InvalidArgument, match="kind must be a class derived from BasePolicy"):
        register(odd)
    assert before == POLICIES


# The checks that really do not apply to a policy of ours; anything else that says so is a failure.
ONE_ARM = ("shows one arm per decision",)
EXCEPTIONS = {
    "unseen_rewards_do_not_matter": ("sees all rewards",),
    "one_compiled_signature": ("run interpreted",),
    "slates_sum_to_k": ONE_ARM,
    "slates_of_one_arm_are_decisions": ONE_ARM,
    "slates_agree_in_every_mode": (*ONE_ARM, "run interpreted"),
    "slates_go_on_after_a_snapshot": ONE_ARM,
    "others_agree_in_every_mode": ("learns nothing from others", "run interpreted"),
    "leans_toward_reward": ("does not learn", "fairness within a context gives its best arm no more pulls"),
}
# With the JIT off kernels do the same to the last bit, as one of the checks has shown by then: two that walk through
# most of a policy are enough.
CHECKED = ("bad_input_is_refused", "snapshot_after_changes") if INTERPRETED else tuple(CHECKS)


@pytest.mark.parametrize("check", CHECKED)
def test_conformance(subject: Subject, check: str) -> None:
    message = CHECKS[check](subject) or ""
    if message.startswith(NOT_APPLICABLE):
        assert any(reason in message for reason in EXCEPTIONS.get(check, ())), f"{check} said: {message}"
        slates = subject.policy_class.traits.slates  # type: ignore[attr-defined]
        policy: Any = subject.make()
        sided = any(getattr(policy, name, 0.0) for name in ("context_weight", "context_share"))
        assert "shows one arm" not in message or not slates or sided
        assert "from others" not in message or not subject.make().learns_from_others
        assert "does not learn" not in message or not subject.policy_class.traits.learns  # type: ignore[attr-defined]


# what ours do beyond the protocol


def is_uniform(p: np.ndarray) -> bool:
    return bool(np.allclose(p, 1.0 / len(p), rtol=0.0, atol=1e-12))


def test_built_in_policies_start_uniform(subject: Subject) -> None:
    assert is_uniform(subject.make().probabilities(0))
    policy = subject.trained()
    rows = [policy.probabilities(context) for context in range(3)]
    policy.grow(7)
    blind = all(np.array_equal(rows[0], row) for row in rows)
    knows_arms = policy.name == "alpha-fair-adaptive"  # a new context starts with what others have paid
    assert is_uniform(policy.probabilities(5)) or blind or knows_arms


def test_built_in_policies_renormalize_over_available_arms(subject: Subject) -> None:
    policy = subject.trained()
    for mask in ([True, False, True, False], [True, True, True, False]):
        free, available = policy.probabilities(0), np.array(mask)
        held = free[available].sum()
        expected = np.where(available, free / held if held > 0.0 else 1.0 / available.sum(), 0.0)
        np.testing.assert_allclose(policy.probabilities(0, available=available), expected, rtol=1e-12, atol=0.0)


@pytest.mark.compiled
def test_built_in_policies_end_near_certainty_without_floors(subject: Subject) -> None:
    held_back = {"alpha": 0.0, "pull_share": 1e-3}
    made = subject.make(2, 4)
    efficient = {key: held_back[key] for key in held_back if key in made.settings}  # type: ignore[attr-defined]
    policy = subject.make(2, 4, **efficient)
    if not policy.traits.learns:
        return
    contexts = np.arange(20_000, dtype=np.int32) % 2
    stream = Stream(contexts, np.zeros_like(contexts), np.array([[0.1, 0.1, 0.9, 0.1]]), n_contexts=2)
    simulate(policy, stream.head(2000), seed=3)
    assert min(policy.probabilities(context)[2] for context in (0, 1)) > 0.3
    simulate(policy, stream, seed=4)
    assert min(policy.probabilities(context)[2] for context in (0, 1)) > 0.9


def test_built_in_policies_refuse_invalid_settings(subject: Subject) -> None:
    settings = subject.settings(3, 4)  # type: ignore[operator]
    kind = subject.policy_class
    bad: list[tuple[str, tuple[int, int], dict[str, Any]]] = [("n_arms", (3, 0), {}), ("n_contexts", (-1, 4), {})]
    if "alpha" in subject.make().settings:  # type: ignore[attr-defined]
        bad += [("alpha", (3, 4), {"alpha": alpha}) for alpha in (-1e-9, -0.1, math.nan, "much", None, True)]
    for argument, sizes, more in bad:
        with pytest.raises(InvalidArgument) as refusal:
            kind(*sizes, **{**settings, **more})
        assert refusal.value.argument == argument
        assert "got " in str(refusal.value)


def test_built_in_policies_refuse_invalid_propensities(subject: Subject) -> None:
    policy = subject.make()
    decision = policy.choose(0)
    reward = [0.5] * 4 if policy.feedback == "full" else 0.5
    for propensity in (math.nan, 0.0, 2.0):
        with pytest.raises(InvalidArgument, match=r"decision\.propensity"):
            policy.update(decision._replace(propensity=propensity), reward)
