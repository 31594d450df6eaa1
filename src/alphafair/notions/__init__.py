"""Published notions of fairness, each as a policy, to be compared with each other and with alpha-fairness.

Import them from here; `import alphafair` loads none of them. Plans, the arena and the command line find them by name,
the engine and the service after `alphafair.register(FairLearn)`.
"""
# ruff: noqa: I001 - not sorted: this is the order of every table and figure

from typing import Any

from alphafair import validate
from alphafair.algorithms import POLICIES
from alphafair.policy.base import BasePolicy
from alphafair.notions.fair_learn import FairLearn as FairLearn
from alphafair.notions.rate_ucb import RateUCB as RateUCB
from alphafair.notions.lfg import LFG as LFG
from alphafair.notions.fair_bandits import FairBandits as FairBandits
from alphafair.notions.fairx import FairX as FairX
from alphafair.notions.bandit_q import BanditQ as BanditQ
from alphafair.notions.guaranteed_revenue import GuaranteedRevenue as GuaranteedRevenue
from alphafair.notions.constrained_greedy import ConstrainedGreedy as ConstrainedGreedy
from alphafair.notions.nash_confidence_bound import NashConfidenceBound as NashConfidenceBound
from alphafair.notions.horizon_fair import HorizonFair as HorizonFair
from alphafair.notions.promised import Promised as Promised

NOTIONS: tuple[type[BasePolicy], ...] = (
    FairLearn,
    RateUCB,
    LFG,
    FairBandits,
    FairX,
    BanditQ,
    GuaranteedRevenue,
    ConstrainedGreedy,
    NashConfidenceBound,
    HorizonFair,
    Promised,
)


def find(name: Any, argument: str = "policy") -> type[BasePolicy]:
    """Return the class of a policy by its name: a registered one, or one of this package.

    >>> find("fair-learn").__name__, find("hedge").__name__
    ('FairLearn', 'Hedge')
    """
    if name in POLICIES:
        return POLICIES[name]
    known = {**POLICIES, **{kind.name: kind for kind in NOTIONS}}
    return known[validate.choice(argument, name, known)]
