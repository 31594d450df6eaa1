"""`simulate`: records, delays, progress, refusals; bit-for-bit equality is a conformance check."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from alphafair import AlphaFair, AlphaFairBandit, Hedge, ScaleFree, Stream, Trace, simulate, streams
from alphafair.values import Decision, Feedback

STREAM = streams.ratings(1000, 3, 4, seed=0)


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize(("every", "rounds"), [(None, [1000]), (300, [300, 600, 900, 1000]), (500, [500, 1000])])
def test_records(compiled: bool, every: int | None, rounds: list[int]) -> None:
    trace = simulate(AlphaFair(3, 4), STREAM, record_every=every, compiled=compiled)
    assert trace.rounds.tolist() == rounds
    for k, n_rounds in enumerate(rounds):
        head = simulate(AlphaFair(3, 4), STREAM.head(n_rounds))
        assert np.array_equal(trace.accounts[k], head.final)
    assert np.array_equal(trace.final, trace.accounts[-1])
    assert trace.pulls.sum() == 1000


@pytest.mark.parametrize("block", [1, 7, 1000])
def test_blocks_do_not_show(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = simulate(AlphaFairBandit(3, 4), STREAM, record_every=13)
    monkeypatch.setattr("alphafair.policy.stepper.MOST_ROUNDS", block)
    parts = simulate(AlphaFairBandit(3, 4), STREAM, record_every=13)
    assert np.array_equal(whole.accounts, parts.accounts)
    assert np.array_equal(whole.pulls, parts.pulls)


def test_booking_is_expected_or_realized() -> None:
    stream = Stream.from_arrays([0], [[1.0, 0.5]])
    full = simulate(Hedge(1, 2), stream)
    assert full.feedback is Feedback.FULL
    assert full.final.tolist() == [1.5, 1.25]
    bandit = simulate(ScaleFree(1, 2), stream, seed=1)
    assert sorted(bandit.final.tolist()) in ([1.0, 1.5], [1.0, 2.0])
    assert bandit.final.argmax() == bandit.pulls.argmax()


class Recorder(AlphaFairBandit):
    """Keeps the order in which rewards arrive."""

    name = "recorder"

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.events: list[tuple[str, int]] = []

    def choose(self, context: int, **options: Any) -> Decision:
        self.events.append(("choose", context))
        return super().choose(context, **options)

    def update(self, decision: Decision, reward: Any) -> None:
        self.events.append(("update", decision.context))
        super().update(decision, reward)


def test_delays_keep_order_and_lose_nothing() -> None:
    stream = Stream.from_arrays([0, 1, 2, 3], np.ones((4, 2)))
    policy = Recorder(4, 2)
    simulate(policy, stream, delay=[2, 0, 0, 9])
    assert policy.events == [
        ("choose", 0),
        ("choose", 1),
        ("update", 1),
        ("update", 0),
        ("choose", 2),
        ("update", 2),
        ("choose", 3),
        ("update", 3),
    ]
    assert policy.accounts.sum() == pytest.approx(2.0 + 4.0)


def test_delays_are_booked_when_earned() -> None:
    late = simulate(AlphaFair(3, 4), STREAM, delay=5000, record_every=100)
    uniform = STREAM.reward_table[STREAM.items].mean(axis=1).cumsum()
    np.testing.assert_allclose(late.accounts.sum(axis=1), 4.0 + uniform[99::100])


def test_progress_goes_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    simulate(AlphaFair(3, 4), STREAM, progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert "alpha-fair" in err
    assert "1000/1000" in err


def test_progress_can_be_a_callback() -> None:
    told: list[int] = []
    simulate(AlphaFair(3, 4), STREAM, progress=told.append)
    simulate(AlphaFair(3, 4), STREAM, progress=None)  # type: ignore[arg-type]
    assert sum(told) == 1000


def test_the_policy_keeps_what_it_learned() -> None:
    policy = AlphaFair(3, 4)
    simulate(policy, STREAM.head(400))
    rest = Stream(STREAM.contexts[400:], STREAM.items[400:], STREAM.reward_table, n_contexts=3)
    simulate(policy, rest)
    whole = AlphaFair(3, 4)
    simulate(whole, STREAM)
    np.testing.assert_array_equal(policy.accounts, whole.accounts)


@pytest.mark.parametrize(
    ("policy", "options", "words"),
    [
        (
            AlphaFair(3, 5),
            {},
            "stream must be a stream with 5 arms in its first round; got 4. Construct the policy with",
        ),
        (AlphaFair(2, 4), {}, r"stream must be a stream with at most 2 contexts; got 3. Call policy.grow\(3\) first."),
        (AlphaFair(3, 4), {"record_every": 0}, "record_every must be an integer of at least 1; got 0"),
        (AlphaFair(3, 4), {"delay": -1}, r"delay must be an integer in \[0, 2147483647\]; got -1"),
        (AlphaFair(3, 4), {"delay": 2**31}, r"delay must be an integer in \[0, 2147483647\]; got 2147483648"),
        (AlphaFair(3, 4), {"delay": [1, 2]}, "delay must be 1000 entries; got 2"),
        (AlphaFair(3, 4), {"seed": "a"}, "seed must be an integer of at least 0; got 'a'"),
    ],
)
def test_refusals_change_nothing(policy: AlphaFair, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        simulate(policy, STREAM, **options)
    assert (policy.accounts == 1.0).all()


def test_rewards_out_of_range_are_refused_before_the_first_round() -> None:
    stream = Stream.from_arrays([0, 0], [[0.5, 0.5], [0.5, 5.0]])
    policy = AlphaFair(1, 2)
    with pytest.raises(ValueError, match=r"stream.reward_table must be in \[0, 1\] for alpha-fair; got \[0.5, 5.0\]"):
        simulate(policy, stream)
    assert (policy.accounts == 1.0).all()
    assert isinstance(simulate(ScaleFree(1, 2), stream), Trace)
