"""Whose a copy is: also that of a job that waits in host memory, of which no minute names the owner."""

from __future__ import annotations

from agents.contract.assignments import AssignedInstance, Assignment
from agents.contract.reports import Copy
from app.nodes.detail import NodeDetail
from app.nodes.running import owners_of, running, running_of_tenant

TRAIN = AssignedInstance("train-1", 0, tenant="lab", job="train")
ASSIGNMENT = Assignment("n1", 2, 1, 1, swapped=(TRAIN,))
DETAIL = NodeDetail(copies=(Copy("train-1.1", "train-1", 0, "swapped"),))


def test_a_job_in_host_memory_is_shown_as_its_tenants() -> None:
    owners = owners_of(DETAIL, ASSIGNMENT)
    assert [(copy.tenant, copy.job) for copy in running(DETAIL, owners)["copies"]] == [("lab", "train")]
    mine = running_of_tenant(DETAIL, owners, "lab")
    assert mine and [copy.instance for copy in mine["copies"]] == ["train-1"]
    assert running_of_tenant(DETAIL, owners, "shop") is None
