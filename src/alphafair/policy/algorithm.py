"""An algorithm: the layout of its memory and a few functions on it, for `BasePolicy`.

    start(memory)                                       write initial values over zeros
    draw(memory, context, uniform, out)                 write the distribution to `out`; return arm and probability
    learn(memory, context, probabilities, rewards)      full information
    learn(memory, context, arm, propensity, reward)     bandit feedback; return False, and change nothing, for a
                                                        propensity that the policy cannot have used
    admit(memory, n_kept, some_left, entries)           after a change of arms: columns from `n_kept` on are new

Policies that show slates have two more, for decisions of k > 1 arms; k is at most the number of live arms:

    draw_slate(memory, context, k, uniform, out, slate)
        write the probabilities of inclusion to `out` and the arms to the first row of `slate`; return how many they are
    learn_slate(memory, context, k, probabilities, rewards)
        full information
    learn_slate(memory, context, k, arms, propensities, rewards, first)
        bandit feedback: rewards of some of the k arms that arrive together, `first` if none of them came before; return
        False, and change nothing, as `learn`

`draw`, `learn` and the other kernels are compiled, and `alphafair.policy.loops` calls them once per round, so stepwise
and compiled runs agree to the last bit. The other functions are called from Python.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from alphafair.policy.memory import Layout, Memory

Kernel = Callable[..., Any]


@dataclass(frozen=True, eq=False)
class Algorithm:
    """Made once per module and shared by all policies of a class; the functions are described above."""

    layout: Layout
    draw: Kernel
    learn: Kernel
    start: Callable[[Memory], None] = lambda memory: None
    start_contexts: Callable[[Memory], None] = lambda memory: None  # the same for `contexts` and `context_scalars`
    admit: Callable[..., None] = lambda memory, n_kept, some_left, entries: None
    learn_in_order: Kernel | None = None  # a faster `learn`, if nothing is late or masked
    prepare: Kernel | None = None  # (memory, context): recompute what `draw` leaves in scratch for `learn`
    expect: Kernel | None = None  # (memory, context, arm): a reward will come later
    forgo: Kernel | None = None  # (memory, context, arm): it will never come
    observe: Kernel | None = None  # (memory, context, arm, reward): a decision of somebody else; see `Layout.others`
    trust: Callable[[Memory], float] | None = None  # the weight of what was learned from others too
    show: Kernel | None = None  # (memory, features, t): set the features of round t; return whether they changed
    mask: Kernel | None = (
        None  # (memory, probabilities, available, uniform): in place, then as `draw`; default: renormalize
    )
    draw_slate: Kernel | None = None  # (memory, context, k, uniform, out, slate): see below; None: it shows one arm
    prepare_slate: Kernel | None = None  # (memory, context, k): as `prepare`
    learn_slate: Kernel | None = None
    least_shown: Callable[[Memory, int, int], float] = lambda memory, context, k: 0.0  # as `least_propensity`
    worth: Callable[[Memory], Any] | None = None  # after `draw_slate`: what every arm is worth, for the best slots
    earn_less: Callable[[Memory, int, float], None] | None = None  # (memory, arm, amount): lower its account
    accounts: str | None = None  # the row of `arms`, or of `contexts`, that holds accounts
    simplex_rows: str | None = None  # the row of `contexts` that is projected on the floors of groups
    before_arms_change: Callable[[Memory], None] | None = None  # finish pending work before arms change
    reopen: Callable[[Memory, Any], None] | None = None  # (memory, columns): accounts were changed outside the kernels
    groups_changed: Callable[[Memory], None] | None = None  # arms were added or retired in groups that share accounts
    alpha_changed: Callable[[Memory], None] | None = None
    of_sides: Callable[[Memory], tuple[Any, Any, Any]] | None = None  # accounts of contexts: `alphafair.math.two_sides`
    carry: Callable[[Memory, float], None] | None = None  # at a new period, of what belongs to contexts
    sides_changed: Callable[[Memory], None] | None = None  # accounts of contexts were changed outside the kernels
    new_period: Callable[[Memory], None] | None = None  # start the bounds anew; accounts have their new values
    check: Callable[[Memory], str | None] = lambda memory: (
        None
    )  # return what a restored memory must be, if it is not; else None
    least_propensity: Callable[[Memory, int], float] = lambda memory, context: 0.0
    flags: tuple[str, ...] = ()  # global names that machine code replaces by False for policies without that feature

    def __deepcopy__(self, memo: Any) -> Algorithm:
        return self
