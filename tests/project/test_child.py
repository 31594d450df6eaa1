"""Processes that do one job: what they write, why they failed, and how they end."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from alphafair import child, jobs
from alphafair.child import Child, ChildFailed

ECHO = "import os, sys; print(sys.argv, flush=True); sys.stdout.write(sys.stdin.read())"


@pytest.fixture
def running(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The code that processes run in place of `alphafair.jobs`."""
    code = [ECHO]
    popen = subprocess.Popen

    def begin(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        assert command[:4] == [sys.executable, "-P", "-m", "alphafair.jobs"]
        return popen([sys.executable, "-c", code[0], *command[4:]], **options)

    monkeypatch.setattr(child.subprocess, "Popen", begin)
    return code


def test_a_job_arrives_whole_and_its_result_comes_back(running: list[str]) -> None:
    job = b"secret" * 100_000  # more than a pipe holds
    found = Child.start("export", job, nice=3)
    head, _, rest = found.result(30.0).partition(b"\n")
    assert head.endswith(b"'export', '3']")
    assert b"secret" not in head
    assert rest == job
    found.close()


def test_chunks_end_with_none(running: list[str]) -> None:
    running[0] = "print('one', flush=True); import sys; print(sys.stdin.read())"
    found = Child.start("export", b"two")
    read = [found.read(2)]
    while read[-1]:
        read.append(found.read(2))
    assert b"".join(read) == b"one\ntwo\n"
    assert max(map(len, read)) == 2
    found.close()


@pytest.mark.parametrize(
    ("code", "message", "killed"),
    [
        ("import sys; print('first', file=sys.stderr); sys.exit('the disk is gone')", "the disk is gone", False),
        ("raise SystemExit(3)", "its process ended with code 3", False),
        ("1 / 0", "ZeroDivisionError: division by zero", False),
        ("import os; os.kill(os.getpid(), 9)", "its process was killed by signal 9, perhaps for lack of memory", True),
    ],
)
def test_a_failure_has_the_last_line(running: list[str], code: str, message: str, killed: bool) -> None:
    running[0] = code
    for read in (lambda each: each.result(30.0), lambda each: each.read(1)):
        found = Child.start("export", b"x" * 500_000)  # which nobody reads
        with pytest.raises(ChildFailed) as caught:
            read(found)
        assert (str(caught.value), caught.value.killed) == (message, killed)
        found.close()


def test_what_takes_too_long_is_killed(running: list[str]) -> None:
    running[0] = "import time; time.sleep(600)"
    found = Child.start("what_if", b"")
    with pytest.raises(ChildFailed, match="it took longer than 0 seconds"):
        found.result(0.1)
    assert found.process.poll() == -9
    found.close()


def test_killing_ends_a_reader_in_another_thread(running: list[str]) -> None:
    running[0] = "import time; time.sleep(600)"
    found, problems = Child.start("export", b""), list[ChildFailed]()

    def read() -> None:
        try:
            found.read(1)
        except ChildFailed as problem:
            problems.append(problem)

    reader = threading.Thread(target=read)
    reader.start()
    time.sleep(0.05)
    found.kill()
    reader.join(30.0)
    assert [each.killed for each in problems] == [True]
    found.close()
    found.close()
    with pytest.raises(ChildFailed, match="it was ended"):
        found.read(1)


def test_a_detached_process_has_a_session_of_its_own(running: list[str], tmp_path: Path) -> None:
    path = tmp_path / "session"
    running[0] = f"import os, sys; open({str(path)!r}, 'w').write(f'{{os.getsid(0)}} {{sys.stdin.read()}}')"
    found = Child.start("compile", b"name", detached=True)
    found.process.wait()
    assert path.read_text() == f"{found.process.pid} name"
    assert (found.process.stdout, found.process.stderr) == (None, None)


def test_limits_and_modules_are_passed_on(running: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", ["/one", "", "/two"])
    names = ("PYTHONPATH", "POLARS_MAX_THREADS", "NUMBA_NUM_THREADS")
    running[0] = f"import os; print([os.environ[name] for name in {names}])"
    found = Child.start("plan", b"", threads=2)
    assert found.result(30.0) == f"{['/one:/two', '2', '2']}\n".encode()
    found.close()


# the kinds of work


def test_every_kind_that_is_started_exists() -> None:
    started = {"compile", "plan", "export", "what_if", "probabilities"}
    assert {*jobs.KINDS} == started


def test_a_real_process_has_a_low_priority_and_one_line_for_an_error(tmp_path: Path) -> None:
    with pytest.raises(ChildFailed) as caught:
        Child.start("export", f'["{tmp_path / "none.db"}", "home", 1, false, 1, "csv"]'.encode()).result(60.0)
    assert str(caught.value).startswith("path must be an existing file")
    before = os.nice(0)
    code = "import os; from alphafair import jobs; jobs.KINDS['x'] = lambda job: print(os.nice(0)); jobs.main('x', '7')"
    done = subprocess.run([sys.executable, "-c", code], input="", capture_output=True, text=True, check=True)
    assert done.stdout == f"{before + 7}\n"
