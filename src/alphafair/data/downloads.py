"""Download public data sets: which ones there are, where they are stored, and how they are fetched and verified.

A download is written to a .part file, resumed where it stopped, compared with its checksum and then renamed, so a file
under its final name is complete. Only one process at a time downloads into a folder; processes that wait for the same
file use the one that was downloaded. Nothing is downloaded unless `get` is called; `streams.movielens_small` calls it
if there is no copy of that data set.
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
_TIMEOUT = 30.0  # seconds without data
_CHUNK = 1 << 18


class Dataset(NamedTuple):
    """A data set that can be downloaded; the size is only displayed."""

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
            "25,000,095 ratings, 162,541 users, 62,423 movies, to 2019; used in the paper",
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
LICENSE = (
    "MovieLens data belong to GroupLens, University of Minnesota: for research, not for commercial use without their "
    "permission; see the README in the zip for the terms."
)


class DownloadError(OSError):
    """A download that failed; the message says what to do."""


def folder() -> Path:
    """Return the folder of downloaded data: the value of ALPHAFAIR_DATA, or a folder in the user's cache."""
    chosen = os.environ.get(FOLDER_VARIABLE)
    if chosen:
        return Path(chosen)
    return platformdirs.user_cache_path("alphafair") / "data"


def path_of(name: str) -> Path:
    """Return the path of a data set, downloaded or not."""
    return folder() / DATASETS[validate.choice("name", name, DATASETS)].file


def get(name: str, *, progress: bool = False) -> Path:
    """Return the path of the data set's .zip; download it first if it does not exist.

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
        repair = f"free disk space, or set {FOLDER_VARIABLE} to another folder"
        raise DownloadError(f"{target} could not be written ({_reason(problem)}): {repair}.") from problem
    except _Unreachable as problem:
        raise DownloadError(
            f"{dataset.url} could not be downloaded ({problem}). Run `alphafair data get {name}` again, which resumes "
            f"the download; or download the URL on another machine and copy the file to {target}; or pass the "
            "path of a copy."
        ) from problem


def download(url: str, target: Path, *, sha256: str, progress: bool = False) -> Path:
    """Download a file: resume from `target`.part if it exists, verify the checksum, then rename it to `target`."""
    from alphafair.progress import progress_bar

    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(target.name + ".part")
    with progress_bar(disable=not progress) as bar, _alone(target.parent):
        show = partial(bar.update, bar.add_task(f"{target.name}, MB", total=None))
        if target.exists():  # another process downloaded it
            return target
        while True:
            before = _size(part)
            try:
                _fetch(url, part, show)
                break
            except _Unreachable:
                if _size(part) <= before:  # retry as long as there is progress
                    raise
        _verify(part, sha256, url)
        os.replace(part, target)
    return target


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold an exclusive lock on the folder; the system releases the lock of a process that dies."""
    try:
        import fcntl
    except ImportError:  # no locking on Windows
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


class _Unreachable(Exception):
    """No answer, or an incomplete one."""


class _HttpError(_Unreachable):
    """An HTTP error."""

    def __init__(self, problem: urllib.error.HTTPError) -> None:
        super().__init__(f"the server answered {problem.code} {problem.reason}")
        self.code = problem.code
        size = re.fullmatch(r"bytes \*/([0-9]+)", problem.headers.get("Content-Range", ""))
        self.whole_size = int(size.group(1)) if size else None


def _fetch(url: str, part: Path, show: Callable[..., None]) -> None:
    """Download the rest of the file, from the end of the .part file; `show` receives megabytes."""
    held = _size(part)
    try:
        answer = _answer(url, {"Range": f"bytes={held}-"} if held else {})
    except _HttpError as problem:
        if not held or problem.code != http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
            raise
        if problem.whole_size == held:
            return  # the .part file is complete
        answer = _answer(url, {})  # the .part file is too long: start again
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
        raise _Unreachable(f"the connection was closed after {held:,} of {total:,} bytes")


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def _answer(url: str, headers: dict[str, str]) -> http.client.HTTPResponse:
    try:
        request = urllib.request.Request(url, headers=headers)  # noqa: S310 - addresses of this module alone
        answer: http.client.HTTPResponse = urllib.request.urlopen(request, timeout=_TIMEOUT)  # noqa: S310 - the same
    except urllib.error.HTTPError as problem:
        with problem:
            raise _HttpError(problem) from None
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
    """Raise DownloadError if the checksum of a file is wrong; delete it if it is a .part file."""
    with file.open("rb") as content:
        found = hashlib.file_digest(content, "sha256").hexdigest()
    if found == sha256:
        return
    fault = f"its SHA-256 is {found} and should be {sha256}"
    if file.suffix == ".part":
        file.unlink()
        raise DownloadError(f"the file from {url} is damaged or was changed ({fault}) and was deleted. Try again.")
    raise DownloadError(f"{file} differs from {url} ({fault}). Delete it and download it again.")
