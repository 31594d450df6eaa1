"""`python -m alphafair` is `alphafair`."""

from alphafair.cli import app

if __name__ == "__main__":
    app(prog_name="alphafair")
