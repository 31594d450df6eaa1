"""Every policy plays to the last bit what it played in version 0.1: see tests/make_runs.py."""

from __future__ import annotations

import json

import pytest

from tests import ROOT
from tests.make_runs import digests, settings_of

RUNS: dict[str, dict[str, dict[str, str]]] = json.loads((ROOT / "tests" / "fixtures" / "runs.json").read_text())


@pytest.mark.compiled
@pytest.mark.parametrize("name", RUNS)
def test_a_policy_plays_as_before(name: str) -> None:
    assert set(RUNS[name]) <= set(settings_of(name))  # later variants have no digest
    assert {variant: digests(name, variant) for variant in RUNS[name]} == RUNS[name]
