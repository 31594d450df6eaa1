"""The arena: every share recomputed with plain NumPy from its tables, and some contenders from scratch."""

from __future__ import annotations

import io
import json
import math
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from rich.console import Console
from scipy import stats
from typer.testing import CliRunner

from alphafair import streams
from alphafair.algorithms import POLICIES
from alphafair.cli import app
from alphafair.cli.arena import _print_shares
from alphafair.lab import arena, courses, paper
from alphafair.lab.experiment import Contender
from alphafair.lab.match import Course, Match
from alphafair.lab.pictures.arena import picture
from alphafair.lab.report import environment
from alphafair.lab.results import Arena, Score
from alphafair.lab.run import run
from alphafair.lab.serialize import plain
from alphafair.values import Adversary, Feedback, Stream
from tests import naive, naive_adaptive, naive_adversaries
from tests.read_results import as_value

pytestmark = pytest.mark.compiled


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The smoke version, as the command writes it: its folder, and what it prints."""
    folder = tmp_path_factory.mktemp("arena")
    answer = CliRunner().invoke(app, ["arena", "--smoke", "--output", str(folder)], env={"COLUMNS": "160"})
    assert answer.exit_code == 0, answer.output
    return folder, answer.stdout


@pytest.fixture(scope="module")
def results(made: tuple[Path, str]) -> Arena:
    found: Arena = as_value(Arena, json.loads((made[0] / "results.json").read_text(encoding="utf-8")))
    return found


def tables(folder: Path, match: Match) -> list[pl.DataFrame]:
    """By seed."""
    home = folder / "runs" / f"{match.work.name}-{match.work.digest}"
    return [pl.read_parquet(home / f"seed-{seed}.parquet") for seed in range(match.course.n_seeds)]


def test_the_reports_plan_is_a_part_of_all() -> None:
    """Five seeds of what 20 are played of, with bandit feedback at the paper's alpha, adversaries among them."""
    for match in arena.short_plan():
        course = match.course
        assert replace(course, n_seeds=20) in courses.COURSES
        assert (course.n_seeds, course.delay, match.contenders, match.alphas) == (5, None, courses.BANDIT, (0.9,))
    assert len(arena.short_plan()) == len(arena.short_plan(smoke=True)) == 14
    assert sum(match.course.maker == "adversary" for match in arena.short_plan()) == 3


def test_everybody_plays_everywhere(results: Arena) -> None:
    """Every registered policy, with every feedback that it knows, and the rival."""
    kinds = {(kind.name, each) for kind in POLICIES.values() for each in kind.traits.feedbacks or (kind.feedback,)}
    kinds |= {("optimistic-frank-wolfe", Feedback.BANDIT), ("guaranteed-learner", Feedback.BANDIT)}
    assert [each.name for each in results.meetings] == [course.name for course in courses.COURSES]
    for meeting in results.meetings:
        for alpha in courses.ALPHAS:
            scores = [score for score in meeting.scores if score.alpha == alpha]
            assert {(score.policy, score.feedback) for score in scores} == kinds
            assert len(scores) == len(kinds)


def test_the_full_plan() -> None:
    assert all(course.n_seeds == 20 for course in courses.COURSES)
    assert {course.settings[0][1] for course in courses.COURSES if course.maker == "adversary"} == {
        "settled",
        "largest",
        "halving",
    }
    assert [course.n_first for course in courses.COURSES[:3]] == [5000, 20000, None]
    assert [match.course.n_seeds for match in arena.plan(n_seeds=2)] == [2] * len(courses.COURSES)
    assert len({match.work.digest for match in (*arena.plan(smoke=True), *arena.plan(smoke=True, n_seeds=2))}) > 30


@pytest.mark.parametrize("match", arena.plan(smoke=True), ids=lambda match: match.course.name)
def test_shares_are_those_of_the_tables(match: Match, made: tuple[Path, str], results: Arena) -> None:
    """(phi(R) - phi(uniform)) / (OPT - phi(uniform)) by seed; mean and Student's interval by SciPy."""
    (meeting,) = (each for each in results.meetings if each.name == match.course.name)
    by_seed = [
        {(each["contender"], each["alpha"]): each for each in table.to_dicts()} for table in tables(made[0], match)
    ]
    scores = {(score.alpha, score.label, score.feedback): score for score in meeting.scores}
    assert len(scores) == len(match.contenders) * len(match.alphas)
    for contender in match.contenders:
        feedback = contender.feedback.value
        for alpha in match.alphas:
            closed, performance = [], []
            for parts in by_seed:
                mine = parts.get((contender.key, alpha))
                if mine is None:
                    assert not match.course.seeded
                    assert feedback == "full"
                    continue
                got, low = (
                    float((np.array(mine[name]) ** (1 - alpha) / (1 - alpha)).sum()) for name in ("accounts", "uniform")
                )
                closed.append((got - low) / (mine["optimum"] - low))
                performance.append(got)
            score = scores[alpha, contender.label, feedback]
            assert score.n_seeds == len(closed) == (3 if match.course.seeded or feedback == "bandit" else 1)
            for found, samples in ((score.gap_closed, closed), (score.alpha_performance, performance)):
                half = 0.0
                if len(samples) > 1:
                    half = float(stats.t.ppf(0.975, len(samples) - 1) * np.std(samples, ddof=1) / len(samples) ** 0.5)
                expected = [np.mean(samples), np.mean(samples) - half, np.mean(samples) + half]
                np.testing.assert_allclose([found.mean, found.low, found.high], expected, rtol=1e-9, atol=1e-9)
    uniform = next(score for score in meeting.scores if (score.policy, score.feedback) == ("uniform", "full"))
    assert math.isclose(uniform.gap_closed.mean, 0.0, abs_tol=1e-7)


def test_shares_of_rounds_with_features_are_of_who_knows_every_mean(made: tuple[Path, str], results: Arena) -> None:
    """Played again from the means, the features of a policy's clusters found as the course says."""
    assert [each.name for each in results.described] == [course.name for course in courses.DESCRIBED_COURSES]
    for match, meeting in zip(arena.plan(smoke=True, described=True), results.described, strict=True):
        course, alpha = match.course, 0.9
        means = streams.described_means(**dict(course.settings), seed=1)
        stream = course.made(1)
        assert isinstance(stream, Stream)
        assert stream.n_contexts == 32
        earned = np.ones(10)
        for mean, reward in zip(means, stream.reward_table, strict=True):
            arm = int(np.argmax(mean / earned**alpha))
            earned[arm] += reward[arm]
        mine = row(tables(made[0], match)[1], match.contenders[0], alpha)
        assert mine["optimum"] == pytest.approx(float((earned**0.1).sum() / 0.1), rel=1e-9)
        np.testing.assert_allclose(mine["uniform"], 1 + stream.reward_table.sum(axis=0) / 10, rtol=1e-12)
        assert [(score.label, score.feedback) for score in meeting.scores[:4]] == [
            (contender.label, dict(contender.settings)["feedback"]) for contender in match.contenders
        ]


def row(table: pl.DataFrame, contender: Contender, alpha: float) -> dict[str, Any]:
    """What a seed's table says of one of them: numbers, and arrays per arm."""
    (found,) = table.filter((pl.col("contender") == contender.key) & (pl.col("alpha") == alpha)).to_dicts()
    return {name: np.array(value) if isinstance(value, list) else value for name, value in found.items()}


@pytest.mark.parametrize("alpha", courses.ALPHAS)
@pytest.mark.parametrize("name", ["stationary-small", "clicks-one-best"])
def test_two_contenders_from_scratch(name: str, alpha: float, made: tuple[Path, str]) -> None:
    """Naive policies on the same rounds with the same draws; uniform play and the optimum from the rounds."""
    (match,) = (each for each in arena.plan(smoke=True) if each.course.name == name)
    stream, table = match.course.made(1), tables(made[0], match)[1]
    assert isinstance(stream, Stream)
    m, n, contexts = stream.n_contexts, stream.n_arms, stream.contexts.tolist()
    rewards = stream.reward_table[stream.items]
    uniforms = np.random.default_rng(1).random(stream.n_rounds)
    totals = naive.context_reward_totals(contexts, rewards, m)
    _, best, gap = naive.offline_optimum(totals, alpha)
    for contender, oracle, feedback in (
        (courses.RIVAL, naive_adversaries.OptimisticFrankWolfe(m, n, alpha=alpha), "bandit"),
        (courses.FULL[1], naive.AlphaFair(m, n, alpha=alpha), "full"),
    ):
        _, _, earned = naive.play(oracle, contexts, rewards, uniforms, feedback)  # type: ignore[arg-type]
        mine = row(table, contender, alpha)
        np.testing.assert_allclose(mine["accounts"], earned, rtol=1e-9)
        np.testing.assert_allclose(mine["uniform"], 1 + rewards.sum(axis=0) / n, rtol=1e-12)
        assert mine["optimum"] == pytest.approx(best, abs=gap + mine["gap"])


def test_the_guaranteed_learner_alone_from_scratch(made: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The naive mixture with a least share of 1 is its guaranteed learner alone."""
    monkeypatch.setattr(naive_adaptive, "KAPPA", 1.0)
    (match,) = (each for each in arena.plan(smoke=True) if each.course.name == "drift-fast")
    stream, table = match.course.made(2), tables(made[0], match)[2]
    assert isinstance(stream, Stream)
    uniforms = np.random.default_rng(2).random(stream.n_rounds)
    for alpha in courses.ALPHAS:
        oracle = naive_adaptive.AlphaFairAdaptive(stream.n_contexts, stream.n_arms, alpha=alpha)
        rewards = stream.reward_table[stream.items]
        _, _, earned = naive.play(oracle, stream.contexts.tolist(), rewards, uniforms, "bandit")
        mine, mixed = (row(table, contender, alpha)["accounts"] for contender in (courses.GUARANTEED, courses.ADAPTIVE))
        np.testing.assert_allclose(mine, earned, rtol=1e-9)
        assert not np.array_equal(mine, mixed)


def test_an_adversary_from_scratch(made: tuple[Path, str]) -> None:
    """Every contender's limits are those of the rounds that it met itself."""
    (match,) = (each for each in arena.plan(smoke=True) if each.course.name == "largest")
    adversary, table, alpha = match.course.made(2), tables(made[0], match)[2], 0.5
    assert isinstance(adversary, Adversary)
    stream = adversary.stream
    m, n, contexts = stream.n_contexts, stream.n_arms, stream.contexts.tolist()
    uniforms = np.random.default_rng(2).random(stream.n_rounds)
    for contender, oracle, full in (
        (paper.ALPHA_FAIR_BANDIT, naive.AlphaFairBandit(m, n, alpha=alpha), False),
        (courses.FULL[1], naive.AlphaFair(m, n, alpha=alpha), True),
        (courses.FULL[-1], naive.Uniform(m, n), True),
    ):
        slow = naive_adversaries.Largest(stream.reward_table)
        earned, paid = naive_adversaries.face(oracle, slow, contexts, uniforms, full=full)
        _, best, gap = naive.offline_optimum(naive.context_reward_totals(contexts, paid, m), alpha)
        mine = row(table, contender, alpha)
        np.testing.assert_allclose(mine["accounts"], earned, rtol=1e-9)
        np.testing.assert_allclose(mine["uniform"], 1 + paid.sum(axis=0) / n, rtol=1e-9)
        assert mine["optimum"] == pytest.approx(best, abs=gap + mine["gap"])


def test_promises_are_leads_of_the_tables(made: tuple[Path, str], results: Arena) -> None:
    """Where an adversary plays, and nowhere else: by seed, with Bonferroni's interval of six by SciPy."""
    for match, meeting in zip(arena.plan(smoke=True), results.meetings, strict=True):
        if match.course.maker != "adversary":
            assert meeting.promises == ()
            continue
        leads = iter(meeting.promises)
        for alpha in courses.ALPHAS:
            closed = {}
            for contender in (courses.ADAPTIVE, courses.GUARANTEED, paper.ALPHA_FAIR_BANDIT):
                parts = [row(table, contender, alpha) for table in tables(made[0], match)]
                worth = [
                    [(mine[c] ** (1 - alpha) / (1 - alpha)).sum() for c in ("accounts", "uniform")] for mine in parts
                ]
                best = [mine["optimum"] for mine in parts]
                closed[contender] = np.array([(a - u) / (o - u) for (a, u), o in zip(worth, best, strict=True)])
            for other, margin in ((courses.GUARANTEED, 0.05), (paper.ALPHA_FAIR_BANDIT, 0.0)):
                ahead = closed[courses.ADAPTIVE] - closed[other] + margin
                half = stats.t.ppf(1 - 0.025 / 6, 2) * np.std(ahead, ddof=1) / 3**0.5
                lead = next(leads)
                assert lead.what.startswith(f"above {other.label}")
                found = [lead.mean, lead.low, lead.high]
                np.testing.assert_allclose(found, ahead.mean() + half * np.array([0, -1, 1]), rtol=1e-7, atol=1e-9)
        assert next(leads, None) is None


def test_without_scikit_learn_rounds_with_features_are_left_out(
    made: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a base install: nothing of it can be imported, and the tables of all other courses are there."""
    monkeypatch.setitem(sys.modules, "sklearn", None)
    monkeypatch.setattr(arena, "find_spec", lambda name: None)
    folder = tmp_path / "base"
    shutil.copytree(made[0], folder)
    for path in folder.glob("runs/arena-described-*"):
        shutil.rmtree(path)
    answer = CliRunner().invoke(app, ["arena", "--smoke", "--output", str(folder)], env={"COLUMNS": "160"})
    assert answer.exit_code == 0, answer.output
    assert "Rounds with features are left out: they need scikit-learn" in answer.stdout
    assert json.loads((folder / "results.json").read_text(encoding="utf-8"))["described"] == []
    page = (folder / "index.html").read_text(encoding="utf-8")
    assert 'id="features"' not in page
    assert "#features" not in page


def test_who_knows_nothing_of_alpha_plays_once(made: tuple[Path, str]) -> None:
    match = arena.plan(smoke=True)[3]
    table = tables(made[0], match)[0]
    for contender in match.contenders:
        same = np.array_equal(*(row(table, contender, alpha)["accounts"] for alpha in (0.5, 0.9)))
        if contender.policy != "optimistic-frank-wolfe":  # in 400 rounds it has only begun to tell arms apart
            assert same == (contender.policy in ("fair-cb", "hedge", "scale-free", "uniform"))


def test_a_second_run_reuses_everything_and_writes_the_same(made: tuple[Path, str]) -> None:
    folder, _ = made
    files = [path for path in folder.rglob("*") if path.is_file()]
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in files}
    told: dict[str, int] = {}

    def started(title: str, total: int) -> Any:
        return lambda done: told.update({title: told.get(title, 0) + done})

    again = arena.arena(folder, smoke=True, command="alphafair arena --smoke", started=started)
    assert "Compiling" not in told
    assert told == {course.smoke().title: 3 for course in (*courses.COURSES, *courses.DESCRIBED_COURSES)}
    assert plain(again) == json.loads((folder / "results.json").read_text(encoding="utf-8"))
    for path, (content, written) in before.items():
        assert path.read_bytes() == content, path
        assert path.suffix != ".parquet" or path.stat().st_mtime_ns == written, path


def test_jobs_change_nothing(tmp_path: Path) -> None:
    match = Match(courses.COURSES[7].smoke(), courses.BANDIT[:3], (0.5,))
    for jobs in (1, 2):
        run(match.work, tmp_path / str(jobs), jobs=jobs)
    one, two = ({path.name: path.read_bytes() for path in (tmp_path / jobs).glob("*/*")} for jobs in "12")
    assert one == two
    assert len(one) == match.course.n_seeds + 1


def test_page_and_terminal_show_the_numbers(made: tuple[Path, str], results: Arena) -> None:
    folder, printed = made
    page = (folder / "index.html").read_text(encoding="utf-8")
    for meeting in (*results.meetings, *results.described):
        assert meeting.title in printed
        assert f'<th scope="row">{meeting.title}</th>' in page
        assert meeting.digest in page
    promises = [lead for meeting in results.meetings for lead in meeting.promises]
    best: Score = results.meetings[3].of("full", 0.5)[0]
    text = f"{100 * best.gap_closed.mean:.0f} \u00b1{50 * (best.gap_closed.high - best.gap_closed.low):.0f}"
    assert text in printed
    assert page.count("<td class") == 3 * (13 * len(results.meetings) + 4 * len(results.described)) + len(promises)
    assert "alphafair arena --smoke" in page
    assert {path.name for path in (folder / "figures").iterdir()} == {f"gap-closed.{e}" for e in ("png", "svg", "pdf")}


def test_one_seed_decides_no_promise(tmp_path: Path) -> None:
    (match,) = (each for each in arena.plan(smoke=True, n_seeds=1) if each.course.name == "largest")
    assert arena.meeting(match, run(match.work, tmp_path)).promises == ()


def test_where_nothing_can_be_learned_there_is_no_gap(tmp_path: Path) -> None:
    """One arm: the optimum is uniform play."""
    course = Course("one", "one arm", "stationary", (("n_rounds", 50), ("n_contexts", 2), ("n_arms", 1)), n_seeds=2)
    match = Match(course, (courses.ADAPTIVE,), (0.5,))
    meeting = arena.meeting(match, run(match.work, tmp_path))
    (score,) = meeting.scores
    assert (score.gap_closed, score.n_seeds) == (None, 2)
    assert "gap_closed" not in plain(meeting)["scores"][0]
    figure = picture([meeting], alphas=(0.5,))
    assert "no gap to close" in [text.get_text() for axes in figure.axes for text in axes.texts]
    console = Console(record=True, width=200, file=io.StringIO())
    _print_shares(console, Arena("", {}, (0.5,), (meeting,), ()))
    assert "no gap" in console.export_text()
    assert "no gap <small>(" in environment().get_template("arena_tables.html").module.shares([meeting], "bandit", 0.5)
    assert "on 0 of 1 courses." in environment().get_template("captions.html").module.arena([meeting])


@pytest.mark.parametrize("option", ["--jobs", "--seeds"])
def test_refusals(option: str) -> None:
    answer = CliRunner().invoke(app, ["arena", option, "0"])
    assert answer.exit_code == 2
    assert f"{option} must be an integer of at least 1; got 0" in answer.output


def test_ratings_are_the_first_by_time() -> None:
    stream = courses.COURSES[0].made(7)
    assert isinstance(stream, Stream)
    assert np.array_equal(stream.items, streams.movielens_small().items[:5000])


def test_ratings_without_draws_are_played_once() -> None:
    """Of contenders that see all rewards seed 0 alone: neither rounds nor rewards are drawn."""
    course = replace(courses.COURSES[0], n_first=100)
    full, bandit = contenders = (paper.UNIFORM, paper.UNIFORM_BANDIT)
    keys = [[*Match(course, contenders, (0.5,)).played(seed)["contender"]] for seed in range(2)]
    assert keys == [[full.key, bandit.key], [bandit.key]]
