"""Learning from a log, and from late rewards: compiled loops against the policy's own methods, one call per reward."""

from __future__ import annotations

from collections.abc import Iterator

from alphafair import AlphaFairBandit, run, simulate
from alphafair.values import Decision, Log
from benchmarks.jobs import ALPHA, N_ARMS, N_CONTEXTS, common
from benchmarks.table import Row, duration, faster
from benchmarks.timing import best, seconds

OURS, THEIRS, REPEATS, DELAY = 1_000_000, 50_000, 5, 1000
PER_SECOND = 2e6


def rows() -> Iterator[Row]:
    stream = common(OURS)
    log = simulate(make(), stream, log=True).log
    assert log is not None
    run.over_log(make(), log)  # compiles
    times = best({"ours": lambda: fold(log) / OURS, "theirs": lambda: one_by_one(log) / THEIRS}, REPEATS)
    rate = 1.0 / times["ours"]
    yield Row(
        f"over_log, AlphaFairBandit: {rate / 1e6:.2f} million rewards per second",
        duration(times["ours"]),
        "update, one by one",
        duration(times["theirs"]),
        f"{times['theirs'] / times['ours']:,.3g} x",
        f"at least {PER_SECOND / 1e6:g} million per second",
        rate >= PER_SECOND,
    )
    short = stream.head(THEIRS)
    simulate(make(), short, delay=DELAY)
    times = best(
        {
            "ours": lambda: seconds(lambda: simulate(make(), stream, delay=DELAY)) / OURS,
            "theirs": lambda: seconds(lambda: simulate(make(), short, delay=DELAY, compiled=False)) / THEIRS,
        },
        REPEATS,
    )
    job = f"simulate AlphaFairBandit, rewards {DELAY:,} rounds late"
    yield faster(job, times["ours"], "choose and update, one by one", times["theirs"], 10)


def make() -> AlphaFairBandit:
    return AlphaFairBandit(N_CONTEXTS, N_ARMS, alpha=ALPHA, seed=0)


def fold(log: Log) -> float:
    policy = make()
    return seconds(lambda: run.over_log(policy, log))


def one_by_one(log: Log) -> float:
    policy = make()
    columns = (log.contexts, log.arms, log.propensities, log.rewards)
    entries = list(zip(*(column[:THEIRS].tolist() for column in columns), strict=True))

    def learn() -> None:
        for context, arm, propensity, reward in entries:
            policy.update(Decision(context, arm, propensity, None), reward)  # type: ignore[arg-type]

    return seconds(learn)
