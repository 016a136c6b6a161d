"""A client that openapi-python-client writes lists, creates, changes and deletes every kind."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from app.manifests.model import STORED, Kind
from tests.support import world
from tests.support.forked import ROOT
from tests.support.server import RunningServer

PACKAGE = "gpuwright_client"
OPENAPI = ROOT / "openapi"
PATCHED = {"metadata": {"labels": {"by": "generated-client"}}}
WITHOUT_PARAMETERS = {  # operation, and its module's folder
    "list_audit": "audit",
    "list_campaigns": "campaigns",
    "list_cordons": "cordons",
    "list_events": "events",
    "list_join_tokens": "tokens",
    "list_plans": "plans",
    "list_reports": "reports",
    "list_tokens": "tokens",
    "overview": "overview",
    "attainment": "slo",
    "whoami": "tokens",
    "readyz": "health",
}


class GeneratedClient:
    """The generated package, and a session with the server."""

    def __init__(self, server: RunningServer) -> None:
        client = import_module(f"{PACKAGE}.client").AuthenticatedClient
        self.session = client(base_url=server.url, token=server.admin_token, raise_on_unexpected_status=True)

    def call(self, folder: str, operation: str, *path: str, **named: Any) -> Any:
        """Calls an operation; returns the status and what the client parsed."""
        answer = import_module(f"{PACKAGE}.api.{folder}.{operation}").sync_detailed(*path, client=self.session, **named)
        return int(answer.status_code), answer.parsed

    def model(self, name: str) -> Any:
        return getattr(import_module(f"{PACKAGE}.models"), name)


@pytest.fixture(scope="module")
def client(server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GeneratedClient]:
    folder = tmp_path_factory.mktemp("client")
    program = Path(sys.executable).with_name("openapi-python-client")
    words: list[str | Path] = [
        "generate",
        "--path",
        OPENAPI / "openapi.json",
        "--config",
        OPENAPI / "client.yaml",
        "--meta",
        "none",
    ]
    written: list[str | Path] = ["--fail-on-warning", "--output-path", folder / PACKAGE]
    generated = subprocess.run([program, *words, *written], capture_output=True, text=True)
    assert generated.returncode == 0, generated.stdout + generated.stderr
    assert "WARNING" not in generated.stdout + generated.stderr
    sys.path.insert(0, str(folder))
    yield GeneratedClient(server)
    sys.path.remove(str(folder))
    for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
        del sys.modules[name]


def manifests() -> dict[Kind, dict[str, Any]]:
    """Returns an object of each kind, those first that others refer to."""
    slow = {"latencyMs": {"1": {"10": 30.0, "100": 9.0}}, "memoryGib": {"1": 1.2}}
    size = {"gpusPerNode": 1, "cpuCores": 8, "memoryGib": 32}
    pool = {"gpuType": "made-gpu", "max": 2, "hook": "cloud"} | size
    return {
        Kind.GPU_TYPE: world.gpu_type("made-gpu"),
        Kind.NODE: world.node("made-node", "made-gpu"),
        Kind.POOL: world.manifest("Pool", "made-pool", pool),
        Kind.TENANT: world.manifest("Tenant", "made-tenant", {}),
        Kind.MODEL: world.model("made-model"),
        Kind.PROFILE: world.profile("made-model", "made-gpu", **slow),
        Kind.SERVICE: world.service("made-service", "made-tenant", "made-model"),
        Kind.JOB: world.job("made-job", "made-tenant"),
        Kind.POLICY: world.manifest("Policy", "default", {"mode": "advisory"}),
    }


def snake(kind: Kind) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in str(kind)).strip("_")


def names_of(manifest: dict[str, Any]) -> list[str]:
    metadata = manifest["metadata"]
    return [metadata[name] for name in ("tenant", "name") if name in metadata]


@pytest.mark.slow
def test_a_generated_client_lists_creates_changes_and_deletes_every_kind(client: GeneratedClient) -> None:
    made = manifests()
    assert made.keys() == set(STORED)
    assert client.call("policies", "delete_policy", "default")[0] == 200  # there is one at most
    for kind, manifest in made.items():
        _create_and_change(client, kind, manifest)
    for kind in reversed(made):
        path = names_of(made[kind])
        status, deleted = client.call(kind.plural, f"delete_{snake(kind)}", *path)
        assert (status, deleted.metadata.name) == (200, path[-1])
        status, gone = client.call(kind.plural, f"get_{snake(kind)}", *path)
        assert (status, gone.status) == (404, 404)


def _create_and_change(client: GeneratedClient, kind: Kind, manifest: dict[str, Any]) -> None:
    """Creates, reads, lists and changes an object, and finds all that was sent in what comes back."""
    path, folder, name = names_of(manifest), kind.plural, snake(kind)
    body = client.model(f"{kind}Manifest").from_dict(manifest)
    assert body.to_dict() == manifest
    status, created = client.call(folder, f"put_{name}", *path, body=body, if_none_match="*")
    assert (status, type(created).__name__) == (201, str(kind)), created
    assert manifest["spec"].items() <= created.spec.to_dict().items()

    status, refused = client.call(folder, f"put_{name}", *path, body=body, if_none_match="*")
    assert (status, refused.title) == (412, "The object is not as the request requires")

    etag = f'"{created.metadata.resource_version}"'
    assert client.call(folder, f"get_{name}", *path, if_none_match=etag) == (304, None)

    status, listed = client.call(folder, f"list_{name}")
    assert status == 200
    assert created.to_dict()["metadata"] in [item.to_dict()["metadata"] for item in listed.items]

    patch = client.model("MergePatch").from_dict(PATCHED)
    status, patched = client.call(folder, f"patch_{name}", *path, body=patch, if_match=etag)
    assert (status, patched.metadata.labels.to_dict()) == (200, PATCHED["metadata"]["labels"])

    status, stale = client.call(folder, f"put_{name}", *path, body=body, if_match=etag)
    assert (status, stale.status) == (412, 412)
    status, put_back = client.call(folder, f"put_{name}", *path, body=body)
    assert (status, put_back.metadata.labels.to_dict()) == (200, {})


@pytest.mark.slow
def test_a_generated_client_reads_typed_specs_and_answers(client: GeneratedClient) -> None:
    status, service = client.call("services", "get_service", "shop", "search")
    assert (status, service.spec.slo.percentile) == (200, 98)
    for operation, folder in WITHOUT_PARAMETERS.items():
        status, answer = client.call(folder, operation)
        assert status == 200
        assert type(answer).__name__ not in ("Problem", "NoneType", "dict"), operation
        assert answer.additional_properties == {}, operation


@pytest.mark.slow
def test_a_generated_client_applies_yaml_and_reads_the_change(client: GeneratedClient) -> None:
    text = b"apiVersion: gpuwright/v1\nkind: Tenant\nmetadata: {name: from-yaml}\nspec: {}\n"
    body = import_module(f"{PACKAGE}.types").File(payload=text)
    status, applied = client.call("apply", "apply", body=body)
    assert status == 200
    assert [(change.kind, change.action) for change in applied.changes] == [("Tenant", "created")]
    assert client.call("tenants", "delete_tenant", "from-yaml")[0] == 200
