"""The second run of the tests of kernels, interpreted, where coverage sees inside: `python -m tests.interpreted`.

What is quick runs as a whole, and from what takes long the tests that reach a branch which nothing else does, as
measured with `--cov-context=test`. Whole files of the latter run only while a branch of `MEASURED` is left; with
`--all`, as in the soak, every one runs. The run fails if a test fails or a branch is left.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
AT_ONCE = 4  # files between two looks at what is left
WHOLE = (
    "tests/notions/test_oracles.py",
    "tests/notions/test_refusals.py",
    "tests/notions/test_promised.py",
    "tests/math/test_bounds.py",
    "tests/offline/test_large.py",
    "tests/metrics/test_metrics.py",
    "tests/metrics/test_fairness.py",
    "tests/policy/test_snapshots.py",
    "tests/math/test_math.py",
    "tests/algorithms/test_slate_events.py",
    "tests/algorithms/test_others.py",
    "tests/algorithms/test_two_sides.py",
    "tests/policy/test_observe.py",
    "tests/policy/test_set_groups.py",
    "tests/algorithms/test_slates.py",
    "tests/algorithms/test_exposures.py",
    "tests/math/test_slates.py",
    "tests/offline/test_slates.py",
    "tests/offline/test_two_sides.py",
    "tests/metrics/test_contexts.py",
    "tests/lab/test_slate_runs.py",
    "tests/offline/test_optimum.py",
    "tests/policy/test_public_attributes.py",
    "tests/data/test_streams.py",
    "tests/lab/test_simulation.py",
    "tests/values/test_groups.py",
    "tests/algorithms/test_errata.py",
    "tests/algorithms/test_alpha_change.py",
    "tests/algorithms/test_adversaries.py",
    "tests/algorithms/test_adaptive.py",
    "tests/math/test_welfare.py",
    "tests/math/test_cholesky.py",
    "tests/metrics/test_golden.py",
    "tests/algorithms/test_learning_once.py",
    "tests/algorithms/test_adahedge.py",
)
PARTS = {  # of files that take long: what reaches a branch that nothing else does
    "tests/algorithms/test_events.py": ("test_policies_with_groups",),
    "tests/checks/test_conformance.py": (
        "test_a_name_belongs_to_one_class",
        "test_built_in_policies_refuse_invalid_settings",
        "test_only_classes_derived_from_base_policy_can_be_registered",
    ),
    "tests/offline/test_groups.py": ("test_refusals",),
    "tests/algorithms/test_alpha.py": (
        "test_a_fresh_arm_converts_the_bound_to_its_welfare",
        "test_after_a_change_the_bound_counts_later_rounds",
        "test_alpha_within_contexts_is_changed_in_every_context",
        "test_damaged_snapshots_of_a_large_alpha_are_refused",
        "test_entitlements_of_any_size",
        "test_fair_within_contexts_starts_its_periods_in_every_context",
        "test_masked_and_late_decisions_match_the_oracle",
        "test_periods_with_retired_arms_and_snapshots",
        "test_utility_is_the_logarithm_at_one",
    ),
    "tests/offline/test_alpha.py": (
        "test_a_gap_that_is_too_large_is_reported",
        "test_a_singular_system_ends_the_steps",
        "test_curves_are_single_solves",
        "test_periods_are_checked",
        "test_periods_have_rows_for_their_epochs",
        "test_steps_that_are_not_numbers_are_not_used",
        "test_the_gap_of_a_value_covers_its_rounding",
    ),
    "tests/policy/test_arms.py": (
        "test_a_floor_that_no_longer_fits_is_refused",
        "test_an_optimum_from_other_accounts",
        "test_renaming_arms_renames_the_answer",
        "test_the_offline_optimum_uses_only_available_arms",
    ),
    "tests/algorithms/test_policies.py": (
        "test_a_decision_holds_numbers_of_python",
        "test_arrays_of_the_right_kind_are_checked_too",
        "test_certificate_is_refused_where_there_is_none",
        "test_drift_is_zero_in_order_and_counts_masks",
        "test_fair_cb_contexts_that_grow_weigh_nothing",
        "test_hedge_takes_one_of_horizon_and_rate",
        "test_settings_are_refused_in_one_sentence",
    ),
    "tests/lab/test_run.py": (
        "test_a_log_with_retired_arms_is_booked_and_learned_as_one_by_one",
        "test_an_impossible_propensity_is_refused",
    ),
    "tests/policy/test_edges.py": (
        "test_a_horizon_that_no_float_can_hold_is_refused",
        "test_an_engine_may_be_opened_again_after_such_a_group_retired",
        "test_draws_stay_inside_the_array",
        "test_fair_cb_refuses_propensities_that_would_break_its_floor",
        "test_rewards_of_mixed_sizes_leave_every_policy_a_distribution",
    ),
    "tests/algorithms/test_features.py": (
        "test_a_full_log_replays_to_the_same_state",
        "test_a_regressor_takes_the_place_of_the_least_squares",
        "test_refused_calls_change_nothing",
    ),
    "tests/metrics/test_welfare.py": (
        "test_a_bound_known_without_rewards_follows_entry_accounts",
        "test_a_certificate_above_the_mean_says_nothing",
        "test_gaps_in_alpha_performance_stay_below_one",
        "test_gaps_in_welfare",
        "test_measures_with_a_factor_refuse_alpha_from_one_on",
        "test_refusals_name_the_welfare_ratio",
        "test_the_budget_in_expectation",
    ),
}
OTHERS = (  # in the order of what they add
    "tests/algorithms/test_events.py",
    "tests/checks/test_conformance.py",
    "tests/offline/test_groups.py",
    "tests/evaluation/test_evaluate.py",
    "tests/algorithms/test_grouped.py",
    "tests/algorithms/test_alpha.py",
    "tests/offline/test_alpha.py",
    "tests/policy/test_arms.py",
    "tests/algorithms/test_policies.py",
    "tests/lab/test_run.py",
    "tests/evaluation/test_available.py",
    "tests/policy/test_edges.py",
    "tests/algorithms/test_features.py",
    "tests/metrics/test_welfare.py",
)
MEASURED = ("math/*", "algorithms/*", "notions/*", "offline/*", "policy/memory.py", "metrics/*")


def run(files: list[str], *, more: bool) -> bool:
    options = ["-q", "-n", "2", "--dist", "loadfile", "-m", "not compiled", "--cov=alphafair", "--cov-branch"]
    options += ["--cov-report=", *(["--cov-append"] if more else [])]
    environment = os.environ | {"NUMBA_DISABLE_JIT": "1"}
    return subprocess.run([sys.executable, "-m", "pytest", *options, *files], cwd=ROOT, env=environment).returncode == 0


def is_covered(*, quiet: bool) -> bool:
    """Whether every line and branch was run; otherwise a report says which not."""
    include = ",".join(f"*/alphafair/{name}" for name in MEASURED)
    command = [sys.executable, "-m", "coverage", "report", "--fail-under=100", f"--include={include}"]
    return subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL if quiet else None).returncode == 0


def main() -> int:
    first, left = [*WHOLE, *(f"{file}::{test}" for file, tests in PARTS.items() for test in tests)], [*OTHERS]
    if "--all" in sys.argv[1:]:
        first, left = [*WHOLE, *OTHERS], []
    passed = run(first, more=False)
    while passed and left and not is_covered(quiet=True):
        passed = run(left[:AT_ONCE], more=True)
        del left[:AT_ONCE]
    covered = is_covered(quiet=False)
    print(f"{len(OTHERS) - len(left)} of {len(OTHERS)} files that take long ran interpreted as a whole")
    return 0 if passed and covered else 1


if __name__ == "__main__":
    sys.exit(main())
