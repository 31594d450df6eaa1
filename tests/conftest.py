"""Check the regret certificate of every `simulate` of the suite, wherever it is called from.

A test, a conformance check, an experiment, a command or an example in a docstring may call it; arms may be added and
retired. For a policy that has played before, R and the certificate cover everything it has seen and OPT this stream
alone, which can only be smaller. The bound is that of docs/background/theory.md, without the c_alpha n that
`metrics.regret_certificate` adds after the paper. The interpreted run of the suite repeats simulations of the compiled
one to the last bit, so it leaves this check out.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

os.environ.setdefault("ALPHAFAIR_JIT", "now")  # test machine code, unless NUMBA_DISABLE_JIT is set

from alphafair import metrics, offline_optimum, run
from alphafair.groups import Groups
from alphafair.offline import context_reward_totals, present_arms
from alphafair.values import Policy, Stream, Trace
from tests import INTERPRETED, ROOT, postgres
from tests.certificates import check_certificates

SLOW = ROOT / "tests" / "slow.json"  # what takes more than 0.3 s: see tests/durations.py


def totals_by_epoch(stream: Stream, delays: Any) -> np.ndarray:
    """Reward totals by the epoch in which rewards arrive, of arms that were present throughout."""
    if delays is None or not stream.epochs:
        return context_reward_totals(stream)
    starts = np.array([0, *stream.epochs])
    due = np.minimum(np.arange(stream.n_rounds) + delays, stream.n_rounds - 1)
    epochs = np.searchsorted(starts, due, side="right") - 1
    totals = np.zeros((len(starts), stream.n_contexts, stream.n_arms))
    for t, epoch in enumerate(epochs):
        there = stream.present(t) & stream.present(int(starts[epoch]))
        totals[epoch, stream.contexts[t]] += np.where(there, stream.rewards(t), 0.0)
    return totals.reshape(-1, stream.n_arms)


def check_certificate(policy: Policy, stream: Stream, delays: Any, trace: Trace, shown: Any) -> None:
    """Compare the regret of a run with the bound that its policy states; from alpha 1 on, the ratio of welfares."""
    if policy.surrogate_regret_bound is None or trace.periods:  # algorithms/test_alpha.py checks periods one by one
        return
    fair: Any = policy
    n, alpha, accounts = fair.n_arms, fair.alpha, fair.accounts
    groups = policy.groups or Groups().for_arms(n)
    initial = np.ones(groups.n_groups)
    if stream.arrivals is not None:
        first = np.full(groups.n_groups, stream.n_rounds)
        np.minimum.at(first, groups.of_arms, stream.arrivals[:n])
        entered = accounts - (groups.accounts(trace.final[:n]) - 1.0)  # the accounts that new arms started with
        initial = np.where(first > 0, entered, 1.0)
    if delays is not None and delays.ndim == 2:
        delays = np.array([row[: shown[t]].max() for t, row in enumerate(delays)])
    totals, there = totals_by_epoch(stream, delays)[:, :n], present_arms(stream)[:, :n]
    k = np.ones(stream.n_contexts, dtype=int)
    if shown is not None:
        k[stream.contexts] = shown  # with several in one context there would be no bound
    k = np.tile(k, len(totals) // len(k))
    if policy.context_weight > 0.0:  # algorithms/test_two_sides.py checks these
        return
    if alpha >= 1.0:
        terms = {"initial": initial, "present": there, "groups": groups, "k": k}
        check_certificates(totals, accounts, alpha, **terms, policy=policy)
        return
    best = offline_optimum(totals, alpha, initial=initial, present=there, groups=groups, k=k)
    regret = metrics.approximate_regret(best.value + best.gap, accounts, alpha, groups=groups)
    bound = (1.0 - alpha) ** alpha * policy.surrogate_regret_bound
    rounding = 1e-10 * best.value
    assert regret <= bound + rounding, f"{policy.name} breaks its certificate: {regret} > {bound}"


if not INTERPRETED:
    run.after_simulate.append(check_certificate)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[postgres.Server]:
    """One server per worker of the suite; without the package a test that needs it is skipped, and in CI fails."""
    reason = postgres.missing()
    if reason is not None and os.environ.get("CI"):
        pytest.fail(reason)
    if reason is not None:
        pytest.skip(reason)
    with postgres.running() as server:
        yield server


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.definition.get_closest_marker("both_stores"):
        alone = metafunc.definition.get_closest_marker("sqlite_only")
        stores = ["sqlite"] if alone else ["sqlite", "postgres"]
        metafunc.parametrize("_store_of_run", stores, indirect=True, scope="module")


@pytest.fixture(autouse=True, scope="module")
def _store_of_run(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run tests of both stores: see tests/stores.py. A module's own fixtures that open a store ask for this one."""
    if getattr(request, "param", "sqlite") == "sqlite":
        yield
        return
    from tests.stores import on_postgres

    with on_postgres(request.getfixturevalue("postgres_server")):
        yield


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The files that take longest come first, so that all workers end at about the same time (`--dist loadfile`)."""
    slow: dict[str, float] = json.loads(SLOW.read_text())
    costs = Counter[str]()
    for name, seconds in slow.items():
        costs[name.rpartition(" of ")[2].partition("::")[0]] += seconds
    items.sort(key=lambda item: -costs[item.nodeid.partition("::")[0]])  # stable: a file keeps its order


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:
    """Reports travel from the workers as UTF-8, which has no halves of surrogate pairs; output of a test may have."""
    report = yield
    report.sections = [(name, text.encode(errors="backslashreplace").decode()) for name, text in report.sections]
    return report


@pytest.fixture(autouse=True)
def _closed_stores() -> Iterator[None]:
    """Close the databases that a test has left open; those of a module's fixtures were opened before."""
    stores = sys.modules.get("tests.stores")
    with contextlib.nullcontext() if stores is None else stores.closing_stores():
        yield
