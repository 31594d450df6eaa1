"""A refusal is an error whose parts can be asked for."""

import pickle
from typing import Any

import numpy as np
import pytest

from alphafair import AlphaFair, AlphaFairBandit, Groups, InvalidArgument, offline_optimum


def test_an_invalid_argument_error_has_its_parts_as_attributes() -> None:
    with pytest.raises(InvalidArgument) as caught:
        AlphaFair(2, 3, alpha=-0.5)
    refusal = caught.value
    assert isinstance(refusal, ValueError)
    assert (refusal.argument, refusal.allowed, refusal.value) == ("alpha", "a number of at least 0, or inf", -0.5)
    assert refusal.repair.startswith("Pass 0 for the sum of rewards")
    assert str(refusal) == f"alpha must be a number of at least 0, or inf; got -0.5. {refusal.repair}"


def test_an_invalid_argument_error_can_be_pickled() -> None:
    refusal = InvalidArgument("alpha", "a number of at least 0, or inf", -0.5, "Take 0.9.")
    twin = pickle.loads(pickle.dumps(refusal))
    assert (twin.argument, str(twin)) == ("alpha", str(refusal))


@pytest.mark.parametrize("said", [{"alpha": "0.9"}, {"alpha": b"0"}])
def test_strings_are_not_accepted_as_numbers(said: dict[str, Any]) -> None:
    """Python's own `float` would read it."""
    with pytest.raises(InvalidArgument, match=f"{next(iter(said))} must be a number"):
        AlphaFair(2, 3, **said)
    with pytest.raises(InvalidArgument, match="pull_floor must be a number"):
        AlphaFair(2, 3, groups=Groups(pull_floor="0.1"))  # type: ignore[arg-type]


@pytest.mark.parametrize("texts", [["1", "0.5", "0"], [1.0, "0.5", 0.0], np.array(["1", b"2", 0], dtype=object)])
def test_arrays_of_strings_are_not_accepted_as_numbers(texts: Any) -> None:
    policy = AlphaFair(1, 3)
    with pytest.raises(InvalidArgument, match="reward must be"):
        policy.update(policy.choose(0), texts)
    with pytest.raises(InvalidArgument, match="context_reward_totals must be"):
        offline_optimum([texts], 0.5)
    with pytest.raises(InvalidArgument, match="entitlements must be"):
        AlphaFair(1, 3, groups=Groups(entitlements=texts))
    assert (policy.cumulative_rewards == 0.0).all()
    assert (policy.accounts == 1.0).all()
    with pytest.raises(InvalidArgument, match=r"got '0\.5'\. Pass one float per round"):
        AlphaFairBandit(1, 2).update((0, 0, 0.5, None), "0.5")  # type: ignore[arg-type]
