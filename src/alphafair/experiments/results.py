"""What the experiments found, as values: made from tables by `measured`, shown by the report, kept by `serialize`."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, Self

import numpy as np

from alphafair import metrics
from alphafair.policies import POLICIES

Floats = tuple[float, ...]


@dataclass(frozen=True)
class Band:
    """A mean over seeds and its 95% confidence interval; without width where nothing is random."""

    mean: float
    low: float
    high: float

    @property
    def random(self) -> bool:
        return self.high > self.low

    @property
    def size(self) -> Self:
        """How far from zero, without a sign."""
        return self if self.mean > 0.0 else type(self)(-self.mean, -self.high, -self.low)


@dataclass(frozen=True)
class Series:
    """Bands along the recorded rounds, or along floors."""

    mean: Floats
    low: Floats
    high: Floats

    @classmethod
    def exact(cls, values: Iterable[float]) -> Self:
        """Where nothing is random."""
        return cls(*[tuple(values)] * 3)

    @classmethod
    def along(cls, bands: Sequence[Band]) -> Self:
        return cls(*(tuple(getattr(each, side) for each in bands) for side in ("mean", "low", "high")))

    @property
    def sides(self) -> tuple[Floats, Floats, Floats]:
        return self.mean, self.low, self.high

    def __getitem__(self, place: int) -> Band:
        return Band(*(side[place] for side in self.sides))

    @property
    def end(self) -> Band:
        return self[-1]

    def minus(self, level: Floats) -> Self:
        return type(self)(*(tuple(np.subtract(side, level).tolist()) for side in self.sides))


@dataclass(frozen=True)
class Outcome:
    """What one contender did in an experiment over time."""

    policy: str
    feedback: str
    settings: dict[str, Any]
    n_seeds: int
    alpha_performance: Series
    jain_index: Series
    average_reward: Series
    standard_regret: Series
    approximate_regret: Series
    ratio: Series
    final_rewards: Floats  # per arm
    pull_shares: Floats  # per arm
    gap_closed: Band
    certificates: dict[str, float] | None = None  # with full information: what some of these are at most, by metric

    @property
    def learned(self) -> Band:
        """The gap closed to a millionth: uniform play closes nothing, not 1e-15."""
        gap = self.gap_closed
        return Band(*(round(side, 6) + 0.0 for side in (gap.mean, gap.low, gap.high)))

    @property
    def least(self) -> float:
        """What the worst-off arm has earned."""
        return min(self.final_rewards)


class Entry(NamedTuple):
    """A contender under its label."""

    label: str
    outcome: Outcome


@dataclass(frozen=True)
class Rows:
    """Which part of the ratings was played."""

    rows: int | None
    min_ratings: int | None
    reward_floor: float


@dataclass(frozen=True)
class Section:
    title: str
    digest: str
    seeds: tuple[int, ...]


@dataclass(frozen=True)
class OnRounds(Section):
    n_rounds: int
    n_contexts: int
    n_arms: int


@dataclass(frozen=True)
class OnRatings(OnRounds):
    arm_labels: tuple[str, ...]
    settings: Rows


@dataclass(frozen=True)
class Optimum:
    """The best fixed policy in hindsight at every recorded round, and how far its value may be off at most."""

    values: Floats
    gaps: Floats


@dataclass(frozen=True)
class OverTime(OnRatings):
    """Contenders at one alpha, round by round."""

    alpha: float
    rounds: tuple[int, ...]
    optimum: Optimum
    contenders: dict[str, Outcome]

    @property
    def best(self) -> float:
        """The optimum of the whole run."""
        return self.optimum.values[-1]

    @property
    def certificate(self) -> float:
        return self.optimum.gaps[-1]

    @property
    def factor(self) -> float:
        return metrics.approximation_factor(self.alpha)

    @property
    def ordered(self) -> list[Entry]:
        """Contenders in the order of the registry, then others, uniform play last, whatever order a file has."""
        rank = {name: place for place, name in enumerate(name for name in POLICIES if name != "uniform")}

        def key(entry: Entry) -> tuple[int, bool, str]:
            label, each = entry
            return rank.get(each.policy, len(rank) + (each.policy == "uniform")), each.feedback != "full", label

        return sorted((Entry(*item) for item in self.contenders.items()), key=key)

    def ranked(self, metric: str) -> list[Entry]:
        """By where they end, the best first: regrets are better the lower they are."""
        sign = 1.0 if metric.endswith("regret") else -1.0
        return sorted(self.ordered, key=lambda entry: (sign * getattr(entry.outcome, metric).end.mean, entry.label))

    def of(self, policy: str, feedback: str | None = None) -> Outcome:
        """The contender that is this policy, with this feedback if given."""
        return next(each for _, each in self.ordered if each.policy == policy and feedback in (None, each.feedback))


@dataclass(frozen=True)
class First:
    """Who ends best in one metric, and how far ahead of each of the others, seed by seed."""

    label: str
    ahead: dict[str, Band]

    @property
    def close(self) -> list[str]:
        """Whom the seeds do not tell from it."""
        return [label for label, ahead in sorted(self.ahead.items()) if ahead.low <= 0.0]


@dataclass(frozen=True)
class Compared(OverTime):
    first: dict[str, First]  # by metric


@dataclass(frozen=True)
class PullShares(OnRounds):
    """How often arms of fixed pay are pulled, by contender and arm."""

    alpha: float
    arms: Floats  # what each pays
    shares: dict[str, Floats]

    @property
    def best_arm(self) -> int:
        return self.arms.index(max(self.arms))

    @property
    def worst_arm(self) -> int:
        return self.arms.index(min(self.arms))


@dataclass(frozen=True)
class Sign(OverTime):
    toy: PullShares


@dataclass(frozen=True)
class OverAlpha(OnRatings):
    """Where one policy ends, for every alpha."""

    data: str
    alphas: Floats
    jain_index: Floats
    average_reward: Floats
    final_rewards: tuple[Floats, ...]  # per arm


@dataclass(frozen=True)
class OverFloor(OnRatings):
    """Where FairCB ends along its floor, against alpha-FairCB, which has none; by feedback, "full" and "bandit"."""

    alpha: float
    floors: Floats
    fair_cb: dict[str, dict[str, Series]]  # by metric
    alpha_fair: dict[str, dict[str, Band]]
    ahead: dict[str, Series]  # of alpha-FairCB over FairCB, seed by seed
    maxima: Floats  # over the seeds of FairCB (bandit): what the published code plots


@dataclass(frozen=True)
class Limits(Section):
    """OPT/ALG on the two-context instance, by alpha and length, and the limit that no online policy can beat."""

    halves: tuple[int, ...]
    alphas: Floats
    limits: Floats
    ratios: tuple[Floats, ...]

    def distance(self, place: int) -> float:
        """The largest distance to a limit at this length, as a part of it."""
        return max(abs(row[place] / limit - 1.0) for row, limit in zip(self.ratios, self.limits, strict=True))


@dataclass(frozen=True)
class Lead:
    """What a claim says is above zero: the mean over seeds and its confidence interval."""

    what: str
    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Claim:
    id: str
    experiment: str
    source: str
    claim: str
    measured: str
    verdict: str
    leads: tuple[Lead, ...]
    data: str
    independent: bool = True


@dataclass(frozen=True)
class Part:
    """How many ratings of a known data set were found."""

    of: str
    found: int
    complete: int


@dataclass(frozen=True)
class DataFacts:
    """`stand_in`: whether it is anything else than the paper's data; `part`: if it is a part of a known data set."""

    name: str
    stand_in: bool
    digest: str
    note: str
    part: Part | None = None


@dataclass(frozen=True)
class Score:
    """What one contender did on one course of the arena."""

    label: str
    policy: str
    feedback: str
    alpha: float
    n_seeds: int
    gap_closed: Band
    alpha_performance: Band


@dataclass(frozen=True)
class Meeting(OnRounds):
    """All contenders on one course."""

    name: str
    delay: int | None
    scores: tuple[Score, ...]
    promises: tuple[Lead, ...] = ()  # of the adaptive policy against an adversary that sees the distribution

    def of(self, feedback: str, alpha: float) -> list[Score]:
        return [score for score in self.scores if (score.feedback, score.alpha) == (feedback, alpha)]


@dataclass(frozen=True)
class Experiments:
    A: Compared
    B: Compared
    C: OverAlpha
    floor_sweep: OverFloor
    impossibility: Limits
    sign: Sign
    step: OverTime
    readings: OverTime
    delta: OverTime
    arena: tuple[Meeting, ...]

    def sections(self) -> list[tuple[str, Any]]:
        """All of them by name, in order of their names, the toy, and every course of the arena."""
        names = sorted(field.name for field in fields(self) if field.name != "arena")
        courses = (("arena", each) for each in self.arena)
        return [*((name, getattr(self, name)) for name in names), ("toy", self.sign.toy), *courses]


@dataclass(frozen=True)
class Results:
    command: str
    versions: dict[str, str]
    data: DataFacts
    claims: tuple[Claim, ...]
    experiments: Experiments


@dataclass(frozen=True)
class Arena:
    command: str
    versions: dict[str, str]
    alphas: Floats
    meetings: tuple[Meeting, ...]
    described: tuple[Meeting, ...]  # on rounds with features, where 100% is who knows every mean
