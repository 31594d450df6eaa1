"""Policies for experiments only, none of them in POLICIES.

A rival from the literature (`frank_wolfe`); half of the adaptive policy (`guaranteed`); the policies of the code
published with the paper (`published`) and other readings of its text (`readings`); slates without a policy of slates
(`one_by_one`); and four rivals that one would write
oneself, each with settings to tune: `epsilon_greedy`, `ucb`, `thompson` and, for rounds with features, `lin_ucb`.
"""

from alphafair.lab.rivals.epsilon_greedy import FairEpsilonGreedy
from alphafair.lab.rivals.frank_wolfe import OptimisticFrankWolfe
from alphafair.lab.rivals.guaranteed import GuaranteedLearner
from alphafair.lab.rivals.lin_ucb import FairLinUCB
from alphafair.lab.rivals.one_by_one import AdaptiveOneByOne
from alphafair.lab.rivals.published import PublishedSign, PublishedStep
from alphafair.lab.rivals.readings import READINGS, AlphaFairAfter, AlphaFairNextVisit
from alphafair.lab.rivals.thompson import FairThompson
from alphafair.lab.rivals.ucb import FairDiscountedUCB, FairUCB

TUNABLE = (FairEpsilonGreedy, FairUCB, FairDiscountedUCB, FairThompson, FairLinUCB)
PUBLISHED = (PublishedSign, PublishedStep, AlphaFairNextVisit, AlphaFairAfter)
RIVALS = (*PUBLISHED, OptimisticFrankWolfe, GuaranteedLearner, AdaptiveOneByOne, *TUNABLE)

__all__ = ["READINGS", "RIVALS", "TUNABLE", *(kind.__name__ for kind in RIVALS)]
