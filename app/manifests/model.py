"""The kinds of objects, and a validated manifest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, TypeAlias

JSON: TypeAlias = "bool | int | float | str | list[JSON] | dict[str, JSON] | None"
Free: TypeAlias = dict[str, Any]  # an object of JSON, whose fields those that wrote it have checked
Fields: TypeAlias = Mapping[str, Any]  # the same, to be read only
WrittenSpec: TypeAlias = Fields  # of an object, as it was written and checked; its kind says what it has

API_VERSION = "gpuwright/v1"


class Kind(StrEnum):
    """The kinds of objects that can be declared. State exists in offline files only."""

    GPU_TYPE = "GpuType"
    NODE = "Node"
    POOL = "Pool"
    MODEL = "Model"
    PROFILE = "Profile"
    SERVICE = "Service"
    JOB = "Job"
    POLICY = "Policy"
    TENANT = "Tenant"
    STATE = "State"

    @property
    def plural(self) -> str:
        """Returns the name of the kind in URLs and on the command line."""
        return PLURALS[self]

    @property
    def tenanted(self) -> bool:
        """True if an object of this kind belongs to a tenant."""
        return self in TENANTED


PLURALS: Mapping[Kind, str] = {
    Kind.GPU_TYPE: "gputypes",
    Kind.NODE: "nodes",
    Kind.POOL: "pools",
    Kind.MODEL: "models",
    Kind.PROFILE: "profiles",
    Kind.SERVICE: "services",
    Kind.JOB: "jobs",
    Kind.POLICY: "policies",
    Kind.TENANT: "tenants",
    Kind.STATE: "states",
}
TENANTED = frozenset({Kind.SERVICE, Kind.JOB})
STORED = tuple(kind for kind in Kind if kind is not Kind.STATE)
BY_PLURAL: Mapping[str, Kind] = {kind.plural: kind for kind in STORED}


class Key(NamedTuple):
    """The name of an object. `tenant` is empty for a cluster-wide kind."""

    kind: Kind
    tenant: str
    name: str

    @property
    def full_name(self) -> str:
        """Returns tenant/name, or the name alone where there is no tenant."""
        return f"{self.tenant}/{self.name}" if self.tenant else self.name

    def __str__(self) -> str:
        return f"{self.kind} {self.full_name}"


@dataclass(frozen=True, slots=True)
class Manifest:
    """A declared object: `spec` is what was written, without defaults, in JSON's types."""

    kind: Kind
    tenant: str
    name: str
    spec: WrittenSpec
    labels: dict[str, str] = field(default_factory=dict)
    document: str = ""  # where it was read: `fleet.yaml#3`

    @property
    def key(self) -> Key:
        return Key(self.kind, self.tenant, self.name)
