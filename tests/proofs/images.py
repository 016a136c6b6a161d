"""Every image built and the testbed started, asked and taken down, on a machine that reaches no image registry.

python -m tests.proofs.images [--folder FOLDER]

Needs root, dockerd and debootstrap (Debian: docker.io, debootstrap). It makes Debian's base and an engine of its own,
builds all images, waits until every part is healthy, tries what the tour names, sends requests through HAProxy, and
lets each planner plan and judge in the planner's image. Ends with 1 if something did not hold. What it starts it ends,
also after a failure; only the settings of pip and apt stay, in deploy/testbed/debian/settings.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from simulation.testbed.tour import LOOK
from solvers.planners.names import PLANNERS
from tests.proofs.testbed import ROOT, WORLD, Compose, all_well, say, too_large
from tests.support.docker_engine import NoEngine, bare_engine

DEBIAN = ROOT / "deploy" / "testbed" / "debian"
FILES = ("docker-compose.yml", "deploy/testbed/debian/compose.yaml")
PATIENCE_SECONDS = 900.0  # a hang guard
PLAN_SECONDS = "2"
PLUGINS = ("compose", "buildx")
NO_SPIKE = {"SPIKE_BEGINS": "1000000"}
# Of all modules of the solvers, those that nothing in this image plans with: `verify --exact` says what it needs.
LEFT_OUT = ("solvers.crosscheck",)
IMPORT_ALL = """
import importlib, pkgutil, sys, solvers
left_out = tuple(sys.argv[1:])
names = [found.name for found in pkgutil.walk_packages(solvers.__path__, "solvers.")]
wanted = [name for name in names if not name.startswith(left_out)]
for name in wanted:
    importlib.import_module(name)
print(len(wanted))
"""


class WentWrong(Exception):
    """A step failed; the message says which, and what it printed."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="for the engine's data; a temporary one by default")
    args = parser.parse_args()
    for program, package in (("docker", "docker.io"), ("dockerd", "docker.io"), ("debootstrap", "debootstrap")):
        if not shutil.which(program):
            say(f"WRONG: needs {program} (Debian: {package})")
            return 1
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started is ended then, too
    folder = Path(tempfile.mkdtemp(prefix="gpuwright-images-", dir=args.folder))
    began = time.monotonic()
    try:
        with bare_engine(folder, "--bridge=none", "--ip-forward=false") as engine:
            os.environ["DOCKER_HOST"] = engine.address
            with timed("Compose, Buildx and Debian's base"):
                prepare(folder)
            wrong = try_all(Compose(FILES))
    except (NoEngine, WentWrong) as error:
        wrong = [str(error)]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for line in wrong:
        say(f"WRONG: {line}")
    say(f"images and testbed: {len(wrong)} wrong, {time.monotonic() - began:.0f} s in all")
    return int(bool(wrong))


def try_all(compose: Compose) -> list[str]:
    """What did not hold; WentWrong where nothing after it can be tried."""
    with timed("all images built"):
        checked(["docker", "compose", *compose.chosen, "--progress", "plain", "build"])
    wrong = too_large()
    try:
        with timed("all parts healthy, or ended well"):
            start(compose)
        with timed("what the tour names, tried"):
            wrong += [*tour_answers(compose), *web_answers()]
        with timed("all parts stopped"):
            compose("stop", "--timeout", "5")  # planners need the cores
        with timed("each planner in its image"):
            wrong += planners_answers()
    finally:
        with timed("all taken down"):
            ended = compose("--profile", "*", "down", "-v", "--timeout", "2")
            left = checked(["docker", "ps", "-aq"]) + checked(["docker", "volume", "ls", "-q"])
    if ended.returncode or left:
        wrong.append(
            f"docker compose down -v ended with {ended.returncode} and left {left.split()}: {ended.stderr[-500:]}"
        )
    return wrong


@contextmanager
def timed(what: str) -> Iterator[None]:
    began = time.monotonic()
    yield
    say(f"{what}: {time.monotonic() - began:.0f} s")


def prepare(folder: Path) -> None:
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


def checked(words: list[str], given: str | None = None) -> str:
    done = subprocess.run(words, cwd=ROOT, input=given, capture_output=True, text=True, check=False)
    if done.returncode:
        raise WentWrong(f"{' '.join(words)} ended with {done.returncode}: {(done.stdout + done.stderr)[-3000:]}")
    return done.stdout


def start(compose: Compose) -> None:
    done = compose("up", "-d", "--no-build", **NO_SPIKE)
    end = time.monotonic() + PATIENCE_SECONDS
    while unwell := all_well(compose):
        if done.returncode or time.monotonic() > end:
            logs = compose("logs", "--no-color", "--tail", "15", *unwell.split(", ")).stdout
            raise WentWrong(f"not healthy: {unwell}\n{done.stderr[-1000:]}\n{logs[-6000:]}")
        time.sleep(1)


def tour_answers(compose: Compose) -> list[str]:
    """The commands that the tour tells to look around with."""
    commands = re.findall(r"docker compose run --rm cli (.*?)(?:  .*)?$", LOOK, re.MULTILINE)
    assert len(commands) >= 3, "the tour names no command any more"
    wrong = []
    for command in commands:
        words = command.split()
        done = compose(
            "--profile", "cli", "run", "--rm", "--no-deps", "cli", *words, *(["--once"] * (words == ["top"]))
        )
        if done.returncode or not done.stdout.strip():
            wrong.append(f"cli {command} ended with {done.returncode}: {(done.stdout + done.stderr)[-1000:]}")
    return wrong


def web_answers() -> list[str]:
    """A request through HAProxy, then the console and Prometheus, at the addresses that the tour names."""
    addresses = re.findall(r"http://127\.0\.0\.1:(?!3000)\S+", LOOK)  # Grafana has a profile of its own
    assert len(addresses) == 3, addresses
    wrong = []
    for address in addresses:
        request = urllib.request.Request(address, data=b"{}" if ":infer" in address else None)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                answer.read()
        except (OSError, urllib.error.URLError) as error:
            wrong.append(f"{address}: {error}")
    return wrong


def planners_answers() -> list[str]:
    """Each planner by its name, its plan judged there; and all else that plans may import can be imported there."""
    wrong = []
    for planner in PLANNERS:
        try:
            solve_and_judge(planner)
        except WentWrong as error:
            wrong.append(str(error))
    try:
        say(f"{checked([*in_planner('--entrypoint=python3'), '-c', IMPORT_ALL, *LEFT_OUT]).strip()} modules imported")
    except WentWrong as error:
        wrong.append(str(error))
    return wrong


def solve_and_judge(planner: str) -> None:
    run = in_planner("--interactive", f"--volume={WORLD}:/world.yaml:ro")
    plan = checked([*run, "solve", "-f", "/world.yaml", "--planner", planner, "--seconds", PLAN_SECONDS, "--json"])
    verdict = json.loads(checked([*run, "verify", "-f", "/world.yaml", "--json", "-"], plan))
    say(f"{planner}: {verdict['cost']:g} an hour, {len(verdict['violations'])} rules broken")


def in_planner(*options: str) -> list[str]:
    """The words that run the planner's image as confined as Compose does."""
    confined = ("--read-only", "--tmpfs=/tmp", "--network=none", "--cap-drop=ALL")
    return ["docker", "run", "--rm", *confined, *options, "gpuwright-planner:0.1.0"]


if __name__ == "__main__":
    sys.exit(main())
