"""Groups of arms: the unit of fairness, its entitlement, and a floor under its probability.

With G(i) the group of arm i, an account belongs to a group: R_G = 1 + the sum of the rewards of its arms. With
entitlements s the objective is sum_G s_G^alpha phi(R_G), so a group entitled to twice as much receives twice as much at
equal marginal utility. A floor is the least probability in every round: nu for every arm, or nu_G for every group.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from alphafair import validate
from alphafair.errors import InvalidArgument, shown
from alphafair.values.arrays import Matrix, Vector

if TYPE_CHECKING:
    from alphafair.values import Trace

Label = str | int
Labels = Sequence[Label] | NDArray[Any]
PerGroup = Mapping[Any, float] | ArrayLike
MOST_ENTITLED = 1e6  # entitlements lie between 1 over this and this


@dataclass(frozen=True, eq=False)
class Groups:
    """The groups that accounts belong to: the argument `groups` of policies, metrics and the offline optimum.

    Parameters
    ----------
    labels
        The group of every arm: a string or an integer each. None: every arm is its own group.
    entitlements
        A mapping from label to number, with 1 for labels left out, or one number per group in the order of their first
        arms. None: 1 for all.
    pull_floor
        The least probability in every round: one number for every arm, or a mapping or sequence by group. None: 0.
    pull_ceiling
        The largest probability in every round, by group, for `notions.ConstrainedGreedy` alone. None: 1. With floors
        every policy is the floors plus what is left of any policy, which keeps the guarantees of the alpha-fair
        policies and the proof of the offline optimum. Ceilings leave no such rest, so these refuse them. Floors under
        the other groups make a ceiling: with floors of 0.4 under two groups neither has more than 0.6.

    Wherever a `Groups` is accepted, a list of labels and the `groups` of a policy are too.

    >>> from alphafair import AlphaFair, Groups
    >>> policy = AlphaFair(1, 3, groups=Groups(["north", "south", "north"], entitlements={"south": 2}))
    >>> policy.groups.labels, policy.groups.entitlements.tolist()
    (('north', 'south'), [1.0, 2.0])
    """

    labels: Labels | None = None
    entitlements: PerGroup | None = None
    pull_floor: PerGroup | None = None
    pull_ceiling: PerGroup | None = None

    @classmethod
    def of(cls, value: GroupsLike | None) -> Groups:
        """Convert a `Groups`, the `groups` of a policy, or a list of labels."""
        if isinstance(value, ArmGroups):
            return cls(**value.settings())
        return value if isinstance(value, Groups) else cls(value)

    def for_arms(self, n_arms: int, *, n_live: int | None = None) -> ArmGroups:
        """Resolve and check for `n_arms` arms, of which at most `n_live` are live at one time (default: all)."""
        if self.pull_ceiling is not None:
            repair = (
                "Put floors under the other groups instead, which caps this one at 1 minus their sum: with "
                "pull_floor={'a': 0.4, 'b': 0.4} neither has more than 0.6. Guarantees with ceilings are not known. "
                "Or use alphafair.notions.ConstrainedGreedy, which has none."
            )
            raise InvalidArgument("pull_ceiling", "None here", self.pull_ceiling, repair)
        floor = 0.0 if self.pull_floor is None else self.pull_floor
        return ArmGroups.of(n_arms, self.labels, self.entitlements, floor, n_live=n_live)

    def __repr__(self) -> str:
        given = {name: value for name, value in vars(self).items() if value is not None}
        return f"Groups({', '.join(f'{name}={shown(value)}' for name, value in given.items())})"


@dataclass(frozen=True, eq=False)
class ArmGroups:
    """`Groups` resolved for a number of arms: the group of every arm, the entitlement and floor of every group.

    Groups are numbered from 0 in the order of their first arms. `named` is False without labels: every arm is then its
    own group, labeled by its number. `named`, `entitled` and `floored` (by group) show which arguments were given;
    subsets of the arms keep them.
    """

    of_arms: NDArray[np.int64]
    labels: tuple[Label, ...]
    entitlements: Vector
    arm_floor: float
    group_floors: Vector
    named: bool
    entitled: bool
    floored: bool

    @classmethod
    def of(
        cls,
        n_arms: int,
        groups: Labels | None = None,
        entitlements: PerGroup | None = None,
        pull_floor: PerGroup = 0.0,
        *,
        n_live: int | None = None,
    ) -> ArmGroups:
        """Resolve and check the arguments of a `Groups`; at most `n_live` arms are live at one time (default: all).

        >>> ArmGroups.of(3, ["north", "south", "north"], entitlements={"south": 2}).entitlements.tolist()
        [1.0, 2.0]
        """
        of_arms, labels = _numbered(groups, n_arms)
        values = np.ones(len(labels))
        if entitlements is not None:
            values = _by_group("entitlements", entitlements, labels, missing=1.0)
            bad = ~((values >= 1.0 / MOST_ENTITLED) & (values <= MOST_ENTITLED))
            if bad.any():
                allowed = f"numbers in [{1.0 / MOST_ENTITLED:g}, {MOST_ENTITLED:g}]"
                repair = "Rescale them: in the long run only their ratios matter."
                raise InvalidArgument("entitlements", allowed, float(values[bad][0]), repair)
        arm_floor, floors = 0.0, np.zeros(len(labels))
        floored = not isinstance(pull_floor, float) and (isinstance(pull_floor, Mapping) or np.ndim(pull_floor) > 0)
        if not floored:
            arm_floor = validate.number("pull_floor", pull_floor, low=0.0, high=1.0)
        else:
            floors = _by_group("pull_floor", pull_floor, labels, missing=0.0)
            if not (floors >= 0.0).all() or not floors.sum() <= 1.0 + 1e-12:
                raise InvalidArgument(
                    "pull_floor", "numbers of at least 0 with a sum of at most 1", floors.tolist(), "Lower them."
                )
        made = cls(of_arms, labels, values, arm_floor, floors, groups is not None, entitlements is not None, floored)
        made.check_floor(n_arms if n_live is None else n_live)
        return made

    @property
    def n_arms(self) -> int:
        return len(self.of_arms)

    @property
    def n_groups(self) -> int:
        return len(self.labels)

    @property
    def is_default(self) -> bool:
        """Whether every arm is its own group, with entitlement 1 and no floor."""
        return not (self.named or self.entitled or self.floored or self.arm_floor > 0.0)

    @property
    def equally_entitled(self) -> bool:
        return bool((self.entitlements == 1.0).all())

    def check_floor(self, n_live: int) -> None:
        """Raise unless `n_live` arms can all have the floor."""
        if self.arm_floor * n_live > 1.0 + 1e-12:
            allowed = f"at most {1.0 / n_live:.6g}, which is 1 over {n_live} arms"
            raise InvalidArgument("pull_floor", allowed, self.arm_floor, "Lower it, or retire arms.")

    def factors(self, alpha: float) -> Vector:
        """Return s^alpha of every group, the factor of phi in the objective."""
        return np.asarray(self.entitlements**alpha)

    def accounts(self, arm_accounts: ArrayLike) -> Matrix:
        """Return R_G = 1 + sum over its arms of (R_i - 1), along the last axis.

        >>> ArmGroups.of(3, ["a", "b", "a"]).accounts([3.0, 2.0, 5.0]).tolist()
        [7.0, 2.0]
        """
        by_arm = np.asarray(arm_accounts, dtype=np.float64)
        if self.n_groups == self.n_arms:
            return by_arm
        sums = np.zeros((*by_arm.shape[:-1], self.n_groups))
        np.add.at(sums.T, self.of_arms, (by_arm - 1.0).T)
        return 1.0 + sums

    def of_trace(self, trace: Trace) -> Trace:
        """Return a trace with the accounts and pulls by group."""
        if not self.named:
            return trace
        pulls = np.bincount(self.of_arms, trace.pulls, self.n_groups).astype(np.int64)
        return replace(trace, accounts=self.accounts(trace.accounts), pulls=pulls)

    def among(self, arms: NDArray[np.int64]) -> ArmGroups:
        """Restrict to some arms; groups without any of them are dropped."""
        present, of_arms = np.unique(self.of_arms[arms], return_inverse=True)
        return replace(
            self,
            of_arms=of_arms,
            labels=tuple(self.labels[g] for g in present),
            entitlements=self.entitlements[present],
            group_floors=self.group_floors[present],
        )

    def grown(self, n_new: int, groups: Labels | None, entitlements: PerGroup | None) -> ArmGroups:
        """Add `n_new` arms at the end, to existing groups or to new ones with these entitlements.

        Without `groups` every new arm is its own group, labeled by its number.
        """
        numbers = list(range(self.n_arms, self.n_arms + n_new))
        if groups is None:
            taken = {*self.labels}
            arrived: list[Label] = [n if n not in taken else f"arm {n}" for n in numbers]
        else:
            if not self.named:
                repair = "Construct the policy with groups, one label per arm, to add arms to groups later."
                raise InvalidArgument("groups", "None: this policy has no groups", groups, repair)
            arrived = _labels(groups, n_new)
        labels = [*(self.labels[g] for g in self.of_arms), *arrived]
        order = {label: g for g, label in enumerate(dict.fromkeys([*self.labels, *arrived]))}
        of_arms = np.array([order[label] for label in labels], dtype=np.int64)
        n_more = len(order) - self.n_groups
        values = np.ones(n_more)
        if entitlements is not None:
            new = list(order)[self.n_groups :]
            if isinstance(entitlements, Mapping) and not {*entitlements} <= {*new}:
                repair = "The entitlements of existing groups cannot change."
                raise InvalidArgument(
                    "entitlements", f"for new groups only, {validate.listed(new)}", entitlements, repair
                )
            values = ArmGroups.of(n_more, new, entitlements).entitlements
        return replace(
            self,
            of_arms=of_arms,
            labels=tuple(order),
            entitlements=np.concatenate([self.entitlements, values]),
            entitled=self.entitled or bool((values != 1.0).any()),
            group_floors=np.concatenate([self.group_floors, np.zeros(n_more)]),
        )

    def settings(self) -> dict[str, Any]:
        """Return the arguments of an equal `Groups` as JSON values; empty for the default."""
        if self.is_default:
            return {}
        return {
            "labels": [self.labels[g] for g in self.of_arms] if self.named else None,
            "entitlements": self.entitlements.tolist() if self.entitled else None,
            "pull_floor": self.group_floors.tolist() if self.floored else self.arm_floor,
        }

    def agree_with(self, other: ArmGroups) -> bool:
        """Whether both agree on the arms that both have."""
        few, many = sorted((self, other), key=lambda groups: groups.n_arms)
        first = many.among(np.arange(few.n_arms))
        if few.named != many.named or few.arm_floor != many.arm_floor or few.n_groups < first.n_groups:
            return False
        same = np.array_equal(few.of_arms, many.of_arms[: few.n_arms]) and few.labels == many.labels[: few.n_groups]
        return same and all(
            np.array_equal(mine, theirs[: len(mine)])
            for mine, theirs in ((few.entitlements, many.entitlements), (few.group_floors, many.group_floors))
        )


GroupsLike = Groups | ArmGroups | Labels  # accepted as an argument `groups`


def arm_groups(groups: GroupsLike | None, n_arms: int, *, n_live: int | None = None) -> ArmGroups:
    """Resolve and check an argument `groups`; see `Groups.for_arms`."""
    if not isinstance(groups, ArmGroups):
        return Groups.of(groups).for_arms(n_arms, n_live=n_live)
    if groups.n_arms != n_arms:
        raise InvalidArgument("groups", f"groups of {n_arms} arms", groups.n_arms, "Pass one label per arm.")
    return groups


def _labels(groups: Labels, n_arms: int) -> list[Label]:
    """Check that there is one label per arm, each a string or an integer."""
    repair = "Pass the name or number of a group for every arm."
    in_order = isinstance(groups, Collection) and not isinstance(groups, str | bytes | Mapping | Set)
    given: list[Any] = (
        (np.atleast_1d(groups).tolist() if isinstance(groups, np.ndarray) else list(groups)) if in_order else []
    )
    if len(given) != n_arms:
        raise InvalidArgument("groups", f"{n_arms} labels, one per arm", groups, repair)
    if not {*map(type, given)} <= {str, int}:
        given = [label.item() if isinstance(label, np.generic) else label for label in given]
        for label in given:
            if not isinstance(label, str | int) or isinstance(label, bool):
                raise InvalidArgument("groups", "strings or integers", label, repair)
    return given


def _numbered(groups: Labels | None, n_arms: int) -> tuple[NDArray[np.int64], tuple[Label, ...]]:
    if groups is None:
        return np.arange(n_arms), tuple(range(n_arms))
    labels = _labels(groups, n_arms)
    number = {label: g for g, label in enumerate(dict.fromkeys(labels))}
    return np.fromiter(map(number.__getitem__, labels), np.int64, n_arms), tuple(number)


def _by_group(argument: str, value: PerGroup, labels: tuple[Label, ...], *, missing: float) -> Vector:
    """Return one number per group, from a mapping or a sequence in the order of first arms."""
    repair = "Pass a mapping from group to number, or one number per group in the order of their first arms."
    if isinstance(value, Mapping):
        known = {*labels}
        unknown = [label for label in value if label not in known]
        if unknown:
            raise InvalidArgument(argument, f"for groups among {validate.listed(labels)}", unknown[0], repair)
        value = [value.get(label, missing) for label in labels]
    numbers = validate.floats(argument, "numbers", value, repair)
    if numbers.shape != (len(labels),) or not np.isfinite(numbers).all():
        raise InvalidArgument(argument, f"{len(labels)} finite numbers, one per group", numbers.tolist(), repair)
    return numbers.copy()
