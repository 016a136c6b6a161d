"""The testbed of docker-compose.yml, really started: how soon all is healthy, the spike, the dashboard, chaos.

python -m tests.proofs.testbed [--debian] [--chaos-minutes 15]

With --debian on images of Debian's packages, where no registry can be reached. Images are built before; ends with 1 if
something did not hold. What it starts it ends, with its data, unless --keep.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.support.patience import patience

ROOT = Path(__file__).parents[2]
DASHBOARD = ROOT / "deploy" / "monitoring" / "gpuwright-dashboard.json"
WORLD = ROOT / "examples" / "testbed.yaml"
PROMETHEUS = "http://127.0.0.1:9090"
HEALTHY_SECONDS = 180.0
ATTAINMENT = 0.96
CALM_SECONDS = 30  # before the spike
LARGEST_MB = {"api": 250, "agent": 150, "gateway": 160, "planner": 700}
AFTER_CHAOS = {1: "chaos lost an acknowledged write, or a part did not come back"}  # by chaos's exit code
# Of the dashboard, what a testbed without tenants' budgets, jobs or trouble has no data for.
MAY_BE_EMPTY = ("Shed", "Jobs", "Tenants' GPUs", "Budgets spent", "Alarms", "Held back", "Corrections of profiles")


@dataclass
class Compose:
    """The files, and what is asked of them."""

    files: Sequence[str]

    def __call__(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        command = ["docker", "compose", *self.chosen, *words]
        made = os.environ | environment
        return subprocess.run(command, cwd=ROOT, env=made, capture_output=True, text=True, check=False)

    @property
    def chosen(self) -> list[str]:
        return [word for file in self.files for word in ("-f", file)]

    def states(self) -> dict[str, tuple[str, str, int]]:
        """Service -> state, health, exit code."""
        said = self("ps", "-a", "--format", "json").stdout
        rows = [json.loads(line) for line in said.splitlines() if line.strip()]
        return {row["Service"]: (row["State"], row["Health"], row["ExitCode"]) for row in rows}


def all_well(compose: Compose) -> str:
    """What is not healthy, or has not ended well; empty when all is."""
    wanted = set(compose("config", "--services").stdout.split())
    states = compose.states()
    unwell = sorted(wanted - set(states))
    for name, (state, health, code) in states.items():
        ended = state == "exited" and code == 0
        if name in wanted and not ended and not (state == "running" and health == "healthy"):
            unwell.append(name)
    return ", ".join(unwell)


def ask(query: str) -> list[dict[str, Any]]:
    """What Prometheus says now; ValueError where it refuses the query."""
    url = f"{PROMETHEUS}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    try:
        with urllib.request.urlopen(url, timeout=patience()) as answer:
            said = json.load(answer)
    except urllib.error.HTTPError as error:
        raise ValueError(f"{query}: {error.read()[:300]!r}") from error
    found: list[dict[str, Any]] = said["data"]["result"]
    return found


def attainment(seconds: float) -> dict[str, tuple[float, float]]:
    """By service: requests, and the share within the SLO by the gateway's histogram; what failed is not within."""
    made = {}
    window = f"{max(15, round(seconds))}s"
    for service in (one for one in yaml.safe_load_all(WORLD.read_text()) if one["kind"] == "Service"):
        name = f"{service['metadata']['tenant']}/{service['metadata']['name']}"
        slo = service["spec"]["slo"]["latencyMs"] / 1000
        labels = f'service="{name}"'
        asked = value(f"increase(gpuwright_gateway_service_requests_total{{{labels}}}[{window}])")
        within = within_slo(f"increase(gpuwright_gateway_service_latency_seconds_bucket{{{labels}}}[{window}])", slo)
        made[name] = (asked, within / asked if asked else 0.0)
    return made


def within_slo(query: str, slo: float) -> float:
    """How many were no slower; inside a bucket as if spread evenly, as gpuwright itself counts."""
    upto = sorted((float(one["metric"]["le"]), float(one["value"][1])) for one in ask(query))
    below, inside = 0.0, 0.0
    for edge, count in upto:
        if edge >= slo:
            return inside + (count - inside) * (slo - below) / (edge - below)
        below, inside = edge, count
    return inside


def value(query: str) -> float:
    found = ask(query)
    return float(found[0]["value"][1]) if found else 0.0


def panels() -> tuple[int, list[str]]:
    """How many expressions were asked, and what is wrong with them."""
    asked, wrong = 0, []
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel.get("targets", ()):
            asked += 1
            try:
                found = ask(target["expr"])
            except ValueError as error:
                wrong.append(str(error))
                continue
            if not found and panel["title"] not in MAY_BE_EMPTY:
                wrong.append(f"{panel['title']} has no data: {target['expr']}")
    return asked, wrong


def too_large() -> list[str]:
    """Says how large our images are, base included."""
    wrong = []
    for name, most in LARGEST_MB.items():
        words = ["docker", "image", "inspect", "--format", "{{.Size}}", f"gpuwright-{name}:0.1.0"]
        found = int(subprocess.run(words, capture_output=True, text=True, check=True).stdout) / 1e6
        say(f"gpuwright-{name}: {found:.0f} MB")
        if found > most:
            wrong.append(f"gpuwright-{name} has {found:.0f} MB; at most {most} were allowed")
    return wrong


def engine_socket() -> dict[str, str]:
    """Where chaos finds the engine that this command asks, and the group that may open its socket."""
    path = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock").removeprefix("unix://")
    return {"DOCKER_SOCKET": path, "DOCKER_GID": str(Path(path).stat().st_gid)}


def say(text: str) -> None:
    print(text, flush=True)


def up(compose: Compose, spike: dict[str, str]) -> str:
    began = time.monotonic()
    done = compose("up", "-d", "--no-build", **spike)
    if done.returncode:
        return f"docker compose up ended with {done.returncode}: {done.stderr[-2000:]}"
    while unwell := all_well(compose):
        if time.monotonic() - began > 2 * HEALTHY_SECONDS:
            return f"not healthy: {unwell}"
        time.sleep(1)
    seconds = time.monotonic() - began
    say(f"all {len(compose.states())} parts healthy, or ended well, after {seconds:.0f} s")
    return (
        "" if seconds <= HEALTHY_SECONDS else f"healthy after {seconds:.0f} s; at most {HEALTHY_SECONDS:g} were allowed"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--debian", action="store_true")
    parser.add_argument("--hold", type=int, default=600, help="seconds at the height of the spike")
    parser.add_argument("--chaos-minutes", type=float, default=15.0)
    parser.add_argument("--keep", action="store_true", help="leave it running")
    args = parser.parse_args()
    files = ["docker-compose.yml", *(["deploy/testbed/debian/compose.yaml"] if args.debian else [])]
    compose = Compose(files)
    spike = {"SPIKE_BEGINS": f"{CALM_SECONDS}", "SPIKE_HOLD": str(args.hold), "SPIKE_PERIOD": "100000"}
    wrong = too_large()
    try:
        wrong.append(up(compose, spike))
        if wrong[-1]:
            return 1
        window = CALM_SECONDS + 30 + args.hold + 10
        time.sleep(window)
        for name, (asked, share) in attainment(window).items():
            say(f"{name}: {asked:.0f} requests in {window} s, {share:.2%} within the SLO")
            if share < ATTAINMENT:
                wrong.append(f"{name} attains {share:.2%}")
        peak = value(f"max_over_time(sum(rate(gpuwright_gateway_service_requests_total[15s]))[{window}s:5s])")
        say(f"at most {peak:.0f} requests a second")
        asked, faults = panels()
        say(f"{asked} expressions of the dashboard asked of Prometheus, {len(faults)} wrong")
        wrong += faults
        if args.chaos_minutes:
            done = compose("--profile", "chaos", "up", "--no-build", "--no-deps", "chaos",
                           CHAOS_MINUTES=str(args.chaos_minutes), **engine_socket(), **spike)  # fmt: skip
            say("\n".join(done.stdout.splitlines()[-4:]))
            code = compose.states().get("chaos", ("", "", -1))[2]
            if code:
                wrong.append(
                    AFTER_CHAOS.get(code, f"chaos ended with {code}: {done.stdout[-300:]}{done.stderr[-300:]}")
                )
            time.sleep(30)
            for name, (asked_now, share) in attainment(20).items():
                say(f"afterwards {name}: {asked_now:.0f} requests in 20 s, {share:.2%} within the SLO")
                if share < ATTAINMENT:
                    wrong.append(f"{name} attains {share:.2%} after chaos")
    finally:
        for line in filter(None, wrong):
            say(f"WRONG: {line}")
        if not args.keep:
            compose("--profile", "*", "down", "-v")
    return int(any(wrong))


if __name__ == "__main__":
    sys.exit(main())
