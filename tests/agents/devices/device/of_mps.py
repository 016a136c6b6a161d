"""Checks that every MPS must pass: one daemon per GPU, limits for each client, and faults that stay local."""

from __future__ import annotations

import pytest

from agents.seams.device import DeviceError, MpsState, Trouble
from tests.agents.devices.device.checks import check, found, troubled
from tests.agents.devices.device.stage import Made, StagedClient

# The daemon.


def served(made: Made, uuid: str, sm_percent: float = 30, memory_gib: float = 2.0) -> StagedClient:
    """A client of that GPU's daemon, which is started where there is none."""
    made.mps.start(uuid)
    client = made.stage.client(made.mps.environment(uuid, sm_percent, memory_gib))
    assert client.sm_count is not None, f"not a client; refused: {client.refused}"
    assert made.stage.settled(lambda: client.pid in made.mps.clients(uuid))
    return client


@check
def a_daemon_is_down_then_idle_then_active(made: Made) -> None:
    uuid, other, _ = made.stage.uuids
    assert made.mps.state(uuid) is MpsState.DOWN
    made.mps.start(uuid)
    assert made.mps.state(uuid) is MpsState.IDLE
    assert made.mps.clients(uuid) == frozenset()
    client = served(made, uuid)
    assert made.mps.state(uuid) is MpsState.ACTIVE
    assert made.mps.state(other) is MpsState.DOWN
    client.end()


@check
def starting_a_daemon_that_answers_does_nothing(made: Made) -> None:
    uuid = made.stage.uuids[0]
    client = served(made, uuid)
    made.mps.start(uuid)
    assert made.mps.state(uuid) is MpsState.ACTIVE
    assert made.mps.clients(uuid) == {client.pid}
    assert not client.failed()
    client.end()


@check
def a_stopped_daemon_is_down_and_may_be_stopped_again(made: Made) -> None:
    uuid = made.stage.uuids[0]
    made.mps.start(uuid)
    made.mps.stop(uuid)
    assert made.stage.settled(lambda: made.mps.state(uuid) is MpsState.DOWN)
    made.mps.stop(uuid)
    troubled(lambda: made.mps.clients(uuid), Trouble.DOWN)
    troubled(lambda: made.mps.terminate(uuid, 12345), Trouble.DOWN)
    made.mps.start(uuid)
    assert made.mps.state(uuid) is MpsState.IDLE


@check
def a_daemon_opened_again_is_the_same_daemon(made: Made) -> None:
    uuid = made.stage.uuids[0]
    client = served(made, uuid)
    _, mps = made.stage.reopen()
    assert mps.state(uuid) is MpsState.ACTIVE
    assert mps.clients(uuid) == {client.pid}
    mps.start(uuid)
    assert not client.failed()
    client.end()


@check
def a_gpu_with_another_owners_mps_is_refused_until_that_is_gone(made: Made) -> None:
    uuid, other, _ = made.stage.uuids
    made.stage.mps_of_another(uuid, True)
    assert made.stage.settled(lambda: starts_foreign(made, uuid))
    made.mps.start(other)
    assert made.mps.state(other) is MpsState.IDLE
    made.stage.mps_of_another(uuid, False)
    assert made.stage.settled(lambda: not starts_foreign(made, uuid))
    assert made.mps.state(uuid) is MpsState.IDLE


def starts_foreign(made: Made, uuid: str) -> bool:
    """Tries to start a daemon; whether that is refused because of another owner's."""
    try:
        made.mps.start(uuid)
    except DeviceError as error:
        assert error.trouble is Trouble.FOREIGN
        return True
    return False


# Limits.


@check
def the_environment_names_the_gpu_by_uuid_and_both_limits_in_mpss_form(made: Made) -> None:
    uuid = made.stage.uuids[1]
    made.mps.start(uuid)
    environment = made.mps.environment(uuid, 30, 1.5)
    assert environment["CUDA_VISIBLE_DEVICES"] == uuid
    assert environment["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "30"
    assert environment["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=1536M"
    assert all(name.startswith(("CUDA_", "NVIDIA_")) for name in environment)
    assert made.mps.environment(uuid, 100.0, 2.0)["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] in ("0=2048M", "0=2G")
    assert float(made.mps.environment(uuid, 12.5, 2.0)["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"]) == 12.5
    rounded_up = made.mps.environment(uuid, 30, 0.7)["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"]
    assert rounded_up == "0=717M"


@check
def no_environment_is_without_limits(made: Made) -> None:
    uuid = made.stage.uuids[0]
    made.mps.start(uuid)
    for percent in (0.0, -1.0, 100.5, float("nan"), float("inf")):
        troubled(lambda percent=percent: made.mps.environment(uuid, percent, 1.0), Trouble.OUT_OF_RANGE)  # type: ignore[misc]
    for gib in (0.0, -1.0, 0.0001, float("nan"), float("inf")):
        troubled(lambda gib=gib: made.mps.environment(uuid, 30, gib), Trouble.OUT_OF_RANGE)  # type: ignore[misc]


@check
def every_gpu_has_a_pipe_directory_of_its_own_and_a_container_is_told_of_it(made: Made) -> None:
    directories = []
    for uuid in made.stage.uuids:
        made.mps.start(uuid)
        directory = made.mps.environment(uuid, 30, 1.0)["CUDA_MPS_PIPE_DIRECTORY"]
        assert directory in {str(folder) for folder in made.mps.folders(uuid)}
        directories.append(directory)
    assert len(set(directories)) == 3


@check
def a_client_sees_its_percentage_of_multiprocessors_rounded_down(made: Made) -> None:
    uuid = made.stage.uuids[0]
    total = found(made.device, uuid).sm_count
    for percent in (10, 30.9, 99):
        client = served(made, uuid, sm_percent=percent)
        assert client.sm_count is not None
        assert total * percent / 100 - 8 < client.sm_count <= total * percent / 100
        client.end()
    whole = served(made, uuid, sm_percent=100)
    assert whole.sm_count == total
    whole.end()


@check
def a_client_gets_memory_up_to_its_limit(made: Made) -> None:
    uuid = made.stage.uuids[0]
    client = served(made, uuid, memory_gib=2.0)
    assert client.hold(2.0)
    assert made.device.read(uuid).memory_used_gib == pytest.approx(2.0, abs=0.01)
    assert not client.hold(2.1)
    assert not client.failed()
    assert made.device.read(uuid).memory_used_gib == pytest.approx(2.0, abs=0.01)
    client.end()
    assert made.stage.settled(lambda: made.device.read(uuid).memory_used_gib < 0.01)


# Clients.


@check
def clients_are_host_pids_by_gpu_while_they_run(made: Made) -> None:
    first, second, _ = made.stage.uuids
    older, newer, three = served(made, first), served(made, first), served(made, second)
    assert made.mps.clients(first) == {older.pid, newer.pid}
    assert made.mps.clients(second) == {three.pid}
    older.end()
    assert made.stage.settled(lambda: made.mps.clients(first) == {newer.pid})
    newer.end()
    three.end()
    assert made.stage.settled(lambda: made.mps.clients(first) == frozenset())


@check
def without_a_daemon_a_process_runs_outside_mps_unnoticed(made: Made) -> None:
    uuid = made.stage.uuids[0]
    made.mps.start(uuid)
    environment = made.mps.environment(uuid, 30, 1.0)
    made.mps.stop(uuid)
    assert made.stage.settled(lambda: made.mps.state(uuid) is MpsState.DOWN)
    client = made.stage.client(environment)
    assert (client.sm_count, client.refused) == (None, None)
    made.mps.start(uuid)
    assert client.pid not in made.mps.clients(uuid)
    client.end()


@check
def a_terminated_client_is_cut_off_and_the_others_work_on(made: Made) -> None:
    first, second, _ = made.stage.uuids
    older, newer, far = served(made, first), served(made, first), served(made, second)
    assert made.mps.terminate(first, older.pid)
    assert made.stage.settled(older.failed)
    assert made.stage.settled(lambda: made.mps.clients(first) == {newer.pid})
    assert not newer.failed()
    assert not far.failed()
    assert made.mps.state(first) is MpsState.ACTIVE
    for client in (older, newer, far):
        client.end()


@check
def who_is_no_client_cannot_be_terminated(made: Made) -> None:
    first, second, _ = made.stage.uuids
    older, newer = served(made, first), served(made, second)
    assert not made.mps.terminate(first, newer.pid)
    assert made.mps.clients(first) == {older.pid}
    assert not older.failed()
    assert not newer.failed()
    older.end()
    newer.end()


# Faults.


@check
def a_fatal_fault_hits_all_clients_of_its_gpu_and_none_of_another(made: Made) -> None:
    first, second, _ = made.stage.uuids
    older, newer, far = served(made, first), served(made, first), served(made, second)
    made.stage.mps_faults(first)
    assert made.stage.settled(lambda: made.mps.state(first) is MpsState.FAULT)
    assert made.stage.settled(lambda: older.failed() and newer.failed())
    late = made.stage.client(made.mps.environment(first, 30, 1.0))
    assert late.sm_count is None
    assert late.refused is not None
    assert made.mps.state(second) is MpsState.ACTIVE
    assert made.mps.clients(second) == {far.pid}
    assert not far.failed()
    for client in (older, newer, far, late):
        client.end()


@check
def a_faulted_server_takes_clients_again_when_those_affected_are_gone(made: Made) -> None:
    uuid = made.stage.uuids[0]
    older, newer = served(made, uuid), served(made, uuid)
    made.stage.mps_faults(uuid)
    assert made.stage.settled(lambda: made.mps.state(uuid) is MpsState.FAULT)
    older.end()
    assert made.mps.state(uuid) is MpsState.FAULT
    newer.end()
    assert made.stage.settled(lambda: made.mps.state(uuid) in (MpsState.ACTIVE, MpsState.IDLE))
    served(made, uuid).end()


@check
def a_dead_daemon_is_down_and_starts_again_and_others_know_nothing_of_it(made: Made) -> None:
    first, second, _ = made.stage.uuids
    made.mps.start(first)
    far = served(made, second)
    made.stage.mps_dies(first)
    assert made.stage.settled(lambda: made.mps.state(first) is MpsState.DOWN)
    troubled(lambda: made.mps.clients(first), Trouble.DOWN)
    assert made.mps.clients(second) == {far.pid}
    made.mps.start(first)
    assert made.mps.state(first) is MpsState.IDLE
    served(made, first).end()
    assert not far.failed()
    far.end()


@check
def a_daemon_that_hangs_is_given_up_on_and_others_answer(made: Made) -> None:
    first, second, _ = made.stage.uuids
    made.mps.start(first)
    made.mps.start(second)
    made.stage.mps_hangs(first, True)
    troubled(lambda: made.mps.clients(first), Trouble.TIMEOUT)
    assert made.mps.state(second) is MpsState.IDLE
    made.stage.mps_hangs(first, False)
    assert made.stage.settled(lambda: made.mps.state(first) is MpsState.IDLE)
