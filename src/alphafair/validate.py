"""Validation of arguments. Every error is one sentence: the argument, the allowed values, the value, the repair.

Public functions validate once, here; kernels and private methods trust their arguments.
"""

import difflib
import itertools
import math
import operator
import re
from collections.abc import Collection, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from alphafair.errors import InvalidArgument, shown
from alphafair_client.answers import LONGEST_LABEL
from alphafair_client.checks import as_float as as_float
from alphafair_client.checks import integer as integer
from alphafair_client.checks import number as number

Choice = TypeVar("Choice")
UNCHANGED_DECISION = "Pass the Decision that choose returned, unchanged."
ANY_REWARD = (-1e100, 1e100)  # sums and products of such rewards stay finite
LEAST_EXPOSURE = 1e-6  # of a slot: policies and estimates divide rewards by it
UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}  # of durations, in seconds
LONGEST_HORIZON = 1e300  # a float must hold it
ANY_FEATURE = 1e50  # sums of squares stay finite
BOOLEAN = np.dtype(np.bool_)
LABELS = f"1 to {LONGEST_LABEL} characters, none of them a control character"
UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def is_label(value: str) -> bool:
    """Whether a string can be stored, printed and put into a URL."""
    plain = value.isascii() and value.isprintable()  # true of nearly all labels, and faster than the pattern
    return 0 < len(value) <= LONGEST_LABEL and (plain or not UNPRINTABLE.search(value))


def listed(labels: Collection[object]) -> str:
    """List the first few labels.

    >>> listed(["ada", "ben"]), listed(range(1000))
    ("'ada', 'ben'", '0, 1, 2, 3, 4 and 995 more')
    """
    words = ", ".join(map(shown, itertools.islice(labels, 5)))
    return f"{words} and {len(labels) - 5:,} more" if len(labels) > 5 else words


def horizon(value: Any) -> int:
    """Check a number of rounds that a float can hold."""
    n_rounds = integer("horizon", value, low=1)
    if n_rounds > LONGEST_HORIZON:
        raise InvalidArgument("horizon", f"at most {LONGEST_HORIZON:g}", value, "Choose horizon inside that range.")
    return n_rounds


def duration(argument: str, value: Any) -> float:
    """Convert a number of seconds, or a string such as 90d, 12h, 30m or 45s, to seconds.

    >>> duration("expires", "90m"), duration("period", 2)
    (5400.0, 2.0)
    """
    if isinstance(value, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smhdw])\s*", value, re.ASCII)
        if match is None:
            raise InvalidArgument(
                argument, "a number and a unit (s, m, h, d or w)", value, "Pass, for example, 30m, 12h or 90d."
            )
        value = float(match[1]) * UNITS[match[2]]
    return number(argument, value, low=0.0, high=1e9)


def alpha(value: Any) -> float:
    """Check the fairness exponent: any number from 0 to inf, or the string "inf", which JSON needs.

    >>> alpha(1), alpha("inf")
    (1.0, inf)
    """
    try:
        real = math.inf if isinstance(value, str) and value in ("inf", "infinity") else as_float(value)
    except (TypeError, ValueError):
        real = math.nan
    if isinstance(value, bool | np.bool_) or not real >= 0.0:
        raise InvalidArgument(
            "alpha",
            "a number of at least 0, or inf",
            value,
            "Pass 0 for the sum of rewards, 1 for proportional fairness, inf for max-min.",
        )
    return real + 0.0  # 0.0 for -0.0


def alpha_below_one(value: Any, what: str = "c_alpha-regret", instead: str = "metrics.welfare_ratio") -> float:
    """Check an exponent below 1, for measures that exist only there."""
    real = alpha(value)
    if real >= 1.0:
        repair = f"From 1 on there is no factor c_alpha: use {instead}."
        raise InvalidArgument("alpha", f"below 1 for {what}", value, repair)
    return real


def _words(value: Any) -> str:
    return value if isinstance(value, str) else shown(value)


def choice(argument: str, value: Any, options: Iterable[Choice]) -> Choice:
    """Check that a value is one of the options, and return the option."""
    allowed = list(options)
    for option in allowed:
        if value == option:
            return option
    words = ", ".join(repr(str(option)) for option in allowed)
    raise InvalidArgument(argument, f"one of {words}", value, did_you_mean(value, allowed, "Pass one of these."))


def did_you_mean(value: Any, options: Iterable[object], otherwise: str) -> str:
    """Return a repair that names the option which is most like a value, or another one if none is.

    >>> did_you_mean("aeg", ["age", "segment"], "Leave it out."), did_you_mean("x", ["age"], "Leave it out.")
    ("Did you mean 'age'?", 'Leave it out.')
    """
    close = difflib.get_close_matches(_words(value)[:100], [str(option) for option in options], n=1)
    return f"Did you mean {close[0]!r}?" if close else otherwise


def context(value: Any, n_contexts: int) -> int:
    """Check the index of a context."""
    allowed = f"an int in [0, {n_contexts - 1}]"
    try:
        number = operator.index(value)
    except TypeError:
        raise InvalidArgument("context", allowed, value, "Pass its index.") from None
    if isinstance(value, bool | np.bool_) or number < 0:
        raise InvalidArgument("context", allowed, value, "Count contexts from 0.")
    if number >= n_contexts:
        repair = f"To add contexts, call policy.grow({shown(number + 1)}) first."
        raise InvalidArgument("context", allowed, value, repair)
    return number


def decision(value: Any, n_contexts: int, n_arms: int) -> tuple[int, int, float, Any]:
    """Check the fields of a decision; its probabilities may be None.

    A decision made before arms were added has fewer probabilities; they are padded with zeros.
    """
    try:
        seen, arm, propensity, probabilities = value
        if (  # a fast path for the types that `choose` returns
            type(seen) is int
            and 0 <= seen < n_contexts
            and type(arm) is int
            and 0 <= arm < n_arms == len(probabilities)
            and type(propensity) is float
            and 0.0 < propensity <= 1.0
            and probabilities.ndim == 1
            and probabilities.item(arm) == propensity
        ):
            return value  # type: ignore[no-any-return]
    except (TypeError, ValueError, AttributeError):
        if not _has_four(value):
            raise InvalidArgument("decision", "a Decision", value, UNCHANGED_DECISION) from None
    seen = context(seen, n_contexts)
    arm = integer("decision.arm", arm, low=0, high=n_arms - 1)
    propensity = number("decision.propensity", propensity, low=0.0, high=1.0, low_open=True)
    if probabilities is not None:
        probabilities = decision_probabilities(probabilities, n_arms)
        if abs(probabilities[arm] - propensity) > 1e-6 * propensity:
            allowed = f"decision.probabilities[{arm}], {float(probabilities[arm])!r}"
            raise InvalidArgument("decision.propensity", allowed, propensity, UNCHANGED_DECISION)
    return seen, arm, propensity, probabilities


def _has_four(value: Any) -> bool:
    try:
        _, _, _, _ = value
    except (TypeError, ValueError):
        return False
    return True


def decision_probabilities(value: Any, n_arms: int) -> NDArray[np.float64]:
    """Check the distribution of a decision, padded with 0 for arms that were added later."""
    n_before = min(n_arms, len(value)) if isinstance(value, Sequence | np.ndarray) and np.ndim(value) == 1 else n_arms
    array = distribution("decision.probabilities", value, n_before or n_arms, "per arm", UNCHANGED_DECISION)
    return padded(array, n_arms)


def padded(array: NDArray[np.float64], size: int) -> NDArray[np.float64]:
    """Append zeros up to a size."""
    return array if len(array) == size else np.concatenate([array, np.zeros(size - len(array))])


def account(value: Any) -> float:
    """Check the account of a new arm: a number of at least 1, or NaN for the least of the live arms."""
    if isinstance(value, str):
        words = {"least": math.nan, "fresh": 1.0}
        if value not in words:
            raise InvalidArgument(
                "account", "'least', 'fresh' or a number of at least 1", value, "Omit it for 'least'."
            )
        return words[value]
    return number("account", value, low=1.0, high=ANY_REWARD[1])


def reward(value: Any, low: float = 0.0, high: float = 1.0) -> float:
    """Check the reward of the pulled arm."""
    allowed = f"a number in [{low:g}, {high:g}]"
    try:
        real = math.nan if np.ma.is_masked(value) else as_float(value)
    except (TypeError, ValueError):
        raise InvalidArgument(
            "reward", allowed, value, "Pass one float per round: this policy has bandit feedback."
        ) from None
    if math.isnan(real):
        raise InvalidArgument("reward", allowed, value, "Skip rounds whose reward is unknown.")
    if not low <= real <= high:
        raise InvalidArgument("reward", allowed, value, "Map it with alphafair.rescale_rewards.")
    return real


def unit_vector(argument: str, value: Any, size: int, each: str, repair: str) -> NDArray[np.float64]:
    """Check a vector of numbers in [0, 1], and return a contiguous copy."""
    allowed = f"{size} numbers in [0, 1], one {each}"
    array = floats(argument, allowed, value, "Pass a sequence of floats.").copy(order="C")
    if array.shape != (size,):
        raise InvalidArgument(argument, allowed, f"shape {array.shape}", f"Pass one value {each}.")
    if not (array.min() >= 0.0 and array.max() <= 1.0):  # false for NaN as well
        inside = (array >= 0.0) & (array <= 1.0)
        repair = "Skip rounds with unknown values." if math.isnan(array[inside.argmin()]) else repair
        every(argument, array, inside, "a number in [0, 1]", repair)
    return array


def rewards(value: Any, n_arms: int, n_before: int) -> NDArray[np.float64]:
    """Check the rewards of all arms, current ones or those at the time of the decision; later arms get 0."""
    size = n_before if np.shape(value) == (n_before,) else n_arms
    repair = "Map rewards with alphafair.rescale_rewards."
    return padded(unit_vector("reward", value, size, "per arm", repair), n_arms)


def distribution(argument: str, value: Any, size: int, each: str, repair: str) -> NDArray[np.float64]:
    """Check probabilities that sum to 1."""
    array = unit_vector(argument, value, size, each, repair)
    total = float(array.sum())
    if abs(total - 1.0) > 1e-6:
        raise InvalidArgument(argument, "probabilities that sum to 1", total, repair)
    return array


def available(value: ArrayLike, n_arms: int) -> NDArray[np.bool_]:
    """Check a boolean mask of arms, with at least one True."""
    if type(value) is np.ndarray and value.dtype is BOOLEAN and value.shape == (n_arms,) and 1 in value.tobytes():
        return value.copy()  # `any` takes longer than all of this
    allowed = f"{n_arms} booleans, one per arm, at least one of them true"
    try:
        mask = np.asarray(value)
    except ValueError:
        raise InvalidArgument("available", allowed, value, "Pass a flat boolean mask.") from None
    if mask.dtype != np.bool_ or mask.shape != (n_arms,) or np.ma.is_masked(value):
        got = "masked entries" if np.ma.is_masked(value) else f"{mask.dtype} of shape {mask.shape}"
        raise InvalidArgument("available", allowed, got, "Pass a boolean mask, not a list of arms.")
    if not mask.any():
        raise InvalidArgument("available", allowed, "no arm", "Skip the decision when no arm can be played.")
    return np.array(mask, dtype=np.bool_)


def features(value: Any, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Finite numbers of that shape: a fresh read-only copy. Arms added since the decision was made had none: zeros."""
    if not shape:
        repair = "Make the policy with n_features, or leave them out."
        raise InvalidArgument("features", "left out: this policy was made without", value, repair)
    words = {1: "of the context", 2: "per arm and feature"}[len(shape)]
    allowed = f"finite numbers of shape {shape}, {words}"
    if value is None:
        raise InvalidArgument(
            "features", allowed, None, "This policy was made with n_features: show them with every round."
        )
    given = floats("features", allowed, value, "Pass an array of floats.")
    if len(shape) == 2 and given.ndim == 2 and given.shape[0] < shape[0]:
        given = np.concatenate([given, np.zeros((shape[0] - len(given), given.shape[1]))])
    if given.shape != shape:
        raise InvalidArgument("features", allowed, f"shape {given.shape}", "Pass one number per feature.")
    every("features", given, np.abs(given) <= ANY_FEATURE, "a finite number", "Fill in missing values.")
    array = np.array(given, order="C")
    array.setflags(write=False)
    return array


def feature_rows(value: Any, n_rounds: int, n_arms: int) -> NDArray[np.float64]:
    """Check the features of every round: of its context, or of every arm."""
    allowed = f"of shape ({n_rounds}, n_features) or ({n_rounds}, {n_arms}, n_features)"
    rows = floats("features", allowed, value, "Pass a row per round.")
    if rows.shape[:-1] not in ((n_rounds,), (n_rounds, n_arms)) or rows.shape[-1] == 0:
        raise InvalidArgument("features", allowed, f"shape {rows.shape}", "Pass a row per round.")
    if not (rows.min() >= -ANY_FEATURE and rows.max() <= ANY_FEATURE):
        every("features", rows, np.abs(rows) <= ANY_FEATURE, "a finite number", "Fill in missing values.")
    return rows


def indices(
    argument: str, value: Any, bound: int | None, n_entries: int | None = None, *, low: int = 0
) -> NDArray[np.int32]:
    """Check integers in [low, bound), and return them as int32, without a copy where possible."""
    limit = int(np.iinfo(np.int32).max) if bound is None else bound - 1
    allowed = f"integers in [{low}, {limit}]"
    array = np.asarray(value)
    if array.ndim != 1 or array.size == 0:
        raise InvalidArgument(
            argument, f"a 1-D array of {allowed}", f"shape {array.shape}", "Pass one entry per round."
        )
    if array.dtype.kind not in "iu":
        raise InvalidArgument(argument, allowed, f"dtype {array.dtype}", "Encode labels as integers first.")
    if np.ma.is_masked(value):
        raise InvalidArgument(argument, allowed, "masked entries", "Remove such rounds.")
    if n_entries is not None and len(array) != n_entries:
        raise InvalidArgument(argument, f"{n_entries} entries", len(array), "Pass one entry per round.")
    if array.min() < low or array.max() > limit:
        every(argument, array, (array >= low) & (array <= limit), allowed, f"Count from {low}.")
    return np.ascontiguousarray(array, dtype=np.int32)


def integers(argument: str, value: Any, n_entries: int) -> NDArray[np.int64]:
    """Check one integer of any size per entry."""
    array = np.asarray(value)
    if array.shape != (n_entries,) or array.dtype.kind not in "iu" or np.ma.is_masked(value):
        got = f"{array.dtype} of shape {array.shape}"
        raise InvalidArgument(argument, f"{n_entries} integers", got, "Encode labels as integers first.")
    return np.ascontiguousarray(array, dtype=np.int64)


def column(
    argument: str,
    value: Any,
    n_entries: int,
    low: float,
    high: float,
    *,
    low_open: bool = False,
    repair: str = "Remove entries whose value is unknown.",
) -> NDArray[np.float64]:
    """Check one number between two bounds per entry."""
    allowed = f"a number in {'(' if low_open else '['}{low:g}, {high:g}]"
    array = np.ascontiguousarray(floats(argument, f"{n_entries} numbers", value, "Pass one per entry."))
    if array.shape != (n_entries,):
        raise InvalidArgument(argument, f"{n_entries} entries", f"shape {array.shape}", "Pass one per entry.")
    inside = ((array > low) if low_open else (array >= low)) & (array <= high)
    every(argument, array, inside, allowed, repair)
    return array


def propensities(argument: str, value: Any, n_entries: int) -> NDArray[np.float64]:
    """Check a number in (0, 1] per entry, or nan where it is unknown."""
    array = floats(argument, f"{n_entries} numbers", value, "Pass one per entry.")
    unknown = np.isnan(array)
    if not unknown.any():
        return column(argument, array, n_entries, 0.0, 1.0, low_open=True)
    known = column(argument, np.where(unknown, 1.0, array), n_entries, 0.0, 1.0, low_open=True)
    return np.where(unknown, np.nan, known)


def learnable(rewards: NDArray[np.float64], reward_range: tuple[float, float]) -> NDArray[np.float64]:
    """Check that the rewards of a log lie in the range of a policy."""
    return column(
        "log.rewards", rewards, len(rewards), *reward_range, repair="Map them with alphafair.rescale_rewards."
    )


def timestamps(argument: str, value: Any, n_entries: int) -> NDArray[np.datetime64]:
    """Check one time per entry, without missing values, and return microseconds."""
    array = np.asarray(value)
    if array.shape != (n_entries,) or array.dtype.kind != "M" or np.isnat(array).any():
        got = f"{array.dtype} of shape {array.shape}"
        raise InvalidArgument(
            argument, f"{n_entries} times (datetime64)", got, "Pass one per entry, or omit the argument."
        )
    return array.astype("datetime64[us]")


def presence(arrivals: Any, departures: Any, *, n_arms: int, n_rounds: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Check arrivals and departures: arms are numbered as they arrive, and every round has at least one."""
    never = np.iinfo(np.int32).max
    for argument, given in (("arrivals", arrivals), ("departures", departures)):
        if given is not None and np.shape(given) != (n_arms,):
            raise InvalidArgument(argument, f"{n_arms} rounds", f"shape {np.shape(given)}", "Pass one per arm.")
    first = np.zeros(n_arms, dtype=np.int32) if arrivals is None else indices("arrivals", arrivals, None, n_arms)
    last = np.full(n_arms, never, dtype=np.int32)
    if departures is not None:
        last = indices("departures", departures, None, n_arms, low=1)
    if first[0] != 0 or (np.diff(first) < 0).any():
        repair = "Number arms in the order of their arrival, with at least one that arrives in round 0."
        raise InvalidArgument("arrivals", "non-decreasing rounds that start with 0", first.tolist(), repair)
    if (last <= first).any():
        bad = int(np.flatnonzero(last <= first)[0])
        raise InvalidArgument(
            f"departures[{bad}]", f"after round {first[bad]}", int(last[bad]), "Remove the arm, or let it depart later."
        )
    for t in np.unique(np.concatenate([first, last[last < n_rounds]])):
        if t < n_rounds and not ((first <= t) & (t < last)).any():
            raise InvalidArgument(f"the number of arms in round {t}", "at least 1", 0, "Let arms overlap.")
    return first, last


def stream(argument: str, value: Any) -> None:
    """Check that a value has the attributes of a Stream."""
    if not all(hasattr(value, name) for name in ("contexts", "items", "reward_table", "n_rounds")):
        raise InvalidArgument(argument, "a Stream", value, "Make one with Stream.from_arrays or alphafair.streams.")


def reward_table(
    argument: str, value: Any, *, low: float = -math.inf, high: float = math.inf, repair: str = ""
) -> NDArray[np.float64]:
    """Check finite rewards in [low, high] by row and arm; contiguous float64 arrays are returned without a copy."""
    table = np.ascontiguousarray(floats(argument, "a table of numbers", value, "Pass one column per arm."))
    if table.ndim != 2:
        raise InvalidArgument(argument, "a table with one column per arm", f"shape {table.shape}", "Make it 2-D.")
    if table.size == 0:
        wanted, here = "a table with at least one row and one arm", f"shape {table.shape}"
        raise InvalidArgument(argument, wanted, here, "Pass at least one row.")
    least, most = table.min(), table.max()
    if not (math.isfinite(least) and math.isfinite(most) and low <= least and most <= high):
        every(argument, table, np.isfinite(table), "a finite number", "Drop such rows, or fill in values.")
        every(argument, table, (low <= table) & (table <= high), f"in [{low:g}, {high:g}]", repair)
    return table


def every(argument: str, array: NDArray[Any], inside: NDArray[np.bool_], allowed: str, repair: str) -> None:
    """Raise for the first entry that is not inside, naming its index."""
    if not inside.all():
        first = tuple(np.argwhere(~inside)[0].tolist())
        raise InvalidArgument(f"{argument}{[*first] if first else ''}", allowed, array[first].item(), repair)


def floats(argument: str, allowed: str, value: Any, repair: str) -> NDArray[np.float64]:
    """Convert to float64, without a copy where possible; refuse strings, complex numbers and masked entries."""
    try:
        array = np.asanyarray(value)
        is_complex, is_masked = array.dtype.kind == "c", np.ma.is_masked(array)
        if array.dtype.kind in "US" or (
            array.dtype.kind == "O" and any(isinstance(each, str | bytes) for each in array.flat)
        ):
            raise TypeError  # NumPy would parse strings
        if not (is_complex or is_masked):
            return np.asarray(array, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InvalidArgument(argument, allowed, value, repair) from None
    got = "complex numbers" if is_complex else "masked entries"
    raise InvalidArgument(argument, allowed, got, "Pass real numbers without a mask.")


def labels(argument: str, value: Iterable[object], least: int) -> tuple[str, ...]:
    """Check at least `least` different names."""
    allowed = f"at least {least} different names" if least > 1 else "different names"
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise InvalidArgument(argument, allowed, value, "Pass a list of them.")
    names = tuple(str(name) for name in value)
    if len(names) < least or len(set(names)) != len(names):
        if not names:
            allowed = "at least one name"
        raise InvalidArgument(argument, allowed, names, "Remove duplicates, or add names.")
    return names


def random_generator(argument: str, value: Any) -> np.random.Generator:
    """Return a generator for a seed: an integer, or None for a random one."""
    if value is not None:
        value = integer(argument, value, low=0)
    return np.random.default_rng(value)


def uniform(rng: Any) -> float:
    """Draw one number from the generator of the caller."""
    repair = "Pass numpy.random.default_rng(seed), for example."
    if not callable(getattr(rng, "random", None)):
        raise InvalidArgument("rng", "an object with a method random()", rng, repair)
    drawn = rng.random()
    try:
        real = float(drawn)
    except (TypeError, ValueError):
        real = math.nan
    if not 0.0 <= real < 1.0:
        raise InvalidArgument("rng.random()", "a number in [0, 1)", drawn, repair)
    return real


def context_weight(value: Any) -> float:
    """Check the part that contexts have in an objective of both sides."""
    return _part("context_weight", value, "Pass 0 to be fair to arms alone.")


def context_share(value: Any) -> float:
    """Check the share of its best that every context is promised."""
    return _part("context_share", value, "Pass alpha=0 to serve every context its best.")


def _part(argument: str, value: Any, repair: str) -> float:
    try:
        return number(argument, value, low=0.0, high=1.0, high_open=True)
    except InvalidArgument:
        raise InvalidArgument(argument, "a number in [0, 1)", value, repair) from None


def context_weights(value: ArrayLike, n_contexts: int, idle: NDArray[np.bool_] | None = None) -> NDArray[np.float64]:
    """Check the weights of contexts: positive, of any sum that a float can hold; contexts that are idle may have 0."""
    allowed = f"positive numbers, one per context ({n_contexts})"
    repair = "Leave them out to weigh contexts by their visits."
    found = floats("context_weights", allowed, value, repair)
    if found.shape != (n_contexts,):
        raise InvalidArgument("context_weights", allowed, f"shape {found.shape}", repair)
    with np.errstate(all="ignore"):
        parts = found / found.sum()
    least = 0.0 if idle is None else np.where(idle, -1e-300, 0.0)
    if not (np.isfinite(parts) & (parts > least)).all():
        raise InvalidArgument("context_weights", allowed, value, repair)
    return found
