"""Snapshots, copies and logs of a policy: what was learned as a `State`, and read again.

`snapshot`, `build` and `restored` turn a policy into a `State` and back, `take_over` continues as a copy, `follow`
repeats the steps of a log, and `observe_log` learns from one of somebody else. The functions below them read a `State`
and check it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from alphafair import validate
from alphafair.errors import InvalidArgument, shown
from alphafair.groups import Groups
from alphafair.policy.arguments import fits, matching_features
from alphafair.policy.loops import OBSERVE, LogSteps
from alphafair.policy.memory import ALWAYS, DAMAGED, OF_PERIODS, OTHERS, LearnedState, copies
from alphafair.policy.random_numbers import RandomNumbers
from alphafair.policy.slate_loops import SlateSteps
from alphafair.values import Log, State

if TYPE_CHECKING:
    from alphafair.policy.base import BasePolicy


def snapshot(policy: BasePolicy) -> State:
    """Return everything that is needed to continue from here, random numbers included."""
    if policy._learned.regressors is not None:
        repair = "Learn from the log again, or use copy.deepcopy."
        raise InvalidArgument("regressor", "None for a snapshot", policy.settings["regressor"], repair)
    settings = {"n_contexts": policy.n_contexts, "n_arms": policy.n_arms, **policy.settings}
    return State(policy.name, policy._version, settings, policy._random_numbers.state(), arrays(policy._learned))


def build(
    kind: type[BasePolicy], n_contexts: int, live: NDArray[np.bool_], settings: Mapping[str, Any], seed: int | None
) -> Any:
    """Construct a policy of which some arms are retired."""
    settings, n_live = dict(settings), int(live.sum())
    arguments = settings.pop("groups", None)
    make: Any = kind  # with the parameters of its own constructor
    if arguments is None:
        policy: BasePolicy = make(n_contexts, n_live, **settings, seed=seed)
        groups = Groups().for_arms(len(live), n_live=n_live)
    else:
        groups = _groups_from_snapshot(arguments).for_arms(len(live), n_live=n_live)
        few = Groups(**groups.among(np.flatnonzero(live)).settings())
        policy = make(n_contexts, n_live, groups=few, **settings, seed=seed)
        policy.settings = {**policy.settings, "groups": groups.settings()}
    if policy._learned.groups is not None:
        policy._learned.groups.groups = groups
    if not live.all():
        policy._start(live, policy._learned.groups, policy._learned.regressors)
    return policy


def of_this_version(kind: type[BasePolicy] | BasePolicy, state: State) -> State:
    """Return a snapshot of an older version as this one would have written it, where that is possible."""
    return kind._of_this_version(state)


def restored(policy: BasePolicy, state: State) -> Any:
    """Return a policy of the same class and settings that continues from a snapshot."""
    check_state(state)
    state = of_this_version(policy, state)
    check_kind(state, policy.name, policy._version)
    n_contexts, live = checked_state(state, policy.settings)
    check_names(policy._learned, state, n_contexts)
    expected = dict(policy._settings_for(n_contexts))
    if "groups" in expected:
        arguments = state.settings["groups"]
        groups = _groups_from_snapshot(arguments).for_arms(int(state.settings["n_arms"]), n_live=1)
        if policy.groups is None or not policy.groups.agree_with(groups):
            own = None if policy.groups is None else policy.groups.settings()
            repair = "Build a matching policy with alphafair.load_policy(state)."
            raise InvalidArgument("state.settings", f"with groups {own}", arguments, repair)
        expected["groups"] = arguments
    for key, wanted in expected.items():
        if state.settings.get(key) != wanted:
            repair = "Build a matching policy with alphafair.load_policy(state)."
            raise InvalidArgument(f"state.settings[{key!r}]", repr(wanted), state.settings.get(key), repair)
    made = build(type(policy), n_contexts, live, expected, None)
    read(made._learned, state)
    if made._learned.memory.others:
        made._make_stepper()
    made._random_numbers = RandomNumbers.at(state.rng)
    made._check()
    return made


def take_over(policy: BasePolicy, other: BasePolicy) -> None:
    """Continue as a copy."""
    with policy._lock:
        policy._set_attributes(other.__getstate__())
        policy._make_stepper()


def follow(policy: BasePolicy, log: LogSteps, *, all_or_nothing: bool = False) -> None:
    """Repeat the steps of a log. An invalid propensity raises; what was learned before it stays, or goes too."""
    with policy._lock:
        before = policy._learned.copied_arrays() if all_or_nothing else None
        refused = _fold(policy, log)
        if refused >= 0:
            if before is not None:
                policy._learned.put_back(before)
            raise policy.stepper.impossible(int(log.contexts[refused]), float(log.propensities[refused]), refused)


def observe_log(policy: BasePolicy, log: Log) -> bool:
    """Learn from every row of a log as from a decision of somebody else; return whether anything was learned."""
    if not isinstance(log, Log):
        raise InvalidArgument("log", "a Log", log, "Construct an alphafair.Log.")
    fits(policy, "log", log.n_contexts, log.n_arms)
    rewards = validate.learnable(log.rewards, policy._reward_range)
    features = matching_features(policy, "log", log.features, log.n_arms)
    learns = policy.learns_from_others and bool(policy._learned.live[log.arms].any())
    if learns:
        steps = LogSteps.learning(log.contexts, log.arms, log.propensities, rewards, features)
        follow(policy, steps._replace(steps=np.full_like(steps.steps, OBSERVE)))
    return learns


def _fold(policy: BasePolicy, log: LogSteps) -> int:
    """Take the steps of a log; return the first one that was refused, or -1."""
    learned, first = policy._learned, len(log.steps)
    if policy.learns_from_others and not learned.memory.others:
        observed = np.flatnonzero((log.steps == OBSERVE) & learned.live[log.arms])
        first = int(observed[0]) if len(observed) else first
    refused = policy.stepper.fold(log.part(slice(None, first))) if first else -1
    if refused >= 0 or first == len(log.steps):
        return refused
    policy._begin_others()
    refused = policy.stepper.fold(log.part(slice(first, None)))
    return refused if refused < 0 else first + refused


def folds_slates(policy: BasePolicy) -> bool:
    """Whether steps of slates without features can be repeated in one call: bandit feedback, and no retired arms."""
    stepper = policy.stepper
    return bool(policy._bandit and stepper.whole_runs and not policy.n_features and stepper.learned.all_live)


def follow_slates(policy: BasePolicy, log: SlateSteps) -> None:
    """Repeat steps of slates of a log. An invalid propensity raises; what was learned before it stays."""
    with policy._lock:
        refused = policy.stepper.fold_slates(log)
        if refused >= 0:
            own = slice(*log.starts[[refused, refused + 1]].tolist())
            least = float(log.propensities[own].min())
            raise policy.stepper.impossible_slate(int(log.contexts[refused]), int(log.shown[refused]), least)


# arrays of a State


def arrays(learned: LearnedState) -> dict[str, NDArray[Any]]:
    """Return copies of everything learned, by name, for a State."""
    named = {**learned.named(), "live": learned.live}
    named |= {"retired_accounts": learned.retired_accounts, "entry_accounts": learned.entry_accounts}
    if len(learned.group_accounts):
        named["group_accounts"] = learned.group_accounts
    if learned.period or learned.first_round:
        named["period"] = np.array([learned.period, learned.first_round])
        named["closed_rewards"] = learned.closed_rewards
    if (learned.group_entry != 1.0).any():
        named["group_entry"] = learned.group_entry
    return copies(named)


def names(learned: LearnedState, given: Collection[str]) -> set[str]:
    """Return the names of the arrays in a snapshot, of which `given` are there."""
    expected = {name for name in learned.named() if not name.startswith(OTHERS)} | {*ALWAYS}
    if learned.layout.others is not None and has_others(given):
        expected |= {f"{OTHERS}{name}" for name in learned.layout.others.names(expected)}
    expected |= {*OF_PERIODS} if "period" in given else set()
    if len(learned.group_accounts):
        expected |= {"group_accounts"} | ({"group_entry"} & {*given})
    return expected


def check_names(learned: LearnedState, state: State, n_contexts: int) -> None:
    """Raise for a State with other arrays, or another number of contexts, before memory is allocated."""
    expected = names(learned, state.arrays)
    if {*state.arrays} != expected:
        repair = "It is damaged, or belongs to other settings: try alphafair.load_policy(state)."
        raise InvalidArgument("state.arrays", f"named {sorted(expected)}", sorted(state.arrays), repair)
    layout = learned.layout
    per_context = [*layout.context_scalars._fields, *layout.contexts._fields]
    if layout.others is not None and has_others(expected):
        per_context += [
            f"{OTHERS}{name}" for name in (*layout.others.context_scalars._fields, *layout.others.contexts._fields)
        ]
    for name in per_context:
        if np.shape(state.arrays[name])[:1] != (n_contexts,):
            got = f"shape {np.shape(state.arrays[name])}"
            raise InvalidArgument(f"state.arrays[{name!r}]", f"of {shown(n_contexts)} contexts", got, DAMAGED)


def has_others(given: Collection[str]) -> bool:
    """Whether the arrays of a snapshot have what was learned from others."""
    return any(name.startswith(OTHERS) for name in given)


def read(learned: LearnedState, state: State) -> None:
    """Read the arrays of a State; their shapes must match."""
    if has_others(state.arrays):
        learned.begin_others()
    for name, cells in learned.named().items():
        cells[...] = array_of(state, name, np.float64, cells.shape)
        if not np.isfinite(cells).all() and name not in learned.layout.may_be_infinite:
            raise InvalidArgument(f"state.arrays[{name!r}]", "finite", "infinite values", DAMAGED)
    others = ["retired_accounts", "entry_accounts"]
    others += ["group_accounts"] if len(learned.group_accounts) else []
    others += ["group_entry"] if "group_entry" in state.arrays else []
    if "period" in state.arrays:
        learned.period, learned.first_round = array_of(state, "period", np.int64, (2,)).tolist()
        others.append("closed_rewards")
    for name in others:
        cells = getattr(learned, name)
        cells[...] = array_of(state, name, np.float64, cells.shape)
    learned.version += 1


def check_accounts(learned: LearnedState) -> None:
    """Raise for accounts below the initial 1, or in the wrong place."""
    live = learned.live
    sound = (learned.accounts >= 1.0).all() and (learned.retired_accounts[:, ~live] >= 1.0).all()
    sound &= (learned.entry_accounts >= 1.0).all() and (learned.rewards_of_all >= 0.0).all()
    sound &= (learned.closed_rewards >= 0.0).all() and np.isfinite(learned.closed_rewards).all()
    sound &= (learned.group_entry >= 1.0).all() and min(learned.period, learned.first_round) >= 0
    if not sound or learned.retired_accounts[:, live].any() or not np.isfinite(learned.accounts_of_all).all():
        raise InvalidArgument("state.arrays", "accounts of at least 1", learned.accounts_of_all, DAMAGED)


def _groups_from_snapshot(arguments: Any) -> Groups:
    """Check and convert the groups in the settings of a snapshot."""
    if not isinstance(arguments, Mapping) or {*arguments} != {"labels", "entitlements", "pull_floor"}:
        raise InvalidArgument("state.settings['groups']", "labels, entitlements and pull_floor", arguments, DAMAGED)
    return Groups(**arguments)


def check_state(state: Any) -> None:
    """Raise for anything but a State."""
    parts = (state.settings, state.rng, state.arrays) if isinstance(state, State) else (None,)
    if not all(isinstance(part, Mapping) for part in parts):
        raise InvalidArgument("state", "a State", state, "Use State.from_bytes or State.load.")


def check_kind(state: State, name: str, version: int) -> None:
    """Raise for a snapshot of another policy, or of another version."""
    check_state(state)
    if state.policy != name:
        raise InvalidArgument("state.policy", repr(name), state.policy, "Restore it into a policy of that name.")
    if state.version != version:
        repair = DAMAGED
        if isinstance(state.version, int):
            repair = "It was written by a newer version: update alphafair."
            if state.version < version:
                repair = "It was written by an older version: load it there, or learn from the log again."
        raise InvalidArgument("state.version", str(version), state.version, repair)


def checked_state(state: State, settings: Iterable[str]) -> tuple[int, NDArray[np.bool_]]:
    """Return the number of contexts and the live arms; raise unless the snapshot has exactly these settings."""
    names, known = set(state.settings), {"n_contexts", "n_arms", *settings}
    if names != known:
        repair = "It is damaged, or belongs to other settings: try alphafair.load_policy(state)."
        raise InvalidArgument("state.settings", f"named {sorted(known)}", sorted(names), repair)
    return validate.integer("state.settings['n_contexts']", state.settings["n_contexts"], low=1), live_of(state)


def live_of(state: State) -> NDArray[np.bool_]:
    """Return which arms of a snapshot are live."""
    n_arms = validate.integer("state.settings['n_arms']", state.settings.get("n_arms"), low=1)
    live = array_of(state, "live", np.bool_, (n_arms,))
    if not live.any():
        raise InvalidArgument("state.arrays['live']", "true for some arm", live, DAMAGED)
    return live


def array_of(state: State, key: str, kind: Any, shape: tuple[int, ...]) -> NDArray[Any]:
    """Check an array of a State, and return a copy."""
    array: Any = state.arrays.get(key)
    known = isinstance(array, np.ndarray)
    got = f"{array.dtype} of shape {array.shape}" if known else type(array).__name__
    if not known or array.shape != shape or array.dtype != kind or np.isnan(array).any():
        allowed = f"{np.dtype(kind)} of shape {shape} without NaN"
        raise InvalidArgument(f"state.arrays[{key!r}]", allowed, got, DAMAGED)
    return np.array(array, order="C")
