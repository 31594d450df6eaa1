"""The policies of the code published with the paper, which differ from its text: for the reproduction only."""

from typing import ClassVar

from alphafair.kernels import published_sign, published_step
from alphafair.policies import AlphaFair, AlphaFairBandit


class PublishedSign(AlphaFairBandit):
    """`AlphaFairBandit` with the sign of the code published with the paper; not for use, so not in POLICIES."""

    name: ClassVar[str] = "published-sign"
    kernels = AlphaFairBandit.kernels._replace(learn=published_sign.learn)
    look = ("#661100", "*")


class PublishedStep(AlphaFair):
    """`AlphaFair` with the step size of the code published with the paper: no certificate, not for use."""

    name: ClassVar[str] = "published-step"
    kernels = AlphaFair.kernels._replace(learn=published_step.learn, learn_in_order=None)
    look = ("#661100", "*")  # never beside the other
    surrogate_regret_bound = None
