"""Changes of what was learned while a policy runs: arms that come and go, groups, alpha, and periods.

Every function changes a `LearnedState`. `settings` are the settings of the policy as numbers, after the change.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from alphafair.math.utility import ACCOUNT
from alphafair.policy.algorithm import Algorithm
from alphafair.policy.group_accounts import Books, GroupAccounts
from alphafair.policy.memory import LearnedState
from alphafair.values.arrays import Vector


def add_contexts(learned: LearnedState, n_contexts: int, settings: Mapping[str, Any]) -> None:
    """Extend to `n_contexts`; new ones start like the first."""
    learned.add_contexts(learned.blank(1, settings, learned.n_arms), n_contexts)


def change(learned: LearnedState, kept: NDArray[np.int64], entries: Vector, settings: Mapping[str, Any]) -> None:
    """Keep the columns `kept`, and add an arm per entry of `entries`: its account, NaN for the least."""
    groups, algorithm, pooled = learned.groups, learned.algorithm, learned.pooled
    if algorithm.before_arms_change is not None:
        algorithm.before_arms_change(learned.memory)
    if groups is not None and pooled:
        before, rho = groups.groups.of_arms[learned.live_arms], learned.memory.arms[ACCOUNT.account].copy()
    some_left = len(kept) < len(learned.live_arms)
    learned.change_arms(kept, len(entries))
    if groups is not None:
        groups.live_groups = groups.groups.among(learned.live_arms)
    learned.memory = learned.with_settings(learned.memory, settings, learned.n_arms)
    algorithm.admit(learned.memory, len(kept), some_left, entries)
    if groups is not None and pooled:
        learned.accounts[:, len(kept) :] = 1.0  # the arms' own accounts
        groups.keep_accounts_of_absent(learned, before, rho)
        if algorithm.groups_changed is not None:
            algorithm.groups_changed(learned.memory)
    learned.note_entries(len(kept))
    if groups is not None:
        groups.project(learned.memory)
    if learned.regressors is not None:
        learned.regressors.change_arms(kept, len(entries))


def set_groups(learned: LearnedState, groups: GroupAccounts, settings: Mapping[str, Any]) -> None:
    """Continue with other groups, entitlements and floors, from the accounts that these have."""
    algorithm, before = learned.algorithm, learned.groups
    if algorithm.before_arms_change is not None:
        algorithm.before_arms_change(learned.memory)
    books = Books.of(learned).regrouped(groups.groups)
    changed = before is None or before.pooled != groups.pooled
    learned.groups, groups.live_groups = groups, groups.groups.among(learned.live_arms)
    if changed:
        learned.pool_accounts()
    learned.memory = learned.with_settings(learned.memory, settings, learned.n_arms)
    books.write(learned)
    groups.reopen(learned.memory, np.arange(len(learned.live_arms)))
    groups.project(learned.memory)
    if algorithm.alpha_changed is not None:  # the objective has changed as by another alpha
        algorithm.alpha_changed(learned.memory)
    learned.version += 1


def set_alpha(learned: LearnedState, algorithm: Algorithm, settings: Mapping[str, Any], *, crosses_one: bool) -> None:
    """Go on with another alpha; `algorithm` is that of this alpha, on the other side of 1 if it crosses 1."""
    if crosses_one:
        move(learned, algorithm, settings)
    else:
        set_terms(learned, settings)


def move(learned: LearnedState, algorithm: Algorithm, settings: Mapping[str, Any]) -> None:
    """Go on with another algorithm, with the cells that both name."""
    learned.change_algorithm(algorithm, settings)
    if algorithm.new_period is not None:
        algorithm.new_period(learned.memory)
    learned.count_rounds()


def set_terms(learned: LearnedState, settings: Mapping[str, Any]) -> None:
    """Go on with other settings of the same algorithm."""
    algorithm = learned.algorithm
    learned.memory = learned.with_settings(learned.memory, settings, learned.n_arms)
    if algorithm.alpha_changed is not None:
        algorithm.alpha_changed(learned.memory)
    learned.version += 1


def new_period(learned: LearnedState, carry: float) -> None:
    """Start a period: every account R becomes 1 + carry (R - 1)."""
    algorithm = learned.algorithm
    if algorithm.before_arms_change is not None:
        algorithm.before_arms_change(learned.memory)
    if learned.groups is not None and learned.pooled:
        learned.groups.new_period(learned, carry)
    else:
        learned.new_period(carry)
    if algorithm.carry is not None:
        algorithm.carry(learned.memory, carry)
    if algorithm.new_period is not None:
        algorithm.new_period(learned.memory)
    elif algorithm.reopen is not None:
        algorithm.reopen(learned.memory, np.arange(len(learned.live_arms)))
