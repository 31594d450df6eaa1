"""A shop that shows every visitor one seller and is fair to the sellers. Visitors are simulated, the service is real.

    alphafair serve --db shop.db          # in one terminal
    python examples/shop/shop.py          # in another; or both with `make serve`

Each visitor belongs to a segment (the context) and buys from a seller (the arm) with a probability that the shop does
not know. A third of the purchases is reported late. The program prints each seller's share of all purchases over time,
and what the shares would be if the shop always showed the best seller of every segment. With `--greedy-first` it starts
that way, and becomes fair after a fifth of the visitors.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter

from alphafair import Client, ServiceError

SELLERS = ["Ada", "Ben", "Cyd", "Dot"]
BUYS = {  # the probability that a visitor of a segment buys from each seller
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
    parser.add_argument("--seconds", type=float, default=0.0, help="how long the visitors take to arrive; 0: at once")
    parser.add_argument("--alpha", type=float, default=2.0, help="0: the most sales; the larger, the more equal shares")
    parser.add_argument("--greedy-first", action="store_true", help="start at alpha 0")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with Client(options.url, key=options.key, timeout=30.0) as client:
        name = create(client, 0.0 if options.greedy_first else options.alpha)
        simulate(client, name, options, random.Random(options.seed))


def create(client: Client, alpha: float) -> str:
    """Create an experiment under the first free name."""
    number = 1
    while True:
        try:
            client.create(f"shop-{number}", arms=SELLERS, alpha=alpha, reward_wait=3600, default_reward=0.0)
            return f"shop-{number}"
        except ServiceError as problem:
            if problem.code != "experiment_exists":
                raise
            number += 1


def simulate(client: Client, name: str, options: argparse.Namespace, world: random.Random) -> None:
    """Visitors arrive a hundred at a time, evenly over the seconds; late purchases are reported with the next ones."""
    n_visitors, seconds, greedy = options.visitors, options.seconds, options.greedy_first
    late: list[tuple[str, float]] = []
    segments = list(BUYS)
    heading = "visitors  " + "".join(f"{seller:>8}" for seller in SELLERS)
    print(f"{n_visitors:,} visitors, experiment {name!r}\n\n{heading}", flush=True)
    start, shown = time.perf_counter(), [100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, n_visitors]
    for n in range(0, n_visitors, BATCH):
        time.sleep(max(0.0, start + seconds * n / n_visitors - time.perf_counter()))
        if greedy and 5 * n >= n_visitors:
            client.set_alpha(name, options.alpha)
            print(f"{n:>8,}  alpha is {options.alpha:g} from here on", flush=True)
            greedy = False
        visitors = world.choices(segments, k=min(BATCH, n_visitors - n))
        rewards, late = late, []
        for visitor, decision in zip(visitors, client.decide_many(name, visitors), strict=True):
            if isinstance(decision, Exception):
                raise decision
            bought = float(world.random() < BUYS[visitor][SELLERS.index(decision.arm)])
            (late if world.random() < LATE else rewards).append((decision.id, bought))
        client.reward_many(rewards, experiment=name)
        if n + len(visitors) in shown:
            print(
                f"{n + len(visitors):>8,}  " + "".join(f"{share:>8.1%}" for share in shares(client, name)), flush=True
            )
    client.reward_many(late, experiment=name)
    report(client, name, n_visitors, time.perf_counter() - start)


def shares(client: Client, name: str) -> list[float]:
    earned = client.experiment(name).cumulative_rewards
    total = sum(earned.values()) or 1.0  # there are no shares before the first sale
    return [earned[seller] / total for seller in SELLERS]


def report(client: Client, name: str, n_visitors: int, seconds: float) -> None:
    """Print the shares with only the best seller of every segment, and the cost of fairness."""
    greedy: Counter[str] = Counter()
    for chances in BUYS.values():
        greedy[SELLERS[chances.index(max(chances))]] += max(chances)
    most = sum(greedy.values())
    print("\nwith only the best seller of every segment:")
    print(" " * 10 + "".join(f"{greedy[seller] / most:>8.1%}" for seller in SELLERS))
    found = client.experiment(name)
    sold = sum(found.cumulative_rewards.values()) / n_visitors
    print(f"\nsales per visitor {sold:.3f}, at most {most / len(BUYS):.3f}; Jain's index {found.jain_index:.3f}")
    print(f"{found.decisions:,} decisions, {found.rewards:,} rewards, {found.pending:,} pending: {seconds:.1f} s")


if __name__ == "__main__":
    main()
