"""`make up` as a newcomer runs it: ready, apply, get, Ctrl-C, no process left. Prints how long the start took."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GPUWRIGHT = ROOT / ".venv" / "bin" / "gpuwright"
READY_SECONDS = 120.0
STOP_SECONDS = 30.0


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="gpuwright-smoke-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # as root, the embedded Postgres runs as another user
        log = folder / "up.log"
        os.environ["GPUWRIGHT_CONFIG"] = str(folder / "config.json")
        started = time.monotonic()
        port = _free_port()
        with log.open("wb") as output:
            up = subprocess.Popen(
                ["make", "up", f"ARGS=--data-dir {folder / 'data'} --port {port}"],
                cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip
        try:
            _await_ready(up, f"http://127.0.0.1:{port}/readyz")
            print(f"make up: ready after {time.monotonic() - started:.1f} s")
            _gpuwright("apply", "-f", str(ROOT / "examples" / "quickstart.yaml"))
            _gpuwright("get", "services", "-A")
            os.killpg(up.pid, signal.SIGINT)  # what a terminal does on Ctrl-C
            up.wait(STOP_SECONDS)
            left = _processes_that_name(folder)
            if left:
                raise RuntimeError("processes are left after Ctrl-C: " + "; ".join(left))
        except Exception as failure:
            print(f"{failure}\n{log.read_text(errors='replace')}", file=sys.stderr)
            return 1
        finally:
            if up.poll() is None:
                os.killpg(up.pid, signal.SIGKILL)
    print("make up: answered, stopped, nothing left")
    return 0


def _await_ready(up: subprocess.Popen[bytes], url: str) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        if up.poll() is not None:
            raise RuntimeError(f"make up ended with {up.returncode} before it was ready")
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    raise RuntimeError(f"not ready after {READY_SECONDS:.0f} seconds")


def _gpuwright(*words: str) -> None:
    done = subprocess.run([GPUWRIGHT, *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"gpuwright {' '.join(words)} ended with {done.returncode}: {done.stderr}")
    print(done.stdout, end="")


def _processes_that_name(folder: Path) -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:  # it has ended meanwhile
                continue
            if str(folder) in command:
                found.append(f"{entry.name} {command.strip()}")
    return found


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    raise SystemExit(main())
