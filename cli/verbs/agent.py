"""`gpuwright agent`: runs the agent of a GPU node, and inspects it on that machine."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cli import exits
from cli.arguments import whole
from cli.exits import Failed

EPILOG = """\
Examples:
  gpuwright token join --node node-1            (as an admin) prints a one-time token
  gpuwright agent join --server https://plane:8080 --node node-1 --gpu-type v100-pcie-16gb --gpus 4 < token
  gpuwright agent doctor                        what this machine can enforce, and what to do about the rest
  gpuwright agent run
  gpuwright agent status                        what the running agent runs and holds back
  gpuwright agent drain --gpu 2                 bring everything on GPU 2 to an orderly end; --undo uses it again

The one-time token is read from --token-file, GPUWRIGHT_JOIN_TOKEN or the standard input: an argument could be
visible to everybody on this machine. A pod that runs as the account of the server's GPUWRIGHT_KUBERNETES_AGENTS needs
none: --service-account-token names the file of its projected token. A node that joined so keeps its credential when
its pod starts again, and joins again if the server refuses it.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    what = parser.add_subparsers(dest="what", metavar="WHAT", required=True)
    join = what.add_parser("join", help="spend a one-time token on this node's own credential")
    join.add_argument("--server", metavar="URL", required=True)
    join.add_argument("--ca-file", metavar="FILE", default="", help="certificates to trust, PEM")
    join.add_argument("--node", metavar="NAME", required=True, help="name of this node; in a pod, as Kubernetes has it")
    tokens = join.add_mutually_exclusive_group()
    tokens.add_argument("--token-file", metavar="FILE", type=Path, help="default: standard input")
    tokens.add_argument(
        "--service-account-token",
        metavar="FILE",
        type=Path,
        help="in a pod of Kubernetes, in place of a one-time token: that of its service account, for us as audience",
    )
    join.add_argument("--gpu-type", metavar="NAME", required=True, help="GpuType of its GPUs")
    join.add_argument("--gpus", metavar="N", type=whole(1), required=True, help="how many GPUs")
    join.add_argument(
        "--cpu-cores",
        metavar="N",
        type=whole(1),
        default=os.cpu_count() or 1,
        help="CPU cores for instances; default all",
    )
    join.add_argument(
        "--memory-gib", metavar="N", type=whole(1), default=_memory_gib(), help="host memory for instances; default all"
    )
    run_ = what.add_parser("run", help="carry out the assignment of this node until stopped; instances keep running")
    doctor = what.add_parser("doctor", help="say what this machine can and cannot enforce")
    for sub in (run_, doctor):
        _add_seams(sub)
    run_.add_argument(
        "--reclaim-file",
        metavar="FILE",
        type=Path,
        help="says when the cloud takes this node back: a time with zone, or EC2's instance-action; may come and go",
    )
    run_.add_argument("--metrics", metavar="HOST:PORT", default="", help="serve Prometheus metrics there")
    doctor.add_argument("--json", action="store_true", help="findings as JSON")
    tries = "with --runtime pods: start a pod with a GPU as copies are, and end it; else nothing is changed"
    doctor.add_argument("--try-copy", action="store_true", help=tries)
    status = what.add_parser("status", help="what the running agent runs, holds back and has moved")
    status.add_argument("--json", action="store_true", help="as JSON")
    drain = what.add_parser("drain", help="bring what runs to an orderly end, and start nothing there")
    drain.add_argument("--gpu", metavar="N", type=whole(0), action="append", help="only this GPU; may be repeated")
    drain.add_argument("--undo", action="store_true", help="undo the drain")
    adopt = what.add_parser("adopt", help="take over copies that run here and are not in the journal")
    adopt.add_argument("--end", action="store_true", help="end them instead")
    mps = what.add_parser("mps", help="start MPS' daemons for an agent with --runtime pods, which may be replaced")
    for sub in (join, run_, doctor, status, drain, adopt, mps):
        sub.add_argument("--state-dir", metavar="DIR", type=Path, default=_state_dir(), help="default %(default)s")


MODELS = Path("/var/lib/gpuwright/models")  # as agents.templates.reading has it, which is loaded when called
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")  # where the kubelet puts it


def _add_seams(parser: argparse.ArgumentParser) -> None:
    kinds = ("nvml", "simulated", "cores")
    parser.add_argument("--device", choices=kinds, default="nvml", help="cores: CPU cores; default %(default)s")
    parser.add_argument("--cores", metavar="N", type=whole(0), default=0, help="with --device cores; default all")
    groups = "with --device cores: the delegated cgroup under which copies are limited; default: as root, its own"
    parser.add_argument("--cgroup", metavar="DIR", type=Path, help=groups)
    parser.add_argument("--simulated-gpus", metavar="N", type=whole(1), default=4, help="default %(default)s")
    parser.add_argument("--simulated-kind", metavar="NAME", default="v100-16gb", help="default %(default)s")
    parser.add_argument(
        "--runtime", choices=("process", "docker", "pods", "slurm"), default="process", help="default %(default)s"
    )
    names = "with --runtime slurm: Slurm's names of this machine, in the order of its GPUs; default: its host name"
    parser.add_argument("--slurm-nodes", metavar="NAME,...", type=_split_names, default=(), help=names)
    own = "with --runtime slurm: options of sbatch, quoted as one argument, like '--partition=gpu --cpus-per-task=4'"
    parser.add_argument("--slurm-options", metavar="OPTIONS", type=_split_words, default=(), help=own)
    parser.add_argument(
        "--image", metavar="IMAGE", default="", help="with --runtime pods: of templates that name none; the agent's own"
    )
    parser.add_argument(
        "--runtime-class", metavar="NAME", default="", help="with --runtime pods: that shows containers their GPUs"
    )
    parser.add_argument(
        "--priority-class", metavar="NAME", default="", help="with --runtime pods: of copies, and of what holds GPUs"
    )
    account = "with --runtime pods: token, ca.crt and namespace of the agent's account; default %(default)s"
    parser.add_argument("--service-account", metavar="DIR", type=Path, default=ACCOUNT, help=account)
    parser.add_argument(
        "--gateway",
        metavar="ADDRESS",
        default="",
        help="the gateway's sidecar, or `followed` if gateways follow the control plane; default: none",
    )
    parser.add_argument("--gateway-token-file", metavar="FILE", default="", help="file with the token for the sidecar")
    parser.add_argument("--gateway-ca-file", metavar="FILE", default="", help="certificates to trust, PEM")
    parser.add_argument(
        "--templates",
        metavar="DIR",
        type=Path,
        help="folder with this node's templates, which override the shipped ones",
    )
    parser.add_argument(
        "--allow-list",
        metavar="FILE",
        type=Path,
        help="images and commands of users that this node starts (docs/own-servers.md); default: none",
    )
    parser.add_argument("--models", metavar="DIR", type=Path, default=MODELS, help="default %(default)s")
    parser.add_argument(
        "--helper", metavar="SOCKET", default="", help="socket of the root helper, which sets clocks and caps"
    )
    parser.add_argument(
        "--host",
        metavar="ADDRESS",
        default="127.0.0.1",
        help="of this node, where the gateway reaches copies; default %(default)s",
    )


def _split_names(text: str) -> tuple[str, ...]:
    return tuple(filter(None, text.split(",")))


def _split_words(text: str) -> tuple[str, ...]:
    return tuple(shlex.split(text))


def run(args: argparse.Namespace) -> int:
    verbs = {
        "join": _join,
        "run": _run,
        "doctor": _doctor,
        "status": _status,
        "drain": _drain,
        "adopt": _adopt,
        "mps": _mps,
    }
    return verbs[args.what](args)


def _join(args: argparse.Namespace) -> int:
    from agents.control.join import join, join_as_pod
    from agents.node.state_folder import PodJoin, StateFolder
    from agents.talk.link import LinkError

    spec = {
        "gpuType": args.gpu_type,
        "gpus": args.gpus,
        "cpuCores": args.cpu_cores,
        "memoryGib": args.memory_gib,
    }
    folder, file = StateFolder(args.state_dir), args.service_account_token
    try:
        if file:
            joined = join_as_pod(folder, args.server, PodJoin(args.node, str(file.absolute()), spec), args.ca_file)
        else:
            joined = join(folder, args.server, _read_token(args), args.node, spec, args.ca_file)
    except LinkError as error:
        raise Failed(str(error), exits.REFUSED if error.status else exits.UNREACHABLE) from error
    except (OSError, ValueError) as error:
        raise Failed(str(error)) from error
    print(f"node {joined.node} has joined; next: gpuwright agent run{_there(args)}")
    return exits.OK


def _run(args: argparse.Namespace) -> int:
    from agents.run.running import CannotRun, run_agent

    try:
        run_agent(_options(args), args.metrics)
    except CannotRun as error:
        raise Failed(str(error)) from error
    return exits.OK


def _doctor(args: argparse.Namespace) -> int:
    from agents.run.doctor import examine

    if args.try_copy and args.runtime != "pods":
        raise Failed("--try-copy starts a pod: give --runtime pods")
    findings = examine(_options(args), args.try_copy)
    print(findings.json() if args.json else findings.text())
    return findings.exit_code


def _status(args: argparse.Namespace) -> int:
    from agents.run.status import render_text

    status = _ask(args, "status")
    print(json.dumps(status, indent=2) if args.json else render_text(status))
    return exits.OK


def _drain(args: argparse.Namespace) -> int:
    chosen = _ask(args, "use" if args.undo else "drain", gpus=args.gpu)
    which = "every GPU" if args.gpu is None else "GPU " + ", ".join(map(str, args.gpu))
    if args.undo:
        print(f"{which} is used again ({len(chosen)} in all)")
    else:
        print(f"{which} is being emptied; watch it with: gpuwright agent status{_there(args)}")
    return exits.OK


def _adopt(args: argparse.Namespace) -> int:
    messages = _ask(args, "adopt", end=args.end)
    print("\n".join(messages) if messages else "every copy that runs here is in the journal")
    return exits.OK


def _mps(args: argparse.Namespace) -> int:
    from agents.run.launching import CannotLaunch, run_launcher

    try:
        run_launcher(args.state_dir)
    except CannotLaunch as error:
        raise Failed(str(error)) from error
    return exits.OK


def _ask(args: argparse.Namespace, verb: str, **fields: Any) -> Any:
    from agents.host.local_socket import NotRunning, ask

    try:
        return ask(args.state_dir, verb, **fields)
    except NotRunning as error:
        raise Failed(str(error), exits.UNREACHABLE) from error
    except ValueError as error:
        raise Failed(str(error)) from error


def _options(args: argparse.Namespace) -> Any:
    from agents.run.opening import AgentOptions

    given: Mapping[str, Any] = vars(args)
    names = (
        "device",
        "simulated_gpus",
        "simulated_kind",
        "cores",
        "cgroup",
        "runtime",
        "image",
        "priority_class",
        "runtime_class",
        "slurm_nodes",
        "slurm_options",
        "gateway",
        "gateway_token_file",
        "gateway_ca_file",
    )
    chosen = {name: given[name] for name in (*names, "templates", "allow_list", "models", "helper", "host")}
    files = {"reclaim_file": given.get("reclaim_file"), "account": args.service_account}
    return AgentOptions(folder=args.state_dir, **files, **chosen)


def _there(args: argparse.Namespace) -> str:
    return "" if args.state_dir == _state_dir() else f" --state-dir {args.state_dir}"


def _read_token(args: argparse.Namespace) -> str:
    if args.token_file:
        token, place = str(args.token_file.read_text()), str(args.token_file)
    elif "GPUWRIGHT_JOIN_TOKEN" in os.environ:
        token, place = os.environ["GPUWRIGHT_JOIN_TOKEN"], "GPUWRIGHT_JOIN_TOKEN"
    else:
        if sys.stdin.isatty():
            print("one-time token: ", end="", file=sys.stderr, flush=True)
        token, place = sys.stdin.readline(), "the standard input"
    if not token.strip():
        raise Failed(f"there is no one-time token in {place}; an admin makes one with: gpuwright token join")
    return token.strip()


def _state_dir() -> Path:
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "gpuwright-agent"


def _memory_gib() -> int:
    return max(1, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**30)
