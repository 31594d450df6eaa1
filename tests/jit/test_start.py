"""A start without waiting: interpreted at first, machine code later, with the same bits and no way to get stuck."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from alphafair import (
    POLICIES,
    AlphaFair,
    AlphaFairAdaptive,
    AlphaFairBandit,
    BasePolicy,
    Hedge,
    InvalidArgument,
    jit,
    simulate,
    streams,
)
from alphafair.jit import Kernels
from alphafair.precompile import SIDES, every_kernel, kernels_of, parse, small_policy
from alphafair.values import Feedback


def observing() -> AlphaFairAdaptive:
    policy = AlphaFairAdaptive(3, 4, alpha=0.5, seed=1)
    policy.observe(0, 1, 0.5)
    return policy


MAKERS = {
    "alpha-fair": lambda: AlphaFair(3, 4, alpha=0.5, seed=1),
    "alpha-fair-bandit": lambda: AlphaFairBandit(3, 4, alpha=0.5, seed=1),
    "adaptive-bandit": lambda: AlphaFairAdaptive(3, 4, alpha=0.5, seed=1),
    "adaptive-full": lambda: AlphaFairAdaptive(3, 4, alpha=0.5, feedback="full", seed=1),
    "groups": lambda: AlphaFairAdaptive(3, 4, alpha=0.5, groups=["a", "a", "b", "b"], seed=1),
    "others": observing,
}


def run(code: str, *, cache: Path, **environment: str) -> str:
    """What a process prints that starts with nothing compiled but what is in `cache`."""
    settings = {**os.environ, "ALPHAFAIR_JIT": "auto", "NUMBA_DISABLE_JIT": "0", "NUMBA_CACHE_DIR": str(cache)}
    settings |= environment
    answer = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env=settings,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    assert not answer.stderr, answer.stderr
    return answer.stdout.strip()


FIRST_DECISION = """
import sys
from alphafair import AlphaFairAdaptive
policy = AlphaFairAdaptive(3, 4, alpha=0.5, seed=1)
policy.update(policy.choose(0), 0.5)
print("numba" in sys.modules, "llvmlite" in sys.modules)
"""


def test_the_first_decision_leaves_numba_unimported(tmp_path: Path) -> None:
    assert run(FIRST_DECISION, cache=tmp_path) == "False False"
    assert run(FIRST_DECISION, cache=tmp_path, ALPHAFAIR_JIT="now") == "True True"
    assert run(FIRST_DECISION, cache=tmp_path) == "False False", (
        "machine code is on disk, and one decision is no reason"
    )


def test_a_short_simulation_leaves_numba_unimported_and_starts_no_helper(tmp_path: Path) -> None:
    code = """
import sys
from alphafair import AlphaFairAdaptive, jit, simulate, streams
jit.HELPER_AFTER = 1e9
simulate(AlphaFairAdaptive(3, 4, alpha=0.5), streams.stationary(n_rounds=300, n_contexts=3, n_arms=4, seed=0))
print("numba" in sys.modules, [bundle._helper for bundle in jit.Bundle._all.values()])
"""
    assert run(code, cache=tmp_path) == "False [None, None]"  # one bundle for slates


# switching


def reward_of(policy: BasePolicy, t: int) -> Any:
    return np.array([0.1, 0.9, 0.4, 0.6]) if policy.feedback is Feedback.FULL else (t % 7) / 7


def state_after(policy: BasePolicy, first: int, last: int) -> None:
    for t in range(first, last):
        decision = policy.choose(t % 3)
        assert type(decision.arm) is int
        assert type(decision.propensity) is float
        policy.update(decision, reward_of(policy, t))


@pytest.mark.compiled
@pytest.mark.parametrize("name", MAKERS)
def test_switching_after_any_steps_leaves_the_same_snapshot(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "0")
    n_steps, snapshots = 12, []
    for switch in range(n_steps + 1):
        policy = MAKERS[name]()
        monkeypatch.setattr(policy.stepper, "bundle", jit.Bundle(None))
        monkeypatch.setenv("ALPHAFAIR_JIT", "off")
        state_after(policy, 0, switch)
        monkeypatch.setenv("ALPHAFAIR_JIT", "now")
        state_after(policy, switch, n_steps)
        snapshots.append(policy.snapshot().to_bytes())
    assert len({*snapshots}) == 1


@pytest.mark.compiled
def test_switching_between_a_decision_and_its_reward(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "0")
    snapshots = []
    for modes in (("off", "off"), ("off", "now"), ("now", "off")):
        policy = AlphaFairAdaptive(3, 4, alpha=0.5, seed=1)
        state_after(policy, 0, 3)
        for k, mode in enumerate(modes):
            monkeypatch.setenv("ALPHAFAIR_JIT", mode)
            if k == 0:
                decision = policy.choose(1)
            else:
                policy.update(decision, 0.5)
        snapshots.append(policy.snapshot().to_bytes())
    assert len({*snapshots}) == 1


@pytest.mark.compiled
def test_a_run_that_switches_on_the_way_equals_one_that_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "0")
    stream = streams.stationary(n_rounds=400, n_contexts=3, n_arms=4, seed=0)
    snapshots, accounts = [], []
    for mode, switches in (("off", ()), ("now", ()), ("auto", (False, False, True))):
        monkeypatch.setenv("ALPHAFAIR_JIT", mode)
        policy = AlphaFairAdaptive(3, 4, alpha=0.5, seed=1)
        bundle = jit.Bundle(None)
        monkeypatch.setattr(policy.stepper, "bundle", bundle)
        answers = iter(switches)
        monkeypatch.setattr(bundle, "_pays", lambda more, answers=answers: next(answers, True))
        trace = simulate(policy, stream, record_every=50)
        assert bundle._use_machine_code == (mode != "off")
        snapshots.append(policy.snapshot().to_bytes())
        accounts.append(trace.accounts.tolist())
    assert snapshots[0] == snapshots[1] == snapshots[2]
    assert accounts[0] == accounts[1] == accounts[2]


# when it pays


class FakeHelper:
    def __init__(self) -> None:
        self.returncode: int | None = None
        self.killed = False

    def poll(self) -> int | None:
        return self.returncode

    def wait(self) -> int | None:
        return self.returncode

    def kill(self) -> None:
        self.killed, self.returncode = True, -9


@pytest.fixture
def bundle(monkeypatch: pytest.MonkeyPatch) -> jit.Bundle:
    monkeypatch.setenv("ALPHAFAIR_JIT", "auto")
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "0")
    made = jit.Bundle(Kernels("some-policy", "full"))
    monkeypatch.setattr(made, "on_disk", lambda: False)
    monkeypatch.setattr(made, "_start_helper", FakeHelper)
    monkeypatch.setattr(jit, "POLL_EVERY", 0.0)
    return made


def test_little_work_starts_nothing(bundle: jit.Bundle) -> None:
    bundle.spend(jit.HELPER_AFTER / 2, 100)
    assert not bundle.use_machine_code()
    assert bundle._helper is None


def test_more_work_starts_one_helper_and_its_machine_code_is_used(
    bundle: jit.Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle.spend(2 * jit.HELPER_AFTER, 100)
    assert not bundle.use_machine_code()
    helper = bundle._helper
    assert isinstance(helper, FakeHelper)
    assert not bundle.use_machine_code()
    assert bundle._helper is helper
    monkeypatch.setattr(bundle, "on_disk", lambda: True)
    assert not bundle.use_machine_code(), "loading takes longer than what is known to come"
    bundle.spend(jit.LOADING, 100)
    assert bundle.use_machine_code()


def test_a_dead_helper_process_does_not_prevent_compilation(bundle: jit.Bundle) -> None:
    bundle.spend(2 * jit.HELPER_AFTER, 100)
    bundle.use_machine_code()
    bundle._helper.returncode = 1  # type: ignore[union-attr]
    assert not bundle.use_machine_code()
    bundle.spend(jit.MAKING, 1000)
    assert bundle.use_machine_code()


def test_a_helper_that_hangs_is_ended(bundle: jit.Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle.spend(2 * jit.HELPER_AFTER, 100)
    bundle.use_machine_code()
    bundle.spend(jit.MAKING, 1000)
    assert not bundle.use_machine_code(), "it is still at work"
    monkeypatch.setattr(bundle, "_give_up", time.monotonic() - 1.0)
    assert bundle.use_machine_code()
    assert bundle._helper.killed  # type: ignore[union-attr]


def test_a_long_run_is_compiled_here_by_what_its_rounds_take(bundle: jit.Bundle) -> None:
    """A round of 10 ms, as with a thousand arms: 100 more are played so, 10,000 are not."""
    assert bundle.rounds_per_call(10_000) == 1, "nothing is known yet"
    bundle.spend(0.01, 1)
    assert bundle.rounds_per_call(4) == 2, "as many as take CALL_SECONDS"
    assert bundle.rounds_per_call(10_000) == 10_000
    assert bundle.use_machine_code()


def test_quick_rounds_are_not_worth_compiling(bundle: jit.Bundle) -> None:
    bundle.spend(1e-3, 100)
    assert bundle.rounds_per_call(1000) == pytest.approx(2000, abs=1)
    assert not bundle.use_machine_code()


def test_policies_of_others_are_compiled_here_when_it_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALPHAFAIR_JIT", "auto")
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "0")
    monkeypatch.setattr(jit, "POLL_EVERY", 0.0)

    class Theirs(Hedge):
        pass

    found = Theirs(2, 3, horizon=9).stepper.bundle
    assert found.kernels is None
    found.spend(1.0, 10)
    assert not found.use_machine_code()
    assert found._helper is None
    found.spend(jit.MAKING, 10)
    assert found.use_machine_code()


def test_loaded_machine_code_stays_in_use(bundle: jit.Bundle) -> None:
    """As in a service, which compiles before its first decision."""
    with jit.using_mode("now"):
        assert bundle.use_machine_code()
    assert jit.mode() == "auto"
    assert bundle.use_machine_code()
    with jit.using_mode("off"):
        assert not bundle.use_machine_code()


def test_jit_off_compiles_nothing(bundle: jit.Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle.spend(1000.0, 10)
    for variable, value in (("ALPHAFAIR_JIT", "off"), ("NUMBA_DISABLE_JIT", "1")):
        monkeypatch.setenv(variable, value)
        assert not bundle.use_machine_code(1000.0)
        monkeypatch.delenv(variable)
    monkeypatch.setenv("ALPHAFAIR_JIT", "fast")
    with pytest.raises(ValueError, match="ALPHAFAIR_JIT must be auto, now or off; got 'fast'"):
        bundle.use_machine_code()


# real processes

LONG = """
import os, sys, time
from alphafair import AlphaFair, jit, simulate, streams
jit.HELPER_AFTER = jit.LOADING = 0.0
policy = AlphaFair(2, 3, alpha=0.5, seed=1)
rewards = [0.2, 0.4, 0.6]
def play():
    policy.update(policy.choose(0), rewards)
"""


def test_a_process_switches_to_machine_code_of_its_helper(tmp_path: Path) -> None:
    code = f"""{LONG}
end = time.monotonic() + 200
while not policy.stepper.bundle._use_machine_code and time.monotonic() < end:
    play()
    time.sleep(0.01)
helper = policy.stepper.bundle._helper
print("numba" in sys.modules, helper.wait(), policy.stepper.bundle.on_disk())
"""
    assert run(code, cache=tmp_path) == "True 0 True"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="Unix")
def test_fork_and_exit_while_a_helper_compiles(tmp_path: Path) -> None:
    code = f"""{LONG}
play(); play()
helper = policy.stepper.bundle._helper
assert helper is not None and helper.poll() is None
children = []
for _ in range(4):
    pid = os.fork()
    if pid == 0:
        for _ in range(20):
            play()
        os._exit(0)
    children.append(pid)
print([os.waitpid(pid, 0)[1] for pid in children], helper.pid, policy.stepper.bundle._helper is helper)
"""
    codes, _, rest = run(code, cache=tmp_path).partition("] ")
    assert codes == "[0, 0, 0, 0"
    pid, same = rest.split()
    assert same == "True"
    with contextlib.suppress(ProcessLookupError):
        os.kill(int(pid), signal.SIGKILL)  # it would go on, for the next process


def test_a_helper_process_that_cannot_run_is_handled(tmp_path: Path) -> None:
    failing = tmp_path / "python-that-fails"
    failing.symlink_to("/bin/false")
    code = f"""{LONG}
jit.MAKING = 1e9
sys.executable = {str(tmp_path / "no-python")!r}
for _ in range(5):
    play()
print(policy.stepper.bundle._helper, "numba" in sys.modules)
sys.executable = {str(failing)!r}
policy.stepper.bundle.forget_helper()
play(); play()
print(policy.stepper.bundle._helper.wait())
play()
"""
    assert run(code, cache=tmp_path).split("\n") == ["None False", "1"]


def test_a_missing_cache_folder_is_handled(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    code = f"""{LONG}
for _ in range(5):
    play()
print(policy.stepper.bundle._helper, "numba" in sys.modules)
"""
    assert run(code, cache=blocked) == "None False"


def test_every_policy_can_be_compiled_by_name() -> None:
    for policy in POLICIES:
        assert parse(policy) == kernels_of(policy)
    assert every_kernel() == [kernels for policy in POLICIES for kernels in parse(policy)]
    assert all(parse(str(kernels)) == [kernels] for kernels in every_kernel())


def test_the_kernels_of_a_policy_are_those_of_all_its_variants() -> None:
    """Every feedback, with every combination of groups, features and alpha from 1 on that the policy takes."""
    assert [str(kernels) for kernels in kernels_of("alpha-fair")] == [
        "alpha-fair+full",
        "alpha-fair+full+groups",
        "alpha-fair+full+welfare",
        "alpha-fair+full+groups-welfare",
    ]
    assert len(kernels_of("alpha-fair-adaptive")) == 2 * 2**3
    for name, kind in POLICIES.items():
        for settings in kind.traits.variants(3, 4).values():
            kernels = Kernels.of(kind(3, 4, **settings))
            assert kernels in kernels_of(name) or kernels.flags >= {SIDES, "welfare"}
            assert Kernels.of(small_policy(kernels)) == kernels
    for kernels in every_kernel(others=True):
        assert Kernels.of(small_policy(kernels)) == kernels
    beside = [kernels for kernels in every_kernel(others=True) if "others" in kernels.flags]
    assert {(kernels.policy, kernels.feedback) for kernels in beside} == {("alpha-fair-adaptive", "bandit")}
    assert len(parse("alpha-fair-adaptive", others=True)) == 3 * 2**3


@pytest.mark.parametrize("name", MAKERS)
def test_a_name_makes_policies_that_need_the_same_machine_code(name: str) -> None:
    asked = MAKERS[name]()
    made = small_policy(Kernels.of(asked))
    assert made.stepper.flags == asked.stepper.flags
    assert made.stepper.bundle is asked.stepper.bundle


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("alpha-fare", "policy must be one of .* Did you mean 'alpha-fair'?"),
        ("alpha-fair+bandit", "feedback in 'alpha-fair.bandit' must be one of 'full'; got 'bandit'"),
        (
            "alpha-fair-adaptive+bandit+group",
            "flag in .* must be one of 'features', 'groups', 'welfare', 'slates', 'others', 'sides'; got 'group'",
        ),
        (
            "hedge+full+groups",
            "flags in 'hedge.full.groups' must be left out: hedge has none; got 'groups'",
        ),
    ],
)
def test_a_misspelt_name_is_refused(name: str, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        parse(name)
