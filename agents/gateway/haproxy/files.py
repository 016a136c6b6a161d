"""Writes HAProxy's files: the generated configuration, the maps that it names, and the Lua files that it loads."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from agents.gateway.desired import Desired
from agents.gateway.haproxy import admitting, configuration
from agents.gateway.haproxy.configuration import backend_name
from agents.host import durable


def write_files(folder: Path, desired: Desired, requests: str) -> None:
    """Writes configuration and maps, so that a process that starts from now on has the desired state.

    A service that has lost its slot leaves the map before another service's servers enter the slot.
    """

    def write(name: str, text: str) -> None:
        durable.write_changed(folder / name, text.encode(), 0o644)

    # Maps come before the configuration that names them.
    write(configuration.LIMITS, configuration.render_limits(desired.limits))
    write(configuration.COPIES, configuration.render_copies(desired))
    admitted = admitting.list_keys(desired)
    write(configuration.PATHS, admitting.render_map(admitting.list_expressions(desired)))
    narrowed = admitting.narrow_keys(_read_map(folder / configuration.KEYS), admitted)
    write(configuration.KEYS, admitting.render_map(narrowed))
    before = _read_map(folder / configuration.SERVICES)
    both = {service: slot for service, slot in desired.slots.items() if before.get(service) == backend_name(slot)}
    if before.keys() != both.keys():
        write(configuration.SERVICES, configuration.render_services(both))
    for name in (configuration.TOKENS, configuration.BALANCE):
        write(name, configuration.read_lua(name))
    write(configuration.GENERATED, configuration.render_generated(desired, folder, requests))
    write(configuration.SERVICES, configuration.render_services(desired.slots))
    write(configuration.KEYS, admitting.render_map(admitted))
    for path in folder.glob(configuration.ANY_LIMITS):
        if path.name != configuration.LIMITS:
            path.unlink()  # of another version


def _read_map(path: Path) -> Mapping[str, str]:
    try:
        lines = path.read_text().splitlines()
    except FileNotFoundError:
        return {}
    return {line.split(" ")[0]: line.split(" ")[-1] for line in lines}
