"""All writers of a store: one in a file, one per experiment in a database, found when they are needed."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from alphafair.engine.clock import Clock
from alphafair.engine.decisions import IdGenerator, id_in_several, random_source
from alphafair.engine.memory import unknown_experiment
from alphafair.engine.requests import Activate, Decide, Observe, Request, Reward
from alphafair.engine.state.experiment import CODE, Experiment
from alphafair.engine.store import questions
from alphafair.engine.store.ledger import Store
from alphafair.engine.writer import Answer, ConditionKind, Writer, closed
from alphafair.errors import RequestError, Unavailable
from alphafair_client.answers import Outcome

MAKING: Final = (Decide, Observe)  # requests that name their experiment, and may make a decision with their id


class AllWriters:
    """The writers of a store, which share its clock, random numbers and limits. Many threads may call one object."""

    def __init__(self, store: Store, clock: Clock, seed: int | None, max_contexts: int | None) -> None:
        self.store, self.clock = store, clock
        self.ids = IdGenerator(seed)
        self.is_shared = not store.opened.together  # other processes may write, too, each experiment on its own
        self.missing: str | None = None  # why a database cannot be used
        self._opening = threading.Lock()  # held while the list of writers changes
        self._arguments: dict[str, Any] = {"clock": clock, "max_contexts": max_contexts}
        self._arguments |= {"chance": random_source(seed), "ids": self.ids}
        self._delays: list[float] | None = None
        self._by_name: dict[str, Writer] = {}  # of a database: by the name of its experiment
        self._is_closed = False
        self._only: Writer | None = None  # of a file
        if not self.is_shared:
            self._only = Writer(store, **self._arguments)
            return
        if not store.opened.read_only:
            store.announce(CODE)
            self.probe()  # before anything is written: its clock may differ
        self._find()

    def close(self) -> None:
        """Answer waiting requests, and save snapshots so that opening is quick."""
        with contextlib.ExitStack() as stack:
            stack.callback(setattr, self, "_is_closed", True)
            for each in self.all():
                stack.callback(each.close)

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def check_open(self) -> None:
        if self._is_closed:
            raise closed()

    @property
    def last_commit_seconds(self) -> float:
        """How long the last commit took; of several experiments, the slowest."""
        return max((each.last_commit_seconds for each in self.all()), default=0.0)

    @property
    def delays(self) -> list[float] | None:
        """Set a list to collect the seconds from decisions to rewards in it."""
        return self._delays

    @delays.setter
    def delays(self, delays: list[float] | None) -> None:
        self._delays = delays
        for each in self.all():
            each.delays = delays

    # looking up

    def all(self) -> list[Writer]:
        """Return the writers that are known."""
        return list(self._by_name.values()) if self._only is None else [self._only]

    def found(self) -> list[Writer]:
        """Return all writers, also those of experiments that other processes have created."""
        self.check_open()
        if self.is_shared:
            self._find()
        return self.all()

    def names(self) -> list[str]:
        """Return the names of all experiments, in the order of their creation."""
        self.found()
        if self._only is None:
            return sorted(self._by_name, key=lambda name: self._by_name[name].memory.key or 0)
        with self._only.reading() as memory:
            return list(memory.experiments)

    def known(self, name: Any) -> Writer | None:
        """Return the writer of an experiment, as far as is known without asking a database."""
        return self._by_name.get(name) if self._only is None else self._only

    def search(self, name: Any) -> Writer | None:
        """The same, after a look into the database if it is not known."""
        self.check_open()
        if self.known(name) is None:
            self._find()
        return self.known(name)

    def of(self, name: Any) -> Writer:
        """Return the writer of an experiment; refused if there is none."""
        self.check_open()
        found = self.search(name) if self._only is not None or isinstance(name, str) else None
        if found is None:
            raise unknown_experiment(name, self._by_name)
        return found

    @contextlib.contextmanager
    def reading(self, name: str) -> Iterator[tuple[Writer, Experiment]]:
        """Find an experiment, and keep writers out."""
        writer = self.of(name)
        with writer.reading() as memory:
            yield writer, memory.find(name)

    def _find(self) -> None:
        """Open the writers of experiments that other processes have created."""
        with self._opening:
            for head in self.store.heads():
                if head.name not in self._by_name:
                    self._by_name[head.name] = self._opened(head.key)

    def _opened(self, key: int) -> Writer:
        opened = Writer(self.store.reader(), **self._arguments, key=key, n_experiments=lambda: len(self._by_name))
        opened.delays = self._delays
        if self.missing is not None:
            opened.block(self.missing)
        return opened

    def create(self, name: str, work: Callable[[Writer], object]) -> None:
        """Let `work` create an experiment with the writer that it will have."""
        self.check_open()
        if self._only is not None:
            work(self._only)
            return
        self._find()
        check_new(name, self._by_name)
        writer = self._opened(self.store.numbers().new_key())
        work(writer)
        with self._opening:
            self._by_name.setdefault(name, writer)

    def look(self) -> None:
        """Tell other processes of a database that this one writes, and open the writers of their experiments."""
        self.store.announce(CODE)
        self._find()

    # requests

    def submit(self, requests: Sequence[Request]) -> list[Answer]:
        """Answer every request by the writer of its experiment."""
        if self._only is not None:
            return self._only.submit(requests)
        self.check_open()
        answers: list[Any] = [None] * len(requests)
        parts: dict[Writer, list[int]] = {}
        nameless = [r.id for r in requests if isinstance(r, Reward | Activate) and r.experiment is None]
        owners = self._owners(nameless) if nameless else {}
        for k, request in enumerate(requests):
            if nameless and isinstance(request, MAKING) and isinstance(request.id, str):  # for those after it
                found = owners.setdefault(request.id, [])
                if isinstance(request.experiment, str) and request.experiment not in found:
                    found.append(request.experiment)
            try:
                if type(request) not in (*MAKING, Reward, Activate):
                    refused = "a Decide, Reward, Activate or Observe"
                    raise RequestError("bad_request", "request", refused, request, "Pass one of those.")
                name: Any = request.experiment
                if name is None and not isinstance(request, MAKING):
                    if not isinstance(request.id, str):
                        raise RequestError("bad_request", "id", "the id of a decision", request.id, "Pass receipt.id.")
                    found = owners.get(request.id, [])
                    if len(found) > 1:
                        raise id_in_several(request.id)
                    if not found:
                        answers[k] = Outcome("unknown")
                        continue
                    (name,) = found
                parts.setdefault(self.of(name), []).append(k)
            except RequestError as refused_request:
                unknown = refused_request.code == "unknown_experiment" and not isinstance(request, MAKING)
                answers[k] = Outcome("unknown") if unknown else refused_request
        for writer, numbers in parts.items():
            for k, answer in zip(numbers, writer.submit([requests[k] for k in numbers]), strict=True):
                answers[k] = answer
        return answers

    def _owners(self, ids: Sequence[Any]) -> dict[str, list[str]]:
        """Return the names of the experiments that have decisions with these ids."""
        found = questions.find(self.store, [id for id in ids if isinstance(id, str)])
        if found:
            self._find()
        names = {each.memory.key: name for name, each in self._by_name.items()}
        owners: dict[str, list[str]] = {}
        for decision in found:
            owners.setdefault(decision.id, []).append(names[decision.experiment])
        return owners

    # whether they can write

    def probe(self) -> None:
        """Find out whether the file is still there, or the database answers; if not, requests are refused."""
        if self._only is not None and self._only.condition.kind in (ConditionKind.BLOCKED, ConditionKind.STALE):
            return  # a probe of its own finds out
        try:
            self.store.probe()
        except Unavailable as problem:
            for each in self.all():
                if each.condition.kind is not ConditionKind.BLOCKED:
                    each.block(str(problem))
            if self.is_shared:  # there may be no experiment yet
                self.missing = str(problem)
        else:
            self.missing = None
            self.clock.confirm()

    def problem(self, *, probe: bool) -> str | None:
        """Return why requests cannot be served, and try what only a write can tell; see `Engine.health`."""
        if self._is_closed:
            return "closed"
        read_only = self.store.opened.read_only
        reason = None
        if not read_only:
            if probe or not self.is_shared:
                self.probe()
            reason = self.missing
            for each in self.all():
                if probe and reason is None and each.condition.must_try:
                    each.try_to_recover()
            reason = reason or self.clock.problem
        for each in self.all():
            if reason is None:
                reason = each.condition.reason
        return reason


def check_new(name: str, known: Any) -> None:
    """Refuse the name of an experiment that there is."""
    if name in known:
        raise RequestError("experiment_exists", "name", "new", name, "Choose another, or use the existing one.")
