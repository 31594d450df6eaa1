"""Pictures: what is drawn is what was measured, the same way every time, and nothing lies on top of anything."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from alphafair import AlphaFair, figures, metrics, simulate, streams
from alphafair.algorithms import POLICIES
from alphafair.values import Feedback, Trace
from tests import ROOT

ALPHA = 0.9


def trace(
    policy: str, feedback: Feedback = Feedback.FULL, *, n_arms: int = 6, skew: float = 1.0, seed: int = 0
) -> Trace:
    """A made-up run: rewards grow steadily, the first arms' faster."""
    rounds = np.arange(100, 2001, 100)
    slopes = np.arange(n_arms, 0, -1.0) ** skew
    earned = 1.0 + rounds[:, None] * slopes / slopes.sum()
    return Trace(policy, feedback, seed, rounds, earned, np.ones(n_arms, dtype=np.int64))


def settings(source: Any = mpl.rcParams) -> dict[str, Any]:
    """Matplotlib's settings but the backend: to ask for that one imports pyplot."""
    return {key: source[key] for key in source if key != "backend"}


@pytest.fixture(scope="module")
def traces() -> list[Trace]:
    runs = [trace(name, skew=number / 2) for number, name in enumerate(POLICIES)]
    return [*runs, trace("fair-cb", Feedback.BANDIT, skew=2.6), trace("somebody's own", skew=0.9)]


@pytest.fixture(scope="module")
def picture(traces: list[Trace]) -> Figure:
    return figures.overview(traces, ALPHA)


def curves(axes: Axes) -> dict[str, Line2D]:
    """The lines that are runs, by their names; the leaders to the labels have none."""
    return {str(line.get_gid()): line for line in axes.get_lines() if line.get_gid()}


def end_labels(axes: Axes, titles: Sequence[str]) -> list[Any]:
    return [text for text in axes.texts if text.get_gid() in titles]


def test_one_line_a_run_in_each_panel(picture: Figure, traces: list[Trace]) -> None:
    titles = figures.names(traces)
    performance, equality = (curves(axes) for axes in picture.axes[:2])
    assert list(performance) == list(equality) == titles
    for run, title in zip(traces, titles, strict=True):
        for lines, measured in (
            (performance, metrics.alpha_performance(run.accounts, ALPHA)),
            (equality, metrics.jain_index(run.accounts)),
        ):
            assert np.array_equal(lines[title].get_xdata(), run.rounds)
            assert np.array_equal(lines[title].get_ydata(), measured)


def test_shares_are_one_sorted_panel_per_run(picture: Figure, traces: list[Trace]) -> None:
    panels = picture.axes[2:]
    assert [panel.get_title(loc="left").replace("-\n", "-").replace("\n", " ") for panel in panels] == figures.names(
        traces
    )
    for panel, run in zip(panels, traces, strict=True):
        (dots,) = curves(panel).values()
        shares = 100.0 * metrics.shares(run.final)
        assert np.array_equal(dots.get_ydata(), np.sort(shares)[::-1])
        assert panel.get_ylim() == panels[0].get_ylim()
        low, high = panel.get_ylim()
        assert low < shares.min() <= shares.max() < high
        texts = [text.get_text() for text in panel.texts]
        assert texts[0].startswith(f"arm {shares.argmax()} ")
        assert texts[1].startswith(f"arm {np.argsort(-shares, kind='stable')[-1]} ")


def test_a_policy_has_the_same_style_in_all_figures(picture: Figure, traces: list[Trace]) -> None:
    alone = [figures.overview([run], ALPHA) for run in reversed(traces)][::-1]
    for number, (run, title) in enumerate(zip(traces, figures.names(traces), strict=True)):
        expected = figures.policy_style(run.policy)
        drawn = [curves(axes)[title] for axes in picture.axes[:2]]
        drawn += curves(picture.axes[2 + number]).values()
        drawn += [curves(axes)[run.policy] for axes in alone[number].axes]
        for line in drawn:
            assert (to_hex(line.get_color()).upper(), line.get_marker()) == (expected.color.upper(), expected.marker)


def test_our_policies_differ_in_color_and_in_marker() -> None:
    looks = [figures.policy_style(name) for name in POLICIES]
    assert len({look.color for look in looks}) == len({look.marker for look in looks}) == len(POLICIES)


def test_an_unregistered_policy_has_a_stable_style_of_its_own() -> None:
    assert figures.policy_style("somebody's own") == figures.Style("#D55E00", "8")  # not the hash() of this process
    assert figures.policy_style("somebody's own").marker not in {figures.policy_style(name).marker for name in POLICIES}
    assert len({figures.policy_style(f"policy {number}") for number in range(30)}) > 15


def test_dashes_show_the_feedback_of_a_policy(picture: Figure) -> None:
    for axes in picture.axes[:2]:
        lines = curves(axes)
        assert lines["fair-cb (full)"].get_linestyle() == "-"
        assert lines["fair-cb (bandit)"].get_linestyle() == "--"
        assert lines["fair-cb (full)"].get_color() == lines["fair-cb (bandit)"].get_color()


def test_names_in_legends_are_as_short_as_possible() -> None:
    full, bandit = trace("a"), trace("a", Feedback.BANDIT)
    assert figures.names([full, trace("b", Feedback.BANDIT)]) == ["a", "b"]
    assert figures.names([full, bandit]) == ["a (full)", "a (bandit)"]
    assert figures.names([full, trace("a", seed=1)]) == ["a (seed 0)", "a (seed 1)"]
    assert figures.names([full, trace("a", seed=1), bandit]) == ["a (full, seed 0)", "a (full, seed 1)", "a (bandit)"]


@pytest.mark.parametrize("n_runs", [1, 9, 16])
def test_labels_stand_at_the_line_ends_apart_and_inside(n_runs: int) -> None:
    runs = [trace(f"a policy of some length {number}", skew=1.0 + number / 1000) for number in range(n_runs)]
    titles = figures.names(runs)
    figure = figures.overview(runs, ALPHA)
    figure.draw_without_rendering()
    boxes = {axes: [text.get_window_extent() for text in end_labels(axes, titles)] for axes in figure.axes[:2]}
    for axes in figure.axes[:2]:
        labels = end_labels(axes, titles)
        assert [text.get_text() for text in labels] == titles
        for one, two in combinations(boxes[axes], 2):
            assert not one.overlaps(two)
        ends = [float(np.asarray(line.get_ydata())[-1]) for line in curves(axes).values()]
        heights = [text.get_position()[1] for text in labels]
        assert np.array_equal(np.argsort(ends), np.argsort(heights)), "labels stand in another order than their lines"
        for box in boxes[axes]:
            assert 0 <= box.x0 < box.x1 <= figure.bbox.width
            assert box.x0 > axes.get_window_extent().x1
    right_of_the_first = max(box.x1 for box in boxes[figure.axes[0]])
    assert right_of_the_first < figure.axes[1].yaxis.get_label().get_window_extent().x0


def test_axes_name_what_they_show(picture: Figure) -> None:
    performance, equality = picture.axes[:2]
    assert performance.get_xlabel() == equality.get_xlabel() == "rounds"
    assert "performance" in performance.get_ylabel()
    assert "Jain" in equality.get_ylabel()
    picture.draw_without_rendering()
    assert any(label.get_text().endswith("%") for label in picture.axes[2].get_yticklabels())


def test_equal_heights_are_equal_rewards() -> None:
    for alpha in (0.0, 0.5, 0.9, 0.99):
        axes = figures.overview([trace("uniform", skew=0.0)], alpha).axes[0]
        rewards = np.array([[500.0], [1000.0], [1500.0]]) * np.ones((1, 6))
        heights = axes.yaxis.get_transform().transform(metrics.alpha_performance(rewards, alpha))
        assert np.diff(heights)[0] == pytest.approx(np.diff(heights)[1], rel=1e-6)
        ticks = axes.get_yticks()
        assert len(set(ticks)) == len(ticks) >= 4
        assert (np.diff(axes.yaxis.get_transform().transform(ticks)) > 0).all()


def test_arm_labels_name_the_extremes() -> None:
    labels = ["gold", "silver", "bronze", "tin", "lead", "a name far too long to be written out"]
    panel = figures.overview([trace("hedge")], ALPHA, arm_labels=labels).axes[2]
    most, least = (text.get_text() for text in panel.texts)
    assert most.startswith("gold 2")
    assert least.startswith("a name far to")
    assert len(least) < 25


def bars(figure: Figure) -> dict[str, list[float]]:
    """For each arm that is drawn its share in percent, by alpha."""
    (axes,) = figure.axes
    heights = [[bar.get_width() for bar in container] for container in axes.containers]
    return {label.get_text(): list(found) for label, *found in zip(axes.get_yticklabels(), *heights, strict=True)}


def test_the_arms_of_a_fair_optimum_are_those_that_get_most_at_any_alpha() -> None:
    """At the first alpha nearly all tie: ranked by it alone the second's winners were not drawn."""
    labels = [f"arm {k}" for k in range(80)]
    first, second = np.full(80, 1.0), np.full(80, 1.0)
    first[3], second[70:] = 50.0, np.arange(2.0, 12.0)
    shares = {0.0: first / first.sum(), 0.9: second / second.sum()}
    figure = figures.fair_optimum(shares, labels)
    drawn = bars(figure)
    assert list(drawn)[:11] == ["arm 3", *(f"arm {k}" for k in range(79, 69, -1))]
    assert len(drawn) == figures.MOST_BARS == 25
    for label, found in drawn.items():
        assert found == pytest.approx([100.0 * shares[alpha][labels.index(label)] for alpha in shares])
    assert figure.axes[0].get_title(loc="left") == "Who gets what at the fair optimum: 25 of 80 arms"
    assert "an initial 1 each included" in figure.axes[0].get_xlabel()
    few = figures.fair_optimum(
        {0.5: np.array([0.75, 0.25])}, ["one", "a_column_name_that_is_far_too_long_to_write_out"]
    )
    assert few.axes[0].get_title(loc="left") == "Who gets what at the fair optimum"
    assert [*bars(few)] == ["one", "a_column_name_that_is_far_t\N{HORIZONTAL ELLIPSIS}"]


@pytest.mark.parametrize("n_arms", [1, 2, 1000])
def test_few_and_many_arms(n_arms: int, tmp_path: Path) -> None:
    figure = figures.overview([trace("alpha-fair", n_arms=n_arms), trace("uniform", n_arms=n_arms)], ALPHA)
    figures.save(figure, tmp_path / "arms.png")
    (dots,) = curves(figure.axes[2]).values()
    assert len(np.asarray(dots.get_xdata())) == min(n_arms, figures.MOST_STEMS)


def test_a_run_recorded_once_is_drawn(tmp_path: Path) -> None:
    run = trace("alpha-fair")
    last = Trace(run.policy, run.feedback, 0, run.rounds[-1:], run.accounts[-1:], run.pulls)
    figures.save(figures.overview([last], ALPHA), tmp_path / "once.png")


def test_save_by_suffix_and_reproducibly(traces: list[Trace], tmp_path: Path) -> None:
    twins = [figures.overview(traces[:2], ALPHA) for _ in range(2)]
    for suffix, start in ((".png", b"\x89PNG"), (".svg", b"<?xml"), (".pdf", b"%PDF")):
        paths = [figures.save(twin, tmp_path / f"{number}{suffix}") for number, twin in enumerate(twins)]
        written = [path.read_bytes() for path in paths]
        assert written[0].startswith(start)
        assert written[0] == written[1]
    width, height = (int.from_bytes((tmp_path / "0.png").read_bytes()[k : k + 4]) for k in (16, 20))
    assert (width, height) == (1600, 900)
    with pytest.raises(ValueError, match=r"path must be a file that ends in \.png, \.svg, \.pdf; got '.*\.bmp'"):
        figures.save(figures.overview(traces[:1], ALPHA), tmp_path / "x.bmp")


def test_settings_of_others_are_left_alone() -> None:
    before = settings()
    with figures.style():
        assert settings() != before
        figures.overview([trace("hedge")], ALPHA)
    assert settings() == before
    assert settings() == settings(mpl.rcParamsDefault), "a style was set at import"


def test_no_pyplot_and_no_display(tmp_path: Path) -> None:
    code = f"""
import sys
from tests.lab.test_figures import settings, trace
before = settings()
from alphafair import figures
figures.save(figures.overview([trace("hedge"), trace("uniform")], 0.5), {str(tmp_path / "x.png")!r})
assert settings() == before, "a setting was left behind"
assert "matplotlib.pyplot" not in sys.modules, "pyplot was imported"
"""
    environment = {k: v for k, v in os.environ.items() if k not in ("DISPLAY", "MPLBACKEND")}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), *(p for p in sys.path if p)])
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)


@pytest.mark.parametrize("seed", range(20))
def test_spread_moves_labels_apart_and_no_further(seed: int) -> None:
    rng = np.random.default_rng(seed)
    wanted = rng.random(8) ** rng.integers(1, 6)
    placed = np.array(figures.spread(wanted.tolist(), 0.07, 0.0, 1.0))
    order = np.argsort(wanted)
    assert (np.diff(placed[order]) >= 0.07 - 1e-12).all()
    assert (placed >= -1e-12).all()
    assert (placed <= 1.0 + 1e-12).all()
    cost = ((placed - wanted) ** 2).sum()
    for _ in range(200):  # no other placement that keeps apart is nearer
        other = placed + rng.normal(0.0, 0.02, 8)
        apart = (np.diff(other[order]) >= 0.07).all() and other.min() >= 0.0 and other.max() <= 1.0
        assert not apart or ((other - wanted) ** 2).sum() >= cost


def test_refusals() -> None:
    with pytest.raises(ValueError, match=r"traces must be at least one run, all over the same arms; got \[\]"):
        figures.overview([], ALPHA)
    with pytest.raises(ValueError, match=r"same arms; got \[3, 4\]"):
        figures.overview([trace("a", n_arms=4), trace("b", n_arms=3)], ALPHA)
    with pytest.raises(ValueError, match="arm_labels must be 6 names; got 2"):
        figures.overview([trace("a")], ALPHA, arm_labels=["x", "y"])
    with pytest.raises(ValueError, match="alpha must be a number of at least 0, or inf; got -1"):
        figures.overview([trace("a")], -1.0)


@pytest.mark.parametrize("alpha", [1.0, 2.0, float("inf")])
def test_the_first_panel_shows_the_welfare_from_alpha_1_on(alpha: float) -> None:
    run = trace("a")
    panel = figures.overview([run], alpha).axes[0]
    assert panel.get_title(loc="left") == "Welfare: what each arm would earn if all earned alike"
    assert panel.get_yscale() == "linear"
    (drawn,) = (each for each in panel.get_lines() if each.get_gid() == "a")
    np.testing.assert_allclose(np.asarray(drawn.get_ydata()), metrics.welfare(run.accounts, alpha))


def test_an_axis_of_alpha_reaches_from_0_to_inf() -> None:
    np.testing.assert_allclose(figures.alpha_positions([0.0, 0.5, 1.0, 5.0, np.inf]), [0.0, 1 / 3, 0.5, 5 / 6, 1.0])
    axes = Figure().subplots()
    figures.alpha_axis(axes)
    assert [each.get_text() for each in axes.get_xticklabels()] == ["0", "0.2", "0.5", "1", "2", "5", "\N{INFINITY}"]
    figures.alpha_axis(axes, last=0.9)
    assert [each.get_text() for each in axes.get_xticklabels()] == ["0", "0.2", "0.5"]


def test_labels_in_any_script_are_drawn_or_numbered(tmp_path: Path) -> None:
    """No boxes and no warnings (which are errors here): what no font of the machine can write gets a number."""
    labels = ["jazz", "\u0436\u0430\u043d\u0440", "\u65e5\u672c\u8a9e", chr(0x10FFFD)]
    stream = streams.ratings(200, 2, 4, seed=0)
    traces = [simulate(AlphaFair(2, 4), stream, record_every=50)]
    figures.save(figures.overview(traces, 0.9, arm_labels=labels), tmp_path / "overview.png")
    shown = figures.legible(labels, "arm")
    assert shown[:2] == labels[:2]
    assert shown[2] in (labels[2], "arm 2")  # as this machine's fonts are
    assert shown[3] == "arm 3"
    figures.save(figures.fair_optimum({0.5: np.full(4, 0.25)}, labels), tmp_path / "optimum.png")
