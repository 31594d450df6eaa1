"""What adaptive policies learn from decisions of others: golden values, what it leaves alone, and what it costs."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from alphafair import AlphaFairAdaptive
from tests import ROOT

GOLDEN: dict[str, Any] = json.loads((ROOT / "tests" / "fixtures" / "golden-adoption.json").read_text())["learning"]


class Fixed:
    """A source of one uniform number."""

    def __init__(self, uniform: float) -> None:
        self.uniform = uniform

    def random(self) -> float:
        return self.uniform


@pytest.mark.parametrize("case", GOLDEN["cases"], ids=lambda case: f"{case['alpha']}-{case['groups']}")
def test_golden_values(case: Any) -> None:
    policy = AlphaFairAdaptive(GOLDEN["contexts"], GOLDEN["arms"], alpha=case["alpha"], groups=case["groups"])
    expected = iter(case["own_rounds"])
    names, of_others = policy._learned.layout.scratch, policy._learned.layout.others
    assert of_others is not None
    for kind, context, *rest in GOLDEN["rounds"]:
        if kind == "other":
            assert policy.observe(context, *rest)
            continue
        uniform, rewards = rest
        now = next(expected)
        decision = policy.choose(context, rng=Fixed(uniform))
        close(decision.probabilities, now["probabilities"])
        assert decision.arm == now["arm"]
        close(policy._memory.scratch[names.predicted], now["m"])
        if policy.trust is not None:
            close(policy.trust, now["w"])
            scratch = policy._memory.others.scratch
            close(scratch[of_others.scratch.alone], now["own"])
            close(scratch[of_others.scratch.predicted], now["joint"])
        policy.update(decision, rewards[decision.arm])
        if policy.trust is not None:
            close(policy._memory.others.scalars[of_others.scalars.tau], now["trust_after"])
    close(policy.accounts, case["accounts"])


def close(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found, expected, rtol=0.0, atol=1e-12)
