"""Conformance checks for every policy: `alphafair check package:Policy`, or `run_checks` in your tests.

Each check tests a requirement of `alphafair.Policy`. Checks use the public protocol only; compiled runs are checked if
the policy has kernels.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from alphafair.checks import conformance, others, slates
from alphafair.checks.subject import NOT_APPLICABLE as NOT_APPLICABLE
from alphafair.checks.subject import Settings as Settings
from alphafair.checks.subject import Subject as Subject
from alphafair.errors import InvalidArgument

CHECKS: dict[str, Callable[[Subject], str | None]] = {
    check.__name__: check
    for check in (
        conformance.distribution_sums_to_one,
        conformance.questions_change_nothing,
        conformance.one_uniform_per_choice,
        conformance.propensity_is_the_frequency,
        conformance.same_uniforms_same_path,
        conformance.stepwise_equals_compiled,
        conformance.interpreted_equals_compiled,
        conformance.one_compiled_signature,
        conformance.leans_toward_reward,
        conformance.unseen_rewards_do_not_matter,
        conformance.names_do_not_matter,
        conformance.late_rewards_are_welcome,
        conformance.masked_arms_are_never_drawn,
        conformance.contexts_may_be_added,
        conformance.arms_may_be_added,
        conformance.retired_arms_are_never_drawn,
        conformance.snapshot_and_go_on,
        conformance.snapshot_after_changes,
        conformance.fresh_forgets,
        conformance.inputs_are_not_touched,
        conformance.memory_does_not_grow,
        conformance.threads_may_share_a_policy,
        conformance.stays_finite,
        conformance.bad_input_is_refused,
        slates.slates_sum_to_k,
        slates.slates_of_one_arm_are_decisions,
        slates.slates_agree_in_every_mode,
        slates.slates_go_on_after_a_snapshot,
        others.others_earn_nothing,
        others.others_agree_in_every_mode,
    )
}


@dataclass(frozen=True)
class CheckResult:
    """The result of one check."""

    name: str
    passed: bool
    message: str
    seconds: float


def run_checks(
    policy_class: type, settings: Settings | None = None, *, on_start: Callable[[str], None] | None = None
) -> Iterator[CheckResult]:
    """Run all checks, and yield their results."""
    if not __debug__:
        repair = "Run it without -O and without PYTHONOPTIMIZE, which disable assertions."
        raise InvalidArgument("Python", "run with assertions", "optimized mode", repair)
    subject = Subject(policy_class, settings or {})
    for name, check in CHECKS.items():
        if on_start is not None:
            on_start(name)
        started = time.perf_counter()
        try:
            passed, message = True, check(subject) or ""
        except Exception as problem:  # any exception of a policy is a failed check
            passed, message = False, f"{type(problem).__name__}: {problem}"
        yield CheckResult(name, passed, message, time.perf_counter() - started)
