"""The account of pulls of policies that promise pulls: counted when played, whatever becomes of the rewards.

D_i = r_i (t - t_i) - N_i, what arm i is behind since its entry t_i ;   t and N_i count from `expect` on

r `share` · N `pulls` · t `rounds` · t_i `entry` · `waiting`: pulls counted and not learned from yet
"""

from __future__ import annotations

from typing import Any

from alphafair.jit import kernel
from alphafair.values.arrays import Vector, positions

N = positions("rounds")
A = positions("share", "pulls", "waiting", "entry")


@kernel
def behind(memory, out):
    """Write D to `out`, and return its largest entry."""
    arms, t, largest = memory.arms, memory.scalars[N.rounds], -1e300
    for i in range(out.shape[0]):
        out[i] = arms[A.share, i] * (t - arms[A.entry, i]) - arms[A.pulls, i]
        largest = max(largest, out[i])
    return largest


@kernel
def count(memory, arm, pulls):
    """Count so many pulls of an arm."""
    memory.scalars[N.rounds] += pulls
    memory.arms[A.pulls, arm] += pulls


@kernel
def count_learned(memory, arm):
    """Count the pull whose reward has arrived, unless `expect` has."""
    if memory.arms[A.waiting, arm] > 0.0:
        memory.arms[A.waiting, arm] -= 1.0
    else:
        count(memory, arm, 1.0)


@kernel
def expect(memory, context, arm):
    """Count the pull before its reward arrives."""
    memory.arms[A.waiting, arm] += 1.0
    count(memory, arm, 1.0)


@kernel
def forgo(memory, context, arm):
    """Take back a pull whose reward will never come."""
    if memory.arms[A.waiting, arm] > 0.0:
        memory.arms[A.waiting, arm] -= 1.0
        count(memory, arm, -1.0)


def admit(memory: Any, n_kept: int, some_left: bool, entries: Vector) -> None:
    """New arms owe and are owed nothing: they enter in the current round."""
    memory.arms[A.entry, n_kept:] = memory.scalars[N.rounds]
