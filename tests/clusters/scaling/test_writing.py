"""What a write makes of answers that no API server of ours gives."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from clusters.decided_bounds import AnnotatedBounds
from clusters.estate import WorkloadName
from clusters.scaling.adoption import AdoptedWorkload
from clusters.scaling.server import ScaleServer
from clusters.scaling.writing import write_replicas

RANKER = AdoptedWorkload(
    WorkloadName("shop", "Deployment", "ranker"), "ranker", "auto", 3, AnnotatedBounds(1, 9), "u", 1, None, hold=""
)


@pytest.mark.parametrize("listed", [{"kind": "Status"}, {}, ["items"]])
def test_a_list_without_items_is_not_a_list_of_no_autoscaler(listed: Any) -> None:
    asked = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(request.method)
        is_workload = request.url.path.endswith("/deployments/ranker")
        return httpx2.Response(200, json={"metadata": {"resourceVersion": "7"}} if is_workload else listed)

    with httpx2.Client(transport=httpx2.MockTransport(answer), base_url="http://cluster") as client:
        outcome = write_replicas(ScaleServer(client), RANKER.bound(4), lambda version: True)
    assert (outcome.state, outcome.is_refused) == ("not written", True)
    assert outcome.reason == "ScaledObjects could not be read: the server answered with something else"
    assert set(asked) == {"GET"}, "nothing is written"
