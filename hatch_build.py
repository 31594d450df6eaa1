"""Which alphafair-client alphafair requires: in a clone the one beside it, in a release the one of its own version."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class Requirements(MetadataHookInterface):
    """Fill `dependencies`: those of pyproject.toml, and the client."""

    def update(self, metadata: dict[str, Any]) -> None:
        root = Path(self.root)
        is_clone = (root / ".git").exists()
        client = f" @ {(root / 'client').as_uri()}" if is_clone else f"=={metadata['version']}"
        metadata["dependencies"] = [*self.config["dependencies"], f"alphafair-client{client}"]
