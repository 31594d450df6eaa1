"""From a log: what a policy would have earned, what fairness costs, and a warm start. docs/logs.md is its page."""

from alphafair.evaluation.doctor import Diagnosis, Finding, doctor
from alphafair.evaluation.estimate import Estimate, evaluate
from alphafair.evaluation.frontier import Frontier, RegretStatement, fair_policy, frontier, logged_policy, regret
from alphafair.evaluation.intervals import Interval
from alphafair.evaluation.learning import Learned, model_stream, replay, simulate_model
from alphafair.evaluation.log_file import LogFile
from alphafair.evaluation.scores import ESTIMATORS
from alphafair.evaluation.warm_start import warm_start

__all__ = [
    "ESTIMATORS",
    "Diagnosis",
    "Estimate",
    "Finding",
    "Frontier",
    "Interval",
    "Learned",
    "LogFile",
    "RegretStatement",
    "doctor",
    "evaluate",
    "fair_policy",
    "frontier",
    "logged_policy",
    "model_stream",
    "regret",
    "replay",
    "simulate_model",
    "warm_start",
]
