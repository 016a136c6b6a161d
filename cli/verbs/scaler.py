"""`gpuwright scaler`: decides how many replicas adopted workloads of a Kubernetes cluster should have."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from cli.exits import Failed
from cli.leading import LeadingProcess, read_settings, run_until_ended

if TYPE_CHECKING:
    from app.settings import Settings

EPILOG = """\
Several may run: the one that holds the lease decides, the others take over when it falls silent, and all of them show
gpuwright_desired_replicas. Annotations of a Deployment, StatefulSet or LeaderWorkerSet adopt it and set its mode:
advisory writes nothing, approve waits for `gpuwright scale approve`, auto writes.
The cluster is that of the pod's service account, or of KUBECONFIG. Everything else is set in the environment:
DATABASE_URL, GPUWRIGHT_PROMETHEUS_URL, GPUWRIGHT_PROMETHEUS_TOKEN_FILE, GPUWRIGHT_KUBE_CONTEXT,
GPUWRIGHT_SCALE_SECONDS, GPUWRIGHT_SCALE_STEP_SECONDS, GPUWRIGHT_SCALE_DAYS, GPUWRIGHT_SCALE_NAMESPACES,
GPUWRIGHT_SCALER_METRICS_PORT, GPUWRIGHT_LEASE_SECONDS. It needs the extras server and kubernetes.

Examples:
  DATABASE_URL=postgresql://gpuwright@db/gpuwright GPUWRIGHT_PROMETHEUS_URL=http://prometheus:9090 gpuwright scaler
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG


def run(args: argparse.Namespace) -> int:
    from clusters.addresses import AddressRefused, check_address

    settings = read_settings("DATABASE_URL is not set")
    if not settings.prometheus_url:
        raise Failed("GPUWRIGHT_PROMETHEUS_URL is not set; without what it has measured nothing can be decided")
    try:
        check_address(settings.prometheus_url)
    except AddressRefused as refused:
        raise Failed(f"GPUWRIGHT_PROMETHEUS_URL is not allowed: {refused}") from None
    return run_until_ended(settings, _make)


def _make(settings: Settings) -> LeadingProcess:
    from cli.scaler.process import ScalerProcess

    return ScalerProcess(settings)
