"""Metrics for Prometheus: what the service counts, and the current state of its experiments."""

from __future__ import annotations

import itertools
import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.process_collector import ProcessCollector

from alphafair.engine import Mismatch, Status, Unavailable
from alphafair.service.api.handlers import fairness
from alphafair.service.http.connections import REASONS
from alphafair.service.keys import Caller

if TYPE_CHECKING:
    from alphafair.service.service import Service

REQUEST_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0)
COMMIT_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)
DELAYS = (0.1, 1.0, 10.0, 60.0, 600.0, 3600.0, 6 * 3600.0, 86400.0, 7 * 86400.0)
SMOOTHING = 0.2  # the weight of the last commit
BATCH_SIZES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 5000)


class Measures:
    """Counts and times of one service, and the page of all its metrics."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self.requests: Counter[tuple[str, int]] = Counter()  # by route and status
        self.times: dict[str, list[float]] = {}  # by route: how many in each bucket, and the sum
        self.commit_seconds = 0.0  # how long the disk takes, smoothed
        self.unlogged = 0
        self.kept_for = 1.0  # seconds: the page is computed so often at most, for all who ask
        self.closed = dict.fromkeys(REASONS, 0)  # connections, by reason
        self.registry = CollectorRegistry()
        self._commits = self._histogram("commit_seconds", "Seconds to decide, write and learn.", COMMIT_SECONDS)
        self._batches = self._histogram("group_size", "Commands per commit.", BATCH_SIZES)
        self._counting = threading.Lock()
        self._delays, self._all_delays = np.zeros(len(DELAYS) + 1, dtype=np.int64), 0.0
        ProcessCollector(registry=self.registry)

    def _histogram(self, name: str, help: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(f"alphafair_{name}", help, buckets=buckets, registry=self.registry)

    def answered(self, route: str, status: int, seconds: float) -> None:
        """Count a request and its time."""
        self.requests[route, status] += 1
        times = self.times.get(route)
        if times is None:
            times = self.times[route] = [0.0] * (len(REQUEST_SECONDS) + 2)
        times[bisect_left(REQUEST_SECONDS, seconds)] += 1
        times[-1] += seconds

    def left_out(self) -> None:
        """Count a request that is not logged."""
        self.unlogged += 1

    def connection_closed(self, reason: str) -> None:
        """Count a connection that the service closed or did not accept."""
        self.closed[reason] += 1

    def committed(self, size: int, seconds: float, delays: list[float]) -> None:
        """Count a batch of commands, and the delays of its rewards, which are removed from the list."""
        self._batches.observe(size)
        self._commits.observe(seconds)
        self.commit_seconds += SMOOTHING * (self._service.engine.writers.last_commit_seconds - self.commit_seconds)
        if delays:  # thousands at a time: vectorized
            with self._counting:  # several experiments may be written at a time
                values = np.array(delays)
                del delays[: len(values)]
                self._delays += np.bincount(np.searchsorted(DELAYS, values), minlength=len(self._delays))
                self._all_delays += float(values.sum())

    def page(self, caller: Caller) -> bytes:
        """All metrics in Prometheus' format; of experiments, those that the caller sees."""
        return generate_latest(_Page(self, caller))

    def collect(self, caller: Caller) -> Iterator[Metric]:
        """All metrics, read at this moment."""
        service = self._service
        yield from self.registry.collect()
        requests = CounterMetricFamily("alphafair_requests", "Requests answered.", labels=["route", "status"])
        for (route, status), count in list(self.requests.items()):
            requests.add_metric([route, str(status)], count)
        yield requests
        help = "Seconds from the head of a request to the end of its answer."
        times = HistogramMetricFamily("alphafair_request_seconds", help, labels=["route"])
        for route, (*counts, total) in list(self.times.items()):
            times.add_metric([route], _cumulative(REQUEST_SECONDS, counts), total)
        yield times
        help = "Requests that were not logged because there were too many in a second."
        yield CounterMetricFamily("alphafair_unlogged_requests", help, self.unlogged)
        yield GaugeMetricFamily("alphafair_connections", "Open connections.", len(service.connections.open))
        help = "Connections closed because of a time-out, or because there were too many."
        closed = CounterMetricFamily("alphafair_connections_closed", help, labels=["reason"])
        for reason, count in list(self.closed.items()):
            closed.add_metric([reason], count)
        yield closed
        help = "Seconds from a decision, or its activation, to its reward."
        buckets = _cumulative(DELAYS, self._delays.tolist())
        yield HistogramMetricFamily("alphafair_reward_delay_seconds", help, buckets, self._all_delays)
        waiting = service.commands.places.n_held
        yield GaugeMetricFamily("alphafair_waiting", "Commands that wait for the next commit.", waiting)
        exports = service.exports
        yield GaugeMetricFamily("alphafair_exports", "Exports in progress.", len(exports.running))
        help = "Exports rejected because there were too many."
        yield CounterMetricFamily("alphafair_exports_refused", help, exports.n_refused)
        yield CounterMetricFamily("alphafair_exports_cut", "Exports aborted because they took too long.", exports.n_cut)
        now = service.readiness()
        yield GaugeMetricFamily("alphafair_ready", "1 while decisions are made.", float(now.ready))
        help = "1 while no decisions are made, with the reason."
        not_ready = GaugeMetricFamily("alphafair_not_ready", help, labels=["reason"])
        not_ready.add_metric([now.reason or ""], float(not now.ready))
        yield not_ready
        help = "Seconds by which the clock is behind the last event."
        yield GaugeMetricFamily("alphafair_clock_behind_seconds", help, now.clock_behind_seconds)
        yield CounterMetricFamily("alphafair_position", "Events in the event log.", service.engine.position)
        yield from _of_experiments(service, caller)


class _Page:
    """The metrics for one caller, as `generate_latest` reads them."""

    def __init__(self, measures: Measures, caller: Caller) -> None:
        self._measures, self._caller = measures, caller

    def collect(self) -> Iterator[Metric]:
        return self._measures.collect(self._caller)


def _cumulative(bounds: Sequence[float], counts: Iterable[float]) -> list[tuple[str, float]]:
    """Buckets as Prometheus expects them: the count up to each bound."""
    return list(zip([*map(str, bounds), "+Inf"], itertools.accumulate(counts), strict=True))


def _of_experiments(service: Service, caller: Caller) -> Iterator[Metric]:
    """Metrics of experiments; none while the file cannot be read, which other metrics show.

    Of an experiment that cannot be described only that it is unhealthy.
    """
    engine = service.engine

    def measured(name: str) -> tuple[Status, dict[str, float | None]]:
        status = engine.experiment(name)
        return status, fairness(status)

    try:
        n_erasures = engine.erasures_pending
        names = [name for name in engine.experiments() if caller.sees(name)]
        by_name = service.descriptions.of_all(names, "metrics", measured)
    except (Mismatch, Unavailable):
        return
    measures = [each for each in by_name.values() if each is not None]
    found = [status for status, _ in measures]
    help = "Erasures whose bytes may still be in unused parts of the file."
    yield GaugeMetricFamily("alphafair_erasures_pending", help, n_erasures)
    for kind, field, help in (
        (CounterMetricFamily, "decisions", "Decisions made."),
        (CounterMetricFamily, "rewards", "Rewards received, without default rewards."),
        (CounterMetricFamily, "defaulted", "Decisions that got the default reward when their waiting time ended."),
        (CounterMetricFamily, "expired", "Decisions closed without a reward when their waiting time ended."),
        (CounterMetricFamily, "lapsed", "Deferred decisions not activated before their waiting time ended."),
        (CounterMetricFamily, "rolled_back", "Decisions closed by a rollback."),
        (GaugeMetricFamily, "pending", "Decisions that wait for a reward or an activation."),
        (GaugeMetricFamily, "contexts", "Contexts seen, including erased ones."),
        (GaugeMetricFamily, "max_contexts", "The most contexts that an experiment accepts."),
    ):
        family = kind(f"alphafair_{field}", help, labels=["experiment"])
        for experiment in found:
            family.add_metric([experiment.name], getattr(experiment, field))
        yield family
    periods = GaugeMetricFamily("alphafair_period", "The number of the current period.", labels=["experiment"])
    for experiment in found:
        if experiment.periods:
            periods.add_metric([experiment.name], experiment.periods[-1].number)
    yield periods
    yield from _of_sides(found)
    help = "1 while the policy fails, or the experiment cannot be described and has no other metrics."
    unhealthy = GaugeMetricFamily("alphafair_unhealthy", help, labels=["experiment"])
    problems = service.descriptions.problems
    for name, each in by_name.items():
        fails = each is None or each[0].unhealthy is not None or name in problems
        unhealthy.add_metric([name], float(fails))
    yield unhealthy
    for field, help in (
        ("jain_index", "Jain's index of the accounts, divided by entitlements."),
        ("alpha_performance", "Alpha-performance of the accounts."),
        ("welfare", "Welfare of the accounts: their power mean, which alpha maximizes."),
    ):
        gauge = GaugeMetricFamily(f"alphafair_{field}", help, labels=["experiment"])
        for experiment, values in measures:
            if (value := values[field]) is not None:
                gauge.add_metric([experiment.name], value)
        yield gauge


def _of_sides(found: Iterable[Status]) -> Iterator[Metric]:
    """Metrics of the sides of experiments, where there are any, since the last change of mode, share or salt."""
    help = "Decisions of a side since the last change of mode, share or salt."
    decisions = GaugeMetricFamily("alphafair_side_decisions", help, labels=["experiment", "source"])
    help = "What the incumbent's side has more than the policy's, with the bounds of its interval; welfare is a ratio."
    labels = ["experiment", "source", "measure", "bound"]
    differences = GaugeMetricFamily("alphafair_side_difference", help, labels=labels)
    for status in found:
        for side in status.sides or ():
            decisions.add_metric([status.name, side.source], side.decisions)
            for measure, interval in vars(side.against_policy).items() if side.against_policy else ():
                for bound, value in vars(interval).items() if interval else ():
                    if value is not None:
                        differences.add_metric([status.name, side.source, measure, bound], value)
    yield decisions
    yield differences
