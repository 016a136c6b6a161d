"""`gpuwright scaler`: decides how many replicas adopted workloads of a Kubernetes cluster should have."""

from __future__ import annotations

import argparse
import logging
import signal
import threading
from types import FrameType

from cli import exits
from cli.exits import Failed
from cli.verbs.planner import answers

EPILOG = """\
Several may run: the one that holds the lease decides, the others take over when it falls silent, and all of them show
gpuwright_desired_replicas. Annotations of a Deployment, StatefulSet or LeaderWorkerSet adopt it and set its mode:
advisory writes nothing, approve waits for `gpuwright scale approve`, auto writes.
The cluster is that of the pod's service account, or of KUBECONFIG. Everything else is set in the environment:
DATABASE_URL, GPUWRIGHT_PROMETHEUS_URL, GPUWRIGHT_PROMETHEUS_TOKEN_FILE, GPUWRIGHT_KUBE_CONTEXT,
GPUWRIGHT_SCALE_SECONDS, GPUWRIGHT_SCALE_STEP_SECONDS, GPUWRIGHT_SCALE_DAYS, GPUWRIGHT_SCALE_NAMESPACES,
GPUWRIGHT_SCALER_METRICS_PORT, GPUWRIGHT_LEASE_SECONDS. It needs gpuwright[server,kubernetes].

Examples:
  DATABASE_URL=postgresql://gpuwright@db/gpuwright GPUWRIGHT_PROMETHEUS_URL=http://prometheus:9090 gpuwright scaler
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG


def run(args: argparse.Namespace) -> int:
    from app.settings import SettingsError, from_environment
    from app.store.database.urls import libpq_url
    from cli.scaler.process import ScalerProcess
    from cli.verbs.serve import write_logs
    from clusters.addresses import AddressRefused, check_address

    try:
        settings = from_environment()
        if not settings.database_url:
            raise Failed("DATABASE_URL is not set")
        libpq_url(settings.database_url)
        if not settings.prometheus_url:
            raise Failed("GPUWRIGHT_PROMETHEUS_URL is not set; without what it has measured nothing can be decided")
        check_address(settings.prometheus_url)
    except SettingsError as error:
        raise Failed(str(error)) from error
    except AddressRefused as refused:
        raise Failed(f"GPUWRIGHT_PROMETHEUS_URL is not allowed: {refused}") from None
    write_logs(settings)
    logging.getLogger("httpx2").setLevel(logging.WARNING)  # it tells of every request
    ended = threading.Event()

    def end(number: int, frame: FrameType | None) -> None:
        ended.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    if not answers(settings, ended):
        return exits.OK
    process = ScalerProcess(settings)
    process.start()
    ended.wait()
    process.stop()
    return exits.OK
