"""Copies that were taken over, and other processes of the same user, against the runtime that manages them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agents.contract.assignments import AssignedInstance, Assignment
from agents.contract.fits import MOST_CLIENTS, GpuRules
from agents.node.adoption import adopt_copy
from agents.runtime import Running
from agents.runtime.logs import Logs
from agents.runtime.process import ProcessRuntime
from tests.support.patience import until

ASSIGNED = Assignment("node-1", 1, 1, 1, instances=(AssignedInstance("one", 0, sm_percent=30, memory_gib=1),))


def stranger(**environment: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env=environment)


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_what_a_copy_puts_in_the_place_of_its_log_is_neither_read_nor_emptied(tmp_path: Path, kind: str) -> None:
    logs = Logs(tmp_path / "logs", largest_bytes=100)
    secret = tmp_path / "credential.json"
    secret.write_text("gw_canary" * 100)
    path = logs.path("one.1.1")
    if kind == "link":
        path.symlink_to(secret)
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()
    assert logs.tail("one.1.1") == ""  # a pipe would be waited at for ever
    logs.tidy({"one.1.1"})
    logs.tidy(())
    assert secret.read_text() == "gw_canary" * 100


def test_the_older_part_of_a_log_is_not_written_through_a_link(tmp_path: Path) -> None:
    logs = Logs(tmp_path / "logs", largest_bytes=100)
    victim = tmp_path / "victim"
    victim.write_text("mine")
    path = logs.path("one.1.1")
    path.write_text("x" * 1000)
    path.with_name(path.name + ".1").symlink_to(victim)
    logs.tidy({"one.1.1"})
    assert victim.read_text() == "mine"
    assert path.stat().st_size == 0
    assert len(logs.tail("one.1.1")) == 50


@pytest.mark.slow
def test_a_stranger_with_a_name_for_terminals_is_no_copy(tmp_path: Path) -> None:
    folder = tmp_path / "copies"
    runtime = ProcessRuntime(folder, cgroups=False)
    names = ["\x1b[2Jone.1.1", "one.1.1\n2026 INFO all is well", "one 1", "x" * 201]
    strangers = [stranger(GPUWRIGHT_COPY=name, GPUWRIGHT_FOLDER=str(folder)) for name in [*names, "one.1.1"]]
    try:
        until(lambda: any(found.copy == "one.1.1" for found in runtime.find()), "the plain one is found")
        assert [found.copy for found in runtime.find()] == ["one.1.1"]
    finally:
        for process in strangers:
            process.communicate()


@pytest.mark.parametrize("share", ["nan", "inf", "-1", "0", "101", "1e308", "x", ""])
def test_a_stranger_with_no_believable_share_is_not_adopted(share: str) -> None:
    process = stranger(CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=share, CUDA_VISIBLE_DEVICES="GPU-0", GPUWRIGHT_PORT="1")
    try:
        refusal = adopt_copy(Running("one.1.1", process.pid, 1, "boot"), ASSIGNED, 0.0)
    finally:
        process.communicate()
    assert isinstance(refusal, str)


def test_no_assignment_puts_more_clients_on_a_gpu_than_mps_takes() -> None:
    assert GpuRules.of(Assignment("node-1", 1, 1, 1, clients_per_gpu=10**12)).clients_per_gpu == MOST_CLIENTS
