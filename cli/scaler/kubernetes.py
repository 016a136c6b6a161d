"""Kubernetes as the engine of a scaler: its API server is read at each look and asked to write."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from app.settings import Settings
from cli.scaler.loads import MeasureLoads
from cli.scaler.looking import ClusterWatch
from cli.scaler.reaching import LookFailed
from cli.scaler.scaler import OpenEngine
from clusters.api_server import read_cluster
from clusters.kubeconfigs import ClusterUnreachable, choose_cluster
from clusters.objects import ClusterObjects
from clusters.scaling.outcomes import ReplicaEngine
from clusters.scaling.server import open_server
from clusters.scaling.writing import KubernetesEngine


def make_cluster(
    settings: Settings, measure: MeasureLoads, pause: Callable[[float], None]
) -> tuple[ClusterWatch, OpenEngine]:
    """Returns what reads the cluster of the settings, and what writes to it."""

    def read_objects() -> ClusterObjects:
        try:
            return read_cluster(choose_cluster(settings.kube_context or None, None, os.environ), pause, lambda *_: None)
        except ClusterUnreachable as error:
            raise LookFailed("cluster", str(error)) from None

    @contextmanager
    def open_engine() -> Iterator[ReplicaEngine]:
        try:
            with open_server(choose_cluster(settings.kube_context or None, None, os.environ)) as server:
                yield KubernetesEngine(server)
        except ClusterUnreachable as error:
            raise LookFailed("cluster", str(error)) from None

    namespaces = [name for name in settings.scale_namespaces.replace(",", " ").split() if name]
    watch = ClusterWatch(read_objects, measure, time.monotonic, settings.scale_days, namespaces)
    return watch, open_engine
