"""docs/own-jobs.md does what it says: a job of a user's own is preempted and killed, and loses nothing saved."""

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

PAGE = DOCS / "own-jobs.md"
LONGEST_SECONDS = 600.0


@pytest.mark.timeout(LONGEST_SECONDS)
@pytest.mark.soak  # a minute and more; its parts are tested every day
def test_the_page_preempts_and_kills_a_job_that_goes_on_from_its_last_save(tmp_path: Path) -> None:
    need_cores()
    script = "\n".join(one.text for one in read_blocks(PAGE) if one.kind == "sh")
    script = script.replace("--port 8080", f"--port {free_port()}")
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
    steps = [int(step) for step in re.findall(r"^.*?begins at step ([0-9]+)", text, re.MULTILINE)]
    saved = {int(step) for step in re.findall(r"^.*?ends at step ([0-9]+)", text, re.MULTILINE)}
    assert steps[0] == 0, text
    assert steps[-2] in saved, text  # preempted, it goes on where it ended
    assert steps[-1] >= steps[-2], text  # killed, it goes on from a save after that
