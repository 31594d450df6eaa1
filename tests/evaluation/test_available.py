"""Logs whose decisions were not always drawn among all arms: evaluation, the doctor, the frontier, learning."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy.optimize import minimize
from scipy.stats import binom, norm
from typer.testing import CliRunner

from alphafair import AlphaFairAdaptive, AlphaFairBandit, Engine, Groups, Log, Uniform, evaluation, run
from alphafair.cli import app
from alphafair.engine.requests import Decide, Reward
from alphafair.evaluation import (
    ESTIMATORS,
    LogFile,
    doctor,
    evaluate,
    frontier,
    log_rows,
    regret,
    replay,
    simulate_model,
    warm_start,
)
from alphafair.evaluation.estimates import PLUG_IN
from alphafair.evaluation.optima import best_policy, survey
from tests import naive_evaluation as naive
from tests.evaluation.test_evaluate import scores_of


def restricted(table: Any, sets: Any) -> Any:
    """Distributions over what is available, row by row."""
    kept = np.where(sets, table, 0.0)
    return kept / kept.sum(axis=1, keepdims=True)


def drawn(rng: Any, distributions: Any) -> Any:
    ends = distributions.cumsum(axis=1)
    return (rng.random(len(ends))[:, None] * ends[:, -1:] >= ends).sum(axis=1)


def stock_log(seed: int, n_rounds: int, n_contexts: int = 3, n_arms: int = 5, **more: Any) -> tuple[Log, Any, Any]:
    """Every arm is out of stock in three rounds of ten, one arm in the half of them, and some rounds have all arms.

    The log, another policy, and the mean rewards.
    """
    rng = np.random.default_rng(seed)
    means = rng.uniform(0.2, 1.0, (n_contexts, n_arms))
    logging, target = (0.8 * rng.dirichlet(np.full(n_arms, 2.0), n_contexts) + 0.2 / n_arms for _ in range(2))
    contexts = rng.integers(0, n_contexts, n_rounds)
    stock = rng.random((n_rounds, n_arms)) < np.where(np.arange(n_arms) == 1, 0.5, 0.7)
    stock[rng.random(n_rounds) < 0.2] = True
    stock[np.arange(n_rounds), rng.integers(0, n_arms, n_rounds)] = True
    used = restricted(logging[contexts], stock)
    arms = drawn(rng, used)
    rewards = (rng.random(n_rounds) < means[contexts, arms]).astype(float)
    sizes = {"n_contexts": n_contexts, "n_arms": n_arms}
    log = Log(contexts, arms, rewards, used[np.arange(n_rounds), arms], available=stock, **sizes, **more)
    return log, target, means


def written(log: Log, path: Path) -> Path:
    """As a table, labels in place of numbers; nothing where every arm could be shown."""
    assert log.available is not None
    names = np.array([f"a{arm}" for arm in range(log.n_arms)])
    lists = [None if row.all() else names[row].tolist() for row in log.available.table()]
    if path.suffix == ".csv":
        lists = [None if each is None else json.dumps(each) for each in lists]
    columns = {"context": log.contexts, "arm": names[log.arms], "reward": log.rewards, "propensity": log.propensities}
    frame = pl.DataFrame({**columns, "available": lists})
    frame.write_csv(path) if path.suffix == ".csv" else frame.write_parquet(path)
    return path


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("n_rounds", [40, 300])
def test_estimators_agree_with_plain_python(estimator: str, n_rounds: int) -> None:
    log, target, _ = stock_log(3, n_rounds)
    sharp = np.eye(5)[[0, 1, 2]]  # out of stock in many rounds: all that is left is shown alike
    for policy in (target, sharp):
        found = scores_of(log, policy, estimator).accounts()[0]
        expected = naive.accounts(log, policy.tolist(), estimator)
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_sums_for_verdicts_agree_with_plain_python(estimator: str) -> None:
    log, target, _ = stock_log(5, 200)
    found = scores_of(log, target, estimator)
    pi = np.array(naive.restricted(log, target.tolist()))
    np.testing.assert_allclose(found.expected, pi.sum(axis=0), rtol=1e-12)
    weights = pi[np.arange(200), log.arms] / log.propensities
    by_arm = [weights[log.arms == arm] for arm in range(5)]
    np.testing.assert_allclose(found.arm_weights[0], [each.sum() for each in by_arm], rtol=1e-12)
    beyond = {"clipped": 200**0.5, "switch": 0.0}
    cut = [sum(w - beyond[estimator] for w in each if w > 200**0.5) if estimator in beyond else 0.0 for each in by_arm]
    np.testing.assert_allclose(found.cut, cut, rtol=1e-12)


def test_an_arm_counts_as_unseen_only_where_it_was_available() -> None:
    """Arm 2 is sold in one of two contexts: that the other never shows it is no surprise."""
    n = 4000
    rng = np.random.default_rng(0)
    contexts = rng.integers(0, 2, n)
    stock = np.ones((n, 3), dtype=bool)
    stock[contexts == 1, 2] = False
    used = restricted(np.full((n, 3), 1 / 3), stock)
    arms = drawn(rng, used)
    rewards, propensities = rng.random(n), used[np.arange(n), arms]
    policy = np.full((2, 3), 1 / 3)
    with_sets = Log(contexts, arms, rewards, propensities, available=stock)
    found = evaluate(with_sets, policy)
    assert found.verdict == "trustworthy", found.reasons
    assert evaluate(replace(with_sets, available=None), policy).verdict == "do not use"


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_a_file_read_in_pieces_gives_the_same_estimate(tmp_path: Path, monkeypatch: Any, suffix: str) -> None:
    log, target, _ = stock_log(6, 500)
    path = written(log, tmp_path / f"log{suffix}")
    whole = evaluate(Log.from_table(path), target, n_replicates=100)
    monkeypatch.setattr("alphafair.tables.BATCH_ROWS", 70)
    monkeypatch.setattr(log_rows, "BATCH", 31)
    pieces = evaluate(LogFile(path), target, n_replicates=100)
    np.testing.assert_allclose(pieces.cumulative_rewards, whole.cumulative_rewards, rtol=1e-12)
    direct = evaluate(log, target, n_replicates=100)
    np.testing.assert_allclose(direct.cumulative_rewards, whole.cumulative_rewards, rtol=1e-12)


@pytest.mark.compiled
def test_intervals_cover_the_truth_which_is_known() -> None:
    """200 logs of stock that differs from round to round: exact binomial bands around 95 in 100."""
    n_rounds, n_logs = 3000, 200
    rng = np.random.default_rng(8)
    sets = np.array([[bool(k >> arm & 1) for arm in range(4)] for k in range(1, 16)])
    chances = rng.dirichlet(np.ones(15), 2)  # of every set, in each of two contexts
    means = rng.uniform(0.3, 0.9, (2, 4))
    logging, target = (0.7 * rng.dirichlet(np.ones(4), 2) + 0.3 / 4 for _ in range(2))
    truth = np.ones(4)
    for context in range(2):
        shown = chances[context] @ restricted(np.tile(target[context], (15, 1)), sets)
        truth += 0.5 * n_rounds * shown * means[context]
    held = dict.fromkeys(("average_reward", "jain_index", "alpha_performance"), 0)
    for _ in range(n_logs):
        contexts = rng.integers(0, 2, n_rounds)
        of_rounds = drawn(rng, chances[contexts])
        used = restricted(logging[contexts], sets[of_rounds])
        arms = drawn(rng, used)
        rewards = (rng.random(n_rounds) < means[contexts, arms]).astype(float)
        log = Log(contexts, arms, rewards, used[np.arange(n_rounds), arms], available=(sets, of_rounds))
        found = evaluate(log, target, n_replicates=200)
        assert found.verdict == "trustworthy", found.reasons
        for name in held:
            _, low, high = getattr(found, name)
            held[name] += bool(low <= PLUG_IN[name](truth, 0.9) <= high)
    low, high = binom.ppf([0.0005, 0.9995], n_logs, 0.95)
    assert all(low <= count <= high for count in held.values()), held


PARTS = [0.9, 0.3, 0.6, 0.5]  # of the rounds: in stock


def stock_engine(path: Path, n_rounds: int = 4000) -> Path:
    """A log of the engine's own with stock in every request, as `export` writes it."""
    rng = np.random.default_rng(12)
    arms, means = ["ada", "ben", "cyd", "dot"], [0.4, 0.7, 0.5, 0.6]
    with Engine.open(path.parent / "shop.db", seed=3) as engine:
        engine.create("home", arms=arms, policy="alpha-fair-adaptive", groups=Groups(pull_floor=0.1))
        for first in range(0, n_rounds, 100):
            stocks = [[arm for arm, part in zip(arms, PARTS, strict=True) if rng.random() < part] for _ in range(100)]
            decisions = [Decide("home", f"v{k % 2}", None, stock or ["ada"]) for k, stock in enumerate(stocks, first)]
            receipts = engine.submit(decisions)
            engine.submit([Reward(each.id, float(rng.random() < means[arms.index(each.arm)])) for each in receipts])
        engine.export("home", path)
    return path


@pytest.mark.compiled
def test_the_engines_own_log_with_stock_is_trusted(tmp_path: Path) -> None:
    path = stock_engine(tmp_path / "log.parquet")
    uniform = np.full((2, 4), 0.25)
    for log in (Log.from_table(path), LogFile(path)):
        assert doctor(log).is_sound, doctor(log).findings
        found = evaluate(log, uniform)
        assert found.verdict == "trustworthy", found.reasons
    assert doctor(path).is_sound
    assert not doctor(path, available=None).is_sound
    result = CliRunner().invoke(app, ["doctor", str(path), "--output", str(tmp_path)])
    assert result.exit_code == 0, result.output
    without = CliRunner().invoke(app, ["doctor", str(path), "--available", "", "--output", str(tmp_path)])
    assert without.exit_code == 1, "inverse propensities add up among the available arms, and not among all"
    args = ["evaluate", str(path), "--policy", "uniform", "--policy", "logged", "--json", "--output", str(tmp_path)]
    told = json.loads(CliRunner().invoke(app, args).stdout)
    assert {each["verdict"] for each in told["policies"].values()} == {"trustworthy"}
    told = json.loads(CliRunner().invoke(app, [*args, "--available", ""]).stdout)
    assert told["policies"]["uniform"]["verdict"] == "do not use"


def test_inverse_propensities_are_averaged_where_arms_were_available() -> None:
    log, _, _ = stock_log(9, 2000)
    assert log.available is not None
    there = log.available.table()
    checked = doctor(log).inverse_propensities
    assert checked is not None
    for arm in range(5):
        inverse = np.where(log.arms == arm, 1.0 / log.propensities, 0.0)[there[:, arm]]
        assert checked.means[arm] == pytest.approx(inverse.mean(), rel=1e-12)
        reach = checked.noise[arm] / np.sqrt((np.square(inverse).mean() - 1.0) / len(inverse))
        assert reach == pytest.approx(norm.ppf(1.0 - 0.001 / 10.0), rel=1e-9)


@pytest.mark.compiled
def test_sound_logs_with_stock_give_no_false_alarm_and_wrong_ones_do() -> None:
    """A false alarm in one log of a thousand; propensities among all arms in place of the available ones are found."""
    for seed in range(40):
        log, _, _ = stock_log(seed, 2000)
        assert doctor(log).is_sound, doctor(log).findings
    assert log.available is not None
    several = log.available.table().sum(axis=1) > 1
    too_small = replace(log, propensities=np.where(several, 0.7 * log.propensities, log.propensities))
    assert not doctor(too_small).is_sound


def test_the_doctor_names_rows_with_invalid_available_arms() -> None:
    rows: dict[str, Any] = {"context": [0] * 4, "arm": ["a", "b", "a", "b"], "reward": [1, 0, 1, 1]}
    rows["propensity"] = [0.5, 0.5, 0.9, 1.0]
    single = doctor({**rows, "available": [["a", "b"], None, ["a"], ["b"]]})
    wrong = [finding.what for finding in single.findings if finding.grade == "wrong"]
    assert wrong == ["1 row has one available arm and a propensity below 1: source, row 2"]
    for lists in ([["b"], None, None, None], ["[", None, None, None], [[], None, None, None]):
        found = doctor({**rows, "available": lists})
        assert [finding.grade for finding in found.findings] == ["wrong"]
        assert "source, row 0: available" in found.findings[0].what
    named = doctor({**rows, "stock": [["a", "b"], None, ["a"], ["b"]]}, available="stock")
    assert [finding.what for finding in named.findings if finding.grade == "wrong"] == wrong
    assert "(available=)" in doctor(rows, available="stock").findings[0].what


def test_the_doctor_suggests_a_column_of_available_arms() -> None:
    log, _, _ = stock_log(1, 4000)
    (said,) = [each.what for each in doctor(replace(log, available=None)).findings if each.grade == "wrong"]
    assert "add a column of available arms" in said


@pytest.mark.parametrize("kind", [AlphaFairAdaptive, AlphaFairBandit])
@pytest.mark.parametrize("floor", [0.0, 0.1])
def test_matching_rounds_stepwise_and_compiled_are_the_same(kind: Any, floor: float) -> None:
    log, _, _ = stock_log(2, 800)

    class Plain(kind):  # type: ignore[misc]
        def choose(self, *arguments: Any, **more: Any) -> Any:
            return super().choose(*arguments, **more)

    whole, single = (each(3, 5, groups=Groups(pull_floor=floor)) for each in (kind, Plain))
    (n, played), (m, stepped) = (run.over_matches(policy, log, np.random.default_rng(3)) for policy in (whole, single))
    assert n == m == played.pulls.sum()
    assert np.array_equal(played.earned, stepped.earned)
    assert np.array_equal(whole.cumulative_rewards, single.cumulative_rewards)


def known_stock() -> tuple[Any, Any, Any]:
    """Two arms: the better one is there in a third of all rounds, and then every policy that learns takes it."""
    rng = np.random.default_rng(1005)  # no seed of the runs
    n = 30_000
    stock = np.ones((n, 2), dtype=bool)
    stock[rng.random(n) < 2 / 3, 1] = False
    used = restricted(np.full((n, 2), 0.5), stock)
    return rng, stock, used


@pytest.mark.compiled
@pytest.mark.parametrize("play", [replay, simulate_model])
def test_a_policy_that_learns_plays_among_what_is_available(play: Any) -> None:
    """Uniform play earns (2/3) 0.2 + (1/3) (0.2 + 0.8)/2 a round: an exact band for rewards of 0 and 1."""
    rng, stock, used = known_stock()
    arms = drawn(rng, used)
    n, means = len(arms), np.array([0.2, 0.8])
    rewards = (rng.random(n) < means[arms]).astype(float)
    log = Log(np.zeros(n, dtype=int), arms, rewards, used[np.arange(n), arms], available=stock)
    found = play(log, Uniform(1, 2, feedback="bandit"), n_seeds=10)
    truth, part = 2 / 3 * 0.2 + 1 / 3 * 0.5, 1 / 3 / 2  # the second arm's part of all rounds
    low, high = binom.ppf([0.0005, 0.9995], found.n_rounds, truth) / found.n_rounds
    assert low <= found.reward_per_round.value <= high
    earned = found.cumulative_rewards[1] / found.n_rounds
    low, high = binom.ppf([0.0005, 0.9995], found.n_rounds, part * 0.8) / found.n_rounds
    assert low <= earned <= high
    learner = play(log, AlphaFairAdaptive(1, 2, alpha=0.0), n_seeds=4)
    assert learner.reward_per_round.value <= 2 / 3 * 0.2 + 1 / 3 * 0.8 + 0.02, "no more than there was in stock"
    assert learner.reward_per_round.value > truth


def test_a_warm_start_equals_own_decisions() -> None:
    rng = np.random.default_rng(1)
    policy, rows = AlphaFairAdaptive(2, 4, alpha=0.5, groups=Groups(pull_floor=0.2), seed=0), []
    for t in range(400):
        stock = rng.random(4) < 0.7
        stock[t % 4] = True
        decision = policy.choose(t % 2, available=stock)
        reward = float(rng.random() < 0.5)
        policy.update(decision, reward)
        rows.append((t % 2, decision.arm, reward, decision.propensity, stock))
    contexts, arms, rewards, propensities, stock = (np.array(column) for column in zip(*rows, strict=True))
    log = Log(contexts, arms, rewards, propensities, available=stock)
    assert log.propensities.min() >= 1 / 8
    started = warm_start(log, AlphaFairAdaptive, alpha=0.5, groups=Groups(pull_floor=0.2))
    np.testing.assert_array_equal(started.cumulative_rewards, policy.cumulative_rewards)
    for context in range(2):
        np.testing.assert_array_equal(started.probabilities(context), policy.probabilities(context))


def three_sets(seed: int, n_rounds: int, n_contexts: int = 2) -> tuple[Log, Any, Any]:
    """Three arms, with three sets of them that come alike; the log, its sets, and the mean rewards."""
    rng = np.random.default_rng(1000 + seed)
    sets = np.array([[True, True, True], [True, False, True], [False, True, True]])
    means = np.array([[0.9, 0.3, 0.2], [0.4, 0.8, 0.3]])[:n_contexts]
    contexts, of_rounds = rng.integers(0, n_contexts, n_rounds), rng.integers(0, 3, n_rounds)
    used = restricted(np.full((n_rounds, 3), 1 / 3), sets[of_rounds])
    arms = drawn(rng, used)
    rewards = (rng.random(n_rounds) < means[contexts, arms]).astype(float)
    log = Log(contexts, arms, rewards, used[np.arange(n_rounds), arms], available=(sets, of_rounds), n_arms=3)
    return log, sets, means


def true_optimum(log: Log, sets: Any, means: Any, alpha: float) -> Any:
    """The accounts of the best policy, a distribution for every context and set, by a solver that is not ours."""
    assert log.available is not None
    of_rounds = np.where(log.available.of_rounds < 0, 0, log.available.of_rounds)  # the first is the whole set, -1
    weights = np.array([[((log.contexts == c) & (of_rounds == s)).sum() for s in range(3)] for c in range(len(means))])

    def accounts(x: Any) -> Any:
        shown = np.where(sets, x.reshape(-1, 3, 3), 0.0)
        return 1.0 + np.einsum("cs,csi,ci->i", weights, shown, means)

    sums = {"type": "eq", "fun": lambda x: np.where(sets, x.reshape(-1, 3, 3), 0.0).sum(axis=2).ravel() - 1.0}
    begin = np.tile(restricted(np.ones((3, 3)), sets), (len(means), 1, 1)).ravel()
    size = float(log.n_rounds)
    found = minimize(
        lambda x: -((accounts(x) / size) ** (1.0 - alpha)).sum(),
        begin,
        bounds=[(0.0, 1.0)] * len(begin),
        constraints=[sums],
        options={"ftol": 1e-14, "maxiter": 1000},
    )
    return accounts(found.x)


@pytest.mark.compiled
def test_the_frontiers_band_holds_the_optimum_of_what_was_available() -> None:
    alphas = [0.0, 0.5, 0.9]
    missed = 0
    for seed in range(4):
        log, sets, means = three_sets(seed, 6000)
        found = frontier(log, alphas, optimum="expected", n_replicates=200)
        assert found.verdict == "trustworthy", found.reasons
        for k, alpha in enumerate(alphas):
            best = true_optimum(log, sets, means, alpha)
            curve = found.average_reward
            missed += not curve.low[k] <= best.mean() <= curve.high[k]
            worth = (best ** (1.0 - alpha)).sum() / (1.0 - alpha)
            curve = found.alpha_performance
            missed += not curve.low[k] <= worth <= curve.high[k]
            assert curve.value[k] <= 1.03 * worth, "nobody can show what is not there"
            assert curve.value[k] >= 0.97 * worth, "and what is there is made use of"
            bound = regret(log, alpha, n_replicates=200)
            missed += not bound.optimum_at_most >= worth
            assert bound.optimum_at_most <= 1.06 * worth
    assert missed <= binom.ppf(0.999, 36, 0.05), missed


def test_a_policy_as_a_table_shows_arms_as_often_as_the_optimum() -> None:
    """Renormalized in every round by plain Python, the table earns what the optimum does."""
    log, sets, means = three_sets(3, 3000)
    situations = survey(log).situations
    assert situations is not None
    assert sorted(zip(situations.contexts.tolist(), situations.sets.tolist(), strict=True)) == [
        (context, each) for context in range(2) for each in sorted(sets.tolist())
    ]
    totals = np.array([(log.contexts == c).sum() * means[c] for c in range(2)])
    for alpha in (0.0, 0.5, 0.9):
        best = best_policy(totals, alpha, Groups().for_arms(3), situations)
        table = best.distributions()
        np.testing.assert_allclose(table.sum(axis=1), 1.0, rtol=1e-12)
        shown = np.array(naive.restricted(log, table.tolist()))
        earned = 1.0 + (shown * means[log.contexts]).sum(axis=0)
        np.testing.assert_allclose(earned, best.accounts, rtol=1e-5)
        np.testing.assert_allclose(best.accounts, true_optimum(log, sets, means, alpha), rtol=2e-3)


def test_the_logged_policy_shows_arms_as_often_as_the_log_did() -> None:
    log, _, _ = stock_log(4, 3000)
    table = evaluation.logged_policy(log)
    shown = np.array(naive.restricted(log, table.tolist()))
    for context in range(3):
        rows = log.contexts == context
        counts = np.bincount(log.arms[rows], minlength=5)
        np.testing.assert_allclose(shown[rows].sum(axis=0), counts, rtol=1e-6)


@pytest.mark.parametrize("groups", [Groups(pull_floor=0.1), Groups(list("xxyyz"), pull_floor={"y": 0.3})])
def test_the_best_policies_keep_floors(groups: Groups) -> None:
    log, _, _ = stock_log(4, 3000)
    table = evaluation.fair_policy(log, 0.5, groups=groups)
    np.testing.assert_allclose(table.sum(axis=1), 1.0, rtol=1e-12)
    if groups.labels is not None:
        assert (table[:, 2:4].sum(axis=1) >= 0.3 - 1e-9).all()
    else:
        shown = np.array(naive.restricted(log, table.tolist()))
        assert log.available is not None
        assert shown[log.available.table()].min() >= 0.1 - 1e-9


def test_where_there_are_too_many_sets_a_sample_of_rounds_stands_for_all(monkeypatch: Any) -> None:
    from alphafair.evaluation import optima as module

    log, _, _ = stock_log(4, 20_000)
    exact = evaluation.fair_policy(log, 0.5)
    monkeypatch.setattr(module, "MOST_CELLS", 5 * 60)
    few = survey(log).situations
    assert few is not None
    assert len(few.contexts) < 100
    np.testing.assert_allclose(np.bincount(few.contexts, few.parts), 1.0, rtol=1e-12)
    near = evaluate(log, evaluation.fair_policy(log, 0.5), alpha=0.5).alpha_performance.value
    assert near == pytest.approx(evaluate(log, exact, alpha=0.5).alpha_performance.value, rel=0.05)


def test_lists_that_name_all_arms_change_nothing() -> None:
    log, target, _ = stock_log(4, 2000)
    plain = replace(log, available=None)
    said = replace(log, available=(np.ones((0, 5), dtype=bool), np.full(2000, -1)))
    for ask in (
        lambda each: evaluate(each, target, n_replicates=100).as_dict(),
        lambda each: frontier(each, [0.0, 0.9], n_replicates=100).as_dict(),
        lambda each: regret(each, n_replicates=100)._asdict(),
        lambda each: doctor(each).as_dict()["inverse_propensities"],
    ):
        assert json.dumps(ask(plain)) == json.dumps(ask(said))


def test_a_command_about_a_log_with_stock_is_answered(tmp_path: Path) -> None:
    log, _, _ = three_sets(1, 4000)
    path = written(log, tmp_path / "log.csv")
    for args in (["frontier", "--alpha", "0", "--alpha", "0.9"], ["evaluate"]):
        result = CliRunner().invoke(app, [args[0], str(path), *args[1:], "--json", "--output", str(tmp_path)])
        assert result.exit_code == 0, result.output
        assert "do not use" not in result.stdout
