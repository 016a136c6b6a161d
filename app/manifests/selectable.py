"""Lists what label and field selectors can match in an object, as plain strings for a single index."""

from __future__ import annotations

from collections.abc import Iterator

from app.manifests.model import JSON, Manifest, WrittenSpec

MAX_ENTRIES = 256
MAX_CHARACTERS = 200  # of an entry; longer values cannot be selected
MAX_DEPTH = 3
TABLES = frozenset({"latencyMs", "memoryGib", "pressure", "powerW", "stepsPerSecond", "requestsPerSecond", "iteration"})
HIDDEN = frozenset({"tenants"})  # a tenant could ask which others a Model admits


def selector_entries(manifest: Manifest) -> list[str]:
    """Returns `metadata.name=search`, `spec.model=resnet50`, `label:team=a`, and `label:team` for any value."""
    entries = [f"metadata.name={manifest.name}"]
    if manifest.tenant:
        entries.append(f"metadata.tenant={manifest.tenant}")
    for key, value in sorted(manifest.labels.items()):
        entries += [f"label:{key}", f"label:{key}={value}"]
    for entry in _leaves("spec", manifest.spec, MAX_DEPTH):
        if len(entries) >= MAX_ENTRIES:
            break
        if len(entry) <= MAX_CHARACTERS:
            entries.append(entry)
    return list(dict.fromkeys(entries))


def format_scalar(value: JSON) -> str:
    """Returns a scalar as a selector writes it: `true`, `900`, `search`."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else repr(value)
    return "null" if value is None else str(value)


def _leaves(path: str, mapping: WrittenSpec, depth: int) -> Iterator[str]:
    for key, value in mapping.items():
        if key in HIDDEN:
            continue
        field = f"{path}.{key}"
        if isinstance(value, dict):
            if depth > 1 and key not in TABLES:
                yield from _leaves(field, value, depth - 1)
        elif isinstance(value, list):
            for item in value:
                if isinstance(item, dict):
                    if depth > 1:
                        yield from _leaves(field, item, depth - 1)
                else:
                    yield f"{field}={format_scalar(item)}"
        else:
            yield f"{field}={format_scalar(value)}"
