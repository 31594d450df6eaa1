"""The programs of the pages for Java and Go: while nobody answers, and with a service that loses answers."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import polars as pl
import pytest

from tests import ROOT
from tests.client.calling import free_port
from tests.misbehaving import cutting
from tests.serving import running

pytestmark = pytest.mark.compiled

LANGUAGES = {  # the page, its file, how it is compiled, and the program
    "java": ("Shop.java", ["javac", "-Xlint:all", "-Werror", "Shop.java"], ["java", "-cp", ".", "Shop"]),
    "go": ("shop.go", ["go", "build", "-o", "shop", "shop.go"], ["./shop"]),
}


@pytest.mark.parametrize("language", LANGUAGES)
def test_what_the_program_shows_is_in_the_log_once(language: str, tmp_path: Path) -> None:
    file, compiler, program = LANGUAGES[language]
    if shutil.which(compiler[0]) is None:
        if os.environ.get("CI"):
            pytest.fail(f"{compiler[0]} is missing")
        pytest.skip(f"{compiler[0]} is missing")
    page = (ROOT / "docs" / "howto" / f"call_from_{language}.md").read_text()
    (code,) = re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)
    (tmp_path / file).write_text(code)
    environment = {**os.environ, "GOCACHE": str(tmp_path / "cache"), "HOME": str(tmp_path)}
    done = subprocess.run(compiler, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    port = free_port()
    with cutting(port, 3, cut=1.0, most_bytes=3000) as proxy:
        environment["ALPHAFAIR_URL"] = f"http://127.0.0.1:{proxy.port}"
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with subprocess.Popen(program, cwd=tmp_path, env=environment, **pipes) as shop:  # type: ignore[call-overload]
            assert shop.stdin is not None
            assert shop.stdout is not None

            def shown(contexts: list[str]) -> list[list[str]]:
                shop.stdin.write("".join(f"{each}\n" for each in contexts))
                shop.stdin.flush()
                return [shop.stdout.readline().split() for _ in contexts]

            found = shown(["a", 'the "b"'])
            assert [(arm, who) for _, arm, who in found] == [("ada", "fallback")] * 2
            with running(tmp_path / "shop.db", port=port) as service:
                service.engine.create("home", arms=["ada", "ben"], policy="uniform")
                while len(found) < 32 or (len(found) < 400 and not any(who == "policy" for *_, who in found)):
                    found += shown(
                        [f"\\c{len(found) + k}" for k in range(10)]
                    )  # a busy machine may be too slow for some
                shop.stdin.close()
                assert shop.wait(60) == 0
                service.engine.export("home", tmp_path / "log.csv")
                contexts = service.engine.experiment("home").contexts
    assert proxy.n_cut > 0
    log = pl.read_csv(tmp_path / "log.csv")
    by_id = {row["id"]: row for row in log.rows(named=True)}
    assert len(by_id) == len(log)
    assert [(by_id[id]["arm"], by_id[id]["reward"]) for id, arm, _ in found] == [(arm, 0.5) for _, arm, _ in found]
    assert {who for _, _, who in found} == {"policy", "fallback"}
    assert contexts == len(found)
    assert {*log["context"]} >= {'the "b"', "\\c2"}
