"""Declares a Model from its name and its file, so that a campaign can start it."""

from __future__ import annotations

import json
from pathlib import PurePosixPath
from typing import Any

from cli.exits import Failed
from cli.output import say
from cli.profiling.asked import ModelVariant
from cli.talk.client import ApiClient
from cli.talk.refusals import ServerRefusal

TEMPLATE = "gpuwright-serve"
SUFFIXES = (".onnx",)  # a TorchScript model needs its shape, too


def declare_model(client: ApiClient, wanted: ModelVariant, file: str) -> bool:
    """Declares the model with one variant that runs this file of the node's models; one that is declared must run it.

    Returns whether it was not declared before; raises Failed.
    """
    variant = PurePosixPath(file).suffix.lstrip(".")
    if PurePosixPath(file).suffix not in SUFFIXES:
        raise Failed(f"--file {file}: a model's file ends with {' or '.join(SUFFIXES)}; declare others as a Model")
    declared = _read_declared(client, wanted.model)
    if declared is not None:
        runtimes = [stated.get("runtime") or {} for stated in declared["variants"]]
        runs = [str((runtime.get("args") or {}).get("file", "")) for runtime in runtimes]
        if file not in runs:
            files = ", ".join(filter(None, runs)) or "none"
            raise Failed(f"Model {wanted.model} is declared already, with the files: {files}; leave out --file")
        return False
    runtime = {"template": TEMPLATE, "args": {"model": wanted.model, "file": file}}
    spec = {"variants": [{"name": wanted.variant or variant, "accuracy": 1, "runtime": runtime}]}
    manifest = {"apiVersion": "gpuwright/v1", "kind": "Model", "metadata": {"name": wanted.model}, "spec": spec}
    client.send("POST", "/api/v1/apply", body=json.dumps([manifest]).encode())
    say(f"model {wanted.model} is declared: {TEMPLATE} runs {file} of a node's models")
    return True


def withdraw_model(client: ApiClient, wanted: ModelVariant) -> None:
    """Deletes the model that was declared for a campaign which measured nothing."""
    try:
        client.send("DELETE", f"/api/v1/models/{wanted.model}")
    except ServerRefusal as refusal:  # somebody uses it by now
        say(f"model {wanted.model} stays declared: {refusal}")
    else:
        say(f"model {wanted.model} is not declared any more")


def _read_declared(client: ApiClient, model: str) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = client.get(f"/api/v1/models/{model}")["spec"]
    except ServerRefusal as refusal:
        if refusal.status == 404:
            return None
        raise
    return found
