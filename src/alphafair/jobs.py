"""What processes of `alphafair.child` do: `python -P -m alphafair.jobs KIND NICE`, with the job on standard input.

Every kind imports what it needs: an export loads neither policies nor kernels.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
import threading
from collections.abc import Callable
from typing import Any, Final


def compile_kernels(job: bytes) -> None:
    """Compile the kernels that the job names into the disk cache, for the process that still runs interpreted."""
    os.environ["ALPHAFAIR_JIT"] = "now"
    from alphafair.jit import HELPER_LIMIT
    from alphafair.precompile import compile_all, parse

    limit = threading.Timer(HELPER_LIMIT, os._exit, (1,))  # a thread cannot end the process otherwise
    limit.daemon = True  # cache files are written atomically
    limit.start()
    compile_all([kernels for name in job.decode().split() for kernels in parse(name)])


def compile_tasks(job: bytes) -> None:
    """Run tiny tasks of a plan, so that their kernels are in the disk cache."""
    from alphafair.lab.runner import compile_here

    compile_here(pickle.loads(job))  # noqa: S301 - written by the process that started this one


def export(job: bytes) -> None:
    """Write the log of an experiment to standard output, page by page."""
    from alphafair.engine.export import ExportJob

    ExportJob(*json.loads(job)).run(sys.stdout.buffer)


def what_if(job: bytes) -> None:
    """Compute the price of fairness."""
    from alphafair.engine.jobs import WhatIfJob
    from alphafair.service.page.calculate import what_if

    _answer(what_if(WhatIfJob(**json.loads(job))))


def probabilities(job: bytes) -> None:
    """Recompute the distribution that a decision was drawn from."""
    from alphafair.engine.jobs import ProbabilitiesJob
    from alphafair.service.page.calculate import probabilities

    _answer(probabilities(ProbabilitiesJob(**json.loads(job))))


def _answer(result: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(result))


KINDS: Final[dict[str, Callable[[bytes], None]]] = {
    "compile": compile_kernels,
    "plan": compile_tasks,
    "export": export,
    "what_if": what_if,
    "probabilities": probabilities,
}


def main(kind: str, nice: str) -> int:
    """Do the job on standard input; an error that the caller can repair is one line, without a traceback."""
    os.nice(int(nice))
    try:
        KINDS[kind](sys.stdin.buffer.read())
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (OSError, ValueError) as problem:
        print(problem, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
