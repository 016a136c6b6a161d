"""A namespace in which others write to a Deployment, and a scaler whose server's clock a test sets forward."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from tests.clusters.made_up import Item
from tests.kubernetes.fault_proxy import FaultProxy, faulty_proxy
from tests.kubernetes.scaled import Scaler, ScalingServer


@dataclass
class Owned:
    """The Deployment `ranker`, and those who look after it."""

    server: ScalingServer
    proxy: FaultProxy
    scaler: Scaler
    place: str

    def hold(self) -> str:
        return self.scaler.find()["ranker"].hold

    def pass_minutes(self, minutes: float) -> None:
        self.proxy.ahead += timedelta(minutes=minutes)

    def kubectl(self, *words: str, given: object = None) -> None:
        self.server.cluster.kubectl("-n", self.place, *words, given=given)

    def apply(self, item: Item, manager: str) -> None:
        words = ("apply", "--server-side", "--field-manager", manager, "--force-conflicts", "-f", "-")
        self.kubectl(*words, given=item)

    @property
    def replicas(self) -> int:
        return self.server.replicas(self.place, "deployment/ranker")


@contextmanager
def owned_place(server: ScalingServer, folder: Path) -> Iterator[Owned]:
    token = json.loads(server.user.kubeconfig.read_text())["users"][0]["user"]["token"]
    with server.namespace() as place, faulty_proxy(server.server.admin) as proxy:
        yield Owned(server, proxy, Scaler(proxy.kubeconfig(folder / "through-proxy", token), place), place)
