"""An operator who types the commands of a proposed division finds the devices that it names, and so does the agent.

The stand-in for NVML does what `nvidia-smi` would do, by a table of its own.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

import pytest

from agents.contract.reports import GpuFacts, Inventory
from agents.devices.nvml.device import NvmlDevice
from agents.node.gpu_indexes import settle_indexes
from app.control.answer.whatif.change import WhatIfChange
from app.control.answer.whatif.question import WhatIf
from app.nodes.devices import find_differences
from tests.app.control.answer.division.worlds import alone, fleet
from tests.support.nvml_stub import NvmlState, needs_gcc
from tests.support.nvml_stub.state import GIB

pytestmark = [needs_gcc, pytest.mark.slow]

# Of an A100 with 40 GB: by its id, a profile's name, its SMs and GiB, and how many memory slices of eight it takes.
A100_PROFILES = {
    19: ("1g.5gb", 14, 4.75, 1),
    15: ("1g.10gb", 14, 9.62, 2),
    14: ("2g.10gb", 28, 9.62, 2),
    9: ("3g.20gb", 42, 19.5, 4),
}


class Operator:
    """Types the commands that are for the node on its stand-in, each once those before it have been typed."""

    def __init__(self, state: NvmlState, gpus: int) -> None:
        self.state, self.gpus, self.agent_runs, self.in_mig_mode = state, gpus, True, False
        self.joined: dict[str, str] = {}

    def type(self, commands: Iterable[str]) -> None:
        for command in commands:
            words = shlex.split(command)
            match words:
                case ["systemctl", verb, "gpuwright-agent"]:
                    self.agent_runs = verb == "start"
                case ["nvidia-smi", "-mig", "1"]:
                    assert not self.agent_runs, "a GPU in use does not enter MIG mode"
                    self.in_mig_mode = True
                case ["nvidia-smi", "mig", "-cgi", ids, "-C"]:
                    assert self.in_mig_mode
                    self._create([int(number) for number in ids.split(",")])
                case ["agent", "join", *options]:
                    self.joined = dict(pairwise(options))
                case _:
                    raise AssertionError(f"unknown on a node: {command}")

    def _create(self, ids: list[int]) -> None:
        profiles = [A100_PROFILES[number] for number in ids]
        assert sum(slices for *_, slices in profiles) <= 8
        assert sum(int(name[0]) for name, *_ in profiles) <= 7
        for gpu in range(self.gpus):
            self.state.divide(gpu, *range(len(ids)))
            for part, (name, sms, gib, _) in enumerate(profiles):
                self.state.set(gpu, f"mig{part}/name", f"NVIDIA A100-SXM4-40GB MIG {name}")
                self.state.set(gpu, f"mig{part}/sm_count", sms)
                self.state.set(gpu, f"mig{part}/memory_bytes", round(gib * GIB))


@pytest.mark.parametrize(("memory_gib", "profile"), [(2.0, "1g.5gb"), (8.0, "1g.10gb"), (15.0, "3g.20gb")])
def test_the_agent_finds_the_devices_that_the_proposal_names(
    state: NvmlState, opened: Callable[..., NvmlDevice], memory_gib: float, profile: str
) -> None:
    for gpu in range(2):
        state.set(gpu, "name", "NVIDIA A100-SXM4-40GB")
        state.set(gpu, "sm_count", 108)
    world = fleet(alone(4, profile={"memoryGib": {"4": memory_gib}}), nodes=2, gpus=2)
    answer: Any = WhatIf(world, WhatIfChange(), 60.0, 4, 0, with_division=True).answered()
    (step,) = answer["division"]["steps"]
    assert step["profile"] == profile
    operator = Operator(state, step["gpus"])
    piped = f"| ssh {step['node']} "
    there = [line["command"] for line in step["commands"] if line["on"] == step["node"] or piped in line["command"]]
    operator.type(command.rpartition(piped)[2] for command in there)
    assert operator.agent_runs
    found = opened().gpus()
    assert len(found) == step["devices"] == step["manifest"]["spec"]["gpus"]
    assert {(round(gpu.memory_gib, 2), gpu.sm_count) for gpu in found} == {(step["memoryGib"], step["smCount"])}
    assert (operator.joined["--gpu-type"], int(operator.joined["--gpus"])) == (step["gpuType"], step["devices"])
    assert sorted(settle_indexes({}, found, {}).gpus) == list(range(step["devices"])), (
        "it numbers them from 0 at a join"
    )
    types = {
        line["metadata"]["name"]: line["spec"] for line in answer["division"]["manifests"] if line["kind"] == "GpuType"
    }
    facts = tuple(GpuFacts(gpu.index, gpu.uuid, memory_gib=gpu.memory_gib, sm_count=gpu.sm_count) for gpu in found)
    differences = find_differences(step["manifest"]["spec"], types, [], Inventory(facts))
    assert (differences.other, differences.missing, differences.beyond) == ([], [], [])


def test_the_commands_empty_a_node_before_they_divide_it_and_open_it_last() -> None:
    answer: Any = WhatIf(fleet(alone(4), nodes=4), WhatIfChange(), 60.0, 4, 0, with_division=True).answered()
    (step,) = answer["division"]["steps"]
    commands = [entry["command"] for entry in step["commands"]]
    words = [
        "apply -f _types",
        "drain",
        "stop",
        "-mig 1",
        "-cgi",
        f"apply -f {step['node']}",
        "token join",
        "agent join",
        "start",
    ]
    at = [next(place for place, command in enumerate(commands) if word in command) for word in words]
    assert at == sorted(at)
    assert re.fullmatch(r"gpuwright uncordon n\d", commands[-1])
