"""Groups, entitlements and floors from logs: evaluate, frontier, regret, learning policies, the commands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from alphafair import (
    AlphaFairAdaptive,
    Groups,
    Log,
    Uniform,
    context_reward_totals,
    metrics,
    offline_optimum,
    simulate,
    streams,
)
from alphafair.cli import app
from alphafair.evaluation import evaluate, fair_policy, frontier, regret, replay, simulate_model
from tests import naive

pytestmark = pytest.mark.compiled
LABELS = ["a", "a", "b", "c"]
GROUPS = Groups(LABELS, entitlements={"b": 2.0})


@pytest.fixture(scope="module")
def world() -> tuple[streams.Stream, Log]:
    stream = streams.ratings(n_rounds=20_000, n_contexts=3, n_arms=4, seed=1)
    log = simulate(Uniform(3, 4, feedback="bandit"), stream, log=True).log
    assert log is not None
    return stream, log


def test_groups_of_one_arm_change_no_number(world: Any) -> None:
    _, log = world
    table = np.random.default_rng(0).dirichlet(np.ones(4), size=3)
    plain = evaluate(log, table, alpha=0.5, n_replicates=200)
    grouped = evaluate(log, table, alpha=0.5, n_replicates=200, groups=Groups(list("wxyz"), entitlements=[1.0] * 4))
    assert plain.as_dict() == grouped.as_dict()


def test_a_policy_is_evaluated_by_the_accounts_of_groups(world: Any) -> None:
    """Against the truth, which the stream knows: R_G within the intervals, and the plain sums to 1e-9."""
    stream, log = world
    table = np.random.default_rng(0).dirichlet(np.ones(4), size=3)
    found = evaluate(log, table, 0.9, groups=GROUPS)
    np.testing.assert_allclose(
        found.accounts, metrics.group_accounts(1.0 + found.cumulative_rewards, GROUPS), rtol=1e-9
    )
    truth = metrics.group_accounts(1.0 + (context_reward_totals(stream) * table).sum(axis=0), GROUPS)
    for name, value in {
        "alpha_performance": metrics.alpha_performance(truth, 0.9, groups=GROUPS),
        "jain_index": metrics.jain_index(truth, groups=GROUPS),
        "average_reward": metrics.average_reward(truth),
        "least_share": metrics.shares(truth).min(),
    }.items():
        low, high = getattr(found, name)[1:]
        assert low <= value <= high, name
    per_round = ((context_reward_totals(stream) * table).sum()) / stream.n_rounds
    assert found.reward_per_round.low <= per_round <= found.reward_per_round.high


def test_the_curve_keeps_floors_and_is_about_groups(world: Any) -> None:
    stream, log = world
    groups = Groups(LABELS, entitlements={"b": 2.0}, pull_floor={"c": 0.3})
    found = frontier(log, [0.0, 0.9], n_replicates=300, groups=groups)
    for table in found.distributions:
        assert (table[:, 3] >= 0.3 - 1e-12).all()
    for k, alpha in enumerate((0.0, 0.9)):
        best = offline_optimum(context_reward_totals(stream), alpha, groups=groups)
        curve = found.curve("average_reward")
        assert curve.low[k] <= best.accounts.mean() <= curve.high[k]
    np.testing.assert_allclose(fair_policy(log, 0.9, groups=groups), found.distributions[1], atol=1e-9)


def test_the_statement_of_regret_is_about_groups(world: Any) -> None:
    stream, log = world
    said = regret(log, 0.9, groups=GROUPS)
    best = offline_optimum(context_reward_totals(stream), 0.9, groups=GROUPS)
    assert best.value <= said.optimum_at_most
    totals = 1.0 + np.bincount(log.arms, log.rewards, 4)
    accounts = np.array([totals[0] + totals[1] - 1.0, totals[2], totals[3]])
    own = float((np.array([1.0, 2.0, 1.0]) ** 0.9 * naive.utility(accounts, 0.9)).sum())
    assert said.achieved == pytest.approx(own)


def test_learning_policies_are_measured_by_groups(world: Any) -> None:
    _, log = world
    policy = AlphaFairAdaptive(3, 4, alpha=0.9, groups=GROUPS)
    for play in (replay, simulate_model):
        found = play(log, policy, n_seeds=4, groups=GROUPS)
        accounts = metrics.group_accounts(1.0 + found.cumulative_rewards, GROUPS)
        np.testing.assert_allclose(found.accounts, accounts, rtol=1e-12)
        assert found.average_reward.value == pytest.approx(accounts.mean())
        assert found.least_share.value > 0.15  # three groups, one of which is owed half of all


def test_the_commands_take_a_table_of_arms(world: Any, tmp_path: Path) -> None:
    _, log = world
    rows = slice(0, 3000)
    frame = pl.DataFrame(
        {
            "context": [f"c{j}" for j in log.contexts[rows]],
            "arm": [f"item {i}" for i in log.arms[rows]],
            "reward": log.rewards[rows],
            "propensity": log.propensities[rows],
        }
    )
    frame.write_csv(tmp_path / "log.csv")
    arms = pl.DataFrame({"arm": [f"item {i}" for i in range(4)], "group": LABELS, "entitlement": [1.0, 1.0, 2.0, 1.0]})
    arms.write_csv(tmp_path / "arms.csv")
    run, base = CliRunner(), ["--groups", str(tmp_path / "arms.csv"), "--output", str(tmp_path / "out"), "--json"]
    log_file = str(tmp_path / "log.csv")
    answer = run.invoke(
        app, ["evaluate", log_file, *base, "--replicates", "200", "--policy", "uniform", "--policy", "fair"]
    )
    assert answer.exit_code == 0, answer.output
    numbers = json.loads(answer.stdout)["policies"]
    assert len(numbers["uniform"]["accounts"]) == 3
    answer = run.invoke(app, ["frontier", log_file, *base, "--replicates", "200", "--alpha", "0", "--alpha", "0.9"])
    assert answer.exit_code == 0, answer.output
    bad = arms.with_columns(pl.Series("entitlement", [1.0, 3.0, 2.0, 1.0]))
    bad.write_csv(tmp_path / "bad.csv")
    answer = run.invoke(app, ["evaluate", log_file, "--groups", str(tmp_path / "bad.csv")])
    assert answer.exit_code != 0
    assert "the same for all arms of group a" in answer.output
    arms.head(3).write_csv(tmp_path / "few.csv")
    answer = run.invoke(app, ["frontier", log_file, "--groups", str(tmp_path / "few.csv")])
    assert "Missing: ['item 3']" in answer.output
    pl.concat([arms, arms.head(1)]).write_csv(tmp_path / "twice.csv")
    answer = run.invoke(app, ["frontier", log_file, "--groups", str(tmp_path / "twice.csv")])
    assert "more than once: ['item 0']" in answer.output
    arms.with_columns(pl.Series("group", [None, *LABELS[1:]])).write_csv(tmp_path / "none.csv")
    answer = run.invoke(app, ["frontier", log_file, "--groups", str(tmp_path / "none.csv")])
    assert "line 2: group must be a value" in answer.output
    arms.select("arm").write_csv(tmp_path / "bare.csv")
    answer = run.invoke(app, ["simulate", "--groups", str(tmp_path / "bare.csv")])
    assert "Add a column group, entitlement or floor" in answer.output


def test_simulate_and_offline_accept_a_table_of_arms(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    table = pl.DataFrame({"context": [f"c{j}" for j in rng.integers(2, size=400)]})
    table = table.with_columns(*(pl.Series(name, rng.random(400)) for name in ("lamp", "desk", "chair")))
    table.write_csv(tmp_path / "rounds.csv")
    (tmp_path / "arms.csv").write_text("arm,group,floor\nlamp,ada,0.2\ndesk,ada,0.2\nchair,ben,\n")
    base = ["--groups", str(tmp_path / "arms.csv"), "--output", str(tmp_path / "out"), "--json"]
    run = CliRunner()
    names = [word for name in ("alpha-fair", "alpha-fair-adaptive", "uniform") for word in ("--policy", name)]
    answer = run.invoke(app, ["simulate", "--data", str(tmp_path / "rounds.csv"), *names, *base])
    assert answer.exit_code == 0, answer.output
    numbers = json.loads(answer.stdout)
    assert numbers["groups"] == {"labels": ["ada", "ada", "ben"], "entitlements": None, "pull_floor": [0.2, 0.0]}
    assert all(row["least_share"] > 0.3 for row in numbers["policies"] if row["policy"] != "uniform")
    for bound in numbers["certificates"]:
        assert numbers["hindsight"]["optimum"] <= bound["optimum_at_most"] * (1 + 1e-9)
    answer = run.invoke(app, ["offline", str(tmp_path / "rounds.csv"), *base])
    assert answer.exit_code == 0, answer.output
    found = json.loads(answer.stdout)
    assert found["groups"] == numbers["groups"]
    accounts, earned = (found["optima"][0][name] for name in ("accounts", "cumulative_rewards"))
    assert accounts["ben"] == pytest.approx(1.0 + earned["chair"])
    assert accounts["ada"] == pytest.approx(1.0 + earned["lamp"] + earned["desk"])
