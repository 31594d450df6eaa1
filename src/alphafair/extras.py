"""Optional dependencies: the extra that installs each package, and one sentence where it is missing.

The base installation has NumPy, Numba, platformdirs and the client. Import `polars` from here: it loads when it is
first used.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from alphafair.errors import MissingExtra

PACKAGES = {  # what each extra of pyproject.toml installs, by the name that Python imports
    "lab": ("jinja2", "matplotlib", "polars", "rich", "typer"),
    "service": ("httptools", "msgspec", "polars", "prometheus_client", "rich", "typer", "uvloop"),
    "features": ("sklearn",),
    "postgres": ("psycopg",),
    "dask": ("distributed",),
}


def require(extra: str, user: str) -> None:
    """Raise `MissingExtra` unless all packages of an extra are installed; nothing is imported.

    >>> require("lab", "alphafair simulate")
    """
    for package in PACKAGES[extra]:
        if find_spec(package) is None:
            raise MissingExtra(user, package, extra)


@contextmanager
def needed_by(user: str, extra: str) -> Iterator[None]:
    """Turn a failed import in this block into `MissingExtra`.

    >>> with needed_by("A table", "lab"):
    ...     import polar
    Traceback (most recent call last):
    alphafair.errors.MissingExtra: A table needs polar: pip install 'alphafair[lab]'
    """
    try:
        yield
    except ModuleNotFoundError as problem:
        raise MissingExtra(user, str(problem.name), extra) from None


class _Lazy:
    """A module that is imported when one of its attributes is first used."""

    def __init__(self, module: str, user: str, extra: str) -> None:
        self._module, self._user, self._extra = module, user, extra

    def __getattr__(self, name: str) -> Any:
        with needed_by(self._user, self._extra):
            module = importlib.import_module(self._module)
        return getattr(module, name)


if TYPE_CHECKING:
    import polars as polars
else:
    polars = _Lazy("polars", "Reading or writing a table", "lab")
