"""A Docker Engine of the tests' own: its own socket, its own storage, no bridge, and one image made of busybox."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.needs import need
from tests.support.patience import patience, until

IMAGE = "gpuwright-test"
APPLETS = ("httpd", "id", "sh", "sleep", "env", "cat", "grep", "touch", "ls")


class NoEngine(Exception):
    """None can run here; the message says why."""


@dataclass(frozen=True, slots=True)
class Engine:
    """One that answers."""

    address: str
    log: Path


@contextmanager
def docker_engine(folder: Path, bridge: str = "none") -> Iterator[Engine]:
    """`bridge` names one that exists already, for containers with a network of their own."""
    busybox = need("busybox", "busybox-static")
    with bare_engine(folder, f"--bridge={bridge}", "--storage-driver=vfs") as engine:
        _make_image(engine.address, Path(busybox))
        yield engine


@contextmanager
def bare_engine(folder: Path, *options: str) -> Iterator[Engine]:
    """Without any image. Its containers end with it, and it touches no rule of the host's network."""
    if os.geteuid() != 0:
        raise NoEngine("only root can start a Docker Engine")
    dockerd = need("dockerd", "docker.io")
    # A socket's path is at most 108 characters, and a test's folder may be longer.
    socket = Path(f"/run/gpuwright-test-{os.getpid()}.sock")
    log = folder / "dockerd.log"
    places = ("--data-root", folder / "data", "--exec-root", folder / "exec", "--pidfile", folder / "pid")
    quiet = ("--iptables=false", "--ip6tables=false", *options)
    with log.open("w") as file:
        daemon = subprocess.Popen(
            [dockerd, *map(str, places), *quiet, "-H", f"unix://{socket}"],
            stdout=file,
            stderr=file,
            start_new_session=True,  # a Ctrl-C ends the tests first
        )
    try:
        until(lambda: daemon.poll() is not None or _answers(f"unix://{socket}"), "dockerd")
        if daemon.poll() is not None:
            raise NoEngine(f"dockerd ends here: {log.read_text()[-500:]}")
        yield Engine(f"unix://{socket}", log)
    finally:
        daemon.terminate()
        try:
            daemon.wait(patience())
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()
        socket.unlink(missing_ok=True)
        for line in Path("/proc/self/mounts").read_text().splitlines():
            if line.split()[1].startswith(f"{folder}/"):  # the namespace of the host's network, which it leaves
                subprocess.run(["umount", line.split()[1]])


def _answers(address: str) -> bool:
    from docker import APIClient
    from docker.errors import DockerException

    try:
        client = APIClient(base_url=address, version="auto", timeout=10)
        client.ping()
        client.close()
    except (DockerException, OSError):
        return False
    return True


def _make_image(address: str, busybox: Path) -> None:
    """No registry is asked: the image is one program under several names."""
    from docker import APIClient

    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name in ("bin", "tmp", "run", "dev", "proc", "sys"):
            empty = tarfile.TarInfo(name)
            empty.type, empty.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            tar.addfile(empty)
        tar.add(busybox.resolve(), "bin/busybox")
        for applet in APPLETS:
            link = tarfile.TarInfo(f"bin/{applet}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link)
    client = APIClient(base_url=address, version="auto", timeout=patience())
    try:
        client.import_image_from_data(packed.getvalue(), repository=IMAGE)
    finally:
        client.close()
