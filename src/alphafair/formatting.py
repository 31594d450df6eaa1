"""Numbers and lists as text, for terminals, figures and pages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from alphafair.values import Interval

ALPHA = "\N{GREEK SMALL LETTER ALPHA}"
MINUS = "\N{MINUS SIGN}"
PLUS_MINUS = "\N{PLUS-MINUS SIGN}"
DASH = "\N{EN DASH}"
HUGE = 1e15  # larger numbers have no digits behind the point


def number(value: float, digits: int = 4) -> str:
    """A number with so many significant digits, a minus sign and thousands separators; exponents only if needed.

    >>> number(302.1153), number(294.963), number(0.12346), number(40533.2), number(0.0)
    ('302.1', '295.0', '0.1235', '40,533', '0')
    >>> number(40533.27, 7)
    '40,533.27'
    >>> number(-0.5, 1) == MINUS + "0.5"
    True
    >>> number(1.25e97, 2)
    '1.2e+97'
    """
    size = abs(value)
    if size >= HUGE:
        text = f"{value:.{digits}g}"
    elif size >= 10.0 ** (digits - 1):
        text = f"{value:,.0f}" if size >= 1000.0 else f"{value:.{max(0, digits - 3)}f}"
    else:
        is_whole = size == size and value == int(value)
        text = (f"{value:g}" if is_whole else f"{value:#,.{digits}g}").replace(".e", "e").removesuffix(".")
    return text.replace("-", MINUS)


def json_alpha(alpha: float) -> float | str:
    """The fairness exponent as JSON can hold it: "inf" for infinity; `validate.alpha` reads it back.

    >>> json_alpha(0.5), json_alpha(math.inf)
    (0.5, 'inf')
    """
    return "inf" if alpha == math.inf else alpha


def fixed(value: float, decimals: int) -> str:
    """A number with so many decimals; a number that rounds to zero has no sign.

    >>> fixed(1234.567, 1), fixed(-0.5, 2) == MINUS + "0.50", fixed(-0.04, 1)
    ('1,234.6', True, '0.0')
    """
    return f"{round(value, decimals) + 0.0:,.{decimals}f}".replace("-", MINUS)


def exact(value: float) -> str:
    """The shortest decimal that reads back as the same number.

    >>> exact(5.0), exact(0.1), exact(-2.5)
    ('5', '0.1', '-2.5')
    """
    return repr(value).removesuffix(".0")


def fitting(value: float, decimals: int) -> str:
    """A number in at most twelve characters, for a narrow column.

    >>> fitting(1234.5678, 2), fitting(123456789.0, 2)
    ('1,234.57', '1.23457e+08')
    """
    return f"{value:,.{decimals}f}" if value < 1e6 else f"{value:.6g}"


def amount(value: float) -> str:
    """A sum of rewards, with one decimal below a thousand.

    >>> amount(84.65), amount(1231.3)
    ('84.7', '1,231')
    """
    return fixed(value, 0 if value >= 1000.0 else 1)


def tick(value: float, _: object = None) -> str:
    """The label of a tick.

    >>> tick(1200.0), tick(0.25)
    ('1,200', '0.25')
    """
    return f"{value:,.6g}".replace("-", MINUS)


def short(value: float, _: object = None) -> str:
    """The label of a tick, with k and M for thousands and millions.

    >>> short(500.0), short(20_000.0), short(3_000_000.0)
    ('500', '20k', '3M')
    """
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def percent(share: float, digits: int = 3) -> str:
    """A share as a percentage.

    >>> percent(0.91234), percent(8.0012), percent(0.00012)
    ('91.2%', '800%', '0.0120%')
    """
    return f"{number(100.0 * share, digits)}%"


def percentage(value: float, _: object = None) -> str:
    """The label of a tick or a point, from a percentage.

    >>> percentage(99.68), percentage(5.263), percentage(0.0123)
    ('99.7%', '5.3%', '0.012%')
    """
    return f"{value:.3g}%" if value >= 10.0 else f"{value:.2g}%"


def rounded(found: Interval, digits: int, unit: str = "") -> tuple[str, str]:
    """An estimate and its spread, rounded to two digits of the spread; without a spread if nothing is random.

    >>> from alphafair.values import Interval
    >>> rounded(Interval(294.2931, 294.11, 294.47), 4)[0], rounded(Interval(0.113, 0.0984, 0.129), 3, unit="%")[0]
    ('294.29', '11.3%')
    >>> rounded(Interval.exact(302.1153), 4)
    ('302.1', '')
    """
    size = 100.0 if unit == "%" else 1.0
    scaled = type(found)(*(size * side for side in found))
    half = (scaled.high - scaled.low) / 2.0
    if half <= 0.0:
        return number(scaled.value, digits) + unit, ""
    decimals = max(0, 1 - math.floor(math.log10(half)))
    return fixed(scaled.value, decimals) + unit, spread(scaled, decimals)


def spread(found: Interval, decimals: int) -> str:
    """Half of an interval after a plus-minus sign, or both ends of one that is not symmetric; empty without width.

    >>> from alphafair.values import Interval
    >>> spread(Interval(0.5, 0.4, 0.6), 2) == PLUS_MINUS + " 0.10", spread(Interval(0.26, 0.25, 0.4), 2)
    (True, '(0.25 to 0.40)')
    """
    value, low, high = found
    if high <= low:
        return ""
    if abs(low + high - 2.0 * value) > 0.01 * (high - low):  # beyond rounding
        return f"({fixed(low, decimals)} to {fixed(high, decimals)})"
    return f"{PLUS_MINUS} {fixed((high - low) / 2.0, decimals)}"


def distinguished(one: float, other: float) -> tuple[str, str]:
    """Two numbers with four significant digits, or with as many as show which is larger.

    >>> distinguished(293.81, 293.84), distinguished(293.8, 302.1), distinguished(1.0, 1.0)
    (('293.81', '293.84'), ('293.8', '302.1'), ('1', '1'))
    """
    pairs = [(number(one, digits), number(other, digits)) for digits in range(4, 13)]
    return next((pair for pair in pairs if pair[0] != pair[1]), pairs[0])


def counted(count: int, noun: str) -> str:
    """A count with its noun in the singular or plural.

    >>> counted(1, "arm"), counted(2000, "arm")
    ('1 arm', '2,000 arms')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def listed(words: Sequence[str]) -> str:
    """Words with commas and a final "and".

    >>> listed(["one"]), listed(["one", "two", "three"])
    ('one', 'one, two and three')
    """
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def visible(text: str) -> str:
    """Text for a terminal or a page, with escapes for characters that cannot be printed or change the direction.

    Labels and names come from anybody: ESC could clear a screen, and a line feed or U+202E hide a warning.

    >>> visible("a\\x1b[2J"), visible("a\\u202eb"), visible("caf\u00e9")
    ('a\\\\x1b[2J', 'a\\\\u202eb', 'caf\u00e9')
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def clipped(name: str, most: int = 14) -> str:
    """A name as text: visible, and shortened if it is long.

    >>> clipped("Documentary films"), clipped("War")
    ('Documentary f\u2026', 'War')
    """
    name = visible(name)
    return name if len(name) <= most else name[: most - 1] + "\N{HORIZONTAL ELLIPSIS}"


def capital(text: str) -> str:
    """A capital first letter; a Greek one is kept.

    >>> capital("hedge"), capital("\N{GREEK SMALL LETTER ALPHA}-FairCB")
    ('Hedge', '\u03b1-FairCB')
    """
    return text[:1].upper() + text[1:] if text[:1].isascii() else text
