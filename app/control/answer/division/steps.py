"""Writes the steps of a division for an operator: what leaves, what to type, and what to check. Nothing is done."""

from __future__ import annotations

from collections.abc import Iterator

from app.control.answer.division.order import DivisionStep
from app.control.answer.division.wire import TYPES_FILE, DivisionCommandWire, DivisionStepWire, ProposedDocumentWire
from app.control.answer.explain.wording import count, rate

SERVER = "$GPUWRIGHT_SERVER"


def write_step(step: DivisionStep, gpus: int, manifest: ProposedDocumentWire, *, is_first: bool) -> DivisionStepWire:
    """Returns a step with its commands."""
    profile = step.layout.profile
    devices = gpus * profile.most
    checks = [
        f"nvidia-smi --query-gpu=mig.mode.current --format=csv,noheader says Enabled for {count(gpus, 'GPU')}: "
        "if it is pending, something still uses the GPU, or it needs a reset",
        f"nvidia-smi -L lists {count(devices, 'device')} MIG {profile.name}; nvidia-smi mig -lgip names profile "
        f"{profile.id} {profile.name}",
        f"gpuwright describe node {step.node} says InventoryMismatch False, with {count(devices, 'GPU')}",
        f"{step.node} makes the devices again at boot, before its agent starts: they do not outlast a reboot",
    ]
    return {
        "node": step.node,
        "gpus": gpus,
        "profile": profile.name,
        "profileId": profile.id,
        "devicesPerGpu": profile.most,
        "devices": devices,
        "gpuType": step.layout.gpu_type,
        "memoryGib": profile.memory_gib,
        "smCount": profile.sm_count,
        "drained": [{"service": line.service, "copies": line.copies, "to": list(line.to)} for line in step.drained],
        "lacking": [{"service": name, "ratePerSecond": lost} for name, lost in sorted(step.lacking.items())],
        "isKnown": step.is_known,
        "commands": list(_write_commands(step, devices, is_first=is_first)),
        "checks": checks,
        "manifest": manifest,
    }


def _write_commands(step: DivisionStep, devices: int, *, is_first: bool) -> Iterator[DivisionCommandWire]:
    node, profile = step.node, step.layout.profile
    if is_first:
        yield {"on": "", "command": f"gpuwright apply -f {TYPES_FILE}"}
    yield {"on": "", "command": f"gpuwright drain {node} --wait"}
    yield {"on": node, "command": "systemctl stop gpuwright-agent"}
    yield {"on": node, "command": "nvidia-smi -mig 1"}
    yield {"on": node, "command": f"nvidia-smi mig -cgi {','.join([str(profile.id)] * profile.most)} -C"}
    yield {"on": "", "command": f"gpuwright apply -f {node}.yaml"}
    joins = f"--node {node} --gpu-type {step.layout.gpu_type} --gpus {devices}"
    agent = f"agent join --state-dir /var/lib/gpuwright-agent --server {SERVER} {joins}"
    yield {"on": "", "command": f"gpuwright token join --node {node} | ssh {node} {agent}"}
    yield {"on": node, "command": "systemctl start gpuwright-agent"}
    yield {"on": "", "command": f"gpuwright uncordon {node}"}


def describe_step(step: DivisionStepWire) -> str:
    """Returns a step in a sentence."""
    what = f"{step['node']}: {count(step['gpus'], 'GPU')} into {step['devices']} devices {step['profile']}"
    leaves = [
        f"{line['copies']} of {line['service']}" + (f" to {' and '.join(line['to'])}" if line["to"] else "")
        for line in step["drained"]
    ]
    drained = f"; before, it moves {', '.join(leaves)}" if leaves else "; nothing runs there by then"
    lacking = ", ".join(f"{rate(line['ratePerSecond'])} a second of {line['service']}" for line in step["lacking"])
    if not step["isKnown"]:
        return f"{what}{drained}; there was no time to look where they go: --seconds looks longer"
    return what + drained + (f"; nothing would carry {lacking} meanwhile: add a GPU before" if lacking else "")
