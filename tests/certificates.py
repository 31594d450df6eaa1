"""The invariant that the certificates of any run keep, for every alpha."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from alphafair import metrics, offline_optimum
from alphafair.groups import GroupsLike

ROUNDING = 1e-9


def check_certificates(
    totals: Any,
    accounts: Any,
    alpha: float,
    *,
    initial: Any = 1.0,
    groups: GroupsLike | None = None,
    present: Any = None,
    prices: Any = None,
    policy: Any = None,
    k: Any = 1,
) -> None:
    """Assert that true ratio <= boxed bound <= bound at the prices <= what the policy knew without the rewards.

    The last only for a policy whose accounts these are, with a `surrogate_regret_bound`, and without other prices.
    """
    terms: dict[str, Any] = {"initial": initial, "groups": groups, "present": present, "k": k}
    best = offline_optimum(totals, alpha, **terms)
    found = metrics.certificates(totals, accounts, alpha, **terms, prices=prices)
    achieved = metrics.welfare(accounts, alpha, groups=groups)
    ratio = best.welfare / achieved
    assert ratio <= found.boxed_welfare_ratio * (1.0 + ROUNDING)
    assert found.boxed_welfare_ratio <= found.welfare_ratio * (1.0 + ROUNDING)
    assert math.isclose(found.welfare, found.welfare_ratio * achieved, rel_tol=1e-12)
    if alpha < math.inf:
        regret = metrics.standard_regret(best.value, accounts, alpha, groups=groups)
        size = np.abs(metrics.alpha_performance(accounts, alpha, groups=groups))
        assert regret <= found.standard_regret + ROUNDING * (size + abs(best.value))
    if policy is not None and prices is None and policy.surrogate_regret_bound is not None and alpha == policy.alpha:
        assert found.welfare_ratio <= metrics.welfare_certificate(policy) * (1.0 + ROUNDING)
