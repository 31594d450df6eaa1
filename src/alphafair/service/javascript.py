"""Write the JavaScript client: `python -m alphafair.service.javascript`, in a clone.

`clients/javascript/core.js` is written by hand: attempts, deadlines, errors, the fallback and its queue. Methods,
types, paths, and what may be sent twice follow from the table of endpoints and the schemas of their messages.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, get_args, get_type_hints

import msgspec
from msgspec.structs import fields

import alphafair_client
from alphafair.service.routes import HANDLERS
from alphafair_client import api
from alphafair_client.answers import SlateReceipt
from alphafair_client.api import JSON_FORMS, STATUSES, Endpoint

FOLDER: Final = Path(__file__).parents[3] / "clients" / "javascript"
MADE: Final = (
    "// Made by `python -m alphafair.service.javascript`; do not edit: change core.js or the table of endpoints.\n"
)
WARNING: Final = "// Not for browsers: a key in a page is public, and the service sends no CORS headers.\n"
BY: Final = {api.DECIDE: "_decision", api.REWARD: "_report", api.ACTIVATE: "_report"}  # else: _batch or _call
QUEUED: Final = {api.REWARD: "reward", api.ACTIVATE: "activation"}
DOWNLOAD: Final = "application/octet-stream"  # has ten minutes
ENDPOINTS: Final = tuple(each for each in api.ENDPOINTS if each.in_api)
TYPES_OF_CORE: Final = """\
/** The service, or a proxy, rejects a call; `code`, `argument` and `repair` are the service's own. */
export class ServiceError extends Error {
  constructor(status: number, code: string, message: string, argument?: string | null, repair?: string | null);
  readonly status: number;
  readonly code: string;
  readonly argument: string | null;
  readonly repair: string | null;
}

/** There was no answer in time. */
export class ConnectionError extends Error {}

export interface ClientOptions {
  key?: string;
  /** Milliseconds of a call with all its attempts: 5000 unless given. */
  timeout?: number;
  /** Milliseconds of `decide`; by default `timeout`. */
  decideTimeout?: number;
  /** How often a request is sent again, at most: 8 unless given. */
  retries?: number;
  /** An arm, or what returns one, for decisions while nobody answers. */
  fallback?: string | ((experiment: string, context: string, available?: string[] | null) => string);
}

export interface CallOptions {
  /** Milliseconds of this call. */
  timeout?: number;
}

export class Client {
  /** By default http://127.0.0.1:8000. */
  constructor(url?: string | URL, options?: ClientOptions);
  /** How many decisions, rewards and activations wait until somebody answers. */
  readonly queued: number;
  /** How many were dropped: refused by the service, or too old for the queue. */
  readonly dropped: number;
  /** Send what is queued, for at most so many milliseconds; true if nothing is left. */
  flush(timeout?: number): Promise<boolean>;
  /** Send what is queued for up to a second; later calls fail. */
  close(): Promise<void>;
"""


def name_of(endpoint: Endpoint) -> str:
    """The name of a method: that of its handler, in camelCase."""
    return re.sub(r"_(\w)", lambda found: found[1].upper(), HANDLERS[endpoint].__name__)


def script(core: str) -> str:
    """alphafair.js: the core, the table of endpoints, and one method for each."""
    rows = "".join(f"  {name_of(each)}: {_row(each)},\n" for each in ENDPOINTS)
    methods = "\n".join(_method(each) for each in ENDPOINTS)
    return (
        f"{MADE}{WARNING}\n{core}\nconst STATUSES = {json.dumps(STATUSES, indent=2)}; // else 422\n\n"
        f"const ENDPOINTS = {{\n{rows}}};\n\n"
        "/** A client of the service: one method for each endpoint, with the fields of its JSON. */\n"
        f"export class Client extends Calls {{\n{methods}}}\n"
    )


def _row(endpoint: Endpoint) -> str:
    fields = {"method": endpoint.method, "path": endpoint.path, "repeatable": endpoint.repeatable}
    fields |= {"queued": QUEUED[endpoint]} if endpoint in QUEUED else {}
    fields |= {"raw": True} if isinstance(endpoint.answer, str) else {}
    return "{ " + ", ".join(f"{key}: {json.dumps(value)}" for key, value in fields.items()) + " }"


def _arguments(endpoint: Endpoint) -> list[str]:
    sent = ["body"] if endpoint.body else ["query"] if endpoint.query else []
    return [*endpoint.parameters, *sent]


def _method(endpoint: Endpoint) -> str:
    name, parameters, arguments = name_of(endpoint), endpoint.parameters, _arguments(endpoint)
    options = ["timeout: 600000"] if endpoint.answer == DOWNLOAD else []
    options += ["...options", *arguments[len(parameters) :]]
    where = f"{{ {', '.join(parameters)} }}" if parameters else "{}"
    through = BY.get(endpoint) or ("_batch" if _makes_many(endpoint) else "_call")
    return (
        f"  /** {endpoint.summary} */\n  {name}({', '.join([*arguments, 'options'])}) {{\n"
        f"    return this.{through}(ENDPOINTS.{name}, {where}, {{ {', '.join(options)} }});\n  }}\n"
    )


def _makes_many(endpoint: Endpoint) -> bool:
    """Whether it takes a batch of decisions, which need ids."""
    items = get_type_hints(endpoint.body).get("items") if endpoint.body else None
    return any(field.name == "id" and not field.required for each in get_args(items) for field in fields(each))


# types


def types() -> str:
    """alphafair.d.ts: the types of all messages, and of the methods."""
    kinds = [kind for each in ENDPOINTS for kind in (each.body, each.query, *each.answers) if kind not in (None, dict)]
    forms = [JSON_FORMS.get(kind, kind) for kind in kinds]
    _, schemas = msgspec.json.schema_components(dict.fromkeys(forms), ref_template="{name}")
    messages = "\n".join(_interface(name, schema) for name, schema in schemas.items())
    methods = "".join(line for each in ENDPOINTS for line in _signatures(each))
    return f"{MADE}{WARNING}\n{messages}\n{TYPES_OF_CORE}{methods}}}\n"


def _interface(name: str, schema: dict[str, Any]) -> str:
    about, fields = " ".join(schema.get("description", "").split()), "".join(_fields(schema))
    return f"/** {about} */\nexport interface {name} {{\n{fields}}}\n"


def _fields(schema: dict[str, Any]) -> Iterator[str]:
    for name, each in schema["properties"].items():
        described = next(
            (part["description"] for part in [each, *each.get("anyOf", ())] if "description" in part), None
        )
        if described:
            yield f"  /** {described} */\n"
        yield f"  {name}{'' if name in schema.get('required', ()) else '?'}: {type_of(each)};\n"


def type_of(schema: dict[str, Any]) -> str:
    """The TypeScript type of a JSON schema.

    >>> type_of({"type": "array", "items": {"anyOf": [{"type": "integer"}, {"type": "null"}]}})
    '(number | null)[]'
    >>> type_of({"type": "object", "additionalProperties": {"enum": ["a", "b"]}})
    'Record<string, "a" | "b">'
    """
    if "$ref" in schema:
        return str(schema["$ref"])
    if "enum" in schema:
        return " | ".join(json.dumps(value) for value in schema["enum"])
    if "anyOf" in schema:
        return " | ".join(dict.fromkeys(type_of(each) for each in schema["anyOf"]))
    kind = schema.get("type")
    if kind == "array":
        items = type_of(schema.get("items") or {})
        return f"({items})[]" if " | " in items else f"{items}[]"
    if kind == "object":
        return f"Record<string, {type_of(schema.get('additionalProperties') or {})}>"
    return {"integer": "number", "number": "number", "string": "string", "boolean": "boolean", "null": "null"}.get(
        str(kind), "unknown"
    )


def _signatures(endpoint: Endpoint) -> Iterator[str]:
    """The signature of a method; what a decision returns depends on k."""
    sent = endpoint.body or endpoint.query
    given = [f"{name}: string" for name in endpoint.parameters]
    if isinstance(endpoint.answer, str):
        answers = "Response"
    else:
        answers = " | ".join("Record<string, unknown>" if kind is dict else kind.__name__ for kind in endpoint.answers)
    forms = [(sent.__name__ if sent else None, answers)]
    if SlateReceipt in endpoint.answers and sent:
        forms = [
            (f"{sent.__name__} & {{ k?: null }}", "Receipt"),
            (f"{sent.__name__} & {{ k: number }}", "SlateReceipt"),
        ]
    yield f"  /** {endpoint.summary} */\n"
    for body, answer in forms:
        named = "body" if endpoint.body else "query"
        arguments = [*given, *([f"{named}: {body}"] if body else []), "options?: CallOptions"]
        yield f"  {name_of(endpoint)}({', '.join(arguments)}): Promise<{answer}>;\n"


def files(folder: Path = FOLDER) -> dict[str, str]:
    """The text of the files that are made, by name."""
    package = {**json.loads((folder / "package.json").read_text()), "version": alphafair_client.__version__}
    return {
        "alphafair.js": script((folder / "core.js").read_text()),
        "alphafair.d.ts": types(),
        "package.json": json.dumps(package, indent=2) + "\n",
    }


def main(folder: Path = FOLDER) -> None:
    """Write the files."""
    for name, text in files(folder).items():
        (folder / name).write_text(text)


if __name__ == "__main__":
    main()
