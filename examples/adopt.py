"""From a ranker to a fair policy: watch it, compare with it on a fifth of the traffic, take over. `python adopt.py`

The visitors are those of MovieLens latest-small. A page shows one of eight genres, and the visitor clicks if the movie
that he or she rated fits it. A segment is the genre that a visitor rates most. Visits are in random order. The ranker
shows the genre with the most clicks, and any genre in 20% of visits.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from alphafair import Engine, evaluation, figures, metrics
from alphafair.data.movielens import movielens_small
from alphafair.engine import Decide, Receipt, Reward

ALPHA, N_GENRES, EXPLORATION, SHARE = 0.9, 8, 0.2, 0.2
WATCHED, SHARED, LIVE = 20_000, 10_000, 20_000  # visits
AT_ONCE = 100  # visits whose rewards arrive together


class Visits(NamedTuple):
    """Who comes, and which genres each visitor would click."""

    segments: list[str]
    genres: list[str]
    segment: np.ndarray
    visitor: np.ndarray
    clicks: np.ndarray  # (visits, genres): 1 or 0


class Ranker:
    """Shows the genre with the most clicks per show so far, and any genre in some visits."""

    def __init__(self, n_genres: int, rng: np.random.Generator) -> None:
        self.clicks, self.shows, self.rng = np.ones(n_genres), np.full(n_genres, 2.0), rng

    def show(self) -> tuple[int, float]:
        """Return a genre, and the probability with which it is shown."""
        n, best = len(self.shows), int((self.clicks / self.shows).argmax())
        genre = int(self.rng.integers(n)) if self.rng.random() < EXPLORATION else best
        return genre, EXPLORATION / n + (1.0 - EXPLORATION) * (genre == best)

    def learn(self, genre: int, click: float) -> None:
        self.shows[genre] += 1.0
        self.clicks[genre] += click


class Band(NamedTuple):
    """A number and its 95% interval."""

    value: float
    low: float
    high: float


class Adoption(NamedTuple):
    """What was forecast after watching, what the sides earned per visit, and what came."""

    forecast: dict[str, Band]
    sides: dict[str, Band]
    live: dict[str, float]
    rewards: list[np.ndarray]  # of the visits of every phase, whoever decided


def visits(rng: np.random.Generator) -> Visits:
    """Visits to the page, in random order."""
    stream = movielens_small()
    fits = stream.reward_table == 1.0
    common = np.sort(np.argsort(-fits[stream.items].sum(axis=0), kind="stable")[:N_GENRES])
    names = [stream.arm_labels[arm] for arm in common] if stream.arm_labels else [str(arm) for arm in common]
    rated = np.zeros((stream.n_contexts, N_GENRES))
    np.add.at(rated, stream.contexts, fits[stream.items][:, common])
    order = rng.permutation(stream.n_rounds)[: WATCHED + SHARED + LIVE]
    people = stream.contexts[order]
    favorite = (rated / rated.sum(axis=0)).argmax(axis=1)  # beside what all rate
    return Visits(names, names, favorite[people], people, fits[stream.items[order]][:, common].astype(float))


def serve(engine: Engine, ranker: Ranker, found: Visits, first: int, n_visits: int) -> np.ndarray:
    """Let visitors come; return what they clicked. This code is the same in every phase."""
    rewards = []
    for begin in range(first, first + n_visits, AT_ONCE):
        some = range(begin, begin + AT_ONCE)
        asked = []
        for t in some:
            genre, propensity = ranker.show()
            asked.append(
                Decide(
                    "home",
                    found.segments[found.segment[t]],
                    incumbent=found.genres[genre],
                    incumbent_propensity=propensity,
                    unit=f"visitor-{found.visitor[t]}",
                )
            )
        receipts = [each for each in engine.submit(asked) if isinstance(each, Receipt)]
        shown = [found.genres.index(each.arm) for each in receipts]
        clicks = found.clicks[list(some), shown]
        for receipt, genre, click in zip(receipts, shown, clicks.tolist(), strict=True):
            if receipt.source == "incumbent":
                ranker.learn(genre, click)
        engine.submit([Reward(each.id, click) for each, click in zip(receipts, clicks.tolist(), strict=True)])
        rewards.append(clicks)
    return np.concatenate(rewards)


def adopt(folder: Path, tell: Callable[[str], object] = print, seed: int = 3) -> Adoption:
    """Watch, share, go live."""
    rng = np.random.default_rng(seed)
    found, ranker = visits(rng), Ranker(N_GENRES, rng)
    with Engine.open(folder / "adopt.db", seed=seed) as engine:
        engine.create("home", arms=found.genres, alpha=ALPHA, mode="watch")
        rewards = [serve(engine, ranker, found, 0, WATCHED)]
        log = engine.log("home", source="incumbent")
        found_at = evaluation.frontier(log, [ALPHA])
        forecast = {
            "reward": band(found_at.average_reward, N_GENRES / log.n_rounds),  # per visit
            "jain_index": band(found_at.jain_index),
        }
        earned = np.bincount(log.arms, log.rewards, minlength=N_GENRES)
        fairness = float(metrics.jain_index(1.0 + earned))
        tell(f"The ranker earned {rewards[0].mean():.3f} clicks per visit, with Jain's index {fairness:.3f}.")
        tell("A fair policy would earn " + " per visit, with Jain's index ".join(map(written, forecast.values())) + ".")

        engine.set_terms("home", mode="share", share=SHARE)
        rewards.append(serve(engine, ranker, found, WATCHED, SHARED))
        ours, theirs = engine.experiment("home").sides or ()
        sides = {"policy": band(ours.mean_reward), "ranker": band(theirs.mean_reward)}
        tell(f"{SHARE:.0%} of visitors, by the policy: {written(sides['policy'])} per visit.")
        tell(f"All others, by the ranker: {written(sides['ranker'])} per visit.")

        engine.set_terms("home", mode="live")
        before = engine.experiment("home").cumulative_rewards
        rewards.append(serve(engine, ranker, found, WATCHED + SHARED, LIVE))
        after = engine.experiment("home").cumulative_rewards
        accounts = np.array([1.0 + after[genre] - before[genre] for genre in found.genres])
        engine.verify()
    live = {"reward": float(rewards[2].mean()), "jain_index": float(metrics.jain_index(accounts))}
    tell(f"Live: {live['reward']:.3f} per visit, with Jain's index {live['jain_index']:.3f}.")
    return Adoption(forecast, sides, live, rewards)


def band(interval: Any, scale: float = 1.0) -> Band:
    """A number with its interval."""
    sides = (getattr(interval, name) for name in Band._fields)
    return Band(*(scale * float(np.ravel(side)[0]) for side in sides))


def written(found: Band) -> str:
    return f"{found.value:.3f} ({found.low:.3f} to {found.high:.3f})"


def draw(found: Adoption) -> figures.Figure:
    """What each side earned in the three phases, and what was forecast for the last one."""
    import matplotlib.pyplot as plt

    ranker, policy, ends = "#999999", "#0072B2", [0, WATCHED, WATCHED + SHARED, WATCHED + SHARED + LIVE]
    means = [float(rewards.mean()) for rewards in found.rewards]
    with figures.style():
        figure, axes = plt.subplots(figsize=(7.2, 3.4), layout="constrained")
        axes.hlines(means[0], *ends[:2], color=ranker, linewidth=3)
        axes.hlines(means[2], *ends[2:], color=policy, linewidth=3)
        for side, color, at in (("ranker", ranker, 0.66), ("policy", policy, 0.33)):
            value, low, high = found.sides[side]
            axes.hlines(value, *ends[1:3], color=color, linewidth=3)
            axes.vlines(ends[1] + at * SHARED, low, high, color=color, linewidth=1.2)
        _, low, high = found.forecast["reward"]
        axes.fill_between(ends[2:], low, high, color="#E69F00", alpha=0.3, linewidth=0)
        for name, begin in zip(("watch", f"share {SHARE:.0%}", "live"), ends, strict=False):
            axes.axvline(begin, color=figures.INK, linewidth=0.8, linestyle=":")
            axes.text(begin + 300, 0.97, name, fontsize=9, va="top", transform=axes.get_xaxis_transform())
        axes.text(300, means[0] - 0.003, "the ranker", fontsize=9, va="top", color=figures.INK)
        axes.text(ends[2] + 300, means[2] + 0.003, "the policy", fontsize=9, va="bottom", color=policy)
        axes.text(ends[3] - 300, low + 0.002, "forecast after watching", fontsize=9, ha="right", va="bottom")
        axes.set(xlabel="visits", ylabel="clicks per visit", xlim=(0, ends[3]), ylim=(0.25, 0.5))
        axes.set_title("A ranker is watched, compared with, and replaced")
    return figure


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        draw(adopt(Path(folder))).savefig("adopt.svg")
    print("Drawn: adopt.svg")


if __name__ == "__main__":
    main()
