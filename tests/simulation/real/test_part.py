"""What ends in the real part of `gpuwright up` is named with its own last words."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from simulation.real.part import NotStarted, RealPart, RealSetup


@pytest.mark.slow
def test_a_haproxy_that_cannot_start_is_reported_in_its_own_words(tmp_path: Path) -> None:
    program = tmp_path / "haproxy"
    program.write_text("#!/bin/sh\necho '[ALERT] cannot bind socket (Address in use)' >&2\nexit 1\n")
    program.chmod(0o755)
    order = RealSetup("http://127.0.0.1:9", "token", str(tmp_path), 9, "t4-2", {}, [], [])
    sockets = Path(tempfile.mkdtemp())
    real = RealPart(order, sockets)
    try:
        with pytest.raises(NotStarted, match=r"HAProxy ended; it says: \[ALERT\] cannot bind socket"):
            real.start(str(program))
    finally:
        real.stop()
