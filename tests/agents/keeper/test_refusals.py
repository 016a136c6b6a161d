"""Whatever a control plane asks for, a node runs its own templates with typed arguments below its own roots."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from app.store.database.database import Database
from tests.support.agents import running_agent
from tests.support.nodes import assigned, served
from tests.support.patience import until
from tests.support.server import RunningServer

LINKED = {"model": "m", "file": "up/passwd"}
ASKED: dict[str, dict[str, Any]] = {
    "case27-template-1": {"template": "bin-sh"},
    "case27-command-1": {"args": {"argv": "['/bin/sh', '-c', 'id']"}},
    "case27-image-1": {"args": {"image": "evil"}},
    "case27-preload-1": {"args": {"LD_PRELOAD": "/tmp/evil.so"}},
    "case27-limit-1": {"args": {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "100"}},
    "case27-option-1": {"args": {"model": "--file=/etc/passwd"}},
    "case28-above-1": {"args": {"model": "m", "file": "../../etc/passwd"}},
    "case28-absolute-1": {"args": {"model": "m", "file": "/etc/passwd"}},
    "case28-link-1": {"args": LINKED},
    "case28-zero-1": {"args": {"model": "m", "file": "m\x00.onnx"}},
}


@pytest.mark.slow
def test_case_27_and_case_28_nothing_but_what_the_node_allows_is_run_and_the_rest_is_in_the_audit(
    api: RunningServer, database_url: str, tmp_path: Path
) -> None:
    models = tmp_path / "models"
    models.mkdir()
    (models / "up").symlink_to("/etc")
    database = Database(database_url, pool_size=1)
    instances = [
        msgspec.structs.replace(served(name, sm=2, memory=0.25), **{"args": {"model": "m"}, **asked})
        for name, asked in ASKED.items()
    ]
    with running_agent(api, tmp_path / "agent", 2, "--models", str(models)) as agent:
        agent.assign(database, assigned(1, served("search-1"), *instances))

        def told() -> dict[str, str]:
            entries = api.request("GET", "/api/v1/audit?limit=500").json["items"]
            return {
                one["name"]: one["detail"] for one in entries if (one["verb"], one["outcome"]) == ("run", "refused")
            }

        until(lambda: told().keys() == ASKED.keys(), f"all are in the audit: {agent.said_log()[-500:]}")
        until(lambda: [name.split(".")[0] for name in agent.copies()] == ["search-1"], "the honest one runs")
        said = told()
    database.close()
    reasons = {name: "no_template" if name == "case27-template-1" else "refused_arguments" for name in ASKED}
    assert all(reason in said[name] for name, reason in reasons.items()), said
    assert "LD_PRELOAD" in said["case27-preload-1"]
