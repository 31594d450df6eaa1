"""What /metrics of the service shows, asked of a service with one experiment."""

from __future__ import annotations

import tempfile
from pathlib import Path

from prometheus_client.core import Metric

from alphafair.engine import Engine
from alphafair.service.keys import LOCAL, Caller
from alphafair.service.service import Service


def found() -> list[Metric]:
    """Every metric of the package; those of the process are Prometheus' own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "shop.db"
        engine = Engine.open(path)
        engine.create("home", arms=["ada", "ben"], period="7d")
        service = Service(engine, path)
        try:
            service.measures.answered("/", 200, 0.001)
            every = list(service.measures.collect(Caller(LOCAL, LOCAL, "admin")))
        finally:
            service.keyring.close()
            engine.close()
    return [metric for metric in every if metric.name.startswith("alphafair_")]


def table() -> str:
    rows = []
    for metric in found():
        labels = dict.fromkeys(name for sample in metric.samples for name in sample.labels if name != "le")
        name = f"{metric.name}_total" if metric.type == "counter" else metric.name
        shown = f"{name}{{{', '.join(labels)}}}" if labels else name
        rows.append(f"| `{shown}` | {metric.type} | {metric.documentation} |")
    return "\n".join(["| metric | type | meaning |", "|---|---|---|", *rows])
