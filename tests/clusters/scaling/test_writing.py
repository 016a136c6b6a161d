"""What a write makes of answers that no API server of ours gives."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from clusters.decided_bounds import AnnotatedBounds
from clusters.estate import OURS, WorkloadName
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


STANDING = {
    "metadata": {
        "name": "ranker", "namespace": "shop", "uid": "u", "resourceVersion": "7", "generation": 1,
        "annotations": {f"{OURS}service": "ranker", f"{OURS}mode": "auto", f"{OURS}max-replicas": "9"},
    },
    "spec": {"replicas": 3},
}  # fmt: skip


@pytest.mark.parametrize(
    ("answered", "state", "is_open"),
    [
        ({"spec": {"replicas": 4}}, "written", False),
        ({"spec": {"replicas": 2}}, "unknown", True),
        ({}, "unknown", True),
        ("<html>sign in</html>", "unknown", True),
    ],
)
def test_a_write_is_done_where_its_answer_has_the_number_and_is_settled_where_something_else_answers(
    answered: Any, state: str, is_open: bool
) -> None:
    asked = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(request.method)
        if request.method != "GET":
            return httpx2.Response(200, json=answered)
        found: Any = STANDING if request.url.path.endswith("/deployments/ranker") else {"items": []}
        return httpx2.Response(200, json=found, headers={"Date": "Sat, 28 Nov 2026 12:00:00 GMT"})

    with httpx2.Client(transport=httpx2.MockTransport(answer), base_url="http://cluster") as client:
        outcome = write_replicas(ScaleServer(client), RANKER.bound(4), lambda version: True)
    assert (outcome.state, outcome.is_open) == (state, is_open), outcome.reason
    assert [method for method in asked if method != "GET"] == (["PUT"] if state == "written" else ["PUT", "PATCH"])
