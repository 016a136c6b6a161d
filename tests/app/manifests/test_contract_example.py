"""The manifests of the contract, as they stand there, are read and right."""

from __future__ import annotations

import json

import pytest

from app.manifests.kinds import SPECS
from app.manifests.model import Kind
from app.manifests.reader import OFFLINE, read
from app.manifests.validate import validate

EXAMPLE = """\
apiVersion: gpuwright/v1
kind: GpuType
metadata: {name: v100-16gb}
spec:
  {memoryGib: 16, smCount: 80, pricePerHour: 1.2, idleW: 40, maxW: 300, clocksMhz: [600, 900, 1200, 1530],
   prices: [{region: eu, purchase: spot, perHour: 0.5}], rentable: 8}
---
apiVersion: gpuwright/v1
kind: Node
metadata: {name: node-1}
spec: {gpuType: v100-16gb, gpus: 4, cpuCores: 48, memoryGib: 256, region: default, purchase: owned,
       templates: [gpuwright-serve]}
---
apiVersion: gpuwright/v1
kind: Pool
metadata: {name: burst}
spec: {gpuType: v100-16gb, gpusPerNode: 4, cpuCores: 48, memoryGib: 256, min: 0, max: 4, startSeconds: 300,
  minimumMinutes: 60, hook: cloud}
---
apiVersion: gpuwright/v1
kind: Model
metadata: {name: resnet50}
spec:
  variants:
  - {name: fp16, accuracy: 0.761, paramsM: 25.6,
     runtime: {template: gpuwright-serve, args: {model: resnet50}}}
  tenants: [shop]
---
apiVersion: gpuwright/v1
kind: Profile            # one per variant and GPU type
metadata: {name: resnet50-fp16-v100}
spec:
  model: resnet50
  variant: fp16
  gpuType: v100-16gb
  latencyMs:
    1: {10: 21.0, 20: 11.2, 30: 8.9, 60: 8.1, 100: 7.9}
    8: {10: 96.0, 20: 49.0, 40: 27.5, 60: 23.0, 100: 22.1}
  memoryGib: {1: 1.2, 8: 1.9}
  cpuCores: 1
  hostMemoryGib: 2
  pressure: 0.7
  sensitivity: 0.25
  powerW: {10: 40, 100: 180}
  clockExponent: 0.8
  powerExponent: 2.5
  startSeconds: 20
---
apiVersion: gpuwright/v1
kind: Service
metadata: {name: search, tenant: shop}
spec:
  model: resnet50
  minAccuracy: 0.75
  slo: {latencyMs: 80, percentile: 98}
  ratePerSecond: 900
  gpuTypes: [v100-16gb]
  minInstances: 1
  isolation: shared
  priority: 100
---
apiVersion: gpuwright/v1
kind: Job
metadata: {name: finetune, tenant: lab}
spec:
  type: training
  steps: 200000
  deadline: 2026-12-01T00:00:00Z
  maxPricePerHour: 2
  preemptible: true
  priority: 100
  profiles:
    v100-16gb: {stepsPerSecond: {20: 1.1, 60: 2.6, 100: 3.4}, memoryGib: 9, cpuCores: 2, hostMemoryGib: 8,
                pressure: {20: 0.3, 100: 0.9}, sensitivity: 0.3, layers: {conv: 53, linear: 1}}
---
apiVersion: gpuwright/v1
kind: Policy
metadata: {name: default}
spec: {pricing: node, utilization: 0.8, execMargin: 0.05, profileQuantile: 0.9, objective: money, sameModelPerGpu: 1,
  clientsPerGpu: 48, jobsPerGpu: 3, planner: joint,
  movePrice: 0.05, horizonMinutes: 60, unservedPrice: 1000, unplacedPrice: 50, waitingPrice: 0.01,
  sharePressure: 0.5, energyPricePerKwh: 0, powerBudgetW: null, mode: advisory, cycleSeconds: 30,
  lostAfterSeconds: 120, downSeconds: 20, idleMinutes: 15, handover: overlap, handoverSeconds: 120, risk: 0.05}
---
apiVersion: gpuwright/v1
kind: Tenant
metadata: {name: shop}
spec: {guarantee: {gpus: 4}, limit: {gpus: 16, pricePerHour: 20}, budget: {perMonth: 9000, currency: EUR},
  overBudget: alarm}
---
apiVersion: gpuwright/v1
kind: State
metadata: {name: now}
spec:
  now: 2026-11-20T10:30:00Z
  running:
  - {id: i1, service: shop/search, node: node-1, gpu: 0, variant: fp16, batch: 8, batchTimeoutMs: 0.0,
     smPercent: 30, memoryGib: 1.9, clockMhz: 1530, ratePerSecond: 300.0,
     predicted: {execMs: 36.2, latencyMs: 71.0}}
  jobs:
  - {job: lab/finetune, node: node-1, gpu: 0, smPercent: 40, memoryGib: 9.0, steps: 1000,
     predicted: {stepsPerSecond: 1.7}}
"""


def test_every_manifest_of_the_contract_is_right() -> None:
    documents = read(EXAMPLE.encode(), "yaml", OFFLINE, "fleet.yaml")
    manifests, faults = validate(documents, default_tenant="default", offline=True)
    assert faults == []
    assert [manifest.kind for manifest in manifests] == list(Kind)
    assert manifests[4].document == "fleet.yaml#5"


def test_the_same_manifests_as_a_json_array_are_the_same_manifests() -> None:
    documents = read(EXAMPLE.encode(), "yaml")
    array = json.dumps([document.value for document in documents]).encode()
    assert read(array, "json") == documents
    assert read(array, "yaml") == documents


def test_a_spec_keeps_what_was_written_and_reads_with_the_contracts_defaults() -> None:
    text = "apiVersion: gpuwright/v1\nkind: Policy\nmetadata: {name: default}\nspec: {movePrice: 1}"
    (manifest,), faults = validate(read(text.encode(), "yaml"))
    assert not faults
    assert manifest.spec == {"movePrice": 1}
    policy = SPECS[Kind.POLICY].model_validate(manifest.spec)
    written = next(document.value for document in read(EXAMPLE.encode(), "yaml") if document.source == "input#8")
    assert isinstance(written, dict)
    later = {"movePrice": 1, "carbon": None, "shareAcrossTenants": True}
    assert policy.model_dump(by_alias=True) == {**written["spec"], **later}  # type: ignore[dict-item]


def test_tables_are_read_with_whole_numbers_as_keys() -> None:
    documents = read(EXAMPLE.encode(), "yaml")
    spec = documents[4].value["spec"]  # type: ignore[index,call-overload]
    profile = SPECS[Kind.PROFILE].model_validate(spec)
    assert profile.latency_ms[8][40] == 27.5  # type: ignore[attr-defined]
    assert profile.pressure == 0.7  # type: ignore[attr-defined]


@pytest.mark.parametrize("tenant", ["default", "shop"])
def test_a_service_without_a_tenant_belongs_to_the_default_one(tenant: str) -> None:
    text = (
        "{apiVersion: gpuwright/v1, kind: Service, metadata: {name: x},"
        " spec: {model: m, slo: {latencyMs: 8, percentile: 99}, ratePerSecond: 1}}"
    )
    (manifest,), _ = validate(read(text.encode(), "yaml"), default_tenant=tenant)
    assert manifest.tenant == tenant
