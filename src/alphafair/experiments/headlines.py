"""The handful of numbers to remember, each with what it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from alphafair import metrics
from alphafair.experiments.claims import ALPHA_FAIR_BANDIT, FAILS, HOLDS, OPEN, PAPER, PUBLISHED
from alphafair.experiments.pictures import Results
from alphafair.experiments.pictures.canvas import number, ordered, percent
from alphafair.experiments.pictures.learned import share
from alphafair.figures import ALPHA

Headline = tuple[str, str]  # a number and what it is


def headlines(results: Results) -> list[Headline]:
    """As far as the experiments were run."""
    experiments, claims = results["experiments"], results["claims"]
    verdicts = [claim["verdict"] for claim in claims if claim["source"] == PAPER and claim["independent"]]
    text = "of the paper's independent claims about ratings hold on these data"
    counts = {word: verdicts.count(word) for word in (FAILS, OPEN)}
    text += "".join(f"; {word}: {count}" for word, count in counts.items() if count)
    found = [(f"{verdicts.count(HOLDS)} of {len(verdicts)}", text)]
    if "A" in experiments:
        found += _learned(experiments["A"], "alpha-fair", "seeing all rewards")
        found += _ratio(experiments["A"])
    if "B" in experiments:
        found += _learned(experiments["B"], "alpha-fair-bandit", "seeing one reward a round")
    if "C" in experiments:
        found += _price(experiments["C"])
    if "sign" in experiments:
        found += _sign(experiments["sign"])
    return found


def _by(experiment: Results, policy: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The contenders of a policy."""
    for label, contender in ordered(experiment["contenders"]).items():
        if contender["policy"] == policy:
            yield label, contender


def _learned(experiment: Results, policy: str, seeing: str) -> Iterator[Headline]:
    for label, contender in _by(experiment, policy):
        mean, low, high = share(contender)
        text = f"of the way from uniform play to the optimum: {label}, {seeing}"
        if contender["n_seeds"] > 1:
            text += f" (95%: {percent(low)} to {percent(high)}, {contender['n_seeds']} seeds)"
        yield percent(mean), text


def _ratio(experiment: Results) -> Iterator[Headline]:
    factor = number(metrics.approximation_factor(float(experiment["alpha"])))
    for label, contender in _by(experiment, "alpha-fair"):
        text = (
            f"OPT/ALG of {label} after {experiment['n_rounds']:,} rounds; 1 is the optimum, the theorem allows "
            f"{factor} in the long run"
        )
        yield f"{contender['ratio']['mean'][-1]:.4f}", text


def _price(experiment: Results) -> Iterator[Headline]:
    alphas, jain, reward = (experiment[series] for series in ("alphas", "jain_index", "average_reward"))
    change = reward[-1] / reward[0] - 1.0
    cost = f"{percent(abs(change))} {'less' if change < 0.0 else 'more'} reward"
    text = f"Jain's index, from {ALPHA} = {alphas[0]:g} to {alphas[-1]:g}, for {cost}"
    yield f"{number(jain[0], 2)} \N{RIGHTWARDS ARROW} {number(jain[-1], 2)}", text


def _sign(experiment: Results) -> Iterator[Headline]:
    toy = experiment["toy"]
    worst = int(np.argmin(toy["arms"]))
    theirs, ours = (toy["shares"][label][worst] for label in (PUBLISHED, ALPHA_FAIR_BANDIT))
    text = (
        f"of the pulls go to the worst of {len(toy['arms'])} arms with the sign of the published code; "
        f"{percent(ours, 2)} with {ALPHA_FAIR_BANDIT}"
    )
    yield percent(theirs, 2), text
