"""Where the paper's text and the code published with it differ, what is done here, and what that changes: in words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from alphafair.experiments.pictures.canvas import Results, certificate, number, percent
from alphafair.figures import ALPHA

PUBLISHED_FLOOR = 0.98  # of FairCB, times N


class Row(NamedTuple):
    """One difference; `change` is made from the numbers of the experiments that it needs."""

    what: str
    published: str
    here: str
    needs: tuple[str, ...]
    change: Callable[[Results], str]


def _of(experiment: Results, policy: str, feedback: str) -> Results:
    """The contender that is this policy with this feedback."""
    contenders: Results = experiment["contenders"]
    return next(each for each in contenders.values() if (each["policy"], each["feedback"]) == (policy, feedback))


def _end(contender: Results, series: str) -> float:
    return float(contender[series]["mean"][-1])


def _sign(experiments: Results) -> str:
    sign = experiments["sign"]
    toy: dict[str, Any] = sign["toy"]
    worst = toy["arms"].index(min(toy["arms"]))
    pulls, leads = {}, {}
    uniform = _end(_of(sign, "uniform", "bandit"), "alpha_performance")
    for label, contender in sign["contenders"].items():
        pulls[contender["policy"]] = percent(toy["shares"][label][worst])
        lead = _end(contender, "alpha_performance") - uniform
        leads[contender["policy"]] = f"{number(abs(lead), 3)} {'above' if lead > 0.0 else 'below'}"
    ours, theirs = "alpha-fair-bandit", "published-sign"
    return (
        f"The worst of {len(toy['arms'])} arms is pulled in {pulls[theirs]} of the rounds, here in {pulls[ours]}. On "
        f"the ratings {ALPHA}-performance ends {leads[theirs]} uniform play's, here {leads[ours]}."
    )


def _step(experiments: Results) -> str:
    step = experiments["step"]
    theirs, ours = (_end(_of(step, name, "full"), "standard_regret") for name in ("published-step", "alpha-fair"))
    return f"Standard regret ends at {number(theirs, 3)}, here at {number(ours, 3)}."


def _reading(experiments: Results) -> str:
    contenders = experiments["readings"]["contenders"]
    theirs, ours = (_end(contenders[word], "alpha_performance") for word in ("after", "before"))
    return f"{ALPHA}-performance ends at {number(theirs, 5)}, here at {number(ours, 5)}."


def _benchmark(experiments: Results) -> str:
    gap = number(certificate(experiments["A"]), 2)
    return f"Not measured: what it finds is not the optimum. Here that is certified to within {gap}."


def _settings(experiments: Results) -> str:
    gaps = {key: percent(_of(experiments[key], "alpha-fair", "full")["gap_closed"]["mean"]) for key in ("A", "delta")}
    floor = number(float(experiments["delta"]["settings"]["reward_floor"]), 1)
    sweep = experiments["floor_sweep"]
    place = _published_floor(sweep)
    high = sweep["fair_cb"]["bandit"]["alpha_performance"]["mean"][place]
    low = _end(_of(experiments["A"], "fair-cb", "bandit"), "alpha_performance")
    return (
        f"With rewards from {floor} {ALPHA}-FairCB goes {gaps['delta']} of the way from uniform play to the optimum, "
        f"here {gaps['A']}. FairCB ends at {number(high)} with a floor of {sweep['floors'][place]:g}/N, here at "
        f"{number(low)}. The choice of users is not measured."
    )


def _full_information(experiments: Results) -> str:
    one, every = (
        _end(_of(experiments["A"], "fair-cb", feedback), "alpha_performance") for feedback in ("bandit", "full")
    )
    return f"FairCB ends at {number(one)} where it sees one reward, at {number(every)} where it sees all."


def _sweep(experiments: Results) -> str:
    sweep = experiments["floor_sweep"]
    place = _published_floor(sweep)
    mean = sweep["fair_cb"]["bandit"]["alpha_performance"]["mean"][place]
    ours = sweep["alpha_fair"]["bandit"]["alpha_performance"]["mean"]
    return (
        f"At a floor of {sweep['floors'][place]:g}/N the maximum of {len(sweep['seeds'])} seeds is "
        f"{number(sweep['maxima'][place], 5)}, the mean {number(mean, 5)}; the mean of {ALPHA}-FairCB "
        f"(bandit) is {number(ours, 5)}."
    )


def _published_floor(sweep: Results) -> int:
    """The place of the floor in the published settings, or of the one next below."""
    floors: list[float] = sweep["floors"]
    return floors.index(max(floor for floor in floors if floor <= PUBLISHED_FLOOR))


ROWS = (
    Row("sign of the bandit reward", "rewards are fed as losses", "the negative is fed", ("sign",), _sign),
    Row("step size", "adds up norms of gradients", "adds up their squares", ("step",), _step),
    Row(
        "time of the slope \N{GREEK SMALL LETTER PHI}\N{PRIME}",
        "after the round's reward is booked",
        "before, as the proof needs it",
        ("readings",),
        _reading,
    ),
    Row(
        "benchmark",
        "a dot product where arms must be multiplied one by one",
        "the optimum, with a certificate",
        ("A",),
        _benchmark,
    ),
    Row(
        "settings",
        f"rewards from 0.001, floor {PUBLISHED_FLOOR:g}/N, users with exactly 1,000 ratings",
        "the paper's: rewards from 0.2, floor 0.5/N, the first 5,000 rows",
        ("A", "delta", "floor_sweep"),
        _settings,
    ),
    Row(
        "FairCB with full information",
        "sees the reward of its own arm only",
        "both, each under its name",
        ("A",),
        _full_information,
    ),
    Row(
        "order of arms, ties in time",
        "a set, an unstable sort",
        "sorted names, a stable sort",
        (),
        lambda experiments: "Not measured: they may differ from run to run; here every run gives the same bytes.",
    ),
    Row("FairCB along its floor", "the maximum over runs", "mean and band", ("floor_sweep",), _sweep),
)


def changes(experiments: Results) -> list[tuple[str, str, str, str]]:
    """The whole table; where an experiment was not run, it says so."""
    return [
        (
            row.what,
            row.published,
            row.here,
            row.change(experiments) if all(key in experiments for key in row.needs) else "Not run.",
        )
        for row in ROWS
    ]
