"""Learn from decisions of others: a second predictor J that sees all rewards, beside P, which sees the policy's own.

Both are `alphafair.math.predictor`. J begins at the first observed reward as a copy of P. A decision of somebody else
teaches J alone; own ones teach both. With m_P, m_J their predictions, c the largest own reward and a(m) the
distribution that the policy plays on predictions m, it plays

    m = (1-w) m_P + w min(m_J, c) ;   a = (1-w) a(m_P) + w a(m_J) ;   w = .97/(1 + exp(-tau)/4)

and after an own reward r of arm I, with sigma as in the policy and before P and J learn from it,

    tau = clip(.999 tau + ((r - m_P,I)^2 - (r - m_J,I)^2)/(2 sigma^2), -20, 20) ,   0 at first

so w follows which of the two predicts own rewards better. Errors are seen on arms that are played, and no others: a log
that never pays for the best arm would keep a mixture of predictions alone from playing it. The part 1 - w >= .03 of a
that J has no say in plays it.

m is in [0, c], and neither m nor a depends on the draw of its round. The theorem of the policy asks for no more, so its
bound stays as it is, whatever others did: see docs/background/theory.md.

tau `tau` · m_J `predicted` and a(m_J) `scores` in the scratch of J · m_P `alone` · J is `memory.others`
"""

import math
from typing import Any

from alphafair.jit import kernel
from alphafair.math.predictor import (
    ARMS,
    CONTEXT_SCALARS,
    CONTEXTS,
    OF_BANDITS,
    PART,
    PARTS,
    ROUNDING,
    SCRATCH,
    check_sums,
    predict,
    reward_size,
    teach,
)
from alphafair.math.utility import ACCOUNT
from alphafair.policy.memory import Layout
from alphafair.values.arrays import positions

OTHERS = True  # False in machine code for policies that have not observed decisions of others

MOST_TRUST = 0.97
FIRST_ODDS = 4.0  # w/(.97 - w) at first
KEEP, LIMIT = 0.999, 20.0  # of tau

J = positions(OF_BANDITS, "tau")
T = positions(SCRATCH, "alone")
LAYOUT = Layout(
    scalars=J,
    arms=ARMS,
    context_scalars=CONTEXT_SCALARS,
    contexts=CONTEXTS,
    scratch=T,
    parts=PARTS,
    unused=(*ACCOUNT._fields, "rounds"),  # cells of P that J leaves at 0
)


@kernel
def trust(memory):
    """Return w, the weight of J."""
    return MOST_TRUST / (1.0 + math.exp(-memory.others.scalars[J.tau]) / FIRST_ODDS)


@kernel
def consult(memory, context, slope):
    """Write min(m_J, c) and v = w m_J, with w in `slope`, to the scratch of J; return the largest v."""
    others, largest = memory.others, memory.scalars[J.largest]
    predict(others, context, reward_size(others.scalars))
    predicted, scores = others.scratch[T.predicted], others.scratch[T.scores]
    best = 0.0
    for i in range(scores.shape[0]):
        predicted[i] = min(predicted[i], largest)
        scores[i] = slope[i] * predicted[i]
        best = max(best, scores[i])
    return best


@kernel
def mix(memory):
    """Replace m_P and a(m_P) in scratch by m and a."""
    own, others, weight = memory.scratch, memory.others.scratch, trust(memory)
    for i in range(own.shape[1]):
        others[T.alone, i] = own[T.predicted, i]
        own[T.predicted, i] = (1.0 - weight) * own[T.predicted, i] + weight * others[T.predicted, i]
        own[T.scores, i] = (1.0 - weight) * own[T.scores, i] + weight * others[T.scores, i]


@kernel
def weigh(memory, arm, reward, sigma):
    """Update tau with an own reward, before P and J learn from it."""
    scalars, scratch = memory.others.scalars, memory.others.scratch
    alone, joint = reward - scratch[T.alone, arm], reward - scratch[T.predicted, arm]
    tau = KEEP * scalars[J.tau] + (alone * alone - joint * joint) / (2.0 * sigma * sigma)
    scalars[J.tau] = min(max(tau, -LIMIT), LIMIT)


@kernel
def observe(memory, context, arm, reward):
    """Teach J the reward of a decision of somebody else."""
    if OTHERS:  # pragma: no branch - machine code alone
        predict(memory.others, context, reward_size(memory.others.scalars))
        teach(memory.others, context, arm, reward)


def check_others(others: Any) -> str | None:
    """Return what is wrong with J: its counts and sums, and the range of tau."""
    largest, squares, tau = others.scalars[[J.largest, J.squared_rewards, J.tau]].tolist()
    if others.context_scalars.min() < 0.0 or abs(tau) > LIMIT:
        return f"with counts of at least 0 and tau in [-{LIMIT:g}, {LIMIT:g}]"
    return PART if largest * largest > squares * (1.0 + ROUNDING) else check_sums(others)
