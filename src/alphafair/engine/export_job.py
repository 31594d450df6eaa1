"""An export as a process of its own: it takes no turn of Python from a service, and writes to its standard output.

`python -m alphafair.engine.export_job JOB`, where JOB has the fields of `ExportJob` as a JSON array.
"""

from __future__ import annotations

import json
import os
import sys
from typing import IO, NamedTuple

from alphafair.engine.events import Change
from alphafair.engine.ledger import Ledger
from alphafair.errors import Unavailable

NICE = 10  # requests go first
CHANGES = "select seq, experiment, kind, body, null, at from change where experiment = ? and seq <= ? order by seq"


class ExportJob(NamedTuple):
    """What to export, and up to which position."""

    path: str
    experiment: int
    full: bool
    until: int
    format: str

    def run(self, target: IO[bytes]) -> None:
        from alphafair.engine import export  # loads polars, which nobody else needs

        with Ledger(self.path, read_only=True) as ledger:
            changes = [Change(*row) for row in ledger.rows(CHANGES, (self.experiment, self.until))]
            experiment = _Experiment(self.experiment, json.loads(changes[0].body)["name"], self.full, changes)
            export.write(ledger, experiment, self.until, target, self.format)


class _Experiment(NamedTuple):
    key: int
    name: str
    full: bool
    changes: list[Change]


def main() -> int:
    os.nice(NICE)
    try:
        ExportJob(*json.loads(sys.argv[1])).run(sys.stdout.buffer)
        sys.stdout.flush()
    except BrokenPipeError:  # nobody wants it any more
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Unavailable as problem:
        print(problem, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
