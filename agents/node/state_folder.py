"""Keeps the agent's state on disk: credential, incarnation, newest assignment, GPU indexes, health and energy."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from agents.contract.assignments import Assignment
from agents.host import durable
from agents.host.clocks import boot_id
from agents.node.gpu_indexes import IndexedGpu
from agents.policy.health import HealthState
from agents.policy.power.energy import Energy

T = TypeVar("T")

KEY_BYTES = 32
DEVICES = "devices.json"


class NextToken(msgspec.Struct, rename="camel"):
    """A token that will replace the one in use."""

    token: str
    issued_at: datetime | None = None
    expires_at: datetime | None = None


class PodJoin(msgspec.Struct, rename="camel"):
    """How a node joins whose agent is a pod: by a token that Kubernetes renews in a file, as often as it has to."""

    node: str  # as Kubernetes calls it
    token_file: str
    spec: dict[str, Any]


class Credential(msgspec.Struct, rename="camel"):
    """The node's name, its control plane and its token."""

    server: str
    node: str
    token: str
    ca_file: str = ""
    # By the control plane's clock; None if the server sets no end.
    issued_at: datetime | None = None
    expires_at: datetime | None = None
    next: NextToken | None = None  # received and not used yet; until then both are kept
    pod: PodJoin | None = None  # None if it joined with a one-time token


class AgentMemory(msgspec.Struct, rename="camel"):
    """The state that must survive a restart. `incarnation` only grows and orders reports across restarts."""

    incarnation: int = 0
    epoch: int = 0
    generation: int = 0
    assignment: Assignment | None = None


class NodeRecord(msgspec.Struct, rename="camel"):
    """The device that each index means, and the GPUs that an operator has drained."""

    gpus: dict[int, IndexedGpu] = {}
    draining: list[str] = []


class EnergyRecord(msgspec.Struct, rename="camel"):
    """The last energy count of each GPU, and the boot whose clock its times belong to."""

    boot_id: str = ""
    energy: dict[str, Energy] = {}


class HealthRecord(msgspec.Struct, rename="camel"):
    """GPUs with a fault, within one boot of the machine."""

    boot_id: str = ""
    states: dict[str, HealthState] = {}


class StateFolder:
    """The agent's folder, which only its user can read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lasting: HealthRecord | None = None

    def credential(self) -> Credential | None:
        return self._read("credential.json", Credential)

    def keep_credential(self, credential: Credential) -> None:
        self._write("credential.json", msgspec.json.encode(credential))

    def memory(self) -> AgentMemory:
        return self._read("memory.json", AgentMemory) or AgentMemory()

    def keep_memory(self, memory: AgentMemory) -> None:
        self._write("memory.json", msgspec.json.encode(memory))

    def control_key(self) -> bytes:
        """Returns the node's key for the tokens of its copies; creates it at the first start."""
        path = self.path / "control.key"
        with suppress(FileNotFoundError):
            key = path.read_bytes()
            if len(key) == KEY_BYTES:
                return key
        key = secrets.token_bytes(KEY_BYTES)
        self._write("control.key", key)
        return key

    def node_record(self) -> NodeRecord:
        return self._read(DEVICES, NodeRecord) or NodeRecord()

    def keep_node_record(self, record: NodeRecord) -> None:
        self._write(DEVICES, msgspec.json.encode(record))

    def forget_indexes(self) -> None:
        """Forgets which device each index means; drains stay with the devices."""
        self.keep_node_record(NodeRecord({}, self.node_record().draining))

    def last_seen(self) -> datetime:
        """Returns when an agent last looked at what runs here."""
        try:
            return datetime.fromtimestamp((self.path / "looked").stat().st_mtime, UTC)
        except FileNotFoundError:
            return datetime.now(UTC)

    def record_look(self, states: Mapping[str, HealthState]) -> None:
        """Records that an agent has just looked, and writes device health if its lasting part has changed."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        (self.path / "looked").touch()
        lasting = HealthRecord(boot_id(), {uuid: state for uuid, state in states.items() if state.cause})
        if lasting != self._lasting:
            self._write("health.json", msgspec.json.encode(lasting))
            self._lasting = lasting

    def health(self) -> Mapping[str, HealthState]:
        """Returns the faults at an agent's last look; those of an earlier boot are dropped: a boot resets devices."""
        stored = self._read("health.json", HealthRecord)
        return stored.states if stored is not None and stored.boot_id == boot_id() else {}

    def keep_energy(self, energy: Mapping[str, Energy]) -> None:
        self._write("energy.json", msgspec.json.encode(EnergyRecord(boot_id(), dict(energy))))

    def energy(self) -> Mapping[str, Energy]:
        """Returns the totals to continue from; the first reading adds what the devices counted meanwhile."""
        stored = self._read("energy.json", EnergyRecord)
        if stored is None:
            return {}
        if stored.boot_id == boot_id():
            return stored.energy
        return {gpu: replace(energy, at=None) for gpu, energy in stored.energy.items()}

    def _read(self, name: str, kind: type[T]) -> T | None:
        try:
            return msgspec.json.decode((self.path / name).read_bytes(), type=kind)
        except FileNotFoundError:
            return None

    def _write(self, name: str, content: bytes) -> None:
        """Writes a file atomically, readable by its owner only."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        durable.write(self.path / name, content)
