"""Faults that leave a copy unable to run, injected for real into the places of a breakable fleet."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress

from tests.proofs.breakable_fleet import GPUS, LOOK_SECONDS, MODEL_FILE, STORE, TEMPLATE, BreakableFleet, Place

Mend = Callable[[], object]  # ends a fault


def do_nothing() -> None:
    """Ends a fault that is over by itself."""


def kill_once(fleet: BreakableFleet, place: Place) -> Mend:
    fleet.kill(place)
    return do_nothing


def crash(fleet: BreakableFleet, place: Place) -> Mend:
    """Each copy serves for a moment and ends with an error."""
    return _break(fleet, place, "crashes")


def start_for_ever(fleet: BreakableFleet, place: Place) -> Mend:
    return _break(fleet, place, "never_warm")


def ask_for_too_much(fleet: BreakableFleet, place: Place) -> Mend:
    """A copy asks for more memory than its GPU has, and ends when it is refused."""
    return _break(fleet, place, "out_of_memory")


def take_port(fleet: BreakableFleet, place: Place) -> Mend:
    """Another program listens where the copy is to."""
    return _break(fleet, place, "port_taken")


def list_crashes(fleet: BreakableFleet, place: Place) -> list[float]:
    """Returns when copies crashed there."""
    return [float(line) for line in (fleet.folder / "broken" / f"{fleet.uuid(place)}.ended").read_text().split()]


def _break(fleet: BreakableFleet, place: Place, how: str) -> Mend:
    file = fleet.folder / "broken" / fleet.uuid(place)
    file.write_text(how)
    fleet.kill(place)
    return file.unlink


def stop_all(fleet: BreakableFleet, place: Place) -> Mend:
    """Every process on the GPU is stopped, and each that follows."""
    ended = threading.Event()

    def stop() -> None:
        while not ended.wait(LOOK_SECONDS):
            for running in fleet.processes(place):
                with suppress(ProcessLookupError):
                    os.kill(running.pid, signal.SIGSTOP)

    stopping = threading.Thread(target=stop, daemon=True)
    stopping.start()

    def mend() -> None:
        ended.set()
        stopping.join()
        fleet.kill(place)

    return mend


def delete_model_file(fleet: BreakableFleet, place: Place) -> Mend:
    """The file is gone on all nodes, and the copy that had read it ends."""
    file = fleet.folder / STORE / MODEL_FILE
    content = file.read_bytes()
    file.unlink()
    fleet.kill(place)
    return lambda: file.write_bytes(content)


def take_gpu_out(fleet: BreakableFleet, place: Place) -> Mend:
    """The node starts again without its last GPU."""
    agent = fleet.agents[place.node]

    def start(gpus: int) -> None:
        agent.end(signal.SIGKILL)
        switches = fleet.switches(place.node)
        switches.quit()
        agent.gpus = gpus
        fleet.start_agent(place.node)

    start(GPUS - 1)
    return lambda: start(GPUS)


def take_template_away(fleet: BreakableFleet, place: Place) -> Mend:
    """The node's agent starts again without the template, and the copy ends."""
    file = fleet.folder / f"{place.node}-templates" / f"{TEMPLATE}.yaml"
    content = file.read_text()
    file.unlink()
    fleet.restart_agent(place.node)
    fleet.kill(place)

    def mend() -> None:
        file.write_text(content)
        fleet.restart_agent(place.node)

    return mend


def end_mps(fleet: BreakableFleet, place: Place) -> Mend:
    """The GPU's MPS daemon ends, and does not come up."""
    switches, uuid = fleet.switches(place.node), fleet.uuid(place)
    switches.turn("mps_startable", uuid, False)
    switches.turn("mps_dies", uuid)

    def mend() -> None:
        switches.turn("mps_startable", uuid, True)
        switches.close()

    return mend


FAULTS: dict[str, Callable[[BreakableFleet, Place], Mend]] = {
    "killed": kill_once,
    "crash_loop": crash,
    "never_warm": start_for_ever,
    "out_of_memory": ask_for_too_much,
    "port_taken": take_port,
    "hung": stop_all,
    "model_file_deleted": delete_model_file,
    "no_gpu": take_gpu_out,
    "no_template": take_template_away,
    "mps_down": end_mps,
}
