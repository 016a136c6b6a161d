"""Examples of the bodies that requests send, and what each group of routes is about."""

from __future__ import annotations

from collections.abc import Mapping

from app.manifests.model import API_VERSION, JSON, Kind

TAGS: Mapping[str, str] = {
    "apply": "Declare many objects at once, all or nothing, or see what that would change.",
    "audit": "Who did what, with the object before and after.",
    "campaigns": "Measure a model on a node's GPU, from which its Profile follows.",
    "cordons": "Keep plans off nodes and GPUs, empty them, and say that a cloud takes a node back.",
    "events": "What happened to objects, each with its reason.",
    "explain": "Why a service, a job, an instance, a node, a pool, a tenant, a plan or a profile is as it is.",
    "gateways": "For gateways: the endpoints to route to, and what they counted.",
    "gputypes": "Types of GPU: memory, clocks, watts, prices.",
    "health": "Whether the server works, and who the caller is.",
    "jobs": "Training and offline work that fills what services leave.",
    "logs": "What services and jobs print, from the nodes that run them.",
    "models": "Models with their variants, and how nodes start them.",
    "nodes": "Nodes with their GPUs, what runs there, and for agents: joining, reports and assignments.",
    "overview": "What runs, what it costs and what was decided, in one answer.",
    "plans": "Plans: their content, their history, and a person's decision about them.",
    "policies": "How the fleet is planned: mode, prices, risk, hand-overs.",
    "pools": "Nodes that can be rented when they are needed and given back when they are not.",
    "profiles": "How fast a model's variant is on a GPU type, and what it needs.",
    "reports": "Money, energy, usage and SLOs by period.",
    "scale": "Replicas in Kubernetes that scalers write, and a person's decision about them.",
    "services": "Models that are served, with the latency that is promised and the rate expected.",
    "slo": "How much of its promise each service kept, and how fast its error budget burns.",
    "tenants": "Tenants: guarantees, limits, budgets.",
    "tokens": "Tokens of people and machines, and those with which nodes join.",
    "watch": "Changes of objects as a stream that goes on where it ended.",
    "whatif": "What a change would cost: the best plan for now against the best plan with it. Nothing is stored.",
}


def _manifest(kind: Kind, name: str, spec: Mapping[str, JSON], tenant: str = "") -> dict[str, JSON]:
    metadata: dict[str, JSON] = {"name": name, "tenant": tenant} if tenant else {"name": name}
    return {"apiVersion": API_VERSION, "kind": str(kind), "metadata": metadata, "spec": dict(spec)}


LATENCIES: dict[str, JSON] = {"1": {"20": 12.0, "100": 4.0}, "8": {"20": 60.0, "100": 14.0}}
MANIFESTS: Mapping[Kind, dict[str, JSON]] = {
    Kind.GPU_TYPE: _manifest(
        Kind.GPU_TYPE,
        "v100-16gb",
        {"memoryGib": 16, "smCount": 80, "pricePerHour": 1.2, "idleW": 40, "maxW": 300, "clocksMhz": [600, 1530]},
    ),
    Kind.NODE: _manifest(Kind.NODE, "node-1", {"gpuType": "v100-16gb", "gpus": 4, "cpuCores": 48, "memoryGib": 256}),
    Kind.POOL: _manifest(
        Kind.POOL,
        "burst",
        {
            "gpuType": "v100-16gb", "gpusPerNode": 4, "cpuCores": 48, "memoryGib": 256, "max": 4, "startSeconds": 300,
            "minimumMinutes": 60, "hook": "cloud",
        },
    ),
    Kind.MODEL: _manifest(Kind.MODEL, "resnet50", {"variants": [{"name": "fp16", "accuracy": 0.761}]}),
    Kind.PROFILE: _manifest(
        Kind.PROFILE,
        "resnet50-fp16-v100-16gb",
        {
            "model": "resnet50", "variant": "fp16", "gpuType": "v100-16gb", "latencyMs": LATENCIES,
            "memoryGib": {"1": 1.2, "8": 1.6},
        },
    ),
    Kind.SERVICE: _manifest(
        Kind.SERVICE,
        "search",
        {"model": "resnet50", "slo": {"latencyMs": 80, "percentile": 98}, "ratePerSecond": 900},
        "shop",
    ),
    Kind.JOB: _manifest(
        Kind.JOB,
        "finetune",
        {
            "type": "training", "steps": 100000, "maxPricePerHour": 1,
            "profiles": {"v100-16gb": {"stepsPerSecond": {"100": 4.0}, "memoryGib": 8}},
        },
        "lab",
    ),
    Kind.POLICY: _manifest(Kind.POLICY, "default", {"mode": "approve"}),
    Kind.TENANT: _manifest(Kind.TENANT, "shop", {"guarantee": {"gpus": 2}, "budget": {"perMonth": 2000}}),
}  # fmt: skip
YAML = """\
apiVersion: gpuwright/v1
kind: Service
metadata: {name: search, tenant: shop}
spec: {model: resnet50, slo: {latencyMs: 80, percentile: 98}, ratePerSecond: 900}
"""
BODIES: Mapping[str, JSON] = {  # by the name of the body's schema
    "CampaignBody": {"model": "resnet50", "variant": "fp16", "node": "node-1", "gpu": 2, "most": 16},
    "CordonRequest": {"gpu": 2, "message": "its fan is loud"},
    "Files": {"files": [{"name": "search.yaml", "text": YAML}]},
    "GatewayCounts": {"began": "edge-1.1796021944", "sequence": 42},
    "JoinRequest": {"node": "node-1", "token": "gwj_8k2m4qx7_one-time-secret"},
    "JoinTokenRequest": {"node": "node-1", "expiresInSeconds": 600},
    "LogText": {"id": "c-4f1", "text": "step 100 of 1000\n", "ends": "4f1:17"},
    "MergePatch": {"spec": {"ratePerSecond": 1200}},
    "PersonRequest": {"idToken": "eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJhbm5hIn0.c2lnbmF0dXJl", "tenant": "shop"},
    "ProfilingReport": {"campaign": "c-0123456789"},
    "ReclaimRequest": {"seconds": 120, "message": "spot notice"},
    "Report": {
        "node": "node-1", "incarnation": 7, "sequence": 42, "at": "2026-12-01T12:00:30Z",
        "minute": "2026-12-01T12:00:00Z",
    },
    "ScaleWorkloads": {"workloads": ["shop/Deployment/search"]},
    "TokenRequest": {"scope": "viewer", "tenant": "shop", "label": "dashboard", "expiresInSeconds": 2592000},
    **{f"{kind}Manifest": manifest for kind, manifest in MANIFESTS.items()},
}  # fmt: skip
