"""Install what is published into bare environments, on every Python, and try it. `make pythons` runs this.

    python -m tests.wheels                                   every Python found, every installation, the quick part
    python -m tests.wheels --python 3.13 --only lab dask     one Python, two installations
    python -m tests.wheels --python 3.12 --only suite        the quick part of the suite alone

An installation is a new virtual environment with one wheel, one extra and what they require, nothing else: there a
script decides, and uses what the extra is for. The quick part of the suite is the fast tests (tests/quick.py) of
QUICK; it runs in the unpacked source distribution, against the installed wheel. A Python that is named must be
there; one that is only supported may be missing, which is said.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

from tools.build_release import build

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PYTHONS = re.findall(r"Programming Language :: Python :: (3\.\d+)\b", "\n".join(PROJECT["classifiers"]))
QUICK = (  # folders and files of tests: values, mathematics, every policy, an engine, the service, a client, commands
    "values",
    "math",
    "metrics",
    "policy",
    "algorithms/test_events.py",
    "engine/test_dates.py",
    "engine/test_engine.py",
    "service/test_routes.py",
    "client/test_clients.py",
    "cli/test_commands.py",
    "project/test_child.py",
    "project/test_extras.py",
)


DECIDE = """
import json, sys
from importlib.metadata import version
import alphafair

assert version("alphafair") == version("alphafair-client") == alphafair.__version__
assert "site-packages" in alphafair.__file__, alphafair.__file__
policy = alphafair.AlphaFairAdaptive(2, 3, alpha=0.9, seed=0)
decision = policy.choose(0)
policy.update(decision, 1.0)
assert abs(decision.probabilities.sum() - 1.0) < 1e-12
with alphafair.Engine.open("shop.db") as engine:
    engine.create("home", arms=["ada", "ben"], alpha=0.9)
    receipt = engine.decide("home", "visitor-7")
    assert engine.reward(receipt.id, 0.8).outcome == "applied"
    engine.verify()
"""

CLIENT = """
import importlib.util
from alphafair_client import AsyncClient, Client, InvalidArgument, __version__

for missing in ("alphafair", "numpy", "numba"):
    assert importlib.util.find_spec(missing) is None, missing
with Client("http://127.0.0.1:1", timeout=0.2) as client:
    try:
        client.decide("home", "visitor-7")
    except ConnectionError:
        pass
    else:
        raise AssertionError("nobody listens there")
"""

LAB = """
import subprocess, sys
from pathlib import Path

alphafair_command = str(Path(sys.executable).with_name("alphafair"))
text = subprocess.run([alphafair_command, "--help"], check=True, capture_output=True, text=True).stdout
assert "simulate" in text and "serve" in text, text
words = ["simulate", "--rounds", "200", "--contexts", "2", "--arms", "3", "--policy", "alpha-fair-adaptive"]
subprocess.run([alphafair_command, *words, "--output", "figures"], check=True, capture_output=True)
assert Path("figures", "overview.png").read_bytes().startswith(b"\\x89PNG")
subprocess.run([alphafair_command, "export", "shop.db", "-e", "home", "-o", "log.parquet"], check=True)
log = alphafair.Log.from_table("log.parquet", context="context", arm="arm", reward="reward", propensity="propensity")
assert len(log.rewards) == 1
"""

SERVICE = """
import re, subprocess, sys
from pathlib import Path

command = [str(Path(sys.executable).with_name("alphafair")), "serve", "--db", "service.db", "--port", "0"]
with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
    try:
        lines = []
        for line in server.stdout:
            lines.append(line)
            if found := re.search(r"http://127\\.0\\.0\\.1:\\d+", line):
                break
        else:
            raise AssertionError("".join(lines))
        with alphafair.Client(found[0], timeout=60) as client:
            client.create("home", arms=["ada", "ben"])
            receipt = client.decide("home", "visitor-7")
            assert client.reward(receipt.id, 0.8, experiment="home").outcome == "applied"
    finally:
        server.terminate()
        server.communicate(timeout=60)
"""

FEATURES = """
import numpy as np
rows = np.random.default_rng(0).normal(size=(60, 3))
clusters = alphafair.preprocessing.cluster(rows, 3)
assert clusters is not None
"""

POSTGRES = """
import psycopg
try:
    alphafair.Engine.open("postgresql://nobody@127.0.0.1:1/none")
except alphafair.errors.Unavailable as problem:
    assert "127.0.0.1" in str(problem), problem
else:
    raise AssertionError("no server listens there")
"""

DASK = """
import dask
from distributed import LocalCluster
from alphafair import executors

stream = alphafair.streams.ratings(200, 2, 3, seed=0)
policies = [alphafair.AlphaFairAdaptive(2, 3, alpha=0.9)]
no_pages = {"distributed.scheduler.http.routes": [], "distributed.worker.http.routes": []}
places = {"host": "127.0.0.1", "protocol": "tcp://", "dashboard_address": "127.0.0.1:0", "processes": False}
with dask.config.set(no_pages), LocalCluster(n_workers=1, threads_per_worker=1, **places) as cluster:
    with executors.connect(cluster.scheduler_address) as executor:
        (trace,) = alphafair.simulate_all(policies, stream, executor=executor)
assert trace.final.shape == (3,)
"""

NO_COMMAND = """
import subprocess
from pathlib import Path

done = subprocess.run([str(Path(sys.executable).with_name("alphafair")), "--help"], capture_output=True, text=True)
assert done.returncode == 2 and "pip install 'alphafair[lab]'" in done.stderr, done
"""

INSTALLATIONS = {  # what is installed, and the script that tries it
    "client": ("alphafair-client", CLIENT),
    "base": ("alphafair", DECIDE + NO_COMMAND),
    "source": ("alphafair", DECIDE + NO_COMMAND),  # both from their source distributions
    "lab": ("alphafair[lab]", DECIDE + LAB),
    "service": ("alphafair[service]", DECIDE + SERVICE),
    "features": ("alphafair[features]", DECIDE + FEATURES),
    "postgres": ("alphafair[postgres]", DECIDE + POSTGRES),
    "dask": ("alphafair[dask]", DECIDE + DASK),
}
SUITE = "suite"


def pythons() -> dict[str, str]:
    """The interpreters of this machine, by their version: on the path, and those of pyenv."""
    found: dict[str, str] = {}
    for version in PYTHONS:
        kept = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser().glob(f"versions/{version}.*/bin/python")
        for candidate in (sys.executable, shutil.which(f"python{version}"), *map(str, sorted(kept, reverse=True))):
            if candidate and _version_of(candidate) == version:
                found[version] = candidate
                break
    return found


def _version_of(python: str) -> str:
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    return subprocess.run([python, "-c", code], capture_output=True, text=True).stdout.strip()


def run(*words: str | Path, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    return subprocess.run(
        [str(word) for word in words], cwd=cwd, env=kept | environment, capture_output=True, text=True
    )


class Failed(Exception):
    """What a command printed that failed."""


def checked(*words: str | Path, cwd: Path, **environment: str) -> str:
    done = run(*words, cwd=cwd, **environment)
    if done.returncode:
        raise Failed("\n".join((done.stdout + done.stderr).splitlines()[-60:]))
    return done.stdout


def environment_of(python: str, folder: Path, requirement: str, distributions: Path, *, source: bool) -> Path:
    """A new virtual environment with one requirement, whose alphafair is the one that was built."""
    checked(python, "-m", "venv", folder, cwd=distributions)
    inside = folder / "bin" / "python"
    version = next(distributions.glob("alphafair_client-*.whl")).name.split("-")[1]
    kinds = ["--no-binary=alphafair,alphafair-client"] if source else ["--only-binary=alphafair,alphafair-client"]
    words = [*kinds, "--find-links", str(distributions), f"{requirement}=={version}", f"alphafair-client=={version}"]
    checked(inside, "-m", "pip", "install", "--quiet", "--no-compile", *words, cwd=distributions)
    checked(inside, "-m", "pip", "check", cwd=distributions)
    return inside


def try_installation(name: str, python: str, distributions: Path, folder: Path) -> str:
    """Install it and run its script; what is wrong is `Failed`."""
    requirement, script = INSTALLATIONS[name]
    inside = environment_of(python, folder / "env", requirement, distributions, source=name == "source")
    (folder / "try_it.py").write_text(script)
    checked(inside, "-W", "error::DeprecationWarning:alphafair", "try_it.py", cwd=folder, NUMBA_CACHE_DIR=str(folder))
    return "works"


def try_suite(python: str, distributions: Path, folder: Path) -> str:
    """Run the quick part in the unpacked source distribution; the last line of pytest."""
    inside = environment_of(python, folder / "env", "alphafair[test]", distributions, source=False)
    (source,) = distributions.glob("alphafair-[0-9]*.tar.gz")
    shutil.unpack_archive(source, folder, filter="data")
    tree = folder / source.name.removesuffix(".tar.gz")
    tests = [f"tests/{name}" for name in QUICK]
    words = ["-q", "-n", "2", "--dist", "worksteal", "-p", "tests.quick", "--quick", *tests]
    printed = checked(inside, "-m", "pytest", *words, cwd=tree, NUMBA_CACHE_DIR=str(folder / "kernels"))
    return printed.strip().splitlines()[-1]


def results(found: dict[str, str], names: list[str], distributions: Path) -> Iterator[tuple[str, str, str | Failed]]:
    for version, python in found.items():
        for name in names:
            with tempfile.TemporaryDirectory() as folder:
                started = time.monotonic()
                try:
                    if name == SUITE:
                        answer = try_suite(python, distributions, Path(folder))
                    else:
                        answer = try_installation(name, python, distributions, Path(folder))
                    yield version, name, f"{answer} ({time.monotonic() - started:.0f} s)"
                except Failed as problem:
                    yield version, name, problem


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--python", nargs="+", metavar="VERSION", choices=PYTHONS, help=f"of {', '.join(PYTHONS)}")
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=[*INSTALLATIONS, SUITE])
    options = parser.parse_args()
    found = pythons()
    missing = [version for version in options.python or PYTHONS if version not in found]
    if missing:
        print(f"Python {', '.join(missing)}: not on the path and not in pyenv")
    wanted = {version: path for version, path in found.items() if version in (options.python or PYTHONS)}
    n_failed = len(missing) if options.python else 0
    with tempfile.TemporaryDirectory() as folder:
        distributions = Path(folder)
        print("\n".join(path.name for path in build(distributions)))
        for version, name, answer in results(wanted, options.only or [*INSTALLATIONS, SUITE], distributions):
            print(f"Python {version}, {name}: {'FAILED' if isinstance(answer, Failed) else answer}", flush=True)
            if isinstance(answer, Failed):
                print(answer)
                n_failed += 1
    return min(n_failed, 1)


if __name__ == "__main__":
    sys.exit(main())
