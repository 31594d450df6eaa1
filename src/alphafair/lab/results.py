"""What the experiments found, as values: made from tables by `measured`, shown by the report, kept by `serialize`."""

from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np

from alphafair import metrics
from alphafair.values import Matrix, Vector

Floats = tuple[float, ...]


class Band(NamedTuple):
    """A mean over seeds and its 95% confidence interval; without width where nothing is random.

    All three are numbers, or arrays along the recorded rounds or along floors.
    """

    mean: Any
    low: Any
    high: Any

    @classmethod
    def exact(cls, values: Any) -> "Band":
        """Where nothing is random."""
        return cls(values, values, values)

    @property
    def end(self) -> "Band":
        return Band(*(side[-1] for side in self))

    @property
    def random(self) -> bool:
        return bool(np.any(self.high > self.low))

    @property
    def size(self) -> "Band":
        """How far from zero, without a sign."""
        return self if self.mean > 0.0 else Band(-self.mean, -self.high, -self.low)

    def minus(self, level: Any) -> "Band":
        return Band(*(side - level for side in self))


@dataclass(frozen=True)
class Outcome:
    """What one contender did in an experiment over time."""

    label: str
    policy: str
    feedback: str
    settings: dict[str, Any]
    n_seeds: int
    alpha_performance: Band
    jain_index: Band
    average_reward: Band
    standard_regret: Band
    approximate_regret: Band
    ratio: Band
    final_accounts: Vector  # per arm
    pull_shares: Vector  # per arm
    gap_closed: Band | None = None  # where there is no gap to close
    certificates: dict[str, float] | None = None  # with full information: what some of these are at most, by metric
    vacuous: bool | None = None  # True where certificates say nothing

    @property
    def learned(self) -> Band | None:
        """The gap closed to a millionth: uniform play closes nothing, not 1e-15."""
        if self.gap_closed is None:
            return None
        return Band(*(round(side, 6) + 0.0 for side in self.gap_closed))

    @property
    def least(self) -> float:
        """What the worst-off arm has earned."""
        return float(self.final_accounts.min())


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
    settings: dict[str, Any]  # which part of the ratings was played


@dataclass(frozen=True)
class Optimum:
    """The best fixed policy in hindsight at every recorded round, and how far its value may be off at most."""

    values: Vector
    gaps: Vector


@dataclass(frozen=True)
class OverTime(OnRatings):
    """Contenders at one alpha, round by round."""

    alpha: float
    rounds: tuple[int, ...]
    optimum: Optimum
    contenders: dict[str, Outcome]  # by label

    @property
    def best(self) -> float:
        """The optimum of the whole run."""
        return float(self.optimum.values[-1])

    @property
    def certificate(self) -> float:
        return float(self.optimum.gaps[-1])

    @property
    def factor(self) -> float:
        return metrics.approximation_factor(self.alpha)

    @property
    def outcomes(self) -> list[Outcome]:
        return list(self.contenders.values())

    def ranked(self, metric: str) -> list[Outcome]:
        """By where they end, the best first: regrets are better the lower they are."""
        sign = 1.0 if metric.endswith("regret") else -1.0
        return sorted(self.outcomes, key=lambda each: (sign * getattr(each, metric).end.mean, each.label))

    def of(self, policy: str, feedback: str | None = None) -> Outcome:
        """The contender that is this policy, with this feedback if given."""
        return next(each for each in self.outcomes if each.policy == policy and feedback in (None, each.feedback))

    def reward_per_arm(self, performance: float) -> float:
        """What every arm would have earned if all had earned alike."""
        power = 1.0 - self.alpha
        return float((performance * power / self.n_arms) ** (1.0 / power))

    def early_leads(self, ours: str) -> list[tuple[str, int]]:
        """Who was more equal than one of them earlier but is not at the end, and when last."""
        found = []
        for each in self.ranked("jain_index"):
            ahead = np.flatnonzero(each.jain_index.mean > self.contenders[ours].jain_index.mean)
            if len(ahead) and ahead[-1] < len(self.rounds) - 1:
                found.append((each.label, self.rounds[ahead[-1]]))
        return found

    def differences(self, metric: str) -> dict[str, Band]:
        """Every contender less the first, by their labels."""
        first = getattr(self.outcomes[0], metric).mean
        return {each.label.replace("_", " "): getattr(each, metric).minus(first) for each in self.outcomes}

    def largest_difference(self) -> tuple[float, str, str]:
        """From the first at any round in either metric, as a part of the first's value; whose, and in which."""
        return max(
            (float(np.abs(found.mean / getattr(self.outcomes[0], metric).mean).max()), label, metric)
            for metric in ("alpha_performance", "jain_index")
            for label, found in self.differences(metric).items()
        )


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
    """How often arms of fixed pay are pulled."""

    alpha: float
    arms: Vector  # what each pays, the best first
    shares: dict[str, Vector]  # by contender, per arm


@dataclass(frozen=True)
class Sign(OverTime):
    toy: PullShares


@dataclass(frozen=True)
class OverAlpha(OnRatings):
    """Where one policy ends, for every alpha."""

    data: str
    alphas: Floats
    jain_index: Vector
    average_reward: Vector
    final_accounts: Matrix  # per arm

    def steps_back(self, metric: str) -> list[tuple[float, float]]:
        """Of the steps of a metric along alpha those that go against its whole change: by how much, and after which."""
        values = getattr(self, metric)
        moves = np.diff(values) * (1.0 if values[-1] >= values[0] else -1.0)
        return [(-float(move), alpha) for move, alpha in zip(moves, self.alphas, strict=False) if move < 0.0]

    def half_way(self) -> int | None:
        """The place of the first alpha with half of the equality that the last one has more than the first."""
        jain = self.jain_index - self.jain_index[0]
        return int(np.flatnonzero(jain >= jain[-1] / 2.0)[0]) if jain[-1] > 0.0 else None


@dataclass(frozen=True)
class OverFloor(OnRatings):
    """Where FairCB ends along its floor, against alpha-FairCB, which has none; by feedback, "full" and "bandit"."""

    alpha: float
    floors: Floats
    fair_cb: dict[str, dict[str, Band]]  # by metric
    alpha_fair: dict[str, dict[str, Band]]
    ahead: dict[str, Band]  # of alpha-FairCB over FairCB, seed by seed
    maxima: Vector  # over the seeds of FairCB (bandit): what the published code plots


@dataclass(frozen=True)
class Limits(Section):
    """OPT/ALG on the two-context instance, by alpha and length, and the limit that no online policy can beat."""

    halves: tuple[int, ...]
    alphas: Floats
    limits: Vector
    ratios: Matrix

    @property
    def distances(self) -> Vector:
        """The largest distance to a limit at every length, as a part of it."""
        away: Vector = np.abs(self.ratios / self.limits[:, None] - 1.0).max(axis=0)
        return away


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
    part: Part | None = None


@dataclass(frozen=True)
class Score:
    """What one contender did on one course of the arena."""

    label: str
    policy: str
    feedback: str
    alpha: float
    n_seeds: int
    alpha_performance: Band
    gap_closed: Band | None = None  # where there is no gap to close


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
