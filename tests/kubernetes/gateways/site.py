"""What tests of routes in a cluster share: a Gateway with its Envoy, copies, and the gateway that is tested."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from agents.contract.gateways import EndpointCopy, Endpoints, ServiceEndpoints
from agents.gateway.cluster.objects import ECHO, OWNER, SERVICE
from tests.kubernetes.cluster import Cluster, Rule
from tests.kubernetes.gateways.envoy_gateway import HOME, PORT, EnvoyGateway
from tests.kubernetes.gateways.network import own_network
from tests.kubernetes.kubeconfig import read_connection
from tests.kubernetes.server import ApiServer, running_api_server
from tests.support.forked import ROOT
from tests.support.haproxy import Copies
from tests.support.needs import need_envoy_gateway
from tests.support.patience import patience, until
from tests.support.small_plane import TOKEN, SmallPlane

GATEWAY, NAME = "public", "edge-1"
ALL_KINDS = "httproutes,services,endpointslices"
COPIES_HOST = "10.77.0.9"
# What a gateway may do in its namespace, as the chart's role has it.
ROUTES: tuple[Rule, ...] = (
    ("gateway.networking.k8s.io", "httproutes", "get,list,watch,create,patch,delete"),
    ("", "services", "get,list,watch,create,patch,delete"),
    ("discovery.k8s.io", "endpointslices", "get,list,watch,create,patch,delete"),
    ("coordination.k8s.io", "leases", "get,create,patch"),
)


class RoutedSite:
    """A namespace with the routes of one gateway, whose process may be killed and started again."""

    def __init__(self, server: ApiServer, cluster: Cluster, copies: Copies, folder: Path) -> None:
        self.server, self.cluster, self.copies = server, cluster, copies
        self.namespace = cluster.make_namespace("routes")
        self.folder = folder / self.namespace
        self.folder.mkdir()
        self.log = self.folder / "gateway.log"
        self.plane = SmallPlane()
        threading.Thread(target=self.plane.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._version = 0
        self._fill_account()

    def start(self, *more: str) -> subprocess.Popen[bytes]:
        """Starts the gateway as its pod does."""
        url = f"http://127.0.0.1:{self.plane.server_address[1]}"
        words = ["gateway", "cluster", "--server", url, "--server-token-file", str(self.folder / "plane.token")]
        words += ["--name", NAME, "--parent", f"{HOME}/{GATEWAY}", "--account", str(self.folder), *more]
        kubernetes = urlsplit(self.server.url)
        named = {
            "KUBERNETES_SERVICE_HOST": str(kubernetes.hostname),
            "KUBERNETES_SERVICE_PORT": str(kubernetes.port),
        }
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "cli.main", *words], cwd=ROOT, env={**os.environ, **named},
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        self._processes.append(process)
        return process

    def say(self, **services: Sequence[EndpointCopy]) -> int:
        """Has the control plane report these copies, of services of the tenant shop; returns the version."""
        self._version += 1
        found = tuple(ServiceEndpoints(f"shop/{name}", tuple(copies)) for name, copies in services.items())
        self.plane.endpoints = Endpoints(self._version, found)
        return self._version

    def await_version(self, version: int) -> None:
        until(lambda: self.plane.newest.endpoints >= version, lambda: f"version {version}: {self._explain()}")

    def put(self, **services: Sequence[EndpointCopy]) -> None:
        self.await_version(self.say(**services))

    def copy(self, index: int, weight: float, drained: bool = False) -> EndpointCopy:
        return EndpointCopy(f"c{index}", "node-1", f"{COPIES_HOST}:{self.copies.ports[index]}", weight, drained)

    def get(self, path: str = "/shop/search/x") -> tuple[int, str]:
        """Status and body, as callers get them."""
        connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=patience())
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def list_objects(self, kinds: str = ALL_KINDS, selected: str = OWNER, echoes: bool = False) -> list[Any]:
        """Returns the objects without those of echoes, or these alone."""
        found = self.cluster.read("-n", self.namespace, "get", kinds, "-l", selected)["items"]
        return [each for each in found if _get_service(each).startswith(ECHO) == echoes]

    def read_echo(self) -> str:
        """Returns which echo the Gateway was asked for last."""
        return "".join(_get_service(each) for each in self.list_objects("httproutes", echoes=True))

    def read_weights(self, service: str = "search") -> list[int]:
        """Returns the weights of a route's backends."""
        return [backend["weight"] for backend in self.read_route(service)["spec"]["rules"][0]["backendRefs"]]

    def read_route(self, service: str) -> Any:
        return self.cluster.read("-n", self.namespace, "get", "httproute", f"{NAME}.shop.{service}")

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
        self.plane.shutdown()
        self.plane.server_close()
        # No controller empties the namespace, and of two routes of a path the older one counts.
        self.cluster.kubectl("-n", self.namespace, "delete", "httproutes", "--all")
        self.cluster.remove_namespace(self.namespace)

    def _fill_account(self) -> None:
        user = self.cluster.add_user(self.namespace, "gateway")
        self.cluster.grant(user, ROUTES)
        text = user.kubeconfig.read_text()
        (self.folder / "token").write_text(json.loads(text)["users"][0]["user"]["token"])
        (self.folder / "ca.crt").write_text(read_connection(text)[1])
        (self.folder / "namespace").write_text(self.namespace)
        (self.folder / "plane.token").write_text(TOKEN)

    def _explain(self) -> Mapping[str, object]:
        return {
            "reported": self.plane.newest,
            "log": self.log.read_text()[-3000:],
            "routes": [each.get("status") for each in self.list_objects("httproutes")],
        }


def _get_service(found: Mapping[str, Any]) -> str:
    return str(found["metadata"].get("annotations", {}).get(SERVICE, ""))


@contextmanager
def running_gateways(folder: Path) -> Iterator[tuple[ApiServer, Cluster, EnvoyGateway]]:
    """Runs an API server and Envoy Gateway with its Envoy in a network of their own."""
    program = need_envoy_gateway()
    with ExitStack() as stack:
        stack.enter_context(own_network())
        for name in ("api", "users", "envoy"):
            (folder / name).mkdir()
        server = stack.enter_context(running_api_server(folder / "api"))
        cluster = Cluster(server.admin, folder / "users")
        envoy = EnvoyGateway(program, cluster, folder / "envoy", GATEWAY)
        stack.callback(envoy.close)
        envoy.start()
        yield server, cluster, envoy
