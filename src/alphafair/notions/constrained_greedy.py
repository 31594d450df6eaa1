"""Constrained epsilon-greedy: the probability of every group of arms within bounds, in every context and round.

    eps = min(1, 4/(eta gap^2 t)) ;   p = (1 - eps) v + eps q
    v = argmax <m_j, v> within the bounds ;   q inside them, with every entry at least eta

t counts the rounds of the context, this one included. q gives group G low + s (high - low), with one s for all, in
equal shares. v gives every group its floor, then what is left to groups in the order of their best arms, up to their
ceilings, all of it to the best arm of the group.

    `group`: the group of an arm, numbered from 0 · `low`, `high`: of group k in column k · `spread`: q by arm
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from alphafair import validate
from alphafair.errors import InvalidArgument, shown
from alphafair.groups import ArmGroups, Groups, GroupsLike, PerGroup
from alphafair.jit import kernel
from alphafair.math.distributions import TIE, draw_arm
from alphafair.notions._counts import C, K, add_reward
from alphafair.policy.algorithm import Algorithm
from alphafair.policy.base import BasePolicy
from alphafair.policy.memory import DAMAGED, Layout
from alphafair.values import Feedback, Traits
from alphafair.values.arrays import Vector, positions

S = positions("gap")
A = positions("group", "low", "high", "spread")
T = positions("mean", "best", "mass", "ties")
OTHERS = ""  # in a mapping of bounds: all groups that it does not name


@kernel
def best_of_groups(memory, context):
    """Write the means of arms, the best one of every group, -1 for no group, and the number of arms that have it."""
    rows, of_arms = memory.contexts[context], memory.arms[A.group]
    mean, best, ties = memory.scratch[T.mean], memory.scratch[T.best], memory.scratch[T.ties]
    for i in range(mean.shape[0]):
        mean[i] = rows[C.sums, i] / max(1.0, rows[C.counts, i])
        best[i], ties[i] = -1.0, 0.0
    for i in range(mean.shape[0]):
        g = int(of_arms[i])
        best[g] = max(best[g], mean[i])
    for i in range(mean.shape[0]):
        g = int(of_arms[i])
        ties[g] += 1.0 if mean[i] >= best[g] - TIE * best[g] else 0.0


@kernel
def fill(memory):
    """Write the mass that v gives to every group."""
    low, high = memory.arms[A.low], memory.arms[A.high]
    best, mass = memory.scratch[T.best], memory.scratch[T.mass]
    left = 1.0
    for g in range(mass.shape[0]):
        mass[g] = low[g]
        left -= low[g]
    while left > 0.0:
        chosen = -1
        for g in range(mass.shape[0]):
            if best[g] >= 0.0 and mass[g] < high[g] and (chosen < 0 or best[g] > best[chosen]):
                chosen = g
        if chosen < 0:
            break
        added = min(left, high[chosen] - mass[chosen])
        mass[chosen] = high[chosen] if added < left else mass[chosen] + added
        left -= added


@kernel
def draw(memory, context, uniform, out):
    """Explore within the bounds with probability eps, else play the best arms within them."""
    n, of_arms, spread = out.shape[0], memory.arms[A.group], memory.arms[A.spread]
    best_of_groups(memory, context)
    fill(memory)
    mean, best, mass = memory.scratch[T.mean], memory.scratch[T.best], memory.scratch[T.mass]
    ties, gap, least = memory.scratch[T.ties], memory.settings[S.gap], 1.0
    for i in range(n):
        least = min(least, spread[i]) if spread[i] > 0.0 else least
    eps = min(1.0, 4.0 / (least * gap * gap * (memory.context_scalars[context, K.visits] + 1.0)))
    total = 0.0
    for i in range(n):
        g = int(of_arms[i])
        greedy = mass[g] / ties[g] if mean[i] >= best[g] - TIE * best[g] else 0.0
        out[i] = (1.0 - eps) * greedy + eps * spread[i]
        total += out[i]
    for i in range(n):
        out[i] /= total  # 1 up to rounding
    arm = draw_arm(out, uniform)
    return arm, out[arm]


@kernel
def learn(memory, context, arm, propensity, reward):
    """Add the reward to the mean of its arm."""
    add_reward(memory, context, arm, reward)
    return True


def variants(_n_contexts: int, n_arms: int) -> dict[str, dict[str, Any]]:
    """Return the settings to test, by name."""
    return {"": {"low": 0.25 / n_arms, "gap": 2.0}}


class ConstrainedGreedy(BasePolicy):
    """Keep the probability of every group within bounds, in every context and round: constrained epsilon-greedy.

    The promise is $l_G \\le p(G) \\le u_G$ for every group G. With probability 1 - eps the policy plays the best arms
    that the bounds allow, and else a distribution q inside them that gives no arm less than eta; eps falls like
    $4/(\\eta d^2 t)$.

    Parameters
    ----------
    n_contexts, n_arms
        Numbers of contexts and arms; `grow` and `retire` change them later.
    groups
        A label per arm, or a `Groups`, whose floors and ceilings are the defaults of `low` and `high`. None: every arm
        is its own group.
    low, high
        The bounds: one number for all groups, a mapping from label to number, with 0 and 1 for labels left out, which
        may name groups that are added later, or one number per group in the order of their first arms. None: 0 and
        1. Every low is at most its high; sums are at most and at least 1.
    gap
        d, above 0 and at most 100: a lower bound of the gap between the values of the best and the second-best corner
        of the bounds.
    seed
        Seed of `choose` without `rng`.

    Notes
    -----
    With two groups a ceiling is the floor of the other, and `Groups(labels, pull_floor=...)` on `AlphaFairAdaptive`
    makes the same promise and earns more. The paper has one learner per context, as here. Late rewards change nothing
    about the promise; a mask is renormalized and can break it. An arm that is added later is its own group, or in the
    group that `grow` names; a new group has the one number, what a mapping names, or 0 and 1. A group whose arms have
    all retired has no bounds any more; where the ceilings of the others then have a sum below 1, all are raised in
    proportion. Probabilities fall like 1/t at most, so the log of this policy can be used to evaluate others.

    Examples
    --------
    >>> from alphafair.notions import ConstrainedGreedy
    >>> policy = ConstrainedGreedy(1, 3, groups=["a", "b", "b"], low=0.25, high={"a": 0.5}, gap=2.0, seed=0)
    >>> for _ in range(200):
    ...     decision = policy.choose(0)
    ...     policy.update(decision, 1.0 if decision.arm == 0 else 0.2)
    >>> round(float(policy.probabilities(0)[0]), 2)
    0.5

    References
    ----------
    Celis, Kapoor, Salehi and Vishnoi, Controlling Polarization in Personalization: An Algorithmic Framework, FAT* 2019.
    """

    name: ClassVar[str] = "constrained-greedy"
    feedback = Feedback.BANDIT
    traits = Traits(variants=variants)
    algorithm = Algorithm(Layout(settings=S, arms=A, context_scalars=K, contexts=C, scratch=T), draw, learn)

    def __init__(
        self,
        n_contexts: int,
        n_arms: int,
        *,
        groups: GroupsLike | None = None,
        low: PerGroup | float | None = None,
        high: PerGroup | float | None = None,
        gap: float = 0.5,
        seed: int | None = None,
    ) -> None:
        n_arms = validate.integer("n_arms", n_arms, low=1)
        given = Groups.of(groups)
        if given.entitlements is not None:
            repair = "Pass a list of labels, or a Groups without them."
            raise InvalidArgument("groups.entitlements", "None for constrained-greedy", given.entitlements, repair)
        labels = Groups(given.labels).for_arms(n_arms)
        floors, ceilings = (
            _bounds(argument, value, labels, missing=missing)
            for argument, value, missing in (
                ("low", given.pull_floor if low is None else low, 0.0),
                ("high", given.pull_ceiling if high is None else high, 1.0),
            )
        )
        settings: dict[str, Any] = {"low": floors, "high": ceilings}
        settings["gap"] = validate.number("gap", gap, low=0.0, high=100.0, low_open=True)
        settings |= {"groups": labels.settings()} if labels.named else {}
        lows, highs = (_of_labels(bounds, labels) for bounds in (floors, ceilings))
        wrong = lows > highs
        if wrong.any():
            g = int(wrong.argmax())
            allowed = f"at most high = {highs[g]:g} of group {labels.labels[g]!r}"
            raise InvalidArgument("low", allowed, float(lows[g]), "Lower it, or raise high.")
        if lows.sum() > 1.0 + 1e-12:
            raise InvalidArgument("low", "numbers with a sum of at most 1", lows.tolist(), "Lower them.")
        restored = isinstance(high, Mapping) and OTHERS in high  # then groups may be missing that have retired
        if highs.sum() < 1.0 - 1e-12 and not restored:
            raise InvalidArgument("high", "numbers with a sum of at least 1", highs.tolist(), "Raise them.")
        self.low, self.high, self.gap = low, high, settings["gap"]
        super().__init__(n_contexts, n_arms, settings=settings, seed=seed)

    @property
    def groups(self) -> ArmGroups:  # type: ignore[override]
        """The groups of all arms, retired ones included."""
        return Groups(**self.settings.get("groups", {})).for_arms(self.n_arms, n_live=1)

    def _numbers(self) -> dict[str, Any]:
        return {"gap": self.settings["gap"]}

    def _check_n_live(self, n_live: int) -> None:
        """Floors are checked in `_admit`, which knows the groups of new arms."""

    def _admit(self, n_new: int, entry: float, arriving: Groups) -> None:
        live = self._learned.live_arms
        grown = self.groups.grown(n_new, arriving.labels, arriving.entitlements)
        present = grown.among(np.concatenate([live, self.n_arms + np.arange(n_new)]))
        lows = _of_labels(self.settings["low"], present)
        if lows.sum() > 1.0 + 1e-12:
            repair = "Add the arms to groups that are there, or construct the policy with a lower one."
            raise InvalidArgument("groups", "groups whose floors low have a sum of at most 1", lows.tolist(), repair)
        self.settings = {**self.settings, **({"groups": grown.settings()} if grown.named else {})}
        self._change_arms(np.arange(len(live)), np.full(n_new, entry))

    def _change_arms(self, kept: NDArray[np.int64], entries: Vector) -> None:
        super()._change_arms(kept, entries)
        self._write_bounds()

    def _start(self, live: NDArray[np.bool_], *parts: Any, **named: Any) -> None:
        super()._start(live, *parts, **named)
        self._write_bounds()

    def _write_bounds(self) -> None:
        self._memory.arms[...] = self._bounds_of_live()

    def _bounds_of_live(self) -> NDArray[np.float64]:
        """Return the rows of `A` for the live arms."""
        present = self.groups.among(self._learned.live_arms)
        low, high = (_of_labels(self.settings[name], present) for name in ("low", "high"))
        if high.sum() < 1.0:  # the groups of others have retired
            high = high / high.sum() if high.any() else np.full(len(high), 1.0 / len(high))
        room = (high - low).sum()
        mass = low + (1.0 - low.sum()) / room * (high - low) if room > 0.0 else low / low.sum()
        rows = np.zeros((A.size, len(present.of_arms)))
        rows[A.group] = present.of_arms
        rows[A.low, : len(low)], rows[A.high, : len(high)] = low, high
        rows[A.spread] = (mass / np.bincount(present.of_arms))[present.of_arms]
        return rows

    def _check(self) -> None:
        super()._check()
        expected = self._bounds_of_live()
        if not np.array_equal(self._memory.arms, expected):
            raise InvalidArgument("state: low and high", "those of its settings", shown(expected), DAMAGED)


def _bounds(argument: str, value: Any, labels: ArmGroups, *, missing: float) -> dict[str, float]:
    """Check bounds of groups; return a mapping from labels as strings, in which "" stands for all others."""
    repair = "Pass one number, a mapping from group to number, or one number per group."
    if isinstance(value, Mapping):
        given = {str(label): each for label, each in value.items()}
    elif value is None or np.ndim(value) == 0:
        given = {OTHERS: missing if value is None else value}
    elif np.ndim(value) == 1 and len(value) == labels.n_groups:
        given = dict(zip(map(str, labels.labels), value, strict=True))
    else:
        raise InvalidArgument(argument, f"{labels.n_groups} numbers, one per group", value, repair)
    return {label: validate.number(argument, each, low=0.0, high=1.0) for label, each in given.items()} | (
        {} if OTHERS in given else {OTHERS: missing}
    )


def _of_labels(bounds: Mapping[str, float], groups: ArmGroups) -> Vector:
    """Return the bound of every group."""
    return np.array([bounds.get(str(label), bounds[OTHERS]) for label in groups.labels])
