"""What published notions of fairness ask for: each measure against its formula round by round, and by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from alphafair import InvalidArgument, metrics, streams
from alphafair.lab.fairness import Promises, fairness_of, half_of_uniform
from alphafair.values import Log
from tests import naive_fairness as naive


@pytest.fixture(params=range(4))
def run(request: pytest.FixtureRequest) -> tuple[list[int], Any, Any, Any]:
    """Arms, probabilities, rewards and means of a random run."""
    rng = np.random.default_rng(request.param)
    t, n = 60, 2 + request.param
    p = rng.dirichlet(np.ones(n), t)
    means = rng.integers(0, 4, (t, n)) / 4  # with ties
    return rng.integers(0, n, t).tolist(), p, rng.random((t, n)), means


def test_envy_and_proportional_share(run: Any) -> None:
    _, p, r, _ = run
    values = metrics.exchange_values(p, r)
    np.testing.assert_allclose(values, naive.exchange_values(p, r), rtol=1e-12)
    assert metrics.envy(values) == pytest.approx(naive.envy(values.tolist()), rel=1e-12)
    assert metrics.proportional_share(values) == pytest.approx(naive.proportional_share(values.tolist()), rel=1e-12)


def test_pulls_and_rates(run: Any) -> None:
    arms, p, r, _ = run
    n = p.shape[1]
    for scale in (0.1, 0.5, 0.9):
        shares = (scale * p[0]).tolist()
        assert metrics.pull_lapse(arms, shares) == naive.pull_lapse(arms, shares)
    assert metrics.longest_wait(arms, n + 1) == len(arms)
    assert metrics.longest_wait(arms, n) == naive.longest_wait(arms, n)
    earned, rates = r.sum(axis=0) * 0.3, r.mean(axis=0) * p[0]
    found = metrics.rate_shortfall(earned, rates, len(arms))
    assert found == pytest.approx(naive.rate_shortfall(earned.tolist(), rates.tolist(), len(arms)), rel=1e-12)


def test_merit_and_favoring(run: Any) -> None:
    _, p, r, means = run
    assert metrics.merit_distance(p, r) == pytest.approx(naive.merit_distance(p, r), rel=1e-12)
    assert metrics.merit_distance(p, r[0]) == pytest.approx(naive.merit_distance(p, [r[0]] * len(p)), rel=1e-12)
    assert metrics.favoring(p, means) == pytest.approx(naive.favoring(p, means), rel=1e-12)


def test_by_hand() -> None:
    """Arm 1 waits three rounds; after four rounds half of them are two pulls, of which it had one."""
    assert metrics.longest_wait([0, 0, 0, 1, 0], 2) == 3
    assert metrics.pull_lapse([0, 0, 0, 1, 0], [0.0, 0.5]) == 1.0
    assert metrics.pull_lapse([0, 1, 0, 1], [0.5, 0.5]) == 0.0
    assert metrics.pull_lapse([0] * 100, [0.0, 0.29]) == 29.0  # though 0.29 times 100 rounds to less
    assert metrics.rate_shortfall([10.0, 0.0], [0.1, 0.0], 100) == 0.0  # nothing is owed to arm 1
    assert metrics.favoring([[0.7, 0.3]], [0.5, 0.5 + 1e-10]) == 0.0
    assert metrics.envy(np.diag([3.0, 4.0])) == 0.0


def test_the_whole_row() -> None:
    rng = np.random.default_rng(9)
    stream = streams.phases(400, 3, 4, n_phases=2, seed=1)
    p = rng.dirichlet(np.ones(4), 400)
    arms = [int(rng.choice(4, p=row)) for row in p]
    phases = np.arange(400) * 2 // 400
    expected = naive.fairness(stream, arms, p.tolist(), phases.tolist())
    found = fairness_of(stream, arms, p, phases=phases)._asdict()
    assert found == pytest.approx(expected, rel=1e-10)
    assert found["least_context"] is not None
    without = fairness_of(stream, arms)._asdict()
    unknown = {"least_probability", "merit", "favored", "outside_bounds", "nash_rounds"}
    assert {name for name, value in without.items() if value is None} == unknown
    drawn = naive.fairness(stream, arms, np.eye(4)[arms].tolist(), [0] * 400)
    for name in {*expected} - unknown - {"least_context"}:
        assert without[name] == pytest.approx(drawn[name], rel=1e-10), name


def test_a_log_has_the_measures_of_what_it_shows() -> None:
    stream = streams.stationary(300, 2, 3, seed=0)
    arms = np.random.default_rng(0).integers(0, 3, 300)
    rewards = stream.reward_table[stream.items][np.arange(300), arms]
    log = Log(stream.contexts, arms, rewards, np.full(300, 1 / 3), n_arms=3)
    promises = half_of_uniform(stream)
    found, whole = fairness_of(log, promises=promises), fairness_of(stream, arms)
    known = [name for name, value in found._asdict().items() if value is not None]
    assert len(known) == 11
    assert [getattr(found, name) for name in known] == [getattr(whole, name) for name in known]
    with pytest.raises(InvalidArgument, match="promises must be given for a log"):
        fairness_of(log)
    assert fairness_of(log, promises=Promises(np.zeros(3), np.zeros(3), [])).rate_shortfall == 0.0


def test_contexts_with_few_rounds_do_not_count() -> None:
    stream = streams.stationary(90, 2, 3, seed=0)
    assert fairness_of(stream, [0] * 90).least_context is None


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: metrics.envy([[1.0, 2.0]]), "values must be a square"),
        (lambda: metrics.proportional_share([[-1.0]]), "values must be a square"),
        (lambda: metrics.exchange_values([[1.0]], [[1.0], [1.0]]), "rewards must be of shape"),
        (lambda: metrics.exchange_values([[2.0]], [[1.0]]), "probabilities must be numbers in"),
        (lambda: metrics.pull_lapse([0], 0.1), "shares must be numbers in"),
        (lambda: metrics.pull_lapse([0], [1.5]), "shares must be numbers in"),
        (lambda: metrics.pull_lapse([], [0.5]), "arms must be"),
        (lambda: metrics.pull_lapse([2], [0.5, 0.5]), "arms"),
        (lambda: metrics.rate_shortfall([1.0], [0.1, 0.1], 5), "rewards must be 2 finite numbers"),
        (lambda: metrics.rate_shortfall([1.0], [0.1], 0), "n_rounds must be"),
        (lambda: metrics.longest_wait([3], 2), "arms"),
        (lambda: metrics.merit_distance([[0.5, 0.5]], [1.0]), "merits must be one row of 2"),
        (lambda: metrics.merit_distance([[0.5, 0.5]], [0.0, 1.0]), "merits must be numbers in"),
        (lambda: metrics.favoring([[0.5, 0.5]], [[0.1, 0.2]] * 2), "means must be one row of 2"),
        (lambda: fairness_of(streams.stationary(9, 2, 3, seed=0), [0] * 8), "arms"),
    ],
)
def test_bad_input_is_refused(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        call()


def test_arms_that_come_and_go_are_refused() -> None:
    stream = streams.stationary(9, 1, 2, seed=0)
    late = type(stream)(stream.contexts, stream.items, stream.reward_table, arrivals=np.array([0, 3], np.int32))
    with pytest.raises(InvalidArgument, match="fixed set of arms"):
        fairness_of(late, [0] * 9)
