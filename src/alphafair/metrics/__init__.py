"""Metrics of efficiency and fairness: alpha-performance, welfare, Jain's index, shares, regrets, and certificates.

All take `accounts`, R with its initial 1: one vector (n_arms), many (..., n_arms), or the `Trace` of a run, for its
recorded rounds. One vector gives a float, many give an array. The optimum comes from `alphafair.offline_optimum` or
`alphafair.offline_curve`. With `groups=`, a `Groups` or a label per arm, a metric is that of groups; accounts may then
be those of all arms, or of groups, as in `policy.accounts`.

alpha is any number from 0 to inf. The alpha-performance is a sum of utilities: logarithms at alpha = 1, negative above,
undefined at inf. The welfare is the same order in units of reward, for every alpha; compare runs by their welfare. The
factor c_alpha exists only below 1, and measures that contain it refuse other alphas.
"""

from alphafair.metrics.accounts import (
    LEAST_ACCOUNT as LEAST_ACCOUNT,
)
from alphafair.metrics.accounts import (
    LEAST_GAP as LEAST_GAP,
)
from alphafair.metrics.accounts import (
    METRICS as METRICS,
)
from alphafair.metrics.accounts import (
    MOST_ACCOUNT as MOST_ACCOUNT,
)
from alphafair.metrics.accounts import (
    Metric as Metric,
)
from alphafair.metrics.accounts import (
    alpha_performance as alpha_performance,
)
from alphafair.metrics.accounts import (
    approximate_regret as approximate_regret,
)
from alphafair.metrics.accounts import (
    approximation_factor as approximation_factor,
)
from alphafair.metrics.accounts import (
    average_reward as average_reward,
)
from alphafair.metrics.accounts import (
    gap_closed as gap_closed,
)
from alphafair.metrics.accounts import (
    gap_to_close as gap_to_close,
)
from alphafair.metrics.accounts import (
    greatest_share as greatest_share,
)
from alphafair.metrics.accounts import (
    group_accounts as group_accounts,
)
from alphafair.metrics.accounts import (
    has_gap as has_gap,
)
from alphafair.metrics.accounts import (
    jain_index as jain_index,
)
from alphafair.metrics.accounts import (
    least_share as least_share,
)
from alphafair.metrics.accounts import (
    marginal_utility as marginal_utility,
)
from alphafair.metrics.accounts import (
    performance_ratio as performance_ratio,
)
from alphafair.metrics.accounts import (
    shares as shares,
)
from alphafair.metrics.accounts import (
    standard_regret as standard_regret,
)
from alphafair.metrics.accounts import (
    utility as utility,
)
from alphafair.metrics.accounts import (
    welfare as welfare,
)
from alphafair.metrics.accounts import (
    welfare_ratio as welfare_ratio,
)
from alphafair.metrics.bounds import (
    Certificates as Certificates,
)
from alphafair.metrics.bounds import (
    bound_in_expectation as bound_in_expectation,
)
from alphafair.metrics.bounds import (
    certificates as certificates,
)
from alphafair.metrics.bounds import (
    expected_welfare_budget as expected_welfare_budget,
)
from alphafair.metrics.bounds import (
    is_vacuous as is_vacuous,
)
from alphafair.metrics.bounds import (
    most_welfare as most_welfare,
)
from alphafair.metrics.bounds import (
    most_worth as most_worth,
)
from alphafair.metrics.bounds import (
    regret_certificate as regret_certificate,
)
from alphafair.metrics.bounds import (
    welfare_certificate as welfare_certificate,
)
from alphafair.metrics.contexts import (
    context_share_at as context_share_at,
)
from alphafair.metrics.contexts import (
    context_shares as context_shares,
)
from alphafair.metrics.contexts import (
    least_context_share as least_context_share,
)
from alphafair.metrics.contexts import (
    two_sided_welfare as two_sided_welfare,
)
from alphafair.metrics.notions import (
    envy as envy,
)
from alphafair.metrics.notions import (
    exchange_values as exchange_values,
)
from alphafair.metrics.notions import (
    favoring as favoring,
)
from alphafair.metrics.notions import (
    longest_wait as longest_wait,
)
from alphafair.metrics.notions import (
    merit_distance as merit_distance,
)
from alphafair.metrics.notions import (
    proportional_share as proportional_share,
)
from alphafair.metrics.notions import (
    pull_lapse as pull_lapse,
)
from alphafair.metrics.notions import (
    rate_shortfall as rate_shortfall,
)
from alphafair.metrics.seeds import (
    average_over_seeds as average_over_seeds,
)
from alphafair.metrics.seeds import (
    student_quantile as student_quantile,
)
