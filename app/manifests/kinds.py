"""The spec class of each kind."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, TypeAlias

from app.manifests.fleet import GpuTypeSpec, NodeSpec, PolicySpec, TenantSpec
from app.manifests.model import Kind
from app.manifests.pools import PoolSpec
from app.manifests.served import ModelSpec, ProfileSpec
from app.manifests.spec import Spec
from app.manifests.work import JobSpec, ServiceSpec, StateSpec

Schema: TypeAlias = dict[str, Any]

SPECS: Mapping[Kind, type[Spec]] = {
    Kind.GPU_TYPE: GpuTypeSpec,
    Kind.NODE: NodeSpec,
    Kind.POOL: PoolSpec,
    Kind.MODEL: ModelSpec,
    Kind.PROFILE: ProfileSpec,
    Kind.SERVICE: ServiceSpec,
    Kind.JOB: JobSpec,
    Kind.POLICY: PolicySpec,
    Kind.TENANT: TenantSpec,
    Kind.STATE: StateSpec,
}


@cache
def schema(kind: Kind) -> Schema:
    """Returns the JSON Schema of the kind's spec."""
    return SPECS[kind].model_json_schema()
