"""One experiment in memory: labels, settings, counts and its policy, and the checks of arguments that concern them."""

from __future__ import annotations

import copy
import json
import logging
import operator
import random
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from alphafair import metrics, validate
from alphafair.algorithms import POLICIES, BasePolicy, load_policy
from alphafair.engine import changes
from alphafair.engine.changes import alpha_of
from alphafair.engine.dates import date_of
from alphafair.engine.state.settings import DEFAULT_CARRY, checked_period
from alphafair.engine.steps import Steps, Tally, follow
from alphafair.engine.store.ledger import Change
from alphafair.engine.summary import Fairness, Summary, unknown
from alphafair.errors import InvalidArgument, PolicyFailed, RequestError, encodable
from alphafair.groups import Groups
from alphafair.jit import OF_STATES, fingerprint
from alphafair.values import Feedback, State, Vector
from alphafair_client.answers import GroupStatus, PeriodStatus, Status

CODE = fingerprint(OF_STATES)  # with other code the same log may lead to other bits
LONGEST_REASON: Final = 300
CHECKED = 1 << 20  # numbers of a state that are checked in one step
DRAWING, SAVING, REPORTING = "drawing an arm", "saving its state", "reporting"  # failures that a policy survives
LOG = logging.getLogger("alphafair.engine")
CONTEXT_COPIES: Final = 5  # of a context's state that may exist at once while the state grows, is saved or is loaded
LABEL_BYTES: Final = 1_000  # of a label of 200 characters and its entry in the table of labels
Saved = TypeVar("Saved")


class Experiment:
    """The state of one experiment; `apply` makes a change, `learn` takes in decisions and rewards.

    The failure of a policy concerns its own experiment only. A policy that fails to draw, or to save its state, is
    kept. One that fails to learn, to be created or to be changed is dropped, because its state is no longer what the
    log leads to: requests that need a policy are then refused.
    """

    def __init__(self, created: Change) -> None:
        body = json.loads(created.body)
        self.key: int = created.experiment
        self.name: str = body["name"]
        self.arms: list[str] = list(body["arms"])
        self.arm_numbers = {arm: number for number, arm in enumerate(self.arms)}
        self._playable: NDArray[np.bool_] | None = None  # by arm: neither retired nor masked; None: to be computed
        self.playable_since = [created.at] * len(self.arms)  # when each arm was added or last unmasked
        self.added_at = [created.at] * len(self.arms)
        self.retired_at: dict[int, int] = {}
        self.retired: set[int] = set()
        self.masked: set[int] = set()
        self.paused = False
        self.low, self.high = body["reward_range"]
        self.reward_wait: float | None = body["reward_wait"]
        self.wait = None if self.reward_wait is None else int(self.reward_wait * 1e6)  # microseconds
        self.default_reward: float | None = body["default_reward"]
        self.period: int | None = body.get("period")  # microseconds
        self.period_start: int = body.get("period_start", created.at)
        self.carry: float = body.get("carry", DEFAULT_CARRY)
        self.period_number = 0
        self.began: tuple[int, int] = (
            created.position,
            created.at,
        )  # position and time of the start of the current period
        self.next_boundary = self._boundary_after(created.at)
        self._earned_before: list[float] = []  # what each arm had earned when the current period began
        self._pulls_before: list[int] | None = []  # and how often it was drawn; None: an older version wrote no draws
        self._retired_before: set[int] = set()
        self._closed_periods: list[PeriodStatus] = []
        self.position = self.version = created.position
        if "code" not in body:
            repair = "Export its log with the version that made it."
            raise InvalidArgument("path", "a file of alphafair 0.1.0 or later", "one of an unreleased version", repair)
        self.code: str = body["code"]
        self.changes: list[Change] = [created]
        self.unsaved, self.snapshot_every = 0, 0  # events since the last snapshot, and the least between two snapshots
        self.contexts: dict[str, int] = {}
        self.n_contexts: int = body["n_contexts"]
        self.tally = Tally()
        self.tally.add_arms(len(self.arms))
        self.summary = Summary(created.at, len(self.arms))
        self.policy_name: str = body["policy"]
        self.alpha: float | None = alpha_of(body["settings"])
        self.full, self.only_draws = False, False
        self.problems: dict[str, str] = {}  # what the policy failed at, and why
        self._failed_in: int | None = None  # the context whose draw failed
        self._policy: BasePolicy | None = None

    # its policy

    @property
    def policy(self) -> BasePolicy:
        if self._policy is None:
            raise PolicyFailed(self.name, self.unhealthy or "it was not created")
        return self._policy

    @policy.setter
    def policy(self, policy: BasePolicy) -> None:
        """Set a working policy, and forget earlier failures."""
        self._policy = policy
        self.problems.clear()
        self.full = policy.feedback is Feedback.FULL
        self.only_draws = not self.full and type(policy).choose is BasePolicy.choose  # `_draw_arm` is enough

    @property
    def has_policy(self) -> bool:
        return self._policy is not None

    @property
    def unhealthy(self) -> str | None:
        """What is wrong with the policy; None while it works."""
        return "; ".join(self.problems.values()) or None

    def first_policy(self) -> BasePolicy:
        """Make the policy that the experiment was created with."""
        created = self.changes[0]
        body = json.loads(created.body)
        if created.state is not None:
            return load_policy(State.from_bytes(created.state))
        if self.policy_name not in POLICIES:
            repair = "Import the module that registers it before you open the file."
            raise InvalidArgument("policy", "registered in this process", self.policy_name, repair)
        kind = POLICIES[self.policy_name]
        settings = kind._settings_of_this_version(body["settings"])
        if "groups" in settings:
            settings["groups"] = Groups(**settings["groups"])
        policy = kind(1, len(body["arms"]), **settings)
        if body["n_contexts"] > 1:
            policy.grow(n_contexts=body["n_contexts"])
        return policy

    def failed(self, doing: str, problem: BaseException | str) -> PolicyFailed:
        """Record what the policy failed at, log it once, and return the error to answer with."""
        what = problem if isinstance(problem, str) else f"{type(problem).__name__}: {problem}"
        reason = f"{doing}: {encodable(what[:LONGEST_REASON]).rstrip('.')}"
        if doing not in self.problems:
            raised = problem if isinstance(problem, BaseException) else None
            LOG.error("The policy of %s failed while %s", self.name, reason, exc_info=raised)
        self.problems[doing] = reason
        return PolicyFailed(self.name, reason)

    def drop_policy(self, doing: str, problem: BaseException | str) -> None:
        """Continue without a policy, whose state is no longer what the log leads to.

        A lack of memory is not a failure of the policy: the error is raised again, and everything is reloaded.
        """
        if isinstance(problem, MemoryError):
            raise problem
        self._policy = None
        self.failed(doing, problem)

    def policy_for(self, policy: BasePolicy, context: int) -> BasePolicy:
        """Return a policy with memory for a new context; a copy where more contexts change what others play."""
        try:
            if context >= policy.n_contexts:
                policy = policy if policy.traits.contexts_apart else copy.deepcopy(policy)
                policy.grow(n_contexts=context + 1)
        except InvalidArgument:  # it accepts no more contexts
            raise
        except Exception as problem:
            self._failed_in = context
            raise self.failed(DRAWING, problem) from problem
        return policy

    def draw(
        self, policy: BasePolicy, context: int, rng: random.Random, mask: NDArray[np.bool_] | None
    ) -> tuple[int, float, Vector | None]:
        """Return an arm, its propensity and, under full information, the distribution; anything else is a failure."""
        probabilities: Any = None
        try:
            if mask is None and self.only_draws:
                arm, propensity = policy.stepper.draw_alone(context, rng.random())
            else:
                _, arm, propensity, probabilities = policy.choose(context, rng=rng, available=mask)
            if type(arm) is not int or type(propensity) is not float:
                arm, propensity = operator.index(arm), float(propensity)
            if (
                not 0 <= arm < len(self.arms)
                or not 0.0 < propensity <= 1.0
                or (self.retired and arm in self.retired)
                or (mask is not None and not mask[arm])
            ):
                raise ValueError(f"arm {arm} cannot be drawn with propensity {propensity!r}")
            if self.full:
                probabilities = np.array(probabilities, dtype=np.float64)
                check_distribution(probabilities, len(self.arms), arm, propensity)
            else:
                probabilities = None
        except Exception as problem:
            self._failed_in = context
            raise self.failed(DRAWING, problem) from problem
        if self._failed_in is not None and self._failed_in == context:
            self._failed_in = None
            self.problems.pop(DRAWING, None)
        return arm, propensity, probabilities

    def learn(self, steps: Steps, doing: str) -> None:
        """Let the policy learn from steps; `doing` describes them in case it fails."""
        if self.has_policy:
            try:
                follow(self.policy, steps.for_policy, self.to_unit)
            except Exception as problem:  # the events are on the disk, and other experiments have theirs to learn from
                self.drop_policy(doing, problem)

    def to_unit(self, reward: Any) -> Any:
        """Map rewards from the reward range to the range that the policy learns from."""
        if self.policy.traits.reward_range != (0.0, 1.0):
            return reward
        return (reward - self.low) / (self.high - self.low)

    # saving

    def saved_state(self) -> bytes | None:
        """Return the policy's state as bytes that can be loaded; None while it is unhealthy, or cannot be saved."""
        return self._while_saving(state_bytes)

    def copied_state(self) -> State | None:
        """Return a copy of the policy's state, to be written later; None while it is unhealthy, or cannot be saved."""
        return self._while_saving(lambda policy: policy.snapshot())

    def summary_at(self, at: int) -> bytes:
        """Return the summary as a change at this time finds it."""
        summary = self.summary.copy()
        summary.advance(at, self.fairness)
        return summary.to_bytes()

    def _while_saving(self, use: Callable[[BasePolicy], Saved]) -> Saved | None:
        if not self.has_policy or self.problems.keys() - {SAVING, REPORTING}:
            return None
        try:
            return use(self.policy)
        except Exception as problem:
            self.failed(SAVING, problem)
            return None

    def saved(self, n_events: int) -> None:
        """A snapshot is on the disk; the next is due after at least `n_events` events."""
        self.snapshot_every = n_events
        self.problems.pop(SAVING, None)

    @property
    def n_state_bytes(self) -> int:
        """The approximate size of the policy's state."""
        return 0 if self._policy is None else self._policy.n_contexts * self._policy.stepper.bytes_per_context

    def contexts_in(self, n_bytes: int) -> int:
        """Return how many contexts fit into so much memory, whatever is done with them; at least 1."""
        if not self.has_policy:
            return self.n_contexts
        return max(1, n_bytes // (CONTEXT_COPIES * self.policy.stepper.bytes_per_context + LABEL_BYTES))

    # changes

    def add_contexts(self, numbers: Mapping[str, int], policy: BasePolicy) -> None:
        """Add contexts, and continue with the policy that has memory for them."""
        self.contexts.update(numbers)
        self.n_contexts, self._policy = self.n_contexts + len(numbers), policy

    def apply(self, change: Change, policy: BasePolicy | None = None) -> None:
        """Make a change; `policy` has been changed already, if it is passed."""
        self.note(change)
        if policy is not None:
            self._policy = policy
        elif self._policy is not None:
            try:
                changes.apply_to_policy(self._policy, change)
            except Exception as problem:
                self.drop_policy(f"changing at position {change.position}", problem)

    def note(self, change: Change) -> None:
        """Make a change, except for what it does to the policy."""
        self._playable = None
        self.summary.advance(change.at, self.fairness)
        changes.apply_to_experiment(self, change)
        self.version = change.position
        self.changes.append(change)

    # periods

    def _boundary_after(self, at: int) -> int | None:
        """Return when the period ends that a moment belongs to, by the calendar; None where periods do not end."""
        if self.period is None:
            return None
        return self.period_start + max(0, (at - self.period_start) // self.period + 1) * self.period

    def period_change(self, now: int, carry: float | None = None) -> dict[str, Any]:
        """Return the body of the change that starts a period: now, with a `carry`, or at the last boundary until now.

        Where several boundaries have passed, one change stands for all of them. It has the books of the period that
        ends, because a replay counts the rewards of many events before it repeats their changes.
        """
        n_boundaries, at = 1, now
        ended = now
        if carry is None and self.period is not None and self.next_boundary is not None:
            n_boundaries = (now - self.next_boundary) // self.period + 1
            ended, at = self.next_boundary, self.next_boundary + (n_boundaries - 1) * self.period
            carry = self.carry**n_boundaries
        entry, accounts = self.period_accounts()
        books = {"ended": ended, "earned": self.tally.earned.tolist(), "rewards": self._period_rewards()}
        books |= {"pulls": self.tally.pulls.tolist(), "entry_accounts": entry, "accounts": accounts}
        return {"period": self.period_number + n_boundaries, "carry": carry, "at": at, "books": books}

    def period_setting(self, now: int, period: Any, start: Any, carry: Any) -> dict[str, Any]:
        """Return the body of the change that sets another period; None where periods no longer end by the calendar.

        Without a `start` the calendar stays if the length does; otherwise it starts now. Without a `carry` that stays.
        """
        fields = checked_period(period, start, self.carry if carry is None else carry)
        length = fields.get("period")
        kept = self.period_start if length == self.period else now
        fields = {"carry": DEFAULT_CARRY, "period_start": kept} | fields
        return fields | {"period": length}

    def set_calendar(self, change: Change, body: Mapping[str, Any]) -> None:
        self.period, self.period_start, self.carry = body["period"], body["period_start"], body["carry"]
        self.next_boundary = self._boundary_after(change.at)

    def begin_period(self, change: Change, body: Mapping[str, Any]) -> None:
        books = body["books"]
        numbers = books["rewards"], books["entry_accounts"], books["accounts"]
        self._closed_periods.append(self._period_status(books["ended"], change.position - 1, *numbers))
        self.period_number, self.began = body["period"], (change.position, body["at"])
        self.next_boundary = self._boundary_after(body["at"])
        self._earned_before, self._retired_before = books["earned"], set(self.retired)
        self._pulls_before = books.get("pulls")

    def _period_status(self, ended: int | None, last: int | None, *numbers: dict[str, float]) -> PeriodStatus:
        first, started = self.began
        until = None if ended is None else date_of(ended)
        return PeriodStatus(self.period_number, date_of(started), until, first, last, *numbers)

    def _period_rewards(self) -> dict[str, float]:
        """Return what every arm has earned in the current period."""
        earned = self.tally.earned.copy()
        earned[: len(self._earned_before)] -= self._earned_before
        rows = enumerate(zip(self.arms, earned.tolist(), strict=True))
        return {arm: value for number, (arm, value) in rows if value or number not in self._retired_before}

    def period_pulls(self) -> dict[str, int] | None:
        """Return how often every arm was drawn in the current period; None for a period of an older version's log."""
        if self._pulls_before is None:
            return None
        pulls = self.tally.pulls.copy()
        pulls[: len(self._pulls_before)] -= np.array(self._pulls_before, dtype=np.int64)
        return dict(zip(self.arms, pulls.tolist(), strict=True))

    def period_accounts(self) -> tuple[dict[str, float], dict[str, float]]:
        """Return the accounts at the start of the current period and now; empty where the policy has none or fails."""
        try:
            entry, accounts = self.policy.entry_accounts, self.accounts
            if entry is None or not accounts or not np.isfinite([*entry, *accounts.values()]).all():
                return {}, {}
            gone = set() if self.group_of else {self.arms[number] for number in self._retired_before}
            found = self._by_group(entry), accounts
        except Exception:  # `status` tells what is wrong
            return {}, {}
        first, second = ({label: value for label, value in each.items() if label not in gone} for each in found)
        return first, second

    @property
    def periods(self) -> tuple[PeriodStatus, ...]:
        """All periods with books, the current one last; none where there was never more than one."""
        if self.period is None and not self._closed_periods:
            return ()
        current = self._period_status(None, None, self._period_rewards(), *self.period_accounts())
        return (*self._closed_periods, current)

    # reports

    def status(self, max_contexts: int) -> Status:
        tally = self.tally
        return Status(
            name=self.name,
            policy=self.policy_name,
            arms=tuple(self.live_arms),
            retired_arms=tuple(self.arms[number] for number in sorted(self.retired)),
            masked_arms=tuple(self.arms[number] for number in sorted(self.masked)),
            paused=self.paused,
            reward_range=(self.low, self.high),
            reward_wait=self.reward_wait,
            default_reward=self.default_reward,
            policy_version=self.version,
            position=self.position,
            contexts=self.n_contexts,
            max_contexts=max_contexts,
            decisions=tally.decisions,
            rewards=tally.rewards,
            defaulted=tally.defaulted,
            expired=tally.expired,
            lapsed=tally.lapsed,
            rolled_back=tally.rolled_back,
            pending=tally.pending,
            pulls=dict(zip(self.arms, tally.pulls.tolist(), strict=True)),
            cumulative_rewards=dict(zip(self.arms, tally.earned.tolist(), strict=True)),
            **self._policy_status(),
            period=None if self.period is None else self.period / 1e6,
            period_ends=None if self.next_boundary is None else date_of(self.next_boundary),
            carry=self.carry,
            periods=self.periods,
            unhealthy=self.unhealthy,
        )

    def _policy_status(self) -> dict[str, Any]:
        """Return the fields of `Status` that come from the policy; defaults where there is none, or it fails."""
        feedback = Feedback.FULL if self.full else Feedback.BANDIT
        status: dict[str, Any] = {"feedback": feedback.value, "alpha": self.alpha}
        status |= {"groups": None, "accounts": {}, "welfare": None}
        if self.has_policy:
            try:
                accounts = self.accounts
                if not np.isfinite([*accounts.values()]).all():
                    raise ValueError(f"accounts {reprlib.repr(accounts)} are not all finite")
                status |= {"alpha": self.policy.alpha, "groups": self.groups, "accounts": accounts}
                status["welfare"] = self._welfare(accounts)
                self.problems.pop(REPORTING, None)
            except Exception as problem:
                self.failed(REPORTING, problem)
        return status

    @property
    def live_arms(self) -> list[str]:
        return [arm for number, arm in enumerate(self.arms) if number not in self.retired]

    @property
    def accounts(self) -> dict[str, float]:
        """R of every group, or arm. Empty where the policy keeps none, or one per context."""
        accounts = self.policy.accounts
        return {} if accounts is None or np.ndim(accounts) == 2 else self._by_group(accounts)

    def _welfare(self, accounts: dict[str, float]) -> float | None:
        """Return the welfare of accounts, weighted by entitlements; None without accounts or alpha."""
        if not accounts or self.policy.alpha is None:
            return None
        return float(metrics.welfare([*accounts.values()], self.policy.alpha, groups=self._entitled()))

    def fairness(self) -> Fairness:
        """Return Jain's index and the welfare of the accounts; nan where the policy keeps none, or fails."""
        try:
            accounts = self.accounts if self.has_policy else {}
            welfare = self._welfare(accounts)
            return unknown() if welfare is None else (self._jain_index(accounts), welfare)
        except Exception:  # `status` tells what is wrong
            return unknown()

    def _jain_index(self, accounts: dict[str, float]) -> float:
        return float(metrics.jain_index([*accounts.values()], groups=self._entitled()))

    def _entitled(self) -> Groups | None:
        """Return the entitlements of the accounts; None where they are equal."""
        groups = self.policy.groups
        return None if groups is None or groups.equally_entitled else Groups(entitlements=groups.entitlements)

    @property
    def groups(self) -> GroupStatus | None:
        """The policy's groups; None where every arm is on its own, with equal entitlements and no floor."""
        groups = self.policy.groups
        if groups is None or groups.is_default:
            return None
        floors = groups.group_floors
        return GroupStatus(
            self.group_of or None,
            None if groups.equally_entitled else self._by_group(groups.entitlements),
            self._by_group(floors) if floors.any() else groups.arm_floor or None,
        )

    @property
    def group_of(self) -> dict[str, str]:
        """The group of every arm; empty where arms are on their own."""
        groups = self.policy.groups
        if groups is None or not groups.named:
            return {}
        return {arm: groups.labels[g] for arm, g in zip(self.arms, groups.of_arms, strict=True)}

    def _by_group(self, values: Any) -> dict[str, float]:
        """Return numbers by group, or by arm where arms are on their own."""
        groups = self.policy.groups
        labels = self.arms if groups is None or not groups.named else groups.labels
        return dict(zip(map(str, labels), values.tolist(), strict=True))

    # checks of what a request brings

    def number_of(self, arm: Any, argument: str = "arm") -> int:
        number = self.arm_numbers.get(arm) if isinstance(arm, str) else None
        if number is None:
            repair = f"{self.name} has {validate.listed(self.arms)}."
            raise RequestError("unknown_arm", argument, f"an arm of {self.name}", arm, repair)
        return number

    def mask(self, available: Iterable[str] | None) -> NDArray[np.bool_] | None:
        """Return which arms can be played now, or None where all live arms can."""
        if available is None and not self.masked:
            return None
        if self._playable is None:
            self._playable = np.ones(len(self.arms), dtype=np.bool_)
            self._playable[[*self.masked, *self.retired]] = False
        mask = self._playable.copy()
        if available is not None:
            mask[:] = False
            mask[self._numbers_of(available)] = True
            mask &= self._playable
        if not mask.any():
            repair = "Do not ask for a decision when no arm can be played."
            raise RequestError("no_arm_available", "available", "at least one arm that can be played", [], repair)
        return mask

    def _numbers_of(self, available: Iterable[str]) -> list[int]:
        try:
            names = None if isinstance(available, str) else list(available)
        except Exception:  # whatever the caller's iterator raises
            names = None
        if names is None:
            raise RequestError("bad_request", "available", "a list of arms", available, "Put them into a list.")
        try:
            return [self.arm_numbers[name] for name in names]
        except (KeyError, TypeError):  # name the one that is wrong
            return [self.number_of(name, "available") for name in names]

    def checked_reward(self, value: Any, n_arms: int) -> tuple[float | None, bytes | None]:
        """Return a reward as it is stored: one number, or under full information one per arm.

        `n_arms` is the number of arms when the decision was made, 0 where one number is expected. Rewards of all arms
        may be passed by label, or in the order of arms.
        """
        allowed = f"in [{self.low:g}, {self.high:g}]"
        if n_arms:
            if isinstance(value, Mapping):
                arms = self.arms[:n_arms]
                missing = [arm for number, arm in enumerate(arms) if number not in self.retired and arm not in value]
                unknown = [arm for arm in value if self.arm_numbers.get(arm, n_arms) >= n_arms]
                if missing or unknown:
                    some = (
                        f"Missing: {validate.listed(missing) or 'none'}; unknown: {validate.listed(unknown) or 'none'}."
                    )
                    raise RequestError("bad_reward", "reward", "a value for every arm", f"{len(value)} values", some)
                value = [value.get(arm, self.low) for arm in arms]
            try:
                rewards = validate.floats("reward", "a number per arm", value, "Pass a list, or a mapping by label.")
            except InvalidArgument as refused:
                raise RequestError("bad_reward", *refused.args) from None
            if rewards.shape != (n_arms,) or not ((rewards >= self.low) & (rewards <= self.high)).all():
                repair = "Pass one per arm, in the order of the experiment's arms."
                raise RequestError("bad_reward", "reward", f"{n_arms} numbers {allowed}", value, repair)
            return None, rewards.astype("<f8").tobytes()
        try:
            is_number = not isinstance(value, str | bytes | bool) and not getattr(value, "ndim", 0)
            number = float(value) if is_number and not np.ma.is_masked(value) else np.nan
        except Exception:  # it cannot be converted, or is too large
            number = np.nan
        if not self.low <= number <= self.high:
            repair = f"{self.name} was created with this reward_range."
            raise RequestError("bad_reward", "reward", f"a number {allowed}", value, repair)
        return number, None


# policies and their states


def state_bytes(policy: BasePolicy) -> bytes:
    """Return the state of a policy as bytes; refused where it could not be loaded again."""
    state = policy.snapshot()
    for _ in checks_of(state):
        pass
    return state.to_bytes()


def checks_of(state: State) -> Iterator[None]:
    """Refuse a state with NaN; yields between short steps, as there may be many numbers."""
    for name, array in state.arrays.items():
        if array.dtype.kind == "f":
            values = array.reshape(-1)
            for first in range(0, len(values), CHECKED):
                if np.isnan(values[first : first + CHECKED]).any():
                    raise ValueError(f"{name!r} in its state has a value that is not a number")
                yield


def same_state(first: State, second: State) -> bool:
    """Return whether two states are equal to the last bit, apart from their random numbers."""
    return (
        (first.policy, first.version, dict(first.settings)) == (second.policy, second.version, dict(second.settings))
        and first.arrays.keys() == second.arrays.keys()
        and all(_same_bits(first.arrays[key], second.arrays[key]) for key in first.arrays)
    )


def _same_bits(one: NDArray[Any], other: NDArray[Any]) -> bool:
    return one.shape == other.shape and one.dtype == other.dtype and one.tobytes() == other.tobytes()


def check_distribution(probabilities: Vector, n_arms: int, arm: int, propensity: float) -> None:
    """Refuse what is not a distribution, or does not draw the arm with its propensity."""
    sums_to_one = probabilities.shape == (n_arms,) and abs(float(probabilities.sum()) - 1.0) <= 1e-6
    if not sums_to_one or probabilities.min() < 0.0 or probabilities[arm] != propensity:
        shown = reprlib.repr(probabilities.tolist())
        raise ValueError(f"{shown} is not a distribution that draws arm {arm} with propensity {propensity!r}")
