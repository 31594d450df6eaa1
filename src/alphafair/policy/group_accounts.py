"""Accounts of groups: the part of groups, entitlements and floors outside the kernels.

An account is stored as rho = R_G/s_G in the column of every live arm of the group: see `alphafair.math.floors`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

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


@dataclass(frozen=True, eq=False)
class Books:
    """The accounts of groups and what arms have brought into them, to be divided among other groups.

    With E the account of a group at the start of the period, or when it entered, R - E is what its arms earned since.
    `own` is 1 plus what an arm has earned and brought along, `own_entry` without what it earned. So a group has

        R = 1 + u + sum over its arms of (own - 1)        E = 1 + u + sum over its arms of (own_entry - 1)

    where u >= 0 was carried over by the group, or given to it when it entered.
    """

    groups: ArmGroups
    accounts: Vector  # R by group
    entry: Vector  # E by group
    own: Vector  # by arm
    own_entry: Vector

    @classmethod
    def of(cls, learned: LearnedState) -> Self:
        """Return the books of a policy. Without labels every arm is a group, whose account is its own."""
        if learned.groups is None:
            raise ValueError("a policy without accounts of groups")
        groups, own, own_entry = learned.groups.groups, learned.accounts_of_all[0], learned.entry_accounts[0]
        if not learned.pooled:
            return cls(groups, own, own_entry, own, own_entry)
        accounts, entry = learned.groups.accounts(learned), learned.group_entry
        return cls(groups, accounts, entry, own, own_entry) if groups.named else cls(groups, *[accounts, entry] * 2)

    def regrouped(self, groups: ArmGroups) -> Self:
        """Return the books of other groups.

        An arm that moves takes with it what it has earned and brought along. A group keeps what it carried over as long
        as it has arms; with the last ones that goes along too, in equal parts. So no reward is lost, and going back
        gives the same accounts.
        """
        own, own_entry = self._when_alone(groups)
        if not groups.named:
            return type(self)(groups, own, own_entry, own, own_entry)
        before = {label: g for g, label in enumerate(self.groups.labels)} if self.groups.named else {}
        accounts, entry = np.ones(groups.n_groups), np.ones(groups.n_groups)
        for g, label in enumerate(groups.labels):
            here = groups.of_arms == g
            old = before.get(label)
            there = np.zeros_like(here) if old is None else self.groups.of_arms == old
            if old is not None:
                accounts[g], entry[g] = self.accounts[old], self.entry[old]
            for which, sign in ((here & ~there, 1.0), (there & ~here, -1.0)):
                accounts[g] += sign * (own[which] - 1.0).sum()
                entry[g] += sign * (own_entry[which] - 1.0).sum()
        entry = np.maximum(1.0, entry)
        return type(self)(groups, np.maximum(entry, accounts), entry, own, own_entry)

    def _when_alone(self, groups: ArmGroups) -> tuple[Vector, Vector]:
        """Return `own` and `own_entry` after groups that end have given their arms what they carried over."""
        of_arms = self.groups.of_arms
        if not self.groups.named:
            return self.own, self.own_entry
        brought = np.bincount(of_arms, self.own_entry - 1.0, self.groups.n_groups)
        carried = np.maximum(0.0, self.entry - 1.0 - brought) / np.bincount(of_arms)
        if groups.named:
            carried[[label in groups.labels for label in self.groups.labels]] = 0.0
        return self.own + carried[of_arms], self.own_entry + carried[of_arms]

    def write(self, learned: LearnedState) -> None:
        """Set the accounts of a policy, whose groups are already these."""
        groups, live, pooled = self.groups, learned.live_arms, learned.pooled
        has_live = np.isin(np.arange(groups.n_groups), groups.of_arms[live])
        learned.memory.arms[ACCOUNT.account] = (self.accounts / (groups.entitlements if pooled else 1.0))[
            groups.of_arms[live]
        ]
        learned.accounts[0] = self.own[live]
        learned.retired_accounts[0] = np.where(learned.live, 0.0, self.own)
        learned.entry_accounts[0] = self.own_entry
        learned.group_accounts, learned.group_entry = np.zeros(0), np.zeros(0)
        if not groups.is_default:
            kept = self.accounts if pooled else np.ones(groups.n_groups)
            learned.group_accounts = np.where(has_live, 0.0, kept)
            learned.group_entry = self.entry.copy() if pooled else np.ones(groups.n_groups)
