"""The courses of the arena and who plays on them, each a value, with their titles and labels."""

from dataclasses import replace

from alphafair.lab import paper
from alphafair.lab.experiment import Contender
from alphafair.lab.match import Course

ALPHAS = (0.0, 0.5, 0.9)
ADAPTIVE = Contender("adaptive", "alpha-fair-adaptive", (("feedback", "bandit"),))
ADAPTIVE_FULL = Contender("adaptive", "alpha-fair-adaptive", (("feedback", "full"),))
GUARANTEED = Contender("guaranteed alone", "guaranteed-learner")
RIVAL = Contender("Frank-Wolfe UCB", "optimistic-frank-wolfe")
FAIR_CB, FAIR_CB_FULL = (replace(contender, label="FairCB") for contender in (paper.FAIR_CB, paper.FAIR_CB_FULL))
BANDIT = (ADAPTIVE, GUARANTEED, paper.ALPHA_FAIR_BANDIT, RIVAL, FAIR_CB, paper.SCALE_FREE, paper.UNIFORM_BANDIT)
FULL = (ADAPTIVE_FULL, paper.ALPHA_FAIR, paper.INDEPENDENT, paper.HEDGE, FAIR_CB_FULL, paper.UNIFORM)
CONTENDERS = (*BANDIT, *FULL)
N_FEATURES = 8
DESCRIBED_CONTENDERS = tuple(
    Contender(label, "alpha-fair-adaptive", (("feedback", feedback), *more))
    for feedback in ("bandit", "full")
    for label, more in (("features and clusters", (("n_features", N_FEATURES),)), ("clusters alone", ()))
)

SMALL = (("n_rounds", 30_000), ("n_contexts", 12), ("n_arms", 10))
LARGE = (("n_rounds", 100_000), ("n_contexts", 50), ("n_arms", 100))
MANY = (("n_rounds", 30_000), ("n_contexts", 300), ("n_arms", 19))
CLICKS = (("n_rounds", 100_000), ("n_contexts", 12), ("n_arms", 10))
SEEN = (("n_rounds", 30_000), ("n_contexts", 6), ("n_arms", 10))
COURSES = (
    Course("ratings-5000", "ratings 5,000", "movielens_small", (), n_first=5_000),
    Course("ratings-20000", "ratings 20,000", "movielens_small", (), n_first=20_000),
    Course("ratings", "ratings, all", "movielens_small", ()),
    Course("stationary-small", "stationary 12 x 10", "stationary", SMALL),
    Course("stationary-large", "stationary 50 x 100", "stationary", LARGE),
    Course("drift-slow", "drift, 6 phases", "phases", (*SMALL, ("n_phases", 6))),
    Course("drift-fast", "drift, 20 phases", "phases", (*SMALL, ("n_phases", 20))),
    Course("day-and-night", "day and night", "day_and_night", SMALL),
    Course("zipf-contexts", "zipf contexts", "zipf_contexts", MANY),
    Course("clicks-one-best", "clicks, one best", "sparse_clicks", CLICKS),
    Course("clicks", "clicks 0 to 5%", "sparse_clicks", (*CLICKS, ("rates", (0.0, 0.05)), ("best", None))),
    Course("impossibility", "impossibility", "impossibility", (("n_half", 5_000), ("reward_floor", 0.2))),
    Course("tiny", "tiny rewards", "stationary", SMALL, reward_scale=2.0**-20),
    Course("late-100", "100 rounds late", "stationary", SMALL, delay=100),
    Course("late-1000", "1,000 rounds late", "stationary", SMALL, delay=1_000),
    Course("ratings-late", "ratings, 10 late", "movielens_small", (), n_first=20_000, delay=10),
    Course("settled", "settled lowered", "adversary", (("kind", "settled"), *SEEN)),
    Course("largest", "largest p lowered", "adversary", (("kind", "largest"), *SEEN)),
    Course("halving", "favourite halved", "adversary", (("kind", "halving"), *SEEN)),
)
DESCRIBED_COURSES = tuple(
    Course(
        f"described-{kind}",
        title,
        "described",
        (("kind", kind), ("n_rounds", 30_000), ("n_arms", 10), ("n_features", N_FEATURES)),
        n_clusters=32,
    )
    for kind, title in (
        ("linear", "linear"),
        ("changing", "changing halfway"),
        ("quadratic", "quadratic"),
        ("clusters", "hidden clusters"),
    )
)
