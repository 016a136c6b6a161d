"""Files that only the agent's own user may read, and places where a token must never appear."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest

from agents.host.ownership import require_own_folder
from agents.node.state_folder import StateFolder
from app.store.database.database import Database
from tests.support.agents import running_agent
from tests.support.nodes import assigned, served
from tests.support.patience import patience, until
from tests.support.server import RunningServer


def test_a_folder_that_others_may_write_is_refused(tmp_path: Path) -> None:
    ours = tmp_path / "ours"
    require_own_folder(ours)
    assert stat.S_IMODE(ours.stat().st_mode) == 0o700
    require_own_folder(ours)
    for mode in (0o777, 0o770, 0o1777, 0o702):
        ours.chmod(mode)
        with pytest.raises(PermissionError, match="can be written by others"):
            require_own_folder(ours)


@pytest.mark.needs_root("to give a folder away")
def test_a_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    planted = tmp_path / "planted"
    planted.mkdir(mode=0o755)
    os.chown(planted, 12345, -1)
    (tmp_path / "link").symlink_to(planted)
    for path in (planted, tmp_path / "link"):
        with pytest.raises(PermissionError, match="belongs to user 12345"):
            require_own_folder(path)


@pytest.mark.slow
def test_case_29_the_nodes_token_is_in_its_file_and_nowhere_else(api: RunningServer, tmp_path: Path) -> None:
    database = Database(api.database_url, pool_size=2)
    with running_agent(api, tmp_path / "agent") as agent:
        agent.assign(database, assigned(1, served("search-1")))
        until(lambda: " ready" in agent.ask("status").stdout, agent.said_log())
        credential = StateFolder(agent.folder).credential()
        assert credential is not None
        assert agent.process
        pids = [agent.process.pid, *(running.pid for running in agent.runtime.find())]
        assert len(pids) == 2
        texts = {f"/proc/{pid}/{name}": Path(f"/proc/{pid}/{name}").read_bytes() for pid in pids for name in PROC}
        texts |= {str(path): path.read_bytes() for path in agent.folder.rglob("*") if path.is_file()}
        for words in (("status",), ("status", "--json"), ("doctor", "--device", "simulated")):
            done: subprocess.CompletedProcess[str] = agent.ask(*words)
            texts[" ".join(words)] = (done.stdout + done.stderr).encode()
        texts["log"] = agent.said_log().encode()
        assert [where for where, text in texts.items() if credential.token.encode() in text] == [
            str(agent.folder / "credential.json")
        ]
        open_to_others = [
            str(path)
            for path in agent.folder.rglob("*")
            if not path.is_symlink() and stat.S_IMODE(path.stat().st_mode) & 0o022
        ]
        assert open_to_others == []
        agent.folder.chmod(0o777)
        agent.end()
        agent.start()
        assert agent.process.wait(patience()) != 0
        assert "can be written by others" in agent.said_log()
        agent.folder.chmod(0o700)
    database.close()


PROC = ("cmdline", "environ")
