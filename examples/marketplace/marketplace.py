"""A marketplace: 200 items of 12 sellers, small and large, and 100,836 visits.

    python examples/marketplace/marketplace.py

Items are the 200 most watched movies of MovieLens latest-small, sellers the kinds of movie they are. A visit is a
rating: the visitor, whose taste is known, is shown one item, and it pays 1 if that visitor has watched it, else 0.
Nothing is known about an item but what it has paid. Three pictures answer what a product manager would ask:

who-gets-what.png     what sellers earn if nobody is fair, if we are fair to items, and if we are fair to sellers
what-it-costs.png     how much of the reward fairness costs, to items or to sellers, as alpha grows
what-was-promised.png which share of the visits sellers get over time, without a promise and with one
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MultipleLocator

from alphafair import AlphaFairAdaptive, Groups, Stream, Trace, figures, metrics, simulate
from alphafair.data.movielens import read_movielens_small
from alphafair.groups import ArmGroups

N_ITEMS = 200
ALPHAS = (0.0, 0.3, 0.6, 0.8, 0.9, 0.95)
PROMISED = 0.06
SELLERS = {
    "Western": ("Western",),
    "Horror": ("Horror",),
    "War": ("War",),
    "IMAX": ("IMAX",),
    "Mystery and noir": ("Film-Noir", "Mystery", "Thriller"),
    "Family": ("Musical", "Animation", "Children"),
    "Fantasy": ("Fantasy",),
    "Crime": ("Crime",),
    "Sci-Fi": ("Sci-Fi",),
    "Romance and drama": ("Romance", "Drama"),
    "Adventure": ("Adventure", "Action"),
    "Comedy": ("Comedy",),
}


def marketplace(n_rounds: int | None = None) -> tuple[Stream, list[str]]:
    """Visits in the order of time, and the seller of every item."""
    ratings, genres = read_movielens_small()
    items = np.argsort(-np.bincount(ratings.movies), kind="stable")[:N_ITEMS]
    rarest_first = np.argsort(genres.fits.sum(axis=0), kind="stable")
    of_genre = {genre: seller for seller, kinds in SELLERS.items() for genre in kinds}
    sellers = [
        next(of_genre[genres.names[k]] for k in rarest_first if genres.fits[item, k] and genres.names[k] in of_genre)
        for item in items
    ]
    users, visitors = np.unique(ratings.users, return_inverse=True)
    watched = np.zeros((len(users), len(genres.fits)))
    watched[visitors, ratings.movies] = 1.0
    likes = np.ascontiguousarray(watched[:, items])
    order = np.argsort(ratings.timestamps, kind="stable")[:n_rounds]
    return Stream(tastes(likes, sellers)[visitors[order]], visitors[order].astype(np.int32), likes), sellers


def tastes(likes: np.ndarray, sellers: list[str]) -> np.ndarray:
    """Of every visitor the seller whose items it has watched more than others have: what a profile would say."""
    groups = Groups(sellers).for_arms(len(sellers))
    share = np.array([likes[:, groups.of_arms == g].mean(axis=1) for g in range(groups.n_groups)])
    return np.argmax(share / share.mean(axis=1, keepdims=True), axis=0).astype(np.int32)


def play(stream: Stream, alpha: float, groups: Groups | None = None) -> Trace:
    policy = AlphaFairAdaptive(stream.n_contexts, stream.n_arms, alpha=alpha, groups=groups)
    return simulate(policy, stream, log=True)


def who_gets_what(runs: dict[str, Trace], groups: ArmGroups) -> Figure:
    """Shares of all reward, seller by seller, from the largest catalog to the smallest."""
    sizes = np.bincount(groups.of_arms)
    order = np.argsort(sizes, kind="stable")
    figure = Figure(figsize=(9, 6.4), layout="constrained")
    axes = figure.add_subplot(title="What sellers earn: fair to items, or to sellers?", xlabel="share of all reward")
    for k, (name, trace) in enumerate(runs.items()):
        shares = metrics.shares(trace.final, groups=groups)
        axes.barh(np.arange(len(order)) + 0.27 * (1 - k), shares[order], height=0.25, label=name)
    axes.set_yticks(range(len(order)), [f"{groups.labels[g]} ({sizes[g]})" for g in order])
    axes.xaxis.set(major_formatter="{x:.0%}", major_locator=MultipleLocator(0.05))
    axes.axvline(1 / len(sizes), color="#666666", linewidth=0.8, linestyle=":")
    axes.text(1 / len(sizes), len(sizes) - 0.35, " equal shares", color="#666666", fontsize=9)
    axes.legend(loc="lower right", frameon=False)
    return figure


def what_it_costs(curves: dict[str, list[tuple[float, Trace]]], groups: ArmGroups, n_rounds: int) -> Figure:
    """Reward per visit against the share of the seller with the least, along alpha."""
    figure = Figure(figsize=(9, 5.6), layout="constrained")
    axes = figure.add_subplot(
        title="What fairness costs", xlabel="share of the seller who earns least", ylabel="visits that end well"
    )
    for name, runs in curves.items():
        points = [
            (metrics.shares(trace.final, groups=groups).min(), (trace.final - 1.0).sum() / n_rounds)
            for _, trace in runs
        ]
        axes.plot(*zip(*points, strict=True), marker="o", label=name)
        for (alpha, _), point in zip(runs, points, strict=True):
            axes.annotate(f"{alpha:g}", point, xytext=(5, 5), textcoords="offset points", fontsize=8)
    axes.xaxis.set_major_formatter("{x:.0%}")
    axes.yaxis.set(major_formatter="{x:.0%}", major_locator=MultipleLocator(0.05))
    axes.legend(frameon=False, title="each point an alpha")
    return figure


def what_was_promised(runs: dict[str, Trace], groups: ArmGroups) -> Figure:
    """The share of visits that each seller is shown in, over time: a line each, the least of them in black."""
    figure = Figure(figsize=(9, 4.8), layout="constrained")
    panels = figure.subplots(1, len(runs), sharey=True)
    for axes, (name, trace) in zip(panels, runs.items(), strict=True):
        assert trace.log is not None
        parts = np.array_split(groups.of_arms[trace.log.arms], 40)
        shown = np.array([np.bincount(part, minlength=groups.n_groups) / len(part) for part in parts])
        ends = np.cumsum([len(part) for part in parts])
        axes.plot(ends, shown, color="#0072B2", linewidth=0.7, alpha=0.45)
        axes.plot(ends, shown.min(axis=1), color="black", linewidth=1.6)
        axes.axhline(PROMISED, color="#D55E00", linewidth=1, linestyle="--")
        axes.set(title=name, xlabel="visits", xlim=(ends[0], ends[-1]), ylim=(0, None))
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.yaxis.set_major_formatter("{x:.0%}")
    note = "each blue line a seller\nblack: the least of all\ndashed: the promise"
    panels[0].annotate(note, (0.02, 0.98), xycoords="axes fraction", fontsize=9, va="top")
    panels[0].set_ylabel("share of the visits, by seller")
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("output/marketplace"), help="folder for the pictures")
    parser.add_argument("--rounds", type=int, default=None, help="visits; default: all")
    options = parser.parse_args()
    stream, sellers = marketplace(options.rounds)
    fair_to_sellers = Groups(sellers)
    groups = fair_to_sellers.for_arms(N_ITEMS)
    curves = {
        "fair to items": [(alpha, play(stream, alpha)) for alpha in ALPHAS],
        "fair to sellers": [(alpha, play(stream, alpha, fair_to_sellers)) for alpha in ALPHAS],
    }
    to_items, to_sellers = (dict(runs) for runs in curves.values())
    runs = {
        "to nobody (alpha 0)": to_items[0.0],
        "to items (alpha 0.9)": to_items[0.9],
        "to sellers (alpha 0.9)": to_sellers[0.9],
    }
    floor = play(stream, 0.6, Groups(sellers, pull_floor=[PROMISED] * groups.n_groups))
    promise = {"alpha 0.6": to_sellers[0.6], f"alpha 0.6, {PROMISED:.0%} promised to each": floor}
    pictures = {
        "who-gets-what": lambda: who_gets_what(runs, groups),
        "what-it-costs": lambda: what_it_costs(curves, groups, stream.n_rounds),
        "what-was-promised": lambda: what_was_promised(promise, groups),
    }
    print(f"{stream.n_rounds:,} visits, {N_ITEMS} items, {groups.n_groups} sellers")
    for name, trace in [*runs.items(), (f"to sellers (alpha 0.6), {PROMISED:.0%} promised", floor)]:
        shares, well = metrics.shares(trace.final, groups=groups), (trace.final - 1.0).sum() / stream.n_rounds
        print(f"fair {name:40} {well:.1%} end well; sellers earn {shares.min():.1%} to {shares.max():.1%} of it")
    options.output.mkdir(parents=True, exist_ok=True)
    with figures.style():
        for name, draw in pictures.items():
            print(figures.save(draw(), options.output / f"{name}.png"))


if __name__ == "__main__":
    main()
