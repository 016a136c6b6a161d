"""Keeps users' own images and commands from the addresses where clouds hand out a machine's credentials."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess

from agents.contract.admitted import MetadataState
from agents.host import clocks

ADDRESSES = ("169.254.169.254", "fd00:ec2::254")
OWN_BRIDGE = "gpuwright-own"  # the network, and its bridge, of containers with users' own images
PERIOD_SECONDS = 300.0  # then the rules are put in force again: others may have flushed them
PROBE_SECONDS = 1.0
NFT_SECONDS = 10.0
NFT_PATH = "/usr/sbin:/sbin:/usr/bin:/bin"  # a fixed one, because the agent runs it as root
BEFORE_TRANSLATION = -300  # priority of the rules: a rule that translates addresses would hide these from a later one


class MetadataWall:
    """Blocks the addresses for the copies of this node, and says whether that is in force.

    `shares_reach`: copies reach whatever the agent itself reaches, so that it can try in their place.
    """

    def __init__(self, runtime: str, user: int | None, shares_reach: bool) -> None:
        self._runtime = runtime
        self._user = user
        self._shares_reach = shares_reach
        self._state: MetadataState | None = None
        self._checked_at = 0.0

    def state(self) -> MetadataState:
        """Puts the rules in force, if they are due, and returns whether the addresses are blocked."""
        if self._state is None or clocks.seconds() - self._checked_at >= PERIOD_SECONDS:
            self._state, self._checked_at = self._look_blocked(), clocks.seconds()
        return self._state

    def _look_blocked(self) -> MetadataState:
        if self._runtime == "pods":
            return MetadataState(False, f"only network policies of the cluster keep pods from {', '.join(ADDRESSES)}")
        why_not = why_no_rule(self._runtime, self._user) or _put_in_force(rules(self._runtime, self._user))
        if not why_not:
            return MetadataState(True, f"a rule of nftables keeps {_senders(self._runtime, self._user)} from it")
        if self._shares_reach and not answering():
            return MetadataState(True, "nothing answers at it where copies run")
        return MetadataState(False, f"own images and commands may reach {', '.join(ADDRESSES)}: {why_not}")


def why_no_rule(runtime: str, user: int | None) -> str:
    """Returns why this agent cannot make a rule that keeps its copies from the addresses; empty if it may try."""
    if os.geteuid() != 0:
        return "only an agent that is root can block it"
    if runtime != "docker" and user in (None, os.geteuid()):
        return "copies run as the agent's own user, from which no rule can tell them apart"
    return "" if shutil.which("nft", path=NFT_PATH) else "nft is not installed"


def rules(runtime: str, user: int | None) -> str:
    """Returns the table of nftables that blocks the addresses; it replaces the one of an earlier start."""
    name, senders, hook, verdict = f"gpuwright_user_{user}", f"meta skuid {user}", "output", "reject"
    if runtime == "docker":  # dropped where they come in: later they may be translated, or meant for this machine
        name, senders, hook, verdict = "gpuwright_own", f'iifname "{OWN_BRIDGE}"', "prerouting", "drop"
    return f"""table inet {name}
delete table inet {name}
table inet {name} {{
  chain metadata {{
    type filter hook {hook} priority {BEFORE_TRANSLATION}; policy accept;
    {senders} ip daddr {ADDRESSES[0]} {verdict}
    {senders} ip6 daddr {ADDRESSES[1]} {verdict}
  }}
}}
"""


def answering() -> tuple[str, ...]:
    """Returns the addresses that answer this process."""
    return tuple(address for address in ADDRESSES if _answers(address))


def _senders(runtime: str, user: int | None) -> str:
    return f"containers on the bridge {OWN_BRIDGE}" if runtime == "docker" else f"the user {user}"


def _put_in_force(table: str) -> str:
    """Returns why the rules are not in force; empty once they are. They change together, or not at all."""
    program = shutil.which("nft", path=NFT_PATH) or "nft"
    try:
        done = subprocess.run(
            [program, "-f", "-"], check=False, input=table, text=True, capture_output=True, timeout=NFT_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"nft does not run: {error}"
    messages = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
    shown = "".join(character for character in messages[0] if character.isprintable())
    return "" if done.returncode == 0 else f"nft refuses the rule: {shown}"[:300]


def _answers(address: str) -> bool:
    try:
        socket.create_connection((address, 80), PROBE_SECONDS).close()
    except OSError:
        return False
    return True
