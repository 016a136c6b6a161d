"""A real server process for tests: started, killed, restarted on one database and one port."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from app import tokens
from app.store.access import tokens as token_rows
from app.store.database.database import Database
from tests.support.contract import check_answer
from tests.support.forked import ROOT, Forked, find_python
from tests.support.patience import patience, until
from tests.support.ports import free_port


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer: status, headers with lower-case names, the body as text."""

    status: int
    headers: dict[str, str]
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)


class RunningServer:
    """`gpuwright serve` as a process of its own. Its log is in `log_path`."""

    def __init__(self, database_url: str, folder: Path, environment: Mapping[str, str]) -> None:
        self.database_url = database_url
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log_path = folder / "server.log"
        self.code = ROOT  # of another version, where a test says so before a restart
        self._environment = {**os.environ, "GPUWRIGHT_ANSWERS_READY": "0", "DATABASE_URL": database_url, **environment}
        self.admin_token = self.token("admin")
        self.process: subprocess.Popen[bytes] | Forked = self._launch()

    def token(
        self, scope: str, *, tenant: str = "", node: str = "", gateway: str = "",
        expires_in_seconds: float | None = None,
    ) -> str:  # fmt: skip
        """A new token, put into the database directly."""
        new = tokens.new()
        database = Database(self.database_url, pool_size=1)
        try:
            database.write(
                lambda connection: token_rows.insert(
                    connection,
                    token_rows.TokenDraft(
                        id=new.id,
                        secret_hash=new.secret_hash,
                        scope=scope,
                        tenant=tenant,
                        node=node,
                        gateway=gateway,
                        created_by="tests",
                        expires_in_seconds=expires_in_seconds,
                    ),
                )
            )
        finally:
            database.close()
        return new.text

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        token: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_seconds: float | None = None,
        peer: str = "127.0.0.1",
    ) -> Reply:
        """One request on a connection of its own; as the admin, unless a token (or "" for none) is given.

        Its answer must be as the API's document says.

        `peer` is the address it comes from: limits on who has failed are kept by that.
        """
        sent = dict(headers or {})
        token = self.admin_token if token is None else token
        if token:
            sent.setdefault("Authorization", f"Bearer {token}")
        if body is not None and not isinstance(body, bytes | str):
            body = json.dumps(body)
            sent.setdefault("Content-Type", "application/json")
        connection = http.client.HTTPConnection(
            "127.0.0.1", self.port, timeout=timeout_seconds or patience(), source_address=(peer, 0)
        )
        try:
            connection.request(method, path, body, sent)
            answer = connection.getresponse()
            text = answer.read().decode()
            reply = Reply(answer.status, {name.lower(): value for name, value in answer.getheaders()}, text)
        finally:
            connection.close()
        if self.code == ROOT:
            check_answer(method, path, reply.status, reply.headers.get("content-type", ""), text)
        return reply

    def kill(self) -> None:
        """SIGKILL: nothing is tidied up."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """SIGTERM, as an orchestrator does it; the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(patience())

    def restart(self, **environment: str) -> None:
        """Starts again on the same port, after `kill()` or `stop()`, with these settings from now on."""
        self._environment |= environment
        if self.process.poll() is None:
            self.kill()
        self.process = self._launch()

    def await_ready(self) -> None:
        def is_ready() -> bool:
            assert self.process.poll() is None, f"the server ended: {self.log_path.read_text()[-4000:]}"
            with suppress(OSError, http.client.HTTPException):
                return self.request("GET", "/readyz", token="").status == 200
            return False

        until(is_ready, lambda: f"the server is not ready: {self.log_path.read_text()[-4000:]}")

    def _launch(self) -> subprocess.Popen[bytes] | Forked:
        words = ["serve", "--port", str(self.port)]
        if self.code == ROOT:
            self.process = Forked(words, ROOT, self._environment, self.log_path)
        else:
            self.process = self._launch_afresh(words)
        self.await_ready()
        return self.process

    def _launch_afresh(self, words: list[str]) -> subprocess.Popen[bytes]:
        with self.log_path.open("ab") as log:
            return subprocess.Popen(
                [find_python(self.code), "-m", "cli.main", *words],
                cwd=self.code,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )


@contextmanager
def running_server(database_url: str, **environment: str) -> Iterator[RunningServer]:
    """A server on this database, for example `running_server(url, GPUWRIGHT_RATE_PER_SECOND="5")`."""
    with TemporaryDirectory(prefix="gpuwright-server-") as folder:
        server = RunningServer(database_url, Path(folder), environment)
        try:
            yield server
        finally:
            server.kill()
