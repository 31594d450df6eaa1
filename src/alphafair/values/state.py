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


class _Written:
    """Where an archive is written to, piece by piece; it cannot be read or gone back in."""

    def __init__(self) -> None:
        self.waiting = bytearray()

    def write(self, data: bytes, /) -> int:
        self.waiting += data
        return len(data)

    def flush(self) -> None:
        """Nothing to do; archives call it, and so they do `close`."""

    close = flush

    def take(self) -> bytes:
        """What was written since the last time."""
        taken, self.waiting = bytes(self.waiting), bytearray()
        return taken


@dataclass(frozen=True, eq=False)
class State:
    """A policy at one moment: its name, the version of its memory's layout, settings, random numbers, memory.

    Every fact has one place. No pickle anywhere: `to_bytes` writes an uncompressed NumPy `.npz` archive whose entry
    `meta` is JSON text; any language that reads zip and npy can read it.
    """

    policy: str
    version: int
    settings: Mapping[str, Any]
    rng: Mapping[str, Any]
    arrays: Mapping[str, NDArray[Any]]

    def to_bytes(self) -> bytes:
        return b"".join(self.pieces())

    def pieces(self, size: int = 1 << 20) -> Iterator[bytes]:
        """The same bytes, in pieces of about that size: a large state can be written without another copy of it."""
        meta = {
            "policy": self.policy,
            "version": self.version,
            "settings": dict(self.settings),
            "rng": dict(self.rng),
        }
        text = np.frombuffer(json.dumps(meta, sort_keys=True).encode(), dtype=np.uint8)
        written = _Written()
        with zipfile.ZipFile(written, "w") as archive:
            for name, values in {"meta": text, **self.arrays}.items():
                array = np.asarray(values, order="C")
                if array.dtype.hasobject:
                    raise ValueError(f"{name!r} in the state holds Python objects, which are not written")
                with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as entry:
                    np.lib.format.write_array_header_1_0(entry, np.lib.format.header_data_from_array_1_0(array))
                    raw = array.reshape(-1).view(np.uint8)
                    for first in range(0, len(raw), size):
                        entry.write(raw[first : first + size].data)
                        if len(written.waiting) >= size:
                            yield written.take()
        yield written.take()

    @classmethod
    def from_bytes(cls, blob: bytes) -> Self:
        if not isinstance(blob, bytes | bytearray | memoryview):
            raise InvalidArgument("blob", "the bytes of a State", blob, "Pass what State.to_bytes returned.")
        try:
            _refuse_growing(blob)
            with np.load(io.BytesIO(blob), allow_pickle=False) as archive:
                arrays = {name: archive[name] for name in archive.files}
            meta = json.loads(arrays.pop("meta").tobytes())
            return cls(meta["policy"], meta["version"], meta["settings"], meta.get("rng", {}), arrays)
        except MemoryError:
            raise
        except Exception as problem:  # zipfile, npy header, JSON and key errors all mean the same thing here
            repair = "It is cut off, damaged, or was not made by State.to_bytes."
            raise InvalidArgument("blob", "the bytes of a State", blob[:16], repair) from problem

    def save(self, path: str | Path) -> None:
        Path(path).write_bytes(self.to_bytes())

    @classmethod
    def load(cls, path: str | Path) -> Self:
        return cls.from_bytes(Path(path).read_bytes())


def _refuse_growing(blob: bytes) -> None:
    """An archive whose entries take more room than it has itself: `to_bytes` compresses nothing and repeats nothing."""
    with zipfile.ZipFile(io.BytesIO(blob)) as archive:
        compressed = any(entry.compress_type != zipfile.ZIP_STORED for entry in archive.infolist())
        sizes = [entry.file_size for entry in archive.infolist()]
        if compressed or sum(sizes) > len(blob):
            raise ValueError("the archive grows when it is read")
        np.empty(sum(sizes), dtype=np.uint8)  # where memory is too short for all of them, none is read
        for entry in archive.infolist():
            with archive.open(entry) as file:
                shape, _, dtype = _header(file)
                if math.prod(shape) * dtype.itemsize + file.tell() != entry.file_size:
                    raise ValueError(f"{entry.filename} has not the size that it claims")


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, order and kind of an array in NumPy's format, which has a version 2 for headers of 64 KB and more."""
    read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    return read[np.lib.format.read_magic(file)](file)
