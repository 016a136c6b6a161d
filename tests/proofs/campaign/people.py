"""Faults of a fleet's operators and tenants: drains, cordons, other rates and variants; and of what all nodes share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from app.manifests.model import Kind, Manifest
from app.store.fleet import cordons
from app.world.declare import declare
from simulation.world import ACTOR, read_store
from tests.proofs.campaign.down import DownFaults
from tests.proofs.campaign.node import CampaignNode
from tests.proofs.campaign.world import VARIANTS

PEOPLE_FAULTS = (
    "node_cordoned",
    "node_drained",
    "gpu_drained",
    "rate_declared",
    "variant_changed",
    "node_lost",
    "model_store_away",
)


@dataclass
class PeopleFaults(DownFaults):
    """Injects them beside the other faults of the campaign."""

    declared: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)  # specs by tenant and service

    def node_cordoned(self) -> None:
        self._close(self.pick(), cordons.ALL_GPUS, "cordon")

    def node_drained(self) -> None:
        self._close(self.pick_serving(), cordons.ALL_GPUS, "drain")

    def gpu_drained(self) -> None:
        node = self.pick_serving()
        self._close(node, self.rng.randrange(len(node.uuids)), "drain")

    def _close(self, node: CampaignNode, gpu: int, mode: str) -> None:
        database = self.simulation.database
        database.write(lambda c: cordons.put(c, node.name, gpu, mode, None, "campaign", ""))

        def lift() -> None:
            database.write(lambda c: cordons.lift(c, node.name, gpu))

        self._later(200, 800, lift)

    def rate_declared(self) -> None:
        """A tenant declares another rate than its service has."""
        tenant, name = self._pick_service()
        rate = self.declared[tenant, name]["ratePerSecond"]
        self._declare(tenant, name, {"ratePerSecond": rate * self.rng.uniform(0.5, 1.5)})
        self._later(200, 800, lambda: self._declare(tenant, name, {"ratePerSecond": rate}))

    def variant_changed(self) -> None:
        """A tenant wants the other variant of its model: a canary tries it first."""
        tenant, name = self._pick_service()
        now = self.declared[tenant, name]["variants"][0]
        self._declare(tenant, name, {"variants": [variant for variant in VARIANTS if variant != now]})

    def _pick_service(self) -> tuple[str, str]:
        if not self.declared:
            services = self.simulation.database.read(read_store).of(Kind.SERVICE)
            self.declared = {(manifest.tenant, manifest.name): dict(manifest.spec) for manifest in services}
        return self.rng.choice(sorted(self.declared))

    def _declare(self, tenant: str, name: str, fields: Mapping[str, Any]) -> None:
        spec = self.declared[tenant, name] = self.declared[tenant, name] | dict(fields)
        manifest = Manifest(Kind.SERVICE, tenant, name, spec)
        self.simulation.database.write(lambda connection: declare(connection, ACTOR, [manifest]) and None)

    def node_lost(self) -> None:
        """A node is silent for longer than the policy forgives: its copies start elsewhere, and end here later."""
        self._silence([self.pick_serving().name], 700, 900)

    def model_store_away(self) -> None:
        """Every copy ends, and none can read its model."""
        self._later(300, 900, self.delete_files(self.simulation.fleet.declared))
