"""kill -9 of a whole Postgres: the postmaster and every process of it, none of which tidies up."""

from __future__ import annotations

import os
import signal
from contextlib import suppress

from app.embedded import EmbeddedPostgres
from tests.support.figures import tree


def kill_postgres(server: EmbeddedPostgres) -> None:
    """At once; its keeper starts it again."""
    for pid in tree(server.pid):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
