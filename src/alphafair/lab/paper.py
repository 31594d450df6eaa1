"""The paper's experiments and those that its corrections ask for, each a value, with their titles and labels."""

import numpy as np

from alphafair.lab.experiment import Contender, Experiment
from alphafair.lab.match import Course, Match
from alphafair.values import Stream

ALPHA_FAIR = Contender("\u03b1-FairCB", "alpha-fair")
ALPHA_FAIR_BANDIT = Contender("\u03b1-FairCB (bandit)", "alpha-fair-bandit")
HEDGE = Contender("Hedge", "hedge", (("learning_rate", "sqrt(ln N / T)"),))
FAIR_CB = Contender("FairCB (bandit)", "fair-cb", (("feedback", "bandit"), ("pull_share", "0.5 / N")))
FAIR_CB_FULL = Contender("FairCB (full)", "fair-cb", (("feedback", "full"), ("pull_share", "0.5 / N")))
INDEPENDENT = Contender("independent \u03b1-FairCB", "independent-alpha-fair")
SCALE_FREE = Contender("scale-free bandit", "scale-free")
UNIFORM = Contender("uniform", "uniform", (("feedback", "full"),))
UNIFORM_BANDIT = Contender("uniform", "uniform", (("feedback", "bandit"),))
PUBLISHED_SIGN = Contender("published sign", "published-sign")
PUBLISHED_STEP = Contender("published step", "published-step")

FULL_INFORMATION = Experiment("A", "Full information", (ALPHA_FAIR, INDEPENDENT, HEDGE, FAIR_CB_FULL, FAIR_CB, UNIFORM))
BANDIT_FEEDBACK = Experiment(
    "B", "Bandit feedback", (ALPHA_FAIR_BANDIT, SCALE_FREE, UNIFORM_BANDIT), n_seeds=100, n_records=500
)
PRICE_OF_FAIRNESS = Experiment(
    "C",
    "100 values of \u03b1",
    (ALPHA_FAIR,),
    alphas=tuple(k / 100 for k in range(100)),
    rows=None,
    min_ratings=5000,
    n_records=1,
)
FLOORS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.98, 0.99, 0.999)
SIGN = Experiment(
    "sign", "The sign of the bandit reward", (ALPHA_FAIR_BANDIT, PUBLISHED_SIGN, UNIFORM_BANDIT), n_seeds=100
)
READINGS = Experiment(
    "readings",
    "When the slope is read",
    tuple(Contender(word, "alpha-fair", (("marginal", word),)) for word in ("before", "next_visit", "after")),
)
STEP = Experiment("step", "The step size", (ALPHA_FAIR, PUBLISHED_STEP, UNIFORM))
DELTA = Experiment("delta", "The published reward floor", (ALPHA_FAIR, UNIFORM), reward_floor=0.001)
FLOOR_SWEEP = Experiment(
    "floor_sweep",
    "FairCB along its floor",
    (
        ALPHA_FAIR,
        ALPHA_FAIR_BANDIT,
        *(
            Contender(f"{feedback} {share:g}", "fair-cb", (("feedback", feedback), ("pull_share", f"{share} / N")))
            for feedback in ("bandit", "full")
            for share in FLOORS
        ),
    ),
    n_records=1,
)
LIMIT = "Why c_\u03b1 cannot be 1"
HALVES = (10, 100, 1000, 10_000, 100_000)
IMPOSSIBILITY = tuple(  # the two-context instance, longer and longer, under both outcomes of its coin
    Match(course, (ALPHA_FAIR,), alphas=(0.25, 0.5, 0.75, 0.9))
    for course in (
        Course(f"limit-{n}", f"{LIMIT}: n = {n:,}", "impossibility", (("n_half", n),), n_seeds=4) for n in HALVES
    )
)
TOY = Experiment("toy", "Three arms of fixed pay", SIGN.contenders, alphas=(0.0,), rows=None, n_records=1)
TOY_ARMS, TOY_ROUNDS = (0.9, 0.5, 0.1), 3000

EXPERIMENTS = (FULL_INFORMATION, BANDIT_FEEDBACK, PRICE_OF_FAIRNESS, FLOOR_SWEEP, SIGN, STEP, READINGS, DELTA)


def toy_rounds(*, smoke: bool = False) -> Stream:
    """One context, arms that always pay the same, no fairness asked: who gets pulled."""
    zeros = np.zeros(1000 if smoke else TOY_ROUNDS, dtype=np.int32)
    return Stream(zeros, zeros, np.array([TOY_ARMS]))
