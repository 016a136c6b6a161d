"""Reads declared objects from files alone, with validation, references, and the faults of all files at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from app.manifests import references
from app.manifests.adapters_fit import find_unheld
from app.manifests.caps import find_unfit_caps
from app.manifests.faults import ManifestFault, ManifestsRefused
from app.manifests.language_fit import find_unfit
from app.manifests.limits import OFFLINE
from app.manifests.model import Key, Kind, Manifest, WrittenSpec
from app.manifests.reader import Document, Media, read
from app.manifests.validate import examine

DEFAULT_TENANT = "default"


@dataclass(frozen=True, slots=True)
class DeclaredFiles:
    """All declared objects of the files, by key, in the order of the files."""

    manifests: Mapping[Key, Manifest]

    def spec(self, key: Key) -> WrittenSpec | None:
        found = self.manifests.get(key)
        return found.spec if found else None

    def names(self, kind: Kind, tenant: str) -> list[str]:
        return [
            key.name
            for key, manifest in self.manifests.items()
            if key.kind is kind and references.admits(kind, manifest.spec, tenant)
        ]

    def of(self, kind: Kind) -> list[Manifest]:
        return [manifest for key, manifest in self.manifests.items() if key.kind is kind]

    @property
    def currency(self) -> str:
        """The currency of all prices, as tenants' budgets name it; empty where they name none, or several."""
        budgets: list[Mapping[str, str]] = [tenant.spec.get("budget") or {} for tenant in self.of(Kind.TENANT)]
        named = {budget["currency"] for budget in budgets if budget.get("currency")}
        return named.pop() if len(named) == 1 else ""


@dataclass(frozen=True, slots=True)
class Input:
    """A file's bytes and name; standard input and tests have no path."""

    source: str
    data: bytes
    media: Media = "yaml"


def load(inputs: Iterable[Path | Input]) -> DeclaredFiles:
    """Returns the declared objects of the files; raises ManifestsRefused with every fault."""
    documents: list[Document] = []
    faults: list[ManifestFault] = []
    too_large = False
    for entry in inputs:
        try:
            documents += _documents(entry)
        except ManifestsRefused as refused:
            faults += refused.faults
            too_large |= refused.too_large
    manifests, wrong, at_fault, sketches = examine(documents, default_tenant=DEFAULT_TENANT, offline=True)
    world = DeclaredFiles({manifest.key: manifest for manifest in manifests})
    unreadable = bool(faults)
    faults += wrong
    if at_fault is not None and not unreadable:
        faults += find_unknown(world, at_fault, sketches)
    if not faults and not manifests:
        faults = [ManifestFault("", "", "there is no file to read", "at least one manifest")]
    if faults:
        raise ManifestsRefused(faults, too_large=too_large)
    return world


def find_unknown(
    world: DeclaredFiles, at_fault: frozenset[Key], sketches: Sequence[Manifest] = ()
) -> list[ManifestFault]:
    """Returns references to missing objects, and Profiles of the same subject.

    A reference to an object at fault is skipped: the object is reported already, and is not missing.
    """
    manifests = references.drop_faulty_references(world.manifests.values(), at_fault)
    also_wrong = references.drop_faulty_references(sketches, at_fault)
    found = references.find_missing([*manifests, *also_wrong], world) + references.find_clashes(manifests, {})
    found += find_unfit(manifests, world) + find_unfit_caps(manifests, world)
    found += find_unheld(manifests, world, [manifest.spec for manifest in world.of(Kind.PROFILE)])
    states = world.of(Kind.STATE)
    if len(states) > 1:
        found.append(ManifestFault(states[1].document, "kind", "there is more than one State", "one State"))
    for state in states if not at_fault else ():
        found += _check_state(state, world)
    return found


def _documents(entry: Path | Input) -> list[Document]:
    if isinstance(entry, Input):
        return read(entry.data, entry.media, OFFLINE, entry.source)
    source = str(entry)
    try:
        with entry.open("rb") as file:
            data = file.read(OFFLINE.max_bytes + 1)
    except OSError as error:
        raise ManifestsRefused([ManifestFault(source, "", f"the file cannot be read: {error.strerror}")]) from None
    return read(data, "json" if entry.suffix == ".json" else "yaml", OFFLINE, source)


def _check_state(state: Manifest, world: DeclaredFiles) -> list[ManifestFault]:
    """Returns a fault for each entry of State without a declared GPU, service or job."""
    found: list[ManifestFault] = []
    spec: WrittenSpec = state.spec
    lists: Sequence[tuple[str, str, Kind]] = (("running", "service", Kind.SERVICE), ("jobs", "job", Kind.JOB))
    for field, noun, kind in lists:
        for index, entry in enumerate(spec.get(field, ())):
            at = f"spec.{field}[{index}]"
            owner = world.spec(Key(kind, *entry[noun].split("/")))
            node = world.spec(Key(Kind.NODE, "", entry["node"]))
            if owner is None:
                found.append(_fault(state, f"{at}.{noun}", f"there is no {kind} {entry[noun]}"))
            elif kind is Kind.SERVICE:
                model = world.spec(Key(Kind.MODEL, "", str(owner["model"])))
                if model and entry["variant"] not in references.variants(model):
                    message = f"Model {owner['model']} has no variant {entry['variant']}"
                    found.append(_fault(state, f"{at}.variant", message))
            if node is None:
                found.append(_fault(state, f"{at}.node", f"there is no Node {entry['node']}"))
                continue
            for name in (name for name in ("gpu", "gpus") if name in entry):
                for gpu in [entry[name]] if name == "gpu" else entry[name]:
                    if gpu >= node["gpus"]:
                        message = f"Node {entry['node']} has no GPU {gpu}"
                        found.append(_fault(state, f"{at}.{name}", message, f"0..{node['gpus'] - 1}"))
            gpu_type = world.spec(Key(Kind.GPU_TYPE, "", node["gpuType"]))
            clock = entry.get("clockMhz")
            if gpu_type and clock is not None and clock not in gpu_type["clocksMhz"]:
                message = f"{clock:g} MHz is not a clock of {node['gpuType']}"
                found.append(
                    _fault(state, f"{at}.clockMhz", message, ", ".join(f"{c:g}" for c in gpu_type["clocksMhz"]))
                )
    return found


def _fault(state: Manifest, field: str, message: str, allowed: str = "") -> ManifestFault:
    return ManifestFault(f"{state.document} {state.key}", field, message, allowed)
