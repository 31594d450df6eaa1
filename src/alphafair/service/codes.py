"""Which status an error has, by its code: for the service, and for clients, which get those of batches without one."""

from __future__ import annotations

STATUS = {
    "unknown_experiment": 404,
    "unknown_arm": 404,
    "unknown_context": 404,
    "unknown_key": 404,
    "unknown_decision": 404,
    "experiment_exists": 409,
    "arm_exists": 409,
    "paused": 409,
    "too_many_contexts": 409,
    "id_taken": 409,
    "not_activated": 409,
    "conflict_decision": 409,
    "expired_decision": 410,
    "rolled_back_decision": 410,
    "policy_failed": 503,
}


def status_of(code: str) -> int:
    """Whatever else is wrong with a request can be told from the request."""
    return STATUS.get(code, 422)
