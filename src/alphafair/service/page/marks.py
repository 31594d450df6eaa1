"""Marks: what needs attention in an experiment, or in the service, as sentences with numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np

from alphafair.engine.state.summary import SECOND
from alphafair.formatting import clipped, counted
from alphafair.service.page.messages import Mark

if TYPE_CHECKING:
    from alphafair.engine.reports import Overview
    from alphafair_client.api import Readiness

SEVERITIES: Final = ("critical", "warning", "info")  # the most severe first
LEAST_SILENCE: Final = 60.0  # seconds without a reward that are not worth a mark
SILENCE_DELAYS: Final = 10  # nor so many times the mean delay of rewards
LEAST_UNREWARDED: Final = 50  # nor so few decisions
DECISIONS_PER_ARM: Final = 50  # an arm is starved if it was not drawn once in so many times the number of arms
LEAST_EXPIRED, EXPIRED_SHARE, EXPIRED_RISE = 20, 0.05, 2.0
EXPIRY_SECONDS, EXPIRY_BUCKETS = 60.0, 8  # the recent past that is compared with what was before
SLOW_COMMIT: Final = 0.25  # seconds
CLOCK_BEHIND: Final = 5.0  # seconds


def duration(seconds: float) -> str:
    """A length of time in its largest unit, such as 5 minutes."""
    for unit, size in (("day", 86_400.0), ("hour", 3600.0), ("minute", 60.0)):
        if seconds >= 2 * size or (seconds >= size and unit == "day"):
            return counted(int(seconds // size), unit)
    return counted(round(seconds), "second")


def by_severity(marks: Iterator[Mark]) -> list[Mark]:
    return sorted(marks, key=lambda mark: SEVERITIES.index(mark.severity))


# experiments


def marks_of(found: Overview) -> list[Mark]:
    """The marks of one experiment, the most severe first."""
    return by_severity(_of_experiment(found))


def _of_experiment(found: Overview) -> Iterator[Mark]:
    status = found.status
    if status.unhealthy is not None:
        yield Mark("unhealthy", f"The policy fails: {status.unhealthy.rstrip('.')}.", "critical")
    if status.paused:
        yield Mark("paused", "Decisions are refused until the experiment is resumed.", "info")
    yield from _no_rewards(found)
    yield from _starved(found)
    yield from _expiries(found)


def _no_rewards(found: Overview) -> Iterator[Mark]:
    summary, n_rewards = found.summary, max(1, int(found.summary.delays.sum()))
    since = summary.last_reward or summary.start
    silence, mean_delay = (found.at - since) / SECOND, summary.delay_sum / SECOND / n_rewards
    decided_lately = summary.last_decision > since
    if (
        decided_lately
        and summary.since_reward >= LEAST_UNREWARDED
        and silence > max(LEAST_SILENCE, SILENCE_DELAYS * mean_delay)
    ):
        ever = f"No reward has arrived for {duration(silence)}" if summary.last_reward else "No reward has ever arrived"
        yield Mark("no_rewards", f"{ever}, while {summary.since_reward:,} decisions were made.", "warning")


def _starved(found: Overview) -> Iterator[Mark]:
    """Arms that were not drawn in a long run of decisions, all of them made while the arms could be drawn."""
    status, summary = found.status, found.summary
    numbers = {arm: number for number, arm in enumerate(status.pulls)}
    playable = [arm for arm in status.arms if arm not in status.masked_arms]
    starved: list[str] = []
    n_least = DECISIONS_PER_ARM * max(1, len(playable))
    totals = summary.arm_decisions[: summary.n_buckets].sum(axis=1)
    n_later = np.cumsum(totals[::-1])[::-1]  # decisions in this bucket and later ones
    enough = np.flatnonzero(n_later >= n_least)
    if not len(enough) or len(playable) < 2:
        return
    first = int(enough[-1])
    for arm in playable:
        since = max(0, found.playable_since[numbers[arm]] - summary.start)
        whole = since == 0 or since // summary.width < first
        if whole and not summary.arm_decisions[first : summary.n_buckets, numbers[arm]].any():
            starved.append(arm)
    if starved:
        shown = ", ".join(clipped(arm, 40) for arm in starved[:3]) + (
            f" and {len(starved) - 3} more" if starved[3:] else ""
        )
        count = "was" if len(starved) == 1 else "were"
        sentence = f"{shown} {count} not drawn once in the last {int(n_later[first]):,} decisions."
        yield Mark("arm_starved", sentence, "warning")


def _expiries(found: Overview) -> Iterator[Mark]:
    summary = found.summary
    n = max(EXPIRY_BUCKETS, int(EXPIRY_SECONDS * SECOND // summary.width))
    first = max(0, (found.at - summary.start) // summary.width - n)
    expired, rewards = summary.expired[: summary.n_buckets], summary.rewards[: summary.n_buckets]
    n_recent = int(expired[first:].sum())
    recent = n_recent / max(1, n_recent + int(rewards[first:].sum()))
    before = int(expired[:first].sum()) / max(1, int(expired[:first].sum() + rewards[:first].sum()))
    if n_recent >= LEAST_EXPIRED and recent > max(EXPIRED_SHARE, EXPIRED_RISE * before):
        span = duration(n * summary.width / SECOND)
        sentence = (
            f"{recent:.0%} of the decisions that were settled in the last {span} expired without a reward, "
            f"{before:.0%} before."
        )
        yield Mark("expiries_rising", sentence, "warning")


# the service


def marks_of_service(readiness: Readiness, commit_seconds: float, *, compiled: bool = True) -> list[Mark]:
    """The marks of the service itself; it is not `compiled` in its first seconds."""
    return by_severity(_of_service(readiness, commit_seconds, compiled))


def _of_service(readiness: Readiness, commit_seconds: float, compiled: bool) -> Iterator[Mark]:
    if not compiled:
        yield Mark("starting", "The service starts: it makes decisions once its policies are compiled.", "info")
    elif not readiness.ready:
        yield Mark("not_ready", f"No decisions are made: {(readiness.reason or 'unknown').rstrip('.')}.", "critical")
    if commit_seconds > SLOW_COMMIT:
        sentence = f"The disk is slow: commits take {commit_seconds:.2g} seconds, and every answer waits for one."
        yield Mark("slow_disk", sentence, "warning")
    if (readiness.clock_behind_seconds or 0.0) > CLOCK_BEHIND:
        behind = duration(readiness.clock_behind_seconds or 0.0)
        sentence = (
            f"The clock of this node is {behind} behind the last event: waiting times stand still until it catches up."
        )
        yield Mark("node_behind", sentence, "warning")
