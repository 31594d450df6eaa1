"""What the service says of itself: its tables of endpoints, messages and roles, and the sentences of its page."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from alphafair.service.keys import ROLES
from alphafair.service.openapi import PREFIX, schemas
from alphafair.service.page.sentences import GUARANTEES
from alphafair.service.routes import ENDPOINTS
from alphafair_client.api import JSON_FORMS

FEW = 6  # fields of an answer that are listed in the table


def routes() -> str:
    """A paragraph per endpoint: what it does, the role that it needs, its query, and body → answer."""
    parts = []
    for endpoint in ENDPOINTS:
        body = f"{fields(endpoint.body)} → " if endpoint.body else ""
        status = "" if endpoint.status == 200 else f"{endpoint.status} "
        answer = " or ".join(map(fields, endpoint.answers)) or endpoint.answer.partition(";")[0]
        query = ", ".join(f"`{name}`" for name in (endpoint.query.__struct_fields__ if endpoint.query else ()))
        role = f"Role `{endpoint.role}`." if endpoint.role else "No key is needed."
        said = [endpoint.summary, role, *([f"Query: {query}."] if query else []), f"{body}{status}{answer}"]
        parts.append(f"`{endpoint.method} {endpoint.path}`\n: {' '.join(said)}\n")
    return "\n".join(parts)


def fields(kind: type) -> str:
    """The fields of a message as JSON, or its name if there are many; optional fields have a question mark."""
    form = JSON_FORMS.get(kind, kind)
    if not issubclass(form, msgspec.Struct):
        return "JSON"
    if len(form.__struct_fields__) > FEW:
        return f"`{form.__name__}`"
    marked = [f'"{each.name}"{"" if each.required else "?"}' for each in msgspec.structs.fields(form)]
    return f"`{{{', '.join(marked)}}}`"


def fields_table() -> str:
    """The fields of all request bodies, nested messages included."""
    found, rows = schemas(), ["| message | field | type | |", "|---|---|---|---|"]
    waiting = [endpoint.body.__name__ for endpoint in ENDPOINTS if endpoint.body is not None]
    for name in waiting:  # which grows
        required = found[name].get("required", [])
        for field, schema in found[name]["properties"].items():
            kind, text = shown(schema), " ".join(description(schema).split())
            rows.append(f"| `{name}` | `{field}`{'' if field in required else ', optional'} | {kind} | {text} |")
            waiting += [each for each in found if f"`{each}`" in kind and each not in waiting]
    return "\n".join(rows)


def shown(schema: dict[str, Any]) -> str:
    """A JSON schema in few words."""
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(shown(each) for each in schema["anyOf"] if each.get("type") != "null"))
    if "$ref" in schema:
        return f"`{schema['$ref'].removeprefix(PREFIX)}`"
    if "enum" in schema:
        return ", ".join(f"`{json.dumps(each)}`" for each in schema["enum"])
    if schema["type"] == "array":
        return f"array of {shown(schema['items'])}"
    if schema["type"] == "object":
        values = schema.get("additionalProperties")
        return f"object of {shown(values)}" if values else "object"
    return str(schema["type"])


def description(schema: dict[str, Any]) -> str:
    """The description of a field, wherever it is in a union."""
    found = [schema, *schema.get("anyOf", ())]
    return next((each["description"] for each in found if "description" in each), "")


def roles_table() -> str:
    """What the key of each role may do."""
    rows = [f"| `{role}` | {row.may} | {row.who} |" for role, row in ROLES.items()]
    return "\n".join(["| role | may | for |", "|---|---|---|", *rows])


def guarantees_table() -> str:
    """What each change of an experiment means for its guarantee."""
    rows = [f"| `{kind}` | {sentence} |" for kind, sentence in GUARANTEES.items() if kind != "key"]
    return "\n".join(["| change | the guarantee |", "|---|---|", *rows])
