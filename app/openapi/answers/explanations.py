"""Schemas of explanations and what-ifs: numbers, and the sentences that say them."""

from __future__ import annotations

from collections.abc import Mapping

from app.openapi.answers.parts import (
    MOMENT,
    NUMBER,
    NUMBERS,
    TEXT,
    TEXTS,
    WHOLE,
    YES_NO,
    Schema,
    array,
    component,
    nullable,
    record,
)
from app.openapi.answers.plans import COSTS, GPUS, INSTANCE

SHAPE: Mapping[str, Schema] = {
    "instance": component("ExplainedInstance"),
    "gpuType": TEXT,
    "costPerHour": NUMBER,
    "leastSmPercent": NUMBER,
    "batches": array("ExplainedBatch"),
}
SHAPE_OF_FLEET: Mapping[str, Schema] = {  # not for tenants
    "why": component("InstanceReasons"),
    "runnerUp": nullable("InstanceAlternative"),
    "alternatives": array("InstanceAlternative"),
    "unfit": array("UnfitGpuType"),
}
SERVICE_SIDE: Schema = {"anyOf": [component("WhatIfServiceSide"), {"type": "null"}]}
AMOUNT: Schema = {"anyOf": [component("SloAmount"), {"type": "null"}]}

EXPLANATIONS: Mapping[str, Schema] = {
    "ServiceExplanation": record(
        "Why a service has what it has, or lacks what it lacks",
        {
            "service": TEXT,
            "ratePerSecond": NUMBER,
            "costPerHour": NUMBER,
            "sentences": TEXTS,
            "instances": array("ExplainedInstance"),
            "unserved": nullable("UnservedReason"),
            "uncertainty": component("ProfileUncertainty"),
            "heldBack": array("HeldBackChange"),
        },
        {"shapes": array("ExplainedShape"), "lately": TEXTS},
    ),
    "ExplainedInstance": record("An instance of a service", INSTANCE, GPUS),
    "ExplainedShape": record("Why instances of a service look as they do", SHAPE, SHAPE_OF_FLEET),
    "InstanceExplanation": record(
        "Why an instance is where and how it is", {"sentences": TEXTS, **SHAPE}, SHAPE_OF_FLEET
    ),
    "ExplainedBatch": record(
        "What another batch would carry at the same share",
        {"batch": WHOLE, "ratePerSecond": NUMBER, "execMs": NUMBER},
    ),
    "InstanceReasons": record("Reasons in words", dict.fromkeys(("gpu", "batch", "smPercent", "notCheaper"), TEXT)),
    "InstanceAlternative": record(
        "Instances that could carry the same rate; `broken` names the rule that they break",
        {
            "words": TEXT,
            "gpuType": TEXT,
            "instances": WHOLE,
            "node": TEXT,
            "variant": TEXT,
            "batch": WHOLE,
            "smPercent": NUMBER,
            "opensGpus": YES_NO,
            "addsPerHour": NUMBER,
            "churn": NUMBER,
            "right": YES_NO,
            "broken": nullable(TEXT),
        },
    ),
    "UnfitGpuType": record("A GPU type that cannot carry the rate, and why", {"gpuType": TEXT, "reason": TEXT}),
    "UnservedReason": record(
        "The rate that is not served, why, and the least change that would help; `proved` if that was verified",
        {"ratePerSecond": NUMBER, "reason": TEXT, "relaxation": TEXT, "proved": YES_NO},
    ),
    "ProfileUncertainty": record(
        "What a service pays for profiles that are not known well",
        {"couldSavePerHour": NUMBER, "worthProfiling": YES_NO, "spreads": array("ProfileSpread")},
    ),
    "ProfileSpread": record(
        "How uncertain an execution time is",
        {
            "gpuType": TEXT,
            "batch": WHOLE,
            "smPercent": NUMBER,
            "meanMs": NUMBER,
            "plannedMs": NUMBER,
            "quantile": NUMBER,
            "n": nullable(WHOLE),
            "at": nullable(TEXT),
            "source": TEXT,
        },
    ),
    "JobExplanation": record(
        "Where a job runs and when it ends, or why it waits",
        {
            "job": TEXT,
            "phase": TEXT,
            "left": NUMBER,
            "endsAt": nullable(MOMENT),
            "placed": nullable("JobPlace"),
            "reason": TEXT,
            "relaxation": TEXT,
            "predicted": {"type": "object", "additionalProperties": TEXTS},
            "sentences": TEXTS,
        },
    ),
    "JobPlace": record(
        "The GPU of a job",
        {
            "node": TEXT,
            "gpu": WHOLE,
            "gpuType": TEXT,
            "smPercent": NUMBER,
            "memoryGib": NUMBER,
            "unitsPerSecond": NUMBER,
        },
    ),
    "ProfileExplanation": record(
        "What was declared at each point of a profile, and what measurements made of it",
        {
            **dict.fromkeys(("profile", "model", "variant", "gpuType"), TEXT),
            "sentences": TEXTS,
            "regions": array("ProfilePoint"),
            **dict.fromkeys(("sensitivityFactor", "memoryFactor", "powerFactor", "lateShare"), NUMBER),
            "steppedAt": nullable(TEXT),
        },
    ),
    "ProfilePoint": record(
        "A point of a profile",
        {
            "batch": WHOLE,
            **dict.fromkeys(("smPercent", "declaredMs", "factor", "plannedMs"), NUMBER),
            "source": TEXT,
            "n": WHOLE,
            "at": nullable(TEXT),
        },
    ),
    "NodeExplanation": record(
        "What the plan runs on a node, and what keeps plans off it",
        {
            "node": TEXT,
            "gpuType": TEXT,
            "gpus": array("NodeGpuUse"),
            "releasable": YES_NO,
            "limits": TEXTS,
            "sentences": TEXTS,
        },
    ),
    "NodeGpuUse": record(
        "What the plan runs on a GPU, and what is free",
        {
            "gpu": WHOLE,
            **dict.fromkeys(("smPercent", "memoryGib", "freeSmPercent", "freeMemoryGib"), NUMBER),
            "services": TEXTS,
            "jobs": TEXTS,
        },
    ),
    "TenantExplanation": record(
        "What a tenant has in the plan, what it lacks, and what limits it",
        {
            "tenant": TEXT,
            "services": TEXTS,
            "jobs": TEXTS,
            "instances": WHOLE,
            "usedGpus": NUMBER,
            "unserved": array("PlanUnserved"),
            "unplaced": array("PlanUnplaced"),
            "limits": TEXTS,
            "sentences": TEXTS,
        },
    ),
    "PlanExplanation": record(
        "A plan in sentences, and why nothing has changed since; a tenant gets `others` instead of the fleet's parts",
        {"generation": WHOLE, "sentences": TEXTS},
        {
            "lately": TEXTS,
            "heldBack": array("HeldBackChange"),
            "certificate": nullable("PlanCertificate"),
            "worthProfiling": array("WorthProfiling"),
            "others": component("PlanOthers"),
        },
    ),
    "WorthProfiling": record(
        "A service whose profiles are worth measuring again",
        {"service": TEXT, "couldSavePerHour": NUMBER, "costPerHour": NUMBER},
    ),
    "WhatIfAnswer": record(
        "The best plan for now against the best plan with the change; nothing is stored",
        {
            "before": component("WhatIfSide"),
            "after": component("WhatIfSide"),
            "inForce": component("PlanInForce"),
            "costDelta": NUMBER,
            "changes": component("PlanChanges"),
            "churnCost": NUMBER,
            "services": array("WhatIfService"),
            "servicesLeftOut": WHOLE,
            "unserved": array("PlanUnserved"),
            "releasable": array("ReleasableNode"),
            "seconds": NUMBER,
            "notKept": array("NotKeptService"),
            "sentences": TEXTS,
        },
        {
            "sloPrices": array("SloPrice"),
            "notPriced": WHOLE,
            "front": array("ObjectivePoint"),
            "plan": component("PlanBody"),
        },
    ),
    "WhatIfSide": record(
        "What a plan costs an hour and uses",
        {
            **COSTS,
            "bound": nullable(NUMBER),
            "gpus": WHOLE,
            "instances": WHOLE,
            "unserved": WHOLE,
            "unservedPerSecond": NUMBER,
            "method": TEXT,
        },
    ),
    "PlanInForce": record(
        "What the plan in force costs at today's rates; zeros without a plan",
        {"resourceCost": NUMBER, "unservedPerSecond": NUMBER, "gpus": WHOLE, "instances": WHOLE},
    ),
    "WhatIfService": record(
        "A service before and after; null where it does not exist",
        {"service": TEXT, "before": SERVICE_SIDE, "after": SERVICE_SIDE},
    ),
    "WhatIfServiceSide": record(
        "What a service needs and has",
        {
            "instances": WHOLE,
            **dict.fromkeys(("ratePerSecond", "unservedPerSecond", "sloMs", "latencyMs", "costPerHour"), NUMBER),
        },
    ),
    "NotKeptService": record("A service whose promise cannot be kept, and why", {"service": TEXT, "reason": TEXT}),
    "SloPrice": record(
        "What an SLO costs an hour; null where it was not found out",
        {
            "service": TEXT,
            "sloMs": NUMBER,
            "costsPerHour": AMOUNT,
            "shorterAddsPerHour": AMOUNT,
            "longerSavesPerHour": AMOUNT,
        },
    ),
    "SloAmount": record("Money an hour, for GPUs and for what is unserved", {"gpus": NUMBER, "unserved": NUMBER}),
    "ObjectivePoint": record(
        "A plan between money, energy, carbon and accuracy",
        {
            "best": TEXTS,
            "weights": NUMBERS,
            "moneyPerHour": NUMBER,
            "gpusPerHour": NUMBER,
            "energyKwh": NUMBER,
            "carbonKg": nullable(NUMBER),
            "accuracy": nullable(NUMBER),
            "gpus": WHOLE,
            "unservedPerSecond": NUMBER,
            "bound": nullable(NUMBER),
        },
    ),
}
