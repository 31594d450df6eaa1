"""The same estimates by the package obp (Saito et al., arXiv 2008.07146), on the Open Bandit logs: `python -m
benchmarks.compare_obp`.

It is not among the requirements of the benchmarks: obp 0.4.1 asks for a PyYAML that no longer builds, and for PyTorch,
which these three estimators do not touch. The doubly robust one gets our model's mean rewards, as obp lets one bring
one's own.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from alphafair import Log
from alphafair.evaluation import ESTIMATORS, logged_policy
from alphafair.evaluation.estimators import Scoring, score
from alphafair.evaluation.optima import survey
from alphafair.evaluation.reward_model import fit, left_out

COLUMNS = {"context": "position", "arm": "item_id", "reward": "click", "propensity": "propensity_score"}
AGREEMENT = 1e-9


def compared(ope: Any, log: Log, policy: Any) -> Iterator[tuple[str, float, float]]:
    """The mean reward of a round by each estimator: its name, ours, theirs."""
    rows = np.arange(log.n_rounds)
    model = fit(survey(log).cells)
    means = model.means[log.contexts]
    means[rows, log.arms] = [
        left_out(model, c, a, r) for c, a, r in zip(log.contexts, log.arms, log.rewards, strict=True)
    ]
    given = {
        "reward": log.rewards,
        "action": log.arms.astype(np.int64),
        "pscore": log.propensities,
        "action_dist": policy[log.contexts][:, :, None],
        "estimated_rewards_by_reg_model": means[:, :, None],
    }
    for name, theirs in (
        ("ips", ope.InverseProbabilityWeighting()),
        ("snips", ope.SelfNormalizedInverseProbabilityWeighting()),
        ("dr", ope.DoublyRobust()),
    ):
        earned = score(log, [Scoring(policy[None], ESTIMATORS[name], model)])[0].accounts()[0]
        yield name, float((earned - 1.0).sum() / log.n_rounds), float(theirs.estimate_policy_value(**given))


def main() -> None:
    try:
        import obp.ope as ope
    except ImportError as missing:
        sys.exit(f"obp is not here ({missing}): there is nothing to compare with.")
    logs = {
        name: Log.from_table(f"tests/fixtures/open-bandit-men-{name}.parquet", **COLUMNS) for name in ("random", "bts")
    }
    agreed = True
    print("| log | policy | estimator | ours | obp | difference |\n|---|---|---|---|---|---|")
    for own, other in (("random", "bts"), ("bts", "random")):
        policy = logged_policy(logs[other])
        for name, ours, theirs in compared(ope, logs[own], policy):
            agreed &= abs(ours - theirs) <= AGREEMENT * abs(theirs)
            print(f"| {own} | {other} | {name} | {ours:.12g} | {theirs:.12g} | {abs(ours / theirs - 1.0):.0e} |")
    sys.exit(None if agreed else f"not the same to {AGREEMENT:g}")


if __name__ == "__main__":
    main()
