"""The testbed of docker-compose.yml, really started: how soon all is healthy, the spike, the dashboard, chaos.

python -m tests.proofs.testbed [--debian] [--hold 600] [--chaos-minutes 15]

With --debian on images of Debian's packages and an engine of its own, where no registry can be reached; that needs
root, dockerd and debootstrap (Debian: docker.io, debootstrap). Without it, on the engine that `docker` asks. It builds
the images first, and ends what it starts, with its data. Ends with 1 if something did not hold.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import yaml

from tests.proofs.compose import (
    DEBIAN_FILES,
    REGISTRY_FILES,
    ROOT,
    WORLD,
    Compose,
    WentWrong,
    debian_engine,
    find_socket,
    say,
)
from tests.proofs.cores import read_core_times
from tests.support.patience import patience

DASHBOARD = ROOT / "deploy" / "monitoring" / "gpuwright-dashboard.json"
PROMETHEUS = "http://127.0.0.1:9090"
HEALTHY_SECONDS = 180.0
ATTAINMENT = 0.96
CALM_SECONDS = 30  # before the spike
RAMP_SECONDS = 30
SETTLED_SECONDS = 60  # after the ramp
AFTER_SECONDS = 10  # the spike
AFTER_CHAOS = {  # by chaos's exit code
    1: "chaos lost an acknowledged write, or a part did not come back",
    2: "chaos struck nothing, since Docker did not answer it",
}
# Of the dashboard, what a testbed without tenants' budgets, jobs or trouble has no data for.
MAY_BE_EMPTY = ("Shed", "Jobs", "Tenants' GPUs", "Budgets spent", "Alarms", "Held back", "Corrections of profiles")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--debian", action="store_true")
    parser.add_argument("--folder", type=Path, help="for the data of Debian's engine; a temporary one by default")
    parser.add_argument("--hold", type=int, default=600, help="seconds at the height of the spike")
    parser.add_argument("--chaos-minutes", type=float, default=15.0)
    args = parser.parse_args()
    try:
        if args.debian:
            with debian_engine(args.folder):
                wrong = try_all(Compose(DEBIAN_FILES), args.hold, args.chaos_minutes)
        else:
            wrong = try_all(Compose(REGISTRY_FILES), args.hold, args.chaos_minutes)
    except WentWrong as error:
        wrong = [str(error)]
    for line in wrong:
        say(f"WRONG: {line}")
    return int(bool(wrong))


def try_all(compose: Compose, hold: int, chaos_minutes: float) -> list[str]:
    """Returns what did not hold; WentWrong where nothing after it can be tried."""
    socket = find_socket()  # before half an hour of work
    spike = {"SPIKE_BEGINS": f"{CALM_SECONDS}", "SPIKE_HOLD": f"{hold}", "SPIKE_PERIOD": "100000"}
    wrong = compose.build()
    try:
        seconds = compose.start(**spike)
        if seconds > HEALTHY_SECONDS:
            wrong.append(f"healthy after {seconds:.0f} s; at most {HEALTHY_SECONDS:g} were allowed")
        wrong += survive_spike(hold)
        asked, faults = try_panels()
        say(f"{asked} expressions of the dashboard asked of Prometheus, {len(faults)} wrong")
        wrong += faults
        if chaos_minutes:
            wrong += outlive_chaos(compose, chaos_minutes, socket, spike)
    finally:
        wrong += compose.take_down()
    return wrong


def survive_spike(hold: int) -> list[str]:
    """Waits for the end of the spike; returns which services missed their SLO too often."""
    window = CALM_SECONDS + RAMP_SECONDS + hold + AFTER_SECONDS
    before = read_core_times()
    time.sleep(window)
    cores = read_core_times().describe_since(before)
    say(f"in {window} s {cores}")
    wrong = []
    settled = measure_attainment(hold + AFTER_SECONDS - SETTLED_SECONDS)
    for name, (asked, share) in measure_attainment(window).items():
        say(
            f"{name}: {asked:.0f} requests in {window} s, {share:.2%} within the SLO; "
            f"{settled[name][1]:.2%} from {SETTLED_SECONDS} s after the ramp"
        )
        if share < ATTAINMENT:
            wrong.append(f"{name} attains {share:.2%}; {cores}")
    peak = ask_value(f"max_over_time(sum(rate(gpuwright_gateway_service_requests_total[15s]))[{window}s:5s])")
    say(f"at most {peak:.0f} requests a second")
    return wrong


def outlive_chaos(compose: Compose, minutes: float, socket: Path, spike: dict[str, str]) -> list[str]:
    """Returns what chaos broke for good."""
    where = {"DOCKER_SOCKET": str(socket), "DOCKER_GID": str(socket.stat().st_gid)}
    chaos = compose(
        "--profile", "chaos", "up", "--no-build", "--no-deps", "chaos", CHAOS_MINUTES=str(minutes), **where, **spike
    )
    say("\n".join(chaos.stdout.splitlines()[-4:]))
    wrong = []
    code = compose.states().get("chaos", ("", "", -1))[2]
    if code:
        ended = AFTER_CHAOS.get(code, f"chaos ended with {code}")
        wrong.append(f"{ended}: {chaos.stdout[-500:]}{chaos.stderr[-300:]}")
    time.sleep(30)
    for name, (asked, share) in measure_attainment(20).items():
        say(f"afterwards {name}: {asked:.0f} requests in 20 s, {share:.2%} within the SLO")
        if share < ATTAINMENT:
            wrong.append(f"{name} attains {share:.2%} after chaos")
    return wrong


def measure_attainment(seconds: float) -> dict[str, tuple[float, float]]:
    """Returns requests and the share within the SLO, by service, as the gateway counts; what failed is not within."""
    made = {}
    window = f"{max(15, round(seconds))}s"
    for service in (one for one in yaml.safe_load_all(WORLD.read_text()) if one["kind"] == "Service"):
        name = f"{service['metadata']['tenant']}/{service['metadata']['name']}"
        slo = service["spec"]["slo"]["latencyMs"] / 1000
        labels = f'service="{name}"'
        asked = ask_value(f"increase(gpuwright_gateway_service_requests_total{{{labels}}}[{window}])")
        buckets = f"gpuwright_gateway_service_latency_seconds_bucket{{{labels}}}"
        within = count_within_slo(f"increase({buckets}[{window}])", slo)
        made[name] = (asked, within / asked if asked else 0.0)
    return made


def count_within_slo(query: str, slo: float) -> float:
    """Returns how many were no slower; inside a bucket as if spread evenly, as gpuwright itself counts."""
    upto = sorted((float(bucket["metric"]["le"]), float(bucket["value"][1])) for bucket in ask(query))
    below, inside = 0.0, 0.0
    for edge, count in upto:
        if edge >= slo:
            return inside + (count - inside) * (slo - below) / (edge - below)
        below, inside = edge, count
    return inside


def ask_value(query: str) -> float:
    found = ask(query)
    return float(found[0]["value"][1]) if found else 0.0


def try_panels() -> tuple[int, list[str]]:
    """Returns how many expressions were asked, and what is wrong with them."""
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


def ask(query: str) -> list[dict[str, Any]]:
    """Returns what Prometheus says now; ValueError where it refuses the query."""
    url = f"{PROMETHEUS}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    try:
        with urllib.request.urlopen(url, timeout=patience()) as answer:
            said = json.load(answer)
    except urllib.error.HTTPError as error:
        raise ValueError(f"{query}: {error.read()[:300]!r}") from error
    found: list[dict[str, Any]] = said["data"]["result"]
    return found


if __name__ == "__main__":
    sys.exit(main())
