"""Streams of contexts and rewards: synthetic, downloaded, or from your own data.

Polars loads only when a file or a table is read.
"""

from alphafair.data.movielens import first_rating, movielens, movielens_small
from alphafair.data.open_bandit import click_rates, open_bandit
from alphafair.data.round_table import table
from alphafair.streams.described import described, described_means
from alphafair.streams.heavy_tails import lognormal_rewards, pareto_rewards, purchases
from alphafair.streams.means import adversary, day_and_night, phases, sparse_clicks, stationary, zipf_contexts
from alphafair.streams.synthetic import (
    drifting_ratings,
    dying_arms,
    dying_arms_bound,
    greedy_trap,
    impossibility,
    ratings,
)
from alphafair.values import Log

__all__ = [
    "Log",
    "adversary",
    "click_rates",
    "day_and_night",
    "described",
    "described_means",
    "drifting_ratings",
    "dying_arms",
    "dying_arms_bound",
    "first_rating",
    "greedy_trap",
    "impossibility",
    "lognormal_rewards",
    "movielens",
    "movielens_small",
    "open_bandit",
    "pareto_rewards",
    "phases",
    "purchases",
    "ratings",
    "sparse_clicks",
    "stationary",
    "table",
    "zipf_contexts",
]
