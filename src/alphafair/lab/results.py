"""Results as values, and as JSON. `measure` makes them from tables; the report shows them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import numpy as np

from alphafair import metrics
from alphafair.errors import InvalidArgument
from alphafair.formatting import json_alpha, listed
from alphafair.values import Interval, Matrix, Vector

Floats = tuple[float, ...]


@dataclass(frozen=True)
class Outcome:
    """The results of one contender at the recorded rounds; intervals are confidence intervals over the seeds."""

    label: str
    policy: str
    feedback: str
    settings: dict[str, Any]
    n_seeds: int
    alpha_performance: Interval
    jain_index: Interval
    average_reward: Interval
    standard_regret: Interval
    approximate_regret: Interval
    ratio: Interval
    final_accounts: Vector  # per arm
    pull_shares: Vector  # per arm
    gap_closed: Interval | None = None  # None: there is no gap to close
    certificates: dict[str, float] | None = None  # under full information: upper bounds, by metric
    vacuous: bool | None = None  # True: the certificates are above any attainable score

    @property
    def learned(self) -> Interval | None:
        """The gap closed, rounded to a millionth: uniform play closes 0, not 1e-15."""
        if self.gap_closed is None:
            return None
        return Interval(*(round(side, 6) + 0.0 for side in self.gap_closed))

    @property
    def least(self) -> float:
        """The account of the worst-off arm."""
        return float(self.final_accounts.min())


@dataclass(frozen=True)
class Section:
    """What all results have. The digest names the tables that they were computed from."""

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
    settings: dict[str, Any]  # which part of the ratings was used


@dataclass(frozen=True)
class Optimum:
    """The value of the best fixed policy in hindsight at every recorded round, and the gap of its certificate."""

    values: Vector
    gaps: Vector


@dataclass(frozen=True)
class OverTime(OnRatings):
    """Contenders at one alpha, over the recorded rounds."""

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
        """The contenders by their final value, the best first."""
        sign = metrics.METRICS[metric].sign
        return sorted(self.outcomes, key=lambda each: (-sign * getattr(each, metric).last.value, each.label))

    def of(self, policy: str, feedback: str | None = None) -> Outcome:
        """The contender with this policy, and with this feedback if given."""
        for each in self.outcomes:
            if each.policy == policy and feedback in (None, each.feedback):
                return each
        known = sorted({f"{each.policy} ({each.feedback})" for each in self.outcomes})
        wanted = policy if feedback is None else f"{policy} ({feedback})"
        raise InvalidArgument("policy", "that of a contender", wanted, f"The contenders are {listed(known)}.")

    def reward_per_arm(self, performance: float) -> float:
        """The reward of each arm if all arms had the same and scored this alpha-performance."""
        power = 1.0 - self.alpha
        return float((performance * power / self.n_arms) ** (1.0 / power))

    def early_leads(self, ours: str) -> list[tuple[str, int]]:
        """Contenders with a higher Jain index than `ours` at some round but not at the end, and the last such round."""
        found = []
        for each in self.ranked("jain_index"):
            ahead = np.flatnonzero(each.jain_index.value > self.contenders[ours].jain_index.value)
            if len(ahead) and ahead[-1] < len(self.rounds) - 1:
                found.append((each.label, self.rounds[ahead[-1]]))
        return found

    def differences(self, metric: str) -> dict[str, Interval]:
        """The difference of every contender to the first, by label."""
        first = getattr(self.outcomes[0], metric).value
        return {each.label.replace("_", " "): getattr(each, metric) - first for each in self.outcomes}

    def largest_difference(self) -> tuple[float, str, str]:
        """The largest relative difference to the first contender at any round: its size, contender and metric."""
        return max(
            (float(np.abs(found.value / getattr(self.outcomes[0], metric).value).max()), label, metric)
            for metric in ("alpha_performance", "jain_index")
            for label, found in self.differences(metric).items()
        )


@dataclass(frozen=True)
class First:
    """The contender that ends best in one metric, and its lead over each of the others, paired by seed."""

    label: str
    ahead: dict[str, Interval]

    @property
    def close(self) -> list[str]:
        """The contenders whose difference to it is not significant."""
        return [label for label, ahead in sorted(self.ahead.items()) if ahead.low <= 0.0]


@dataclass(frozen=True)
class Compared(OverTime):
    first: dict[str, First]  # by metric


@dataclass(frozen=True)
class PullShares(OnRounds):
    """How often arms with constant rewards are pulled."""

    alpha: float
    arms: Vector  # their rewards, the best first
    shares: dict[str, Vector]  # by contender, per arm


@dataclass(frozen=True)
class Sign(OverTime):
    toy: PullShares


@dataclass(frozen=True)
class OverAlpha(OnRatings):
    """The final results of one policy, for every alpha."""

    data: str
    alphas: Floats
    jain_index: Vector
    average_reward: Vector
    final_accounts: Matrix  # per arm

    def steps_back(self, metric: str) -> list[tuple[float, float]]:
        """Steps of a metric along alpha against the direction of its whole change: the size of each, and its alpha."""
        values = getattr(self, metric)
        moves = np.diff(values) * (1.0 if values[-1] >= values[0] else -1.0)
        return [(-float(move), alpha) for move, alpha in zip(moves, self.alphas, strict=False) if move < 0.0]

    def half_way(self) -> int | None:
        """The position of the first alpha with at least half of the whole rise in Jain's index."""
        jain = self.jain_index - self.jain_index[0]
        return int(np.flatnonzero(jain >= jain[-1] / 2.0)[0]) if jain[-1] > 0.0 else None


@dataclass(frozen=True)
class OverFloor(OnRatings):
    """The final results of FairCB for every pull floor, and of alpha-FairCB, which has none; by feedback."""

    alpha: float
    floors: Floats
    fair_cb: dict[str, dict[str, Interval]]  # by metric
    alpha_fair: dict[str, dict[str, Interval]]
    ahead: dict[str, Interval]  # of alpha-FairCB over FairCB, paired by seed
    maxima: Vector  # over the seeds of FairCB (bandit), which the published code plots


@dataclass(frozen=True)
class Limits(Section):
    """OPT/ALG on the two-context instance, by alpha and length, and the limit for any online policy."""

    halves: tuple[int, ...]
    alphas: Floats
    limits: Vector
    ratios: Matrix

    @property
    def distances(self) -> Vector:
        """The largest relative distance to a limit, at every length."""
        away: Vector = np.abs(self.ratios / self.limits[:, None] - 1.0).max(axis=0)
        return away


@dataclass(frozen=True)
class Claim:
    """A claim, and what was measured. `leads` are the differences that it says are above zero."""

    id: str
    experiment: str
    source: str
    claim: str
    measured: str
    verdict: str
    leads: dict[str, Interval]
    data: str
    independent: bool = True


@dataclass(frozen=True)
class Part:
    """An incomplete copy of a known data set: how many of its ratings were found."""

    of: str
    found: int
    complete: int


@dataclass(frozen=True)
class DataFacts:
    """The data set: whether it stands in for the paper's data, and whether it is a part of a known one."""

    name: str
    stand_in: bool
    digest: str
    part: Part | None = None


@dataclass(frozen=True)
class Score:
    """The result of one contender in one scenario of the arena."""

    label: str
    policy: str
    feedback: str
    alpha: float
    n_seeds: int
    alpha_performance: Interval | None  # None from alpha = 1 on
    gap_closed: Interval | None = None  # None: there is no gap to close; in welfare from alpha = 1 on
    welfare: Interval | None = None  # None below alpha = 1
    welfare_ratio: Interval | None = None  # of the optimum to the policy; None below alpha = 1

    @property
    def shown(self) -> Interval:
        """The alpha-performance, or from alpha = 1 on the welfare."""
        found = self.alpha_performance or self.welfare
        if found is None:
            raise TypeError("a score has an alpha-performance or a welfare")
        return found


@dataclass(frozen=True)
class Tuned(Score):
    """A rival with the best of several settings, picked in hindsight on the very seeds that are reported."""

    setting: str = ""  # the one that was picked
    n_settings: int = 1
    lead: Interval | None = None  # of the adaptive policy over it, as a share of the gap, paired by seed


@dataclass(frozen=True)
class Match(OnRounds):
    """All contenders in one scenario of the arena."""

    name: str
    delay: int | None
    scores: tuple[Score, ...]
    promises: dict[str, Interval]  # leads of the adaptive policy against an adversary that sees the distribution
    bound: float | None = None  # the welfare ratio that no online policy can beat, where it is known
    tuned: tuple[Tuned, ...] = ()  # one for each rival and alpha

    @property
    def alphas(self) -> Floats:
        return tuple(dict.fromkeys(score.alpha for score in self.scores))

    def of(self, feedback: str, alpha: float) -> list[Score]:
        return [score for score in self.scores if (score.feedback, score.alpha) == (feedback, alpha)]

    def tuned_at(self, alpha: float) -> list[Tuned]:
        return [each for each in self.tuned if each.alpha == alpha]

    def best_tuned(self, alpha: float) -> Tuned | None:
        """The tuned rival that closes the largest share of the gap; None where there is no gap, or no rival."""
        ranked = [each for each in self.tuned_at(alpha) if each.gap_closed is not None]
        return max(ranked, key=lambda each: each.gap_closed.value if each.gap_closed else 0.0, default=None)

    def beside_tuned(self) -> Match:
        """The first contender with bandit feedback and the tuned rivals, as a match of their own."""
        first = [self.of("bandit", alpha)[0] for alpha in self.alphas]
        return replace(self, scores=(*first, *self.tuned))


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
    arena: tuple[Match, ...]

    def sections(self) -> list[tuple[str, Any]]:
        """All sections with their names in alphabetical order, then the toy experiment and the matches of the arena."""
        names = sorted(field.name for field in fields(self) if field.name != "arena")
        matches = (("arena", each) for each in self.arena)
        return [*((name, getattr(self, name)) for name in names), ("toy", self.sign.toy), *matches]


@dataclass(frozen=True)
class Results:
    command: str
    versions: dict[str, str]
    data: DataFacts
    claims: tuple[Claim, ...]
    experiments: Experiments


@dataclass(frozen=True)
class ArenaResults:
    command: str
    versions: dict[str, str]
    alphas: Floats
    matches: tuple[Match, ...]
    with_features: tuple[Match, ...]  # on rounds with features, where 100% is the policy that knows every mean
    steep: tuple[Match, ...] = ()  # from alpha = 1 on
    dying: tuple[Match, ...] = ()  # `streams.dying_arms`, a match for each alpha, with the bound
    k: int | None = None  # the number of arms that every decision shows, in an arena of slates


# JSON

NUMBERS = re.compile(r"\[\n\s*([-+.\deE,\s]+?)\s*\n\s*\]")


def plain(value: Any, where: str = "results") -> Any:
    """A value as JSON types: objects, lists, strings and finite numbers. Optional fields that are None are left out."""
    if is_dataclass(value) and not isinstance(value, type):
        optional = {field.name for field in fields(value) if field.default is None}
        value = {name: each for name, each in vars(value).items() if each is not None or name not in optional}
        if "alpha" in value:
            value["alpha"] = json_alpha(value["alpha"])
    if isinstance(value, Interval):
        value = value._asdict()
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {key: plain(each, f"{where}[{key!r}]") for key, each in value.items()}
    if isinstance(value, (tuple, list)):
        return [plain(each, f"{where}[{place}]") for place, each in enumerate(value)]
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidArgument(where, "finite", value, "Run that experiment again.")
    return value


def as_json(results: Any) -> str:
    """Results as JSON, in the order of the fields, with each list of numbers on one line."""
    text = json.dumps(plain(results), indent=1, ensure_ascii=False, allow_nan=False)
    return NUMBERS.sub(lambda found: "[" + re.sub(r"\s+", " ", found[1]) + "]", text) + "\n"
