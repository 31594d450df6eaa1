"""Learning from logs: what a policy would have earned, what fairness costs, and a warm start.

docs/howto/evaluate_a_log.md explains the methods.
"""

from alphafair.evaluation.diagnosis import Diagnosis, Finding, doctor
from alphafair.evaluation.estimates import Estimate, evaluate, evaluate_all
from alphafair.evaluation.estimators import ESTIMATORS
from alphafair.evaluation.learning import Learned, model_stream, replay, simulate_model, warm_start
from alphafair.evaluation.log_rows import LogFile
from alphafair.evaluation.optima import fair_policy, logged_policy
from alphafair.evaluation.price import Frontier, RegretStatement, frontier, regret
from alphafair.values import Interval

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
    "evaluate_all",
    "fair_policy",
    "frontier",
    "logged_policy",
    "model_stream",
    "regret",
    "replay",
    "simulate_model",
    "warm_start",
]
