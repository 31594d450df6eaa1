"""The command `alphafair`; `python -m alphafair` is the same."""

import sys

from alphafair import __version__
from alphafair.errors import MissingExtra
from alphafair.extras import needed_by

SERVICE = ("serve", "keys")  # the commands of an installation that only serves


def main() -> None:
    """Run a command, or print which extra installs the command line."""
    if sys.argv[1:] == ["--version"]:
        print(f"alphafair {__version__}")
        return
    try:
        with needed_by("The command line", "service" if sys.argv[1:2] and sys.argv[1] in SERVICE else "lab"):
            import typer  # noqa: F401 - everything below needs it
    except MissingExtra as problem:
        print(f"error: {problem}", file=sys.stderr)
        sys.exit(2)
    from alphafair.cli import app

    app(prog_name="alphafair")


if __name__ == "__main__":
    main()
