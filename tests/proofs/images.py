"""Every image built and the testbed started, asked and taken down, on a machine that reaches no image registry.

python -m tests.proofs.images [--folder FOLDER]

Needs root, dockerd and debootstrap (Debian: docker.io, debootstrap). It makes Debian's base and an engine of its own,
builds all images, waits until every part is healthy, tries what the tour names, sends requests through HAProxy, visits
the console's pages, lets each planner plan and judge in the planner's image, and tries in each image what it offers.
Ends with 1 if something did not hold. What it starts it ends, also after a failure; only the settings of pip and apt
stay, in deploy/testbed/debian/settings.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
import urllib.request
from pathlib import Path

from simulation.testbed.tour import LOOK
from solvers.planners.names import PLANNERS
from tests.proofs.compose import DEBIAN_FILES, WORLD, Compose, WentWrong, debian_engine, run_command, say, say_seconds
from tests.proofs.offered import try_pages

PLAN_SECONDS = "2"
NO_SPIKE = {"SPIKE_BEGINS": "1000000"}
OFFERED = Path(__file__).with_name("offered.py")
# The packages of which each image runs every module; -MODULE: what it leaves to others. Charts and Parquet are extras.
CHARTS = ("-cli.views.chart_files", "-cli.views.charts", "-cli.views.cost_chart", "-cli.views.parquet")
CLI = ("cli", *CHARTS)
MODULES = {
    # `verify --exact` says what it needs.
    "planner": ("solvers", "-solvers.crosscheck", "app", *CLI, "-cli.scaler", "simulation", "migrations"),
    # What measures and plans is answered by a planner, or in a sentence that says what is missing.
    "api": (
        "app",
        "-app.control",
        "-app.planner",
        "-app.campaigns",
        *CLI,
        "-cli.bench.saved_fleets",
        "-cli.profiling",
        "clusters",
        "-clusters.certified.planning",
        "-clusters.certified.language",
        "migrations",
    ),
    # Containers are started by agents outside of containers.
    "agent": ("agents", "-agents.runtime.docker", "-agents.contract.signatures"),
    "gateway": ("agents.gateway", "cli.verbs.gateway"),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="for the engine's data; a temporary one by default")
    args = parser.parse_args()
    began = time.monotonic()
    try:
        with debian_engine(args.folder):
            wrong = try_all(Compose(DEBIAN_FILES))
    except WentWrong as error:
        wrong = [str(error)]
    for line in wrong:
        say(f"WRONG: {line}")
    say(f"images and testbed: {len(wrong)} wrong, {time.monotonic() - began:.0f} s in all")
    return int(bool(wrong))


def try_all(compose: Compose) -> list[str]:
    """Returns what did not hold; WentWrong where nothing after it can be tried."""
    wrong = compose.build()
    try:
        compose.start(**NO_SPIKE)
        with say_seconds("what the tour names, tried"):
            wrong += [*try_tour(compose), *try_web(), *try_console(compose)]
        with say_seconds("all parts stopped"):
            compose("stop", "--timeout", "5")  # planners need the cores
        with say_seconds("each planner in its image"):
            wrong += try_planners()
        with say_seconds("what each image offers, in itself"):
            wrong += try_offers()
    finally:
        wrong += compose.take_down()
    return wrong


def try_tour(compose: Compose) -> list[str]:
    """Runs the commands that the tour tells to look around with."""
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


def try_web() -> list[str]:
    """Sends a request through HAProxy, then asks the console and Prometheus, at the addresses that the tour names."""
    addresses = re.findall(r"http://127\.0\.0\.1:(?!3000)\S+", LOOK)  # Grafana has a profile of its own
    assert len(addresses) == 3, addresses
    wrong = []
    for address in addresses:
        request = urllib.request.Request(address, data=b"{}" if ":infer" in address else None)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                answer.read()
        except OSError as error:
            wrong.append(f"{address}: {error}")
    return wrong


def try_console(compose: Compose) -> list[str]:
    """Visits the console's pages with the token that the tour names."""
    token = compose("exec", "-T", "api-1", "cat", "/keys/admin/admin.token").stdout.strip()
    tried, faults = try_pages("http://127.0.0.1:8080", token)
    say(tried)
    return faults


def try_planners() -> list[str]:
    """Lets each planner plan by its name and judges its plan there."""
    wrong = []
    for planner in PLANNERS:
        try:
            solve_and_judge(planner)
        except WentWrong as error:
            wrong.append(str(error))
    return wrong


def try_offers() -> list[str]:
    """Imports in each image all that it runs, asks each verb for its help, and lets `mudi` make all its trials."""
    tries = [(image, ("imports", *modules)) for image, modules in MODULES.items()]
    tries += [*((image, ("verbs",)) for image in MODULES), ("planner", ("trials",))]
    wrong = []
    for image, words in tries:
        try:
            run = build_command("--interactive", "--entrypoint=python3", image=image)
            say(f"{image}: {run_command([*run, '-', *words], OFFERED.read_text()).strip()}")
        except WentWrong as error:
            wrong.append(f"{image}: {error}")
    return wrong


def solve_and_judge(planner: str) -> None:
    run = build_command("--interactive", f"--volume={WORLD}:/world.yaml:ro")
    plan = run_command([*run, "solve", "-f", "/world.yaml", "--planner", planner, "--seconds", PLAN_SECONDS, "--json"])
    verdict = json.loads(run_command([*run, "verify", "-f", "/world.yaml", "--json", "-"], plan))
    say(f"{planner}: {verdict['cost']:g} an hour, {len(verdict['violations'])} rules broken")


def build_command(*options: str, image: str = "planner") -> list[str]:
    """Returns the words that run an image as confined as Compose does."""
    confined = ("--read-only", "--tmpfs=/tmp", "--network=none", "--cap-drop=ALL")
    return ["docker", "run", "--rm", *confined, *options, f"gpuwright-{image}:0.1.0"]


if __name__ == "__main__":
    sys.exit(main())
