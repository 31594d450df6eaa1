"""schemathesis over the whole OpenAPI description: no 5xx, and no answer that the description does not tell of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from alphafair.service import keys
from tests.serving import ARMS, Running, running
from tests.stores import either_store

pytestmark = [pytest.mark.compiled, either_store]
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
EXAMPLES = {"anybody": 20}  # per operation; what is behind the door is the same for all who come in


def bounded(caller: str) -> settings:
    return settings(
        max_examples=EXAMPLES.get(caller, 4),
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )


Callers = dict[str, tuple[Running, dict[str, str]]]


@pytest.fixture(scope="module")
def callers(tmp_path_factory: pytest.TempPathFactory, _store_of_run: None) -> Iterator[Callers]:
    """One service without keys; one with, for everybody who may come."""
    folder: Path = tmp_path_factory.mktemp("schema")
    tokens = {role: keys.create(folder / "closed.db", role, role) for role in keys.ROLES}
    with running(folder / "open.db") as opened, running(folder / "closed.db") as closed:
        for shop in (opened, closed):
            shop.engine.create("home", arms=ARMS)
            shop.engine.decide("home", "v", id="known")
        headers = {role: {"authorization": f"Bearer {token}"} for role, token in tokens.items()}
        yield {"anybody": (opened, {}), "stranger": (closed, {}), **{role: (closed, headers[role]) for role in headers}}
        for shop in (opened, closed):
            shop.engine.verify()


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize("caller", ["anybody", "stranger", *keys.ROLES])
def test_every_answer_conforms_to_openapi(callers: Callers, caller: str, mode: GenerationMode) -> None:
    shop, headers = callers[caller]
    description = schemathesis.openapi.from_dict(callers["anybody"][0].http.get("/openapi.json").json())
    statuses: Counter[int] = Counter()
    for operation in (found.ok() for found in description.get_all_operations()):
        if caller == "anybody" and operation.path.startswith("/v1/keys"):
            continue  # the first key ends the time without keys

        @bounded(caller)
        @given(case=operation.as_strategy(generation_mode=mode))
        def probe(case: Case) -> None:
            if "name" in case.path_parameters:
                case.path_parameters["name"] = "home"  # else most would be for experiments that are not there
            answer = case.call(base_url=shop.url, headers=headers)
            case.validate_response(answer, checks=CHECKS)
            statuses[answer.status_code] += 1
            if caller == "stranger" and case.path not in ("/health", "/ready", "/session.json", "/session"):
                assert answer.status_code == 401

        try:
            probe()
        except Unsatisfiable:
            assert mode is GenerationMode.NEGATIVE  # there is nothing to get wrong
            assert not operation.body
    if caller == "anybody":
        assert {200, 201, 404, 422} <= set(statuses) if mode is GenerationMode.POSITIVE else {422} <= set(statuses)
