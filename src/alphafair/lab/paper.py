"""The paper's experiments, and those that compare its text with its published code."""

from alphafair.lab.plan import ConstantRewards, Contender, Experiment, FromRatings, Generated

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

FIRST_ROWS = FromRatings()
FULL_INFORMATION = Experiment(
    "A", "Full information", FIRST_ROWS, (ALPHA_FAIR, INDEPENDENT, HEDGE, FAIR_CB_FULL, FAIR_CB, UNIFORM)
)
BANDIT_FEEDBACK = Experiment(
    "B",
    "Bandit feedback",
    FIRST_ROWS,
    (ALPHA_FAIR_BANDIT, SCALE_FREE, UNIFORM_BANDIT),
    n_seeds=100,
    n_records=500,
)
PRICE_OF_FAIRNESS = Experiment(
    "C",
    "100 values of \u03b1",
    FromRatings(rows=None, min_ratings=5000),
    (ALPHA_FAIR,),
    alphas=tuple(k / 100 for k in range(100)),
    n_records=1,
    optimum=False,
)
FLOORS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.98, 0.99, 0.999)  # as multiples of 1/N
FLOOR_SWEEP = Experiment(
    "floor_sweep",
    "FairCB along its floor",
    FIRST_ROWS,
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
    optimum=False,
)
SIGN = Experiment(
    "sign",
    "The sign of the bandit reward",
    FIRST_ROWS,
    (ALPHA_FAIR_BANDIT, PUBLISHED_SIGN, UNIFORM_BANDIT),
    n_seeds=100,
)
STEP = Experiment("step", "The step size", FIRST_ROWS, (ALPHA_FAIR, PUBLISHED_STEP, UNIFORM))
READINGS = Experiment(
    "readings",
    "When the slope is read",
    FIRST_ROWS,
    (
        Contender("before", "alpha-fair"),
        Contender("next_visit", "alpha-fair-next-visit"),
        Contender("after", "alpha-fair-after"),
    ),
)
DELTA = Experiment("delta", "The published reward floor", FromRatings(reward_floor=0.001), (ALPHA_FAIR, UNIFORM))
TOY = Experiment(  # no fairness: which of three arms is pulled
    "toy",
    "Three arms of fixed pay",
    ConstantRewards((0.9, 0.5, 0.1), 3000),
    SIGN.contenders,
    alphas=(0.0,),
    n_records=1,
    optimum=False,
)
LIMIT = "Why c_\u03b1 cannot be 1"
IMPOSSIBILITY = tuple(  # the two-context instance at growing lengths, with both outcomes of its coin among the seeds
    Experiment(
        f"limit-{n}",
        f"{LIMIT}: n = {n:,}",
        Generated("impossibility", (("n_half", n),)),
        (ALPHA_FAIR,),
        alphas=(0.25, 0.5, 0.75, 0.9),
        n_seeds=4,
        n_records=1,
        in_smoke="keep" if n <= 1000 else "drop",
    )
    for n in (10, 100, 1000, 10_000, 100_000)
)
EXPERIMENTS = (
    *(FULL_INFORMATION, BANDIT_FEEDBACK, PRICE_OF_FAIRNESS, FLOOR_SWEEP, SIGN, STEP, READINGS, DELTA, TOY),
    *IMPOSSIBILITY,
)
