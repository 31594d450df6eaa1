"""Measure policies that are fair to contexts too: `python -m tools.measure_sides [tables|terms|costs]`.

`tables` prints, for alpha = 1 and 20,000 rounds: the welfare of arms over that of the optimum in hindsight, the reward
over that of serving every context its best arm, the worst share of contexts with at least 100 rounds, and the share
below which a tenth of all rounds are. `terms` does so with groups, late rewards, periods and arms that come and go,
with the largest debt of any round and its bound. `costs` prints the processor time of a round over that without a
second side, by turns. Results stand in docs/background/theory.md.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from alphafair import AlphaFair, AlphaFairAdaptive, Groups, context_reward_totals, metrics, offline_optimum, simulate
from alphafair.streams import ratings
from alphafair.values import Stream
from tools.measure_two_sides import WORLDS

SETTINGS: dict[str, dict[str, Any]] = {
    "alpha = 1": {},
    "alpha = .5": {"alpha": 0.5},
    **{f"theta = {theta:g}": {"context_weight": theta} for theta in (0.25, 0.5, 0.75)},
    **{f"sigma = {share:g}": {"context_share": share} for share in (0.6, 0.7, 0.8)},
}
N_SEEDS = {"full": 1, "bandit": 3}


def numbers(stream: Stream, earned: Any, of_contexts: Any, best: float) -> tuple[float, float, float, float]:
    """Welfare, reward, worst share and tenth."""
    totals = context_reward_totals(stream)
    shares, rounds = metrics.context_shares(of_contexts, totals), np.bincount(stream.contexts, minlength=len(totals))
    many = rounds >= 100
    worst = float(shares[many].min()) if many.any() else float(shares.min())
    tenth = float(metrics.context_share_at(shares, rounds))
    welfare = float(metrics.welfare(earned, 1.0)) / best
    return welfare, float(of_contexts.sum() / totals.max(axis=1).sum()), worst, tenth


def tables(names: tuple[str, ...] = ("ratings", "alike", "zipf")) -> Iterator[str]:
    for name in names:
        stream = WORLDS[name]()
        best = offline_optimum(context_reward_totals(stream), 1.0).welfare
        for feedback, n_seeds in N_SEEDS.items():
            yield f"| {name}, {feedback} | welfare | reward | worst | tenth |\n|---|---|---|---|---|"
            for title, settings in SETTINGS.items():
                found = []
                for seed in range(n_seeds):
                    made: dict[str, Any] = {"alpha": 1.0, "feedback": feedback, "seed": seed, **settings}
                    trace = simulate(AlphaFairAdaptive(stream.n_contexts, stream.n_arms, **made), stream, seed=seed)
                    found.append(numbers(stream, trace.final, trace.context_rewards, best))
                yield f"| {title} | {' | '.join(f'{mean:.3f}' for mean in np.mean(found, axis=0))} |"


def terms() -> Iterator[str]:
    """Full information, alike and ratings, step by step, so that debts are seen in every round."""
    yield "| world, terms | setting | reward | worst | tenth | largest debt | bound |\n|---|---|---|---|---|---|---|"
    for name in ("alike", "ratings"):
        stream = WORLDS[name]().head(10_000)
        n = stream.n_arms
        for term in ("plain", "groups", "late", "periods", "arms"):
            for title in ("alpha = 1", "theta = 0.5", "sigma = 0.7"):
                options = {"groups": Groups([f"g{i % 3}" for i in range(n)])} if term == "groups" else {}
                made: dict[str, Any] = {"alpha": 1.0, "feedback": "full", "seed": 0, **SETTINGS[title], **options}
                policy = AlphaFairAdaptive(stream.n_contexts, n, **made)
                yield f"| {name}, {term} | {title} | {played(policy, stream, term)} |"


def played(policy: Any, stream: Stream, term: str) -> str:
    paid, most, over = np.zeros(stream.n_contexts), 0.0, 0.0
    totals, waiting = np.zeros((stream.n_contexts, stream.n_arms)), list[Any]()
    gone = -1
    for t in range(stream.n_rounds):
        if term == "periods" and t % 2_500 == 0 and t > 0:
            policy.new_period(0.5)
        if term == "arms" and t == stream.n_rounds // 2:  # the best arm leaves
            gone = int(totals.sum(axis=0).argmax())
            policy.retire(gone)
        context, rewards = int(stream.contexts[t]), stream.rewards(t)
        decision = policy.choose(context)
        paid[context] += float(decision.probabilities @ rewards)
        there = np.arange(stream.n_arms) != gone
        totals[context] += np.where(there, rewards, 0.0)
        waiting.append((decision, rewards))
        if len(waiting) > (50 if term == "late" else 0):
            policy.update(*waiting.pop(0))
        if policy.context_share > 0.0:
            debt, bound = float(policy.context_debts.max()), float(policy.context_share_bound)
            most, over = max(most, debt), max(over, debt / bound)
    shares, rounds = metrics.context_shares(paid, totals), np.bincount(stream.contexts, minlength=len(totals))
    many = rounds >= 100
    cells = [paid.sum() / totals.max(axis=1).sum(), shares[many].min(), metrics.context_share_at(shares, rounds)]
    debts = f"{most:.2f} | {over:.2f} of it" if policy.context_share > 0.0 else " | "
    return " | ".join([*(f"{float(cell):.3f}" for cell in cells), debts])


COSTS: Mapping[str, tuple[Any, dict[str, Any], dict[str, Any]]] = {
    "AlphaFair, theta": (AlphaFair, {}, {"context_weight": 0.25}),
    "AlphaFair, theta, fixed weights": (AlphaFair, {}, {"context_weight": 0.25, "context_weights": [1.0] * 33}),
    "adaptive full, theta": (AlphaFairAdaptive, {"feedback": "full"}, {"context_weight": 0.25}),
    "adaptive bandit, theta": (AlphaFairAdaptive, {}, {"context_weight": 0.25}),
    "adaptive bandit, theta, fixed weights": (
        AlphaFairAdaptive, {}, {"context_weight": 0.25, "context_weights": [1.0] * 33},
    ),
    "adaptive full, sigma": (AlphaFairAdaptive, {"feedback": "full"}, {"context_share": 0.6}),
    "adaptive bandit, sigma": (AlphaFairAdaptive, {}, {"context_share": 0.6}),
}  # fmt: skip


def costs() -> Iterator[str]:
    """33 contexts and 19 arms; the median over turns of the ratio of processor times."""
    stream = ratings(20_000, 33, 19, seed=0)
    yield "| policy | alpha | ratio |\n|---|---|---|"
    for title, (kind, own, sides) in COSTS.items():
        for alpha in (0.9, 1.0, 2.0):
            ratios = []
            for turn in range(8):
                spent = []
                for more in ({}, sides):
                    policy = kind(33, 19, alpha=alpha, **own, **more)
                    started = time.process_time()
                    simulate(policy, stream, seed=0)
                    spent.append(time.process_time() - started)
                if turn:
                    ratios.append(spent[1] / spent[0])
            yield f"| {title} | {alpha:g} | {statistics.median(ratios):.2f} |"


def main() -> None:
    for line in {"tables": tables, "terms": terms, "costs": costs}[sys.argv[1] if len(sys.argv) > 1 else "tables"]():
        print(line, flush=True)


if __name__ == "__main__":
    main()
