"""docs/own-servers.md does what it says: a FastAPI server of a user's own is served, changed and refused."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.house.tree import ROOT
from scripts.house.typed import DOCS, read_blocks
from tests.docs.test_cpu_cores import ENDED
from tests.support.needs import need_cores
from tests.support.ports import free_port
from tests.support.soak import scaled

PAGE = DOCS / "own-servers.md"
LONGEST_SECONDS = 600.0
REQUESTS = scaled(200, 40)  # while the server is replaced


@pytest.mark.slow
@pytest.mark.timeout(LONGEST_SECONDS)
def test_the_page_serves_a_users_own_server_and_loses_no_request(tmp_path: Path) -> None:
    need_cores()
    script = "\n".join(block.text for block in read_blocks(PAGE) if block.kind == "sh")
    script = script.replace("--port 8080", f"--port {free_port()}").replace("seq 200", f"seq {REQUESTS}")
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    environment.pop("DATABASE_URL", None)
    log = tmp_path / "log"
    with log.open("w") as output:
        ran = subprocess.run(
            ["bash", "-eu", "-o", "pipefail", "-c", f"{ENDED}\n{script}"],
            cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output, timeout=LONGEST_SECONDS,
        )  # fmt: skip
    text = log.read_text()
    assert ran.returncode == 0, text
    answers = [int(count) for count in re.findall(r'^ +([0-9]+) \{"words":[23]\}$', text, re.MULTILINE)]
    assert sum(answers) == REQUESTS, text
    assert "lost" not in text, text
    assert "'--reload' is not admitted by word-counter, which admits --host there" in text, text
