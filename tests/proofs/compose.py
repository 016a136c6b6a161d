"""Docker Compose on the testbed's files, and an engine of its own where no image registry can be reached."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.support.docker_engine import NoEngine, bare_engine

ROOT = Path(__file__).parents[2]
WORLD = ROOT / "examples" / "testbed.yaml"
DEBIAN = ROOT / "deploy" / "testbed" / "debian"
REGISTRY_FILES = ("docker-compose.yml",)
DEBIAN_FILES = (*REGISTRY_FILES, "deploy/testbed/debian/compose.yaml")
PLUGINS = ("compose", "buildx")
PROGRAMS = (("docker", "docker.io"), ("dockerd", "docker.io"), ("debootstrap", "debootstrap"))
LARGEST_MB = {"api": 250, "agent": 150, "gateway": 160, "planner": 700}
PATIENCE_SECONDS = 900.0  # a hang guard
# Docker 20.10 sometimes counts an endpoint of a container that is gone, and keeps its network (moby, issue 43286).
PHANTOM = "has active endpoints"


class WentWrong(Exception):
    """A step failed; the message says which, and what it printed."""


@dataclass(frozen=True, slots=True)
class Compose:
    """Runs commands of Compose on these files."""

    files: Sequence[str]

    def __call__(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        chosen = [word for file in self.files for word in ("-f", file)]
        return subprocess.run(
            ["docker", "compose", *chosen, *words],
            cwd=ROOT, env=os.environ | environment, capture_output=True, text=True, check=False,
        )  # fmt: skip

    def states(self) -> dict[str, tuple[str, str, int]]:
        """Returns state, health and exit code by service."""
        printed = self("ps", "-a", "--format", "json").stdout
        rows = [json.loads(line) for line in printed.splitlines() if line.strip()]
        return {row["Service"]: (row["State"], row["Health"], row["ExitCode"]) for row in rows}

    def list_unwell(self) -> list[str]:
        """Returns the services that are neither healthy nor ended well."""
        wanted = set(self("config", "--services").stdout.split())
        states = self.states()
        unwell = wanted - set(states)
        for name, (state, health, code) in states.items():
            ended = state == "exited" and code == 0
            if name in wanted and not ended and not (state == "running" and health == "healthy"):
                unwell.add(name)
        return sorted(unwell)

    def build(self) -> list[str]:
        """Builds every image; returns which of ours are too large, base included."""
        with say_seconds("all images built"):
            built = self("--progress", "plain", "build")
        if built.returncode:
            raise WentWrong(f"docker compose build ended with {built.returncode}: {built.stderr[-3000:]}")
        wrong = []
        for name, most in LARGEST_MB.items():
            words = ["docker", "image", "inspect", "--format", "{{.Size}}", f"gpuwright-{name}:0.1.0"]
            found = int(run_command(words)) / 1e6
            say(f"gpuwright-{name}: {found:.0f} MB")
            if found > most:
                wrong.append(f"gpuwright-{name} has {found:.0f} MB; at most {most} were allowed")
        return wrong

    def start(self, **environment: str) -> float:
        """Returns the seconds until every part is healthy, or ended well."""
        began = time.monotonic()
        done = self("up", "-d", "--no-build", **environment)
        while unwell := self.list_unwell():
            if done.returncode or time.monotonic() - began > PATIENCE_SECONDS:
                logs = self("logs", "--no-color", "--tail", "15", *unwell).stdout
                raise WentWrong(f"not healthy: {', '.join(unwell)}\n{done.stderr[-1000:]}\n{logs[-6000:]}")
            time.sleep(1)
        seconds = time.monotonic() - began
        say(f"all {len(self.states())} parts healthy, or ended well, after {seconds:.0f} s")
        return seconds

    def take_down(self) -> list[str]:
        """Ends all with its data; returns what went wrong, or was left."""
        with say_seconds("all taken down"):
            ended = self("--profile", "*", "down", "-v", "--timeout", "2")
        ours = "label=com.docker.compose.project=gpuwright"
        left = run_command(["docker", "ps", "-aq", "--filter", ours]) + run_command(
            ["docker", "volume", "ls", "-q", "--filter", ours]
        )
        is_done = not ended.returncode or (PHANTOM in ended.stderr and _are_networks_empty(ours))
        if is_done and not left:
            return []
        return [f"docker compose down -v ended with {ended.returncode} and left {left.split()}: {ended.stderr[-500:]}"]


def _are_networks_empty(ours: str) -> bool:
    """Returns whether no container is in what networks are left."""
    networks = run_command(["docker", "network", "ls", "-q", "--filter", ours]).split()
    counting = ["docker", "network", "inspect", "--format", "{{len .Containers}}"]
    return all(int(run_command([*counting, network])) == 0 for network in networks)


@contextmanager
def debian_engine(folder: Path | None) -> Iterator[None]:
    """Commands of Docker ask an engine of its own with Compose, Buildx and Debian's base. It ends with all it holds."""
    for program, package in PROGRAMS:
        if not shutil.which(program):
            raise WentWrong(f"needs {program} (Debian: {package})")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started is ended then, too
    place = Path(tempfile.mkdtemp(prefix="gpuwright-images-", dir=folder))
    try:
        with bare_engine(place, "--bridge=none", "--ip-forward=false") as engine:
            os.environ["DOCKER_HOST"] = engine.address
            with say_seconds("Compose, Buildx and Debian's base"):
                _prepare(place)
            yield
    except NoEngine as error:
        raise WentWrong(str(error)) from error
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _prepare(folder: Path) -> None:
    """The scripts wait for downloads most of the time, so they run side by side."""
    scripts = [DEBIAN / "base.sh"]
    if any(subprocess.run(["docker", plugin, "version"], capture_output=True).returncode for plugin in PLUGINS):
        scripts.append(DEBIAN / "plugins.sh")
        os.environ["DOCKER_CONFIG"] = str(folder / "config")
    running = [
        subprocess.Popen([script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)
        for script in scripts
    ]
    try:
        printed = [script.communicate()[0] for script in running]
    except BaseException:  # a Ctrl-C, or a limit of the caller's: what they started ends with them
        for script in running:
            with suppress(ProcessLookupError):
                os.killpg(script.pid, signal.SIGTERM)
            script.wait()
        raise
    for name, script, text in zip((path.name for path in scripts), running, printed, strict=True):
        if script.returncode:
            raise WentWrong(f"{name} ended with {script.returncode}: {text[-3000:]}")


def find_socket() -> Path:
    """Returns the socket of the engine that `docker` asks, by DOCKER_HOST or its context; WentWrong if none answers."""
    address = run_command(["docker", "context", "inspect", "--format", "{{.Endpoints.docker.Host}}"]).strip()
    if not address.startswith("unix://"):
        raise WentWrong(f"Docker's engine is at {address}; chaos needs one on a socket of this machine")
    run_command(["docker", "version", "--format", "{{.Server.Version}}"])
    return Path(address.removeprefix("unix://"))


def run_command(words: list[str], given: str | None = None) -> str:
    """Returns what a command prints; WentWrong if it fails."""
    done = subprocess.run(words, cwd=ROOT, input=given, capture_output=True, text=True, check=False)
    if done.returncode:
        raise WentWrong(f"{' '.join(words)} ended with {done.returncode}: {(done.stdout + done.stderr)[-3000:]}")
    return done.stdout


@contextmanager
def say_seconds(what: str) -> Iterator[None]:
    began = time.monotonic()
    yield
    say(f"{what}: {time.monotonic() - began:.0f} s")


def say(text: str) -> None:
    print(text, flush=True)
