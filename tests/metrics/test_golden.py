"""Every section of the 60-digit reference values, to 1e-12; the offline section is in test_offline.py."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from alphafair import AlphaFair, AlphaFairBandit, Decision, FairCB, Hedge, ScaleFree, metrics
from alphafair.lab.rivals import AlphaFairAfter, AlphaFairNextVisit
from alphafair.math import log_barrier
from alphafair.math.simplex import project
from alphafair.values import Vector
from tests import ROOT, naive
from tests.math.test_math import solved

GOLDEN = json.loads((ROOT / "tests" / "fixtures" / "golden.json").read_text())
READINGS = {"analysis": "AlphaFair", "literal": "AlphaFairNextVisit", "post": "AlphaFairAfter"}


def close(value: Any, expected: Any) -> None:
    np.testing.assert_allclose(value, expected, rtol=1e-12, atol=1e-12)


class Learner:
    """Ours and the oracle behind one face: `p(context)` and `learn(context, arm, outcome)`."""

    def __init__(self, policy: Any) -> None:
        self.policy = policy

    def p(self, context: int) -> Vector:
        return np.asarray(self.policy.probabilities(context))

    def learn(self, context: int, arm: int, outcome: Any) -> None:
        p = self.p(context)
        if isinstance(self.policy, naive.Policy):
            vector = np.array(outcome) if isinstance(outcome, list) else outcome
            self.policy.learn(context, arm, float(p[arm]), p, vector)
        else:
            self.policy.update(Decision(context, arm, float(p[arm]), p), outcome)


def both(name: str, n_contexts: int, n_arms: int, **settings: Any) -> list[Learner]:
    kinds = (AlphaFair, AlphaFairAfter, AlphaFairNextVisit, AlphaFairBandit, FairCB, Hedge, ScaleFree)
    kind: Any = {kind.__name__: kind for kind in kinds}[name]
    return [
        Learner(kind(n_contexts, n_arms, **settings)),
        Learner(getattr(naive, name)(n_contexts, n_arms, **settings)),
    ]


@pytest.mark.parametrize("case", GOLDEN["simplex_projection"], ids=lambda case: str(case["input"])[:30])
def test_simplex_projection(case: dict[str, Any]) -> None:
    out = np.empty(len(case["input"]))
    project(np.array(case["input"], dtype=float), out)
    close(out, case["output"])
    close(naive.project_on_simplex(np.array(case["input"], dtype=float)), case["output"])


@pytest.mark.parametrize("variant", READINGS)
def test_algorithm_1(variant: str) -> None:
    data = GOLDEN["algorithm1"]
    run = data["variants"][variant]
    for learner in both(READINGS[variant], data["M"], data["N"], alpha=data["alpha"]):
        for step in run["rounds"]:
            close(learner.p(step["context"]), step["x"])
            learner.learn(step["context"], 0, step["r"])
            close(learner.policy.accounts, step["R"])
            close(metrics.alpha_performance(learner.policy.accounts, data["alpha"]), step["utility"])
            close(metrics.jain_index(learner.policy.accounts), step["jain"])
        for update in run["final_pending_updates"]:
            close(learner.p(update["context"]), update["x_new"])
        norms = learner.policy.squared_gradient_norms
        close(norms() if callable(norms) else norms, run["sum_sq_norms_per_context"])
        close(learner.policy.accounts, [float(digits) for digits in run["final_R_20digits"]])
        ours = isinstance(learner.policy, AlphaFair)
        certificate = metrics.regret_certificate(learner.policy) if ours else learner.policy.certificate()
        close(certificate, run["regret_certificate_rhs"])
        optimum = next(case for case in GOLDEN["offline_optimum"] if case["name"].startswith("algorithm1"))["value"]
        close(metrics.standard_regret(optimum, run["final_R"], data["alpha"]), run["standard_regret"])
        close(metrics.approximate_regret(optimum, run["final_R"], data["alpha"]), run["c_alpha_regret"])


@pytest.mark.parametrize("name", GOLDEN["putta_agrawal"])
def test_scale_free(name: str) -> None:
    run = GOLDEN["putta_agrawal"][name]
    n = run["n"]
    option = {"adaptive": "adaptive", "nonadaptive": "sqrt"}[run["option"]]
    for learner in both("ScaleFree", 1, n, exploration=option):
        for step in run["rounds"]:
            close(learner.p(0), step["p_sampling"])
            learner.learn(0, step["arm"], -step["loss"])
        policy = learner.policy
        final = run["final"]
        if isinstance(policy, ScaleFree):
            learned = policy.snapshot().arrays
            close(learned["p"], final["p"])
            close([learned["rate"], learned["exploration"]], [final["eta"], final["gamma"]])
            close([learned["stability_sum"], learned["exploration_sum"]], [final["sum_M"], final["sum_Gamma"]])
        else:
            close(policy.p, final["p"])
            close([policy.eta, policy.gamma], [final["eta"], final["gamma"]])
            close([policy.stability_sum, policy.exploration_sum], [final["sum_M"], final["sum_Gamma"]])


@pytest.mark.parametrize("name", GOLDEN["putta_agrawal"])
def test_stability_term(name: str) -> None:
    run = GOLDEN["putta_agrawal"][name]
    for step in run["rounds"]:
        arm, p, estimate = step["arm"], np.array(step["p"]), np.array(step["loss_estimate"])
        ours = log_barrier.stability(p, float(step["eta_prev"]), arm, estimate[arm], *np.empty((2, run["n"])))
        close(ours, step["M"])
        close(naive.log_barrier_stability(np.array(step["p"]), estimate, step["eta_prev"]), step["M"])


def test_algorithm_2() -> None:
    data = GOLDEN["algorithm2_bandit"]
    run = data["correct"]
    for learner in both("AlphaFairBandit", data["M"], data["N"], alpha=run["alpha"]):
        for step in run["rounds"]:
            close(learner.p(step["context"]), step["sampling_distribution"])
            learner.learn(step["context"], step["arm"], step["reward"])
            close(learner.policy.accounts, step["R"])
        for context in range(data["M"]):
            p, gamma = np.array(run["final_p"][context]), run["final_gamma"][context]
            close(learner.p(context), (1 - gamma) * p + gamma / data["N"])


@pytest.mark.parametrize("case", GOLDEN["faircb_ftrl_step"], ids=lambda case: case["name"])
def test_fair_cb_step(case: dict[str, Any]) -> None:
    losses, q = np.array(case["cumulative_loss_estimates"]), np.array(case["q"])
    p, dual = solved(q, losses, case["eta"], case["nu"])
    close(p, case["p"])
    close(q @ p, case["marginals"])
    np.testing.assert_allclose(dual / case["eta"], case["dual_c"], rtol=1e-9, atol=1e-9)
    close(naive.pull_floor_step(losses, q, case["nu"], case["eta"])[0], case["p"])


@pytest.mark.parametrize("feedback", ["bandit", "full"])
def test_fair_cb_trajectory(feedback: str) -> None:
    section = {"bandit": "faircb_trajectory_bandit", "full": "faircb_trajectory_full_information_extension"}
    run = GOLDEN[section[feedback]]
    weights = np.array(run["q"])
    settings = {"pull_share": run["nu"], "horizon": run["horizon"], "feedback": feedback}
    for learner in both("FairCB", 2, 3, context_weights=weights, **settings):
        for step in run["rounds"]:
            close([learner.p(0), learner.p(1)], step["P"])
            rewards = [1 - loss for loss in step["loss_vector"]]
            learner.learn(step["context"], step["arm"], rewards if feedback == "full" else rewards[step["arm"]])
        close([learner.p(0), learner.p(1)], run["final_P"])
        close(weights @ np.array([learner.p(0), learner.p(1)]), run["final_marginals"])


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("fixed_sqrt_8lnN_over_T", {"horizon": 6}),
        ("authors_sqrt_lnN_over_T", {"learning_rate": float(np.sqrt(np.log(3) / 6))}),
        ("anytime_sqrt_8lnN_over_t", {}),
    ],
)
def test_hedge(name: str, settings: dict[str, Any]) -> None:
    run = GOLDEN["hedge"][name]
    for learner in both("Hedge", 1, 3, **settings):
        for step, rewards in zip(run["rounds"], GOLDEN["algorithm1"]["rewards"], strict=True):
            close(learner.p(0), step["p"])
            learner.learn(0, 0, rewards)
        close(learner.p(0), run["p_after"])


def test_constants() -> None:
    for text, digits in GOLDEN["constants"]["c_alpha"].items():
        alpha = 1 - 1 / np.e if text == "1-1/e" else float(text)
        close(metrics.approximation_factor(alpha), float(digits))
        close(naive.approximation_factor(alpha), float(digits))


def test_every_section_is_read() -> None:
    """A section added to the file must be added here, or to test_offline.py."""
    here = {
        "meta",
        "simplex_projection",
        "algorithm1",
        "putta_agrawal",
        "algorithm2_bandit",
        "faircb_ftrl_step",
        "faircb_trajectory_bandit",
        "faircb_trajectory_full_information_extension",
        "hedge",
        "constants",
        "offline_optimum",
    }
    assert set(GOLDEN) == here
