"""What the index plays where groups have floors: (1 - sum nu) a + nu_G a^G, with a^G the same among a group's arms.

Both start from v = w m in `index` and leave the distribution there.
"""

from alphafair.jit import kernel
from alphafair.kernels.groups import COUNT, FLOOR, GROUP, GROUP_SHARE, INCREMENT, POOL, UNPROMISED
from alphafair.kernels.index import TIE
from alphafair.kernels.memory import SETTINGS


@kernel
def favourites_of_groups(work, index, best, ties):
    """a of full information, uniform on the largest w m of all and, for what is promised, of every group."""
    n, group, floor, best_of, ties_of = index.shape[0], work[GROUP], work[FLOOR], work[POOL], work[COUNT]
    for g in range(n):
        best_of[g] = ties_of[g] = 0.0
    for i in range(n):
        best_of[int(group[i])] = max(best_of[int(group[i])], index[i])
    for i in range(n):
        ties_of[int(group[i])] += 1.0 if index[i] >= TIE * best_of[int(group[i])] else 0.0
    for i in range(n):
        g, value = int(group[i]), index[i]
        index[i] = work[SETTINGS, UNPROMISED] / ties if value >= TIE * best else 0.0
        if value >= TIE * best_of[g]:
            index[i] += floor[g] / ties_of[g]


@kernel
def tails_in_groups(work, index, best, scale, values):
    """a of bandit feedback: 1/(n + scale (v_b - v_i)) on arms below the best, and with k arms in place of n in a group.

    `values` is scratch.
    """
    n, group, floor, keep = index.shape[0], work[GROUP], work[FLOOR], work[SETTINGS, UNPROMISED]
    best_of, count_of, ties_of, rest_of = work[POOL], work[COUNT], work[GROUP_SHARE], work[INCREMENT]
    for g in range(n):
        best_of[g] = count_of[g] = ties_of[g] = 0.0
        rest_of[g], values[g] = 1.0, index[g]
    rest, ties = 1.0, 0.0
    for i in range(n):
        g = int(group[i])
        best_of[g] = max(best_of[g], values[i])
        count_of[g] += 1.0
        ties += 1.0 if values[i] >= TIE * best else 0.0
    for i in range(n):
        g = int(group[i])
        if values[i] >= TIE * best_of[g]:
            ties_of[g] += 1.0
        else:
            rest_of[g] -= 1.0 / (count_of[g] * (1.0 + scale / n * (best_of[g] - values[i])))
        if values[i] < TIE * best:
            rest -= 1.0 / (n + scale * (best - values[i]))
    for i in range(n):
        g = int(group[i])
        below, below_own = scale * (best - values[i]), scale / n * (best_of[g] - values[i])
        index[i] = keep * (rest / ties if values[i] >= TIE * best else 1.0 / (n + below))
        own = rest_of[g] / ties_of[g] if values[i] >= TIE * best_of[g] else 1.0 / (count_of[g] * (1.0 + below_own))
        index[i] += floor[g] * own
