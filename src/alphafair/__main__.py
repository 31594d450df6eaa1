"""The command `alphafair`; `python -m alphafair` is the same."""

import sys

from alphafair.errors import MissingExtra
from alphafair.extras import needed_by


def main() -> None:
    """Run a command, or print which extra installs the command line."""
    try:
        with needed_by("The command line", "lab"):
            import typer  # noqa: F401 - everything below needs it
    except MissingExtra as problem:
        print(f"error: {problem}", file=sys.stderr)
        sys.exit(2)
    from alphafair.cli import app

    app(prog_name="alphafair")


if __name__ == "__main__":
    main()
