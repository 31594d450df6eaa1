"""The example of a way in, examples/adopt.py: what it prints is in the tutorial, and the forecast holds what came."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import matplotlib.pyplot as plt
import pytest

from tests import ROOT

pytestmark = pytest.mark.compiled


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("adopt", ROOT / "examples" / "adopt.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_forecast_holds_what_came(example: ModuleType, tmp_path: Path) -> None:
    lines: list[str] = []
    found = example.adopt(tmp_path, lines.append)
    for name, (value, low, high) in found.forecast.items():
        assert low <= value <= high
        assert low <= found.live[name] <= high, name
    assert found.live["jain_index"] > 0.8  # the ranker shows one genre
    assert found.live["reward"] > 0.95 * float(found.rewards[0].mean())
    tutorial = (ROOT / "docs" / "tutorials" / "log_to_policy.md").read_text(encoding="utf-8")
    assert "\n".join(lines) in tutorial
    figure = example.draw(found)
    assert figure.axes[0].get_title(loc="left")
    plt.close(figure)
