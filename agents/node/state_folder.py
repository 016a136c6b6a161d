"""What an agent keeps on disk: its credential, how often it started, and the newest assignment it has seen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import msgspec

from agents.contract import Assignment
from agents.host import durable
from agents.host.clocks import boot_id
from agents.policy.health import HealthState
from agents.policy.power.energy import Energy

T = TypeVar("T")


class NextToken(msgspec.Struct, rename="camel"):
    """A token that will take the place of the one in use."""

    token: str
    issued_at: datetime | None = None
    expires_at: datetime | None = None


class Credential(msgspec.Struct, rename="camel"):
    """Who this node is, and where its control plane is."""

    server: str
    node: str
    token: str
    ca_file: str = ""
    # By the control plane's clock; None: of a server that says nothing of an end.
    issued_at: datetime | None = None
    expires_at: datetime | None = None
    next: NextToken | None = None  # given, and not used yet: until then both are kept


class AgentMemory(msgspec.Struct, rename="camel"):
    """What must survive a restart. `incarnation` only ever grows: it orders reports over restarts."""

    incarnation: int = 0
    epoch: int = 0
    generation: int = 0
    assignment: Assignment | None = None


class NodeRecord(msgspec.Struct, rename="camel"):
    """What this node is: the device that each index means for ever, and the GPUs that somebody here wants empty."""

    gpus: dict[int, str] = {}
    draining: list[str] = []


class EnergyRecord(msgspec.Struct, rename="camel"):
    """The energy of each GPU as it was counted last, and the boot whose clock its times are of."""

    boot_id: str = ""
    energy: dict[str, Energy] = {}


class HealthRecord(msgspec.Struct, rename="camel"):
    """GPUs with a fault, as of one boot of the machine."""

    boot_id: str = ""
    states: dict[str, HealthState] = {}


class StateFolder:
    """The agent's folder; nobody but its user can read it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lasting: HealthRecord | None = None

    def credential(self) -> Credential | None:
        return self._read("credential.json", Credential)

    def keep_credential(self, credential: Credential) -> None:
        self._write("credential.json", msgspec.json.encode(credential))

    def seen(self) -> AgentMemory:
        return self._read("seen.json", AgentMemory) or AgentMemory()

    def keep_seen(self, seen: AgentMemory) -> None:
        self._write("seen.json", msgspec.json.encode(seen))

    def known(self) -> NodeRecord:
        return self._read("known.json", NodeRecord) or NodeRecord()

    def keep_known(self, known: NodeRecord) -> None:
        self._write("known.json", msgspec.json.encode(known))

    def last_seen(self) -> datetime:
        """When an agent last looked at what runs here."""
        try:
            return datetime.fromtimestamp((self.path / "looked").stat().st_mtime, UTC)
        except FileNotFoundError:
            return datetime.now(UTC)

    def looked(self, states: Mapping[str, HealthState]) -> None:
        """Now was looked; how healthy the devices were is kept where that has changed in what outlives an agent."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        (self.path / "looked").touch()
        lasting = HealthRecord(boot_id(), {uuid: state for uuid, state in states.items() if state.cause})
        if lasting != self._lasting:
            self._write("health.json", msgspec.json.encode(lasting))
            self._lasting = lasting

    def health(self) -> Mapping[str, HealthState]:
        """The faults that were there when an agent looked last; none of an earlier boot, which is a reset."""
        kept = self._read("health.json", HealthRecord)
        return kept.states if kept is not None and kept.boot_id == boot_id() else {}

    def keep_energy(self, energy: Mapping[str, Energy]) -> None:
        self._write("energy.json", msgspec.json.encode(EnergyRecord(boot_id(), dict(energy))))

    def energy(self) -> Mapping[str, Energy]:
        """The totals to go on from; what the devices counted meanwhile is added by the first reading."""
        kept = self._read("energy.json", EnergyRecord)
        if kept is None:
            return {}
        if kept.boot_id == boot_id():
            return kept.energy
        return {gpu: replace(energy, at=None) for gpu, energy in kept.energy.items()}

    def _read(self, name: str, kind: type[T]) -> T | None:
        try:
            return msgspec.json.decode((self.path / name).read_bytes(), type=kind)
        except FileNotFoundError:
            return None

    def _write(self, name: str, content: bytes) -> None:
        """Whole or not at all, also when the machine dies; readable by its owner alone."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        durable.write(self.path / name, content)
