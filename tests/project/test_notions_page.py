"""What the page "Which fairness do you need?" says is so in the committed results of `alphafair notions`."""

from __future__ import annotations

import json
import re

import pytest

from alphafair.lab.fairness import MEASURES
from alphafair.lab.notions import CONTENDERS, N_SEEDS, WORLDS
from tests import ROOT
from tools.site import notions
from tools.site.generated import markdown

WORLD = {world.name: world for world in notions.results()}


def mean(world: str, label: str, measure: str) -> float:
    found = WORLD[world].of(label).mean(measure)
    assert found is not None
    return found


def test_the_results_are_of_the_plan() -> None:
    assert [world.title for world in notions.results()] == [world.title for world in WORLDS]
    for world in notions.results():
        assert [row.label for row in world.rows] == [each.label for each in CONTENDERS]
        assert {len(values) for row in world.rows for values in row.measures.values()} == {N_SEEDS}
        assert {*world.rows[0].measures} == {*MEASURES}


def test_the_tables_are_made_from_the_results() -> None:
    costs = markdown("notions costs").splitlines()
    assert len(costs) == 2 + len(notions.ANSWERS)
    percents = [int(share) for share in re.findall(r"(\d+)%", costs[3])]  # everybody a fair return: alpha = 1
    expected = [1.0 - mean(world, "adaptive 1", "reward") / mean(world, "adaptive 0", "reward") for world in WORLD]
    assert percents == [round(100.0 * max(0.0, share)) for share in expected]
    for world in WORLD:
        assert len(markdown(f"notions {world}").splitlines()) == 2 + len(CONTENDERS)
    assert "prop." in markdown("notions measures")


@pytest.mark.parametrize("world", WORLD)
@pytest.mark.parametrize("alpha", [".5", ".9", "1", "2", "inf"])
def test_alpha_fair_policies_keep_promises_that_nobody_asked_for(world: str, alpha: str) -> None:
    assert mean(world, f"adaptive {alpha}", "rate_shortfall") == 0.0
    if world != "clicks":
        assert mean(world, f"adaptive {alpha}", "lapse") <= 5.0  # of 500 or 1,000 pulls


@pytest.mark.parametrize("world", WORLD)
def test_next_to_no_envy_at_alpha_one(world: str) -> None:
    assert mean(world, "adaptive 1", "envy") <= (0.6 if world == "clicks" else 0.2)
    assert mean(world, "adaptive 1", "proportional") >= (0.9 if world == "clicks" else 1.0)


@pytest.mark.parametrize("world", WORLD)
def test_promises_in_every_round_are_dear(world: str) -> None:
    """And so are the published learners at the same promise."""
    late, always, dear = (
        WORLD[world].cost(f"adaptive 0, {how}") for how in ("promised pulls 10", "promised pulls 0", "floor")
    )
    assert dear > always
    if world in ("stationary", "drift"):
        assert dear > 3.0 * max(always, late)
    assert WORLD[world].cost("Fair-Learn") > always
    assert WORLD[world].cost("BanditQ") > WORLD[world].cost("adaptive 0, promised reward 0")


def test_merit_is_something_else() -> None:
    for world in WORLD:
        assert mean(world, "adaptive 1", "merit") > mean(world, "uniform", "merit")
        assert mean(world, "adaptive 1", "least_probability") < 0.01
        assert mean(world, "FairBandits", "favored") == 0.0
        waits = {row.label: row.mean("wait") for row in WORLD[world].rows}
        assert min(waits, key=lambda label: waits[label] or 0.0).startswith("LFG")
    assert mean("stationary", "FairX, width .3", "merit") < 0.5 * mean("stationary", "uniform", "merit")


def test_visitors_pay_for_fairness_to_arms() -> None:
    served = [mean("ratings", f"adaptive {alpha}", "least_context") for alpha in ("0", ".5", "2")]
    assert served == sorted(served, reverse=True)


def test_one_learner_for_all_contexts_is_about_uniform_play() -> None:
    for world in ("stationary", "drift"):
        for policy in ("Fair-Learn", "revenue"):
            assert mean(world, f"{policy}, one context", "reward") < mean(world, policy, "reward")
            gain = mean(world, f"{policy}, one context", "reward") - mean(world, "uniform", "reward")
            assert gain < 0.35 * (mean(world, "adaptive 0", "reward") - mean(world, "uniform", "reward"))


def test_the_committed_file_is_plain_json() -> None:
    found = json.loads((ROOT / "docs" / "background" / "data" / "notions.json").read_text(encoding="utf-8"))
    assert {*found} == {"command", "versions", "worlds"}
    assert found["command"] == "alphafair notions"
