"""The marketplace of examples/: its data are what its text says, and its pictures can be drawn."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from alphafair import Groups, metrics
from tests import ROOT

pytestmark = pytest.mark.compiled
FILE = ROOT / "examples" / "marketplace" / "marketplace.py"


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("marketplace", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_two_hundred_items_of_twelve_sellers(example: ModuleType) -> None:
    stream, sellers = example.marketplace(1000)
    sizes = np.unique(sellers, return_counts=True)[1]
    assert (stream.n_arms, len(sizes), stream.n_rounds) == (200, 12, 1000)
    assert (sizes.min(), sizes.max()) == (2, 32)
    assert set(np.unique(stream.reward_table)) == {0.0, 1.0}


def test_its_pictures_are_drawn_and_its_claim_holds(
    example: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["marketplace", "--rounds", "4000", "--output", str(tmp_path)])
    example.main()
    assert len(list(tmp_path.glob("*.png"))) == 3
    stream, sellers = example.marketplace(20_000)
    least = [
        metrics.shares(example.play(stream, 0.9, groups).final, groups=sellers).min()
        for groups in (None, Groups(sellers))
    ]
    assert least[1] > 4.0 * least[0]  # fair to items, the smallest seller is paid for its two of them
