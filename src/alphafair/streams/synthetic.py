"""Seeded synthetic streams: ratings, ratings by users whose preferences change, and two adversarial streams."""

import numpy as np
from numpy.typing import NDArray

from alphafair import validate
from alphafair.math.welfare import welfare
from alphafair.values import Indices, Matrix, Stream


def ratings(
    n_rounds: int, n_contexts: int, n_arms: int, *, reward_floor: float = 0.2, n_items: int = 1000, seed: int = 0
) -> Stream:
    """Make a stream like ratings of items by users: reward 1 for the arms that fit the item, the floor for the others.

    Every item fits one to four arms, some arms are far more common than others, every context has favorite items, and
    some contexts are far more frequent than others. Rounds are independent draws.

    >>> stream = ratings(n_rounds=100, n_contexts=5, n_arms=4, seed=1)
    >>> stream.n_rounds, stream.n_contexts, stream.n_arms, stream.rewards(0).tolist()
    (100, 5, 4, [1.0, 0.2, 0.2, 0.2])
    """
    sizes = (n_rounds, n_contexts, n_arms)
    return drifting_ratings(*sizes, n_phases=1, reward_floor=reward_floor, n_items=n_items, seed=seed)


def drifting_ratings(
    n_rounds: int,
    n_contexts: int,
    n_arms: int,
    *,
    n_phases: int = 5,
    reward_floor: float = 0.2,
    n_items: int = 1000,
    seed: int = 0,
) -> Stream:
    """Make a stream like `ratings` in which every context has new favorite items in every phase.

    >>> drifting_ratings(n_rounds=100, n_contexts=5, n_arms=4, seed=1).n_rounds
    100
    """
    n_rounds, n_contexts, n_arms, rng, floor = _checked(n_rounds, n_contexts, n_arms, seed, reward_floor)
    n_phases = validate.integer("n_phases", n_phases, low=1, high=n_rounds)
    n_items = validate.integer("n_items", n_items, low=1)
    table = _item_table(rng, n_items, n_arms, floor)
    favorites = rng.integers(0, n_items, size=(n_phases, n_contexts, 40))
    contexts = _draw_contexts(rng, n_rounds, n_contexts)
    phases = np.arange(n_rounds) * n_phases // n_rounds
    items = favorites[phases, contexts, rng.integers(0, 40, size=n_rounds)]
    return Stream(contexts, items.astype(np.int32), table, n_contexts=n_contexts)


def impossibility(n_half: int, *, reward_floor: float = 1 / 3, seed: int = 0) -> Stream:
    """Make the stream of two contexts and two arms that shows why no online policy can avoid a factor such as c_alpha.

    For n_half rounds context 0 pays both arms 1. Then context 1 pays one arm 1 and the other the floor; a coin decides
    which. The optimum gives the first half to the arm that earns little in the second; a policy cannot know which, so
    OPT/ALG tends to at least 2/((3/2)^(1-alpha) + (1/2)^(1-alpha)), for every floor of at most 1/3.

    >>> impossibility(3, seed=0).contexts.tolist()
    [0, 0, 0, 1, 1, 1]
    """
    n_half = validate.integer("n_half", n_half, low=1)
    floor = validate.number("reward_floor", reward_floor, low=0.0, high=1 / 3)
    coin = validate.random_generator("seed", seed).integers(0, 2)
    late = [1.0, floor] if coin == 0 else [floor, 1.0]
    halves = np.repeat(np.array([0, 1], dtype=np.int32), n_half)
    return Stream(halves, halves, np.array([[1.0, 1.0], late]))


def greedy_trap(n_rounds: int, n_contexts: int, n_arms: int, *, reward_floor: float = 0.2) -> Stream:
    """Make a stream in which the arm with the greatest total so far pays the floor, which a greedy policy always gets.

    In every context each arm in turn pays the floor while all others pay 1. That arm is always the one that has
    earned most so far (ties to the first), so a greedy policy always plays it, while any fixed arm, and uniform play,
    earn nearly 1 per round. Contexts alternate.

    >>> greedy_trap(8, n_contexts=2, n_arms=3).items.tolist()
    [0, 0, 1, 1, 2, 2, 0, 0]
    """
    n_rounds, n_contexts, n_arms, _, floor = _checked(n_rounds, n_contexts, n_arms, 0, reward_floor)
    table = np.where(np.eye(n_arms, dtype=bool), floor, 1.0)
    turn, context = np.divmod(np.arange(n_rounds), n_contexts)
    return Stream(context.astype(np.int32), (turn % n_arms).astype(np.int32), table, n_contexts=n_contexts)


def _checked(
    n_rounds: int, n_contexts: int, n_arms: int, seed: int, floor: float
) -> tuple[int, int, int, np.random.Generator, float]:
    return (
        validate.integer("n_rounds", n_rounds, low=1),
        validate.integer("n_contexts", n_contexts, low=1),
        validate.integer("n_arms", n_arms, low=1),
        validate.random_generator("seed", seed),
        validate.number("reward_floor", floor, low=0.0, high=1.0, high_open=True),
    )


def _item_table(rng: np.random.Generator, n_items: int, n_arms: int, floor: float) -> Matrix:
    """Return a table in which every item fits one to four arms; the k-th arm has weight 1/(k + 1)."""
    popularity = 1.0 / np.arange(1, n_arms + 1)
    keys = rng.random((n_items, n_arms)) ** (1.0 / popularity)  # the largest keys: a weighted draw without replacement
    rank = (-keys).argsort(axis=1).argsort(axis=1)
    fits = rng.integers(1, min(4, n_arms) + 1, size=(n_items, 1))
    return np.where(rank < fits, 1.0, floor)


def _draw_contexts(rng: np.random.Generator, n_rounds: int, n_contexts: int) -> Indices:
    """Draw contexts, the k-th with probability proportional to 1/sqrt(k + 1)."""
    weights = 1.0 / np.sqrt(np.arange(1, n_contexts + 1))
    edges = np.cumsum(weights)
    drawn: Indices = np.searchsorted(edges, rng.random(n_rounds) * edges[-1], side="right").astype(np.int32)
    return drawn


def dying_arms(n_arms: int = 10, n_rounds: int = 40_000, *, alpha: float = 1.0, seed: int = 0) -> Stream:
    """Arms that stop paying one by one, in random order: no online policy beats `dying_arms_bound` here.

    Phase k has its own context, in which living arms pay 1 and dead arms 0; one arm dies at its end. The best fixed
    policy gives every phase to the arm that dies next, which a policy cannot know. The lengths of the phases depend on
    alpha: each is a multiple of the last, or a short first phase is followed by equal ones, whichever makes the bound
    largest. See docs/background/theory.md, Theorem D.

    >>> stream = dying_arms(3, 12, alpha=1.0)
    >>> stream.contexts.tolist(), float(stream.rewards(11).sum())
    ([0, 0, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2], 1.0)
    """
    lengths = _phase_lengths(n_arms, n_rounds, alpha)
    last = np.empty(n_arms, dtype=np.int64)  # the last phase in which an arm pays
    last[validate.random_generator("seed", seed).permutation(n_arms)] = np.arange(n_arms)
    table = (last >= np.arange(n_arms)[:, None]).astype(np.float64)
    phases = np.repeat(np.arange(n_arms, dtype=np.int32), lengths)
    return Stream(phases, phases, table, n_contexts=n_arms)


def dying_arms_bound(n_arms: int = 10, n_rounds: int = 40_000, *, alpha: float = 1.0) -> float:
    """The least possible ratio of the best welfare to the expected welfare of an online policy on `dying_arms`.

    It holds for every policy, in the mean over random orders, with the welfare of the same alpha.

    >>> round(dying_arms_bound(2, 100_000, alpha=0.5), 3)  # its root, 1.061, is the ratio of alpha-performances
    1.125
    """
    return _bound(_phase_lengths(n_arms, n_rounds, alpha), validate.alpha(alpha))


def _bound(lengths: Indices, alpha: float) -> float:
    """W(1 + T_1, ..., 1 + T_N)/W(rho), rho_l = 1 + sum_{k <= l} T_k/(N - k + 1): by exchangeability and concavity."""
    n = len(lengths)
    reached = np.cumsum(lengths / np.arange(n, 0, -1.0))
    return float(welfare(1.0 + lengths, np.ones(n), alpha) / welfare(1.0 + reached, np.ones(n), alpha))


def _phase_lengths(n_arms: int, n_rounds: int, alpha: float) -> Indices:
    """Return numbers of rounds, at least 1, that add up to n_rounds: of two families those with the largest bound."""
    n_arms = validate.integer("n_arms", n_arms, low=2)
    n_rounds, alpha = validate.integer("n_rounds", n_rounds, low=n_arms), validate.alpha(alpha)
    k = np.arange(n_arms)

    def rounded(ideal: NDArray[np.float64]) -> Indices:
        ends = np.rint(np.cumsum(ideal) / ideal.sum() * n_rounds).astype(np.int64)
        ends = np.maximum.accumulate(np.maximum(ends - k, 1)) + k  # every phase has a round
        lengths: Indices = np.diff(np.minimum(ends, n_rounds - (n_arms - 1 - k)), prepend=0)
        return lengths

    growing = [rounded(growth ** (k - n_arms + 1.0)) for growth in np.arange(1.0, 8.05, 0.1)]
    common = [rounded(np.where(k == 0, first, 1.0)) for first in 2.0 ** -np.arange(0.0, 12.0, 0.5)]
    return max([*growing, *common], key=lambda lengths: _bound(lengths, alpha))
