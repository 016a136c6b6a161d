"""Every way of the contract to be wrong: a file, the field at fault, and words its fault must say."""

from __future__ import annotations

from typing import NamedTuple


class Bad(NamedTuple):
    """One wrong manifest."""

    text: str
    field: str
    says: str
    meant: str = ""


DEFAULT = "{name: default}"


def manifest(kind: str, spec: str, metadata: str = "{name: x}") -> str:
    return f"apiVersion: gpuwright/v1\nkind: {kind}\nmetadata: {metadata}\nspec: {spec}\n"


def service(**fields: str) -> str:
    """A right service, with these fields written differently; empty leaves one out."""
    right = {"model": "m", "slo": "{latencyMs: 80, percentile: 98}", "ratePerSecond": "900"} | fields
    return manifest("Service", "{" + ", ".join(f"{key}: {value}" for key, value in right.items() if value) + "}")


def profile(**fields: str) -> str:
    right = {
        "model": "m",
        "variant": "v",
        "gpuType": "t4",
        "latencyMs": "{1: {10: 4, 100: 2}}",
        "memoryGib": "{1: 1}",
    } | fields
    return manifest("Profile", "{" + ", ".join(f"{key}: {value}" for key, value in right.items() if value) + "}")


def gpu_type(**fields: str) -> str:
    right = {
        "memoryGib": "16",
        "smCount": "40",
        "pricePerHour": "1",
        "idleW": "10",
        "maxW": "70",
        "clocksMhz": "[1590]",
    } | fields
    return manifest("GpuType", "{" + ", ".join(f"{key}: {value}" for key, value in right.items() if value) + "}")


def node(**fields: str) -> str:
    right = {"gpuType": "t4", "gpus": "4", "cpuCores": "8", "memoryGib": "64"} | fields
    return manifest("Node", "{" + ", ".join(f"{key}: {value}" for key, value in right.items() if value) + "}")


def job(**fields: str) -> str:
    profiles = "{t4: {stepsPerSecond: {10: 1, 100: 3}, memoryGib: 9}}"
    right = {"type": "training", "steps": "100", "profiles": profiles} | fields
    return manifest("Job", "{" + ", ".join(f"{key}: {value}" for key, value in right.items() if value) + "}")


def variant(text: str) -> str:
    return manifest("Model", "{variants: [" + text + "]}")


RIGHT = [
    service(),
    profile(),
    gpu_type(),
    node(),
    node(capW="50"),
    node(capW="[50, 60, 70, 50.5]"),
    job(),
    variant("{name: v, accuracy: 0.7}"),
]

FAULTY = {
    "unknown field": Bad(service(minAccurcy="0.5"), "spec.minAccurcy", "there is no field", "minAccuracy"),
    "unknown field inside": Bad(service(slo="{latencyMs: 1, percentil: 98}"), "spec.slo.percentil", "no field"),
    "unknown field on top": Bad(service() + "sepc: {}\n", "sepc", "there is no field", "spec"),
    "unknown field in metadata": Bad(manifest("Tenant", "{}", "{name: x, lables: {}}"), "metadata.lables", "no field"),
    "letters that changed places": Bad(service(modle="m"), "spec.modle", "there is no field", "model"),
    "namespace for tenant": Bad(
        service().replace("{name: x}", "{name: x, namespace: a}"), "metadata.namespace", "there is no field", "tenant"
    ),
    "unknown kind": Bad(manifest("Servce", "{}"), "kind", "there is no kind", "Service"),
    "kind in lower case": Bad(manifest("service", "{}"), "kind", "there is no kind", "Service"),
    "kind that is no text": Bad(manifest("7", "{}"), "kind", "there is no kind 7"),
    "no kind": Bad("apiVersion: gpuwright/v1\nmetadata: {name: x}\nspec: {}\n", "kind", "required"),
    "no version": Bad("kind: Tenant\nmetadata: {name: x}\n", "apiVersion", "required"),
    "another version": Bad("apiVersion: v1\nkind: Tenant\nmetadata: {name: x}\n", "apiVersion", "not a version"),
    "no metadata": Bad("apiVersion: gpuwright/v1\nkind: Tenant\n", "metadata", "required"),
    "no name": Bad(manifest("Tenant", "{}", "{labels: {}}"), "metadata.name", "required"),
    "no spec": Bad("apiVersion: gpuwright/v1\nkind: Node\nmetadata: {name: x}\n", "spec", "required"),
    "name in capitals": Bad(manifest("Tenant", "{}", "{name: Shop}"), "metadata.name", "is not a valid name"),
    "name with an underscore": Bad(manifest("Tenant", "{}", "{name: a_b}"), "metadata.name", "is not a valid name"),
    "name of 64": Bad(manifest("Tenant", "{}", "{name: " + "a" * 64 + "}"), "metadata.name", "is not a valid name"),
    "name that ends in a line": Bad(manifest("Tenant", "{}", '{name: "a\\n"}'), "metadata.name", r"\\n"),
    "name that is a number": Bad(manifest("Tenant", "{}", "{name: 12}"), "metadata.name", "put it in quotes"),
    "name with colour": Bad(manifest("Tenant", "{}", '{name: "a\\e[31m"}'), "metadata.name", r"\\x1b"),
    "name written backwards": Bad(manifest("Tenant", "{}", '{name: "a\\u202E"}'), "metadata.name", r"\\u202e"),
    "name that is SQL": Bad(manifest("Tenant", "{}", '{name: "x\'; DROP TABLE a"}'), "metadata.name", "DROP"),
    "tenant of a wide kind": Bad(manifest("Tenant", "{}", "{name: x, tenant: y}"), "metadata.tenant", "no tenant"),
    "tenant that is no name": Bad(service().replace("{name: x}", "{name: x, tenant: A}"), "metadata.tenant", '"A"'),
    "label that is a number": Bad(manifest("Tenant", "{}", "{name: x, labels: {a: 1}}"), "metadata.labels.a", "quotes"),
    "label with a blank": Bad(manifest("Tenant", "{}", "{name: x, labels: {a b: c}}"), "metadata.labels", "a b"),
    "node with a pricing": Bad(node(pricing="node"), "spec.pricing", "there is no field"),
    "policy of another name": Bad(manifest("Policy", "{}"), "metadata.name", "the only Policy is named"),
    "true is no number": Bad(service(ratePerSecond="true"), "spec.ratePerSecond", "true is not a number"),
    "text is no number": Bad(service(ratePerSecond='"3"'), "spec.ratePerSecond", "leave the quotes out"),
    "yes is no boolean": Bad(job(preemptible="yes"), "spec.preemptible", '"yes" is not true or false'),
    "list is no number": Bad(service(ratePerSecond="[1]"), "spec.ratePerSecond", "a list of 1"),
    "number is no text": Bad(service(model="3"), "spec.model", "3 is not a string"),
    "number is no list": Bad(service(gpuTypes="t4"), "spec.gpuTypes", "not a list"),
    "list is no mapping": Bad(service(slo="[80, 98]"), "spec.slo", "not a mapping"),
    "two nodes to survive": Bad(
        service(availability="{surviveNodes: 2}"), "spec.availability.surviveNodes", "out of range"
    ),
    "spread over racks": Bad(service(availability="{spread: rack}"), "spec.availability.spread", "not one of"),
    "more than all on spot": Bad(
        service(availability="{maxSpotShare: 1.5}"), "spec.availability.maxSpotShare", "out of range"
    ),
    "an unknown rule": Bad(service(availability="{zones: 3}"), "spec.availability.zones", "there is no field"),
    "half an instance": Bad(service(minInstances="1.5"), "spec.minInstances", "not a whole number"),
    "null for nothing": Bad(service(mode="null"), "spec.mode", "null"),
    "null for something": Bad(service(slo="null"), "spec.slo", "null"),
    "no risk": Bad(service(risk="0"), "spec.risk", "out of range"),
    "risk of 0.6": Bad(manifest("Policy", "{risk: 0.6}", "{name: default}"), "spec.risk", "out of range"),
    "zero rate": Bad(service(ratePerSecond="0"), "spec.ratePerSecond", "out of range"),
    "negative rate": Bad(service(ratePerSecond="-1"), "spec.ratePerSecond", "out of range"),
    "rate over 1e12": Bad(service(ratePerSecond="1000000000001"), "spec.ratePerSecond", "out of range"),
    "rate of 1e308": Bad(service(ratePerSecond="1e308"), "spec.ratePerSecond", "out of range"),
    "percentile 49": Bad(service(slo="{latencyMs: 1, percentile: 49}"), "spec.slo.percentile", "out of range"),
    "percentile 99.95": Bad(service(slo="{latencyMs: 1, percentile: 99.95}"), "spec.slo.percentile", "out of range"),
    "no latency in the SLO": Bad(service(slo="{percentile: 98}"), "spec.slo.latencyMs", "required"),
    "no SLO": Bad(service(slo=""), "spec.slo", "required"),
    "empty gpuTypes": Bad(service(gpuTypes="[]"), "spec.gpuTypes", "empty"),
    "empty variants": Bad(service(variants="[]"), "spec.variants", "empty"),
    "gpuType twice": Bad(service(gpuTypes="[t4, t4]"), "spec.gpuTypes", "twice"),
    "priority 0": Bad(service(priority="0"), "spec.priority", "out of range"),
    "priority 1001": Bad(service(priority="1001"), "spec.priority", "out of range"),
    "other isolation": Bad(service(isolation="sharde"), "spec.isolation", "not one of", "shared"),
    "other mode": Bad(service(mode="automatic"), "spec.mode", "not one of"),
    "status of a list": Bad(service(model="[m]"), "spec.model", "not a string"),
    "0 GPUs": Bad(node(gpus="0"), "spec.gpus", "out of range"),
    "a cap of 0 W": Bad(node(capW="0"), "spec.capW", "out of range"),
    "a cap in words": Bad(node(capW="most"), "spec.capW", "not a number"),
    "caps of no GPU": Bad(node(capW="[]"), "spec.capW", "empty"),
    "a cap among words": Bad(node(capW="[50, x, 50, 50]"), "spec.capW[1]", "not a number"),
    "caps of fewer GPUs": Bad(node(capW="[50, 60]"), "spec.capW", "capW lists 2 caps for 4 GPUs"),
    "caps by name": Bad(node(capW="{0: 50}"), "spec.capW", "not a number"),
    "GPU memory in GB": Bad(gpu_type(memoryGib="80GB"), "spec.memoryGib", "not a number", "80"),
    "steps as 1e5": Bad(job(steps="1e5"), "spec.steps", "not a whole number", "100000"),
    "a command in one line": Bad(
        job(runtime="{command: 'python train.py'}"), "spec.runtime.command", "not a list", '["python", "train.py"]'
    ),
    "a List": Bad("apiVersion: v1\nkind: List\nitems: []\n", "kind", "a List of Kubernetes is not read"),
    "half a GPU": Bad(node(gpus="0.5"), "spec.gpus", "not a whole number"),
    "negative cores": Bad(node(cpuCores="-1"), "spec.cpuCores", "out of range"),
    "empty templates": Bad(node(templates="[]"), "spec.templates", "empty"),
    "other purchase": Bad(node(purchase="on-demand"), "spec.purchase", "not one of", "onDemand"),
    "other pricing": Bad(manifest("Policy", "{pricing: Node}", DEFAULT), "spec.pricing", "not one of", "node"),
    "price 0": Bad(gpu_type(pricePerHour="0"), "spec.pricePerHour", "out of range"),
    "no clocks": Bad(gpu_type(clocksMhz="[]"), "spec.clocksMhz", "empty"),
    "clock twice": Bad(gpu_type(clocksMhz="[600, 600]"), "spec.clocksMhz", "twice"),
    "clock 0": Bad(gpu_type(clocksMhz="[0]"), "spec.clocksMhz[0]", "out of range"),
    "idle over most": Bad(gpu_type(idleW="100"), "spec.maxW", "less than idleW"),
    "price twice": Bad(gpu_type(prices="[{perHour: 1}, {perHour: 2}]"), "spec.prices[1]", "twice"),
    "empty prices": Bad(gpu_type(prices="[]"), "spec.prices", "empty"),
    "no variants": Bad(manifest("Model", "{variants: []}"), "spec.variants", "empty"),
    "variant twice": Bad(
        variant("{name: v, accuracy: 0}, {name: v, accuracy: 1}"), "spec.variants[1].name", "declared twice"
    ),
    "accuracy 76": Bad(variant("{name: v, accuracy: 76}"), "spec.variants[0].accuracy", "out of range"),
    "no tenants": Bad(manifest("Model", "{variants: [{name: v, accuracy: 1}], tenants: []}"), "spec.tenants", "empty"),
    "a command": Bad(
        variant("{name: v, accuracy: 1, runtime: {template: t, command: [rm]}}"),
        "spec.variants[0].runtime",
        "exactly one form",
    ),
    "an environment": Bad(
        variant("{name: v, accuracy: 1, runtime: {template: t, env: {LD_PRELOAD: x}}}"),
        "spec.variants[0].runtime.env",
        "takes no env",
    ),
    "a template by path": Bad(
        variant("{name: v, accuracy: 1, runtime: {template: ../../bin/sh}}"),
        "spec.variants[0].runtime.template",
        "is not a valid name",
    ),
    "an argument that is a list": Bad(
        variant("{name: v, accuracy: 1, runtime: {template: t, args: {a: [1]}}}"),
        "spec.variants[0].runtime.args.a",
        "a list of 1",
    ),
    "an argument of two lines": Bad(
        variant('{name: v, accuracy: 1, runtime: {template: t, args: {a: "x\\ny"}}}'),
        "spec.variants[0].runtime.args.a",
        "cannot be printed",
    ),
    "batch 0": Bad(profile(latencyMs="{0: {1: 1}}", memoryGib="{0: 1}"), "spec.latencyMs.0", "not a batch"),
    "batch 257": Bad(profile(latencyMs="{257: {1: 1}}", memoryGib="{257: 1}"), "spec.latencyMs.257", "1..256"),
    "batch in words": Bad(profile(latencyMs="{one: {1: 1}}", memoryGib="{one: 1}"), "spec.latencyMs.one", "1..256"),
    "SM% 0": Bad(profile(latencyMs="{1: {0: 1}}"), "spec.latencyMs.1.0", "1..100"),
    "SM% 101": Bad(profile(latencyMs="{1: {101: 1}}"), "spec.latencyMs.1.101", "1..100"),
    "SM% 10.5": Bad(profile(latencyMs="{1: {10.5: 1}}"), "spec.latencyMs.1.10.5", "1..100"),
    "latency 0": Bad(profile(latencyMs="{1: {10: 0}}"), "spec.latencyMs.1.10", "out of range"),
    "latency rises": Bad(profile(latencyMs="{1: {10: 1, 9: 2, 20: 1.5}}"), "spec.latencyMs.1", "rises with SM%"),
    "no batches": Bad(profile(latencyMs="{}"), "spec.latencyMs", "empty"),
    "no SM%": Bad(profile(latencyMs="{1: {}}"), "spec.latencyMs.1", "empty"),
    "batch without memory": Bad(profile(memoryGib="{2: 1}"), "spec.memoryGib", "batch 1 has a latency but no memory"),
    "a q90 below the mean": Bad(
        profile(latencyMs="{1: {10: {mean: 4, q90: 3}}}"), "spec.latencyMs.1.10", "q90 3 is below the mean 4"
    ),
    "a spread without q90": Bad(profile(latencyMs="{1: {10: {mean: 4}}}"), "spec.latencyMs.1.10.q90", "required"),
    "a spread without a mean": Bad(profile(pressure="{q90: 0.5}"), "spec.pressure.mean", "required"),
    "a spread with another field": Bad(
        profile(sensitivity="{mean: 0.1, q90: 0.2, sd: 1}"), "spec.sensitivity.sd", "there is no field"
    ),
    "a q90 of latency that rises": Bad(
        profile(latencyMs="{1: {10: {mean: 4, q90: 5}, 20: {mean: 3, q90: 6}}}"), "spec.latencyMs.1", "q90 of latency"
    ),
    "a mean of latency that rises": Bad(
        profile(latencyMs="{1: {10: 4, 20: {mean: 5, q90: 6}}}"), "spec.latencyMs.1", "latency rises with SM%"
    ),
    "a pressure whose q90 is 1.1": Bad(
        profile(pressure="{10: {mean: 0.4, q90: 1.1}}"), "spec.pressure.10.q90", "out of range"
    ),
    "a value of no measurements": Bad(profile(powerW="{mean: 9, q90: 10, n: 0}"), "spec.powerW.n", "out of range"),
    "a value from elsewhere": Bad(
        profile(startSeconds="{mean: 9, q90: 10, source: guessed}"), "spec.startSeconds.source", "not one of", ""
    ),
    "a value of no time": Bad(
        profile(memoryGib="{1: {mean: 1, q90: 2, at: yesterday}}"), "spec.memoryGib.1.at", "time zone"
    ),
    "a quantile below the mean": Bad(
        manifest("Policy", "{profileQuantile: 0.4}", DEFAULT), "spec.profileQuantile", "out of range"
    ),
    "a certain quantile": Bad(manifest("Policy", "{profileQuantile: 1}", DEFAULT), "spec.profileQuantile", "range"),
    "pressure 1.1": Bad(profile(pressure="1.1"), "spec.pressure", "out of range"),
    "pressure -1 at 10": Bad(profile(pressure="{10: -1}"), "spec.pressure.10", "out of range"),
    "pressure in words": Bad(profile(pressure="high"), "spec.pressure", "not a number"),
    "a pair of pressures over 1": Bad(
        profile(pressure="{compute: 0.2, bandwidth: {10: 1.1}}"), "spec.pressure.bandwidth.10", "out of range"
    ),
    "a pressure on something else": Bad(
        profile(pressure="{compute: 0.2, disk: 0.1}"), "spec.pressure.disk", "there is no field"
    ),
    "a pair of pressures beside a table": Bad(
        profile(pressure="{compute: 0.2, 20: 0.1}"), "spec.pressure.20", "(allowed: one of bandwidth, compute)"
    ),
    "a misspelt pressure": Bad(
        profile(pressure="{bandwith: 0.2}"), "spec.pressure.bandwith", "there is no field", "bandwidth"
    ),
    "a misspelt sensitivity": Bad(
        profile(sensitivity="{Compute: 0.2}"), "spec.sensitivity.Compute", "there is no field", "compute"
    ),
    "a pair beside a value with its spread": Bad(
        profile(sensitivity="{compute: 0.2, mean: 0.1}"), "spec.sensitivity.mean", "one of bandwidth, compute)"
    ),
    "a pair of sensitivities below 0": Bad(
        profile(sensitivity="{compute: -1}"), "spec.sensitivity.compute", "out of range"
    ),
    "power at 101": Bad(profile(powerW="{101: 1}"), "spec.powerW.101", "1..100"),
    "exponent 1000": Bad(profile(clockExponent="1000"), "spec.clockExponent", "out of range"),
    "sensitivity below 0": Bad(profile(sensitivity="-0.1"), "spec.sensitivity", "out of range"),
    "training without steps": Bad(job(steps=""), "spec.steps", "needs steps"),
    "training with requests": Bad(job(requests="5"), "spec.requests", "has no requests"),
    "offline with steps": Bad(job(type="offline"), "spec.requests", "needs requests"),
    "training at requests": Bad(
        job(profiles="{t4: {requestsPerSecond: {1: 1}, memoryGib: 1}}"), "spec.profiles.t4.requestsPerSecond", "has no"
    ),
    "no profiles": Bad(job(profiles="{}"), "spec.profiles", "empty"),
    "deadline without zone": Bad(job(deadline="2026-12-01T00:00:00"), "spec.deadline", "zone"),
    "deadline without time": Bad(job(deadline="2026-12-01"), "spec.deadline", "zone"),
    "deadline in no month": Bad(job(deadline="2026-13-01T00:00:00Z"), "spec.deadline", "zone"),
    "other type": Bad(job(type="inference"), "spec.type", "not one of"),
    "utilization 0.96": Bad(
        manifest("Policy", "{utilization: 0.96}", "{name: default}"), "spec.utilization", "out of range"
    ),
    "no clients": Bad(manifest("Policy", "{clientsPerGpu: 0}", "{name: default}"), "spec.clientsPerGpu", "range"),
    "no cores": Bad(
        manifest("Node", "{gpuType: t4, gpus: 4, memoryGib: 256}"),
        "spec.cpuCores",
        ": CPU cores that instances may share",
    ),
    "guarantee of no GPUs": Bad(manifest("Tenant", "{guarantee: {}}"), "spec.guarantee.gpus", ": GPUs, as a sum"),
    "guarantee over limit": Bad(
        manifest("Tenant", "{guarantee: {gpus: 4}, limit: {gpus: 2}}"), "spec.guarantee.gpus", "more than the limit"
    ),
    "other currency": Bad(
        manifest("Tenant", "{budget: {perMonth: 1, currency: euro}}"), "spec.budget.currency", "is not a valid name"
    ),
    "a State for a server": Bad(manifest("State", "{}"), "kind", "offline"),
    "a text": Bad("just words\n", "", "not a manifest"),
    "a list of texts": Bad("[a, b]\n", "", "not a manifest"),
}

UNREADABLE = {
    "nothing": (b"", "contains no manifest"),
    "only comments": (b"# nothing\n---\n---\n", "contains no manifest"),
    "an empty list": (b"[]", "contains no manifest"),
    "Latin-1": ("name: caf\u00e9".encode("latin-1"), "not UTF-8"),
    "UTF-16": ("a: 1".encode("utf-16"), "not UTF-8"),
    "half a character": (b"a: \xe2\x82", "not UTF-8"),
    "NUL": (b"a: \x00", "control character U+0000"),
    "NUL as an escape": (b'a: "\\0"', "NUL"),
    "half a surrogate pair": (b'a: "\\ud800"', "invalid Unicode"),
    "an escape for the terminal": (b"\x1b[31ma: 1", "control character U+001B"),
    "a key twice": (b"a: 1\nb: 2\na: 3", 'the key "a" appears twice'),
    "a number twice as key": (b'a: {8: 1, "8": 2}', 'the key "8" appears twice'),
    "a merge key": (b"a: &a {b: 1}\nc: {<<: *a}", "merge keys"),
    "a tag": (b"a: !!python/object:os.system {}", "tag"),
    "a local tag": (b"a: !secret b", "tag"),
    "a bare tag": (b"a: ! b", "tag"),
    "not a number": (b"a: .nan", "not a finite number"),
    "infinity": (b"a: -.inf", "not a finite number"),
    "an overflow": (b"a: 1e400", "too large"),
    "5,000 digits": (b"a: " + b"9" * 5000, "5000 characters"),
    "an alias of nothing": (b"a: *b", "alias"),
    "an alias of itself": (b"a: &a [*a]", "alias"),
    "a list as key": (b"? [1]\n: 2", "is not a valid key"),
    "null as key": (b"~: 2", "is not a valid key"),
    "true as key": (b"true: 2", "is not a valid key"),
    "a tab": (b"a:\n\tb: 1", "not YAML"),
    "an open list": (
        b"a: [1, 2",
        "not YAML: while parsing a flow sequence that begins at 1:4: did not find expected ',' or ']'",
    ),
    "a wrong indent": (b"a:\n  b: 1\n c: 2", "not YAML"),
    "65 levels": (b"a: " + b"[" * 64 + b"]" * 64, "nested deeper"),
}
