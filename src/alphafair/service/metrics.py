"""What Prometheus is told: the experiments as they stand when it asks, and what the service counts meanwhile."""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.process_collector import ProcessCollector

from alphafair.engine import Engine, Mismatch, Unavailable
from alphafair.service.connections import REASONS
from alphafair.service.door import current_caller
from alphafair.service.experiments import fairness
from alphafair.service.exports import Exports
from alphafair.service.messages import Readiness

REQUEST_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0)
COMMIT_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)
DELAYS = (0.1, 1.0, 10.0, 60.0, 600.0, 3600.0, 6 * 3600.0, 86400.0, 7 * 86400.0)
GROUP_SIZES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 5000)


class Measures:
    """Counts and times of one service, and the page that tells them."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()  # by route and status
        self.times: dict[str, list[float]] = {}  # by route: how many between two bounds each, and the sum
        self.unlogged = 0
        self.closed = dict.fromkeys(REASONS, 0)  # connections, by reason
        self.registry = CollectorRegistry()
        self._commits = self._histogram("commit_seconds", "Seconds to decide, write and learn.", COMMIT_SECONDS)
        self._groups = self._histogram("group_size", "Commands per commit.", GROUP_SIZES)
        self._delays, self._all_delays = np.zeros(len(DELAYS) + 1, dtype=np.int64), 0.0
        ProcessCollector(registry=self.registry)

    def _histogram(self, name: str, help: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(f"alphafair_{name}", help, buckets=buckets, registry=self.registry)

    def answered(self, route: str, status: int, seconds: float) -> None:
        """A request has its answer."""
        self.requests[route, status] += 1
        times = self.times.get(route)
        if times is None:
            times = self.times[route] = [0.0] * (len(REQUEST_SECONDS) + 2)
        times[bisect_left(REQUEST_SECONDS, seconds)] += 1
        times[-1] += seconds

    def left_out(self) -> None:
        """A request is not logged."""
        self.unlogged += 1

    def connection_closed(self, reason: str) -> None:
        """The service has closed a connection, or not taken it."""
        self.closed[reason] += 1

    def committed(self, size: int, seconds: float, delays: list[float]) -> None:
        """The engine has answered some commands; with them, how long after their decisions rewards came."""
        self._groups.observe(size)
        self._commits.observe(seconds)
        if delays:  # there can be thousands: all at once
            seconds_late = np.array(delays)
            delays.clear()
            self._delays += np.bincount(np.searchsorted(DELAYS, seconds_late), minlength=len(self._delays))
            self._all_delays += float(seconds_late.sum())

    def delays(self) -> Metric:
        """How long rewards took, as a histogram."""
        help = "Seconds from a decision, or its activation, to the reward that was sent."
        buckets = _cumulative(DELAYS, self._delays.tolist())
        return HistogramMetricFamily("alphafair_reward_delay_seconds", help, buckets, self._all_delays)

    def watch(
        self,
        engine: Engine,
        waiting: Callable[[], int],
        readiness: Callable[[], Readiness],
        connections: Callable[[], int],
        exports: Exports,
    ) -> None:
        """Ask these whenever Prometheus asks."""
        self.registry.register(_Live(self, engine, waiting, readiness, connections, exports))

    def page(self) -> bytes:
        return generate_latest(self.registry)


def _cumulative(bounds: Sequence[float], counts: Iterable[float]) -> list[tuple[str, float]]:
    """How many are under each bound, as Prometheus wants it."""
    return list(zip([*map(str, bounds), "+Inf"], itertools.accumulate(counts), strict=True))


class _Live:
    """Numbers that are kept elsewhere, read when they are wanted."""

    def __init__(
        self,
        measures: Measures,
        engine: Engine,
        waiting: Callable[[], int],
        readiness: Callable[[], Readiness],
        connections: Callable[[], int],
        exports: Exports,
    ) -> None:
        self.measures, self.engine, self.waiting, self.readiness = measures, engine, waiting, readiness
        self.connections, self.exports = connections, exports

    def describe(self) -> list[Metric]:
        return []  # so that registering asks for nothing

    def collect(self) -> Iterator[Metric]:
        requests = CounterMetricFamily("alphafair_requests", "Requests answered.", labels=["route", "status"])
        for (route, status), count in list(self.measures.requests.items()):
            requests.add_metric([route, str(status)], count)
        yield requests
        help = "Seconds from a request, a long body included, to the end of its answer."
        times = HistogramMetricFamily("alphafair_request_seconds", help, labels=["route"])
        for route, (*counts, total) in list(self.measures.times.items()):
            times.add_metric([route], _cumulative(REQUEST_SECONDS, counts), total)
        yield times
        unlogged = "Requests left out of the log, as there were too many in a second."
        yield CounterMetricFamily("alphafair_unlogged_requests", unlogged, self.measures.unlogged)
        yield GaugeMetricFamily("alphafair_connections", "Open connections.", self.connections())
        help = "Connections closed because of a time-out, or because there were too many."
        closed = CounterMetricFamily("alphafair_connections_closed", help, labels=["reason"])
        for reason, count in list(self.measures.closed.items()):
            closed.add_metric([reason], count)
        yield closed
        yield self.measures.delays()
        yield GaugeMetricFamily("alphafair_waiting", "Commands that wait for the next commit.", self.waiting())
        exports = self.exports
        yield GaugeMetricFamily("alphafair_exports", "Exports that are being written.", len(exports.running))
        yield CounterMetricFamily("alphafair_exports_refused", "Exports refused as too many.", exports.n_refused)
        yield CounterMetricFamily("alphafair_exports_cut", "Exports cut off as they took too long.", exports.n_cut)
        now = self.readiness()
        yield GaugeMetricFamily("alphafair_ready", "1 while decisions are made.", float(now.ready))
        help = "1 while no decisions are made, with the reason."
        not_ready = GaugeMetricFamily("alphafair_not_ready", help, labels=["reason"])
        not_ready.add_metric([now.reason or ""], float(not now.ready))
        yield not_ready
        behind = "How far the clock is behind the last event in the log."
        yield GaugeMetricFamily("alphafair_clock_behind_seconds", behind, now.clock_behind_seconds)
        yield CounterMetricFamily("alphafair_position", "Events in the log.", self.engine.position)
        yield from self._contents()

    def _contents(self) -> Iterator[Metric]:
        """What is in the file; nothing while it cannot be loaded, which the numbers above tell."""
        caller = current_caller.get(None)  # who asks for the page; nobody does while it is registered
        try:
            n_erasures = self.engine.erasures_pending
            seen = [name for name in self.engine.experiments() if caller is None or caller.sees(name)]
            found = [self.engine.experiment(name) for name in seen]
        except (Mismatch, Unavailable):
            return
        left = "Erasures of which bytes may be left in unused parts of the file."
        yield GaugeMetricFamily("alphafair_erasures_pending", left, n_erasures)
        for kind, field, help in (
            (CounterMetricFamily, "decisions", "Decisions made."),
            (CounterMetricFamily, "rewards", "Rewards sent and booked; default rewards are not among them."),
            (CounterMetricFamily, "defaulted", "Decisions that got the default reward when their waiting time ended."),
            (CounterMetricFamily, "expired", "Decisions closed without a reward when their waiting time ended."),
            (CounterMetricFamily, "lapsed", "Deferred decisions not activated before their waiting time ended."),
            (CounterMetricFamily, "rolled_back", "Decisions closed by a rollback."),
            (GaugeMetricFamily, "pending", "Decisions that wait for a reward, or to be activated."),
            (GaugeMetricFamily, "contexts", "Contexts seen, erased ones included."),
            (GaugeMetricFamily, "max_contexts", "Contexts that there may be: more are refused."),
        ):
            family = kind(f"alphafair_{field}", help, labels=["experiment"])
            for experiment in found:
                family.add_metric([experiment.name], getattr(experiment, field))
            yield family
        unhealthy = GaugeMetricFamily("alphafair_unhealthy", "1 while the policy fails.", labels=["experiment"])
        for experiment in found:
            unhealthy.add_metric([experiment.name], float(experiment.unhealthy is not None))
        yield unhealthy
        for field, help in (
            ("jain_index", "How equal arms' rewards are, or groups', for what they are entitled to."),
            ("alpha_performance", "Alpha-performance."),
        ):
            gauge = GaugeMetricFamily(f"alphafair_{field}", help, labels=["experiment"])
            for experiment in found:
                value = fairness(experiment)[field]
                if value is not None:
                    gauge.add_metric([experiment.name], value)
            yield gauge
