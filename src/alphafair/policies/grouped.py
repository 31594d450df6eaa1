"""Policies that keep accounts: of arms, or of groups of arms with entitlements; and that can promise a share of draws.

An account is kept as rho = R_G/s_G, in the column of every live arm of the group: see `alphafair.kernels.groups`.
"""

from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from alphafair import validate
from alphafair.groups import Groups, Labels, PerGroup
from alphafair.kernels import groups as of_groups
from alphafair.kernels.memory import ARMS, SETTINGS, blank
from alphafair.kernels.utility import TOTAL, open_accounts
from alphafair.policies.base import BasePolicy
from alphafair.policies.memory import DAMAGED
from alphafair.types import Account, Matrix, State, Vector

LEAST_FLOOR = 1e-12  # of those that are not 0
SAID = ("groups", "entitlements", "pull_floor")  # among the settings, all of them or none


class GroupedPolicy(BasePolicy):
    """Derive from it as from `BasePolicy`, with `_plain_work` in place of `_make_work`.

    The first row of its shared memory is the account; `_account_rows` are those that belong to it.
    """

    alpha: float
    groups: Groups
    _accounts_in = ("shared", TOTAL)
    _account_rows: ClassVar[int]
    _projected_row: int | None = None  # of learners, where distributions stand that keep the groups' floors themselves

    def __init__(
        self, n_contexts: int, n_arms: int, seed: int | None, settings: dict[str, Any], shared: Matrix, groups: Groups
    ) -> None:
        floors = np.append(groups.group_floors, groups.arm_floor)
        tiny = floors[(floors > 0.0) & (floors < LEAST_FLOOR)]
        if len(tiny):
            repair = "Promise more, or nothing: nobody can count draws that are as rare."
            raise validate.Refusal("pull_floor", f"0 or at least {LEAST_FLOOR:g}", float(tiny[0]), repair)
        self.groups = self._live_groups = groups
        self._pooled = groups.named or groups.entitled
        if self._pooled:
            self._accounts_in = ("shared", -1)
            own = blank(1, n_arms)[None]
            own[..., ARMS:] = 1.0
            shared = np.concatenate([shared, own], axis=1)
            shared[0, TOTAL, ARMS:] = 1.0 / groups.entitlements[groups.of_arms]
        super().__init__(n_contexts, n_arms, seed, {**settings, **groups.settings()}, shared)
        self._memory.group_accounts = np.zeros(0 if groups.are_plain else groups.n_groups)
        if self._pooled:
            self._reopen(np.arange(n_arms))
        self._project(self._memory.learners)

    @property
    def _levels(self) -> Vector:
        """rho of live arms, a view."""
        view: Vector = self._memory.shared[0, TOTAL, ARMS:]
        return view

    @property
    def accounts(self) -> Vector:  # type: ignore[override]
        """R of every group, as `groups.labels` has them: 1 and what its arms have earned; without groups, of arms."""
        with self._lock:
            if not self._pooled:
                return np.array(self._memory.earned[0])
            accounts = self._memory.group_accounts.copy()
            of_live = self.groups.of_arms[self._memory.live_arms]
            accounts[of_live] = np.maximum(1.0, self._levels * self.groups.entitlements[of_live])
        return accounts

    @property
    def cumulative_rewards(self) -> Vector:  # type: ignore[override]
        """R of every arm: what it has earned so far (expected, with full information), on top of the initial 1."""
        with self._lock:
            earned: Vector = self._memory.earned[0]
        return earned

    # work

    if TYPE_CHECKING:

        def _plain_work(self, n_live: int) -> Matrix: ...

    def _make_work(self, n_live: int) -> Matrix:
        work, groups = self._plain_work(n_live), self._live_groups
        if groups.are_plain:
            return work
        inverse = 1.0 / groups.entitlements[groups.of_arms]
        work = of_groups.attach(
            work,
            groups.of_arms,
            inverse,
            pooled=self._pooled,
            arm_floor=groups.arm_floor,
            group_floors=groups.group_floors,
        )
        promised = self.n_arms * self.groups.arm_floor + self.groups.group_floors.sum()  # to all that ever were
        work[SETTINGS, of_groups.LEAST_UNPROMISED] = max(0.0, 1.0 - promised)
        return work

    def _least_drawn(self, least: float) -> float:
        """The least that any live arm can have been drawn with, where the policy's own y had at least `least` of it."""
        arms = range(len(self._memory.live_arms))
        return float(min(of_groups.least_drawn(self._work, arm, least) for arm in arms))

    def _arms_changed(self) -> None:
        self._live_groups = self.groups.among(self._memory.live_arms)
        super()._arms_changed()

    def _project(self, learners: Matrix) -> None:
        """Have the distributions of learners keep the groups' floors, if that is their own affair."""
        if self._projected_row is not None and self._live_groups.group_floors.any():
            for learner in learners:
                x = learner[self._projected_row, ARMS:]
                of_groups.project_on_floors(self._work, x.copy(), -np.inf, x)

    # arms that come and go

    def _check_room(self, n_live: int) -> None:
        self.groups.check_room(n_live)

    def grow(
        self,
        n_contexts: int | None = None,
        n_arms: int | None = None,
        account: Account = "least",
        *,
        groups: Labels | None = None,
        entitlements: PerGroup | None = None,
    ) -> None:
        """As `BasePolicy.grow`; `groups` names those of the new arms, `entitlements` what new groups are entitled to.

        An arm that joins a group shares its account. A new group enters with the least R/s of the live ones
        (`account="least"`), with the initial 1, or with a given R; new arms nobody speaks of are groups of their own.
        """
        with self._lock:
            known = self.n_contexts
            self._grow(n_contexts, n_arms, account, groups=groups, entitlements=entitlements)
            self._project(self._memory.learners[known:])

    def _admit(
        self, n_new: int, entry: float, groups: Labels | None = None, entitlements: PerGroup | None = None
    ) -> None:
        grown = self.groups.grown(n_new, groups, entitlements)
        if not self._pooled:
            if not grown.all_alike:
                repair = "Make the policy with entitlements=, to speak of them later."
                raise validate.Refusal("entitlements", "left out: all arms are entitled alike", entitlements, repair)
            entries = np.full(n_new, entry)
        else:
            entries = self._entries(grown, n_new, entry)
        self.groups, self.settings = grown, {**self.settings, **grown.settings()}
        if not grown.are_plain:
            accounts = np.pad(self._memory.group_accounts, (0, grown.n_groups - len(self._memory.group_accounts)))
            accounts[grown.of_arms[-n_new:]] = 0.0
            self._memory.group_accounts = accounts
        self._change_arms(np.arange(len(self._memory.live_arms)), entries)

    def _entries(self, grown: Groups, n_new: int, entry: float) -> Vector:
        """rho of every new arm: that of its group, whether it has live arms or not, or of a group that is new."""
        known = dict(zip(self.groups.of_arms[self._memory.live_arms].tolist(), self._levels.tolist(), strict=True))
        least = min(known.values())
        for g in grown.of_arms[-n_new:].tolist():
            entitlement = float(grown.entitlements[g])
            if g not in known and g < self.groups.n_groups:
                known[g] = float(self._memory.group_accounts[g]) / entitlement
            elif g not in known:
                known[g] = max(least, 1.0 / entitlement) if np.isnan(entry) else entry / entitlement
        return np.array([known[g] for g in grown.of_arms[-n_new:].tolist()])

    def _change_arms(self, kept: NDArray[np.int64], entries: Vector) -> None:
        memory = self._memory
        before, levels = self.groups.of_arms[memory.live_arms], self._levels.copy()
        super()._change_arms(kept, entries)
        if self._pooled:
            memory.accounts[:, len(kept) :] = 1.0  # what new arms have earned themselves
            for column in np.flatnonzero(~np.isin(before, self.groups.of_arms[memory.live_arms])):
                account = levels[column] * self.groups.entitlements[before[column]]
                memory.group_accounts[before[column]] = max(1.0, account)  # (1/49) 49 is less
        self._project(memory.learners)

    def _retired_earned(self, arms: NDArray[Any], amounts: Vector) -> None:
        """Late rewards of retired arms count for their groups."""
        if not self._pooled:
            return
        memory = self._memory
        of_live = self.groups.of_arms[memory.live_arms]
        for g, amount in zip(self.groups.of_arms[arms].tolist(), amounts.tolist(), strict=True):
            columns = np.flatnonzero(of_live == g)
            if len(columns):
                self._levels[columns] += amount / self.groups.entitlements[g]
                self._reopen(columns)
            else:
                memory.group_accounts[g] += amount
        self._work = self._make_work(len(memory.live_arms))

    def _reopen(self, columns: NDArray[np.int64]) -> None:
        """Bring what stands beside some accounts up to date with them."""
        rows = self._memory.shared[0, : self._account_rows, ARMS:]
        opened = rows[:, columns]
        open_accounts(opened, opened[TOTAL].copy(), self.alpha)
        rows[:, columns] = opened

    # snapshots

    @classmethod
    def _made(cls, n_contexts: int, live: NDArray[np.bool_], settings: dict[str, Any], seed: int | None) -> Self:
        said = {name: settings[name] for name in SAID if name in settings}
        groups = Groups.of(len(live), **said, n_live=int(live.sum()))
        few = groups.among(np.flatnonzero(live)).settings()
        policy = cls(n_contexts, int(live.sum()), **{**settings, **few}, seed=seed)
        policy.groups, policy.settings = groups, {**policy.settings, **groups.settings()}
        policy._become(live)
        policy._memory.group_accounts = np.zeros(groups.n_groups if said else 0)
        return policy

    def _settings_then(self, state: State, n_contexts: int) -> dict[str, Any]:
        if SAID[0] not in self.settings:
            return super()._settings_then(state, n_contexts)
        said = {name: state.settings[name] for name in SAID}
        then = Groups.of(int(state.settings["n_arms"]), **said, n_live=1)
        if not self.groups.agree_with(then):
            repair = "Use alphafair.load_policy(state) to build the policy that it belongs to."
            raise validate.Refusal("state.settings", f"of groups as {self.groups.settings()}", said, repair)
        return {**super()._settings_then(state, n_contexts), **said}

    def _check_memory(self) -> None:
        if not self._pooled:
            return
        groups, memory = self._live_groups, self._memory
        first = np.zeros(groups.n_groups)
        first[groups.of_arms] = self._levels
        lasting = _only_where_absent(self.groups, memory.live_arms, memory.group_accounts)
        alike = np.array_equal(first[groups.of_arms], self._levels)
        if not alike or not lasting or (self._levels * groups.entitlements[groups.of_arms] < 1.0 - 1e-9).any():
            raise validate.Refusal("state.arrays", "accounts of groups, at least 1", memory.group_accounts, DAMAGED)


def _only_where_absent(groups: Groups, live: NDArray[np.int64], accounts: Vector) -> bool:
    """Whether accounts stand where groups have no live arm, and only there."""
    has_live = np.isin(np.arange(groups.n_groups), groups.of_arms[live])
    return bool((accounts[has_live] == 0.0).all() and (accounts[~has_live] >= 1.0 - 1e-9).all())
