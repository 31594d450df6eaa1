"""The arena: every share recomputed with plain NumPy from its tables, and some contenders from scratch."""

from __future__ import annotations

import io
import json
import math
import shutil
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from rich.console import Console
from scipy import stats
from typer.testing import CliRunner

from alphafair import offline_optimum, simulate, streams
from alphafair.algorithms import POLICIES
from alphafair.cli import app
from alphafair.cli.arena import _print_shares
from alphafair.lab import arena, captions, charts, paper, runner
from alphafair.lab.plan import Contender, Experiment, Generated, Plan, settings_by_policy
from alphafair.lab.report import shares_table
from alphafair.lab.results import ArenaResults, Score, plain
from alphafair.lab.rivals import TUNABLE
from alphafair.lab.rivals.one_by_one import simulate_one_by_one
from alphafair.lab.runner import Run, run_plan
from alphafair.values import Adversary, Feedback, Stream
from tests import naive, naive_adaptive, naive_adversaries
from tests.read_results import as_value
from tests.smoke import smoke_run

pytestmark = pytest.mark.compiled


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The smoke version, as the command writes it: its folder, and what it prints."""
    return smoke_run("arena", tmp_path_factory)


@pytest.fixture(scope="module")
def results(made: tuple[Path, str]) -> ArenaResults:
    found: ArenaResults = as_value(ArenaResults, json.loads((made[0] / "results.json").read_text(encoding="utf-8")))
    return found


def tables(folder: Path, experiment: Experiment) -> list[pl.DataFrame]:
    """By seed."""
    (home,) = (folder / "runs").glob(f"{experiment.name}-{12 * '[0-9a-f]'}")
    return [pl.read_parquet(home / f"seed-{seed}.parquet") for seed in range(experiment.n_seeds)]


def run(experiment: Experiment, folder: Path) -> Run:
    (found,) = run_plan(Plan((experiment,)), folder)
    return found


SMOKE = {each.name.removeprefix("arena-"): each for each in arena.SCENARIOS.smoke()}


def rounds(experiment: Experiment, seed: int) -> Any:
    assert isinstance(experiment.rounds, Generated)
    return experiment.rounds.make(seed)


def test_the_reports_plan_is_a_part_of_all() -> None:
    """Five of 20 seeds, with bandit feedback at the paper's alpha, adversaries among them."""
    names = {each.name: each for each in arena.SCENARIOS}
    for short in arena.SHORT:
        whole = names[short.name]
        assert replace(short, n_seeds=20, contenders=whole.contenders, alphas=whole.alphas, tuned=whole.tuned) == whole
        assert (short.n_seeds, short.delay, short.contenders, short.alphas) == (5, None, arena.BANDIT, (0.9,))
    assert len(arena.SHORT.experiments) == len(arena.SHORT.smoke().experiments) == 14
    assert sum("adversary" in repr(each.rounds) for each in arena.SHORT) == 3


def test_every_policy_is_in_every_scenario(results: ArenaResults) -> None:
    """Every registered policy, with every feedback that it supports, and the rivals."""
    kinds = {(kind.name, each) for kind in POLICIES.values() for each in kind.traits.feedbacks or (kind.feedback,)}
    kinds |= {("optimistic-frank-wolfe", Feedback.BANDIT), ("guaranteed-learner", Feedback.BANDIT)}
    assert [each.name for each in results.matches] == [*SMOKE]
    for match in results.matches:
        for alpha in arena.ALPHAS:
            scores = [score for score in match.scores if score.alpha == alpha]
            assert {(score.policy, score.feedback) for score in scores} == kinds
            assert len(scores) == len(kinds)


def test_every_decision_shows_a_slate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`alphafair arena --k 3` on one scenario: a policy of slates, one that draws one by one, a rival, uniform play."""
    (plan,) = (each for each in arena.slate_scenarios(3) if each.name == "arena-short-3")
    contenders = (arena.ADAPTIVE, arena.ONE_BY_ONE, arena.ADAPTIVE_FULL, paper.UNIFORM)
    rounds = Generated("stationary", (("n_rounds", 150), ("n_contexts", 2), ("n_arms", 10)))
    plan = replace(plan, rounds=rounds, contenders=contenders, tuned=arena.SLATE_TUNED[6:8], alphas=(0.5,), n_seeds=2)
    monkeypatch.setattr(arena, "slate_scenarios", lambda k: Plan((plan,)))
    monkeypatch.setattr(runner, "compile_plan", lambda *given, **options: None)
    monkeypatch.setenv("ALPHAFAIR_JIT", "off")
    options = ["--k", "3", "--workers", "1", "--output", str(tmp_path)]
    answer = CliRunner().invoke(app, ["arena", *options], env={"COLUMNS": "160"})
    assert answer.exit_code == 0, answer.output
    assert "of slates of 3" in answer.stdout
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "alphafair arena --k 3" in page
    assert ", 3 arms in every decision" in page
    assert "Against adversaries" not in page
    stream, table = plan.rounds.make(1), tables(tmp_path, plan)[1]  # type: ignore[union-attr]
    assert isinstance(stream, Stream)
    totals = naive.context_reward_totals(stream.contexts.tolist(), stream.reward_table[stream.items], 2)
    best = offline_optimum(totals, 0.5, k=3)
    for contender in plan.players:
        mine = row(table, contender, 0.5)
        np.testing.assert_allclose(mine["uniform"], 1 + 3 * totals.sum(axis=0) / 10)
        assert mine["optimum"] == best.value
        policy = contender.make(stream, 0.5)
        if contender is arena.ONE_BY_ONE:
            played = simulate_one_by_one(policy, stream, 3, seed=1)
        else:
            played = simulate(policy, stream, seed=1, k=3)
        assert mine["accounts"].tolist() == played.final.tolist()
    (match,) = as_value(ArenaResults, json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))).matches
    shares = {(score.label, score.feedback): score.gap_closed.value for score in match.scores}
    assert shares["adaptive", "bandit"] > shares["drawn one by one", "bandit"]
    assert shares["uniform", "full"] == pytest.approx(0.0, abs=1e-9)


def test_the_plan_of_slates() -> None:
    plan = arena.slate_scenarios(5)
    assert {each.k for each in plan} == {each.k for each in plan.smoke()} == {5}
    assert [each.n_seeds for each in plan] == [40, 12, 12, 12, 12, 24, 12]
    assert {policy for each in plan for policy in settings_by_policy(each.tuned)} == {
        "fair-epsilon-greedy",
        "fair-ucb",
        "fair-thompson",
    }
    answer = CliRunner().invoke(app, ["arena", "--k", "0"])
    assert answer.exit_code != 0
    assert "--k must be an integer of at least 1; got 0" in answer.output


def test_the_full_plan() -> None:
    sources = [each.rounds for each in arena.SCENARIOS if isinstance(each.rounds, Generated)]
    others = {each.name: each.n_seeds for each in arena.SCENARIOS if each.n_seeds != 20}
    large = dict.fromkeys(("arena-stationary-large", "arena-hundred-arms", "arena-forty-arms"), 10)
    assert others == {"arena-short": 100, **large}
    kinds = {dict(source.settings)["kind"] for source in sources if source.maker == "adversary"}
    assert kinds == {"settled", "largest", "halving"}
    assert [source.n_first for source in sources[:3]] == [5000, 20000, None]
    assert [each.n_seeds for each in arena.SCENARIOS.with_seeds(2)] == [2] * 25
    assert len({*arena.SCENARIOS.smoke(), *arena.SCENARIOS.smoke().with_seeds(2)}) == 50


@pytest.mark.parametrize("name", SMOKE)
def test_shares_are_those_of_the_tables(name: str, made: tuple[Path, str], results: ArenaResults) -> None:
    """(phi(R) - phi(uniform)) / (OPT - phi(uniform)) by seed; mean and Student's interval by SciPy."""
    experiment = SMOKE[name]
    (match,) = (each for each in results.matches if each.name == name)
    by_seed = [
        {(each["contender"], each["alpha"]): each for each in table.to_dicts()} for table in tables(made[0], experiment)
    ]
    scores = {(score.alpha, score.label, score.feedback): score for score in match.scores}
    assert len(scores) == len(experiment.contenders) * len(experiment.alphas)
    for contender in experiment.contenders:
        feedback = contender.feedback.value
        for alpha in experiment.alphas:
            closed, performance = [], []
            for parts in by_seed:
                mine = parts[contender.key, alpha]
                got, low = (
                    float((np.array(mine[name]) ** (1 - alpha) / (1 - alpha)).sum()) for name in ("accounts", "uniform")
                )
                closed.append((got - low) / (mine["optimum"] - low))
                performance.append(got)
            score = scores[alpha, contender.label, feedback]
            assert score.n_seeds == len(closed) == 3
            for found, samples in ((score.gap_closed, closed), (score.alpha_performance, performance)):
                half = 0.0
                if len(samples) > 1:
                    half = float(stats.t.ppf(0.975, len(samples) - 1) * np.std(samples, ddof=1) / len(samples) ** 0.5)
                expected = [np.mean(samples), np.mean(samples) - half, np.mean(samples) + half]
                np.testing.assert_allclose([found.value, found.low, found.high], expected, rtol=1e-9, atol=1e-9)
    uniform = next(score for score in match.scores if (score.policy, score.feedback) == ("uniform", "full"))
    assert math.isclose(uniform.gap_closed.value, 0.0, abs_tol=1e-7)


def test_shares_with_features_are_of_the_policy_that_knows_every_mean(
    made: tuple[Path, str], results: ArenaResults
) -> None:
    """Played again from the means."""
    plan = arena.FEATURE_SCENARIOS.smoke()
    assert [f"arena-{each.name}" for each in results.with_features] == [each.name for each in plan]
    for experiment, match in zip(plan, results.with_features, strict=True):
        assert isinstance(experiment.rounds, Generated)
        means = streams.described_means(**dict(experiment.rounds.settings), seed=1)
        stream, alpha = rounds(experiment, 1), 0.9
        assert stream.n_contexts == 32
        earned = np.ones(10)
        for mean, reward in zip(means, stream.reward_table, strict=True):
            arm = int(np.argmax(mean / earned**alpha))
            earned[arm] += reward[arm]
        mine = row(tables(made[0], experiment)[1], experiment.contenders[0], alpha)
        assert mine["optimum"] == pytest.approx(float((earned**0.1).sum() / 0.1), rel=1e-9)
        np.testing.assert_allclose(mine["uniform"], 1 + stream.reward_table.sum(axis=0) / 10, rtol=1e-12)
        assert [(score.label, score.feedback) for score in match.scores[:4]] == [
            (contender.label, dict(contender.settings)["feedback"]) for contender in experiment.contenders
        ]


def row(table: pl.DataFrame, contender: Contender, alpha: float) -> dict[str, Any]:
    """What a seed's table says of one of them: numbers, and arrays per arm."""
    (found,) = table.filter((pl.col("contender") == contender.key) & (pl.col("alpha") == alpha)).to_dicts()
    return {name: np.array(value) if isinstance(value, list) else value for name, value in found.items()}


@pytest.mark.parametrize("alpha", arena.ALPHAS)
@pytest.mark.parametrize("name", ["stationary-small", "clicks-one-best"])
def test_two_contenders_from_scratch(name: str, alpha: float, made: tuple[Path, str]) -> None:
    """Naive policies on the same rounds with the same draws; uniform play and the optimum from the rounds."""
    match = SMOKE[name]
    stream, table = rounds(match, 1), tables(made[0], match)[1]
    assert isinstance(stream, Stream)
    m, n, contexts = stream.n_contexts, stream.n_arms, stream.contexts.tolist()
    rewards = stream.reward_table[stream.items]
    uniforms = np.random.default_rng(1).random(stream.n_rounds)
    totals = naive.context_reward_totals(contexts, rewards, m)
    _, best, gap = naive.offline_optimum(totals, alpha)
    for contender, oracle, feedback in (
        (arena.RIVAL, naive_adversaries.OptimisticFrankWolfe(m, n, alpha=alpha), "bandit"),
        (arena.FULL[1], naive.AlphaFair(m, n, alpha=alpha), "full"),
    ):
        _, _, earned = naive.play(oracle, contexts, rewards, uniforms, feedback)  # type: ignore[arg-type]
        mine = row(table, contender, alpha)
        np.testing.assert_allclose(mine["accounts"], earned, rtol=1e-9)
        np.testing.assert_allclose(mine["uniform"], 1 + rewards.sum(axis=0) / n, rtol=1e-12)
        assert mine["optimum"] == pytest.approx(best, abs=gap + mine["gap"])


def test_the_guaranteed_learner_alone_from_scratch(made: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The naive mixture with a least share of 1 is its guaranteed learner alone."""
    monkeypatch.setattr(naive_adaptive, "KAPPA", 1.0)
    match = SMOKE["drift-fast"]
    stream, table = rounds(match, 2), tables(made[0], match)[2]
    assert isinstance(stream, Stream)
    uniforms = np.random.default_rng(2).random(stream.n_rounds)
    for alpha in arena.ALPHAS:
        oracle = naive_adaptive.AlphaFairAdaptive(stream.n_contexts, stream.n_arms, alpha=alpha)
        rewards = stream.reward_table[stream.items]
        _, _, earned = naive.play(oracle, stream.contexts.tolist(), rewards, uniforms, "bandit")
        mine, mixed = (row(table, contender, alpha)["accounts"] for contender in (arena.GUARANTEED, arena.ADAPTIVE))
        np.testing.assert_allclose(mine, earned, rtol=1e-9)
        assert not np.array_equal(mine, mixed)


def test_an_adversary_from_scratch(made: tuple[Path, str]) -> None:
    """Every contender's limits are those of the rounds that it met itself."""
    match = SMOKE["largest"]
    adversary, table, alpha = rounds(match, 2), tables(made[0], match)[2], 0.5
    assert isinstance(adversary, Adversary)
    stream = adversary.stream
    m, n, contexts = stream.n_contexts, stream.n_arms, stream.contexts.tolist()
    uniforms = np.random.default_rng(2).random(stream.n_rounds)
    for contender, oracle, full in (
        (paper.ALPHA_FAIR_BANDIT, naive.AlphaFairBandit(m, n, alpha=alpha), False),
        (arena.FULL[1], naive.AlphaFair(m, n, alpha=alpha), True),
        (arena.FULL[-1], naive.Uniform(m, n), True),
    ):
        slow = naive_adversaries.Largest(stream.reward_table)
        earned, paid = naive_adversaries.face(oracle, slow, contexts, uniforms, full=full)
        _, best, gap = naive.offline_optimum(naive.context_reward_totals(contexts, paid, m), alpha)
        mine = row(table, contender, alpha)
        np.testing.assert_allclose(mine["accounts"], earned, rtol=1e-9)
        np.testing.assert_allclose(mine["uniform"], 1 + paid.sum(axis=0) / n, rtol=1e-9)
        assert mine["optimum"] == pytest.approx(best, abs=gap + mine["gap"])


def test_every_rival_has_its_settings() -> None:
    """Every tunable rival of the lab, each setting once; the one for features where there are features."""
    for plan, kinds in ((arena.SCENARIOS, TUNABLE[:-1]), (arena.FEATURE_SCENARIOS, TUNABLE)):
        for experiment in plan:
            found = settings_by_policy(experiment.tuned)
            assert [*found] == [kind.name for kind in kinds]
            assert [len(settings) for settings in found.values()] == [6, 6, 10, 6, 7][: len(kinds)]
            assert len({each.key for each in experiment.tuned}) == len(experiment.tuned)
            assert len({each.label for each in experiment.tuned}) == len(experiment.tuned)
            assert [len(each) for each in settings_by_policy(experiment.smoke().tuned).values()] == [2] * len(kinds)
    assert arena.TUNED[0].label == "\u03b5-greedy: \u03b5 0.01, prior 2"
    assert arena.SHORT.experiments[0].tuned == ()


TUNED_PARTS = [
    ("matches", arena.SCENARIOS.smoke()),
    ("with_features", arena.FEATURE_SCENARIOS.smoke()),
    ("steep", arena.STEEP_SCENARIOS.smoke()),
]


@pytest.mark.parametrize(("part", "plan"), TUNED_PARTS, ids=[part for part, _ in TUNED_PARTS])
def test_tuned_rivals_are_the_best_of_their_settings(
    part: str, plan: Plan, made: tuple[Path, str], results: ArenaResults
) -> None:
    """Shares of every setting from the tables; the best is shown, with the lead of the first contender by seed."""
    for experiment, match in zip(plan, getattr(results, part), strict=True):
        by_seed = tables(made[0], experiment)

        def closed(contender: Contender, alpha: float, by_seed: list[pl.DataFrame] = by_seed) -> Any:
            found = []
            for table in by_seed:
                mine = row(table, contender, alpha)
                if alpha >= 1.0:
                    got, low = (power_mean(mine[name], alpha) for name in ("accounts", "uniform"))
                else:
                    got, low = ((mine[name] ** (1 - alpha)).sum() / (1 - alpha) for name in ("accounts", "uniform"))
                found.append((got - low) / (mine["optimum"] - low))
            return np.array(found)

        assert [(each.policy, each.alpha) for each in match.tuned] == [
            (policy, alpha) for alpha in match.alphas for policy in settings_by_policy(experiment.tuned)
        ]
        for shown in match.tuned:
            settings = [each for each in experiment.tuned if each.policy == shown.policy]
            shares = {each.label: closed(each, shown.alpha) for each in settings}
            best = max(shares, key=lambda label: shares[label].mean())
            assert (f"{shown.label}: {shown.setting}", shown.n_settings) == (best, len(settings))
            assert shown.gap_closed.value == pytest.approx(shares[best].mean(), rel=1e-7, abs=1e-9)
            lead = closed(experiment.contenders[0], shown.alpha) - shares[best]
            half = stats.t.ppf(0.975, 2) * np.std(lead, ddof=1) / 3**0.5
            np.testing.assert_allclose(shown.lead, lead.mean() + half * np.array([0, -1, 1]), rtol=1e-6, atol=1e-9)
        for alpha in match.alphas:
            top = match.best_tuned(alpha)
            assert top.gap_closed.value == max(each.gap_closed.value for each in match.tuned_at(alpha))
            assert match.beside_tuned().of("bandit", alpha) == [match.of("bandit", alpha)[0], *match.tuned_at(alpha)]


def test_tuned_rivals_are_shown_with_their_settings(made: tuple[Path, str], results: ArenaResults) -> None:
    folder, printed = made
    page = (folder / "index.html").read_text(encoding="utf-8")
    assert "tuned in hindsight on these very seeds" in page
    assert "rivals tuned in hindsight" in printed
    assert "best of 2" in page
    match = results.matches[3]
    for each in match.tuned_at(0.9):
        assert f"({each.setting})" in page
    assert captions.tuned(results.matches) in page
    bests = [match.best_tuned(alpha) for match in results.matches for alpha in match.alphas]
    counts = [sum(best.lead.low > 0 for best in bests), sum(best.lead.high < 0 for best in bests)]
    assert f"Of {len(bests)} pairs" in captions.tuned(results.matches)
    assert f"rival in {counts[0]}, behind it in {counts[1]}," in captions.tuned(results.matches)


def test_the_chart_of_tuned_rivals_says_how_they_were_chosen(results: ArenaResults) -> None:
    """Which settings, how many seeds, and a mark for every rival in every scenario."""
    first, *others = results.matches
    longer = replace(first, seeds=tuple(range(7)))
    figure = charts.tuned([longer, *others], "title", alphas=(0.5,))
    notes = " ".join(figure.texts[1].get_text().split())
    assert "tuned in hindsight on these very seeds" in notes
    assert f"95% confidence over 3 seeds; {first.title}: 7" in notes
    (axes,) = figure.axes
    marks = [line.get_gid() for line in axes.lines if line.get_gid()]
    labels = ["adaptive", *(each.label for each in first.tuned_at(0.5))]
    assert Counter(marks) == {label: len(results.matches) for label in labels}


def test_promises_are_leads_of_the_tables(made: tuple[Path, str], results: ArenaResults) -> None:
    """Where an adversary plays, and nowhere else: by seed, with Bonferroni's interval of six by SciPy."""
    for experiment, match in zip(SMOKE.values(), results.matches, strict=True):
        if "adversary" not in repr(experiment.rounds):
            assert match.promises == {}
            continue
        leads = iter(match.promises.items())
        for alpha in arena.ALPHAS:
            closed = {}
            for contender in (arena.ADAPTIVE, arena.GUARANTEED, paper.ALPHA_FAIR_BANDIT):
                parts = [row(table, contender, alpha) for table in tables(made[0], experiment)]
                worth = [
                    [(mine[c] ** (1 - alpha) / (1 - alpha)).sum() for c in ("accounts", "uniform")] for mine in parts
                ]
                best = [mine["optimum"] for mine in parts]
                closed[contender] = np.array([(a - u) / (o - u) for (a, u), o in zip(worth, best, strict=True)])
            for other, margin in ((arena.GUARANTEED, 0.05), (paper.ALPHA_FAIR_BANDIT, 0.0)):
                ahead = closed[arena.ADAPTIVE] - closed[other] + margin
                half = stats.t.ppf(1 - 0.025 / 6, 2) * np.std(ahead, ddof=1) / 3**0.5
                what, lead = next(leads)
                assert what.startswith(f"above {other.label}")
                np.testing.assert_allclose(lead, ahead.mean() + half * np.array([0, -1, 1]), rtol=1e-7, atol=1e-9)
        assert next(leads, None) is None


def test_without_scikit_learn_rounds_with_features_are_left_out(
    made: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a base install: it cannot be imported, and all other scenarios are there."""
    monkeypatch.setitem(sys.modules, "sklearn", None)
    monkeypatch.setattr(arena, "find_spec", lambda name: None)
    folder = tmp_path / "base"
    shutil.copytree(made[0], folder)
    for path in folder.glob("runs/arena-described-*"):
        shutil.rmtree(path)
    answer = CliRunner().invoke(app, ["arena", "--smoke", "--output", str(folder)], env={"COLUMNS": "160"})
    assert answer.exit_code == 0, answer.output
    assert "Rounds with features need scikit-learn and are left out" in answer.stdout
    assert json.loads((folder / "results.json").read_text(encoding="utf-8"))["with_features"] == []
    page = (folder / "index.html").read_text(encoding="utf-8")
    assert 'id="features"' not in page
    assert "#features" not in page


def test_a_policy_that_does_not_depend_on_alpha_runs_once(made: tuple[Path, str]) -> None:
    match = SMOKE["stationary-small"]
    table = tables(made[0], match)[0]
    for contender in match.contenders:
        same = np.array_equal(*(row(table, contender, alpha)["accounts"] for alpha in (0.5, 0.9)))
        if contender.policy != "optimistic-frank-wolfe":  # in 400 rounds it has only begun to tell arms apart
            assert same == (contender.policy in ("fair-cb", "hedge", "scale-free", "uniform"))


def test_a_second_run_reuses_everything_and_writes_the_same(made: tuple[Path, str], tmp_path: Path) -> None:
    folder = shutil.copytree(made[0], tmp_path / "again")
    files = [path for path in folder.rglob("*") if path.is_file()]
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in files}
    told: dict[str, int] = {}

    def progress(title: str, total: int) -> Any:
        return lambda done: told.update({title: told.get(title, 0) + done})

    again = arena.write_arena(folder, smoke=True, command="alphafair arena --smoke", progress=progress)
    assert "Compiling" not in told
    more = (arena.FEATURE_SCENARIOS, arena.STEEP_SCENARIOS, arena.DYING_SCENARIOS)
    titles = Counter(each.title for plan in (SMOKE.values(), *(each.smoke() for each in more)) for each in plan)
    assert told == {title: 3 * count for title, count in titles.items()}
    assert plain(again) == json.loads((folder / "results.json").read_text(encoding="utf-8"))
    for path, (content, written) in before.items():
        assert path.read_bytes() == content, path
        assert path.suffix != ".parquet" or path.stat().st_mtime_ns == written, path


def test_page_and_terminal_show_the_numbers(made: tuple[Path, str], results: ArenaResults) -> None:
    folder, printed = made
    page = (folder / "index.html").read_text(encoding="utf-8")
    for match in (*results.matches, *results.with_features, *results.steep, *results.dying):
        assert match.title in printed
        assert f'<th scope="row">{match.title}</th>' in page
        assert match.digest in page
    promises = [what for match in results.matches for what in match.promises]
    best: Score = results.matches[3].of("full", 0.5)[0]
    text = f"{100 * best.gap_closed.value:.0f} \u00b1{50 * (best.gap_closed.high - best.gap_closed.low):.0f}"
    assert text in printed
    n_shares = 3 * (13 * len(results.matches) + 4 * len(results.with_features))
    n_shares += 4 * 13 * len(results.steep) + (13 + 2) * len(results.dying)
    n_shares += 3 * (6 * len(results.matches) + 7 * len(results.with_features)) + 4 * 6 * len(results.steep)  # tuned
    n_sizes = 4 * sum(map(len, (results.matches, results.with_features, results.steep, results.dying)))
    assert page.count('<td class="n"') == n_shares + n_sizes + len(promises)
    assert "alphafair arena --smoke" in page
    figures = {f"{name}.{end}" for name in ("gap-closed", "tuned") for end in ("png", "svg", "pdf")}
    assert {path.name for path in (folder / "figures").iterdir()} == figures


def power_mean(accounts: Any, alpha: float) -> float:
    """The welfare of equal arms, from its definition."""
    values = np.array(accounts)
    if alpha == math.inf:
        return float(values.min())
    if alpha == 1.0:
        return float(np.exp(np.log(values).mean()))
    return float((values ** (1.0 - alpha)).mean() ** (1.0 / (1.0 - alpha)))


def test_from_alpha_1_on_shares_are_of_welfare(made: tuple[Path, str], results: ArenaResults) -> None:
    """Recomputed from the tables; the optimum is above uniform play, and its welfare does not rise with alpha."""
    assert [match.name for match in results.steep] == [f"steep-{name}" for name in arena.STEEP]
    for experiment, match in zip(arena.STEEP_SCENARIOS.smoke(), results.steep, strict=True):
        assert match.alphas == (1.0, 2.0, 5.0, math.inf)
        assert match.bound is None
        for score in match.scores:
            (contender,) = (
                each
                for each in experiment.contenders
                if (each.label, each.feedback.value) == (score.label, score.feedback)
            )
            parts = [row(table, contender, score.alpha) for table in tables(made[0], experiment)]
            got = np.array([power_mean(each["accounts"], score.alpha) for each in parts])
            low = np.array([power_mean(each["uniform"], score.alpha) for each in parts])
            best = np.array([each["optimum"] for each in parts])
            assert (best > low).all()
            assert score.alpha_performance is None
            assert score.shown.value == pytest.approx(got.mean(), rel=1e-9)
            assert score.welfare_ratio.value == pytest.approx((best / got).mean(), rel=1e-9)
            assert score.gap_closed.value == pytest.approx(((got - low) / (best - low)).mean(), rel=1e-9, abs=1e-9)


def test_dying_arms_are_shown_with_the_bound_for_every_policy(made: tuple[Path, str], results: ArenaResults) -> None:
    folder, printed = made
    page = (folder / "index.html").read_text(encoding="utf-8")
    assert "no policy below" in page
    assert [match.alphas for match in results.dying] == [(1.0,), (2.0,), (5.0,), (math.inf,)]
    for match in results.dying:
        (alpha,) = match.alphas
        bound = streams.dying_arms_bound(10, 400, alpha=alpha)
        assert match.bound == pytest.approx(bound)
        assert f"{bound:.3f}" in printed
        assert f"{bound:.3f}" in page
        for score in match.of("full", alpha):  # expected accounts: the bound holds for each order, since arms are alike
            assert score.welfare_ratio.value > bound * (1.0 - 1e-9)


@pytest.mark.parametrize("alpha", [1.0, 5.0, math.inf])
def test_frank_wolfe_from_alpha_1_on(alpha: float, made: tuple[Path, str]) -> None:
    """The naive policy on the same rounds; infinity is played as 16."""
    experiment = next(each for each in arena.STEEP_SCENARIOS.smoke() if each.name.endswith("stationary-small"))
    stream = rounds(experiment, 1)
    uniforms = np.random.default_rng(1).random(stream.n_rounds)
    oracle = naive_adversaries.OptimisticFrankWolfe(stream.n_contexts, stream.n_arms, alpha=min(alpha, 16.0))
    rewards = stream.reward_table[stream.items]
    _, _, earned = naive.play(oracle, stream.contexts.tolist(), rewards, uniforms, "bandit")
    mine = row(tables(made[0], experiment)[1], arena.RIVAL, alpha)
    np.testing.assert_allclose(mine["accounts"], earned, rtol=1e-9)


def test_one_seed_decides_no_promise(tmp_path: Path) -> None:
    assert arena.match(run(replace(SMOKE["largest"], n_seeds=1), tmp_path)).promises == {}


def test_no_gap_if_there_is_nothing_to_learn(tmp_path: Path) -> None:
    """One arm: the optimum is uniform play."""
    source = Generated("stationary", (("n_rounds", 50), ("n_contexts", 2), ("n_arms", 1)))
    experiment = Experiment("arena-one", "one arm", source, (arena.ADAPTIVE,), (0.5,), n_seeds=2, n_records=1)
    match = arena.match(run(experiment, tmp_path))
    (score,) = match.scores
    assert (match.name, score.gap_closed, score.n_seeds) == ("one", None, 2)
    assert "gap_closed" not in plain(match)["scores"][0]
    figure = charts.arena([match], "title", alphas=(0.5,))
    assert "no gap to close" in [text.get_text() for axes in figure.axes for text in axes.texts]
    console = Console(record=True, width=200, file=io.StringIO())
    _print_shares(console, ArenaResults("", {}, (0.5,), (match,), ()))
    assert "no gap" in console.export_text()
    assert shares_table([match], "bandit", 0.5).rows[0].cells[1].text == "no gap"
    assert captions.tuned([match]).startswith("Of 0 pairs")
    assert captions.arena([match]) == "Adaptive closes the largest share in 0 of 1 scenarios."


@pytest.mark.parametrize("option", ["--workers", "--seeds"])
def test_refusals(option: str) -> None:
    answer = CliRunner().invoke(app, ["arena", option, "0"])
    assert answer.exit_code == 2
    assert f"{option} must be an integer of at least 1; got 0" in answer.output


def test_ratings_are_the_first_by_time() -> None:
    stream = rounds(arena.SCENARIOS.experiments[0], 7)
    assert np.array_equal(stream.items, streams.movielens_small().items[:5000])


def test_ratings_are_made_and_solved_once(tmp_path: Path) -> None:
    """The same rounds for every seed: full information has one seed, and the optimum is found once for each alpha.

    Each number is recomputed with the naive policies.
    """
    source, contenders = Generated("movielens_small", n_first=100), (paper.ALPHA_FAIR, paper.ALPHA_FAIR_BANDIT)
    experiment = Experiment("arena-few", "few", source, contenders, (0.0, 0.5), n_seeds=3, n_records=1)
    found = run(experiment, tmp_path)
    assert sum(name.startswith("optimum") for name in found.tables) == 2
    stream, rewards = found.stream, found.stream.reward_table[found.stream.items]
    m, n, contexts = stream.n_contexts, stream.n_arms, stream.contexts.tolist()
    totals = naive.context_reward_totals(contexts, rewards, m)
    for score in arena.match(found).scores:
        alpha, full = score.alpha, score.feedback == "full"
        oracle = naive.AlphaFair if full else naive.AlphaFairBandit
        ends = []
        for seed in range(1 if full else 3):
            uniforms = np.random.default_rng(seed).random(100)
            _, _, earned = naive.play(oracle(m, n, alpha=alpha), contexts, rewards, uniforms, score.feedback)  # type: ignore[arg-type]
            ends.append(naive.alpha_performance(earned, alpha))
        uniform = naive.alpha_performance(1 + rewards.sum(axis=0) / n, alpha)
        _, best, _ = naive.offline_optimum(totals[totals.any(axis=1)], alpha)
        assert score.n_seeds == len(ends)
        assert score.alpha_performance.value == pytest.approx(np.mean(ends), rel=1e-9)
        assert score.gap_closed is not None
        assert score.gap_closed.value == pytest.approx((np.mean(ends) - uniform) / (best - uniform), rel=1e-6)
