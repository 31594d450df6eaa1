"""Labels in any script: fonts of this machine that have their letters, and names for labels that no font can write."""

from collections.abc import Iterable, Sequence
from functools import cache

from matplotlib.font_manager import FontProperties, findfont, fontManager, get_font

FIRST = "DejaVu Sans"  # Matplotlib's own, always there
BOXES = "Last Resort"  # has every letter, as a box


@cache
def _letters(path: str) -> frozenset[int]:
    return frozenset(get_font(path).get_charmap())


def _lacking(text: Iterable[str], letters: frozenset[int]) -> set[str]:
    return {letter for letter in text if not letter.isspace() and ord(letter) not in letters}


@cache
def families(text: str) -> list[str]:
    """Fonts by name, the usual one first, that together have as many letters of a text as fonts of this machine have.

    >>> families("jazz, rock")
    ['DejaVu Sans']
    """
    found = [FIRST]
    lacking = _lacking(set(text), _letters(findfont(FontProperties(family=[FIRST]))))
    fonts = {(font.name, font.fname) for font in fontManager.ttflist if not font.name.startswith((FIRST, BOXES))}
    for name, path in sorted(fonts) if lacking else ():
        still = _lacking(lacking, _letters(path))
        if len(still) < len(lacking):
            found.append(name)
            lacking = still
    return found


def legible(labels: Sequence[str], noun: str) -> list[str]:
    """The labels, with "arm 3" in the place of one that no font of this machine can write.

    >>> legible(["jazz", chr(0x10FFFD)], "arm")
    ['jazz', 'arm 1']
    """
    known: set[int] = set()
    for name in families("".join(labels)):
        known |= _letters(findfont(FontProperties(family=[name])))
    letters = frozenset(known)
    return [f"{noun} {place}" if _lacking(label, letters) else label for place, label in enumerate(labels)]
