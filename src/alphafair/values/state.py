"""A snapshot of a policy, and its file format."""

from __future__ import annotations

import io
import json
import math
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Self

import numpy as np
from numpy.typing import NDArray

from alphafair.errors import InvalidArgument
from alphafair.formatting import json_alpha


class _Pieces:
    """A write-only buffer for an archive that is taken out in pieces."""

    def __init__(self) -> None:
        self.waiting = bytearray()

    def write(self, data: bytes, /) -> int:
        self.waiting += data
        return len(data)

    def flush(self) -> None:
        """Do nothing; `zipfile` calls `flush` and `close`."""

    close = flush

    def take(self) -> bytes:
        """Return what was written since the last call."""
        taken, self.waiting = bytes(self.waiting), bytearray()
        return taken


@dataclass(frozen=True, eq=False)
class State:
    """A snapshot of a policy: its name, the version of its layout, settings, random number state, arrays.

    No pickle: `to_bytes` writes an uncompressed NumPy `.npz` archive whose entry `meta` is JSON, so any language with
    readers for zip and npy can read it.
    """

    policy: str
    version: int
    settings: Mapping[str, Any]
    rng: Mapping[str, Any]
    arrays: Mapping[str, NDArray[Any]]

    def to_bytes(self) -> bytes:
        return b"".join(self.pieces())

    def pieces(self, size: int = 1 << 20) -> Iterator[bytes]:
        """Yield the same bytes in pieces of about `size`, so that a large state is written without a second copy."""
        settings = dict(self.settings)
        if "alpha" in settings:
            settings["alpha"] = json_alpha(settings["alpha"])
        meta = {
            "policy": self.policy,
            "version": self.version,
            "settings": settings,
            "rng": dict(self.rng),
        }
        text = np.frombuffer(json.dumps(meta, sort_keys=True).encode(), dtype=np.uint8)
        written = _Pieces()
        with zipfile.ZipFile(written, "w") as archive:
            for name, values in {"meta": text, **self.arrays}.items():
                array = np.asarray(values, order="C")
                if array.dtype.hasobject:
                    raise ValueError(f"state.arrays[{name!r}] must be numeric; got Python objects. Convert it first.")
                with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as entry:
                    np.lib.format.write_array_header_1_0(entry, np.lib.format.header_data_from_array_1_0(array))
                    raw = array.reshape(-1).view(np.uint8)
                    for first in range(0, len(raw), size):
                        entry.write(raw[first : first + size].data)
                        if len(written.waiting) >= size:
                            yield written.take()
        yield written.take()

    @classmethod
    def from_bytes(cls, blob: bytes | memoryview) -> Self:
        if not isinstance(blob, bytes | bytearray | memoryview):
            raise InvalidArgument("blob", "the bytes of a State", blob, "Pass what State.to_bytes returned.")
        try:
            _check_sizes(blob)
            with np.load(io.BytesIO(blob), allow_pickle=False) as archive:
                arrays = {name: archive[name] for name in archive.files}
            meta = json.loads(arrays.pop("meta").tobytes())
            settings = meta["settings"]
            if settings.get("alpha") == "inf":
                settings["alpha"] = math.inf
            return cls(meta["policy"], meta["version"], settings, meta.get("rng", {}), arrays)
        except MemoryError:
            raise
        except Exception as problem:  # errors of zipfile, npy headers, JSON and keys mean the same here
            repair = "It is truncated, damaged, or was not written by State.to_bytes."
            raise InvalidArgument("blob", "the bytes of a State", blob[:16], repair) from problem

    def save(self, path: str | Path) -> None:
        Path(path).write_bytes(self.to_bytes())

    @classmethod
    def load(cls, path: str | Path) -> Self:
        return cls.from_bytes(Path(path).read_bytes())


def _check_sizes(blob: bytes | memoryview) -> None:
    """Raise for an archive whose entries are larger than the archive: `to_bytes` never compresses or repeats."""
    with zipfile.ZipFile(io.BytesIO(blob)) as archive:
        compressed = any(entry.compress_type != zipfile.ZIP_STORED for entry in archive.infolist())
        sizes = [entry.file_size for entry in archive.infolist()]
        if compressed or sum(sizes) > len(blob):
            raise ValueError("the entries are larger than the archive")
        np.empty(sum(sizes), dtype=np.uint8)  # fail before reading if memory is too short
        for entry in archive.infolist():
            with archive.open(entry) as file:
                shape, _, dtype = _header(file)
                if math.prod(shape) * dtype.itemsize + file.tell() != entry.file_size:
                    raise ValueError(f"{entry.filename} does not have the size in its header")


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Read the shape, order and dtype of an npy file; version 2 has headers of 64 KB and more."""
    read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    return read[np.lib.format.read_magic(file)](file)
