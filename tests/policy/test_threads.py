"""One policy in eight threads: 240,000 calls over six policies, nothing torn, nothing lost, nobody dies."""

from __future__ import annotations

import math
import subprocess
import sys
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from alphafair import AlphaFair, AlphaFairAdaptive, AlphaFairBandit, FairCB, Hedge, IndependentAlphaFair
from alphafair.algorithms import BasePolicy

pytestmark = pytest.mark.compiled  # interpreted, a round of 300 arms takes a millisecond

N_THREADS, N_CALLS = 8, 40_000
POLICIES = {
    "alpha-fair": lambda: AlphaFair(3, 300, seed=0),
    "alpha-fair-bandit": lambda: AlphaFairBandit(3, 20, seed=0),
    "independent-alpha-fair": lambda: IndependentAlphaFair(3, 40, seed=0),
    "hedge": lambda: Hedge(3, 40, seed=0),
    "fair-cb": lambda: FairCB(2, 4, horizon=10_000, seed=0),
    "alpha-fair-adaptive": lambda: AlphaFairAdaptive(3, 20, seed=0),
}


@pytest.fixture(autouse=True)
def _impatient() -> Iterator[None]:
    """Threads take turns a thousand times as often as usual, wherever the interpreter lets them."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


class Customer(threading.Thread):
    """Chooses and learns, and adds up what it handed in; half of its rewards come a few choices late."""

    def __init__(self, policy: BasePolicy, seed: int, start_together: threading.Barrier) -> None:
        super().__init__()
        self.policy, self.rng, self.together = policy, np.random.default_rng(seed), start_together
        self.earned: list[float] = []
        self.worst = 0.0
        self.problem: BaseException | None = None

    def run(self) -> None:
        try:
            self.together.wait()
            self.shop(N_CALLS // N_THREADS // 2)
        except BaseException as problem:  # pytest would not see it in a thread
            self.problem = problem

    def shop(self, n_rounds: int) -> None:
        policy, full = self.policy, self.policy.feedback == "full"
        contexts = self.rng.integers(policy.n_contexts, size=n_rounds).tolist()
        table = self.rng.random((64, policy.n_arms))
        waiting = []
        for t in range(n_rounds):
            waiting.append((policy.choose(contexts[t]), table[t % 64]))
            decision, rewards = waiting.pop() if t % 2 else waiting.pop(0)
            total = math.fsum(decision.probabilities)
            self.worst = max(self.worst, abs(total - 1.0))
            policy.update(decision, rewards if full else float(rewards[decision.arm]))
            expected = float(decision.probabilities @ rewards)
            self.earned.append(expected if full else float(rewards[decision.arm]))


@pytest.mark.parametrize("name", POLICIES)
def test_eight_threads_share_a_policy(name: str) -> None:
    policy: BasePolicy = POLICIES[name]()
    policy.update(policy.choose(0), np.zeros(policy.n_arms) if policy.feedback == "full" else 0.0)  # compiled by now
    accounts = policy.accounts
    together = threading.Barrier(N_THREADS)
    customers = [Customer(policy, seed, together) for seed in range(N_THREADS)]
    for customer in customers:
        customer.start()
    for customer in customers:
        customer.join()
    assert [customer.problem for customer in customers if customer.problem is not None] == []
    assert sum(len(customer.earned) for customer in customers) * 2 == N_CALLS
    assert max(customer.worst for customer in customers) <= 1e-12
    if accounts is not None:
        handed_in = math.fsum(earned for customer in customers for earned in customer.earned)
        booked = float((policy.accounts - accounts).sum())  # type: ignore[attr-defined]
        assert booked == pytest.approx(handed_in, rel=1e-10)
    if name == "hedge":  # its memory counts rounds
        assert policy.snapshot().arrays["rounds"] == N_CALLS // 2 + 1


def test_arms_and_contexts_may_change_in_other_threads() -> None:
    """A thread that grows, retires and saves, beside those that choose and learn."""
    policy = AlphaFairBandit(3, 20, seed=0)
    stop = threading.Event()
    worst: list[float] = []

    def serve(seed: int) -> None:
        rng = np.random.default_rng(seed)
        while not stop.is_set():
            decision = policy.choose(int(rng.integers(3)))
            worst.append(abs(math.fsum(decision.probabilities) - 1.0))
            policy.update(decision, float(rng.random()))

    threads = [threading.Thread(target=serve, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    try:
        for k in range(40):
            policy.grow(n_contexts=4 + k, n_arms=21 + k)
            policy.retire(k)
            policy.restore(policy.snapshot())
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert len(policy.live_arms) == 20
    assert max(worst) <= 1e-12


CHANGING = """
import sys, threading
import numpy as np
from alphafair import AlphaFair, InvalidArgument, Stream, simulate
sys.setswitchinterval(1e-6)
policy = AlphaFair(1, 40)
visits = np.zeros(600_000, dtype=np.int32)
stream = Stream(visits, visits, np.random.default_rng(0).random((1, 40)))
started = threading.Event()
changer = threading.Thread(target=lambda: (started.wait(), policy.retire(0), policy.grow(n_arms=300)))
changer.start()
try:
    simulate(policy, stream, progress=lambda rounds: started.set())
except InvalidArgument as refusal:
    print("refused:", refusal.argument)
changer.join()
print(policy.n_arms, abs(policy.probabilities(0).sum() - 1.0) < 1e-12)
"""


def test_arms_that_change_under_a_run_are_refused() -> None:
    """In a process of its own: before it was refused, it ended the process."""
    answer = subprocess.run([sys.executable, "-c", CHANGING], capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.splitlines() == ["refused: policy", "300 True"]
