"""A random search over what callers may do with a policy, for distributions that are none.

A case is a policy with random settings and some dozens of calls: rounds with rewards from 5e-324 to 1 and features from
1e-170 to 1e50, masks, rewards that come late, in any order or never, decisions from elsewhere, rewards of others, arms
that come and go, other alphas, snapshots. After every call

- the distribution of a context is one: entries in [0, 1] that sum to 1, and keep the floors;
- the policy's own decisions are taken; another's are, or are refused by name and change nothing;
- what was saved can be loaded, and the copy does the same as the policy, bit by bit.

Kind `runs`: whole runs, steps and logs lead to the same memory, bit by bit.

The suite runs some cases (`tests/policy/test_edges.py`). By hand:

    python -m tests.search_policies --seconds 600                  search, every CPU core with a --first of its own
    python -m tests.search_policies --first 1234 --count 1 -v      one case again, with all its calls
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from alphafair import Decision, Groups, InvalidArgument, Stream, load_policy, simulate
from alphafair.algorithms import POLICIES
from alphafair.run import over_log
from alphafair.values import DescribedDecision, Feedback, State
from tests import searching
from tests.searching import LEAST, log_uniform

ALPHAS = (0.0, 1e-300, 1e-12, 0.25, 0.5, 0.9, 0.9, 0.99, 1.0 - 1e-9, 1.0 - 2.0**-53)
SIZES = (LEAST, 1e-310, 1e-285, 1e-200, 1e-163, 1e-161, 1e-150, 1e-141, 1e-139, 1e-100, 1e-20, 1e-9, 0.3, 1.0)
PROPENSITIES = (LEAST, 1e-310, 1e-200, 1e-100, 1e-50, 1e-12, 1e-9, 1e-6, 1e-3, 0.5, 1.0)


class Fixed:
    """A source of one uniform number."""

    def __init__(self, uniform: float) -> None:
        self.uniform = uniform

    def random(self) -> float:
        return self.uniform


def rewards_of(rng: np.random.Generator) -> tuple[str, Callable[[int, int], np.ndarray]]:
    """A kind of rewards: those of n arms in step t, in [0, 1]."""
    turn, size, other = int(rng.integers(1, 60)), float(rng.choice(SIZES)), float(rng.choice(SIZES))
    kinds: dict[str, Callable[[int, int], Any]] = {
        "plain": lambda n, t: rng.random(n),
        "clicks": lambda n, t: rng.random(n) < 0.3,
        "sizes": lambda n, t: rng.choice([0.0, *SIZES], n),
        "any scale": lambda n, t: log_uniform(rng, 1e-323, 1.0, n) * (rng.random(n) < 0.8),
        f"{size:g} until step {turn}, then {other:g}": lambda n, t: np.full(n, size if t < turn else other),
        f"0 until step {turn}, then {size:g}": lambda n, t: np.full(n, 0.0 if t < turn else size),
        f"all {size:g}": lambda n, t: np.full(n, size),
        f"one of {size:g}": lambda n, t: size * (np.arange(n) == t % n) * (t == turn),
        f"of scale {size:g}": lambda n, t: size * rng.random(n),
        f"the first arm's of scale {size:g}": lambda n, t: rng.random(n) * np.where(np.arange(n) == 0, size, other),
    }
    kind = str(rng.choice([*kinds]))
    return kind, lambda n, t: np.minimum(np.asarray(kinds[kind](n, t), dtype=float), 1.0)


def features_of(rng: np.random.Generator) -> tuple[str, Callable[[tuple[int, ...]], np.ndarray]]:
    """A kind of features, of any shape."""
    size = float(rng.choice([*SIZES, 1e10, 1e30, 1e50]))
    kinds: dict[str, Callable[[Any], Any]] = {
        "plain": lambda shape: rng.normal(size=shape),
        "any scale": lambda shape: rng.choice([-1.0, 1.0], shape) * log_uniform(rng, 1e-170, 1e50, shape),
        "outliers": lambda shape: rng.normal(size=shape) * rng.choice([1.0] * 9 + [log_uniform(rng, 1e6, 1e48)], shape),
        "heavy": lambda shape: rng.standard_t(1, size=shape),
        f"of scale {size:g}": lambda shape: rng.uniform(-1.0, 1.0, shape) * size,
        "signs": lambda shape: rng.choice([-1.0, 0.0, 1.0], shape),
        "few": lambda shape: rng.choice([0.0, 0.01, 1.0, 3.0, size], shape),
    }
    kind = str(rng.choice([*kinds]))
    return kind, lambda shape: np.clip(np.asarray(kinds[kind](shape), dtype=float), -1e50, 1e50)


def groups_of(rng: np.random.Generator, n_arms: int) -> dict[str, Any]:
    """Groups, entitlements and floors, each of them or not."""
    said: dict[str, Any] = {}
    n_groups = n_arms
    if rng.random() < 0.4:
        said["labels"] = [f"g{k}" for k in rng.integers(0, max(1, n_arms - 1), n_arms)]
        n_groups = len({*said["labels"]})
    if rng.random() < 0.4:
        said["entitlements"] = rng.choice([1.0, 2.0, 49.0, 107.0, 1e-6, 1e6, rng.random() + 0.01], n_groups).tolist()
    if rng.random() < 0.5:
        one = float(rng.choice([1.0, np.nextafter(1.0, 0.0), 0.5, 1e-10])) / n_arms
        several = rng.dirichlet(np.full(n_groups, 0.5)) * rng.choice([1.0, 1.0 - 1e-16, 0.99, 0.5, 1e-9])
        several = np.where(several < 1e-12, 0.0, several)
        all_to_one = np.eye(n_groups)[rng.integers(n_groups)] * rng.choice([1.0, np.nextafter(1.0, 0.0), 0.7])
        said["pull_floor"] = [one, several.tolist(), all_to_one.tolist()][rng.integers(3)]
    return {"groups": Groups(**said)} if said else {}


class Case(searching.Case):
    """A policy, and what is done with it."""

    def make(self, name: str, feedback: str | None, *, features: bool) -> Any:
        """A policy with random settings."""
        rng, made = self.rng, POLICIES[name]
        n_contexts, n_arms = int(rng.choice([1, 1, 2, 4])), int(rng.choice([1, 2, 2, 3, 4, 8, 20]))
        said: dict[str, Any] = {} if feedback is None else {"feedback": feedback}
        if name.startswith(("alpha-fair", "independent")):
            said["alpha"] = float(rng.choice(ALPHAS))
        if name.startswith("alpha-fair"):
            said |= groups_of(rng, n_arms)
        if features:
            of = str(rng.choice(["context", "context", "arms"]))
            said |= {"n_features": int(rng.integers(1, 4)), "features_of": of}
        if name == "scale-free":
            said["exploration"] = str(rng.choice(["adaptive", "sqrt"]))
        if name == "hedge":
            rate = {"learning_rate": float(log_uniform(rng, 1e-300, 1e300))}
            said |= [{}, {"horizon": int(10.0 ** rng.uniform(0, 18))}, rate][rng.integers(3)]
        if name == "fair-cb":
            known = rng.dirichlet(np.full(n_contexts, 0.5)) * rng.choice([1.0, 1.0, 1.0 - 9e-7])
            floor = float(rng.choice([0.5, 0.999, np.nextafter(1.0, 0.0), 1e-9])) / n_arms
            horizon = int(10.0 ** rng.uniform(0, 18))
            weights = known.tolist() if rng.random() < 0.7 and np.isfinite(known).all() else None
            said |= {"horizon": horizon, "pull_share": min(floor, np.nextafter(1.0 / n_arms, 0.0))}
            said["context_weights"] = weights
        self.note(f"policy = {made.__name__}({n_contexts}, {n_arms}, **{said!r})")
        return made(n_contexts, n_arms, seed=0, **said)

    # calls, of the policy and of the copy that was loaded last

    def call(self, act: Callable[[Any], Any], *named: str) -> Any:
        """What a call returns; None where it is refused by one of these names, which must change nothing."""
        before = kept(self.policy) if named else {}
        answer = self.ask(partial(act, self.policy), *named)
        refused = " -> " in self.story[-1]
        if refused and named:
            self.expect(same(before, kept(self.policy)), "refused, but something has changed")
        if self.copy is not None:
            try:
                act(self.copy)
                self.expect(not refused, "the copy took what was refused")
            except InvalidArgument as refusal:
                self.expect(refused, f"the copy refused it: {refusal}")
        return answer

    def shown(self) -> dict[str, Any]:
        return {"features": self.features(self.policy.feature_shape)} if self.policy.n_features else {}

    def assert_valid(self) -> None:
        """A context's distribution is one, and the copy has the same."""
        policy, rng = self.policy, self.rng
        context, said = int(rng.integers(policy.n_contexts)), self.shown()
        if rng.random() < 0.3:
            said["available"] = self.mask()
        p = policy.probabilities(context, **said)
        sound = ((p >= 0.0) & (p <= 1.0)).all() and abs(p.sum() - 1.0) <= 1e-9
        self.expect(sound, f"not a distribution: {p.tolist()} in context {context}, {said}")
        live = np.isin(np.arange(policy.n_arms), policy.live_arms)
        self.expect((p[~live | ~said.get("available", live)] == 0.0).all(), f"an arm that cannot be played: {p}")
        if "available" not in said and policy.groups is not None:
            groups = policy.groups
            of_groups, there = np.zeros(groups.n_groups), np.unique(groups.of_arms[live])
            np.add.at(of_groups, groups.of_arms, p)
            self.expect((p[live] >= groups.arm_floor - 1e-9).all(), f"an arm below its floor: {p.tolist()}")
            self.expect((of_groups[there] >= groups.group_floors[there] - 1e-9).all(), f"a group below: {p.tolist()}")
        if self.copy is not None:
            other = self.copy.probabilities(context, **said)
            self.expect(np.array_equal(p, other), f"{p.tolist()} but the copy has {other.tolist()}")

    def mask(self) -> np.ndarray:
        mask = self.rng.random(self.policy.n_arms) < 0.5
        mask[self.rng.choice(self.policy.live_arms)] = True
        return mask

    def reward(self, t: int, arm: int) -> Any:
        """What one arm pays, or what all do."""
        rewards = self.rewards(self.policy.n_arms, t)
        if self.policy.name == "scale-free":
            rewards = rewards * self.rng.choice([-1.0, 1.0], len(rewards)) * self.scale
        return rewards if self.policy.feedback is Feedback.FULL else float(rewards[arm])

    def choose(self) -> Any:
        rng, policy, said = self.rng, self.policy, self.shown()
        if rng.random() < 0.2:
            said["available"] = self.mask()
        context = int(rng.integers(policy.n_contexts))
        uniform = float(rng.choice([0.0, np.nextafter(1.0, 0.0)])) if rng.random() < 0.2 else float(rng.random())
        self.note(f"decision = policy.choose({context}, rng=Fixed({uniform!r}), **{said!r})")
        decision = self.call(lambda each: each.choose(context, rng=Fixed(uniform), **said))
        self.expect(0 <= decision.arm < policy.n_arms, f"arm {decision.arm}")
        self.expect(decision.propensity == decision.probabilities[decision.arm] > 0.0, f"{decision}")
        return decision

    def update(self, decision: Any, t: int, *named: str) -> None:
        reward = self.reward(t, decision.arm)
        text = reward if isinstance(reward, float) else reward.tolist()
        self.note(f"policy.update({decision!r}, {text!r})")
        if self.policy.name == "fair-cb" and decision.propensity < 1e-9:
            named = (*named, "decision.propensity")
        self.call(lambda each: each.update(decision, reward), *named)

    # steps

    def play(self, t: int) -> None:
        self.update(self.choose(), t)

    def begin(self, t: int) -> None:
        decision = self.choose()
        if self.rng.random() < 0.7:
            self.note("policy.expect(decision)")
            self.call(lambda each: each.expect(decision))
        self.waiting.append(decision)

    def settle(self, t: int) -> None:
        if not self.waiting:
            return
        decision = self.waiting.pop(int(self.rng.integers(len(self.waiting))))
        if self.rng.random() < 0.2:
            self.note(f"policy.forgo({decision!r})")
            self.call(lambda each: each.forgo(decision))
        else:
            self.update(decision, t)

    def foreign(self, t: int) -> None:
        """A decision that was made elsewhere."""
        rng, policy = self.rng, self.policy
        n, context = policy.n_arms, int(rng.integers(policy.n_contexts))
        arm, p = int(rng.integers(n)), None
        propensity = float(rng.choice([*PROPENSITIES, log_uniform(rng, 1e-323, 1.0)]))
        if policy.feedback is Feedback.FULL:
            p = np.zeros(n)
            p[rng.integers(n)] = 1.0 - propensity
            p[arm] += propensity
            propensity = float(p[arm])
        features = self.shown().get("features")
        made = Decision if features is None else partial(DescribedDecision, features=features)
        self.update(made(context, arm, propensity, p), t, "decision.propensity")

    def observe(self, t: int) -> None:
        """A decision of somebody else."""
        rng, policy, shown = self.rng, self.policy, self.shown()
        context, arm = int(rng.integers(policy.n_contexts)), int(rng.integers(policy.n_arms))
        reward = float(rng.choice([self.rewards(policy.n_arms, t)[arm], *SIZES, 0.0]))
        self.note(f"policy.observe({context}, {arm}, {reward!r}, **{shown!r})")
        learned = self.call(lambda each: each.observe(context, arm, reward, **shown))
        self.expect(learned is bool(arm in policy.live_arms), f"learned from others: {learned}")
        self.expect(policy.trust is None or 0.0 <= policy.trust <= 0.97, f"trust is {policy.trust}")

    def set_alpha(self, t: int) -> None:
        alpha = float(self.rng.choice(ALPHAS))
        self.note(f"policy.set_alpha({alpha})")
        self.call(lambda each: each.set_alpha(alpha), "alpha")

    def retire(self, t: int) -> None:
        arm = int(self.rng.integers(self.policy.n_arms))
        self.note(f"policy.retire({arm})")
        self.call(lambda each: each.retire(arm), "arm")

    def grow(self, t: int) -> None:
        rng, policy, said = self.rng, self.policy, {}
        n_contexts = policy.n_contexts + int(rng.integers(2)) if rng.random() < 0.3 else None
        n_arms = policy.n_arms + int(rng.integers(1, 3)) if policy.n_arms < 30 else None
        account: Any = [*("least", "fresh"), float(log_uniform(rng, 1.0, 1e100))][rng.integers(3)]
        if n_arms is not None and policy.groups is not None and policy.groups.named and rng.random() < 0.7:
            said["groups"] = rng.choice([*map(str, policy.groups.labels), "new"], n_arms - policy.n_arms).tolist()
        self.note(f"policy.grow({n_contexts}, {n_arms}, {account!r}, **{said!r})")
        self.call(lambda each: each.grow(n_contexts, n_arms, account, **said), "n_arms", "pull_floor")

    def save(self, t: int) -> None:
        self.note("copy = load_policy(State.from_bytes(policy.snapshot().to_bytes()))")
        if self.copy is not None:
            self.expect(same(kept(self.policy), kept(self.copy)), "the copy has learned otherwise")
        saved = self.policy.snapshot().to_bytes()
        self.copy = load_policy(State.from_bytes(saved))
        self.expect(self.copy.snapshot().to_bytes() == saved, "what was loaded saves otherwise")

    STEPS = ((play, 20), (begin, 6), (settle, 6), (foreign, 2), (set_alpha, 1), (retire, 1), (grow, 1), (save, 4))

    OBSERVING = (*STEPS, (observe, 12))

    def steps(self, name: str, feedback: str | None = None, *, features: bool = False, others: bool = False) -> None:
        """Random calls, one after the other."""
        rng = self.rng
        self.policy, self.copy, self.waiting = self.make(name, feedback, features=features), None, []
        self.scale = float(rng.choice([1.0, 1e100, *SIZES]))
        (what, self.rewards), (which, self.features) = rewards_of(rng), features_of(rng)
        self.note(f"rewards: {what}, times {self.scale:g}; features: {which}")
        acts, weights = zip(*(self.OBSERVING if others else self.STEPS), strict=True)
        for t in range(max(1, int(self.size * rng.choice([5, 20, 80])))):
            step = acts[rng.choice(len(acts), p=np.array(weights) / sum(weights))]
            step(self, t)
            self.assert_valid()
        self.save(t)
        if name == "fair-cb" and self.policy.settings["context_weights"] is not None:
            floor = self.policy.settings["pull_share"]
            least = self.policy.marginals[self.policy.live_arms].min()
            self.expect(least >= floor - 1e-6, f"marginals {self.policy.marginals} below {floor}")

    def runs(self) -> None:
        """A whole run, the same run in steps, and its log."""
        rng = self.rng
        name = str(rng.choice([*POLICIES]))
        feedbacks = POLICIES[name].traits.feedbacks
        feedback = str(rng.choice(feedbacks)) if len(feedbacks) > 1 else None
        policy = self.make(name, feedback, features=name == "alpha-fair-adaptive" and rng.random() < 0.4)
        (what, rewards), (which, features) = rewards_of(rng), features_of(rng)
        n_rounds = max(1, int(self.size * rng.choice([5, 60])))
        table = np.array([rewards(policy.n_arms, t) for t in range(n_rounds)])
        shown = features((n_rounds, *policy.feature_shape)) if policy.n_features else None
        stream = Stream.from_arrays(
            rng.integers(0, policy.n_contexts, n_rounds), table, n_contexts=policy.n_contexts, features=shown
        )
        delay = int(rng.choice([0, 0, 3]))
        self.note(f"{n_rounds} rounds, rewards: {what}, features: {which}, delay {delay}")
        late = {"delay": delay} if delay else {}
        one, other, logged = (policy.fresh() for _ in range(3))
        whole = simulate(one, stream, seed=1, log=True, **late)
        steps = simulate(other, stream, seed=1, compiled=False, **late)
        self.expect(np.array_equal(whole.accounts, steps.accounts), "steps earned otherwise")
        self.expect(same(kept(one), kept(other)), "steps have learned otherwise")
        if one.feedback is Feedback.BANDIT and not delay:
            over_log(logged, whole.log)
            self.expect(same(kept(one), kept(logged)), "the log has taught otherwise")
        self.policy = self.copy = load_policy(one.snapshot())
        self.features = features
        self.assert_valid()


def kept(policy: Any) -> dict[str, Any]:
    return dict(policy.snapshot().arrays)


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two memories are, bit by bit."""
    return one.keys() == other.keys() and all(
        each.shape == other[name].shape and each.tobytes() == other[name].tobytes() for name, each in one.items()
    )


Case.kinds = KINDS = {
    "adaptive bandit": partial(Case.steps, name="alpha-fair-adaptive", feedback="bandit"),
    "adaptive full": partial(Case.steps, name="alpha-fair-adaptive", feedback="full"),
    "features bandit": partial(Case.steps, name="alpha-fair-adaptive", feedback="bandit", features=True),
    "others": partial(Case.steps, name="alpha-fair-adaptive", feedback="bandit", others=True),
    "others, features": partial(Case.steps, name="alpha-fair-adaptive", feedback="bandit", features=True, others=True),
    "features full": partial(Case.steps, name="alpha-fair-adaptive", feedback="full", features=True),
    "alpha-fair": partial(Case.steps, name="alpha-fair"),
    "alpha-fair-bandit": partial(Case.steps, name="alpha-fair-bandit"),
    "independent": partial(Case.steps, name="independent-alpha-fair"),
    "scale-free": partial(Case.steps, name="scale-free"),
    "hedge": partial(Case.steps, name="hedge"),
    "fair-cb bandit": partial(Case.steps, name="fair-cb", feedback="bandit"),
    "fair-cb full": partial(Case.steps, name="fair-cb", feedback="full"),
    "uniform": partial(Case.steps, name="uniform"),
    "runs": Case.runs,
}


if __name__ == "__main__":
    searching.main(Case, __doc__)
