"""The page at /docs: the OpenAPI description as plain HTML, without scripts and without anything from elsewhere."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from typing import Any

import msgspec
from jinja2 import Environment, PackageLoader, select_autoescape

from alphafair.service import messages

_templates = Environment(
    loader=PackageLoader("alphafair.service"),
    autoescape=select_autoescape(),
    trim_blocks=True,
    lstrip_blocks=True,
)
_templates.filters["pretty"] = lambda value: json.dumps(value, indent=2)


def docs_page(description: dict[str, Any]) -> bytes:
    """Every route with its parameters, its body and its answers, from the description in OpenAPI's form."""
    schemas = description["components"]["schemas"]
    routes = [
        {
            "method": method.upper(),
            "path": path,
            "tag": operation["tags"][0],
            "operation": operation,
            "example": _curl(method, path, operation),
            "body": _schema(operation.get("requestBody"), schemas),
            "answer": _schema(next(iter(operation["responses"].values())), schemas),
        }
        for path, item in description["paths"].items()
        for method, operation in item.items()
    ]
    page = _templates.get_template("docs.html").render(openapi=description, routes=routes, schemas=schemas)
    return page.encode()


def content_security_policy(page: bytes) -> str:
    """Nothing but the page's own style, told by its hash."""
    (style,) = re.findall(rb"<style>(.*?)</style>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style).digest()).decode()
    return (
        f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def with_exact_types(description: dict[str, Any]) -> dict[str, Any]:
    """Litestar's description with msgspec's own account of the types, which tells every bound that is checked."""
    types = [kind for kind in vars(messages).values() if isinstance(kind, type) and issubclass(kind, msgspec.Struct)]
    named = [kind for kind in types if kind.__name__ in description["components"]["schemas"]]
    _, exact = msgspec.json.schema_components(named, ref_template="#/components/schemas/{name}")
    return {**description, "components": {**description["components"], "schemas": exact}}


def _schema(holder: dict[str, Any] | None, schemas: dict[str, Any]) -> Any:
    """The schema of a body or an answer in JSON, looked up by its name."""
    found = ((holder or {}).get("content") or {}).get("application/json", {}).get("schema", {})
    for each in (found, *found.get("allOf", ())):
        if "$ref" in each:
            return schemas[each["$ref"].rpartition("/")[2]]
    return found


def _curl(method: str, path: str, operation: dict[str, Any]) -> str | None:
    """The example of a body, as a command for a service on this machine."""
    if "requestBody" not in operation:
        return None
    (example, *_) = operation["requestBody"]["content"]["application/json"]["schema"]["examples"]
    asked = "" if method == "post" else f" -X {method.upper()}"
    return f"curl{asked} http://127.0.0.1:8000{path.replace('{name}', 'home')} -d '{json.dumps(example)}'"
