"""What snapshots hold, in tables: names and shapes are those of every algorithm's `Layout`; what they mean is here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from alphafair.algorithms import CLASSES, AlphaFairAdaptive, BasePolicy
from alphafair.policy.algorithm import Algorithm
from alphafair.policy.memory import FEATURES, OTHERS, Layout
from alphafair.values import Feedback

AXES = {"scalars": "{}", "arms": "{}, live", "context_scalars": "contexts, {}", "contexts": "contexts, {}, live"}

MEANINGS = {
    # accounts: alphafair.math.utility
    "account": "R: the initial 1 and what the arm has earned; with groups or entitlements R/s of its group",
    "slope": "phi'(R) = R^-alpha",
    "anchor": "A, the account that slopes are calculated from, until R has moved away by 1/256 of it",
    "inverse_anchor": "1/A",
    "anchor_slope": "phi'(A)",
    "earned": "the initial 1 and what the arm itself has earned; only with groups or entitlements",
    # adaptive gradient ascent: alphafair.math.gradient_ascent
    "x": "x^j, the distribution held by the context",
    "squared_norms": "S_j, the sum of squared norms of all gradients",
    "closed_roots": "the sum of sqrt(S_j) at the ends of epochs: whenever arms came or went, and S_j had grown since",
    "closed_norms": "S_j at the end of the last epoch",
    "bound": "the sum of what steps add to the bound on the regret, in units of `first_welfare`^-alpha",
    "unit": "the power of two that slopes are relative to, at most the least R: slopes are (R/unit)^-alpha",
    "first_welfare": "W of the accounts that `bound` began with",
    "reopened": "1 where arms have changed since the context last learned, else 0",
    "drift": "what late and masked decisions add to the bound on the regret",
    "shown": "the number of arms per decision that the bound is about; 0 before the first",
    "reach": "the factor of sqrt(S_j) in the bound: 1, or less with slates",
    "most_shown": "the largest number of arms of a decision so far",
    # the scale-free learner: alphafair.math.log_barrier
    "p": "the learner's distribution, before exploration is mixed in",
    "losses": "L, the sum of losses, each divided by its propensity",
    "rate": "eta, the learning rate",
    "exploration": "gamma, the share of exploration",
    "rounds": "rounds learned from",
    "level": "lambda of the learner's distribution, where the next search for it begins",
    "stability_sum": "the sum of M(eta)",
    "exploration_sum": "the sum of gamma times losses divided by their propensities, without their signs",
    # the predictor: alphafair.math.predictor
    "gram": "A of the regression on six predictors, its lower half, row by row",
    "moment": "b of the same regression",
    "coefficients": "beta of the same regression",
    "reward_sum": "the sum of all rewards seen",
    "seen": "the number of all rewards seen",
    "largest": "c, the largest reward seen",
    "visits": "how often the context was learned from",
    "arm_sum": "the sum of y, rewards above what the mean and features say, in all contexts",
    "arm_count": "how many of them",
    "age_sum": "the same by the octave of the context's number of visits",
    "age_count": "how many of them",
    "long_sum": "the sum of y in the context, all visits alike",
    "long_count": "how many of them",
    "recent_sum": "the same, with a weight of 0.97 per visit since",
    "recent_count": "the sum of these weights",
    "latest_sum": "the same, with a weight of 0.8 per visit since",
    "latest_count": "the sum of these weights",
    # AlphaFairAdaptive itself
    "tau": "tau, which says what weight the predictor that learns from others has",
    "squared_rewards": "the sum of squares of all rewards seen",
    "squared_misses": "the sum of squares of rewards minus their predictions",
    "lead": "E, by how much the predictor's scores are estimated to be ahead of the guaranteed learner",
    "spread": "D, the sum of squares of what the mixing was taught",
    "share": "h, the share of the guaranteed learner",
    "ahead": "D, by how much the gradient ascent is ahead of the predictor's favorite: alphafair.math.adahedge",
    "gaps": "Delta, the sum of mixability gaps",
    "first_unit": "`unit` when the sums of the bound began",
    "learner_roots": "a term of the bound in docs/background/theory.md: sum of W (change of U), U = sqrt(c^2 + n V_j)",
    "mixing_roots": "a term of the same bound: sum of W (change of Y), Y = sqrt(16 c^2 + 2 D)",
    "explored": "a term of the same bound: sum of W (gamma c + (rise of c)/min p)",
    "peaks": "a term of the same bound: sum of W c",
    "head_start": "a term of the same bound: sum of W (rise of c)",
    "mixing_root": "Y when it was last added up",
    "mixing_peak": "W at that time",
    "outside": "how often something happened that the bound does not allow: late or masked decisions, other arms",
    "pending": "rewards on their way to the arm",
    "variation": "V_j, the sum of squares of what the context's learner did not foresee",
    "learner_root": "U when it was last added up",
    "learner_peak": "W at that time",
    # a second side: alphafair.math.two_sides
    "context_account": "U_j: the initial 1 and what visitors of the context were given",
    "context_entry": "U_j at the start of the period",
    "context_rounds": "n_j, the rounds of the context; a period carries a part of them",
    "context_part": "q_j, the fixed weight of the context; 0 if contexts are weighed by their rounds",
    "weighed": "t, the sum of n_j",
    "context_base": "U_j when the promise was made: C_j is U_j minus this",
    "context_totals": "V_ji, the rewards of the arm in rounds of the context; predictions with bandit feedback",
    "excursion_gains": "G_i, the rewards of the arm since the context is served by its own experts",
    "adviser_gain": "G_A, those of the arms with the largest prediction",
    "in_excursion": "1 while the context is owed something, else 0",
    "shortfall": "what the bound on debts adds: the debt at a change of arms, and what late and masked decisions lost",
    "scarcest": "the context with the largest q_l/U_l",
    "context_logs": "the sum of n_j ln U_j, or of q_j ln U_j with fixed weights",
    # Hedge and FairCB
    "reward_sums": "G, the sum of rewards that the arm would have earned",
    "floor": "nu in force: lower than `pull_share` while the frequencies of contexts are being learned",
    "updates": "rounds learned from",
    "next_epoch": "the update with which the next epoch begins; infinite if the frequencies of contexts are known",
    "dual": "d, the multiplier of the arm's floor",
    "weight": "q_j, the frequency of the context as it is known or was counted before this epoch",
    "log_normalizer": "the logarithm of the sum that `p` was divided by",
}
ONLY_HERE = {  # where a name means something else for one policy
    ("alpha-fair-adaptive", "slope"): "w = phi'(R), with bandit feedback phi'(R + what is on its way)",
    ("alpha-fair-adaptive", "level"): "where the next search for the guaranteed learner's distribution begins",
    ("alpha-fair-adaptive", "losses"): "L_j, the sum of the guaranteed learner's estimated losses",
    (
        "alpha-fair-adaptive",
        "drift",
    ): "what late and masked decisions and steps too small to be taken add to the bound",
    ("fair-cb", "p"): "p^j, the distribution of the context",
    ("fair-cb", "losses"): "L^j, the sum of losses in this epoch; divided by propensities under bandit feedback",
    ("independent-alpha-fair", "account"): "R: the initial 1 and what the arm has earned in the context",
}
OF_FEATURES = {
    "feature_theta": ("terms, columns", "theta, what features say about rewards"),
    "feature_moment": ("terms, columns", "b of the least squares"),
    "feature_gram": ("terms (terms + 1)/2, columns", "A of the least squares, its lower half, row by row"),
    "feature_squares": ("terms", "the sum of squares of every term, the constant 1 first"),
    "feature_nonzero": ("terms", "how often it was not 0"),
}


class Entry(NamedTuple):
    """A row of a table."""

    name: str
    shape: str  # its axes, as the page has them
    meaning: str

    def __str__(self) -> str:
        return f"| `{self.name}` | ({self.shape}) | {self.meaning} |"


def algorithms() -> Iterator[tuple[type[BasePolicy], str, Algorithm]]:
    """Every class, the feedback where it has several and the alpha where that matters, and its algorithm."""
    for kind in CLASSES.values():
        sides, promise = (getattr(kind, name, None) for name in ("sides_algorithm", "promise_algorithm"))
        kinds = [(kind.algorithm, "alpha < 1"), (kind.welfare_algorithm, "alpha from 1 on")]
        kinds += [(sides, "fair to contexts"), (promise, "with a promise to contexts")]
        for found, alpha in kinds:
            alpha = alpha if kind.welfare_algorithm is not None else ""
            if isinstance(found, Algorithm):
                yield kind, alpha, found
            elif found is not None:
                for feedback in [each for each in Feedback if each in found]:
                    yield kind, ", ".join(filter(None, [f"{feedback.value} feedback", alpha])), found[feedback]


def entries(kind: type[BasePolicy], layout: Layout) -> list[Entry]:
    """What is learned, in the order of snapshots."""
    found = []
    for part, axes in AXES.items():
        for name, width in getattr(layout, part).widths.items():
            shape = axes.format(width if width > 1 else "").replace(", ,", ",").strip(", ")
            meaning = ONLY_HERE.get((kind.name, name)) or MEANINGS.get(name)
            if meaning is None:
                raise KeyError(f"{kind.__name__} keeps {name!r}: say what that means in MEANINGS of {__file__}")
            found.append(Entry(name, shape, meaning))
    return found


def of_features() -> list[Entry]:
    """What is there with features only."""
    return [Entry(name, *OF_FEATURES[name]) for name in FEATURES]


def of_others() -> list[Entry]:
    """What is there once rewards of others were observed, with features too."""
    layout = AlphaFairAdaptive.algorithm[Feedback.BANDIT].layout.others
    learned = [entry for entry in entries(AlphaFairAdaptive, layout) if entry.name not in layout.unused]
    return [entry._replace(name=f"{OTHERS}{entry.name}") for entry in [*learned, *of_features()]]


def table(rows: Iterable[Entry]) -> str:
    return "\n".join(["| entry | shape | meaning |", "|---|---|---|", *map(str, rows)])


def of_policies() -> str:
    """A section per policy, and per kind of feedback or alpha where what is kept differs."""
    parts = []
    tables: dict[tuple[str, tuple[Entry, ...]], list[str]] = {}
    for kind, which_one, algorithm in algorithms():
        tables.setdefault((kind.__name__, tuple(entries(kind, algorithm.layout))), []).append(which_one)
    for (name, rows), which in tables.items():
        several = len([other for other, _ in tables if other == name]) > 1
        title = f"## {name}, {which[0]}" if several else f"## {name}"
        parts.append(f"{title}\n\n{table(rows) if rows else 'Nothing else: it learns nothing.'}\n")
    return "\n".join(parts)


def block(what: str) -> str:
    """The tables of `{generated} snapshots of WHAT`."""
    made = {"features": lambda: table(of_features()), "others": lambda: table(of_others()), "policies": of_policies}
    return made[what.rpartition(" ")[2]]()
