"""Writes what `gpuwright up` shows once it serves: addresses, the fleet, and how to end it."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from cli.up.fleet import DeclaredFleet


def first_screen(
    data_dir: Path, server: str, database_url: str, token: str, context: str, log: str, seconds: float
) -> str:
    """Describes where the server is and what to type next."""
    lines = [
        "",
        f"gpuwright is at {server} (ready after {seconds:.1f} s)",
        f"  data      {data_dir}",
        f"  database  {database_url.rpartition('@')[2]}",
        f"  log       {log}",
    ]
    if context:
        lines.append(f"  context   {context}")
    if token:
        lines.append(f"  token     {token}")
        lines.append(f"            admin; shown this once, kept in {data_dir / 'admin.token'}")
    return "\n".join(lines)


def console_line(server: str, link: str) -> str:
    """Returns the console's line: a link that signs a browser in once, or the address where it asks for a token."""
    if not link:
        return f"  console   {server}/"
    line = f"  console   {server}/sign-in?link={link}"
    return f"{line}\n            signs a browser in once, within 60 s; another: gpuwright console"


def fleet_screen(fleet: DeclaredFleet, gateway: str) -> str:
    """Returns the lines about the simulated fleet and the gateway."""
    lines = [f"  fleet     {len(fleet.nodes)} simulated nodes, a planner in mode auto, load that moves"]
    if gateway:
        real = " and ".join(fleet.real_services)
        lines.append(f"  gateway   http://{gateway}: real requests to {real}, on {fleet.real_node}")
    return "\n".join(lines)


def ending(commands_next: Sequence[tuple[str, str]]) -> str:
    """Returns the commands to type next, each with what it is for, and how to stop."""
    width = max(len(command) for command, _ in commands_next)
    commands = [f"{command:{width}}    {about}" for command, about in commands_next]
    lines = ["", "Next, in another terminal:"]
    lines += [f"  {command}" for command in (*_activation(), *commands)]
    lines += ["", "Ctrl-C stops it and keeps the data.", ""]
    return "\n".join(lines)


def _activation() -> list[str]:
    """Returns the command that puts `gpuwright` on another terminal's path, if it is not there: it runs from .venv."""
    script = Path(sys.prefix) / "bin" / "activate"
    return [f"source {shlex.quote(str(script))}"] if not shutil.which("gpuwright") and script.exists() else []


def reachable(url: str) -> str:
    """Returns the address to connect to: a server may listen on all addresses, a client connects to one."""
    return url.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")


NEXT_EMPTY = (
    ("gpuwright apply -f examples/quickstart.yaml", "declare GPUs, models, services and jobs"),
    ("gpuwright get services", "what was promised"),
    ("gpuwright explain plan", "what was planned, or what is missing"),
)
NEXT_CORES = (
    ("gpuwright profile MODEL --file FILE.onnx --on here --apply", "measure a model"),
    ("gpuwright apply -f SERVICE.yaml", "promise its latency"),
    ("gpuwright explain plan", "what was planned, or what is missing"),
)
NEXT_FLEET = (
    ("gpuwright top", "what runs, what it costs, what was decided"),
    ("gpuwright get services -A", "what was promised"),
    ("gpuwright explain service shop/search", "why there, why so many"),
    ("gpuwright what-if --rate shop/search=x2", "what twice the load would cost"),
    ("gpuwright drain l4-1", "empty a node without losing a request"),
    ("gpuwright edit service shop/search", "another rate or SLO, and watch it follow"),
)
