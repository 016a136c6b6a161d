"""What of an explanation a tenant is shown: nothing that names what others run."""

from __future__ import annotations

import json

from app.access import Principal, Reach, Scope
from app.api.explain import shown

WHY = "why this GPU: lab/x pay for it, so that the job costs nothing there"
JOB = {"job": "shop/tune", "reason": WHY, "relaxation": "", "sentences": ["shop/tune runs on node-0/1", WHY]}
TENANT, VIEWER = Principal("t1", Scope.VIEWER, "shop"), Principal("v1", Scope.VIEWER)


def test_a_tenant_is_not_told_whose_services_pay_for_the_gpu_of_its_job() -> None:
    own = shown(JOB, TENANT, Reach.OWN)
    assert "lab" not in json.dumps(own)
    assert own["sentences"] == ["shop/tune runs on node-0/1"]
    assert shown(JOB, VIEWER, Reach.ALL) == JOB


def test_why_its_job_waits_is_told_to_a_tenant() -> None:
    waits = JOB | {"reason": "of 4 GPUs it has a profile for: 4 with too few SM% left"}
    assert shown(waits, TENANT, Reach.OWN)["reason"] == waits["reason"]
