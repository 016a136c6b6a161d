"""Runs the routes of a cluster while this process is the only one of its gateway's name."""

from __future__ import annotations

import logging
import threading
from contextlib import suppress

from agents.gateway.cluster.objects import RouteSettings
from agents.gateway.cluster.routes import ClusterRoutes
from agents.gateway.plane import ControlPlaneAddress, PlaneClient
from agents.kubernetes.api import ApiAway, ApiRefused, KubernetesApi
from agents.kubernetes.lease import RENEW_SECONDS, KubernetesLease

log = logging.getLogger(__name__)


def run_routes(
    api: KubernetesApi,
    settings: RouteSettings,
    server: ControlPlaneAddress,
    settle_seconds: float,
    holder: str,
    stopped: threading.Event,
) -> bool:
    """Waits for the lease, writes routes until stopped, and gives the lease back; returns False if others took it."""
    lease = KubernetesLease(api, f"gpuwright-gateway-{settings.gateway}", holder)
    if not _await_lease(lease, settings.gateway, stopped):
        return True
    routes = ClusterRoutes(api, settings, settle_seconds)
    plane = PlaneClient(routes, server)
    log.info("routes of gateway %s are written to namespace %s until stopped", settings.gateway, settings.namespace)
    is_held = True
    while is_held and not stopped.wait(RENEW_SECONDS):
        with suppress(ApiAway):  # while nobody knows whose it is, nobody can write either
            is_held = lease.renew()
    plane.close()
    routes.close()
    if is_held:
        with suppress(ApiAway, ApiRefused):
            lease.release()
    return is_held


def _await_lease(lease: KubernetesLease, gateway: str, stopped: threading.Event) -> bool:
    said = ""
    while not stopped.is_set():
        try:
            if lease.renew():
                return True
            why = f"another process is gateway {gateway}: {lease.other}" if lease.other else ""
        except ApiAway as error:
            why = str(error)
        if why and why != said:
            log.warning("waits, as %s", why)
        said = why
        stopped.wait(RENEW_SECONDS / 3)
    return False
