"""Whom to be fair to: groups of arms, what each is entitled to, and the share of the draws it is promised.

With G(i) the group of arm i, an account belongs to a group, R_G = 1 + the sum of what its arms have earned. Groups with
entitlements s maximise sum_G s_G^alpha phi(R_G): a group entitled to twice as much is content with twice as much. A
floor promises a share of every round's draw: nu to every arm, or nu_G to every group.
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
MOST_ENTITLED = 1e6  # times one, and one over it at least


@dataclass(frozen=True, eq=False)
class Groups:
    """Whom to be fair to: the argument `groups` of everything that can be fair to groups.

    Parameters
    ----------
    labels
        The group of every arm, a string or an integer each. None: every arm is a group of its own.
    entitlements
        What groups are entitled to: a mapping from label to number, where those left out have 1, or one number per
        group in the order of their first arms. None: all alike.
    pull_floor
        The least share of every round's draw: one number for each arm, or a mapping or sequence by group. None: none.

    A plain list of labels is accepted wherever a `Groups` is, and so are the `groups` of a policy.

    >>> from alphafair import AlphaFair, Groups
    >>> policy = AlphaFair(1, 3, groups=Groups(["north", "south", "north"], entitlements={"south": 2}))
    >>> policy.groups.labels, policy.groups.entitlements.tolist()
    (('north', 'south'), [1.0, 2.0])
    """

    labels: Labels | None = None
    entitlements: PerGroup | None = None
    pull_floor: PerGroup | None = None

    @classmethod
    def of(cls, value: GroupsLike | None) -> Groups:
        """A `Groups`, from one, from those of a policy, or from a list of labels."""
        if isinstance(value, ArmGroups):
            return cls(**value.settings())
        return value if isinstance(value, Groups) else cls(value)

    def for_arms(self, n_arms: int, *, n_live: int | None = None) -> ArmGroups:
        """Resolved for so many arms, and checked.

        Where arms come and go, at most `n_live` of them are there at one time, and no more need room for their floor.
        """
        floor = 0.0 if self.pull_floor is None else self.pull_floor
        return ArmGroups.of(n_arms, self.labels, self.entitlements, floor, n_live=n_live)

    def __repr__(self) -> str:
        given = {name: value for name, value in vars(self).items() if value is not None}
        return f"Groups({', '.join(f'{name}={shown(value)}' for name, value in given.items())})"


@dataclass(frozen=True, eq=False)
class ArmGroups:
    """`Groups` resolved for so many arms: the group of every arm, and the entitlement and floor of every group.

    Groups are numbered from 0 in the order of their first arms. `named` is False without labels: every arm is then a
    group of its own, labelled by its number. `named`, `entitled` and `floored` say what was given for all arms, and
    stay as they are for a subset of them.
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
        """From what a user says: a label per arm, numbers by group; one floor for every arm, or floors by group.

        Where arms come and go, at most `n_live` of them are there at one time, and no more need room for their floor.

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
                repair = "Give each more than 0; only their ratios matter much, so they can be rescaled."
                raise InvalidArgument("entitlements", allowed, float(values[bad][0]), repair)
        arm_floor, floors = 0.0, np.zeros(len(labels))
        floored = not isinstance(pull_floor, float) and (isinstance(pull_floor, Mapping) or np.ndim(pull_floor) > 0)
        if not floored:
            arm_floor = validate.number("pull_floor", pull_floor, low=0.0, high=1.0)
        else:
            floors = _by_group("pull_floor", pull_floor, labels, missing=0.0)
            if not (floors >= 0.0).all() or not floors.sum() <= 1.0 + 1e-12:
                raise InvalidArgument(
                    "pull_floor", "at least 0, 1 in all", floors.tolist(), "Promise no more than all draws."
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
        """Whether nothing was said: every arm is on its own, with equal rights and no floor."""
        return not (self.named or self.entitled or self.floored or self.arm_floor > 0.0)

    @property
    def equally_entitled(self) -> bool:
        return bool((self.entitlements == 1.0).all())

    def check_floor(self, n_live: int) -> None:
        """Refuse a floor that so many arms cannot all be given."""
        if self.arm_floor * n_live > 1.0 + 1e-12:
            allowed = f"at most {1.0 / n_live:.6g}, one over {n_live} arms"
            raise InvalidArgument("pull_floor", allowed, self.arm_floor, "Promise every arm less, or retire some.")

    def factors(self, alpha: float) -> Vector:
        """s^alpha of every group: what stands before phi in the objective."""
        return np.asarray(self.entitlements**alpha)

    def accounts(self, arm_accounts: ArrayLike) -> Matrix:
        """R_G = 1 + sum over its arms of (R_i - 1), along the last axis.

        >>> ArmGroups.of(3, ["a", "b", "a"]).accounts([3.0, 2.0, 5.0]).tolist()
        [7.0, 2.0]
        """
        by_arm = np.asarray(arm_accounts, dtype=np.float64)
        if not self.named:
            return by_arm
        sums = np.zeros((*by_arm.shape[:-1], self.n_groups))
        np.add.at(sums.T, self.of_arms, (by_arm - 1.0).T)
        return 1.0 + sums

    def of_trace(self, trace: Trace) -> Trace:
        """The accounts and pulls of a run, by group."""
        if not self.named:
            return trace
        pulls = np.bincount(self.of_arms, trace.pulls, self.n_groups).astype(np.int64)
        return replace(trace, accounts=self.accounts(trace.accounts), pulls=pulls)

    def among(self, arms: NDArray[np.int64]) -> ArmGroups:
        """The same for some of the arms: groups without any of them are left out."""
        present, of_arms = np.unique(self.of_arms[arms], return_inverse=True)
        return replace(
            self,
            of_arms=of_arms,
            labels=tuple(self.labels[g] for g in present),
            entitlements=self.entitlements[present],
            group_floors=self.group_floors[present],
        )

    def grown(self, n_new: int, groups: Labels | None, entitlements: PerGroup | None) -> ArmGroups:
        """With so many more arms at the end, in groups that exist or in new ones, entitled as `entitlements` say.

        New arms that nobody speaks of are groups of their own, labelled by their number.
        """
        numbers = list(range(self.n_arms, self.n_arms + n_new))
        if groups is None:
            arrived: list[Label] = [n if n not in self.labels else f"arm {n}" for n in numbers]
        else:
            if not self.named:
                repair = "Make the policy with groups, one label per arm, to add arms to groups later."
                raise InvalidArgument("groups", "left out: every arm of this policy is on its own", groups, repair)
            arrived = _labels(groups, n_new)
        labels = [*(self.labels[g] for g in self.of_arms), *arrived]
        order = {label: g for g, label in enumerate(dict.fromkeys([*self.labels, *arrived]))}
        of_arms = np.array([order[label] for label in labels], dtype=np.int64)
        n_more = len(order) - self.n_groups
        values = np.ones(n_more)
        if entitlements is not None:
            new = list(order)[self.n_groups :]
            if isinstance(entitlements, Mapping) and not {*entitlements} <= {*new}:
                repair = "Groups that exist keep what they are entitled to."
                raise InvalidArgument(
                    "entitlements", f"of groups that are new, {validate.listed(new)}", entitlements, repair
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
        """The arguments of a `Groups` that says the same, as JSON can hold them; none where nothing was said."""
        if self.is_default:
            return {}
        return {
            "labels": [self.labels[g] for g in self.of_arms] if self.named else None,
            "entitlements": self.entitlements.tolist() if self.entitled else None,
            "pull_floor": self.group_floors.tolist() if self.floored else self.arm_floor,
        }

    def agree_with(self, other: ArmGroups) -> bool:
        """Whether one says of the first arms what the other says of all of its own."""
        few, many = sorted((self, other), key=lambda groups: groups.n_arms)
        first = many.among(np.arange(few.n_arms))
        if few.named != many.named or few.arm_floor != many.arm_floor or few.n_groups < first.n_groups:
            return False
        same = np.array_equal(few.of_arms, many.of_arms[: few.n_arms]) and few.labels == many.labels[: few.n_groups]
        return same and all(
            np.array_equal(mine, theirs[: len(mine)])
            for mine, theirs in ((few.entitlements, many.entitlements), (few.group_floors, many.group_floors))
        )


GroupsLike = Groups | ArmGroups | Labels  # what an argument `groups` may be


def arm_groups(groups: GroupsLike | None, n_arms: int, *, n_live: int | None = None) -> ArmGroups:
    """An argument `groups` resolved for so many arms, and checked; see `Groups.for_arms`."""
    if not isinstance(groups, ArmGroups):
        return Groups.of(groups).for_arms(n_arms, n_live=n_live)
    if groups.n_arms != n_arms:
        raise InvalidArgument("groups", f"groups of {n_arms} arms", groups.n_arms, "Give a label for every arm.")
    return groups


def _labels(groups: Labels, n_arms: int) -> list[Label]:
    """As many labels as arms, each a string or an integer."""
    repair = "Give the name or number of a group for every arm."
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
    """One number per group, from a mapping or in the order of appearance."""
    repair = "Give a mapping from group to number, or one number per group in the order of their first arms."
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
