"""Downloads, against a server on this machine: whole, resumed, damaged, out of reach."""

from __future__ import annotations

import hashlib
import io
import re
import socket
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from alphafair.cli import app
from alphafair.cli.data import app as data_app
from alphafair.data import downloads


def zipped(text: bytes = b"userId,movieId,rating,timestamp\n") -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        member = zipfile.ZipInfo("ml/ratings.csv")  # of a fixed date: every process of a test run makes the same bytes
        archive.writestr(member, text * 40_000)  # stored: more than one chunk
    return buffer.getvalue()


CONTENT = zipped()
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Server(ThreadingHTTPServer):
    """What GroupLens does, and what can go wrong on the way."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = {"/ml-25m.zip": CONTENT}
        self.breaks: list[int] = []  # the next answers stop after so many bytes
        self.ranges = True
        self.asked: list[tuple[str, str | None]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        wanted = self.headers["Range"]
        self.server.asked.append((self.path, wanted))
        content = self.server.files.get(self.path)
        if content is None:
            self.send_error(404)
            return
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted and self.server.ranges else 0
        if start and start >= len(content):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(content)}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        stop = self.server.breaks.pop(0) if self.server.breaks and self.path.endswith(".zip") else len(content)
        self.wfile.write(content[start : start + stop])

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """The server, known to the library as the home of 25m."""
    with Server() as made:
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        monkeypatch.setenv("no_proxy", "*")
        monkeypatch.setenv(downloads.FOLDER_VARIABLE, str(tmp_path / "cache"))
        monkeypatch.setitem(
            downloads.DATASETS, "25m", downloads.Dataset("25m", made.url + "ml-25m.zip", 1, "ratings", SHA256)
        )
        yield made
        made.shutdown()
        thread.join()


@pytest.fixture
def part(tmp_path: Path) -> Path:
    (tmp_path / "cache").mkdir()
    return tmp_path / "cache" / "ml-25m.zip.part"


def ranges(server: Server) -> list[str | None]:
    return [wanted for path, wanted in server.asked if path.endswith(".zip")]


def test_a_complete_download_is_requested_once(server: Server, tmp_path: Path) -> None:
    path = downloads.get("25m")
    assert path == tmp_path / "cache" / "ml-25m.zip" == downloads.path_of("25m")
    assert path.read_bytes() == CONTENT
    assert downloads.get("25m") == path
    assert server.asked == [("/ml-25m.zip", None)]
    assert [file.name for file in path.parent.iterdir()] == ["ml-25m.zip"], "the .part must be gone"


def test_a_closed_connection_is_resumed(server: Server) -> None:
    server.breaks = [300_000, 500_000]
    assert downloads.get("25m").read_bytes() == CONTENT
    assert ranges(server) == [None, "bytes=300000-", "bytes=800000-"]


def test_simultaneous_downloads_of_one_file_request_it_once(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both at once: the second waits and finds the file, instead of writing into the same .part."""
    both = threading.Barrier(2)
    alone = downloads._alone

    def together(folder: Path) -> Any:
        both.wait(10)
        return alone(folder)

    monkeypatch.setattr(downloads, "_alone", together)
    with ThreadPoolExecutor(2) as pool:
        paths = list(pool.map(downloads.get, ["25m", "25m"]))
    assert paths[0] == paths[1]
    assert paths[0].read_bytes() == CONTENT
    assert ranges(server) == [None]


@pytest.mark.skipif(sys.platform == "win32", reason="no lock there")
def test_the_lock_of_a_killed_process_is_released(server: Server, part: Path) -> None:
    hold = "import sys, time, pathlib; from alphafair.data import downloads\n"
    hold += "with downloads._alone(pathlib.Path(sys.argv[1])): print('held', flush=True); time.sleep(600)"
    with (
        subprocess.Popen([sys.executable, "-c", hold, str(part.parent)], stdout=subprocess.PIPE) as other,
        ThreadPoolExecutor(1) as pool,
    ):
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        part.write_bytes(CONTENT[:1000])  # what it had so far
        waiting = pool.submit(downloads.get, "25m")
        try:
            with pytest.raises(TimeoutError):
                waiting.result(timeout=0.3)
        finally:
            other.kill()
        assert waiting.result(timeout=30).read_bytes() == CONTENT
    assert ranges(server) == ["bytes=1000-"]


def test_a_part_file_of_an_earlier_run_is_resumed(server: Server, part: Path) -> None:
    part.write_bytes(CONTENT[:1000])
    assert downloads.get("25m").read_bytes() == CONTENT
    assert ranges(server) == ["bytes=1000-"]


def test_a_complete_part_file_is_only_verified(server: Server, part: Path) -> None:
    part.write_bytes(CONTENT)
    assert downloads.get("25m").read_bytes() == CONTENT
    assert ranges(server) == [f"bytes={len(CONTENT)}-"]


def test_a_part_file_that_is_too_long_is_replaced(server: Server, part: Path) -> None:
    part.write_bytes(CONTENT + b"more")
    assert downloads.get("25m").read_bytes() == CONTENT
    assert ranges(server) == [f"bytes={len(CONTENT) + 4}-", None]


def test_without_range_requests_the_download_starts_again(server: Server, part: Path) -> None:
    server.ranges = False
    part.write_bytes(b"x" * 1000)
    assert downloads.get("25m").read_bytes() == CONTENT


def test_a_download_without_progress_fails_and_keeps_the_part_file(server: Server, part: Path) -> None:
    server.breaks = [300_000, 0]
    with pytest.raises(downloads.DownloadError) as refusal:
        downloads.get("25m")
    text = str(refusal.value)
    assert f"the connection was closed after 300,000 of {len(CONTENT):,} bytes" in text
    assert "`alphafair data get 25m` again, which resumes the download" in text
    assert part.read_bytes() == CONTENT[:300_000]
    assert not downloads.path_of("25m").exists()


def test_a_download_with_a_wrong_checksum_is_deleted(server: Server, part: Path) -> None:
    part.write_bytes(b"\0" * 1000)
    with pytest.raises(
        downloads.DownloadError, match=rf"damaged or was changed \(its SHA-256 is .* and should be {SHA256}"
    ):
        downloads.get("25m")
    assert list(part.parent.iterdir()) == []
    assert downloads.get("25m").read_bytes() == CONTENT


def test_a_file_copied_by_the_user_is_verified(server: Server, part: Path) -> None:
    by_hand = part.with_suffix("")
    by_hand.write_bytes(CONTENT[:-1])
    with pytest.raises(downloads.DownloadError, match=re.escape(f"{by_hand} differs from {server.url}ml-25m.zip")):
        downloads.get("25m")
    assert by_hand.exists(), "it is the user's"
    by_hand.write_bytes(CONTENT)
    assert downloads.get("25m") == by_hand
    assert server.asked == []


def unused_url() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}/ml-25m.zip"


@pytest.mark.parametrize("sha256", [SHA256, None])
def test_without_a_network_the_error_has_the_repair(
    sha256: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = unused_url()
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setenv(downloads.FOLDER_VARIABLE, str(tmp_path))
    monkeypatch.setitem(downloads.DATASETS, "25m", downloads.Dataset("25m", url, 1, "ratings", sha256))
    answer = CliRunner().invoke(app, ["data", "get", "25m"])
    assert answer.exit_code == 1
    assert answer.stdout == ""
    (line,) = [line for line in answer.stderr.splitlines() if line.startswith("error: ")]
    assert line == (
        f"error: {url} could not be downloaded (Connection refused). Run `alphafair data get 25m` again, which resumes "
        f"the download; or download the URL on another machine and copy the file to {tmp_path / 'ml-25m.zip'}; or pass "
        "the path of a copy."
    )


def test_an_error_of_the_server_is_named(server: Server) -> None:
    server.files.clear()
    with pytest.raises(downloads.DownloadError, match=r"could not be downloaded \(the server answered 404 Not Found"):
        downloads.get("25m")


def test_a_folder_that_cannot_be_written_is_named(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(downloads.FOLDER_VARIABLE, str(tmp_path / "file" / "folder"))
    with pytest.raises(downloads.DownloadError, match=r"folder/ml-25m.zip could not be written .* ALPHAFAIR_DATA"):
        downloads.get("25m")


def test_the_known_data_sets() -> None:
    assert list(downloads.DATASETS) == ["25m", "32m", "latest-small", "1m"]
    for name, dataset in downloads.DATASETS.items():
        assert dataset.url == f"https://files.grouplens.org/datasets/movielens/ml-{name}.zip"
        assert re.fullmatch("[0-9a-f]{64}", dataset.sha256)


def test_the_folder_is_the_users_cache_unless_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(downloads.FOLDER_VARIABLE, raising=False)
    assert "alphafair" in downloads.folder().parts


# alphafair data


def test_get_prints_the_path_alone(server: Server) -> None:
    answer = CliRunner().invoke(app, ["data", "get", "25m"])
    assert answer.exit_code == 0, answer.output
    assert answer.stdout == f"{downloads.path_of('25m')}\n"
    assert "not for commercial use" in answer.stderr


def test_list_and_where_show_what_is_here(server: Server) -> None:
    runner = CliRunner()
    assert re.search(r"^25m +1 MB  -     ratings$", runner.invoke(app, ["data", "list"]).stdout, re.MULTILINE)
    missing = runner.invoke(app, ["data", "where", "25m"])
    assert (missing.exit_code, missing.stdout) == (1, f"{downloads.path_of('25m')}\n")
    assert "alphafair data get 25m" in missing.stderr
    downloads.get("25m")
    assert re.search(r"^25m +1 MB  here  ratings$", runner.invoke(app, ["data", "list"]).stdout, re.MULTILINE)
    assert runner.invoke(app, ["data", "where", "25m"]).exit_code == 0
    assert runner.invoke(app, ["data", "where"]).stdout == f"{downloads.folder()}\n"


def test_an_unknown_name_lists_the_known_ones() -> None:
    for command in ("get", "where"):
        answer = CliRunner().invoke(app, ["data", command, "26m"])
        assert answer.exit_code == 2
        words = "error: NAME must be one of '25m', '32m', 'latest-small', '1m'; got '26m'."
        assert answer.stderr.startswith(words)


def test_help_of_data_is_complete() -> None:
    text = CliRunner().invoke(app, ["data", "--help"]).stdout
    assert "..." not in text[text.index("Commands:") :]
    assert list(typer.main.get_command(data_app).commands) == ["list", "get", "where"]  # type: ignore[attr-defined]
