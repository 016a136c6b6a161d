"""Schemas of what runs: the overview, nodes, cordons, logs, and campaigns that measure."""

from __future__ import annotations

from collections.abc import Mapping

from app.openapi.answers.parts import (
    FREE,
    MOMENT,
    NUMBER,
    SEVERITY,
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

CAMPAIGN: Mapping[str, Schema] = {
    **dict.fromkeys(("id", "node", "gpuType", "model", "variant", "state", "askedBy"), TEXT),
    **dict.fromkeys(("gpu", "most", "measured"), WHOLE),
    "reason": nullable(TEXT),
    "message": nullable(TEXT),
    "accuracy": nullable(NUMBER),
    "failures": array("CampaignFailure"),
    "batches": WHOLES,
    "smPercents": array(NUMBER),
    "neighbours": TEXTS,
    "clocksMhz": array(NUMBER),
    "askedAt": MOMENT,
    "beganAt": nullable(MOMENT),
    "endedAt": nullable(MOMENT),
}
NODE: Mapping[str, Schema] = {"node": TEXT, "receivedAt": MOMENT, "health": TEXT}
NODE_OF_FLEET: Mapping[str, Schema] = {
    "at": MOMENT,
    "bootId": TEXT,
    "message": TEXT,
    "epoch": WHOLE,
    "generation": WHOLE,
    "assignmentVersion": WHOLE,
}
OWNER: Mapping[str, Schema] = dict.fromkeys(("tenant", "service", "job"), TEXT)

FLEET: Mapping[str, Schema] = {
    "Overview": record(
        "The system at a glance; a tenant gets its services only, and `leftOut` names what this server cannot tell",
        {"services": array("OverviewService"), "leftOut": TEXTS},
        {
            "gpus": array("OverviewGpu"),
            "leaving": array("LeavingGpu"),
            "plan": nullable("PlanHead"),
            "decisions": array("PlanHead"),
            "cycles": array("Cycle"),
            "events": array("OverviewEvent"),
            "money": component("MoneyOutlook"),
            "leader": nullable("Leader"),
        },
    ),
    "OverviewService": record(
        "A service: what was measured, and what the plan expects",
        {
            "service": TEXT,
            **{name: nullable(NUMBER) for name in ("ratePerSecond", "attained", "burnRate", "budgetLeft")},
            **dict.fromkeys(("plannedPerSecond", "unservedPerSecond", "sloMs", "percentile"), NUMBER),
            **{name: nullable(NUMBER) for name in ("tpotMs", "latencyMs", "pricePerHour")},
            "instances": WHOLE,
            "routed": WHOLE,
        },
    ),
    "OverviewGpu": record(
        "A GPU that the plan uses, with its last minute",
        {
            "node": TEXT,
            "gpu": WHOLE,
            "smPercent": NUMBER,
            "memoryGib": NUMBER,
            "services": TEXTS,
            "jobs": TEXTS,
            "powerW": nullable(NUMBER),
            "utilizationPercent": nullable(NUMBER),
        },
    ),
    "LeavingGpu": record(
        "A GPU that the plan does not use and that still has copies of services",
        {"node": TEXT, "gpu": WHOLE, "smPercent": NUMBER, "memoryGib": NUMBER},
    ),
    "OverviewEvent": record(
        "An alarm or a warning of the last hour",
        {
            "at": MOMENT,
            "severity": SEVERITY,
            **dict.fromkeys(("reason", "kind", "tenant", "name", "message"), TEXT),
        },
    ),
    "Cycle": record(
        "A round of the planner and its outcome",
        {
            "id": WHOLE,
            "at": MOMENT,
            "epoch": WHOLE,
            "outcome": TEXT,
            "reason": nullable(TEXT),
            "message": nullable(TEXT),
            "generation": nullable(WHOLE),
        },
    ),
    "Leader": record("The planner that leads", {"holder": TEXT, "epoch": WHOLE, "held": YES_NO}),
    "NodeState": record(
        "What runs on a node; a tenant gets its own copies, and in `others` how many more there are",
        {
            **NODE,
            "copies": array("OwnedCopy"),
            "heldBack": array("OwnedHeldBack"),
            "excursions": array("OwnedExcursion"),
            "repartition": WHOLES,
        },
        {**NODE_OF_FLEET, "others": component("NodeOthers")},
    ),
    "NodeOthers": record("How much belongs to other tenants", {"tenant": TEXT, "copies": WHOLE, "heldBack": WHOLE}),
    "NodeTelemetry": record(
        "The last report of a node, and its minutes",
        {
            "node": TEXT,
            "state": component("ReportedNode"),
            "gpus": array("GpuTelemetry"),
            "instances": array("InstanceTelemetry"),
        },
    ),
    "ReportedNode": record("The last report of a node", {**NODE, **NODE_OF_FLEET, "inventory": nullable(FREE)}),
    "GpuTelemetry": record(
        "A minute of a GPU",
        {
            "minute": MOMENT,
            "gpu": WHOLE,
            "health": TEXT,
            **{name: nullable(NUMBER) for name in ("utilizationPercent", "memoryUsedGib", "powerMeanW", "powerPeakW")},
            **{name: nullable(NUMBER) for name in ("energyCounterMj", "temperatureC", "smClockMhz")},
            "throttleReasons": TEXTS,
            "reason": TEXT,
            "fenced": YES_NO,
            "limits": nullable(FREE),
        },
    ),
    "InstanceTelemetry": record(
        "A minute of an instance",
        {
            "minute": MOMENT,
            "instance": TEXT,
            "gpu": WHOLE,
            **OWNER,
            **{name: nullable(NUMBER) for name in ("smPercent", "memoryGib", "batchMean", "queueMean", "busySeconds")},
            **dict.fromkeys(("requests", "errors", "tokensIn", "tokensOut", "paced", "paceLate"), WHOLE),
            "latencyCounts": WHOLES,
            "limits": nullable(FREE),
            "source": TEXT,
            "steps": nullable(NUMBER),
        },
    ),
    "Cordon": record(
        "A node, or one GPU of it, that plans keep off; gpu null: all of them",
        {
            "node": TEXT,
            "gpu": nullable(WHOLE),
            "mode": TEXT,
            "deadline": nullable(MOMENT),
            "askedBy": TEXT,
            "askedAt": MOMENT,
            "message": TEXT,
        },
    ),
    "CordonList": listing("CordonList", "Cordon", paged=False),
    "LogPart": record(
        "What a copy printed; `answered` is false if its node did not answer in time",
        {"instance": TEXT, "node": TEXT, "copy": nullable(TEXT), "text": TEXT, "answered": YES_NO},
    ),
    "LogList": record(
        "What copies printed; `after` of this answer asks for what follows",
        {"kind": {"const": "LogList"}, "items": array("LogPart"), "after": TEXT},
    ),
    "Campaign": record("Measurements of a model on a GPU", CAMPAIGN),
    "CampaignFailure": record(
        "A setting that could not be measured", {"setting": component("CopySetting"), "reason": TEXT}, {"message": TEXT}
    ),
    "CampaignList": listing("CampaignList", "Campaign", paged=False),
    "CampaignDetail": record(
        "A campaign with its measurements; at its end the Profiles that they make",
        {
            **CAMPAIGN,
            "measurements": array("MeasuredSetting"),
            "leftOutError": nullable(NUMBER),
            "profiles": array("ProfileManifest"),
        },
        {"secondsLeft": NUMBER},
    ),
}


def owned(reported: Mapping[str, Schema]) -> dict[str, Schema]:
    """Returns what nodes report of instances, with the owner of each; a tenant's view leaves some fields out."""
    found = {}
    for name in ("Copy", "HeldBack", "Excursion"):
        line = reported[name]
        found[f"Owned{name}"] = {
            "type": "object",
            "description": f"{line['description'].rstrip('.')}, with its owner",
            "required": line["required"],
            "properties": {**OWNER, **line["properties"]},
        }
    return found
