"""A shop that shows every visitor one seller, and shares visitors fairly: visitors are simulated, the service is real.

    alphafair serve --db shop.db          # in one terminal
    python examples/shop/shop.py          # in another; or both with `make serve`

Each visitor belongs to a segment (the context) and buys from a seller (the arm) with a probability that the shop does
not know. A third of the purchases is reported late. What is printed is the share of all purchases that each seller has,
as it evens out, and what it would be if the shop had simply shown the best seller of every segment.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter

from alphafair import Client, ServiceError

SELLERS = ["Ada", "Ben", "Cyd", "Dot"]
BUYS = {  # how likely a visitor of a segment buys from each seller
    "books": [0.60, 0.50, 0.20, 0.25],
    "garden": [0.30, 0.55, 0.45, 0.20],
    "music": [0.70, 0.30, 0.35, 0.40],
}
BATCH, LATE = 100, 1 / 3


def main() -> None:
    parser = argparse.ArgumentParser(description="Simulate visitors of a shop against a running service.")
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--key", help="a key of the role admin, if the service has keys")
    parser.add_argument("--visitors", type=int, default=20_000)
    parser.add_argument("--alpha", type=float, default=0.9, help="0: sell the most; toward 1: all sell alike")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with Client(options.url, key=options.key, timeout=30.0) as client:
        name = opened(client, options.alpha)
        visit(client, name, options.visitors, random.Random(options.seed))


def opened(client: Client, alpha: float) -> str:
    """A new experiment, under a name that is still free."""
    number = 1
    while True:
        try:
            client.create(f"shop-{number}", arms=SELLERS, alpha=alpha, reward_wait=3600, default_reward=0.0)
            return f"shop-{number}"
        except ServiceError as problem:
            if problem.code != "experiment_exists":
                raise
            number += 1


def visit(client: Client, name: str, n_visitors: int, world: random.Random) -> None:
    """Visitors come a hundred at a time; what is bought late is reported with the next hundred."""
    late: list[tuple[str, float]] = []
    segments = list(BUYS)
    print(f"{n_visitors:,} visitors, experiment {name!r}\n\nvisitors  " + "".join(f"{seller:>8}" for seller in SELLERS))
    start, shown = time.perf_counter(), [100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, n_visitors]
    for n in range(0, n_visitors, BATCH):
        visitors = world.choices(segments, k=min(BATCH, n_visitors - n))
        rewards, late = late, []
        for visitor, decision in zip(visitors, client.decide_many(name, visitors), strict=True):
            if isinstance(decision, Exception):
                raise decision
            bought = float(world.random() < BUYS[visitor][SELLERS.index(decision.arm)])
            (late if world.random() < LATE else rewards).append((decision.id, bought))
        client.reward_many(rewards, experiment=name)
        if n + len(visitors) in shown:
            print(f"{n + len(visitors):>8,}  " + "".join(f"{share:>8.1%}" for share in shares(client, name)))
    client.reward_many(late, experiment=name)
    seconds = time.perf_counter() - start
    report(client, name, n_visitors, seconds)


def shares(client: Client, name: str) -> list[float]:
    earned = client.experiment(name).cumulative_rewards
    total = sum(earned.values()) or 1.0  # before the first sale nobody has a share
    return [earned[seller] / total for seller in SELLERS]


def report(client: Client, name: str, n_visitors: int, seconds: float) -> None:
    """What the best seller of every segment alone would have meant, and what fairness cost."""
    greedy: Counter[str] = Counter()
    for chances in BUYS.values():
        greedy[SELLERS[chances.index(max(chances))]] += max(chances)
    most = sum(greedy.values())
    print("\nthe best seller of every segment alone:")
    print(" " * 10 + "".join(f"{greedy[seller] / most:>8.1%}" for seller in SELLERS))
    found = client.experiment(name)
    sold = sum(found.cumulative_rewards.values()) / n_visitors
    print(f"\nsales per visitor {sold:.3f}, at most {most / len(BUYS):.3f}; Jain's index {found.jain_index:.3f}")
    print(f"{found.decisions:,} decisions, {found.rewards:,} rewards, {found.pending:,} awaited: {seconds:.1f} s")


if __name__ == "__main__":
    main()
