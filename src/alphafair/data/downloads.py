"""Public data sets on the user's own machine: what there is, where it is kept, and how it gets there.

A download is written to a .part file, continued where it stopped, compared with its checksum, and only
then moved to its place; so a file in its place is whole. Of several processes one downloads at a time into a folder,
and those that wait for the same file find it there. Nothing is downloaded unless `get` is called, by
`streams.movielens_small` where there is no copy of that data set.
"""

import hashlib
import http.client
import os
import re
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import platformdirs

from alphafair import validate

MOVIELENS = "https://files.grouplens.org/datasets/movielens/"
FOLDER_VARIABLE = "ALPHAFAIR_DATA"
_TIMEOUT = 30.0  # seconds without a byte
_CHUNK = 1 << 18


class Dataset(NamedTuple):
    """A data set that can be downloaded; sizes are for people to read."""

    name: str
    url: str
    megabytes: int
    holds: str
    sha256: str

    @property
    def file(self) -> str:
        return self.url.rpartition("/")[2]


DATASETS = {
    dataset.name: dataset
    for dataset in (
        Dataset(
            "25m",
            MOVIELENS + "ml-25m.zip",
            262,
            "25,000,095 ratings, 162,541 users, 62,423 movies, to 2019; the paper's",
            "8b21cfb7eb1706b4ec0aac894368d90acf26ebdfb6aced3ebd4ad5bd1eb9c6aa",
        ),
        Dataset(
            "32m",
            MOVIELENS + "ml-32m.zip",
            239,
            "32,000,204 ratings, 200,948 users, 87,585 movies, to 2023",
            "e4a68655d7386b8f95f2f2424b2ff975dfdd15ffd59e0d864a14dca43e99d6ee",
        ),
        Dataset(
            "latest-small",
            MOVIELENS + "ml-latest-small.zip",
            1,
            "100,836 ratings, 610 users, 9,742 movies, to 2018; streams.movielens_small()",
            "696d65a3dfceac7c45750ad32df2c259311949efec81f0f144fdfb91ebc9e436",
        ),
        Dataset(
            "1m",
            MOVIELENS + "ml-1m.zip",
            6,
            "1,000,209 ratings, 6,040 users, 3,883 movies, to 2003",
            "a6898adb50b9ca05aa231689da44c217cb524e7ebd39d264c56e2832f2c54e20",
        ),
    )
}
LICENCE = (
    "MovieLens data belong to GroupLens, University of Minnesota: for research, not for commercial use without their "
    "permission; the README in the zip has the terms."
)


class DownloadError(OSError):
    """A download that did not come to its end; the message says what to do."""


def folder() -> Path:
    """The folder of downloaded data: the one that ALPHAFAIR_DATA names, or the user's cache."""
    chosen = os.environ.get(FOLDER_VARIABLE)
    if chosen:
        return Path(chosen)
    return platformdirs.user_cache_path("alphafair") / "data"


def path_of(name: str) -> Path:
    """Where a data set is, or would be."""
    return folder() / DATASETS[validate.choice("name", name, DATASETS)].file


def get(name: str, *, progress: bool = False) -> Path:
    """The data set's .zip on this machine, downloaded if it is not there yet.

    >>> from alphafair import data, streams
    >>> stream = streams.movielens(data.get("25m"), rows=5000)  # doctest: +SKIP
    """
    target = path_of(name)
    dataset = DATASETS[name]
    if target.exists():
        _verify(target, dataset.sha256, dataset.url)
        return target
    try:
        return download(dataset.url, target, sha256=dataset.sha256, progress=progress)
    except DownloadError:
        raise
    except OSError as problem:
        repair = f"make room, or name another folder in the variable {FOLDER_VARIABLE}"
        raise DownloadError(f"{target} could not be written ({_reason(problem)}): {repair}.") from problem
    except _Unreachable as problem:
        raise DownloadError(
            f"{dataset.url} could not be reached ({problem}): when there is a network, run `alphafair data get {name}` "
            f"again and it continues; or download that address elsewhere and put the file at {target}; or pass a copy "
            "that you have with --data PATH."
        ) from problem


def download(url: str, target: Path, *, sha256: str, progress: bool = False) -> Path:
    """One file, resumed from `target`.part if there is one, verified, and moved to `target` at the very end."""
    from alphafair.progress import progress_bar

    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(target.name + ".part")
    with progress_bar(disable=not progress) as bar, _alone(target.parent):
        show = partial(bar.update, bar.add_task(f"{target.name}, MB", total=None))
        if target.exists():  # another process was quicker
            return target
        while True:
            before = _size(part)
            try:
                _fetch(url, part, show)
                break
            except _Unreachable:
                if _size(part) <= before:  # as long as something comes, go on
                    raise
        _verify(part, sha256, url)
        os.replace(part, target)
    return target


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Wait until no other process downloads into the folder. The system drops the lock of a process that dies."""
    try:
        import fcntl
    except ImportError:  # Windows has no such lock: there, take care of it yourself
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


class _Unreachable(Exception):
    """No answer, or one that broke off."""


class _Refused(_Unreachable):
    """An answer that is an error."""

    def __init__(self, problem: urllib.error.HTTPError) -> None:
        super().__init__(f"the server answered {problem.code} {problem.reason}")
        self.code = problem.code
        size = re.fullmatch(r"bytes \*/(\d+)", problem.headers.get("Content-Range", ""))
        self.whole_size = int(size.group(1)) if size else None


def _fetch(url: str, part: Path, show: Callable[..., None]) -> None:
    """The rest of the file, from where the .part ends; `show` is told of megabytes."""
    held = _size(part)
    try:
        answer = _answer(url, {"Range": f"bytes={held}-"} if held else {})
    except _Refused as problem:
        if not held or problem.code != http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
            raise
        if problem.whole_size == held:
            return  # all of it is there already
        answer = _answer(url, {})  # what is there is longer than the file itself: start again
    with answer:
        if answer.status != http.client.PARTIAL_CONTENT:
            held = 0  # the server sends the whole file: start again
        length = answer.headers["Content-Length"]
        total = None if length is None else held + int(length)
        with part.open("ab" if held else "wb") as file:
            for chunk in _chunks(answer):
                file.write(chunk)
                held += len(chunk)
                show(completed=held / 1e6, total=None if total is None else total / 1e6)
    if total is not None and held < total:
        raise _Unreachable(f"the connection broke off after {held:,} of {total:,} bytes")


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def _answer(url: str, headers: dict[str, str]) -> http.client.HTTPResponse:
    try:
        request = urllib.request.Request(url, headers=headers)  # noqa: S310 - addresses of this module alone
        answer: http.client.HTTPResponse = urllib.request.urlopen(request, timeout=_TIMEOUT)  # noqa: S310 - the same
    except urllib.error.HTTPError as problem:
        with problem:
            raise _Refused(problem) from None
    except (http.client.HTTPException, OSError) as problem:
        raise _Unreachable(_reason(problem)) from problem
    return answer


def _chunks(answer: http.client.HTTPResponse) -> Iterator[bytes]:
    try:
        while chunk := answer.read(_CHUNK):
            yield chunk
    except (http.client.HTTPException, OSError) as problem:
        raise _Unreachable(_reason(problem)) from problem


def _reason(problem: Exception) -> str:
    cause = getattr(problem, "reason", problem)
    return str(getattr(cause, "strerror", None) or cause or type(problem).__name__)


def _verify(file: Path, sha256: str, url: str) -> None:
    """Refuse, and for a download remove, a file that is not the one that is known."""
    with file.open("rb") as content:
        found = hashlib.file_digest(content, "sha256").hexdigest()
    if found == sha256:
        return
    fault = f"its sha256 is {found}, and should be {sha256}"
    if file.suffix == ".part":
        file.unlink()
        raise DownloadError(f"what came from {url} is damaged or was changed ({fault}); it is removed: try once more.")
    raise DownloadError(f"{file} is not what {url} holds ({fault}): remove it and get it again.")
