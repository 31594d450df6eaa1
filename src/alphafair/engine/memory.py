"""What is in memory: experiments, recent decisions and deadlines, as the event log leads to them.

`Batch.apply` moves memory once a commit is on the disk. What others have written, or a commit that seemed to fail, is
folded in. A crash at any line loses nothing that was acknowledged, and repeats nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from alphafair import validate
from alphafair.engine.decisions import DecisionCache
from alphafair.engine.maintenance import Deadlines
from alphafair.engine.state.experiment import LONGEST_REASON, Experiment
from alphafair.engine.state.replay import Replay
from alphafair.engine.store import questions
from alphafair.engine.store.ledger import Change, Head, Store
from alphafair.errors import InvalidArgument, Mismatch, RequestError, Unavailable, encodable
from alphafair.memory_limit import memory_limit

MEMORY_SHARE = 0.5  # of the memory, for the contexts of all experiments
CONTEXT_COPIES: Final = 5  # of a context's state that may exist at once while the state grows, is saved or is loaded
LABEL_BYTES: Final = 1_000  # of a label of 200 characters and its entry in the table of labels


class Tail(NamedTuple):
    """What was written after the last events in memory."""

    replay: Replay
    latest: int


class EngineMemory:
    """The experiments of one writer, whose last event was made at the time `latest`.

    They are all experiments of a file, or the one of a database with a `key`.
    """

    def __init__(
        self, store: Store, max_contexts: int | None, key: int | None, n_experiments: Callable[[], int] | None
    ) -> None:
        self.store, self.key, self._max_contexts = store, key, max_contexts
        self._n_bytes = int(memory_limit() * MEMORY_SHARE)
        self._n_experiments = n_experiments or (lambda: len(self.by_key))
        self.latest = 0
        self._set({})

    @property
    def position(self) -> int:
        """How many events it has taken in."""
        return sum(experiment.position for experiment in self.by_key.values())

    def is_behind(self) -> bool:
        """Whether the log has other events."""
        heads = {head.key: head.position for head in self.store.heads(self.key)}
        return heads != {key: experiment.position for key, experiment in self.by_key.items()}

    # as the log leads to it

    def load(self) -> None:
        """Load everything, starting with the last snapshots. Memory is freed first: two may not fit."""
        self._set({})
        with self.store.at_one_moment():
            self.latest, experiments = replayed(self.store, self.key)
        self._set(experiments)

    def _set(self, experiments: dict[int, Experiment]) -> None:
        self.by_key = experiments
        self.experiments = {experiment.name: experiment for experiment in experiments.values()}
        self.find_periodic()
        self.decisions = DecisionCache(self.store, experiments)
        self.deadlines = Deadlines(self.store, experiments.values())

    def tail(self) -> Tail | None:
        """Read what was written since; None if the log has lost events."""
        heads = {head.key: head for head in self.store.heads(self.key)}
        if any(key not in heads or heads[key].position < each.position for key, each in self.by_key.items()):
            return None
        latest = max((head.at for head in heads.values()), default=0)
        return Tail(Replay.of_tail(self.store, _ends(heads), self.by_key), latest)

    def follow(self, tail: Tail) -> None:
        """Apply what was written since, and nothing else. Where that fails, memory must be loaded."""
        before, known = self.latest, {key: each.n_contexts for key, each in self.by_key.items()}
        positions = {key: experiment.position for key, experiment in self.by_key.items()}
        found = tail.replay.run()
        self.latest = max(tail.latest, before)
        self.decisions.clear()
        for key, experiment in found.items():
            self._take_contexts(experiment, known.get(key, 0), tail.replay.changes[key])
            experiment.unsaved += experiment.position - positions.get(key, 0)
            if key not in known:
                self.add(experiment)
            self.deadlines.add(experiment)
            if experiment.settings.wait is not None:
                self.deadlines.begin(experiment, before)
        self.find_periodic()

    def _take_contexts(self, experiment: Experiment, n_known: int, changes: Sequence[Change]) -> None:
        """Take the labels of new contexts, and drop those that were erased."""
        for _, number, label in questions.contexts(self.store, experiment.key, n_known):
            experiment.n_contexts = max(experiment.n_contexts, number + 1)
            if label is not None:
                experiment.contexts[label] = number
        erased = {json.loads(each.body)["context"] for each in changes if each.kind == "erase"}
        if erased:
            kept = {label: number for label, number in experiment.contexts.items() if number not in erased}
            experiment.contexts = kept

    def add(self, experiment: Experiment) -> None:
        """Add a new experiment, once it is on the disk."""
        self.by_key[experiment.key] = self.experiments[experiment.name] = experiment
        self.deadlines.add(experiment)
        self.find_periodic()

    def follow_terms(self, experiment: Experiment) -> None:
        """Find what depends on the terms of an experiment, after a change of them."""
        self.deadlines.add(experiment)
        self.find_periodic()

    def find_periodic(self) -> None:
        """Find the experiments whose periods end by the calendar."""
        self.periodic = [experiment for experiment in self.by_key.values() if experiment.periods.length is not None]

    # looking up

    def find(self, name: Any) -> Experiment:
        experiment = self.experiments.get(name) if isinstance(name, str) else None
        if experiment is None:
            raise unknown_experiment(name, self.experiments)
        return experiment

    def max_contexts_of(self, experiment: Experiment) -> int:
        """Return how many contexts an experiment may have: as set, or as many as fit into its share of the memory."""
        if self._max_contexts is not None:
            return self._max_contexts
        n_experiments = self._n_experiments() + (experiment.key not in self.by_key)
        return _contexts_in(experiment, self._n_bytes // n_experiments)

    def check_contexts(self, experiment: Experiment, n_contexts: int) -> None:
        """Refuse more contexts than an experiment may have."""
        most = self.max_contexts_of(experiment)
        if n_contexts > most:
            allowed = f"one of at most {most:,} contexts of {experiment.name}"
            repair = "Raise max_contexts, or use fewer labels, for example one per segment."
            raise RequestError("too_many_contexts", "context", allowed, f"number {n_contexts:,}", repair)


def _contexts_in(experiment: Experiment, n_bytes: int) -> int:
    """Return how many contexts fit into so much memory, whatever is done with them; at least 1."""
    if not experiment.has_policy:
        return experiment.n_contexts
    return max(1, n_bytes // (CONTEXT_COPIES * experiment.policy.stepper.bytes_per_context + LABEL_BYTES))


def replayed(store: Store, key: int | None = None) -> tuple[int, dict[int, Experiment]]:
    """Return the time of the last event, and the experiments that the log leads to, or one of them."""
    heads = {head.key: head for head in store.heads(key)}
    experiments = Replay(store, _ends(heads)).from_snapshots().run()
    for experiment in experiments.values():
        for _, number, label in questions.contexts(store, experiment.key):
            experiment.n_contexts = max(experiment.n_contexts, number + 1)
            if label is not None:
                experiment.contexts[label] = number
    return max((head.at for head in heads.values()), default=0), experiments


def _ends(heads: Mapping[int, Head]) -> dict[int, int]:
    return {key: head.position for key, head in heads.items()}


def prove_loading(store: Store) -> None:
    """Load a file that is being migrated, and raise an error where that fails: it is then left as it was."""
    try:
        replayed(store)
    except (Unavailable, Mismatch, InvalidArgument):
        raise
    except Exception as problem:
        reason = f"{reason_of(problem)}. It was not migrated, and is as it was."
        raise Unavailable(f"{store.path} cannot be loaded by this version: {reason}") from problem


def unknown_experiment(name: Any, known: Iterable[str]) -> RequestError:
    """Return the error for a name that no experiment has."""
    names = list(known)
    repair = f"Existing ones: {validate.listed(names)}." if names else "Create it first."
    return RequestError("unknown_experiment", "experiment", "the name of an experiment", name, repair)


def reason_of(problem: BaseException) -> str:
    """Return why something failed, in a line; with the type of an error that is not this package's own."""
    if isinstance(problem, OSError | Mismatch):
        return encodable(str(problem))
    return encodable(f"{type(problem).__name__}: {problem}"[:LONGEST_REASON]).rstrip(": ")
