"""Descriptions of the endpoints: OpenAPI for programs, and the page /docs for people."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator
from functools import cached_property
from html import escape
from itertools import groupby
from typing import Any, get_args

import msgspec
from msgspec import Struct

import alphafair
from alphafair.service.routes import ENDPOINTS, HANDLERS
from alphafair_client.api import JSON_FORMS, PARAMETERS, Endpoint, ErrorAnswer

TITLE, DESCRIPTION = "alphafair", "Decisions that are fair over time."
PREFIX = "#/components/schemas/"
PAGE_POLICY = "default-src 'none'; style-src 'sha256-{}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
STYLE = """
  :root { color-scheme: light dark; }
  body { font: 16px/1.5 system-ui, sans-serif; max-width: 52rem; margin: 2rem auto; padding: 0 1rem; }
  pre { background: color-mix(in srgb, currentColor 8%, transparent); padding: .7rem; overflow-x: auto; }
  pre { border-radius: .4rem; }
  code, pre { font: 14px/1.45 ui-monospace, monospace; }
  summary { cursor: pointer; padding: .4rem 0; }
  details { border-top: 1px solid color-mix(in srgb, currentColor 20%, transparent); }
  .method { display: inline-block; min-width: 4rem; font-weight: 600; }
  td, th { text-align: left; vertical-align: top; padding: .1rem 1rem .1rem 0; }
"""


class Documents:
    """OpenAPI and the page /docs of one service, made when they are first asked for."""

    def __init__(self, root_path: str) -> None:
        self._root_path = root_path

    @cached_property
    def openapi(self) -> bytes:
        return json.dumps(openapi(self._root_path), ensure_ascii=False).encode()

    @cached_property
    def page(self) -> bytes:
        return docs_page(openapi(self._root_path)).encode()

    @cached_property
    def page_policy(self) -> bytes:
        """The page may use nothing but its own style, which is named by its hash."""
        return PAGE_POLICY.format(base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()).encode()


def message_types() -> list[type]:
    """The JSON forms of all bodies and answers in the table, each once."""
    described = [endpoint for endpoint in ENDPOINTS if endpoint.in_api]
    found = [
        kind for endpoint in described for kind in (endpoint.body, *endpoint.answers, *endpoint.other_answers.values())
    ]
    types = [JSON_FORMS.get(kind, kind) for kind in (*found, ErrorAnswer) if isinstance(kind, type)]
    return [kind for kind in dict.fromkeys(types) if issubclass(kind, Struct)]


def schemas() -> dict[str, Any]:
    """The JSON schemas of all messages by name."""
    _, found = msgspec.json.schema_components(message_types(), ref_template=f"{PREFIX}{{name}}")
    return {name: _without_false(schema) for name, schema in found.items()}


def _without_false(schema: Any) -> Any:
    """A schema without `"items": false`, which generators refuse; a tuple has its length besides."""
    if isinstance(schema, list):
        return [_without_false(each) for each in schema]
    if isinstance(schema, dict):
        return {key: _without_false(value) for key, value in schema.items() if (key, value) != ("items", False)}
    return schema


def openapi(root_path: str = "") -> dict[str, Any]:
    """The endpoints in the form of OpenAPI 3.1."""
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in ENDPOINTS:
        if endpoint.in_api:
            paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint)
    return {
        "openapi": "3.1.0",
        "info": {"title": TITLE, "version": alphafair.__version__, "description": DESCRIPTION},
        "servers": [{"url": root_path or "/"}],
        "paths": paths,
        "components": {"schemas": schemas(), "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
        "security": [{"key": []}, {}],
    }


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    answers: dict[int, Any] = dict.fromkeys(endpoint.errors, ErrorAnswer) | {**endpoint.other_answers}
    operation: dict[str, Any] = {
        "tags": [endpoint.group],
        "operationId": HANDLERS[endpoint].__name__,
        "description": endpoint.summary,
        "parameters": [*_parameters(endpoint)],
        "responses": {
            str(endpoint.status): _content("The answer.", endpoint.answer),
            **{str(status): _content("An error.", kind) for status, kind in sorted(answers.items())},
        },
    }
    if endpoint.body is not None:
        content = {"application/json": {"schema": {**_schema(endpoint.body), "examples": [endpoint.example]}}}
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _parameters(endpoint: Endpoint) -> Iterator[dict[str, Any]]:
    for name in endpoint.parameters:
        schema = {"type": "string"}
        yield {"name": name, "in": "path", "required": True, "description": PARAMETERS[name], "schema": schema}
    if endpoint.query is not None:
        described = msgspec.json.schema_components([endpoint.query])[1][endpoint.query.__name__]
        for name, schema in described["properties"].items():
            text = schema.pop("description")
            required = name in described.get("required", ())
            yield {"name": name, "in": "query", "required": required, "description": text, "schema": schema}


def _content(description: str, answer: Any) -> dict[str, Any]:
    media, schema = (answer, {"type": "string"}) if isinstance(answer, str) else ("application/json", _schema(answer))
    return {"description": description, "content": {media: {"schema": schema}}}


def _schema(kind: Any) -> dict[str, Any]:
    if members := get_args(kind):
        return {"anyOf": [_schema(each) for each in members]}
    form = JSON_FORMS.get(kind, kind)
    return {"$ref": f"{PREFIX}{form.__name__}"} if issubclass(form, Struct) else {"type": "object"}


# the page for people


def docs_page(description: dict[str, Any]) -> str:
    """Every endpoint with its parameters, body and answers, as HTML without scripts and external files."""
    info, types = description["info"], description["components"]["schemas"]
    title = escape(f"{info['title']} {info['version']}")
    parts = [
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>{title}</title>\n'
        f"<style>{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n<p>{escape(info['description'])} "
        'For programs: <a href="openapi.json">openapi.json</a>. Send keys as <code>Authorization: Bearer KEY</code>. '
        'Every error is <code>{"error": {"code", "message", "argument"?, "repair"?}}</code>.</p>'
    ]
    for group, endpoints in groupby(ENDPOINTS, key=lambda endpoint: endpoint.group):
        parts.append(f"<h2>{escape(group)}</h2>")
        parts += [_section(endpoint, types) for endpoint in endpoints]
    parts.append("<h2>Types</h2>")
    for name, schema in sorted(types.items()):
        about = escape(schema.get("description", ""))
        parts.append(f'<details id="{name}"><summary><code>{name}</code> {about}</summary>{_pretty(schema)}</details>')
    return "\n".join([*parts, "</body>\n</html>\n"])


def _section(endpoint: Endpoint, types: dict[str, Any]) -> str:
    operation = _operation(endpoint)
    parts = [
        f'<details id="{operation["operationId"]}">\n<summary><span class="method">{endpoint.method}</span> '
        f"<code>{endpoint.path}</code> {escape(endpoint.summary)}</summary>",
        f"<p>Role: {endpoint.role or 'none, open to everybody'}.</p>",
    ]
    if operation["parameters"]:
        rows = [
            f"<tr><td><code>{each['name']}</code></td><td>in the {each['in']}</td><td>{escape(each['description'])} "
            f"{', '.join(each['schema'].get('enum', ()))}</td></tr>"
            for each in operation["parameters"]
        ]
        parts.append("\n".join(["<table>", *rows, "</table>"]))
    if endpoint.body is not None:
        parts.append(f"<p>Example:</p>\n<pre>{escape(_curl(endpoint))}</pre>")
        parts.append(f"<p>Body:</p>\n{_pretty(types[endpoint.body.__name__])}")
    rows = [
        f"<tr><td>{status}</td><td>{answer['description']}</td></tr>"
        for status, answer in operation["responses"].items()
    ]
    parts.append("\n".join(["<p>Answers:</p>\n<table>", *rows, "</table>"]))
    parts += [_pretty(types[kind.__name__]) for kind in endpoint.answers if kind.__name__ in types]
    return "\n".join([*parts, "</details>"])


def _pretty(schema: Any) -> str:
    return f"<pre>{escape(json.dumps(schema, indent=2, ensure_ascii=False))}</pre>"


def _curl(endpoint: Endpoint) -> str:
    """The example of a body as a command for a service on this machine."""
    method = "" if endpoint.method == "POST" else f" -X {endpoint.method}"
    path, body = endpoint.path.replace("{name}", "home"), json.dumps(endpoint.example)
    return f"curl{method} http://127.0.0.1:8000{path} -d '{body}'"
