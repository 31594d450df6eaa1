"""Play every policy through everything that may happen to it, and return one digest of all that it did.

`python -m tests.make_runs tests/fixtures/runs.json` made the digests of tests/algorithms/test_same_runs.py with
alphafair as of c90524c: a change that is not meant to change what policies play changes none of them.
Machine code of another kind of processor may round differently.
"""

from __future__ import annotations

import hashlib
import json
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np

from alphafair import POLICIES, Stream, simulate
from alphafair.errors import InvalidArgument
from alphafair.lab.rivals import AlphaFairAfter, AlphaFairNextVisit
from alphafair.values import Feedback

KINDS = {**POLICIES, **{kind.name: kind for kind in (AlphaFairNextVisit, AlphaFairAfter)}}
N_CONTEXTS, N_ARMS, N_ROUNDS = 3, 4, 120
Policy = Any


EXTRA = {  # variants that the classes do not name: features, and the other side of alpha = 1
    "alpha-fair-adaptive": {
        "features": {"n_features": 3},
        "features of arms": {"n_features": 3, "features_of": "arms"},
        "features, full": {"n_features": 3, "feedback": "full"},
    },
}


def settings_of(name: str) -> dict[str, dict[str, Any]]:
    return {**KINDS[name].traits.variants(N_CONTEXTS, N_ARMS), **EXTRA.get(name, {})}


def chosen(policy: Policy, rng: random.Random, uniforms: Any, available: Any) -> Any:
    """A decision in some context, with features where the policy takes them."""
    context, more = rng.randrange(policy.n_contexts), {}
    if getattr(policy, "feature_shape", ()):
        shape = policy.feature_shape
        more["features"] = np.array([rng.random() for _ in range(int(np.prod(shape)))]).reshape(shape)
    return policy.choose(context, rng=uniforms, available=available, **more)


def reward_of(policy: Policy, rng: random.Random, n_arms: int) -> Any:
    low, high = getattr(policy, "reward_range", (0.0, 1.0))
    rewards = [low + (high - low) * rng.random() for _ in range(n_arms)]
    return rewards if policy.feedback is Feedback.FULL else rewards[0]


def stepwise(policy: Policy, seed: int) -> str:
    """Masks, late rewards in any order, `expect` and `forgo`, arms that come and go, another alpha, periods."""
    rng, uniforms, digest = random.Random(seed), np.random.default_rng(seed), hashlib.sha256()
    waiting = list[tuple[Any, int]]()
    for round in range(N_ROUNDS):
        live = policy.live_arms
        available = None
        if rng.random() < 0.3:
            drawn = set(rng.sample(list(live), rng.randint(1, len(live))))
            available = [arm in drawn for arm in range(policy.n_arms)]
        decision = chosen(policy, rng, uniforms, available)
        digest.update(np.array([decision.arm, decision.propensity]).tobytes())
        digest.update(np.asarray(decision.probabilities).tobytes())
        what = rng.random()
        if what < 0.6:
            policy.update(decision, reward_of(policy, rng, policy.n_arms))
        elif what < 0.9:
            policy.expect(decision)
            waiting.append((decision, policy.n_arms))
        if waiting and rng.random() < 0.4:
            late, n_arms = waiting.pop(rng.randrange(len(waiting)))
            if rng.random() < 0.3:
                policy.forgo(late)
            else:
                policy.update(late, reward_of(policy, rng, n_arms))
        if round == N_ROUNDS // 3 and not policy.settings.get("groups"):
            policy.grow(n_contexts=policy.n_contexts + 1, n_arms=policy.n_arms + 2)
        if round == N_ROUNDS // 2:
            policy.retire(1)
        for at, change in ((60, "set_alpha"), (80, "new_period")):
            if round == at and hasattr(policy, change):
                try:
                    policy.set_alpha(0.5) if change == "set_alpha" else policy.new_period(carry=0.5)
                except Exception as problem:  # a policy that has no alpha, or no accounts, refuses in a sentence
                    digest.update(type(problem).__name__.encode())
    accounts = getattr(policy, "accounts", None)
    digest.update(b"" if accounts is None else accounts.tobytes())
    return digest.hexdigest()[:24]


def simulated(policy: Policy, seed: int) -> str:
    """Play a stream at once, with and without late rewards."""
    rng = random.Random(seed)
    rewards = [[rng.random() for _ in range(N_ARMS)] for _ in range(600)]
    stream = Stream.from_arrays([rng.randrange(N_CONTEXTS) for _ in range(600)], np.array(rewards))
    digest = hashlib.sha256()
    for delay in (None, 7):
        trace = simulate(policy.fresh(), stream, seed=seed, delay=delay, record_every=50)
        for part in (trace.accounts, trace.pulls, trace.final):
            digest.update(np.ascontiguousarray(part).tobytes())
    return digest.hexdigest()[:24]


def digests(name: str, variant: str) -> dict[str, str]:
    """What one variant of a policy did, or that it refuses to be played so."""
    kind, settings = KINDS[name], settings_of(name)[variant]
    found = dict[str, str]()
    for seed in (1, 2):
        for play in (stepwise, simulated):
            try:
                found[f"{play.__name__} {seed}"] = play(kind(N_CONTEXTS, N_ARMS, **settings, seed=seed), seed)
            except InvalidArgument as problem:  # a stream without features
                found[f"{play.__name__} {seed}"] = problem.argument
    return found


def main(path: Path) -> None:
    made = {name: {variant: digests(name, variant) for variant in settings_of(name)} for name in KINDS}
    path.write_text(json.dumps(made, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
