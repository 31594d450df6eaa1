"""The pictures of the pages in docs/: nothing in, Figure out, and every number in them is computed."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from alphafair import metrics, preprocessing, streams
from alphafair.algorithms import AlphaFair, AlphaFairAdaptive, AlphaFairBandit, Hedge, Uniform
from alphafair.figures import FAINT, INK, LABEL_SIZE, Style, label_ends, policy_style, style
from alphafair.formatting import ALPHA
from alphafair.groups import Groups
from alphafair.lab import charts
from alphafair.lab.report import ARENA_FIGURE, TUNED_FIGURE
from alphafair.offline import context_reward_totals, offline_optimum
from alphafair.run import simulate
from alphafair.values import Matrix, Stream, Vector
from tools.site import DATA
from tools.site.arena import results as arena_results
from tools.site.shapes import (
    BLUE,
    SELLERS,
    WIDTH,
    account,
    arrow,
    axes_at,
    box,
    canvas,
    label,
    number,
    page,
    route,
)

BOUND = policy_style("hedge").color
PALE = "#dcebf5"
QUERIES = ("lamps", "chairs")
PAYS = ((0.9, 0.6, 0.2), (0.8, 0.3, 0.6))  # what a visit is worth to a seller, by query
ALPHAS = (0.0, 0.5, 0.9, 1.0, 2.0)  # of the curves of phi', and their colors, which differ in lightness first
RAMP = ("#00224e", "#35456c", "#666970", "#948e77", "#c8b866")
SWEEP = (*(step / 20 for step in range(21)), 1.5, 2.0, 3.0, 5.0, 10.0, math.inf)
MARKED = (0.0, 0.1, 0.25, 0.5, 1.0, 2.0, math.inf)


def market(n_rounds: int = 10_000) -> Stream:
    """The story of docs/background/method.md: visitors ask for lamps and chairs in turn, three sellers could serve
    them.

    Ada is the best choice for both; Ben is nearly as good for lamps, Cyd for chairs.

    >>> market(4).contexts.tolist(), market(4).rewards(1).tolist()
    ([0, 1, 0, 1], [0.8, 0.3, 0.6])
    """
    visits = (np.arange(n_rounds) % len(QUERIES)).astype(np.int32)
    return Stream(visits, visits, np.array(PAYS), QUERIES, SELLERS)


def reductions() -> Figure:
    """One round of alpha-FairCB as a diagram: a learner per context, coupled through one account of rewards."""
    alpha = 0.9  # as in the text beside it
    earned = simulate(AlphaFair(len(QUERIES), len(SELLERS), alpha=alpha), market()).final
    with style():
        figure, axes = canvas("One learner for each context, one account for all", 4.75)
        row, tall = 3.38, 0.56  # the round walks along this height
        box(axes, 0.15, row, 1.2, tall, "a visitor asks\nfor lamps")
        box(axes, 2.0, row, 1.65, tall, "learner for lamps\nshares x over arms", face=PALE, edge=BLUE)
        box(axes, 2.0, row - 0.84, 1.65, tall, "learner for chairs\nits own x")
        box(axes, 2.0, row - 1.68, 1.65, tall, "one more for every\nfurther context", dashed=True)
        box(axes, 4.35, row, 1.05, tall, "draws an arm\nfrom x")
        box(axes, 6.0, row, 1.05, tall, "the world\npays r")
        middle = row + 0.62 * tall
        arrow(axes, (1.35, middle), (2.0, middle))
        for down in (0.84, 1.68):
            arrow(axes, (1.35, row + 0.3 * tall), (2.0, row + tall / 2 - down), color=FAINT, dashed=True)
        arrow(axes, (3.65, middle), (4.35, middle))
        arrow(axes, (5.4, middle), (6.0, middle))
        route(axes, [(6.53, row + tall), (6.53, 4.16), (2.83, 4.16), (2.83, row + tall)])
        label(axes, 4.68, 4.16, "learns from g = \u03c6\u2032(R) r, nothing else", on_line=True)

        account(axes, earned, alpha, 2.0, 0.12, 5.05, 1.12)
        route(axes, [(6.93, row), (6.93, 1.24)])
        label(axes, 6.86, 3.2, "R grows by r", side="right")
        bus = 3.95
        axes.plot([bus, bus], [1.24, row + 0.2 * tall], color=BLUE, linewidth=2.4, solid_capstyle="butt")
        for down in (0.0, 0.84, 1.68):
            height = row - down + (0.2 if down == 0.0 else 0.5) * tall
            arrow(axes, (bus, height), (3.65, height), color=BLUE, width=2.4)
        words = (
            "concave to linear: one more unit\nof reward to arm i counts \u03c6\u2032(R\u1d62),\nread from the account",
            "one problem to many: given the\nweights, contexts have nothing\nelse in common",
            "many to known ones: each is plain\nonline learning (gradient ascent,\nor a scale-free bandit)",
        )
        number(axes, 2.0, 1.24, 1)
        number(axes, bus, 2.2, 2)
        number(axes, 2.0, row + tall, 3)
        for step, (text, y) in enumerate(zip(words, (2.82, 2.22, 1.62), strict=True), start=1):
            number(axes, 4.42, y + 0.15, step, filled=False)
            label(axes, 4.6, y, text, size=8.0, side="left")
        shared = "blue: what contexts\nshare, the weights\n\u03c6\u2032(R) and no more"
        label(axes, 0.15, 0.68, shared, side="left", color=BLUE)
        label(axes, 0.15, 2.05, "other contexts\nwait their turn", side="left", color="#666666")
    return figure


def what_alpha_does() -> Figure:
    """phi'(R) = R^(-alpha), as a multiple of what it is for an arm that has earned 1,000."""
    usual = 1000.0
    earned = np.geomspace(1.0, 10_000.0, 81)
    titles = [
        f"{ALPHA} = {alpha:g}: {float(f'{metrics.marginal_utility(1.0 / usual, alpha):.3g}'):,.10g}\u00d7"
        for alpha in ALPHAS
    ]  # at the end, where R = 1: (1/1000)^(-alpha)
    styles = [Style(color, "") for color in RAMP]
    with style():
        figure = page("What one more unit of reward counts for, by what the arm has earned so far", 3.7)
        axes = axes_at(figure, 1.05, 0.55, WIDTH - 1.05 - 1.6, 2.6)
        for alpha, title, (color, _) in zip(ALPHAS, titles, styles, strict=True):
            weight = metrics.marginal_utility(earned, alpha) / metrics.marginal_utility(usual, alpha)
            axes.plot(earned[::-1], weight[::-1], color=color, gid=title, linewidth=2.2, clip_on=False)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlim(10_000.0, 1.0)  # the poorest on the right, where the names of the lines stand
        axes.set_ylim(0.008, 1.5e6)
        axes.xaxis.set_major_locator(FixedLocator([1.0, 10.0, 100.0, 1000.0, 10_000.0]))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        axes.yaxis.set_major_locator(FixedLocator([0.01, 1.0, 100.0, 10_000.0]))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}\u00d7"))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_minor_locator(NullLocator())
        axes.set_xlabel("reward R that the arm has earned so far (poorer to the right)")
        axes.set_ylabel("weight \u03c6\u2032(R), against R = 1,000")
        axes.axvline(usual, color=FAINT, linewidth=0.8, linestyle=(0, (2.0, 2.0)))
        label_ends(axes, titles, styles)
    return figure


class Slice(NamedTuple):
    """A concave objective along the line from x to the best vertex of its tangent plane."""

    steps: Vector  # from 0 at x to 1 at the vertex
    values: Vector
    value: float
    gap: float

    @property
    def bound(self) -> float:
        return self.value + self.gap


def tangent_slice(totals: Matrix, x: Matrix, alpha: float) -> Slice:
    """The objective from x toward the vertex v that the tangent plane at x likes best; its slope at 0 is the gap.

    >>> section = tangent_slice(np.array([[3.0, 3.0]]), np.array([[0.5, 0.5]]), alpha=0.5)
    >>> section.gap
    0.0
    """
    prices = metrics.marginal_utility(1.0 + (totals * x).sum(axis=0), alpha)
    vertex = np.eye(totals.shape[1])[(totals * prices).argmax(axis=1)]
    steps = np.linspace(0.0, 1.0, 201)
    earned = 1.0 + ((x + steps[:, None, None] * (vertex - x)) * totals).sum(axis=1)
    values = metrics.alpha_performance(earned, alpha)
    gap = float(((totals * prices).max(axis=1) - (x * totals * prices).sum(axis=1)).sum())
    return Slice(steps, values, float(values[0]), gap)


def tangent() -> Figure:
    """Why value + gap is above the optimum: tangents of the market's objective, at uniform play and halfway on."""
    alpha = 0.5
    totals = context_reward_totals(market())
    best = offline_optimum(totals, alpha)
    uniform = np.full(totals.shape, 1.0 / totals.shape[1])
    halfway = (uniform + best.distributions.round(3)) / 2.0  # beyond that digits are the solver's, not the problem's
    with style():
        figure = page("A tangent lies above a concave curve: its top is a ceiling for the optimum", 4.1)
        for number, (x, title) in enumerate(((uniform, "at uniform play"), (halfway, "halfway to the optimum"))):
            axes = axes_at(figure, 0.72 + 3.3 * number, 0.62, 2.45, 2.75)
            axes.set_title(title, fontsize=10, fontweight="normal")
            axes.set_ylim(243.0, 301.0)
            axes.tick_params(labelleft=number == 0)
            _tangent_panel(axes, tangent_slice(totals, x, alpha), best.value)
        figure.axes[0].set_ylabel(f"{ALPHA}-performance, {ALPHA} = {alpha:g}")
    return figure


def _tangent_panel(axes: Axes, section: Slice, optimum: float) -> None:
    """The curve, its tangent at the left, and the three heights: value, optimum, ceiling."""
    axes.grid(visible=False)
    axes.axhline(section.bound, color=BOUND, linewidth=1.2)
    axes.axhline(optimum, color=INK, linewidth=1.2, linestyle=(0, (5.0, 2.0)))
    axes.plot([0.0, 1.0], [section.value, section.bound], color=BOUND, linewidth=1.8, gid="tangent")
    axes.plot(section.steps, section.values, color=BLUE, linewidth=2.4, gid="objective")
    axes.plot([0.0], [section.value], color=BLUE, marker="o", markersize=7, clip_on=False, zorder=5)
    axes.set_xlim(0.0, 1.0)
    axes.set_xticks([0.0, 1.0], ["this x", "best vertex\nof the tangent"])
    side = axes.get_yaxis_transform()
    arrow = {"arrowstyle": "<->", "color": BOUND, "shrinkA": 0.0, "shrinkB": 0.0}
    axes.annotate(
        "",
        (1.05, section.bound),
        (1.05, section.value),
        xycoords=side,
        textcoords=side,
        arrowprops=arrow,
        annotation_clip=False,
    )
    late = 150  # of 200 steps: a place on the curve for its name
    for x, y, text, (right, up), color in (
        (0.0, section.bound, f"ceiling: value + gap = {section.bound:.1f}", (5, 3), INK),
        (0.0, optimum, f"optimum {optimum:.1f}", (5, -10), INK),
        (0.0, section.value, f"value {section.value:.1f}", (8, -8), INK),
        (section.steps[late], section.values[late], "objective", (-53, -10), BLUE),
        (1.05, (section.value + section.bound) / 2.0, f"gap\n{section.gap:.1f}", (5, -8), INK),
    ):
        axes.annotate(
            text,
            (float(x), float(y)),
            (right, up),
            textcoords="offset points",
            fontsize=8.5,
            color=color,
            annotation_clip=False,
        )


class Frontier(NamedTuple):
    """What a sweep over alpha gives: Jain's index and average cumulative reward by alpha."""

    jain: Vector
    reward: Vector


def frontier(rewards: Sequence[Vector]) -> Frontier:
    """Rounded to what the eye can see: the optimum is flat near alpha = 1, and where a solver stops means nothing."""
    return Frontier(metrics.jain_index(np.array(rewards)).round(3), metrics.average_reward(np.array(rewards)).round())


def price_of_fairness_toy() -> Figure:
    """Average reward against Jain's index along alpha, on the ratings that come with the package."""
    stream = streams.movielens_small(min_ratings=500)
    size = stream.n_contexts, stream.n_arms
    totals = context_reward_totals(stream)
    online = frontier([simulate(AlphaFair(*size, alpha=alpha), stream).final for alpha in SWEEP])
    best = frontier([offline_optimum(totals, alpha).accounts for alpha in SWEEP])
    with style():
        figure = page("The price of fairness: how much reward, how equally shared", 4.1)
        axes = axes_at(figure, 0.85, 0.55, WIDTH - 1.1, 3.0)
        marked = [SWEEP.index(alpha) for alpha in MARKED]
        hollow: Any = {"markersize": 4, "markerfacecolor": "white", "linestyle": (0, (5.0, 2.0)), "linewidth": 1.2}
        axes.plot(*best, color=INK, marker="o", markevery=marked, gid="optimum", **hollow)
        axes.plot(*online, color=BLUE, marker=policy_style("alpha-fair").marker, markevery=marked, gid="alpha-fair")
        places = [(8, 3), (8, 3), (8, 3), (8, 3), (-7, -9), (-7, -9), (-1, -15)]
        for number, place in zip(marked, places, strict=True):
            axes.annotate(
                f"{ALPHA} = {SWEEP[number]:g}".replace("inf", "\N{INFINITY}"),
                (float(online.jain[number]), float(online.reward[number])),
                place,
                textcoords="offset points",
                fontsize=LABEL_SIZE,
                ha="left" if place[0] > 0 else "right",
            )
        axes.text(0.53, 955, "AlphaFair, which learns as it goes", color=BLUE, fontsize=LABEL_SIZE)
        axes.text(0.325, 1000, "best fixed policy\nin hindsight", fontsize=LABEL_SIZE, ha="right", va="center")
        note = f"MovieLens latest-small: {size[0]} users, {size[1]} genres, {stream.n_rounds:,} ratings"
        axes.text(0.99, 0.96, note, transform=axes.transAxes, fontsize=LABEL_SIZE, ha="right", style="italic")
        for policy, place, side in (
            (Hedge(*size), (0, -14), "center"),
            (Uniform(*size, feedback="full"), (-7, -3), "right"),
        ):
            alone = frontier([simulate(policy, stream).final])
            point = float(alone.jain[0]), float(alone.reward[0])
            axes.plot(
                *point, color=policy_style(policy.name).color, marker=policy_style(policy.name).marker, markersize=8
            )
            axes.annotate(policy.name, point, place, textcoords="offset points", fontsize=LABEL_SIZE, ha=side)
        axes.set_xlim(0.0, 1.02)
        axes.set_ylim(600.0, 1300.0)
        axes.set_xlabel("Jain's index (1: all arms alike)")
        axes.set_ylabel("average cumulative reward per arm")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    return figure


RULES = {  # how a new arm enters: account, words, style
    "fresh": ('"fresh": an account of 1', Style("#D55E00", "D")),
    "least": ('"least" live account', Style("#0072B2", "o")),
    "mean": ("the mean account", Style("#009E73", "^")),
}


def newcomer_shares(rule: str, *, n_seeds: int = 40, n_rounds: int = 8000, window: int = 200) -> Vector:
    """Share of the pulls that go to an average arm which joins four others after 4,000 rounds, window by window."""
    visits = np.zeros(n_rounds, dtype=np.int32)
    stream = Stream(
        visits, visits, np.array([[0.6, 0.55, 0.45, 0.4, 0.5]]), arrivals=np.array([0, 0, 0, 0, n_rounds // 2])
    )
    account: Any = rule
    if rule == "mean":
        before = AlphaFairBandit(1, 4, alpha=0.9)
        simulate(before, Stream(visits, visits, stream.reward_table[:, :4]).head(n_rounds // 2))
        account = float(before.accounts.mean())
    shares = []
    for seed in range(n_seeds):
        log = simulate(AlphaFairBandit(1, 4, alpha=0.9), stream, seed=seed, account=account, log=True).log
        assert log is not None
        shares.append((log.arms[n_rounds // 2 :] == 4).reshape(-1, window).mean(axis=1))
    return np.asarray(np.mean(shares, axis=0))


def newcomers() -> Figure:
    """How the share of a newcomer develops under the three rules for its first account."""
    window = 200
    with style():
        figure = page("A fifth arm, as good as the average, joins four others after 4,000 rounds", 3.7)
        axes = axes_at(figure, 0.75, 0.55, WIDTH - 0.75 - 2.05, 2.6)
        for rule, (words, (color, marker)) in RULES.items():
            shares = 100.0 * newcomer_shares(rule, window=window)
            rounds = window * np.arange(1, len(shares) + 1)
            axes.plot(rounds, shares, color=color, marker=marker, markevery=4, gid=words, clip_on=False)
        axes.axhline(20.0, color=INK, linewidth=0.9)
        axes.text(3950, 13.5, "line: an equal share", fontsize=LABEL_SIZE, ha="right")
        axes.set_xlim(0, 4000)
        axes.set_ylim(0, 100)
        axes.set_xlabel("rounds since it joined")
        axes.set_ylabel(f"share of the last {window} pulls (%)")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        label_ends(axes, [words for words, _ in RULES.values()], [drawn for _, drawn in RULES.values()])
    return figure


def world_with_features(kind: str, n_rounds: int, window: int) -> dict[str, Vector]:
    """Mean rewards per window at alpha = 0.5: who knows every mean, features and clusters, clusters alone."""
    settings: dict[str, Any] = {"n_rounds": n_rounds, "n_arms": 10, "n_features": 8, "seed": 0}
    plain, means = streams.described(kind, **settings), streams.described_means(kind, **settings)
    assert plain.features is not None
    stream = preprocessing.cluster(plain.features[: n_rounds // 10], 32).stream(plain)
    earned, known = np.ones(10), np.empty(n_rounds)
    for t in range(n_rounds):
        arm = int((means[t] * earned**-0.5).argmax())
        known[t] = stream.reward_table[t, arm]
        earned[arm] += known[t]
    found = {"knows every mean": known}
    for words, n_features in (("features and clusters", 8), ("clusters alone", 0)):
        log = simulate(AlphaFairAdaptive(32, 10, alpha=0.5, n_features=n_features), stream, log=True).log
        assert log is not None
        found[words] = log.rewards
    found["uniform play"] = stream.reward_table.mean(axis=1)
    return {words: rewards.reshape(-1, window).mean(axis=1) for words, rewards in found.items()}


FEATURE_LOOKS = (Style(INK, "o"), Style(BLUE, "s"), policy_style("hedge"), Style(FAINT, "x"))


def features() -> Figure:
    """What features are worth over time, in a world that stays and in one that changes."""
    n_rounds, window = 30_000, 1_000
    wide = (WIDTH - 0.75 - 1.75 - 0.35) / 2
    with style():
        figure = page("Eight features, ten arms: what is earned per round", 3.7)
        for place, (kind, title) in enumerate((("linear", "linear"), ("changing", "changing halfway"))):
            axes = axes_at(figure, 0.75 + place * (wide + 0.35), 0.55, wide, 2.45)
            curves = world_with_features(kind, n_rounds, window)
            rounds = window * np.arange(1, n_rounds // window + 1)
            for (words, rewards), (color, marker) in zip(curves.items(), FEATURE_LOOKS, strict=True):
                axes.plot(rounds, rewards, color=color, marker=marker, markevery=6, gid=words)
            axes.set_title(title, fontsize=LABEL_SIZE)
            axes.set_xlim(0, n_rounds)
            axes.set_ylim(0.48, 0.76)
            axes.set_xticks((0, 10_000, 20_000, 30_000))
            axes.set_xlabel("rounds")
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / 1000:.0f}k" if value else "0"))
            if place == 0:
                axes.set_ylabel(f"mean reward of {window:,} rounds")
            else:
                axes.set_yticklabels([])
                label_ends(axes, list(curves), list(FEATURE_LOOKS))
    return figure


def power_of_ten(value: float) -> str:
    """With raised digits, which need no mathematical typesetting.

    >>> power_of_ten(1e-10), power_of_ten(1e3)
    ('10\u207b\u00b9\u2070', '10\u00b3')
    """
    raised = str.maketrans("-0123456789", "\u207b\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079")
    return "10" + str(round(np.log10(value))).translate(raised)


RATE_LOOKS = (Style("#332288", "o"), Style("#117733", "s"), Style("#cc6677", "D"))


def rates() -> Figure:
    """E W^2 and the bound of Theorem 1 over T, measured, with the rates of Theorem 2 dashed beside them."""
    found = json.loads((DATA / "rates.json").read_text(encoding="utf-8"))
    horizons = np.array(found["horizons"], dtype=np.float64)
    log, wide, tall = np.log(horizons), (WIDTH - 0.85 - 1.2 - 0.35) / 2, 2.1
    promised = {  # the exponent of T, and that of its logarithm
        "squares": lambda alpha: (-2.0 * alpha, 0.0),
        "bounds": lambda alpha: (max(0.0, 0.5 - alpha), 2.0 if alpha == 0.5 else 1.5),
    }
    names = {"squares": "mean of W\u00b2", "bounds": "bound in expectation"}
    with style():
        figure = page("Ten million rounds: dashed, what Theorem 2 allows", 5.9)
        for column, kind in enumerate(("stochastic", "adversarial")):
            for row, key in enumerate(("squares", "bounds")):
                axes = axes_at(figure, 0.85 + column * (wide + 0.35), 0.55 + (1 - row) * (tall + 0.35), wide, tall)
                axes.set_xscale("log")
                axes.set_yscale("log")
                runs = [run for run in found["runs"] if run["stream"] == kind]
                for run, (color, marker) in zip(runs, RATE_LOOKS, strict=True):
                    mean = np.mean(run[key], axis=0)
                    power, of_log = promised[key](run["alpha"])
                    guide = horizons**power * log**of_log
                    above = 2.0 * mean[-1] * guide / guide[-1]  # a little, so that both are seen
                    axes.plot(horizons, above, color=color, linewidth=1.0, linestyle="--")
                    axes.plot(horizons, mean, color=color, marker=marker, gid=f"{ALPHA} = {run['alpha']:g}")
                axes.set_xlim(700, 1.4e7)
                axes.set_ylim((1e-11, 1.0) if key == "squares" else (10.0, 3e4))
                for axis in (axes.xaxis, axes.yaxis):
                    axis.set_minor_locator(NullLocator())
                    axis.set_major_formatter(FuncFormatter(lambda value, _: power_of_ten(value)))
                axes.tick_params(labelbottom=row == 1, labelleft=column == 0)
                if row == 0:
                    axes.set_title(kind, fontsize=LABEL_SIZE)
                else:
                    axes.set_xlabel("rounds")
                if column == 0:
                    axes.set_ylabel(names[key])
                else:
                    label_ends(axes, [f"{ALPHA} = {run['alpha']:g}" for run in runs], list(RATE_LOOKS))
    return figure


def arena() -> Figure:
    """The share of the gap closed at alpha = 0.9, from the results on the page of the arena."""
    return charts.arena(arena_results().matches, ARENA_FIGURE.title, alphas=(0.9,))


def arena_tuned() -> Figure:
    """The adaptive policy and rivals tuned in hindsight at alpha = 0.9, from the same results."""
    return charts.tuned(arena_results().matches, TUNED_FIGURE.title, alphas=(0.9,))


def listed_twice() -> dict[str, dict[str, Vector]]:
    """Shares of four equal sellers, the first of which lists its item once or twice, fair to items and to sellers."""
    shares: dict[str, dict[str, Vector]] = {}
    for listing, sellers in (("one item each", list("ABCD")), ("A lists its item twice", list("AABCD"))):
        rewards = np.random.default_rng(5).random((20_000, 4))
        table = np.ascontiguousarray(rewards[:, ["ABCD".index(seller) for seller in sellers]])
        stream = Stream.from_arrays(np.zeros(len(table), dtype=int), table)
        for fair, said in (("fair to items", {}), ("fair to sellers", {"groups": sellers})):
            policy = AlphaFairAdaptive(1, len(sellers), alpha=0.9, **said)
            accounts = metrics.group_accounts(simulate(policy, stream).final, sellers)
            shares.setdefault(fair, {})[listing] = accounts / accounts.sum()
    return shares


def why_groups() -> Figure:
    """Who lists an item twice is paid twice, unless fairness is owed to sellers."""
    shares = listed_twice()
    with style():
        figure = page("Seller A lists its one item twice", 3.2)
        width = (WIDTH - 0.75 - 0.6) / 2
        for k, (fair, listings) in enumerate(shares.items()):
            axes = axes_at(figure, 0.75 + k * (width + 0.4), 0.55, width, 2.0)
            for j, (listing, share) in enumerate(listings.items()):
                color = (INK, policy_style("alpha-fair-adaptive")[0])[j]
                axes.bar(np.arange(4) + 0.42 * j - 0.21, 100.0 * share, width=0.38, color=color, label=listing)
            axes.axhline(25.0, color=INK, linewidth=0.7, linestyle=":")
            axes.set_xticks(range(4), [f"seller {name}" for name in "ABCD"])
            axes.set_ylim(0, 50)
            axes.set_title(fair, loc="left", fontsize=LABEL_SIZE)
            if k == 0:
                axes.set_ylabel("share of all reward (%)")
                axes.legend(frameon=False, fontsize=LABEL_SIZE, loc="upper right")
    return figure


STEEP = ("#35456c", "#117733", "#cc6677")  # colors of alpha = 1, 2, 5


def alpha_position(alpha: float) -> float:
    """The place of alpha on an axis from 0 to infinity, alpha/(1 + alpha).

    >>> alpha_position(1.0), alpha_position(math.inf)
    (0.5, 1.0)
    """
    return 1.0 if alpha == math.inf else alpha / (1.0 + alpha)


def zero_to_infinity() -> Figure:
    """The mean account and the poorest arm's share of all reward for every alpha, on the ratings of the package."""
    stream = streams.movielens_small(min_ratings=500)
    size = stream.n_contexts, stream.n_arms
    alphas = (*(k / 10 for k in range(10)), 1.0, 1.25, 1.5, 2.0, 3.0, 5.0, 8.0, 16.0, math.inf)
    marked = (0.0, 0.5, 1.0, 2.0, 5.0, math.inf)
    accounts = np.array(
        [simulate(AlphaFairAdaptive(*size, alpha=alpha, feedback="full"), stream).final for alpha in alphas]
    )
    least = 100.0 * (accounts.min(axis=1) / accounts.sum(axis=1))
    width = (WIDTH - 0.75 - 0.75 - 0.2) / 2
    with style():
        figure = page("What alpha does, from 0 to infinity", 3.3)
        for column, (title, values) in enumerate(
            (("mean account (reward)", accounts.mean(axis=1)), ("least share of reward (%)", least))
        ):
            axes = axes_at(figure, 0.75 + column * (width + 0.75), 0.55, width, 2.1)
            places = [alpha_position(alpha) for alpha in alphas]
            on = [alphas.index(alpha) for alpha in marked]
            axes.plot(places, values, color=BLUE, marker="o", markersize=4.5, markevery=on, clip_on=False, zorder=3)
            for at in on:
                text = f"{values[at]:,.0f}" if column == 0 else f"{values[at]:.1f}"
                right = column == 0 or at == 0
                place = (5, 4) if right else (-4, 6)
                axes.annotate(
                    text,
                    (places[at], float(values[at])),
                    place,
                    textcoords="offset points",
                    fontsize=8,
                    ha="left" if right else "right",
                )
            axes.set_xlim(0.0, 1.0)
            axes.set_xticks([alpha_position(alpha) for alpha in marked], ["0", "0.5", "1", "2", "5", "\u221e"])
            axes.set_xlabel(ALPHA)
            axes.set_title(title, loc="left", fontsize=LABEL_SIZE)
            axes.set_ylim(0.0, 1500.0 if column == 0 else 6.0)
            if column == 1:
                equal = 100.0 / size[1]
                axes.axhline(equal, color=INK, linewidth=0.8, linestyle=":")
                axes.text(0.02, equal + 0.1, f"equal shares: {equal:.1f}%", fontsize=8, va="bottom")
    return figure


def trap_ratio(epsilon: float, alpha: float, pull_floor: float = 0.0) -> float:
    """The welfare ratio on the trap of docs/howto/choose_alpha.md, 20,000 rounds."""
    half = 10_000
    halves = np.repeat(np.array([0, 1], dtype=np.int32), half)
    trap = Stream(halves, halves, np.array([[epsilon, 1.0], [1.0, 0.0]]))
    options: dict[str, Any] = {"groups": Groups(pull_floor=pull_floor)} if pull_floor else {}
    accounts = simulate(AlphaFairAdaptive(2, 2, alpha=alpha, feedback="full", **options), trap).final
    best = offline_optimum(context_reward_totals(trap), alpha).welfare
    return float(metrics.welfare_ratio(best, accounts, alpha))


def trap() -> Figure:
    """How far a policy falls behind on the trap, by what the poor arm pays at first, with and without a pull floor."""
    pays = (0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001)
    width = (WIDTH - 0.75 - 1.0 - 0.5) / 2
    names, looks = [f"{ALPHA} = {alpha:g}" for alpha in (1.0, 2.0, 5.0)], [Style(color, "o") for color in STEEP]
    with style():
        figure = page("The trap: visits for an arm that would have recovered by itself", 3.3)
        for column, (title, floor) in enumerate((("no floor", 0.0), ("a pull floor of 5%", 0.05))):
            axes = axes_at(figure, 0.75 + column * (width + 0.5), 0.55, width, 2.1)
            axes.axhline(2.0, color=INK, linewidth=0.8, linestyle=":")
            axes.text(0.0011, 2.1, "uniform play", fontsize=8, va="bottom", ha="right")
            if floor:
                axes.axhline(1.0 / floor, color=INK, linewidth=0.8, linestyle="--")
                axes.text(0.45, 1.05 / floor, "limit: 1/floor", fontsize=8, va="bottom")
            for alpha, name, (color, marker) in zip((1.0, 2.0, 5.0), names, looks, strict=True):
                ratios = [round(trap_ratio(epsilon, alpha, floor), 2) for epsilon in pays]
                axes.plot(pays, ratios, color=color, marker=marker, markersize=3.5, gid=name)
            axes.set_xscale("log")
            axes.set_yscale("log")
            axes.set_xlim(0.5, 0.001)
            axes.set_ylim(0.9, 250.0)
            axes.xaxis.set_major_locator(FixedLocator([0.5, 0.1, 0.01, 0.001]))
            axes.yaxis.set_major_locator(FixedLocator([1.0, 2.0, 5.0, 20.0, 100.0]))
            for axis in (axes.xaxis, axes.yaxis):
                axis.set_minor_locator(NullLocator())
                axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axes.tick_params(labelleft=column == 0)
            axes.set_xlabel("\u03b5, what the poor arm pays at first")
            axes.set_title(title, loc="left", fontsize=LABEL_SIZE)
            if column == 0:
                axes.set_ylabel("welfare, optimum / policy")
            else:
                label_ends(axes, names, looks)
    return figure


def weeks(alpha: float = 2.0, n_rounds: int = 20_000, period: int = 2_000) -> dict[str, Vector]:
    """The least share of reward within each period of ratings by time, in percent, without periods and with."""
    stream = streams.movielens_small().head(n_rounds)

    def policy() -> AlphaFairAdaptive:
        return AlphaFairAdaptive(stream.n_contexts, stream.n_arms, alpha=alpha, feedback="full")

    accounts = simulate(policy(), stream, record_every=period).accounts
    without = np.diff(accounts, axis=0, prepend=np.ones((1, stream.n_arms)))
    ways = {"without periods": without}
    for carry, name in ((0.5, "periods, carry 1/2"), (0.0, "periods, carry 0")):
        run = simulate(policy(), stream, period=period, carry=carry)
        ways[name] = np.array([each.rewards for each in run.periods])
    return {name: 100.0 * rewards.min(axis=1) / rewards.sum(axis=1) for name, rewards in ways.items()}


def fair_weeks() -> Figure:
    """The least share within a period, with and without periods."""
    found = weeks()
    looks = [Style("#666666", "s"), Style(BLUE, "o"), Style("#cc6677", "D")]
    with style():
        figure = page("The poorest genre's share of reward within a week of 2,000 ratings", 3.3)
        axes = axes_at(figure, 0.75, 0.55, WIDTH - 0.75 - 1.75, 2.25)
        for (name, least), (color, marker) in zip(found.items(), looks, strict=True):
            axes.plot(np.arange(1, len(least) + 1), least, color=color, marker=marker, markersize=4.5, gid=name)
        names = [f"{name}\n(mean {least.mean():.1f}%)" for name, least in found.items()]
        for line, name in zip(axes.lines, names, strict=True):
            line.set_gid(name)
        axes.axhline(100.0 / 19, color=INK, linewidth=0.8, linestyle=":")
        axes.text(1.0, 100.0 / 19 + 0.08, f"equal shares: {100 / 19:.1f}%", fontsize=8, va="bottom")
        axes.set_xlim(1, len(least))
        axes.set_ylim(0.0, 6.0)
        axes.set_xticks(range(1, len(least) + 1))
        axes.set_xlabel("week")
        axes.set_ylabel("least share of reward (%)")
        label_ends(axes, names, looks)
    return figure


PICTURES = {
    "reductions": reductions,
    "what-alpha-does": what_alpha_does,
    "price-of-fairness": price_of_fairness_toy,
    "tangent": tangent,
    "newcomers": newcomers,
    "why-groups": why_groups,
    "features": features,
    "rates": rates,
    "arena": arena,
    "arena-tuned": arena_tuned,
    "zero-to-infinity": zero_to_infinity,
    "trap": trap,
    "fair-weeks": fair_weeks,
}
