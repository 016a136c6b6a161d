"""`make up` as a newcomer runs it: a fleet that is planned and served, then a bare one; nothing is left of either.

With the path of an installed `gpuwright` it tries that one's `up`, in place of `make up`, with its fleet.
Prints how long each phase of the starts took.
"""

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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
INSTALLED = Path(sys.argv[1]).absolute() if sys.argv[1:] else None
GPUWRIGHT = INSTALLED or ROOT / ".venv" / "bin" / "gpuwright"
UP = "gpuwright up" if INSTALLED else "make up"
READY_SECONDS = 120.0
SERVED_SECONDS = 240.0
COMPILED_SECONDS = 600.0  # it gives way to all else on the machine
STOP_SECONDS = 60.0
EXPLAIN = ("explain", "service", "shop/search")
EARLY = "loops are still being compiled, once on this machine; ask again in about half a minute"
SERVED = "services are served after"
PHASES = (  # what ends when the log says so
    ("packages", "starting Postgres"),
    ("Postgres", "preparing the database"),
    ("schema", "starting the server"),
    ("server", "gpuwright is at"),
    ("plan, copies, requests", SERVED),
)


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="gpuwright-smoke-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # as root, the embedded Postgres runs as another user
        os.environ["GPUWRIGHT_CONFIG"] = str(folder / "config.json")
        served = _try_up(folder, "fleet", (), _check_planned_fleet)
        if INSTALLED:
            return int(not served)
        return int(not (served and _try_up(folder, "own", ("--empty",), _check_own_world)))


@dataclass(frozen=True, slots=True)
class Up:
    """A running `make up`, or `gpuwright up`."""

    process: subprocess.Popen[bytes]
    log: Path
    url: str
    started: float
    ends: dict[str, float] = field(default_factory=dict)  # of phases, after the start

    def wait_until(self, what: str, seconds: float, is_so: Callable[[], bool]) -> float:
        """Waits until it is so; returns the seconds since the start."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise RuntimeError(f"{UP} ended with {self.process.returncode} before it was {what}")
            self._note_phases()
            if is_so():
                return time.monotonic() - self.started
            time.sleep(0.1)
        raise RuntimeError(f"not {what} after {seconds:.0f} seconds")

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=5):
                return True
        except (urllib.error.URLError, OSError):
            return False

    def is_served(self) -> bool:
        return SERVED in self.log.read_text(errors="replace")

    def _note_phases(self) -> None:
        text, after = self.log.read_text(errors="replace"), time.monotonic() - self.started
        for name, word in PHASES:
            if word in text:
                self.ends.setdefault(name, after)

    def spell_phases(self) -> str:
        """Returns the seconds of each phase; compiling goes on beside all but the first."""
        ends = [0.0, *self.ends.values()]
        spent = zip(self.ends, pairwise(ends), strict=True)
        return ", ".join(f"{name} {end - begin:.1f}" for name, (begin, end) in spent)


def _check_planned_fleet(up: Up) -> None:
    """Checks the fleet that comes with it: every service is served, and every decision can be read."""
    print(f"{UP}: its fleet is served after {up.wait_until('served', SERVED_SECONDS, up.is_served):.1f} s")
    print(f"its seconds: {up.spell_phases()}")
    _gpuwright("top", "--once")
    _gpuwright("plan", "show")
    print(f"an explanation right then: {'given' if _is_explained() else 'refused, as loops are compiled'}")
    if not INSTALLED:  # else they are compiled when they are first needed
        compiled = up.wait_until("compiled", COMPILED_SECONDS, (ROOT / ".venv" / "compiled-up").exists)
        print(f"make up: its loops, which explanations take, are compiled after {compiled:.1f} s")
    up.wait_until("explained", SERVED_SECONDS, _is_explained)
    _gpuwright(*EXPLAIN)


def _is_explained() -> bool:
    """Returns whether an explanation is given; until then, that loops are compiled is the only right answer."""
    done = subprocess.run([GPUWRIGHT, *EXPLAIN], capture_output=True, text=True, check=False)
    if done.returncode and EARLY not in done.stderr:
        raise RuntimeError(f"gpuwright {' '.join(EXPLAIN)} ended with {done.returncode}: {done.stderr}")
    return not done.returncode


def _check_own_world(up: Up) -> None:
    """Declares a world of one's own on a bare one."""
    _gpuwright("apply", "-f", str(ROOT / "examples" / "quickstart.yaml"))
    _gpuwright("get", "services", "-A")


def _try_up(folder: Path, name: str, words: tuple[str, ...], look: Callable[[Up], None]) -> bool:
    """Returns True if it came up, passed the check and left no process after Ctrl-C."""
    log = folder / f"{name}.log"
    try:
        with _start_up(folder / name, log, words) as up:
            print(f"{UP} {' '.join(words)}: ready after {up.wait_until('ready', READY_SECONDS, up.is_ready):.1f} s")
            look(up)
            os.killpg(up.process.pid, signal.SIGINT)  # what a terminal does on Ctrl-C
            up.process.wait(STOP_SECONDS)
        processes = _processes_of(folder)
        if processes:
            raise RuntimeError("processes are left after Ctrl-C: " + "; ".join(processes))
    except Exception as failure:
        print(f"{failure}\n{log.read_text(errors='replace')}", file=sys.stderr)
        return False
    print(f"{UP} {' '.join(words)}: answered, stopped, nothing left")
    return True


@contextmanager
def _start_up(data: Path, log: Path, words: tuple[str, ...]) -> Iterator[Up]:
    started = time.monotonic()
    port = _free_port()
    options = ["--data-dir", str(data), "--port", str(port), *words]
    command = [str(INSTALLED), "up", *options] if INSTALLED else ["make", "up", f"ARGS={' '.join(options)}"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=data.parent if INSTALLED else ROOT,
            stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
        )  # fmt: skip
    try:
        yield Up(process, log, f"http://127.0.0.1:{port}", started)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _gpuwright(*words: str) -> None:
    done = subprocess.run([GPUWRIGHT, *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"gpuwright {' '.join(words)} ended with {done.returncode}: {done.stderr}")
    print(done.stdout, end="")


def _processes_of(folder: Path) -> list[str]:
    """Returns the processes that name the folder in their command or in their inherited configuration."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                environment = (entry / "environ").read_bytes()
            except OSError:  # it has ended meanwhile, or is somebody else's
                continue
            if str(folder) in command or os.fsencode(folder) in environment:
                found.append(f"{entry.name} {command.strip()}")
    return found


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    raise SystemExit(main())
