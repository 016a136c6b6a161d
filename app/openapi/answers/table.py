"""Names the schema that each operation answers with; a route without a line here, or a line too many, is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.openapi.answers.explanations import EXPLANATIONS
from app.openapi.answers.fleet import FLEET, owned
from app.openapi.answers.parts import PARTS, component
from app.openapi.answers.plans import PLANS
from app.openapi.answers.records import RECORDS

SCALE_ACTIONS = ("approve", "reject")
PLAN_ACTIONS = ("approve", "reject", "pause", "resume", "abort")
ANSWERS: Mapping[str, tuple[int, str]] = {
    "apply": (200, "Applied"),
    "attainment": (200, "AttainmentList"),
    "cordon": (200, "Cordon"),
    "createCampaign": (201, "Campaign"),
    "createJoinToken": (201, "NewJoinToken"),
    "createSignInLink": (201, "SignInLink"),
    "createToken": (201, "NewToken"),
    "currentPlan": (200, "Plan"),
    "diffPlan": (200, "PlanDifference"),
    "drain": (200, "Cordon"),
    "explainInstance": (200, "InstanceExplanation"),
    "explainJob": (200, "JobExplanation"),
    "explainNode": (200, "NodeExplanation"),
    "explainPlan": (200, "PlanExplanation"),
    "explainProfile": (200, "ProfileExplanation"),
    "explainService": (200, "ServiceExplanation"),
    "explainTenant": (200, "TenantExplanation"),
    "getPlan": (200, "Plan"),
    "healthz": (200, "Health"),
    "jobLogs": (200, "LogList"),
    "join": (201, "NodeToken"),
    "listAudit": (200, "AuditList"),
    "listCampaigns": (200, "CampaignList"),
    "listCordons": (200, "CordonList"),
    "listEvents": (200, "EventList"),
    "listJoinTokens": (200, "JoinTokenList"),
    "listPlans": (200, "PlanList"),
    "listReports": (200, "ReportList"),
    "listTokens": (200, "TokenList"),
    "nodeTelemetry": (200, "NodeTelemetry"),
    "overview": (200, "Overview"),
    "pauseScalers": (200, "ScalePause"),
    "planRecord": (200, "PlanRecord"),
    "readCampaign": (200, "CampaignDetail"),
    "readReport": (200, "MoneyReport"),
    "readScalePlan": (200, "ScalePlan"),
    "readyz": (200, "Readiness"),
    "reclaim": (200, "Cordon"),
    "resumeScalers": (200, "ScalePause"),
    "revokeJoinToken": (200, "JoinToken"),
    "revokeToken": (200, "Token"),
    "rollbackPlan": (202, "PlanRollback"),
    "rotate": (201, "NodeToken"),
    "serviceLogs": (200, "LogList"),
    "stateOfNode": (200, "NodeState"),
    "stopCampaign": (200, "Campaign"),
    "uncordon": (200, "CordonList"),
    "whatIf": (200, "WhatIfAnswer"),
    "whoami": (200, "Whoami"),
    "withdrawReclaim": (200, "Cordon"),
    **{f"{verb}Plan": (200, "PlanAction") for verb in PLAN_ACTIONS},
    **{f"{verb}Scale": (200, "ScalePlan") for verb in SCALE_ACTIONS},
}
ALSO: Mapping[str, Mapping[str, Any]] = {  # other media types of the same answer
    "readReport": {"text/csv": {"schema": {"type": "string"}}},
}


def schemas(reported: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the schemas of all answers; those of copies extend what nodes report."""
    return {**PARTS, **PLANS, **EXPLANATIONS, **FLEET, **RECORDS, **owned(reported)}


def answer_of(operation_id: str) -> tuple[str, dict[str, Any]] | None:
    """Returns the status of success of an operation and its answer; None where its route describes it itself."""
    if operation_id not in ANSWERS:
        return None
    status, name = ANSWERS[operation_id]
    content = {"application/json": {"schema": component(name)}, **ALSO.get(operation_id, {})}
    return str(status), {"description": "Created" if status == 201 else "Done", "content": content}
