"""Schemas of plans: their history, content, differences and certificates, and what operators do to them."""

from __future__ import annotations

from collections.abc import Mapping

from app.openapi.answers.parts import (
    FREE,
    MOMENT,
    NUMBER,
    NUMBERS,
    TEXT,
    TEXTS,
    WHOLE,
    WHOLES,
    YES_NO,
    Schema,
    array,
    component,
    listing,
    nullable,
    record,
)
from solvers.planning.plan_fields import CHANGES

COSTS = dict.fromkeys(("cost", "resourceCost", "unservedCost"), NUMBER)
HEAD: Mapping[str, Schema] = {
    "generation": WHOLE,
    "at": MOMENT,
    "lane": TEXT,
    "state": TEXT,
    "reason": nullable(TEXT),
    "base": nullable(WHOLE),
    "services": TEXTS,
}
HEAD_OF_FLEET: Mapping[str, Schema] = {  # not for tenants
    "epoch": WHOLE,
    "message": nullable(TEXT),
    "method": nullable(TEXT),
    **{name: nullable(NUMBER) for name in (*COSTS, "unservedPerSecond", "bound", "gap")},
    "changes": {"anyOf": [component("PlanChanges"), {"type": "null"}]},
    "decidedBy": nullable(TEXT),
    "decidedAt": nullable(MOMENT),
    "asked": TEXTS,
    "rollout": nullable(FREE),
}
LINES: Mapping[str, Schema] = {
    "instances": array("PlanInstance"),
    "jobs": array("PlanJob"),
    "unserved": array("PlanUnserved"),
    "unplaced": array("PlanUnplaced"),
}
WHOLE_PLAN: Mapping[str, Schema] = {
    "warnings": TEXTS,
    "releasable": array("ReleasableNode"),
    "changes": component("PlanChanges"),
    "certificate": nullable("PlanCertificate"),
}
GPUS: Mapping[str, Schema] = {"gpu": WHOLE, "gpus": WHOLES}  # one of them: several where an instance has several
INSTANCE: Mapping[str, Schema] = {
    "id": TEXT,
    "service": TEXT,
    "node": TEXT,
    "variant": TEXT,
    "batch": WHOLE,
    "smPercent": NUMBER,
    "memoryGib": NUMBER,
    "ratePerSecond": NUMBER,
    "predicted": component("PredictedTimes"),
}
ACTED: Mapping[str, Schema] = {"generation": WHOLE, "state": TEXT}

SCALED: Mapping[str, Schema] = {
    **dict.fromkeys(("namespace", "kind", "name", "service", "mode"), TEXT),
    **dict.fromkeys(("replicas", "wanted"), nullable(WHOLE)),
    **dict.fromkeys(("why", "hold", "state"), TEXT),
    "since": WHOLE,
    "decidedBy": nullable(TEXT),
    "decidedAt": nullable(MOMENT),
    "resourceVersion": nullable(TEXT),
    **dict.fromkeys(("writtenAt", "settledAt"), nullable(MOMENT)),
    "outcome": TEXT,
    "tries": WHOLE,
    "retryAt": nullable(MOMENT),
}

PLANS: Mapping[str, Schema] = {
    "ScalePause": record(
        "Whether a person has paused all scalers, and how many writes that had begun may still be done",
        {"kind": {"const": "ScalePause"}, "paused": YES_NO},
        {"by": TEXT, "since": MOMENT, "message": TEXT, "writing": WHOLE},
    ),
    "ScalePlan": record(
        "A plan for replicas of workloads in a cluster; at `confirmedAt` a scaler decided the same again",
        {
            "kind": {"const": "ScalePlan"},
            "generation": WHOLE,
            "at": MOMENT,
            "confirmedAt": MOMENT,
            "pause": component("ScalePause"),
            "items": array("ScaledWorkload"),
        },
    ),
    "ScaledWorkload": record(
        "The replicas that a workload has and should have; `since` is the first plan that said so", SCALED
    ),
    "PlanHead": record("A plan as lists show it", HEAD, HEAD_OF_FLEET),
    "PlanList": listing("PlanList", "PlanHead"),
    "Plan": record(
        "A plan; a tenant gets its own lines, and in `others` how many more there are",
        {**HEAD, **LINES, "heldBack": array("HeldBackChange")},
        {**HEAD_OF_FLEET, **WHOLE_PLAN, "others": component("PlanOthers")},
    ),
    "PlanBody": record("What a plan runs, and its proof", {**LINES, **WHOLE_PLAN}),
    "PlanInstance": record(
        "An instance of a service", {**INSTANCE, "batchTimeoutMs": NUMBER, "clockMhz": NUMBER}, GPUS
    ),
    "PredictedTimes": record(
        "Predicted times; of a language model latencyMs is that of the first token",
        {"execMs": NUMBER, "latencyMs": NUMBER},
        {"ttftMs": NUMBER, "tpotMs": NUMBER},
    ),
    "PlanJob": record(
        "A job on a GPU; `predicted` has its speed, as stepsPerSecond or requestsPerSecond",
        {"job": TEXT, "node": TEXT, "gpu": WHOLE, "smPercent": NUMBER, "memoryGib": NUMBER, "predicted": NUMBERS},
    ),
    "PlanUnserved": record(
        "A rate that the plan does not serve, and the least change that would help",
        {"service": TEXT, "ratePerSecond": NUMBER, "reason": TEXT, "relaxation": TEXT},
    ),
    "PlanUnplaced": record("A job that waits", {"job": TEXT, "reason": TEXT, "relaxation": TEXT}),
    "ReleasableNode": record("A node that the fleet could give back", {"node": TEXT, "perHour": NUMBER}),
    "PlanChanges": record("How many instances a plan changes, by what is done", dict.fromkeys(CHANGES, WHOLE)),
    "PlanCertificate": record(
        "The judged cost of a plan, and the bound below which no plan can be",
        {
            **COSTS,
            "jobCost": NUMBER,
            "churnCost": NUMBER,
            "bound": nullable(NUMBER),
            "gap": nullable(NUMBER),
            "boundAgeSeconds": nullable(NUMBER),
            "noBoundReason": TEXT,
            "method": TEXT,
            "work": WHOLE,
            "seconds": NUMBER,
        },
    ),
    "HeldBackChange": record(
        "A change that is not made, and why",
        {"service": TEXT, "reason": TEXT, "message": TEXT},
        {"needsSmPercent": NUMBER, "needsMemoryGib": NUMBER},
    ),
    "PlanOthers": record(
        "How many lines belong to other tenants", {"tenant": TEXT, **dict.fromkeys((*LINES, "heldBack"), WHOLE)}
    ),
    "PlanCosts": record("What a plan costs an hour", COSTS),
    "PlanCostChange": record(
        "What two plans cost an hour; null without a certificate",
        {"before": nullable("PlanCosts"), "after": nullable("PlanCosts")},
    ),
    "ServiceShapes": record(
        "What a service has in a plan",
        {"instances": WHOLE, "ratePerSecond": NUMBER, "unservedPerSecond": NUMBER, "shapes": TEXTS},
    ),
    "ServiceDifference": record(
        "What a plan changes for a service",
        {
            "service": TEXT,
            "words": TEXT,
            "before": component("ServiceShapes"),
            "after": component("ServiceShapes"),
            **dict.fromkeys(("started", "stopped", "moved", "resized", "retuned", "kept"), WHOLE),
            "reasons": TEXTS,
        },
    ),
    "PlanDifference": record(
        "What a plan changes against another; against 0: against nothing",
        {"generation": WHOLE, "against": WHOLE, "services": array("ServiceDifference"), "unchanged": WHOLE},
        {"cost": component("PlanCostChange")},
    ),
    "PlanRecord": {**FREE, "description": "All that a plan was made from, for `gpuwright replay`"},
    "PlanAction": record("The state of a plan after an action, and before", {**ACTED, "before": TEXT}),
    "PlanRollback": record(
        "A rollback that the leader will carry out", {**ACTED, "asked": {"const": "rollback"}, "to": WHOLE}
    ),
}
