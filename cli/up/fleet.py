"""The fleet of `gpuwright up`: declared once, simulated, planned, and in part real."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.manifests.model import WrittenSpec
from cli.up.children import Children, Say

if TYPE_CHECKING:
    from app.manifests.model import Manifest
    from app.manifests.offline import DeclaredFiles
    from app.settings import Settings
    from app.store.database.database import Database
    from simulation.truth.physics import Physics
    from simulation.truths import TruthOrder

KEPT = "fleet.json"
MEMORY = "truth.json"  # what the truth of simulated GPUs knows of models
REAL_TEMPLATE = "gpuwright-serve"
LLM_TEMPLATE = "gpuwright-llm"
REAL_KINDS = {REAL_TEMPLATE: "t4", LLM_TEMPLATE: "h100-80gb"}  # of the real node's simulated GPUs
LOAD_SHARE = 0.5  # of a generated fleet: its load moves by a third


@dataclass(frozen=True, slots=True)
class FleetSize:
    """The size of a fleet; None means the fleet of examples/fleet.yaml, or with `llm` that of examples/llm.yaml."""

    gpus: int | None = None
    services: int | None = None
    llm: bool = False


@dataclass(frozen=True, slots=True)
class DeclaredFleet:
    """The fleet that `up` declared, which a later `up` finds in the same data folder."""

    nodes: tuple[str, ...]
    real_node: str = ""
    real_spec: WrittenSpec | None = None
    load: tuple[str, ...] = ()  # of the real node, as simulation.real.load_generator takes it
    real_services: tuple[str, ...] = ()
    truth: tuple[str, ...] = ()  # how fast its GPUs really are, as simulation.live takes it
    driver: dict[str, Any] | None = None  # the same for the real node's GPUs, as simulation.truth_driver takes it
    real_kind: str = REAL_KINDS[REAL_TEMPLATE]


def fleet_file(name: str = "fleet.yaml") -> Path:
    """Returns the fleet's file: next to the package in a wheel, in examples/ of a checkout."""
    import simulation

    folder = Path(simulation.__file__).parent
    packed = folder / name
    return packed if packed.exists() else folder.parent / "examples" / name


def declare_fleet(
    database: Database,
    data_dir: Path,
    wanted: FleetSize,
    say: Say,
    order: TruthOrder | None = None,
    planner: str | None = None,
) -> DeclaredFleet | None:
    """Returns the fleet of this data folder, declared now if the world is empty; None if a user declared the world."""
    import msgspec

    from app.manifests.offline import DeclaredFiles
    from simulation import world as worlds

    path = data_dir / KEPT
    if path.exists():
        if planner:
            known = database.read(worlds.read_store)
            worlds.put(database, DeclaredFiles({policy.key: policy for policy in _policies(known, planner)}))
        return msgspec.json.decode(path.read_bytes(), type=DeclaredFleet)
    if database.read(worlds.read_store).manifests:
        say(f"{data_dir} holds your own manifests, so no fleet is simulated there")
        return None
    if wanted.gpus or wanted.services:
        gpus, services = wanted.gpus or 100, wanted.services or 50
        say(f"declaring {gpus} GPUs and {services} services")
        world = generate_fleet(gpus, services)
        made = DeclaredFleet(tuple(key.name for key in world.manifests if key.kind == "Node"))
    else:
        say("declaring the simulated fleet")
        world = worlds.read_files(fleet_file("llm.yaml" if wanted.llm else "fleet.yaml"))
        made = _add_real_node(world)
    if planner:
        world = worlds.set_policy(world, {"planner": planner})
    physics = order.physics() if order else None
    if order and physics is not None:
        made = replace(made, truth=order.words, driver=_driver(world, made, order, physics, data_dir / MEMORY))
    worlds.put(database, world)
    path.write_text(json.dumps(asdict(made)))
    return made


def _policies(world: DeclaredFiles, planner: str) -> list[Manifest]:
    """Returns the policy of a declared world with another planner."""
    from app.manifests.model import Kind
    from simulation.world import set_policy

    return set_policy(world, {"planner": planner}).of(Kind.POLICY)


def generate_fleet(gpus: int, services: int) -> DeclaredFiles:
    """Returns a fleet of benchmark family A of this size, run by its planner."""
    from benchmarks.families import family
    from benchmarks.manifests import manifests
    from simulation.world import read_documents

    problem = family("A", gpus, services, seed=0, load=LOAD_SHARE)
    documents = [document for document in manifests(problem) if document["kind"] != "Policy"]
    policy = {"apiVersion": "gpuwright/v1", "kind": "Policy", "metadata": {"name": "default"}, "spec": {"mode": "auto"}}
    return read_documents([*documents, policy])


def _add_real_node(world: DeclaredFiles) -> DeclaredFleet:
    """Returns the fleet with its node for a real agent and the requests to its services."""
    from app.manifests.model import Kind

    nodes = {manifest.name: manifest.spec for manifest in world.of(Kind.NODE)}
    real_nodes = {
        name: template for name, spec in nodes.items() for template in REAL_KINDS if spec.get("templates") == [template]
    }
    node = next(iter(real_nodes), "")
    kind = REAL_KINDS[real_nodes[node]] if node else ""
    models: dict[str, str] = {}
    for manifest in world.of(Kind.MODEL):
        variants = manifest.spec["variants"]
        for runtime in (variant.get("runtime") or {} for variant in variants):
            if runtime.get("template") in REAL_KINDS:
                models[manifest.name] = runtime["args"]["model"]
    real: list[tuple[str, str]] = []
    for manifest in world.of(Kind.SERVICE):
        model = str(manifest.spec["model"])
        if model in models:
            name = f"{manifest.tenant}/{manifest.name}"
            real.append((name, _load(name, models[model], manifest.spec)))
    load, services = tuple(words for _, words in real), tuple(name for name, _ in real)
    return DeclaredFleet(tuple(nodes), node, nodes.get(node), load, services, real_kind=kind)


def _load(name: str, model: str, spec: Mapping[str, Any]) -> str:
    """Returns the requests to a service, as simulation.real.load_generator takes them."""
    tokens = spec.get("tokens")
    if not tokens:
        return f"{name}=/v1/models/{model}:infer={spec['ratePerSecond']}"
    lengths = [tokens[side][figure] for side in ("input", "output") for figure in ("mean", "p95")]
    return f"{name}=/v1/completions={spec['ratePerSecond']}={','.join(map(str, lengths))}"


def _driver(
    world: DeclaredFiles, fleet: DeclaredFleet, order: TruthOrder, physics: Physics, memory: Path
) -> dict[str, Any] | None:
    """Returns the truth of the real node's GPUs, and keeps the scale of the declared models for it."""
    from app.control.formulate.problem import build_problem
    from app.manifests.model import Kind
    from simulation.physical_truth import learn
    from simulation.truth.memory import remember

    problem = build_problem(world)
    learn(physics, problem)
    remember(physics, memory)
    if fleet.real_spec is None:
        return None
    gpu_type = problem.gpu_types[fleet.real_spec["gpuType"]]
    plays = {}
    for manifest in world.of(Kind.MODEL):
        variants = manifest.spec["variants"]
        for variant in variants:
            runtime = variant.get("runtime") or {}
            if runtime.get("template") == REAL_TEMPLATE:
                plays[runtime["args"]["model"]] = (manifest.name, variant["name"])
    return {
        "kinds": [fleet.real_kind] * int(fleet.real_spec["gpus"]),
        "gpu_type": gpu_type.name,
        "idle_w": gpu_type.idle_w,
        "max_w": gpu_type.max_w,
        "top_clock_mhz": gpu_type.top_clock_mhz,
        "truth": order.name,
        "seed": order.seed,
        "data": str(order.data or ""),
        "memory": str(memory),
        "plays": plays,
    }


@contextmanager
def running(fleet: DeclaredFleet, data_dir: Path, settings: Settings, server: str, say: Say) -> Iterator[str]:
    """Runs planner and fleet while the block lasts; yields the address of the real gateway, or nothing."""
    from simulation.real.part import haproxy_path

    environment = environment_of(settings)
    children = Children(say)
    gateway = ""
    left_out: list[str] = []
    try:
        if fleet.real_node and haproxy_path() and server.startswith("http:"):
            port = free_port()
            gateway = f"127.0.0.1:{port}"
            order = _order(fleet, data_dir, server, port)
            words = ["simulation.real.part", str(order)]
            children.start("the real part", words, data_dir / "real.log", environment, at_our_death=signal.SIGTERM)
            left_out = [fleet.real_node, *fleet.real_services]
        words = ["--checkpoints", str(data_dir / "real" / (fleet.real_node or "simulated") / "checkpoints")]
        words += [word for name in left_out for word in ("--left-out", name)]
        if fleet.truth:
            words += [*fleet.truth, "--memory", str(data_dir / MEMORY)]
        nodes = "\n".join(name for name in fleet.nodes if name not in left_out)
        children.start("the fleet", ["simulation.live", *words], data_dir / "fleet.log", environment, nodes)
        start_planner(children, data_dir, environment)
        yield gateway
    finally:
        children.stop()


@contextmanager
def planning(data_dir: Path, settings: Settings, say: Say) -> Iterator[None]:
    """Runs a planner alone while the block lasts: the world is a person's own."""
    children = Children(say)
    try:
        start_planner(children, data_dir, environment_of(settings))
        yield
    finally:
        children.stop()


def environment_of(settings: Settings) -> dict[str, str]:
    """Returns what a child process needs to reach the database."""
    direct = {"GPUWRIGHT_DATABASE_DIRECT": "1"} if settings.database_direct else {}
    return {"DATABASE_URL": settings.database_url, **direct}


def start_planner(children: Children, data_dir: Path, environment: Mapping[str, str]) -> None:
    children.start("the planner", ["cli.main", "planner"], data_dir / "planner.log", environment)


def _order(fleet: DeclaredFleet, data_dir: Path, server: str, port: int) -> Path:
    spec = dict(fleet.real_spec or {})
    seams = ["--device", "simulated", "--simulated-gpus", str(spec["gpus"]), "--simulated-kind", fleet.real_kind]
    given = {"node": fleet.real_node, "spec": spec, "seams": seams, "load": list(fleet.load), "driver": fleet.driver}
    return write_order(data_dir, server, port, given)


def write_order(data_dir: Path, server: str, port: int, given: Mapping[str, Any]) -> Path:
    """Writes what simulation.real.part is to run, and returns the file."""
    folder = data_dir / "real"
    folder.mkdir(mode=0o700, exist_ok=True)
    path = folder / "order.json"
    order = {"server": server, "token_file": str(data_dir / "admin.token"), "folder": str(folder), "port": port}
    path.write_text(json.dumps(order | dict(given)))
    return path


def free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
