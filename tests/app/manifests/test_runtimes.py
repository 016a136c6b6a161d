"""A runtime has one form, and each thing that contradicts it is named."""

from __future__ import annotations

import json

import msgspec
import pytest

from agents.contract.runtimes import OwnRuntime, own_runtime
from agents.contract.spellings import is_dangerous
from app.manifests.reader import API, read
from app.manifests.validate import validate

PLACE = "spec.variants[0].runtime"


def faults_of(runtime: object) -> dict[str, str]:
    model = {
        "apiVersion": "gpuwright/v1",
        "kind": "Model",
        "metadata": {"name": "m"},
        "spec": {"variants": [{"name": "v", "accuracy": 1, "runtime": runtime}]},
    }
    _, faults = validate(read(json.dumps(model).encode(), "json", API, "m.json"))
    return {fault.field.removeprefix(PLACE).removeprefix("."): str(fault) for fault in faults}


SIGNATURE = "A" * 86 + "=="
WHOLE = {
    "command": ["{python}", "/srv/shop/app.py"],
    "args": ["--port={port}"],
    "env": {"LOG_LEVEL": "info"},
    "secrets": {"API_KEY": "shop-key"},
    "volumes": ["models"],
    "probes": {"health": {"path": "/healthz"}, "startSeconds": 30},
    "warmup": {"path": "/warm", "method": "POST", "body": '{"n": 1}'},
    "drain": {"path": "/drain", "seconds": 20},
    "protocol": "openai",
}


def test_a_whole_command_is_accepted_and_travels_unchanged() -> None:
    assert faults_of(WHOLE) == {}
    own = own_runtime(WHOLE)
    assert own is not None
    assert own.argv == ("{python}", "/srv/shop/app.py", "--port={port}")
    assert msgspec.json.decode(msgspec.json.encode(own), type=OwnRuntime) == own


def test_a_template_is_no_own_runtime() -> None:
    assert own_runtime({"template": "vllm", "args": {"model": "x"}}) is None
    assert own_runtime(None) is None


@pytest.mark.parametrize(
    ("runtime", "field", "says"),
    [
        ({}, "", "none of them"),
        ({"template": "t", "image": "shop/web:1"}, "", "template and image"),
        ({"image": "shop/web:1", "command": ["/bin/true"]}, "", "image and command"),
        ({"template": "t", "port": 80}, "port", "a template takes no port"),
        ({"template": "t", "signature": SIGNATURE}, "signature", "a template takes no signature"),
        ({"command": ["/bin/x"], "signature": SIGNATURE}, "signature", "only an image is signed"),
        ({"image": "shop/web:1", "signature": SIGNATURE}, "image", "a tag can be moved"),
        ({"image": f"shop/web@sha256:{'ab' * 32}", "signature": "signed"}, "signature", "is not a signature"),
        ({"template": "t", "args": ["a"]}, "args", "arguments have names"),
        ({"command": ["/bin/true"], "args": {"a": 1}}, "args", "words in order"),
        ({"command": ["sh", "-c", "true"]}, "command[0]", "not a fixed program"),
        ({"command": ["{copy}"]}, "command[0]", "not a fixed program"),
        ({"command": "/bin/true"}, "command", "is not a list"),
        ({"command": []}, "command", "is empty"),
        ({"command": ["/bin/true"], "port": 80}, "port", "which the node chooses"),
        ({"command": ["/bin/true"], "args": ["a\nb"]}, "args[0]", "cannot be printed"),
        ({"image": "UPPER/case"}, "image", "is not an image"),
        ({"image": "shop/web@sha256:12"}, "image", "is not an image"),
        ({"image": "shop/web:1", "env": {"ld_preload": "x"}}, "env.ld_preload", "can never be set"),
        ({"image": "shop/web:1", "env": {"A-B": "x"}}, "env.A-B", "letters, digits and _"),
        ({"image": "shop/web:1", "secrets": {"PYTHONPATH": "x"}}, "secrets.PYTHONPATH", "can never be set"),
        ({"image": "shop/web:1", "env": {"A": "b"}, "secrets": {"A": "c"}}, "secrets.A", "in env and in secrets"),
        ({"image": "shop/web:1", "volumes": ["/etc"]}, "volumes[0]", "is not a valid name"),
        ({"image": "shop/web:1", "drain": {"path": "drain"}}, "drain.path", "a path"),
        ({"image": "shop/web:1", "protocol": "soap"}, "protocol", "http, openai, grpc"),
        ({"image": "shop/web:1", "privileged": True}, "privileged", "there is no field"),
    ],
)
def test_each_fault_of_a_runtime_is_named(runtime: object, field: str, says: str) -> None:
    assert says in faults_of(runtime)[field]


def test_what_callers_may_use_is_declared_as_nodes_and_gateways_read_it() -> None:
    rules = ["GET /", "* /**", "POST /v1/models/{name}:infer", "POST /shop.v1.Search/{method}", "GET /a/{b}/c/**"]
    own = own_runtime({"command": ["/bin/serve"], "paths": rules})
    assert own
    assert own.paths == tuple(rules)
    assert faults_of({"command": ["/bin/serve"], "paths": rules}) == {}
    for wrong in (
        "/x",
        "get /x",
        "GET x",
        "GET //x",
        "GET /a/**/b",
        "GET /%2e",
        "GET /a b",
        "GET /{",
        "!GET /x",
        "GET /x\n",
    ):
        assert "names no paths" in " ".join(faults_of({"command": ["/bin/serve"], "paths": [wrong]}).values()), wrong
        with pytest.raises(msgspec.ValidationError):
            own_runtime({"command": ["/bin/serve"], "paths": [wrong]})


def test_variables_that_change_what_a_program_runs_are_dangerous_in_upper_and_lower_case() -> None:
    assert all(map(is_dangerous, ("LD_PRELOAD", "PYTHONSTARTUP", "CUDA_MPS_PIPE_DIRECTORY", "Nvidia_Visible_Devices")))
    assert not any(map(is_dangerous, ("LOG_LEVEL", "OMP_NUM_THREADS", "HF_HUB_OFFLINE")))
