"""Two pools of a language model as people read them: servers, link and what sending costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cli.output import number


def spell_pools(apart: Mapping[str, Any]) -> str:
    """Returns which pools to run, by which link keys and values go, how long a mean prompt takes, and the price."""
    link = apart["link"]
    gpus = sum(apart["gpus"].values())
    where = f" within {apart['cells']} x {gpus // apart['cells']} GPUs" if apart["cells"] else ""
    price = f" and {number(link['costPerHour'])} an hour" if link["costPerHour"] else ""
    prefill, decode = (spell_servers(apart[pool]) for pool in ("prefill", "decode"))
    return (
        f"run prefill on {prefill} and decode on {decode}; keys and values go by"
        f" {link['kind']}{where} at {number(link['gbitPerSecond'])} Gbit/s of each GPU: {number(apart['sentMs'])} ms a"
        f" prompt{price}"
    )


def spell_servers(groups: Sequence[Mapping[str, Any]]) -> str:
    """Returns its servers: how many, and the GPUs of each."""
    words = (f"{group['count']} x {group['gpus']} {group['gpuType']}" for group in groups)
    return " and ".join(words) or "none"
