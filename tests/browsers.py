"""A headless Chromium for tests of the page: started once, and watched for errors and requests to other hosts.

Without a browser the tests are skipped; where `CI` is set, that is a failure.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
OPTIONS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PATIENCE = 15_000  # milliseconds to wait for an element: this machine may be busy


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser; skips the test, or fails in CI, if there is none."""
    try:
        from playwright.sync_api import expect, sync_playwright
    except ImportError:
        _missing("Playwright is not installed: pip install playwright.")
    if CHROMIUM is None:
        _missing("There is no Chromium on the path: install Debian's package chromium, or Chrome.")
    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=OPTIONS)
        try:
            yield browser
        finally:
            browser.close()


def _missing(sentence: str) -> None:
    if os.environ.get("CI"):
        pytest.fail(sentence)
    pytest.skip(sentence)


class Clock:
    """Nanoseconds since 1970: some time ago at first, moved by hand, and the present time after `catch_up`."""

    def __init__(self, ago: float) -> None:
        self._ago = ago

    def __call__(self) -> int:
        return time.time_ns() - int(1e9 * self._ago)

    def advance(self, seconds: float) -> None:
        self._ago = max(0.0, self._ago - seconds)

    def catch_up(self) -> None:
        self._ago = 0.0


class Watched:
    """A page of a browser, and everything that went wrong on it."""

    def __init__(self, browser: Any, url: str, **options: Any) -> None:
        self.url = url
        self.context = browser.new_context(base_url=url, reduced_motion="reduce", **options)
        self.context.set_default_timeout(PATIENCE)
        self.page = self.context.new_page()
        self.errors: list[str] = []
        self.strangers: list[str] = []  # addresses of other hosts
        self.page.on("console", lambda message: message.type == "error" and self.errors.append(message.text))
        self.page.on("pageerror", lambda problem: self.errors.append(str(problem)))
        self.page.on(
            "request", lambda request: request.url.startswith((url, "data:")) or self.strangers.append(request.url)
        )

    def close(self, expected: str | None = None) -> None:
        """Close the page; fails if there was an error on it that does not match `expected`."""
        self.context.close()
        unexpected = [each for each in self.errors if expected is None or not re.search(expected, each)]
        assert unexpected == []
        assert self.strangers == []


@contextmanager
def watched(browser: Any, url: str, *, expected: str | None = None, **options: Any) -> Iterator[Any]:
    """A page that must not have errors, but those that match `expected`, nor send requests to other hosts."""
    found = Watched(browser, url, **options)
    try:
        yield found.page
    except BaseException:
        print("errors on the page:", found.errors)
        found.context.close()
        raise
    found.close(expected)


def faults(page: Any, rules: list[str] | None = None) -> list[str]:
    """The serious faults that axe finds on a page, by all rules or some: barriers for keyboards and screen readers."""
    from axe_playwright_python.sync_playwright import Axe

    only = {"runOnly": {"type": "rule", "values": rules}} if rules else {}
    found = Axe().run(page, options={"resultTypes": ["violations"], "preload": False, **only}).response["violations"]
    return [
        f"{fault['id']}: {fault['help']}: {[node['html'][:120] for node in fault['nodes'][:3]]}"
        for fault in found
        if fault["impact"] in ("serious", "critical")
    ]
