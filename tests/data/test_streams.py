"""Streams: what they promise, and what the value `Stream` refuses."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from scipy import stats

from alphafair import Stream, Uniform, simulate, streams, validate

MAKERS: dict[str, Any] = {
    "ratings": lambda seed: streams.ratings(500, 6, 5, seed=seed),
    "drifting-ratings": lambda seed: streams.drifting_ratings(500, 6, 5, seed=seed),
}


@pytest.mark.parametrize("name", MAKERS)
def test_seeded_streams_repeat_and_differ(name: str) -> None:
    one, again, other = MAKERS[name](1), MAKERS[name](1), MAKERS[name](2)
    assert np.array_equal(one.contexts, again.contexts)
    assert np.array_equal(one.items, again.items)
    assert np.array_equal(one.reward_table, again.reward_table)
    assert not np.array_equal(one.items, other.items)
    assert set(np.unique(one.reward_table)) == {0.2, 1.0}
    assert one.n_contexts == 6
    assert (one.reward_table == 1.0).sum(axis=1).min() >= 1


def test_drifting_streams_change_between_phases() -> None:
    """Within a phase a context keeps its 40 favorites; the next phase has others."""
    stream = streams.drifting_ratings(20_000, 1, 4, n_phases=2, seed=0)
    first, second = set(stream.items[:10_000].tolist()), set(stream.items[10_000:].tolist())
    assert len(first) <= 40
    assert len(second) <= 40
    assert len(first & second) < 10


@pytest.mark.parametrize(("n_contexts", "n_arms"), [(1, 2), (3, 4)])
def test_greedy_trap_punishes_the_leader(n_contexts: int, n_arms: int) -> None:
    """Following the arm that has earned most so far in the context earns the floor in every round."""
    stream = streams.greedy_trap(600, n_contexts, n_arms)
    totals = np.zeros((n_contexts, n_arms))
    for t in range(600):
        context = int(stream.contexts[t])
        assert stream.rewards(t)[int(totals[context].round(6).argmax())] == 0.2
        totals[context] += stream.rewards(t)
    assert totals.sum(axis=0).min() > 0.5 * 600


MEANS: dict[str, Any] = {
    "stationary": lambda seed: streams.stationary(500, 6, 5, seed=seed),
    "phases": lambda seed: streams.phases(500, 6, 5, seed=seed),
    "day and night": lambda seed: streams.day_and_night(500, 6, 5, seed=seed),
    "zipf contexts": lambda seed: streams.zipf_contexts(500, 6, 5, seed=seed),
    "sparse clicks": lambda seed: streams.sparse_clicks(500, 6, 5, seed=seed),
    "adversary": lambda seed: streams.adversary("largest", 500, 6, 5, seed=seed).stream,
}


@pytest.mark.parametrize("name", MEANS)
def test_streams_of_means_repeat_and_differ(name: str) -> None:
    one, again, other = MEANS[name](1), MEANS[name](1), MEANS[name](2)
    assert np.array_equal(one.contexts, again.contexts)
    assert np.array_equal(one.reward_table, again.reward_table)
    assert not np.array_equal(one.contexts, other.contexts)
    assert not np.array_equal(one.reward_table, other.reward_table)
    assert one.n_contexts == 6
    if name != "adversary":
        assert set(np.unique(one.reward_table)) == {0.0 if name == "sparse clicks" else 0.2, 1.0}


HEAVY: dict[str, Any] = {
    "lognormal": streams.lognormal_rewards,
    "pareto": streams.pareto_rewards,
    "purchases": streams.purchases,
}


@pytest.mark.parametrize("name", HEAVY)
def test_streams_of_heavy_tails_repeat_differ_and_lie_in_the_unit_interval(name: str) -> None:
    one, again, other = (HEAVY[name](3000, 6, 5, seed=seed) for seed in (1, 1, 2))
    assert np.array_equal(one.contexts, again.contexts)
    assert np.array_equal(one.reward_table, again.reward_table)
    assert not np.array_equal(one.contexts, other.contexts)
    assert not np.array_equal(one.reward_table, other.reward_table)
    assert (one.n_rounds, one.n_contexts, one.n_arms) == (3000, 6, 5)
    assert one.reward_table.min() >= 0.0
    assert one.reward_table.max() <= 1.0
    assert (one.reward_table == 0.0).any() == (name == "purchases")


def cut_lognormal(sigma: float, most: float) -> tuple[float, float]:
    """The mean of min(X, most) with X = exp(sigma Z - sigma^2/2), and the probability of more."""
    above = stats.norm.sf((np.log(most) + sigma**2 / 2) / sigma)
    return float(stats.norm.cdf((np.log(most) - sigma**2 / 2) / sigma) + most * above), float(above)


def cut_pareto(shape: float, most: float) -> tuple[float, float]:
    """The same of a Pareto distribution with mean 1: the integral of P(X > x) up to `most`."""
    law = stats.pareto(shape, scale=1 - 1 / shape)
    least = 1 - 1 / shape
    beyond = least**shape * (least ** (1 - shape) - most ** (1 - shape)) / (shape - 1)
    return least + beyond, float(law.sf(most))


@pytest.mark.parametrize(
    ("make", "cut"),
    [
        (lambda: streams.lognormal_rewards(400_000, 2, 3, seed=0), lambda most: cut_lognormal(1.5, most)),
        (lambda: streams.lognormal_rewards(400_000, 2, 3, sigma=1.0, seed=0), lambda most: cut_lognormal(1.0, most)),
        (lambda: streams.pareto_rewards(400_000, 2, 3, seed=0), lambda most: cut_pareto(2.0, most)),
        (lambda: streams.pareto_rewards(400_000, 2, 3, shape=3.0, seed=0), lambda most: cut_pareto(3.0, most)),
    ],
)
def test_heavy_tails_have_the_documented_law(make: Any, cut: Any) -> None:
    """The mean of a cell gives m; then the median and the rate of rewards above a quarter and at 1 must follow."""
    stream = make()
    for context in range(2):
        for rewards in stream.reward_table[stream.contexts == context].T:
            error = 5 * rewards.std() / len(rewards) ** 0.5
            levels = np.linspace(0.15, 1.05, 91)
            fitting = [m for m in levels if abs(m * cut(64 / m)[0] / 64 - rewards.mean()) < error + 0.006 / 64]
            assert fitting, "no mean in [0.2, 1] fits"
            assert 0.2 - 0.06 < np.mean(fitting) < 1.0 + 0.06
            for top in (0.25, 1.0):
                rates = [cut(64 * top / m)[1] for m in fitting]
                seen = float((rewards >= top).mean())
                slack = 5 * (max(rates) / len(rewards)) ** 0.5 + 1e-5
                assert min(rates) - slack < seen < max(rates) + slack


def test_the_cut_lowers_means_as_little_as_documented() -> None:
    assert cut_lognormal(1.5, 64.0)[0] > 0.99
    assert cut_pareto(2.0, 64.0)[0] > 0.99
    assert cut_lognormal(1.0, 16.0 / 2.0)[0] > 0.98
    assert stats.pareto(2.0, scale=0.5).mean() == 1.0
    for make in (streams.lognormal_rewards, streams.pareto_rewards):
        assert 0 < (make(100_000, 2, 3, seed=0).reward_table == 1.0).sum() < 100
    assert np.exp(1.5**2) == pytest.approx(9.5, abs=0.05)


def test_purchases_are_rare_and_of_different_sizes() -> None:
    """Rates within their range, mean sizes of arms between 1/2 and 2 of 16, and within an arm sigma 1."""
    stream = streams.purchases(400_000, 1, 12, seed=0)
    bought = stream.reward_table > 0.0
    rates = bought.mean(axis=0)
    error = 5 * (0.05 / 400_000) ** 0.5
    assert ((rates > 0.01 - error) & (rates < 0.05 + error)).all()
    assert rates.max() - rates.min() > 0.02
    sizes = []
    for arm in range(12):
        logs = np.log(stream.reward_table[bought[:, arm], arm] * 16.0)
        sizes.append(np.exp(np.median(logs) + 0.5))
        quartiles = np.quantile(logs, [0.25, 0.75])
        assert quartiles[1] - quartiles[0] == pytest.approx(2 * 0.6745, rel=0.1)
    assert min(sizes) > 0.5 * 0.9
    assert max(sizes) < 2.0 * 1.1
    assert max(sizes) > 2 * min(sizes)


def test_streams_of_heavy_tails_refuse() -> None:
    for call, words in (
        (lambda: streams.lognormal_rewards(0, 1, 1), "n_rounds must be an integer of at least 1; got 0"),
        (lambda: streams.lognormal_rewards(1, 1, 1, sigma=0.0), r"sigma must be a number in \(0, 3\]; got 0.0"),
        (lambda: streams.pareto_rewards(1, 1, 1, shape=1.0), r"shape must be a number in \[1.1, 100\]; got 1.0"),
        (lambda: streams.purchases(1, 1, 1, rates=(0.5, 0.2)), r"rates\[1\] must be a number in \[0.5, 1\]"),
        (lambda: streams.purchases(5, 1, 1, seed=-1), "seed must be an integer of at least 0; got -1"),
    ):
        with pytest.raises(ValueError, match=words):
            call()


def spread(parts: list[Any]) -> float:
    """Squared distances of the columns' means, over what chance alone gives two samples of one distribution."""
    one, two = parts
    chance = one.var(axis=0) / len(one) + two.var(axis=0) / len(two)
    return float(((one.mean(axis=0) - two.mean(axis=0)) ** 2).sum() / chance.sum())


def test_means_change_when_they_should_and_only_then() -> None:
    """Of 200 arms: near 1 where nothing changed, far where it did."""
    table = streams.stationary(8000, 1, 200, seed=0).reward_table
    assert spread([table[:4000], table[4000:]]) < 1.5
    table = streams.phases(8000, 1, 200, n_phases=4, seed=0).reward_table
    assert spread([table[2000:3000], table[3000:4000]]) < 1.5
    assert spread([table[1000:2000], table[2000:3000]]) > 50
    table = streams.day_and_night(8000, 1, 200, period=2000, seed=0).reward_table
    assert spread([table[:1000], table[2000:3000]]) < 1.5
    assert spread([table[1000:2000], table[2000:3000]]) > 50


def test_means_and_frequencies_of_contexts_are_as_documented() -> None:
    """Bands of five standard errors."""
    table = streams.stationary(4000, 1, 500, seed=0).reward_table
    assert abs(table.mean() - 0.6) < 5 * (0.8 / np.sqrt(12)) / np.sqrt(500)
    visits = np.bincount(streams.zipf_contexts(100_000, 30, 3, seed=0).contexts, minlength=30)
    shares = 1 / np.arange(1, 31) / (1 / np.arange(1, 31)).sum()
    assert (np.abs(visits - 100_000 * shares) < 5 * np.sqrt(100_000 * shares)).all()
    clicks = streams.sparse_clicks(400_000, 1, 20, seed=0).reward_table.mean(axis=0)
    error = 5 * np.sqrt(0.06 / 400_000)
    assert (clicks > 0.03 + error).sum() == 1
    assert abs(clicks.max() - 0.06) < error
    assert np.sort(clicks)[:-1].max() < 0.03 + error
    assert clicks.min() > 0.02 - error
    flat = streams.sparse_clicks(400_000, 1, 20, rates=(0.0, 0.05), best=None, seed=0).reward_table.mean(axis=0)
    assert flat.max() < 0.05 + error
    assert flat.min() < 0.02


def test_streams_of_means_refuse() -> None:
    for call, words in (
        (lambda: streams.stationary(0, 1, 1), "n_rounds must be an integer of at least 1; got 0"),
        (lambda: streams.stationary(1, 1, 1, reward_floor=1.0), r"reward_floor must be a number in \[0, 1\)"),
        (lambda: streams.phases(5, 1, 1, n_phases=6), r"n_phases must be an integer in \[1, 5\]; got 6"),
        (lambda: streams.day_and_night(5, 1, 1, period=1), "period must be an integer of at least 2"),
        (lambda: streams.sparse_clicks(5, 1, 1, rates=(0.5, 0.2)), r"rates\[1\] must be a number in \[0.5, 1\]"),
        (lambda: streams.sparse_clicks(5, 1, 1, best=2.0), r"best must be a number in \[0, 1\]; got 2.0"),
        (lambda: streams.zipf_contexts(5, 1, 1, seed=-1), "seed must be an integer of at least 0; got -1"),
    ):
        with pytest.raises(ValueError, match=words):
            call()


def test_impossibility_refuses_a_floor_above_one_third() -> None:
    with pytest.raises(ValueError, match=r"reward_floor must be a number in \[0, 0.333333\]; got 0.5"):
        streams.impossibility(10, reward_floor=0.5)


def test_from_arrays_is_the_dense_form() -> None:
    rewards = np.array([[1.0, 0.2], [0.3, 0.4], [0.5, 0.6]])
    stream = Stream.from_arrays([0, 2, 0], rewards, context_labels=["a", "b", "c"], arm_labels=["x", "y"])
    assert (stream.n_rounds, stream.n_contexts, stream.n_arms) == (3, 3, 2)
    assert stream.rewards(1).tolist() == [0.3, 0.4]
    assert stream.context_labels == ("a", "b", "c")
    head = stream.head(1)
    assert (head.n_rounds, head.n_contexts) == (1, 3)
    with pytest.raises(ValueError, match="read-only"):
        stream.rewards(0)[0] = 9.0


def test_the_indexed_form_shares_memory() -> None:
    contexts = np.zeros(1000, dtype=np.int32)
    stream = Stream(contexts, contexts, np.ones((1, 3)))
    assert np.shares_memory(stream.contexts, contexts)
    assert contexts.flags.writeable, "the caller's own array must stay writable"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (([0, -1], [0, 0], [[1.0]]), r"contexts\[1\] must be integers in"),
        (([0, 0], [0, 5], [[1.0]]), r"items\[1\] must be integers in \[0, 0\]; got 5"),
        (([0.5, 1], [0, 0], [[1.0]]), "contexts must be integers in .* got 'dtype float64'"),
        (([0, 0], [0], [[1.0]]), "items must be 2 entries; got 1"),
        (([], [], [[1.0]]), "contexts must be a 1-D array"),
        (([0], [0], [[np.nan, 1.0]]), r"reward_table\[0, 0\] must be a finite number; got nan"),
        (([0], [0], [[np.inf, -np.inf]]), r"reward_table\[0, 0\] must be a finite number; got inf"),
        (([0], [0], [1.0]), "reward_table must be a table with one column per arm; got 'shape .1,.'. Make it 2-D"),
        (
            ([0], [0], np.ones((0, 3))),
            "reward_table must be a table with at least one row and one arm; got 'shape .0, 3",
        ),
        (
            ([0], [0], [[1.0, 2.0j]]),
            "reward_table must be a table of numbers; got 'complex numbers'. Pass real numbers",
        ),
        (
            ([0], [0], np.ma.masked_array([[1.0, 2.0]], [[False, True]])),
            "reward_table must be a table of numbers; got 'masked entries'. Pass real numbers",
        ),
        ((np.ma.masked_array([0, 1], [False, True]), [0, 0], [[1.0]]), "contexts must be .*; got 'masked entries'"),
        (([0], [0], [["a"]]), "reward_table must be a table of numbers"),
        (([0], [0], [[1.0, 2.0]], None, ("x",)), "arm_labels must be at least 2 different names"),
        (([0], [0], [[1.0]], None, ("x", "y")), "arm_labels must be 1 names; got 2"),
        (([3], [0], [[1.0]], ("a", "b")), "context_labels must be at least 4 different names"),
        (([0], [0], [[1.0]], ("a", "a")), "context_labels must be different names"),
    ],
)
def test_refusals(arguments: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Stream(*arguments)


def test_announced_contexts_must_hold_those_seen() -> None:
    with pytest.raises(ValueError, match="n_contexts must be an integer of at least 4; got 2"):
        Stream([3], [0], [[1.0]], n_contexts=2)  # type: ignore[arg-type]


def test_from_arrays_loses_nothing_and_names_its_argument() -> None:
    masked = np.ma.masked_array([[1.0, 0.5]], [[False, True]])
    for bad, words in ((masked, "masked entries"), (np.array([[1j]]), "complex numbers"), ([[1.0], [1.0, 0.5]], "")):
        with pytest.raises(ValueError, match=rf"rewards must be a table of numbers; got .*{words}"):
            Stream.from_arrays([0], bad)
    with pytest.raises(ValueError, match=r"reward_table must be a table with one column per arm; got 'shape \(1,\)'"):
        Stream.from_arrays([0], 1.0)
    assert Stream.from_arrays([0], masked.filled(0.0)).rewards(0).tolist() == [1.0, 0.0]


@pytest.mark.parametrize("largest", [1.7e308, -1.7e308])
def test_the_largest_floats_are_finite(largest: float) -> None:
    """Their sum is not."""
    assert Stream.from_arrays([0], [[largest, largest]]).rewards(0).tolist() == [largest, largest]


def test_rounds_may_be_counted_from_one() -> None:
    assert validate.indices("rounds", [1, 500], 501, low=1).tolist() == [1, 500]
    for bad in (0, 501):
        words = rf"rounds\[1\] must be integers in \[1, 500\]; got {bad}. Count from 1."
        with pytest.raises(ValueError, match=words):
            validate.indices("rounds", [1, bad], 501, low=1)


def test_invalid_streams_are_refused() -> None:
    with pytest.raises(ValueError, match=r"stream must be a Stream; got \[\[1.0\]\]. Make one with Stream.from_arrays"):
        simulate(Uniform(1, 1), [[1.0]])  # type: ignore[arg-type]


DIGEST = """
import hashlib
from alphafair import streams
from alphafair.streams.described import KINDS

digest = hashlib.sha256()
for kind in KINDS:
    for features_of in ("context", "arms") if kind in ("linear", "changing") else ("context",):
        stream = streams.described(kind, 2000, 7, 9, features_of=features_of, seed=3)
        digest.update(stream.reward_table.tobytes() + stream.features.tobytes())
print(digest.hexdigest())
"""


def test_streams_do_not_depend_on_the_matrix_products_of_a_processor() -> None:
    digests = set()
    for core in ("Haswell", "Prescott"):
        environment = {**os.environ, "OPENBLAS_CORETYPE": core}
        ran = subprocess.run(
            [sys.executable, "-c", DIGEST], env=environment, capture_output=True, text=True, check=True
        )
        digests.add(ran.stdout)
    assert len(digests) == 1
