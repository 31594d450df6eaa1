"""The checks themselves: a sound policy of a user's own passes them all, and every broken one fails the right one."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from alphafair import AlphaFair, AlphaFairAdaptive, Decision, Hedge, Log, State, checks, figures
from alphafair.algorithms.alpha_fair import learn_slate
from alphafair.algorithms.hedge import learn as learn_hedge
from alphafair.cli import app
from alphafair.extend import Accounts, Feedback, PlainPolicy
from alphafair.jit import kernel
from alphafair.values import Traits
from tests import ROOT
from tests.protocol_policy import EpsilonGreedy

EXAMPLES = ROOT / "examples"


def test_a_sound_policy_without_our_base_class_passes_every_check() -> None:
    results = list(checks.run_checks(EpsilonGreedy))
    assert [result.name for result in results] == list(checks.CHECKS)
    assert [result for result in results if not result.passed] == []
    skipped = {result.name for result in results if result.message.startswith(checks.NOT_APPLICABLE)}
    compiled = {"stepwise_equals_compiled", "interpreted_equals_compiled", "one_compiled_signature"}
    of_slates = {name for name in checks.CHECKS if name.startswith("slates_")}
    assert skipped == {*compiled, *of_slates, "others_agree_in_every_mode", "memory_does_not_grow"}


def test_the_example_from_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(EXAMPLES)
    monkeypatch.syspath_prepend(str(EXAMPLES))
    own = "epsilon_greedy:EpsilonGreedy"
    answer = CliRunner().invoke(app, ["check", own, "--set", "epsilon=0.2"])
    assert answer.exit_code == 0, answer.output
    assert "0 failed" in answer.stdout
    small = ["simulate", "--rounds", "500", "--arms", "4", "--output", str(tmp_path)]
    answer = CliRunner().invoke(app, [*small, "--policy", own, "--policy", "uniform"])
    assert answer.exit_code == 0, answer.output
    assert [line.split()[:2] for line in answer.stdout.splitlines() if line.startswith("epsilon")] == [
        ["epsilon-greedy", "bandit"]
    ]
    rows = json.loads((tmp_path / "results.json").read_text())["policies"]
    assert [row["policy"] for row in rows] == ["epsilon-greedy", "uniform"]
    answer = CliRunner().invoke(app, [*small, "--policy", "epsilon_greedy:EpsilonGreed"])
    assert answer.exit_code == 2
    assert "Its policies: EpsilonGreedy" in answer.stderr


def test_a_class_sets_its_style() -> None:
    class Drawn(EpsilonGreedy):
        name = "drawn"
        traits = Traits(style=("#123456", "h"))

    class Heir(Drawn):
        name = "heir"

    assert figures.policy_style("drawn") == figures.Style("#123456", "h")
    assert figures.policy_style("heir") != figures.policy_style("drawn"), (
        "a subclass with another name has its own style"
    )
    assert Heir.traits.style == Drawn.traits.style


class Leaky(EpsilonGreedy):
    def probabilities(self, context: int, *, available: Any = None) -> np.ndarray:
        return super().probabilities(context, available=available) * 0.9


class WrongPropensity(EpsilonGreedy):
    def choose(self, context: int, *, rng: Any = None, available: Any = None) -> Decision:
        return super().choose(context, rng=rng, available=available)._replace(propensity=1.0 / self.n_arms)


class OtherFrequency(EpsilonGreedy):
    """Draws the last arm more often than it says."""

    def choose(self, context: int, *, rng: Any = None, available: Any = None) -> Decision:
        decision = super().choose(context, rng=rng, available=available)
        arm = self.n_arms - 1 if decision.propensity < 0.5 and decision.probabilities[-1] > 0 else decision.arm
        return decision._replace(arm=arm, propensity=float(decision.probabilities[arm]))


class LearnsFromAQuestion(EpsilonGreedy):
    def choose(self, context: int, *, rng: Any = None, available: Any = None) -> Decision:
        decision = super().choose(context, rng=rng, available=available)
        self.counts[decision.context, decision.arm] += 1.0
        return decision


class DrawsTwice(EpsilonGreedy):
    def choose(self, context: int, *, rng: Any = None, available: Any = None) -> Decision:
        (rng or self.own_numbers).random()
        return super().choose(context, rng=rng, available=available)


EVERYBODYS = np.random.default_rng(0)


class Moody(EpsilonGreedy):
    """Its own random numbers are not its own."""

    def choose(self, context: int, *, rng: Any = None, available: Any = None) -> Decision:
        return super().choose(context, rng=rng or EVERYBODYS, available=available)


class Perverse(EpsilonGreedy):
    def update(self, decision: Decision, reward: Any) -> None:
        super().update(decision, 1.0 - reward)


class LastChoice(EpsilonGreedy):
    """Learns about the arm it chose last, whatever the reward is for."""

    last: Decision | None = None

    def choose(self, context: int, *, rng: Any = None, available: Any = None) -> Decision:
        self.last = super().choose(context, rng=rng, available=available)
        return self.last

    def update(self, decision: Decision, reward: Any) -> None:
        super().update(self.last or decision, reward)


class Numerologist(EpsilonGreedy):
    """Thinks more of arms with high numbers."""

    def update(self, decision: Decision, reward: Any) -> None:
        super().update(decision, min(1.0, reward + 0.3 * (decision.arm == 3)))


class MaskBlind(EpsilonGreedy):
    def probabilities(self, context: int, *, available: Any = None) -> np.ndarray:
        super().probabilities(context, available=available)
        return super().probabilities(context)


class NoNewArms(EpsilonGreedy):
    def grow(self, n_contexts: int | None = None, n_arms: int | None = None, account: Any = "least") -> None:
        super().grow(n_contexts, n_arms, account)
        self.live[4:] = False


class ForgetsOldContexts(EpsilonGreedy):
    def grow(self, n_contexts: int | None = None, n_arms: int | None = None, account: Any = "least") -> None:
        super().grow(n_contexts, n_arms, account)
        self.sums[0] = self.sums[0, ::-1]


class StillDraws(EpsilonGreedy):
    def retire(self, arm: int) -> None:
        super().retire(arm)
        self.live[arm] = True


class RefusesTheRetired(EpsilonGreedy):
    def update(self, decision: Decision, reward: Any) -> None:
        if not self.live[decision.arm]:
            raise ValueError("too late")
        super().update(decision, reward)


class ForgetsInSnapshots(EpsilonGreedy):
    def snapshot(self) -> State:
        state = super().snapshot()
        return replace(state, arrays={**state.arrays, "counts": np.ones_like(self.counts)})


class LendsItsMemory(EpsilonGreedy):
    def snapshot(self) -> State:
        state = super().snapshot()
        return replace(state, arrays={**state.arrays, "counts": self.counts})


class SharesItsMemory(EpsilonGreedy):
    def restore(self, state: State) -> None:
        super().restore(state)
        self.live = np.ones(self.n_arms, dtype=bool)


class Remembers(EpsilonGreedy):
    def fresh(self) -> Any:
        another = super().fresh()
        another.sums, another.counts = self.sums.copy(), self.counts.copy()
        return another


class WritesToMasks(EpsilonGreedy):
    def choose(self, context: int, *, rng: Any = None, available: Any = None) -> Decision:
        decision = super().choose(context, rng=rng, available=available)
        if available is not None:
            available[decision.arm] = False
        return decision


class Torn(EpsilonGreedy):
    """Keeps accounts, and does not lock them."""

    def __init__(self, *sizes: int, seed: int | None = None) -> None:
        super().__init__(*sizes, seed=seed)
        self.cumulative_rewards = np.zeros(self.n_arms)

    def update(self, decision: Decision, reward: Any) -> None:
        super().update(decision, reward)
        before = self.cumulative_rewards[decision.arm]
        time.sleep(1e-6)  # another thread's turn
        self.cumulative_rewards[decision.arm] = before + reward


class Overflows(EpsilonGreedy):
    def probabilities(self, context: int, *, available: Any = None) -> np.ndarray:
        with np.errstate(all="ignore"):
            sums = self.sums[context]
            weights = np.where(sums == sums.min(), np.float64(0.0) / sums.min(), 1.0) if sums.min() > 1.0 else 1.0
        return np.asarray(super().probabilities(context, available=available) * weights)


class Gullible(EpsilonGreedy):
    def update(self, decision: Decision, reward: Any) -> None:
        super().update(decision, float(np.clip(np.nan_to_num(reward), 0.0, 1.0)))


class HalfDone(EpsilonGreedy):
    def update(self, decision: Decision, reward: Any) -> None:
        if decision is not None and 0 <= decision.context < self.n_contexts and decision.arm < self.n_arms:
            self.counts[decision.context, decision.arm] += 1.0
        super().update(decision, reward)


class OneBuffer(EpsilonGreedy):
    """Returns the same array in every decision."""

    buffer = np.zeros(4)

    def choose(self, context: int, *, rng: Any = None, available: Any = None) -> Decision:
        decision = super().choose(context, rng=rng, available=available)
        self.buffer = self.buffer if self.n_arms == 4 else np.zeros(self.n_arms)
        self.buffer[:] = decision.probabilities
        return decision._replace(probabilities=self.buffer)


class AnswersOtherwise(EpsilonGreedy):
    """Says that it draws arms in the reverse order."""

    def probabilities(self, context: int, *, available: Any = None) -> np.ndarray:
        return super().probabilities(context, available=available)[::-1]

    def choose(self, context: int, *, rng: Any = None, available: Any = None) -> Decision:
        p = np.array(super().probabilities(context, available=available))
        p.setflags(write=False)
        arm = int(np.searchsorted(np.cumsum(p), (self.own_numbers if rng is None else rng).random(), side="right"))
        return Decision(int(context), arm, float(p[arm]), p)


class DrawsTheImpossible(EpsilonGreedy):
    """Without exploration the last arm has no probability, and is drawn by the largest uniform number."""

    def __init__(self, n_contexts: int, n_arms: int, *, seed: int | None = None) -> None:
        super().__init__(n_contexts, n_arms, epsilon=0.0, seed=seed)

    def choose(self, context: int, *, rng: Any = None, available: Any = None) -> Decision:
        p = self.probabilities(context, available=available)
        uniform = (self.own_numbers if rng is None else rng).random()
        arm = self.n_arms - 1 if uniform > 0.999999 else int(p.argmax())
        return Decision(int(context), arm, float(p[arm]), p)


class Deaf(EpsilonGreedy):
    """Draws by its own random numbers, whatever it is given."""

    def choose(self, context: int, *, rng: Any = None, available: Any = None) -> Decision:
        return super().choose(context, available=available)


class DrawsMasked(EpsilonGreedy):
    """Draws an arm with a mask as without one."""

    def choose(self, context: int, *, rng: Any = None, available: Any = None) -> Decision:
        arm, p = super().choose(context, rng=rng).arm, self.probabilities(context, available=available)
        return Decision(int(context), arm, float(p[arm]), p)


class PropensityWithoutMask(EpsilonGreedy):
    def choose(self, context: int, *, rng: Any = None, available: Any = None) -> Decision:
        decision = super().choose(context, rng=rng, available=available)
        return decision._replace(propensity=float(self.probabilities(context)[decision.arm]))


class WritesToRewards(Hedge):
    def update(self, decision: Decision, reward: Any) -> None:
        super().update(decision, reward)
        if reward.flags.writeable:
            reward *= 0.5


class RetiresTwice(EpsilonGreedy):
    def retire(self, arm: int) -> None:
        if self.live[arm]:
            super().retire(arm)


class ForgetsNewContexts(EpsilonGreedy):
    def restore(self, state: State) -> None:
        super().restore(state)
        self.n_contexts = min(self.n_contexts, 3)


COMPILED = False  # True in machine code, as `_flags` says


@kernel
def learn_otherwise(memory: Any, context: int, probabilities: Any, rewards: Any) -> None:
    learn_hedge(memory, context, probabilities, rewards)
    if COMPILED:
        learn_hedge(memory, context, probabilities, rewards)


@kernel
def learn_twice(memory: Any, context: int, probabilities: Any, rewards: Any) -> None:
    for _ in range(2):
        learn_hedge(memory, context, probabilities, rewards)


class OtherwiseInWholeRuns(Hedge):
    algorithm = replace(Hedge.algorithm, learn_in_order=learn_twice)


class OtherwiseWhenInterpreted(Hedge):
    algorithm = replace(Hedge.algorithm, learn=learn_otherwise)

    def _stepper_of(self, flags: Any, bundle: Any, whole_runs: bool) -> Any:
        return super()._stepper_of({"COMPILED": True}, bundle, whole_runs)


class ShowsTooMany(AlphaFair):
    """The slate is right, but its probabilities are those of one arm more."""

    def choose(self, context: int, *, k: Any = None, **rest: Any) -> Any:
        decision = super().choose(context, k=k, **rest)
        if k is None:
            return decision
        return decision._replace(probabilities=super().probabilities(context, k=k + 1))

    def probabilities(self, context: int, *, k: Any = None, **rest: Any) -> Any:
        return super().probabilities(context, k=None if k is None else k + 1, **rest)


class OtherSlateOfOne(AlphaFair):
    def choose(self, context: int, *, k: Any = None, **rest: Any) -> Any:
        decision = super().choose(context, k=k, **rest)
        return decision if k is None else decision._replace(arms=tuple((arm + 1) % 4 for arm in decision.arms))


@kernel
def learn_slate_twice(memory: Any, context: int, k: int, probabilities: Any, rewards: Any) -> None:
    for _ in range(2):
        learn_slate(memory, context, k, probabilities, rewards)


class SlatesTwiceInWholeRuns(AlphaFair):
    """Its single steps run another kernel than its whole runs."""

    def _stepper_of(self, flags: Any, bundle: Any, whole_runs: bool) -> Any:
        stepper = super()._stepper_of(flags, bundle, whole_runs)
        stepper.learn_slate = learn_slate_twice
        return stepper


class ForgetsInSnapshotsOfSlates(AlphaFair):
    def snapshot(self) -> State:
        state = super().snapshot()
        return replace(state, arrays={**state.arrays, "squared_norms": state.arrays["squared_norms"] * 2.0})


class EarnsWithOthers(AlphaFairAdaptive):
    def observe(self, context: int, arm: int, reward: Any, features: Any = None) -> bool:
        self._learned.accounts[0, arm] += reward
        return super().observe(context, arm, reward, features)


class ReadsLogsBackwards(AlphaFairAdaptive):
    def observe_log(self, log: Any) -> bool:
        columns = (column[::-1] for column in (log.contexts, log.arms, log.rewards, log.propensities))
        return super().observe_log(Log(*columns, n_contexts=log.n_contexts, n_arms=log.n_arms))


class Hoards(Hedge):
    def snapshot(self) -> State:
        state = super().snapshot()
        return replace(state, arrays={**state.arrays, "seen": np.zeros(int(state.arrays["rounds"]))})


BROKEN = {
    Leaky: "distribution_sums_to_one",
    WrongPropensity: "propensity_is_the_frequency",
    OtherFrequency: "propensity_is_the_frequency",
    LearnsFromAQuestion: "questions_change_nothing",
    DrawsTwice: "one_uniform_per_choice",
    Moody: "same_uniforms_same_path",
    Perverse: "leans_toward_reward",
    LastChoice: "late_rewards_are_welcome",
    Numerologist: "names_do_not_matter",
    MaskBlind: "masked_arms_are_never_drawn",
    NoNewArms: "arms_may_be_added",
    ForgetsOldContexts: "contexts_may_be_added",
    StillDraws: "retired_arms_are_never_drawn",
    RefusesTheRetired: "retired_arms_are_never_drawn",
    LendsItsMemory: "snapshot_and_go_on",
    ForgetsInSnapshots: "snapshot_and_go_on",
    SharesItsMemory: "snapshot_after_changes",
    Remembers: "fresh_forgets",
    WritesToMasks: "inputs_are_not_touched",
    Torn: "threads_may_share_a_policy",
    Overflows: "stays_finite",
    Gullible: "bad_input_is_refused",
    HalfDone: "bad_input_is_refused",
    OtherwiseInWholeRuns: "stepwise_equals_compiled",
    OtherwiseWhenInterpreted: "interpreted_equals_compiled",
    Hoards: "memory_does_not_grow",
    ShowsTooMany: "slates_sum_to_k",
    OtherSlateOfOne: "slates_of_one_arm_are_decisions",
    SlatesTwiceInWholeRuns: "slates_agree_in_every_mode",
    ForgetsInSnapshotsOfSlates: "slates_go_on_after_a_snapshot",
    EarnsWithOthers: "others_earn_nothing",
    ReadsLogsBackwards: "others_agree_in_every_mode",
}
PROMISES = (  # of one check, by what it says where they are broken
    (OneBuffer, "propensity_is_the_frequency", "a decision's probabilities must be read-only"),
    (OneBuffer, "inputs_are_not_touched", "an old decision was written to"),
    (AnswersOtherwise, "propensity_is_the_frequency", "choose and probabilities disagree"),
    (DrawsTheImpossible, "one_uniform_per_choice", "drew an arm of probability 0"),
    (Deaf, "same_uniforms_same_path", "two equal runs earned differently"),
    (Moody, "same_uniforms_same_path", "one seed, two paths"),
    (MaskBlind, "masked_arms_are_never_drawn", "a masked arm has a positive probability"),
    (DrawsMasked, "masked_arms_are_never_drawn", "was drawn though it was masked"),
    (PropensityWithoutMask, "masked_arms_are_never_drawn", "the propensity of a masked choice is not the true one"),
    (WritesToMasks, "inputs_are_not_touched", "the mask was written to"),
    (WritesToRewards, "inputs_are_not_touched", "the rewards were written to"),
    (RetiresTwice, "retired_arms_are_never_drawn", "a retired arm was retired again, and no error was raised"),
    (ForgetsNewContexts, "contexts_may_be_added", "a snapshot forgot the grown contexts"),
)


@pytest.mark.parametrize("kind", BROKEN, ids=lambda kind: kind.__name__)
def test_a_broken_policy_fails_the_right_check(kind: type) -> None:
    subject = checks.Subject(kind, {})
    with pytest.raises((AssertionError, ValueError)):
        checks.CHECKS[BROKEN[kind]](subject)


@pytest.mark.parametrize(("kind", "check", "words"), PROMISES)
def test_every_promise_of_a_check_is_kept_apart(kind: type, check: str, words: str) -> None:
    with pytest.raises(AssertionError, match=words):
        checks.CHECKS[check](checks.Subject(kind, {}))


class ForgetsAlpha(PlainPolicy):
    """Fair to the totals of arms, with alpha in its settings and not among its attributes."""

    name = "forgets-alpha"
    feedback = Feedback.BANDIT
    account = Accounts("arms")

    def __init__(self, n_contexts: int, n_arms: int, *, alpha: float, seed: int | None = None) -> None:
        super().__init__(n_contexts, n_arms, settings={"alpha": alpha}, seed=seed)

    def distribution(self, context: int) -> np.ndarray:
        weights = self.account ** -self.settings["alpha"]
        return weights / weights.sum()

    def learn(self, context: int, arm: int, propensity: float, reward: float) -> None:
        self.account[arm] += reward


def test_a_policy_without_its_attribute_alpha_is_told_so() -> None:
    with pytest.raises(AssertionError, match=r"pulled in .*: set self\.alpha before super\(\)\.__init__"):
        checks.CHECKS["leans_toward_reward"](checks.Subject(ForgetsAlpha, {"alpha": 2.0}))
    with pytest.raises(AssertionError, match=r"one of 4 arms$"):
        checks.CHECKS["leans_toward_reward"](checks.Subject(ForgetsAlpha, {"alpha": 0.99}))


def test_every_check_is_documented() -> None:
    page = (EXAMPLES.parent / "docs" / "howto" / "write_a_policy.md").read_text(encoding="utf-8")
    for name in checks.CHECKS:
        assert name.replace("_", " ") in page, f"write_a_policy.md does not say which promise {name} is about"


def test_every_check_fails_for_some_broken_policy() -> None:
    elsewhere = {
        "one_compiled_signature",
        "unseen_rewards_do_not_matter",  # a policy is shown one reward only, so it must peep to fail
    }
    assert set(BROKEN.values()) | elsewhere == set(checks.CHECKS)


def test_checks_are_not_passed_by_leaving_assertions_out() -> None:
    code = "from alphafair import Uniform; from alphafair.checks import run_checks; list(run_checks(Uniform))"
    answer = subprocess.run([sys.executable, "-O", "-c", code], capture_output=True, text=True)
    assert answer.returncode == 1
    assert "Python must be run with assertions; got 'optimized mode'. Run it without -O" in answer.stderr
