"""Steps of slates are repeated in one call as they are one by one, to the last bit."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from alphafair import AlphaFairAdaptive, AlphaFairBandit, Uniform
from alphafair.engine.state import steps as module
from alphafair.engine.state.steps import ACTIVATED, CLIENT, DEFERRED, DRAWN, EXPIRED, PAID_PARTLY, Steps, follow
from alphafair.engine.store.slates import Slate, SlateEvent
from alphafair.errors import InvalidArgument
from alphafair.values.available import packed

KINDS: dict[str, Any] = {"adaptive": AlphaFairAdaptive, "bandit": AlphaFairBandit, "uniform": Uniform}


@pytest.fixture(autouse=True)
def _interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALPHAFAIR_JIT", "off")


def story(kind: str, n: int = 60) -> tuple[Any, Steps]:
    """A policy that has seen slates of one to five arms: whole, partial, late and forgone rewards, masks, contexts."""
    policy, rng = KINDS[kind](1, 5), np.random.default_rng(3)
    rows: list[Any] = []
    events, masks = dict[int, SlateEvent](), dict[int, bytes]()

    def add(action: int, context: int, slate: Slate, rewards: Any = None, before: Any = None) -> None:
        events[len(rows)] = SlateEvent(slate, rewards, before)
        rows.append((len(rows), action, context, slate.arms[0], slate.propensities[0], 0.0, 0, -1, len(rows)))

    for t in range(n):
        context, asked = int(rng.integers(1 + t // 20)), int(rng.integers(1, 6))
        if context >= policy.n_contexts:
            policy.grow(n_contexts=context + 1)
        mask = rng.random(5) < 0.7
        mask[t % 5] = True
        among = mask if t % 3 == 0 else None
        decision = policy.choose(context, k=asked, rng=rng, available=among)
        slate, nothing = Slate(asked, decision.arms, decision.propensities), np.full(len(decision.arms), math.nan)
        if among is not None:
            masks[len(rows)] = packed(mask)
        add(DRAWN, context, slate)
        if t % 4 == 1:
            policy.expect(decision)
            add(ACTIVATED, context, slate)
        if t % 7 == 3:
            policy.forgo(decision)
            add(EXPIRED, context, slate, None, nothing)
            continue
        rewards = rng.random(len(decision.arms))
        cut = int(rng.integers(len(rewards)))
        if cut:
            part, rest = np.where(np.arange(len(rewards)) < cut, rewards, math.nan), rewards.copy()
            rest[:cut] = math.nan
            policy.update(decision, dict(zip(decision.arms[:cut], rewards[:cut].tolist(), strict=True)))
            add(PAID_PARTLY, context, slate, part, nothing)
            policy.update(decision, dict(zip(decision.arms[cut:], rewards[cut:].tolist(), strict=True)))
            add(CLIENT, context, slate, rest, part)
        else:
            policy.update(decision, rewards.tolist())
            add(CLIENT, context, slate, rewards, nothing)
    made = Steps.of(rows, {}, slates=events)
    made.masks = masks
    return policy, made


def same(rewards: Any) -> Any:
    return rewards


@pytest.mark.parametrize("kind", KINDS)
def test_one_call_repeats_what_was_played(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    live, steps = story(kind)
    together, alone = KINDS[kind](1, 5), KINDS[kind](1, 5)
    drawn = follow(together, steps, same)
    assert (drawn[steps.kind == DRAWN] == steps.propensity[steps.kind == DRAWN]).all()
    monkeypatch.setattr(module, "_fold_slates", lambda *given: False)
    assert (follow(alone, steps, same) == drawn).all()
    states = [each.snapshot().arrays for each in (live, together, alone)]
    assert all(np.array_equal(state[name], states[0][name]) for state in states[1:] for name in states[0])


def test_it_is_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a retired arm, which has its rewards booked by hand."""
    _, steps = story("adaptive")
    one_by_one: list[int] = []
    repeat = module._follow_slate
    monkeypatch.setattr(module, "_follow_slate", lambda *given: one_by_one.append(given[2]) or repeat(*given))  # type: ignore[func-returns-value]
    follow(AlphaFairAdaptive(1, 5), steps, same)
    assert not one_by_one
    policy = AlphaFairAdaptive(3, 5)
    policy.retire(4)
    learning = steps[steps.kind == CLIENT]
    follow(policy, learning, same)
    assert len(one_by_one) == len(learning)


def test_other_propensities_are_noticed() -> None:
    """Of any arm of a slate: the draw is marked with -1."""
    _, steps = story("adaptive")
    position, event = next((at, each) for at, each in steps.slates.items() if len(each.slate.arms) == 3)
    asked, arms, propensities = event.slate
    changed = Slate(asked, arms, (*propensities[:2], propensities[2] * (1 - 1e-12)))
    steps.slates = {**steps.slates, position: event._replace(slate=changed)}
    drawn = follow(AlphaFairAdaptive(1, 5), steps, same)
    wrong = steps.position[(steps.kind == DRAWN) & (drawn == -1.0)].tolist()
    assert wrong == [position]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"propensities": (1e-9, 1e-9)}, "the smallest propensity of this policy in context 0 with 2 arms; got 1e-09"),
        ({"propensities": (0.0, 0.5)}, r"decision.propensities\[0\] must be"),
        ({"propensities": (math.nan, 0.5)}, r"decision.propensities\[0\] must be"),
        ({"arms": (1, 1)}, "decision.arms must be different arms"),
        ({"rewards": (1.5, 0.5)}, "reward must be a number in"),
    ],
)
def test_impossible_steps_raise_as_one_by_one(changes: dict[str, Any], words: str) -> None:
    """What was repeated before stays, as does what was drawn."""
    policy, drawn = AlphaFairAdaptive(1, 5), np.zeros(2)
    p = policy.choose(0, k=2, rng=np.random.default_rng(1))
    good = SlateEvent(Slate(2, p.arms, p.propensities))
    made = {"arms": p.arms, "propensities": p.propensities, "rewards": (0.5, 0.5)} | changes
    bad = SlateEvent(Slate(2, made["arms"], made["propensities"]), np.array(made["rewards"]), np.full(2, math.nan))
    rows = [
        (0, DRAWN, 0, p.arms[0], p.propensities[0], 0.0, 0, -1, 0),
        (1, CLIENT, 0, bad.slate.arms[0], bad.slate.propensities[0], 0.0, 0, -1, 0),
    ]
    before = policy.snapshot().to_bytes()
    with pytest.raises(InvalidArgument, match=words):
        follow(policy, Steps.of(rows, {}, slates={0: good, 1: bad}), same, drawn)
    assert drawn.tolist() == [p.propensities[0], 0.0]
    assert policy.snapshot().to_bytes() == before


def test_deferred_slates_are_not_for_policies() -> None:
    _, steps = story("uniform", 4)
    steps.kind[:] = DEFERRED
    assert len(steps.for_policy) == 0
