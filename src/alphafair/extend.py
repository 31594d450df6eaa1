"""Everything for your own policy: `from alphafair.extend import ...`. CONTRIBUTING.md has two examples.

In plain Python: derive from `PlainPolicy`, and declare its memory with `Array`, `Number` and `Accounts`.

Compiled: write `draw` and `learn` as kernels, name the memory with `positions` and a `Layout`, make an `Algorithm` of
them, and derive from `BasePolicy`. `draw_arm` and `draw_from` draw an arm, `compiled` returns the compiled kernel,
`repeated` is for kernels that Python calls too. `alphafair.math` has more functions.

In both cases `register` makes the policy available by its name, and `validate` has functions to check settings.
"""

from typing import TYPE_CHECKING, Any

from alphafair import validate as validate
from alphafair.jit import compiled as compiled
from alphafair.jit import kernel as kernel
from alphafair.jit import repeated as repeated
from alphafair.math.distributions import draw_arm as draw_arm
from alphafair.math.distributions import draw_from as draw_from
from alphafair.math.distributions import mask_distribution as mask_distribution
from alphafair.policy.algorithm import Algorithm as Algorithm
from alphafair.policy.base import BasePolicy as BasePolicy
from alphafair.policy.memory import Layout as Layout
from alphafair.policy.memory import Memory as Memory
from alphafair.policy.plain import Accounts as Accounts
from alphafair.policy.plain import Array as Array
from alphafair.policy.plain import Number as Number
from alphafair.policy.plain import PlainPolicy as PlainPolicy
from alphafair.values import Decision as Decision
from alphafair.values import Feedback as Feedback
from alphafair.values import State as State
from alphafair.values import Traits as Traits
from alphafair.values.arrays import Indices as Indices
from alphafair.values.arrays import Matrix as Matrix
from alphafair.values.arrays import Vector as Vector
from alphafair.values.arrays import positions as positions

if TYPE_CHECKING:
    from alphafair.algorithms import register as register


def __getattr__(name: str) -> Any:
    """Import `register` on first use: the policies of this package import from here too."""
    if name == "register":
        from alphafair.algorithms import register

        return register
    raise AttributeError(f"module 'alphafair.extend' has no attribute {name!r}")
