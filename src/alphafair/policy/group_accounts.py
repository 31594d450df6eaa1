"""Accounts of groups: the part of groups, entitlements and floors outside the kernels.

An account is stored as rho = R_G/s_G in the column of every live arm of the group: see `alphafair.math.floors`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from alphafair.errors import InvalidArgument
from alphafair.jit import repeated
from alphafair.math.floors import GroupMemory, group_memory, least_drawn, no_groups, project_on_floors
from alphafair.math.utility import ACCOUNT
from alphafair.policy.memory import DAMAGED, LearnedState, Memory
from alphafair.values.arrays import Vector

if TYPE_CHECKING:
    from alphafair.groups import ArmGroups
    from alphafair.policy.algorithm import Algorithm

LEAST_FLOOR = 1e-12  # the least positive floor


def check_floors(groups: ArmGroups) -> None:
    """Raise for positive floors that are too small to matter."""
    floors = np.append(groups.group_floors, groups.arm_floor)
    tiny = floors[(floors > 0.0) & (floors < LEAST_FLOOR)]
    if len(tiny):
        repair = "Pass 0 or a larger floor: so rare a draw cannot be observed."
        raise InvalidArgument("pull_floor", f"0 or at least {LEAST_FLOOR:g}", float(tiny[0]), repair)


class GroupAccounts:
    """The groups of all arms, and of the live ones."""

    def __init__(self, groups: ArmGroups, algorithm: Algorithm) -> None:
        check_floors(groups)
        self.groups = self.live_groups = groups
        self.algorithm = algorithm

    def __getstate__(self) -> dict[str, Any]:
        """For `copy` and `pickle`: the policy restores the algorithm."""
        return {"groups": self.groups, "live_groups": self.live_groups}

    @property
    def pooled(self) -> bool:
        """Whether arms share accounts or have entitlements."""
        return self.groups.named or self.groups.entitled

    def memory(self, n_ever: int) -> GroupMemory:
        """Return the groups of live arms for kernels; `n_ever` counts retired arms too."""
        live, groups = self.live_groups, self.groups
        if live.is_default:
            return no_groups(len(live.of_arms))
        promised = n_ever * groups.arm_floor + groups.group_floors.sum()  # to all arms, including retired ones
        return group_memory(
            live.of_arms,
            live.entitlements,
            pooled=self.pooled,
            arm_floor=live.arm_floor,
            group_floors=live.group_floors,
            least_unpromised=max(0.0, 1.0 - promised),
        )

    def start(self, memory: Memory, earned_row: int) -> None:
        """Set the initial accounts: 1 for every group and every arm."""
        live = self.live_groups
        memory.arms[ACCOUNT.account] = 1.0 / live.entitlements[live.of_arms]
        memory.arms[earned_row] = 1.0
        self.reopen(memory, np.arange(memory.arms.shape[1]))

    def reopen(self, memory: Memory, columns: NDArray[np.int64]) -> None:
        """Recompute what the algorithm derives from these accounts."""
        if self.algorithm.reopen is not None:
            self.algorithm.reopen(memory, columns)

    def accounts(self, learned: LearnedState) -> Vector:
        """Return R of every group, in the order of `groups.labels`."""
        accounts = learned.group_accounts.copy()
        of_live = self.groups.of_arms[learned.live_arms]
        rho = learned.memory.arms[ACCOUNT.account]
        accounts[of_live] = np.maximum(1.0, rho * self.groups.entitlements[of_live])
        return accounts

    def least_drawn(self, memory: Memory, least: float) -> float:
        """Return the least propensity of any live arm, if the distribution before floors is at least `least`."""
        return float(min(least_drawn(memory.groups, arm, least) for arm in range(memory.arms.shape[1])))

    def project(self, memory: Memory, first: int = 0) -> None:
        """Project the distributions of contexts from `first` on to the floors of groups, if necessary."""
        row = self.algorithm.simplex_rows
        if row is not None and self.live_groups.group_floors.any():
            distributions = memory.contexts[first:, getattr(self.algorithm.layout.contexts, row)]
            project_one = repeated(project_on_floors, len(distributions))
            for x in distributions:
                project_one(memory.groups, x.copy(), -np.inf, x)

    # adding and retiring arms

    def entries(self, grown: ArmGroups, learned: LearnedState, n_new: int, entry: float, entitlements: Any) -> Vector:
        """Return rho of every new arm: that of its group, or of the new group."""
        if not self.pooled:
            if not grown.equally_entitled:
                repair = "Construct the policy with entitlements to add arms with entitlements later."
                raise InvalidArgument("entitlements", "None: this policy has none", entitlements, repair)
            return np.full(n_new, entry)
        rho = learned.memory.arms[ACCOUNT.account].tolist()
        known = dict(zip(self.groups.of_arms[learned.live_arms].tolist(), rho, strict=True))
        least = min(known.values())
        for g in grown.of_arms[-n_new:].tolist():
            entitlement = float(grown.entitlements[g])
            if g not in known and g < self.groups.n_groups:
                known[g] = float(learned.group_accounts[g]) / entitlement
            elif g not in known:
                known[g] = max(least, 1.0 / entitlement) if np.isnan(entry) else entry / entitlement
        return np.array([known[g] for g in grown.of_arms[-n_new:].tolist()])

    def grow(self, grown: ArmGroups, learned: LearnedState, n_new: int) -> None:
        """Replace the groups by those of more arms."""
        self.groups = grown
        if not grown.is_default:
            accounts = np.pad(learned.group_accounts, (0, grown.n_groups - len(learned.group_accounts)))
            accounts[grown.of_arms[-n_new:]] = 0.0
            learned.group_accounts = accounts
            n_groups = grown.n_groups - len(learned.group_entry)
            learned.group_entry = np.pad(learned.group_entry, (0, n_groups), constant_values=1.0)

    def note_entries(self, learned: LearnedState, n_groups: int) -> None:
        """Record the accounts of groups after the first `n_groups`, which are new, as their entry accounts."""
        learned.group_entry[n_groups:] = self.accounts(learned)[n_groups:]

    def new_period(self, learned: LearnedState, carry: float) -> None:
        """Every account becomes 1 + carry (R - 1); arms count their own rewards from 0."""
        accounts, of_live = 1.0 + carry * (self.accounts(learned) - 1.0), self.groups.of_arms[learned.live_arms]
        learned.new_period(0.0)
        learned.memory.arms[ACCOUNT.account] = (accounts / self.groups.entitlements)[of_live]
        learned.group_entry, learned.group_accounts = accounts, accounts.copy()
        learned.group_accounts[of_live] = 0.0

    def keep_accounts_of_absent(self, learned: LearnedState, before: NDArray[np.int64], rho: Vector) -> None:
        """Store the accounts of groups whose last live arm was retired; `before` are the groups before that."""
        for column in np.flatnonzero(~np.isin(before, self.groups.of_arms[learned.live_arms])):
            account = rho[column] * self.groups.entitlements[before[column]]
            learned.group_accounts[before[column]] = max(1.0, account)  # (1/49) 49 is below 1

    def retired_earned(self, learned: LearnedState, arms: NDArray[Any], amounts: Vector) -> None:
        """Add late rewards of retired arms to the accounts of their groups."""
        of_live = self.groups.of_arms[learned.live_arms]
        for g, amount in zip(self.groups.of_arms[arms].tolist(), amounts.tolist(), strict=True):
            columns = np.flatnonzero(of_live == g)
            if len(columns):
                learned.memory.arms[ACCOUNT.account, columns] += amount / self.groups.entitlements[g]
                self.reopen(learned.memory, columns)
            else:
                learned.group_accounts[g] += amount

    def check(self, learned: LearnedState) -> None:
        """Raise for accounts that contradict each other."""
        live, rho = self.live_groups, learned.memory.arms[ACCOUNT.account]
        first = np.zeros(live.n_groups)
        first[live.of_arms] = rho
        alike = np.array_equal(first[live.of_arms], rho)
        has_live = np.isin(np.arange(self.groups.n_groups), self.groups.of_arms[learned.live_arms])
        kept = learned.group_accounts
        lasting = (kept[has_live] == 0.0).all() and (kept[~has_live] >= 1.0 - 1e-9).all()
        if not alike or not lasting or (rho * live.entitlements[live.of_arms] < 1.0 - 1e-9).any():
            raise InvalidArgument("state.arrays", "accounts of groups, at least 1", kept, DAMAGED)
