"""Logs of decisions that show several arms: what is stored, read, checked, estimated and learned from them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy import stats

from alphafair import AlphaFairAdaptive, FairCB, Log, SlateDecision, Stream, Uniform, metrics, offline_optimum, simulate
from alphafair.errors import InvalidArgument
from alphafair.evaluation import (
    LogFile,
    doctor,
    evaluate,
    evaluate_all,
    fair_policy,
    frontier,
    log_rows,
    logged_policy,
    regret,
    replay,
    simulate_model,
    warm_start,
)
from alphafair.evaluation.optima import survey
from alphafair.values.log_table import EXPORTED_SLATES
from benchmarks import compare_obp
from tests import naive_slates

DATA = Path("tests/fixtures")
COLUMNS = ("contexts", "arms", "rewards", "propensities")
K, N_ARMS, N_CONTEXTS = 3, 6, 2


def drawn(p: np.ndarray, rng: np.random.Generator, k: int = K) -> np.ndarray:
    """Madow's sampling in a random order."""
    order = rng.permutation(len(p))
    ends = np.cumsum(p[order])
    arms = order[np.searchsorted(ends, rng.random() + np.arange(k), side="right").clip(max=len(p) - 1)]
    return rng.permutation(arms)


def made(seed: int, n: int = 300, *, masked: bool = False, means: Any = None) -> Log:
    """A log of n decisions of three arms, by random distributions per context."""
    rng = np.random.default_rng(seed)
    p = np.stack([naive_slates.restrict(rng.dirichlet(np.ones(N_ARMS)) + 0.1, np.ones(N_ARMS, dtype=bool), K, 0.0)] * 2)
    means = np.random.default_rng(1).uniform(0.1, 0.9, (N_CONTEXTS, N_ARMS)) if means is None else means
    contexts, sets, rows = rng.integers(0, N_CONTEXTS, n), np.ones((n, N_ARMS), dtype=bool), []
    for t, context in enumerate(contexts.tolist()):
        q, k = p[context], K
        if masked:
            sets[t] = rng.random(N_ARMS) < 0.7
            sets[t, 0] = True
            k = min(K, int(sets[t].sum()))
            q = naive_slates.restrict(q, sets[t], K, 0.0)
        for slot, arm in enumerate(drawn(q, rng, k)):
            rows.append((context, arm, float(rng.random() < means[context, arm]), q[arm] / k, slot + 1, t))
    *columns, positions, decisions = (np.array(each) for each in zip(*rows, strict=True))
    return Log(
        *columns,
        n_contexts=N_CONTEXTS,
        n_arms=N_ARMS,
        positions=positions,
        decisions=decisions,
        available=sets[decisions] if masked else None,
    )


# what a simulation stores


@pytest.mark.parametrize("compiled", [True, False])
def test_a_simulation_stores_every_shown_arm(compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALPHAFAIR_JIT", "off")
    rng, n = np.random.default_rng(0), 80
    stream = Stream.from_arrays(rng.integers(0, 2, n), rng.random((n, 5)))
    k = rng.integers(1, 8, n)  # more than there are arms: all of them
    trace = simulate(AlphaFairAdaptive(2, 5, alpha=0.5), stream, k=k, log=True, compiled=compiled)
    policy, uniforms, log = AlphaFairAdaptive(2, 5, alpha=0.5), np.random.default_rng(0), trace.log
    assert log is not None
    assert log.n_decisions == n
    for t in range(n):
        slate = policy.choose(int(stream.contexts[t]), k=int(k[t]), rng=uniforms)
        rows = log.decisions == t
        assert log.arms[rows].tolist() == [*slate.arms]
        assert log.positions is not None
        assert log.positions[rows].tolist() == [*range(1, len(slate.arms) + 1)]
        assert log.propensities[rows] == pytest.approx(np.array(slate.propensities) / len(slate.arms), rel=1e-14)
        assert (log.rewards[rows] == stream.rewards(t)[[*slate.arms]]).all()
        policy.update(slate, log.rewards[rows])
    assert 1.0 + np.bincount(log.arms, log.rewards) == pytest.approx(trace.final)


def test_arms_that_are_not_there_have_no_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALPHAFAIR_JIT", "off")
    rng = np.random.default_rng(0)
    stream = Stream.from_arrays(rng.integers(0, 2, 60), rng.random((60, 4)), arrivals=[0, 0, 30, 30])
    log = simulate(Uniform(2, 2, feedback="bandit"), stream, k=3, log=True).log
    assert log is not None
    assert np.bincount(log.decisions).tolist() == [2] * 30 + [3] * 30
    assert log.available is not None
    assert log.arms[:60].max() == 1


# what is refused


def test_entries_of_a_decision_agree() -> None:
    log = made(0, 4)
    for name, value, words in (
        (
            "decisions",
            [0, 0, 0, 1, 1, 1, 0, 0, 0, 2, 2, 2],
            r"decisions\[6\] must be a number that is not of an earlier",
        ),
        ("arms", [1] * 12, r"arms\[1\] must be different in every entry of a decision"),
        ("contexts", [0, 1, 0] * 4, r"contexts\[1\] must be the same in a decision"),
        ("users", [7, 7, 8] * 4, r"users\[2\] must be the same in a decision"),
        ("available", [[True] * 6] * 11 + [[True] * 5 + [False]], "available"),
    ):
        with pytest.raises(InvalidArgument, match=words):
            replace(log, **{name: np.array(value)})


def test_refusals() -> None:
    log = made(0, 60)
    table = np.full((2, N_ARMS), 0.08)
    table[1, 0] = 0.6
    with pytest.raises(InvalidArgument) as refused:
        evaluate(log, table)
    assert str(refused.value) == (
        "distributions[1] must be at most 1/3, the share of one slot of 3; got 0.6. "
        "Divide inclusion probabilities by 3."
    )
    policy = AlphaFairAdaptive(2, N_ARMS)
    for call in (
        lambda: replay(log, policy),
        lambda: simulate_model(log, policy),
        lambda: regret(log),
    ):
        with pytest.raises(InvalidArgument) as refused:
            call()
        wanted = "log must be one with one arm per decision; got '3 arms in decision 0'. Use evaluate."
        assert str(refused.value) == wanted
    with pytest.raises(InvalidArgument, match="policy must be one that shows several arms"):
        warm_start(log, FairCB, pull_share=0.1, horizon=10)


# estimates


@pytest.mark.parametrize("masked", [False, True])
def test_accounts_are_sums_over_slots(masked: bool) -> None:
    """Inverse propensity scoring by hand: with k pi restricted to the available arms."""
    log = made(2, 200, masked=masked)
    rng = np.random.default_rng(5)
    every = np.ones(N_ARMS, dtype=bool)
    pi = np.stack([naive_slates.restrict(rng.dirichlet(np.ones(N_ARMS)), every, K, 0.0) / K for _ in range(2)])
    accounts = np.ones(N_ARMS)
    for t in range(log.n_rounds):
        context, arm = log.contexts[t], log.arms[t]
        mask = None if log.available is None else log.available.of_round(t)
        p = pi[context]
        if mask is not None:
            k = min(K, int(mask.sum()))
            p = naive_slates.restrict(K * pi[context], mask, K, 0.0) / k
            if k < K and mask.sum() > k:
                raise AssertionError
        accounts[arm] += p[arm] / log.propensities[t] * log.rewards[t]
    found = evaluate(log, pi, 0.5, estimator="ips", n_replicates=100)
    if found.verdict != "do not use":
        assert found.accounts == pytest.approx(accounts, rel=1e-9)
    else:
        pytest.fail(str(found.reasons))


def test_intervals_cover_the_true_welfare() -> None:
    """Of 40 logs about 95 percent; a band that a coverage of 90 to 97 percent leaves once in a thousand times."""
    means = np.random.default_rng(1).uniform(0.2, 0.9, (N_CONTEXTS, N_ARMS))
    rng, n, n_logs, covered = np.random.default_rng(8), 250, 40, 0
    every = np.ones(N_ARMS, dtype=bool)
    pi = np.stack([naive_slates.restrict(rng.dirichlet(2 * np.ones(N_ARMS)), every, K, 0.0) / K for _ in range(2)])
    for seed in range(n_logs):
        log = made(100 + seed, n, means=means)
        visits = np.bincount(log.contexts, minlength=2) / K
        true = metrics.welfare(1.0 + (visits[:, None] * K * pi * means).sum(axis=0), 0.5)
        found = evaluate(log, pi, 0.5, estimator="dr", n_replicates=200).welfare
        covered += found.low <= true <= found.high
    low, high = stats.binom(n_logs, 0.90).ppf(0.001), stats.binom(n_logs, 0.97).ppf(0.999)
    assert low <= covered <= high


def test_the_bootstrap_draws_decisions() -> None:
    """All arms of a decision pay the same, so decisions vary three times as much as single rows would."""
    rng, n = np.random.default_rng(0), 400
    arms = np.concatenate([rng.permutation(N_ARMS)[:K] for _ in range(n)])
    rewards = np.repeat(rng.integers(0, 2, n), K).astype(float)
    rows = Log(np.zeros(n * K, dtype=int), arms, rewards, np.full(n * K, 1 / N_ARMS))
    slates, uniform = replace(rows, decisions=np.repeat(np.arange(n), K)), np.full((1, N_ARMS), 1 / N_ARMS)
    widths = []
    for log in (rows, slates):
        found = evaluate(log, uniform, 0.5, estimator="ips", n_replicates=1000).average_reward
        widths.append(found.high - found.low)
    assert 1.5 < widths[1] / widths[0] < 2.0  # the root of 3


def test_cells_count_decisions() -> None:
    """Weights of rows are those of inclusion probabilities, and an arm is missing once in a decision."""
    log = made(9, 80, masked=True)
    cells = survey(log).cells
    visits, missing = np.zeros(2), np.zeros((2, N_ARMS))
    inverses, worths = np.zeros((2, N_ARMS)), np.zeros((2, N_ARMS))
    assert log.available is not None
    for t in range(log.n_rounds):
        context, arm = int(log.contexts[t]), int(log.arms[t])
        inclusion = log.propensities[t] * (log.decisions == log.decisions[t]).sum()  # type: ignore[attr-defined]
        inverses[context, arm] += 1 / inclusion
        worths[context, arm] += log.rewards[t] / inclusion
        if log.positions is not None and log.positions[t] == 1:
            visits[context] += 1
            mask = log.available.of_round(t)
            missing[context] += 0 if mask is None else ~mask
    assert cells.visits == pytest.approx(visits)
    assert cells.missing == pytest.approx(missing)
    assert cells.inverses == pytest.approx(inverses)
    assert cells.unit * cells.worths == pytest.approx(worths)


def test_the_fair_policy_is_the_capped_optimum() -> None:
    """Where every reward is known: all arms of a decision pay the mean of their context."""
    means = np.array([[0.9, 0.8, 0.1, 0.1, 0.1, 0.1], [0.1, 0.1, 0.1, 0.1, 0.5, 0.9]])
    log = made(3, 300)
    log = replace(log, rewards=means[log.contexts, log.arms])
    visits = np.bincount(log.contexts) / K
    for alpha in (0.5, 1.0):
        best = offline_optimum(visits[:, None] * means, alpha, k=K)
        table = fair_policy(log, alpha)
        assert table.sum(axis=1) == pytest.approx(np.ones(2))
        assert table.max() <= 1 / K + 1e-9
        accounts = 1.0 + (visits[:, None] * means * K * table).sum(axis=0)
        assert metrics.welfare(accounts, alpha) == pytest.approx(best.welfare, rel=2e-4)
    found = frontier(log, [0.0, 0.5], n_replicates=100)
    assert found.regrets == ()
    assert max(table.max() for table in found.distributions) <= 1 / K + 1e-9
    assert {*evaluate_all(log, {"fair": "fair", "logged": "logged"}, 0.5, n_replicates=100)} == {"fair", "logged"}


def test_tables_for_masked_slates_keep_the_cap() -> None:
    log = made(4, 300, masked=True)
    for table in (fair_policy(log, 0.5), logged_policy(log)):
        assert table.sum(axis=1) == pytest.approx(np.ones(2))
        assert table.max() <= 1 / K + 1e-9
    shown = np.zeros((2, N_ARMS))
    assert log.available is not None
    for t in range(log.n_rounds):  # restricted to what was available, it shows arms as often as the log
        mask, context = log.available.of_round(t), log.contexts[t]
        mask = np.ones(N_ARMS, dtype=bool) if mask is None else mask
        restricted = naive_slates.restrict(K * table[context], mask, K, 0.0)
        shown[context] += restricted / restricted.sum()
    counts = np.zeros((2, N_ARMS))
    np.add.at(counts, (log.contexts, log.arms), 1)
    assert shown == pytest.approx(counts, rel=0.02)


# learning


def test_a_warm_start_learns_slates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decision by decision, with propensities of slots of at least 1/(2n); and half of the decisions."""
    monkeypatch.setenv("ALPHAFAIR_JIT", "off")
    rng = np.random.default_rng(0)
    stream = Stream.from_arrays(rng.integers(0, 2, 60), rng.random((60, 4)))
    log = simulate(AlphaFairAdaptive(2, 4, alpha=0.5), stream, k=2, log=True).log
    assert log is not None
    by_hand = AlphaFairAdaptive(2, 4, alpha=0.5)
    for t in range(60):
        arms, p = log.arms[2 * t : 2 * t + 2], 2 * np.maximum(log.propensities[2 * t : 2 * t + 2], 1 / 8)
        slate = SlateDecision(int(log.contexts[2 * t]), tuple(arms.tolist()), tuple(np.minimum(p, 1)), None)  # type: ignore[arg-type]
        by_hand.update(slate, log.rewards[2 * t : 2 * t + 2])
    warm = warm_start(log, AlphaFairAdaptive, alpha=0.5)
    assert (warm.probabilities(0, k=2) == by_hand.probabilities(0, k=2)).all()
    assert (warm.accounts == by_hand.accounts).all()
    half = warm_start(log, AlphaFairAdaptive, alpha=0.5, weight=0.5)
    rows = (np.asarray(log.decisions) % 2 == 1).nonzero()[0]
    assert half.accounts == pytest.approx(1.0 + np.bincount(log.arms[rows], log.rewards[rows], minlength=4))


# tables


def exported(log: Log) -> pl.DataFrame:
    """As `alphafair export` writes decisions of several arms."""
    columns: dict[str, Any] = dict.fromkeys(EXPORTED_SLATES, pl.Series(["x"] * log.n_rounds))
    numbers = np.asarray(log.decisions)
    columns |= {"seq": numbers, "id": [f"d-{each}" for each in numbers], "context": [f"c{c}" for c in log.contexts]}
    columns |= {"arm": [f"a{arm}" for arm in log.arms], "propensity": log.propensities, "reward": log.rewards}
    columns |= {"slot": log.positions, "k": log.n_shown, "available": pl.Series([None] * log.n_rounds, dtype=pl.String)}
    return pl.DataFrame(columns)


@pytest.fixture(params=["csv", "parquet"])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / f"log.{request.param}"
    getattr(exported(made(6, 40)), f"write_{request.param}")(path)
    return path


def test_exported_files_are_recognized(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By `Log.from_table`, `LogFile`, in pieces that would cut decisions, and `doctor`."""
    log, read = made(6, 40), Log.from_table(file)
    assert read.n_decisions == 40
    assert read.n_shown.tolist() == [3] * 120
    assert read.positions is not None
    assert (read.positions == log.positions).all()
    for name in COLUMNS:
        assert (getattr(read, name) == getattr(log, name)).all()
    monkeypatch.setattr(log_rows, "PIECE", 7)
    opened = LogFile(file)
    assert opened.most_shown.tolist() == [3, 3]
    assert opened.n_rounds == 120
    pieces = list(opened.decisions())
    assert all(len(each.contexts) % 3 == 0 for each in pieces)
    assert sum(len(each.contexts) for each in pieces) == 120
    assert file.suffix == ".csv" or len(pieces) > 10
    uniform = np.full((2, N_ARMS), 1 / N_ARMS)
    ours, theirs = (evaluate(each, uniform, 0.5, n_replicates=100) for each in (read, opened))
    assert (ours.accounts == theirs.accounts).all()
    assert ours.welfare == theirs.welfare
    checked = doctor(file, id="id")
    assert checked.is_sound, checked
    assert "the rows of every decision agree, and show different arms" in [each.what for each in checked.findings]


def test_a_decision_that_waits_for_a_reward_is_left_out() -> None:
    table = exported(made(6, 40)).with_columns(
        pl.when(pl.col("seq") == 3, pl.col("slot") == 2).then(None).otherwise("reward").alias("reward")
    )
    log = Log.from_table(table, decision="id", position="slot")
    assert (log.n_decisions, log.n_rounds) == (39, 117)
    found = [each.what for each in doctor(table, decision="id").findings]
    assert "1 row has no reward yet; their decisions are left out, 3 rows in all" in found


def test_the_doctor_names_rows_that_disagree() -> None:
    table = exported(made(6, 40))
    arms, contexts, seq = table["arm"].to_list(), table["context"].to_list(), table["seq"].to_list()
    arms[4], seq[9:12] = arms[3], [0, 0, 0]
    contexts[7] = "c1" if contexts[6] == "c0" else "c0"
    changed = table.with_columns(pl.Series("arm", arms), pl.Series("context", contexts), pl.Series("seq", seq))
    found = [each.what for each in doctor(changed).findings if each.grade == "wrong"]
    assert len(found) == 3
    assert "1 row has a decision that came before, further up: source, row 9" in found
    assert "1 row has an arm that came before in its decision: source, row 4" in found
    assert "1 row has another context than the first of its decision: source, row 7" in found


def test_the_doctor_sees_probabilities_of_slates_in_place_of_slots() -> None:
    log = made(7, 3000)
    assert doctor(log).is_sound
    whole = doctor(replace(log, propensities=np.minimum(1.0, 3 * log.propensities)))
    assert not whole.is_sound
    assert whole.inverse_propensities is not None
    assert whole.inverse_propensities.means == pytest.approx(np.full(N_ARMS, 1 / 3), rel=0.1)


def test_open_bandit_as_published() -> None:
    """One row per slot, by `position`; the numbers are those of the estimators of obp, written out.

    V = mean(r pi(a | slot)/p), and for the self-normalized one divided by the mean of pi(a | slot)/p.
    """
    columns = {"context": "position", "arm": "item_id", "reward": "click", "propensity": "propensity_score"}
    logs = [Log.from_table(DATA / f"open-bandit-men-{name}.parquet", **columns) for name in ("random", "bts")]
    log, policy = logs[0], logged_policy(logs[1])
    weights = policy[log.contexts, log.arms] / log.propensities
    for estimator, value in (
        ("ips", float((log.rewards * weights).mean())),
        ("snips", float((log.rewards * weights).sum() / weights.sum())),
    ):
        found = evaluate(log, policy, 0.5, estimator=estimator, n_replicates=100)
        assert found.reward_per_round.value == pytest.approx(value, rel=1e-9)


class Published:
    """The estimators of obp 0.4.1, from their formulas; as there, weights are pi(a)/pscore at the slot of a round."""

    class InverseProbabilityWeighting:
        def estimate_policy_value(self, **given: Any) -> float:
            reward, weights, _, _ = self.parts(**given)
            return float((weights * reward).mean())

        def parts(self, reward: Any, action: Any, pscore: Any, action_dist: Any, **model: Any) -> Any:
            rows, chosen = np.arange(len(reward)), action_dist[:, :, 0]
            (q,) = (each[:, :, 0] for each in model.values())
            return reward, chosen[rows, action] / pscore, (chosen * q).sum(axis=1), q[rows, action]

    class SelfNormalizedInverseProbabilityWeighting(InverseProbabilityWeighting):
        def estimate_policy_value(self, **given: Any) -> float:
            reward, weights, _, _ = self.parts(**given)
            return float((weights * reward / weights.mean()).mean())

    class DoublyRobust(InverseProbabilityWeighting):
        def estimate_policy_value(self, **given: Any) -> float:
            reward, weights, expected, factual = self.parts(**given)
            return float((expected + weights * (reward - factual)).mean())


@pytest.mark.parametrize(("own", "other"), [("random", "bts"), ("bts", "random")])
def test_the_numbers_of_obp(own: str, other: str) -> None:
    """What `python -m benchmarks.compare_obp` compares with the package itself: ips, snips and dr, of three slots."""
    logs = {
        name: Log.from_table(DATA / f"open-bandit-men-{name}.parquet", **compare_obp.COLUMNS) for name in (own, other)
    }
    assert logs[own].n_contexts == 3
    found = list(compare_obp.compared(Published, logs[own], logged_policy(logs[other])))
    assert [name for name, _, _ in found] == ["ips", "snips", "dr"]
    for _, ours, theirs in found:
        assert ours == pytest.approx(theirs, rel=compare_obp.AGREEMENT)
    assert len({round(ours, 9) for _, ours, _ in found}) == 3
