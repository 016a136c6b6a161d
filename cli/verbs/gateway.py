"""`gpuwright gateway`: the sidecar of an HAProxy, or the routes of a cluster; needs only the [agent] extra."""

from __future__ import annotations

import argparse
import re
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from cli import exits
from cli.arguments import completes
from cli.exits import Failed

if TYPE_CHECKING:
    import ssl

    from agents.gateway.plane import ControlPlaneAddress

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")  # where the kubelet puts it
MOST_SETTLE_SECONDS = 10.0  # in a hand-over it passes twice or three times, and agents wait for 30 s
NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")

EPILOG = """\
Examples:
  gpuwright gateway config > /etc/haproxy/haproxy.cfg     a base to start from, once; it is yours
  gpuwright gateway run                                   next to HAProxy, as a service
  gpuwright gateway run --listen 0.0.0.0:9444 --token-file tokens --tls-cert cert.pem --tls-key key.pem
  gpuwright gateway run --server https://plane:8080 --server-token-file gateway.token --name edge-1
                                                          follows the control plane, and tells it what is asked
  gpuwright gateway cluster --server https://plane:8080 --server-token-file gateway.token --parent infra/public
                                                          in a pod: routes as HTTPRoutes of that Gateway, no HAProxy

The sidecar is started before HAProxy: it writes the files that HAProxy reads. See docs/gateway.md.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.add_argument("what", nargs="?", choices=("run", "config", "cluster"), default="run", help="default run")
    parser.add_argument(
        "--folder",
        metavar="DIR",
        type=Path,
        default=Path("/var/lib/gpuwright-gateway"),
        help="what it keeps, and what HAProxy reads; default %(default)s",
    )
    parser.add_argument(
        "--master",
        metavar="SOCKET",
        type=Path,
        default=Path("/run/haproxy-master.sock"),
        help="HAProxy's master socket; default %(default)s",
    )
    parser.add_argument(
        "--requests",
        metavar="ADDRESS",
        default="127.0.0.1:9514",
        help="where HAProxy sends its log lines: HOST:PORT of loopback, or a path; default %(default)s",
    )
    parser.add_argument("--listen", metavar="ADDRESS", help="path or HOST:PORT; default DIR/gateway.sock")
    completes(
        parser.add_argument(
            "--token-file",
            metavar="FILE",
            type=Path,
            help="lines `SOURCE TOKEN`, and what it may declare; needed for TCP",
        ),
        "files",
    )
    completes(parser.add_argument("--tls-cert", metavar="FILE", type=Path, help="certificate, PEM"), "files")
    completes(parser.add_argument("--tls-key", metavar="FILE", type=Path, help="its key, PEM"), "files")
    parser.add_argument(
        "--server", metavar="URL", default="", help="of the control plane, whose endpoints are followed"
    )
    completes(
        parser.add_argument(
            "--server-token-file", metavar="FILE", type=Path, help="file with a token of scope gateway"
        ),
        "files",
    )
    completes(
        parser.add_argument("--server-ca-file", metavar="FILE", default="", help="certificates to trust, PEM"), "files"
    )
    parser.add_argument("--name", metavar="NAME", default="", help="name of this gateway; default the machine's")
    parser.add_argument(
        "--loopback", action="store_true", help="all nodes are this machine: follow loopback addresses too"
    )
    parser.add_argument(
        "--bind", metavar="WORDS", default=":80", help="of `config`: the frontend's; default %(default)s"
    )
    _add_cluster_arguments(parser)


def _add_cluster_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--parent",
        metavar="NAMESPACE/NAME[/LISTENER]",
        default="",
        help="of `cluster`: the Gateway that takes requests",
    )
    parser.add_argument(
        "--hostname", metavar="HOST", action="append", default=[], help="of `cluster`: of its routes; default any"
    )
    parser.add_argument(
        "--settle-seconds",
        metavar="SECONDS",
        type=float,
        default=3.0,
        help="of `cluster`: from when the Gateway says that it takes a route until it does; default %(default)s",
    )
    parser.add_argument(
        "--account",
        metavar="DIR",
        type=Path,
        default=ACCOUNT,
        help="of `cluster`: the pod's token, certificate and namespace; default %(default)s",
    )


def run(args: argparse.Namespace) -> int:
    if args.what == "config":
        from agents.gateway.haproxy.configuration import render_base

        print(render_base(args.folder, args.requests, args.bind), end="")
        return exits.OK
    if args.what == "cluster":
        return _route_cluster(args)
    return _run(args)


def _route_cluster(args: argparse.Namespace) -> int:
    import logging
    import os
    import signal
    import threading

    from agents.gateway.cluster.objects import ParentGateway, RouteSettings
    from agents.gateway.cluster.running import run_routes
    from agents.kubernetes.api import Account, ApiAway, KubernetesApi

    try:
        server = _server(args)
        if server is None:
            raise ValueError("give --server, whose endpoints are followed, and --server-token-file")
        words = args.parent.split("/")
        if not 2 <= len(words) <= 3 or not all(words):
            raise ValueError(f"--parent {args.parent!r} is not NAMESPACE/NAME or NAMESPACE/NAME/LISTENER of a Gateway")
        if not 0 <= args.settle_seconds <= MOST_SETTLE_SECONDS:
            raise ValueError(f"--settle-seconds {args.settle_seconds} is outside 0..{MOST_SETTLE_SECONDS:g}")
        api = KubernetesApi(Account(args.account))
        settings = RouteSettings(server.name, api.namespace, ParentGateway(*words), tuple(args.hostname))
    except (OSError, ValueError, ApiAway) as error:
        raise Failed(str(error)) from error
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    holder = f"{socket.gethostname()}-{os.getpid()}-{os.urandom(4).hex()}"
    if not run_routes(api, settings, server, args.settle_seconds, holder, stopped):
        raise Failed(f"another process is gateway {server.name} now")
    return exits.OK


def _run(args: argparse.Namespace) -> int:
    import logging
    import signal
    import threading

    from agents.gateway.api import serve
    from agents.gateway.callers import parse_callers
    from agents.gateway.plane import PlaneClient
    from agents.gateway.sidecar import AlreadyRunning, Sidecar

    listen = args.listen or str(args.folder.absolute() / "gateway.sock")
    local = listen.startswith("/")
    try:
        tokens = parse_callers(args.token_file.read_text()) if args.token_file else None
        tls = _tls(args)
        server = _server(args)
    except (OSError, ValueError) as error:
        raise Failed(str(error)) from error
    if not local and tokens is None:
        raise Failed("over TCP callers need a token: give --token-file, or listen on a path")
    if not local and tls is None and listen.rpartition(":")[0] not in ("127.0.0.1", "[::1]"):
        raise Failed("beyond this machine tokens need TLS: give --tls-cert and --tls-key")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    try:
        sidecar = Sidecar(args.folder.absolute(), args.master, args.requests)
    except (OSError, ValueError, AlreadyRunning) as error:
        raise Failed(str(error)) from error
    try:
        listening = serve(sidecar, listen, tokens, tls)
    except (OSError, ValueError) as error:
        sidecar.close()
        raise Failed(f"cannot listen on {listen}: {error}") from error
    plane = PlaneClient(sidecar, server) if server else None
    logging.info("the gateway's sidecar listens on %s until stopped", listen)
    stopped.wait()
    if plane:
        plane.close()
    listening.close()
    if local:
        Path(listen).unlink(missing_ok=True)
    sidecar.close()
    return exits.OK


def _server(args: argparse.Namespace) -> ControlPlaneAddress | None:
    """Returns the control plane to follow, tried as far as it can be without asking it."""
    if not args.server:
        return None
    from agents.gateway.plane import ControlPlaneAddress

    if not args.server_token_file:
        raise ValueError("--server wants --server-token-file, with a token of scope gateway")
    name = args.name or socket.gethostname().split(".")[0].lower()
    if not NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name of a gateway: give --name, of small letters, digits and dashes")
    server = ControlPlaneAddress(
        args.server, args.server_token_file, name, args.server_ca_file, args.loopback, args.listen or "/"
    )
    server.link().close()
    return server


def _tls(args: argparse.Namespace) -> ssl.SSLContext | None:
    if not args.tls_cert:
        return None
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(args.tls_cert, args.tls_key)
    return context
