"""`gpuwright scaler`: decides how many replicas adopted workloads of Kubernetes or Ray Serve should have."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from agents.host.plaintext import plaintext_refusal
from cli.exits import Failed
from cli.leading import LeadingProcess, read_settings, run_until_ended

if TYPE_CHECKING:
    from pathlib import Path

    from app.settings import Settings

EPILOG = """\
Several may run: the one that holds the lease decides, the others take over when it falls silent, and all of them show
gpuwright_desired_replicas. Annotations of a Deployment, StatefulSet or LeaderWorkerSet adopt it and set its mode:
advisory writes nothing, approve waits for `gpuwright scale approve`, auto writes.
The cluster is that of the pod's service account, or of KUBECONFIG. With GPUWRIGHT_RAY_SERVICES, a file that adopts
deployments of Ray Serve, it scales those and asks no cluster; examples/ray/services.yaml is one.
Everything else is set in the environment:
DATABASE_URL, GPUWRIGHT_PROMETHEUS_URL, GPUWRIGHT_PROMETHEUS_TOKEN_FILE, GPUWRIGHT_KUBE_CONTEXT, GPUWRIGHT_RAY_SERVICES,
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
    if settings.prometheus_token_file and (refusal := plaintext_refusal(settings.prometheus_url)):
        raise Failed(f"GPUWRIGHT_PROMETHEUS_TOKEN_FILE: {refusal}")
    if settings.ray_services:
        _check_services(settings.ray_services)
    return run_until_ended(settings, _make)


def _check_services(file: Path) -> None:
    from clusters.ray_serve.services import ServicesRefused, read_services

    try:
        services = read_services(file)
    except ServicesRefused as refused:
        raise Failed("\n".join(refused.faults)) from None
    if services.token_file and (refusal := plaintext_refusal(services.dashboard)):
        raise Failed(f"{file}: {refusal}")


def _make(settings: Settings) -> LeadingProcess:
    from cli.scaler.process import ScalerProcess

    return ScalerProcess(settings)
