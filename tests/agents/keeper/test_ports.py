"""Ports: an instance gets its last one back, and no other instance is sent its requests."""

from __future__ import annotations

import socket

from agents.keeper.ports import MOST_KNOWN_PORTS, PortMemory, free_port

HOST = "127.0.0.1"


def test_a_copy_that_comes_back_gets_its_port_again() -> None:
    memory, port = PortMemory(), free_port(HOST, ())
    memory.note("search-1", port, ready=True)
    assert memory.choose(HOST, "search-1", taken=()) == port


def test_a_copy_that_failed_on_its_old_port_gets_another_one() -> None:
    memory, port = PortMemory(), free_port(HOST, ())
    memory.note("search-1", port, ready=True)
    memory.choose(HOST, "search-1", taken=())
    memory.note("search-1", port, ready=False)
    assert memory.choose(HOST, "search-1", taken=()) != port


def test_a_port_that_is_still_listened_on_is_not_taken() -> None:
    memory, port = PortMemory(), free_port(HOST, ())
    memory.note("search-1", port, ready=True)
    with socket.create_server((HOST, port)):
        assert memory.choose(HOST, "search-1", taken=()) != port
    assert memory.choose(HOST, "search-1", taken={port}) != port


def test_case_8_another_instance_never_gets_the_port_of_a_copy_that_gateways_may_still_know() -> None:
    memory = PortMemory()
    known = {free_port(HOST, ()) for _ in range(200)}
    for port in known:
        memory.note("search-1", port, ready=True)
    assert all(memory.choose(HOST, "images-1", taken=()) not in known for _ in range(200))


def test_the_memory_is_bounded() -> None:
    memory = PortMemory()
    for port in range(1, MOST_KNOWN_PORTS + 2):
        memory.note("search-1", port, ready=True)
    memory.note("images-1", 1, ready=False)  # it was forgotten, so it is new
    assert memory.choose(HOST, "images-1", taken=()) != 1
