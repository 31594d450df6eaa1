"""What an algorithm is: names for what it keeps, and a few functions on it. A policy's class hands one to `BasePolicy`.

    start(memory)                                       first values, in zeros
    draw(memory, context, uniform, out)                 writes the distribution to `out`; the arm and its probability
    learn(memory, context, probabilities, rewards)      full information
    learn(memory, context, arm, propensity, reward)     bandit feedback: False, and nothing changed, where the policy
                                                        cannot have drawn an arm so rarely
    admit(memory, n_kept, some_left, entries)           arms came or went: columns after the first `n_kept` are new

`draw`, `learn` and the other functions marked as kernels are compiled, and called once per round by
`alphafair.policy.loops`, so that stepwise and compiled runs agree to the last bit; Python calls the others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from alphafair.policy.memory import Layout, Memory

Kernel = Callable[..., Any]


@dataclass(frozen=True, eq=False)
class Algorithm:
    """Made once per module, and shared by all policies of a kind. See the module's docstring for the functions."""

    layout: Layout
    draw: Kernel
    learn: Kernel
    start: Callable[[Memory], None] = lambda memory: None
    start_contexts: Callable[[Memory], None] = lambda memory: None  # the same for `contexts` and `context_scalars`
    admit: Callable[..., None] = lambda memory, n_kept, some_left, entries: None
    learn_in_order: Kernel | None = None  # a quicker `learn`, where nothing is late or masked
    prepare: Kernel | None = None  # (memory, context): what `learn` needs and `draw` has left, where another came since
    expect: Kernel | None = None  # (memory, context, arm): its reward is on its way
    forgo: Kernel | None = None  # (memory, context, arm): it will never come
    show: Kernel | None = None  # (memory, features, t): row t describes the round that comes next; whether that is new
    mask: Kernel | None = None  # (memory, probabilities, available): in place; by default renormalised
    accounts: str | None = None  # the row of `arms`, or of `contexts`, that holds accounts
    simplex_rows: str | None = None  # the row of `contexts` that keeps the floors of groups itself
    before_arms_change: Callable[[Memory], None] | None = None  # finish what cannot wait until other arms are there
    reopen: Callable[[Memory, Any], None] | None = None  # (memory, columns): accounts have changed from outside
    groups_changed: Callable[[Memory], None] | None = None  # arms came or went among groups that share accounts
    alpha_changed: Callable[[Memory], None] | None = None
    check: Callable[[Memory], str | None] = lambda memory: None  # what is wrong with a memory that was read
    least_propensity: Callable[[Memory, int], float] = lambda memory, context: 0.0
    flags: tuple[str, ...] = ()  # global names that are False in machine code for policies that do not need them

    def __deepcopy__(self, memo: Any) -> Algorithm:
        return self
