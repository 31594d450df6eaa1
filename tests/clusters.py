"""A Dask cluster for tests: two processes of this machine that listen on loopback alone, without a dashboard."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import pytest


@contextmanager
def local_cluster(n_workers: int = 2, **options: Any) -> Iterator[Any]:
    if find_spec("distributed") is None:
        sentence = "Dask is not installed: pip install 'alphafair[dask]'"
        if os.environ.get("CI"):
            pytest.fail(sentence)
        pytest.skip(sentence)
    import dask
    from distributed import LocalCluster

    pages = {"distributed.scheduler.http.routes": [], "distributed.worker.http.routes": []}  # none: no dashboard
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "30s", **pages}),
        LocalCluster(
            n_workers=n_workers,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            worker_dashboard_address="127.0.0.1:0",
            silence_logs=50,
            env={"POLARS_MAX_THREADS": "1"},
            **options,
        ) as cluster,
    ):
        yield cluster
