"""Kinds of changes, a row each: what is checked, what a change does, what readers see of it, and what holds afterwards.

A change is an event whose body is a JSON object. The log keeps bodies for ever, so a field that was once written keeps
its meaning. A new kind is a row here and a field of `ChangeRequest` in `alphafair_client.api`, with a method in the
engine and one in the client.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from alphafair import validate
from alphafair.engine import terms
from alphafair.engine.dates import date_of
from alphafair.engine.state.settings import checked_label
from alphafair.engine.state.status import group_of
from alphafair.errors import RequestError
from alphafair.formatting import json_alpha
from alphafair.groups import Groups
from alphafair.policy.base import BasePolicy
from alphafair_client.answers import ChangeRecord

if TYPE_CHECKING:
    from alphafair.engine.state.experiment import Experiment
    from alphafair.engine.store.ledger import Change

Fields = dict[str, Any]
NOT_IN_HISTORY: Final = ("books", "code", "summary", "tally")  # fields of a body that only the engine uses


def _no_effect(experiment: Experiment, change: Change, body: Fields) -> None:
    pass


def _as_written(experiment: Experiment, body: Fields) -> Fields:
    return body


@dataclass(frozen=True, kw_only=True)
class ChangeKind:
    """One kind of change."""

    check: Callable[..., Fields | None] = lambda experiment, now: {}
    """Return the body, from the experiment, the time and arguments; None where there is nothing to change."""
    effect: Callable[[Experiment, Change, Fields], object] = _no_effect
    """What it does to an experiment, apart from its policy."""
    policy: Callable[[BasePolicy, Fields], object] | None = None
    """What it does to the policy: tried on a copy before it is written."""
    works_on_policy: Callable[[Fields], bool] = lambda body: True
    """Whether a change with this body concerns the policy, where `policy` is not None."""
    details: Callable[[Experiment, Fields], Fields] = _as_written
    """Return the body for readers."""
    guarantee: str | None = None
    """What holds afterwards; None where the page does not offer this kind."""


# arms


def _arrival(
    experiment: Experiment,
    now: int,
    arm: Any,
    account: Any,
    group: Any = None,
    entitlement: Any = None,
    features: Any = None,
) -> Fields:
    checked_label("arm", arm)
    validate.account(account)
    groups = group_of(experiment)
    if arm in experiment.arm_numbers:
        raise RequestError("arm_exists", "arm", "new", arm, "Choose another name: retired arms keep theirs.")
    if bool(groups) == (group is None):
        allowed = "passed: every arm of this experiment has one" if groups else "left out: arms have no groups"
        raise RequestError("bad_request", "group", allowed, group, "See the experiment's groups.")
    if group is not None:
        checked_label("group", group)
    if entitlement is not None and group in groups.values():
        repair = "The group keeps its entitlement."
        raise RequestError("bad_request", "entitlement", "left out for an existing group", entitlement, repair)
    described = None
    if experiment.arm_values is not None:
        described = experiment.arm_values.schema.values(experiment.arm_values.stored(features))
    elif features is not None:
        repair = "Declare arm_features when you create an experiment."
        raise RequestError("bad_features", "features", "left out: arms have no features", features, repair)
    body = {"arm": arm, "account": account, "group": group, "entitlement": entitlement, "features": described}
    return {key: value for key, value in body.items() if value is not None}


def _add_arm(experiment: Experiment, change: Change, body: Fields) -> None:
    experiment.arm_numbers[body["arm"]] = len(experiment.arms)
    experiment.arms.append(body["arm"])
    experiment.tally.add_arms(len(experiment.arms))
    experiment.summary.add_arm()
    experiment.playable_since.append(change.at)
    experiment.added_at.append(change.at)
    if experiment.arm_values is not None:
        experiment.arm_values.add_arm(change.position, body.get("features"))


def _grow(policy: BasePolicy, body: Fields) -> None:
    group, entitlement = ([body[key]] if body.get(key) is not None else None for key in ("group", "entitlement"))
    groups: dict[str, Any] = {} if group is entitlement is None else {"groups": Groups(group, entitlement)}
    policy.grow(n_arms=policy.n_arms + 1, account=body["account"], **groups)


def _retirement(experiment: Experiment, now: int, arm: Any) -> Fields | None:
    number = experiment.number_of(arm)
    if number in experiment.retired:
        return None
    if len(experiment.live_arms) == 1:
        raise RequestError("last_arm", "arm", "one of at least two live arms", arm, "Add another first.")
    return {"arm": number}


def _retire(experiment: Experiment, change: Change, body: Fields) -> None:
    experiment.retired[body["arm"]] = change.at


def _existing_arm(experiment: Experiment, now: int, arm: Any) -> Fields:
    return {"arm": experiment.number_of(arm)}


def _unmask(experiment: Experiment, change: Change, body: Fields) -> None:
    experiment.masked.discard(body["arm"])
    experiment.playable_since[body["arm"]] = change.at


def _arm_by_label(experiment: Experiment, body: Fields) -> Fields:
    return body | {"arm": experiment.arms[body["arm"]]}


# alpha and periods


def alpha_of(fields: Mapping[str, Any]) -> float | None:
    """Return the alpha of a body, which has infinity as a string."""
    alpha = fields.get("alpha")
    return math.inf if alpha == "inf" else alpha


def _set_alpha(experiment: Experiment, change: Change, body: Fields) -> None:
    experiment.alpha = alpha_of(body)


def _new_period(experiment: Experiment, now: int, carry: Any = None) -> Fields:
    part = experiment.periods.carry if carry is None else validate.number("carry", carry, low=0.0, high=1.0)
    return experiment.periods.new_period(experiment, now, part)


def _calendar(experiment: Experiment, now: int, period: Any, start: Any = None, carry: Any = None) -> Fields:
    return experiment.periods.new_calendar(now, period, start, carry)


def _period_in_seconds(experiment: Experiment, body: Fields) -> Fields:
    if body.get("period") is not None:
        body = body | {"period": body["period"] / 1e6}
    if "period_start" in body:
        body = body | {"period_start": date_of(body["period_start"]).isoformat()}
    return body


# the others


def _set_paused(experiment: Experiment, change: Change, body: Fields) -> None:
    experiment.paused = change.kind == "pause"


def _set_code(experiment: Experiment, change: Change, body: Fields) -> None:
    experiment.code = body["code"]


def existing_context(experiment: Experiment, now: int, context: Any) -> Fields:
    """Return the body of the erasure of a context."""
    number = experiment.contexts.get(checked_label("context", context))
    if number is None:
        repair = "There is nothing to erase."
        raise RequestError("unknown_context", "context", f"a context of {experiment.name}", context, repair)
    return {"context": number}


CHANGES: Final = {
    "create": ChangeKind(details=_period_in_seconds),
    "add_arm": ChangeKind(
        check=_arrival,
        effect=_add_arm,
        policy=_grow,
        guarantee="A new epoch starts from the present accounts. The arm enters with the least account, so that it "
        "catches up without a claim to the past.",
    ),
    "retire_arm": ChangeKind(
        check=_retirement,
        effect=_retire,
        policy=lambda policy, body: policy.retire(body["arm"]),
        details=_arm_by_label,
        guarantee="A new epoch starts from the present accounts of the arms that stay.",
    ),
    "mask_arm": ChangeKind(
        check=_existing_arm,
        effect=lambda experiment, change, body: experiment.masked.add(body["arm"]),
        details=_arm_by_label,
        guarantee="Under full information certificates include masked rounds. Under bandit feedback the theorem holds "
        "for rounds without masks.",
    ),
    "unmask_arm": ChangeKind(
        check=_existing_arm,
        effect=_unmask,
        details=_arm_by_label,
        guarantee="Unchanged from here on: rounds without masks are covered again.",
    ),
    "set_alpha": ChangeKind(
        check=lambda experiment, now, alpha: {"alpha": json_alpha(validate.alpha(alpha))},
        effect=_set_alpha,
        policy=lambda policy, body: policy.set_alpha(body["alpha"]),
        guarantee="It starts again from the present accounts: certificates cover only rounds after the change. What "
        "was learned about rewards stays.",
    ),
    "new_period": ChangeKind(
        check=_new_period,
        effect=lambda experiment, change, body: experiment.periods.begin(experiment, change, body),
        policy=lambda policy, body: policy.new_period(body["carry"]),
        guarantee="That of the new period alone, starting from the accounts that are carried over.",
    ),
    "set_period": ChangeKind(
        check=_calendar,
        effect=lambda experiment, change, body: experiment.periods.set_calendar(change, body),
        details=_period_in_seconds,
        guarantee="Unchanged until the next boundary; then that of each period alone, starting from the accounts that "
        "are carried over.",
    ),
    "terms": ChangeKind(  # each term has its guarantee
        check=terms.checked,
        effect=terms.follow,
        policy=terms.change_policy,
        works_on_policy=terms.works_on_policy,
        details=terms.details,
    ),
    "pause": ChangeKind(
        effect=_set_paused,
        guarantee="Unchanged: rounds that do not happen do not count.",
    ),
    "resume": ChangeKind(effect=_set_paused, guarantee="Unchanged."),
    "rollback": ChangeKind(
        guarantee="That of the target position. Rewards since then were paid to arms but no longer count."
    ),
    "erase": ChangeKind(check=existing_context, guarantee="Unchanged: what was learned stays."),
    "upgrade": ChangeKind(effect=_set_code),
}
OTHER: Final = ChangeKind()  # of a later version: it has no effect


def apply_to_experiment(experiment: Experiment, change: Change) -> None:
    """Do to an experiment what a change asks of it, except for its policy."""
    CHANGES.get(change.kind, OTHER).effect(experiment, change, json.loads(change.body))


def apply_to_policy(policy: BasePolicy, change: Change) -> None:
    """Do to a policy what a change asks of it, if anything."""
    if concerns_policy(change):
        work = CHANGES[change.kind].policy
        work(policy, json.loads(change.body))  # type: ignore[misc]


def concerns_policy(change: Change) -> bool:
    """Return whether a change does something to the policy."""
    kind = CHANGES.get(change.kind, OTHER)
    return kind.policy is not None and kind.works_on_policy(json.loads(change.body))


def history(experiment: Experiment) -> list[ChangeRecord]:
    """Return every change for readers, with arms by label, and periods in seconds and by their date."""
    return [
        ChangeRecord(change.position, date_of(change.at), change.kind, change.by, _details(experiment, change))
        for change in experiment.changes
    ]


def _details(experiment: Experiment, change: Change) -> Fields:
    body = {key: value for key, value in json.loads(change.body).items() if key not in NOT_IN_HISTORY}
    return CHANGES.get(change.kind, OTHER).details(experiment, body)
