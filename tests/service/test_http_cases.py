"""The table of `http_cases`: the service answers every case as RFC 9110 and 9112 have it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests import http_cases
from tests.http_cases import CASES, Case

pytestmark = pytest.mark.compiled


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[http_cases.Sites]:
    with http_cases.sites(tmp_path_factory.mktemp("sites")) as found:
        yield found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(sites: http_cases.Sites, case: Case) -> None:
    http_cases.check(case, sites.exchange(case), nginx=False)
