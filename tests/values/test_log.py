"""`Log`: checked where it is made, its extras optional, and what `simulate` hands out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from alphafair import AlphaFair, AlphaFairBandit, InvalidArgument, Stream, evaluation, simulate, streams
from alphafair.values import Log

GOOD: dict[str, Any] = {
    "contexts": [0, 1, 0],
    "arms": [2, 0, 1],
    "rewards": [1.0, 0.0, 0.5],
    "propensities": [0.5, 1.0, 0.25],
}


def test_sizes_are_passed_or_inferred() -> None:
    seen = Log(**GOOD)
    assert (seen.n_rounds, seen.n_contexts, seen.n_arms) == (3, 2, 3)
    assert seen.timestamps is seen.positions is seen.users is seen.context_labels is None
    told = Log(**GOOD, n_contexts=5, n_arms=4)
    assert (told.n_contexts, told.n_arms) == (5, 4)
    named = Log(**GOOD, context_labels=("new", "old"), arm_labels=("a", "b", "c", "d"))
    assert (named.n_contexts, named.n_arms) == (2, 4)
    for name in GOOD:
        assert not getattr(seen, name).flags.writeable


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"arms": [2, -7, 1]}, r"arms\[1\] must be integers in .*; got -7"),
        ({"arms": [2, 0, 1], "n_arms": 2}, r"arms\[0\] must be integers in \[0, 1\]; got 2"),
        ({"contexts": [0, 5, 0], "n_contexts": 1}, r"contexts\[1\] must be integers in \[0, 0\]; got 5"),
        ({"arms": [0.0, 1.0, 2.0]}, "arms must be integers .*; got 'dtype float64'"),
        ({"arms": [0, 1]}, "arms must be 3 entries; got 2"),
        ({"propensities": [0.5, 0.0, 0.5]}, r"propensities\[1\] must be a number in \(0, 1\]; got 0.0"),
        ({"propensities": [0.5, 1.5, 0.5]}, r"propensities\[1\] must be a number in \(0, 1\]; got 1.5"),
        ({"propensities": [0.5, np.inf, 0.5]}, r"propensities\[1\] must be a number in \(0, 1\]; got inf"),
        ({"propensities": [0.5]}, "propensities must be 3 entries"),
        ({"rewards": [1.0, np.inf, 0.0]}, r"rewards\[1\] must be a number in .*; got inf"),
        ({"rewards": ["a", "b", "c"]}, "rewards must be 3 numbers"),
        (
            {"rewards": np.ma.masked_array([1.0, 0.0, 0.5], [0, 1, 0])},
            "rewards must be 3 numbers; got 'masked entries'",
        ),
        ({"contexts": []}, "contexts must be a 1-D array of integers"),
        ({"arm_labels": ("a", "b")}, "arm_labels must be at least 3 different names"),
        ({"arm_labels": ("a", "b", "c", "d"), "n_arms": 3}, "arm_labels must be 3 names; got 4"),
        ({"timestamps": [1, 2, 3]}, r"timestamps must be 3 times \(datetime64\)"),
        ({"timestamps": np.array(["2020-01-01", "NaT", "2020-01-02"], dtype="M8[s]")}, "timestamps must be 3 times"),
        ({"users": [0, 1]}, "users must be 3 integers"),
        ({"positions": [0, 1, 1]}, r"positions\[0\] must be integers"),
        ({"n_arms": 2.5}, "n_arms must be an integer"),
        ({"n_arms": -1}, "n_arms must be an integer"),
        ({"available": [[True] * 3] * 2}, r"available must be for 3 rounds and 3 arms; got \[2, 3\]"),
        ({"available": [[True] * 4] * 3, "n_arms": 3}, r"available must be for 3 rounds and 3 arms; got \[3, 4\]"),
        ({"available": [[True] * 2] * 3}, r"arms\[0\] must be integers in \[0, 1\]; got 2"),
        (
            {"available": [[True] * 3] * 2 + [[True, False, True]]},
            r"available\[2\] must be true for the arm .*, 1;",
        ),
        (
            {"available": [[True] * 3] * 2 + [[False] * 3]},
            r"available\[2\] must be true for at least one arm",
        ),
        ({"available": [[1, 1, 1]] * 3}, r"available must be booleans, .*; got 'int64 of shape \(3, 3\)'"),
        ({"available": [[True], [True, True]]}, "available must be booleans"),
        ({"available": True}, r"available must be booleans, .*; got 'bool of shape \(\)'"),
        ({"available": ([[True] * 3], [0, 1, 0])}, r"available: of_rounds\[1\] must be integers in \[-1, 0\]"),
        ({"available": ([[True] * 3], [0.0, 0.0, 0.0])}, "available: of_rounds must be integers"),
        ({"available": ([[False] * 3], [0, 0, 0])}, r"available: sets\[0\] must be true for at least one arm"),
        ({"arm_labels": "abc"}, "arm_labels must be at least 3 different names; got 'abc'. Pass a list"),
    ],
)
def test_invalid_logs_are_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        Log(**{**GOOD, **change})


@pytest.mark.parametrize("delay", [None, 25])
@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("kind", [AlphaFair, AlphaFairBandit])
def test_a_run_keeps_its_decisions(kind: Any, compiled: bool, delay: int | None) -> None:
    stream = streams.ratings(700, 3, 4, seed=1)
    trace = simulate(kind(3, 4), stream, seed=2, log=True, compiled=compiled, delay=delay)
    log = trace.log
    assert log is not None
    assert np.array_equal(log.contexts, stream.contexts)
    assert np.array_equal(np.bincount(log.arms, minlength=4), trace.pulls)
    assert np.array_equal(log.rewards, [stream.rewards(t)[log.arms[t]] for t in range(700)])
    assert simulate(kind(3, 4), stream, seed=2).log is None
    if kind is AlphaFairBandit:
        earned = 1.0 + np.bincount(log.arms, log.rewards, minlength=4)
        np.testing.assert_allclose(trace.final, earned, rtol=1e-12)


@pytest.mark.parametrize("compiled", [True, False])
def test_a_logged_run_has_available_arms(compiled: bool) -> None:
    generator = np.random.default_rng(3)
    rewards, contexts = generator.random((600, 4)), generator.integers(0, 2, 600)
    stream = Stream.from_arrays(contexts, rewards, arrivals=[0, 0, 0, 200], departures=[600, 400, 100, 600])
    log = simulate(AlphaFairBandit(2, 3), stream, log=True, compiled=compiled).log
    assert log is not None
    assert log.available is not None
    assert np.array_equal(log.available.table(), [stream.present(t) for t in range(600)])
    assert simulate(AlphaFairBandit(2, 4), Stream.from_arrays(contexts, rewards), log=True).log.available is None  # type: ignore[union-attr]


def test_a_log_passed_as_a_stream_gets_a_hint() -> None:
    rows = {"context": ["a", "b"], "item": [1, 2], "click": [0, 1]}
    with pytest.raises(
        InvalidArgument, match=r"rewards per arm; got .*It looks like a log.*read it with alphafair\.Log"
    ):
        streams.table(rows)
    assert streams.table(rows, arm_columns=["item", "click"]).n_arms == 2


def test_masked_rewards_are_not_unmasked() -> None:
    masked = np.ma.masked_array([0.5, 0.2], mask=[False, True])
    policy = AlphaFair(1, 2)
    before = policy.snapshot().to_bytes()
    with pytest.raises(InvalidArgument, match=r"reward must be 2 numbers in .*; got 'masked entries'"):
        policy.update(policy.choose(0, rng=np.random.default_rng(0)), masked)
    assert policy.snapshot().to_bytes() == before
    with pytest.raises(InvalidArgument, match="masked entries"):
        Stream.from_arrays([0], masked[None])
    for unknown in (np.ma.masked, np.ma.masked_array(0.5, mask=True)):
        with pytest.raises(InvalidArgument, match=r"reward must be a number .* Skip rounds whose reward is unknown"):
            AlphaFairBandit(1, 2).update((0, 0, 0.5, None), unknown)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match=r"available must be .*; got 'masked entries'"):
        policy.choose(0, available=masked > 0.1)


def test_a_log_does_not_share_writable_memory() -> None:
    rewards = np.array([1.0, 0.0, 0.5])
    log = Log(**{**GOOD, "rewards": rewards, "users": [5, 2**40, 5]})
    rewards[0] = np.nan
    assert log.rewards.tolist() == [1.0, 0.0, 0.5]
    assert log.users is not None
    assert log.users.tolist() == [5, 2**40, 5]


def test_available_arms_take_one_number_per_round() -> None:
    """Each set is kept once: a hundred arms and a few sets must not cost a hundred booleans per round."""
    generator = np.random.default_rng(0)
    sets = generator.random((5, 100)) < 0.7
    sets[:, 0], sets[4] = True, True
    of_rounds = generator.integers(0, 5, 10_000)
    dense = Log([0] * 10_000, [0] * 10_000, [1.0] * 10_000, [0.5] * 10_000, available=sets[of_rounds]).available
    pair = Log([0] * 10_000, [0] * 10_000, [1.0] * 10_000, [0.5] * 10_000, available=(sets, of_rounds)).available
    assert dense is not None
    assert pair is not None
    assert (dense.sets.shape, dense.of_rounds.dtype) == ((4, 100), np.int32)
    for found in (dense, pair):
        assert np.array_equal(found.table(), sets[of_rounds])
        assert np.array_equal(found.of_rounds == -1, of_rounds == 4)  # every arm
        assert np.array_equal(found.take(slice(3, 9)).table(), sets[of_rounds[3:9]])
        assert not found.sets.flags.writeable
        assert not found.of_rounds.flags.writeable


def test_available_arms_do_not_share_writable_memory() -> None:
    sets, of_rounds = np.array([[True, True, False], [True, True, True]]), np.array([1, 0, 0])
    log = Log(**{**GOOD, "available": (sets, of_rounds)})
    sets[:] = False
    of_rounds[:] = 0
    assert log.available is not None
    assert log.available.table().tolist() == [[True] * 3, [True, True, False], [True, True, False]]
    assert log.n_arms == 3
    wider = Log(**{**GOOD, "available": [[True] * 5] * 3})
    assert wider.n_arms == 5


def test_propensities_may_be_unknown() -> None:
    rows = {"context": ["v", "w", "v"], "arm": ["a", "b", "b"], "reward": [1.0, 0.0, 0.5]}
    log = Log.from_table(rows, propensity=None)
    assert np.isnan(log.propensities).all()
    mixed = Log([0, 1, 0], [0, 1, 1], [1.0, 0.0, 0.5], [0.5, np.nan, 1.0])
    assert mixed.propensities.tolist()[::2] == [0.5, 1.0]
    for wrong in (0.0, 1.5, -np.inf):
        with pytest.raises(InvalidArgument, match=r"propensities\[2\] must be a number in \(0, 1\]"):
            Log([0, 1, 0], [0, 1, 1], [1.0, 0.0, 0.5], [0.5, np.nan, wrong])
    policy = AlphaFairBandit(2, 2)
    for use in (
        lambda: evaluation.evaluate(mixed, np.full((2, 2), 0.5)),
        lambda: evaluation.frontier(mixed),
        lambda: evaluation.warm_start(mixed, AlphaFairBandit),
        lambda: evaluation.replay(mixed, policy),
    ):
        with pytest.raises(InvalidArgument, match=r"known for every decision; got '1 of 3 unknown'\. Without"):
            use()
