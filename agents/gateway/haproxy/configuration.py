"""Writes HAProxy's configuration: the base, which an operator owns, and the part that the sidecar rewrites.

Everything set at run time is written here first and in the same words, so that a reload at any moment changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from zlib import crc32

from agents.gateway.balances import Balance, balance_of
from agents.gateway.desired import Desired, HaproxyServer
from agents.gateway.haproxy.admitting import LONGEST_PATH, MOST_KEYS, NOTHING, PATH
from agents.gateway.wire import ServiceLimit

GENERATED = "gpuwright.cfg"
SERVICES = "services.map"
ANY_LIMITS = "limits*.map"
COPIES = "copies.map"
PATHS, KEYS = "paths.map", "keys.map"
TOKENS = "tokens.lua"
BALANCE = "balance.lua"
NO_LIMIT = "0:2000000000:2:0"  # share shed in millionths; most open requests; Retry-After seconds; 1: no copy may queue
MOST_COPIES, LONGEST_LIST = 100, 8000  # of a service in its map; HAProxy takes commands of 16 kB
NOBODY = "gw-nobody"
SUCCESSOR = "gw-successor"
RETRY_AFTER_SECONDS = 2
QUEUE_SECONDS = 10  # after which what waits for a copy is answered 503
# Separated by spaces, one line for each request; `requests.py` parses it.
LOG_FORMAT = "gw1 %pid %[var(txn.gw_service)] %s %ST %ts %Ta %Tw %[var(txn.gw_tokens)]"

# Needed in every frontend that serves our services.
_ROUTING = """\
    log {requests} len 1024 format raw local0
    log-format "{log_format}"
    http-request set-var(txn.gw_service) path,field(2,/,2)
    http-request set-log-level silent if {{ stopping }}
    use_backend {successor} if {{ stopping }}
    use_backend %[var(txn.gw_service),map_str({folder}/services.map,{nobody})]
"""

BASE = """\
# The base of HAProxy for gpuwright. It is yours: set binds, TLS, timeouts and headers here.
# {folder}/gpuwright.cfg lists the copies of each service; `gpuwright gateway` rewrites it.
# Start HAProxy with both files, as a master with its socket:
#   haproxy -W -S /run/haproxy-master.sock,mode,660,group,gpuwright-gateway -f haproxy.cfg -f {folder}/gpuwright.cfg
global
    user haproxy
    group haproxy
    hard-stop-after 15m              # an old process after a reload: the longest answer it waits for

defaults
    mode http
    timeout connect 2s
    timeout client 60s
    timeout server 600s              # between two bytes of an answer
    timeout queue 10s                # then 503
    timeout http-request 10s
    timeout http-keep-alive 60s

frontend inference
    bind {bind}
    # bind :443 ssl crt /etc/haproxy/certs/
    # option forwardfor
    # --- needed by gpuwright, in every frontend that serves its services: http://HOST/TENANT/SERVICE/path
    option idle-close-on-response    # a reload closes no connection under a request
{routing}    # ---
"""

_HEAD = """\
# Written by `gpuwright gateway` before every change; edits here are lost. Edit the base instead: haproxy.cfg.
# Without Lua nothing is known of tokens at the gateway.
.if feature(LUA)
global
    lua-load-per-thread {folder}/{tokens}
    lua-load-per-thread {folder}/{balance}
.endif

defaults gpuwright
    mode http
    option http-server-close         # no idle connection that a server could close during a request
    option redispatch 1
    retries 3
    retry-on conn-failure empty-response 503
    timeout connect 2s
    timeout client 60s
    timeout server 600s
    timeout queue {queue_seconds}s
    http-error status 503 content-type text/plain string "no copy is ready" hdr Retry-After {retry_after}

# After a reload the old process still gets requests on its open connections. It passes them to the new process,
# because its own servers can no longer be changed.
frontend gw-relay from gpuwright
    bind abns@{relay}
    option idle-close-on-response
{routing}
backend {successor} from gpuwright
    server new abns@{relay}

backend {nobody} from gpuwright
    http-request return status 404 content-type text/plain string "no such service"
"""

# A request comes to its service a second time where a copy, or an address that a node reports as one, sends it to a
# gateway again: this one or another.
_BACKEND = """
backend {name} from gpuwright
    balance {balance}
    http-request deny deny_status 400 if {{ fc_http_major 1 }} !{{ url_beg / }}
    http-request deny deny_status 400 if !{{ url_beg / http:// https:// }}
    http-request deny deny_status 400 if {{ path_len gt {longest_path} }} or !{{ path -m reg '{path}' }}
    http-request del-header ^(connection|upgrade|http2-settings)$ -m reg
{by_prefix}    acl looped req.hdr(x-gpuwright-service),strcmp(txn.gw_service) eq 0
    http-request return status 508 content-type text/plain string "a copy of the service sends requests back to it" \
if looped
    http-request add-header x-gpuwright-service %[var(txn.gw_service)]
    acl repeatable method GET HEAD OPTIONS PUT DELETE
    acl repeatable req.hdr(idempotency-key) -m found
    http-request disable-l7-retry unless repeatable
    http-request set-var(txn.gw_limits) var(txn.gw_service),map_str({folder}/{limits},{no_limit})
    http-request set-var(txn.gw_shed) var(txn.gw_limits),field(1,:),add(0)
    http-request set-var(txn.gw_most) var(txn.gw_limits),field(2,:),add(0)
    acl shed rand(1000000),sub(txn.gw_shed) lt 0
    acl full be_conn,sub(txn.gw_most) gt 0
    acl no_room be_conn_free lt 1
    acl may_not_wait var(txn.gw_limits),field(4,:) 1
    http-request return status 503 content-type text/plain string "the service is overloaded, try again later" \
hdr Retry-After %[var(txn.gw_limits),field(3,:)] if shed or full or no_room may_not_wait
    http-request set-path %[path,regsub(^/[^/]+/[^/]+/?,/)]
.if feature(LUA)
    filter lua.gpuwright-tokens
.endif
    http-request set-var(txn.gw_keys) var(txn.gw_service),map_str({folder}/keys.map,{nothing})
    http-request set-var-fmt(txn.gw_asked) :%[method]:%[path]
{by_keys}    http-request set-var(txn.gw_admitted) bool(true) if {all_keys}
    acl admitted var(txn.gw_admitted) -m bool
    http-request deny deny_status 503 if !admitted {{ nbsrv 0 }}
    http-request deny deny_status 404 if !admitted
{by_tokens}"""

# A request is admitted by all kinds of servers that the service has.
_BY_KEY = """\
    acl by_key_{number} var(txn.gw_keys),field({number},.),concat(,txn.gw_asked),map_reg({folder}/paths.map) -m found
"""

# The key is the caller's, or a hash of the body's beginning, which is waited for. A copy with more than 1.5 times the
# mean of open requests passes requests on to the next one.
_BY_PREFIX = """\
    hash-type consistent sdbm avalanche
    hash-balance-factor 150
    http-request wait-for-body time 1s at-least 512 if METH_POST
    http-request set-header x-gpuwright-prefix %[req.body,bytes(0,512),xxh64] unless \
{ req.hdr(x-gpuwright-prefix) -m found }
"""

# The copy is chosen after everything that refuses a request, so that only requests that go to a copy are counted there.
# Where Lua chooses none, or the chosen one is down, HAProxy goes by open requests.
_BY_TOKENS = """\
    http-request set-var(txn.gw_copies) var(txn.gw_service),map_str({folder}/copies.map)
.if feature(LUA)
    filter lua.gpuwright-balance
    http-request lua.gpuwright-choose
    use-server %[var(txn.gw_copy)] if {{ var(txn.gw_copy) -m found }}
.endif
"""


def read_lua(name: str) -> str:
    return Path(__file__).with_name(name).read_text()


def _find_form() -> str:
    """Returns what tells this configuration's form from those of other versions."""
    texts = (PATH, LOG_FORMAT, _ROUTING, _HEAD, _BACKEND, _BY_KEY, _BY_PREFIX, _BY_TOKENS, str(MOST_KEYS))
    return f"{crc32(''.join((*texts, read_lua(TOKENS), read_lua(BALANCE))).encode()):08x}"


# A sidecar of another version, older or newer, does not find its own map in HAProxy, and so reloads it.
LIMITS = f"limits-{_find_form()}.map"
MAPS = (LIMITS, COPIES, PATHS, KEYS)  # besides that of services, which decides when a backend may be used


def render_base(folder: Path, requests: str, bind: str) -> str:
    """Returns the base, ready to paste."""
    return BASE.format(folder=folder, bind=bind, routing=_routing(folder, requests))


def _routing(folder: Path, requests: str) -> str:
    return _ROUTING.format(folder=folder, requests=requests, log_format=LOG_FORMAT, successor=SUCCESSOR, nobody=NOBODY)


def backend_name(slot: int) -> str:
    return f"gw-{slot:04d}"


def render_generated(desired: Desired, folder: Path, requests: str) -> str:
    """Returns the whole generated part."""
    head = _HEAD.format(
        routing=_routing(folder, requests),
        # An abstract socket works from a chroot, and for any user that HAProxy runs as.
        relay=f"gpuwright-{crc32(str(folder).encode()):08x}",
        successor=SUCCESSOR,
        nobody=NOBODY,
        retry_after=RETRY_AFTER_SECONDS,
        queue_seconds=QUEUE_SECONDS,
        folder=folder,
        tokens=TOKENS,
        balance=BALANCE,
    )
    parts = [head]
    servers_by_slot = desired.group_by_slot()
    by_keys = "".join(_BY_KEY.format(number=number, folder=folder) for number in range(1, MOST_KEYS + 1))
    for slot in range(1, desired.slot_count + 1):
        balance = balance_of(slot)
        parts.append(
            _BACKEND.format(
                name=backend_name(slot),
                balance=balance.value,
                by_prefix=_BY_PREFIX if balance is Balance.PREFIX else "",
                by_tokens=_BY_TOKENS.format(folder=folder) if balance is Balance.LEAST_TOKENS else "",
                by_keys=by_keys,
                all_keys=" ".join(f"by_key_{number}" for number in range(1, MOST_KEYS + 1)),
                nothing=NOTHING,
                path=PATH,
                longest_path=LONGEST_PATH,
                limits=LIMITS,
                folder=folder,
                no_limit=NO_LIMIT,
            )
        )
        parts += [
            f"    server {server.name} {server_arguments(server, backend_name(slot))}\n"
            for server in servers_by_slot.get(slot, {}).values()
        ]
    return "".join(parts)


def server_arguments(server: HaproxyServer, backend: str) -> str:
    """Returns a server's arguments, the same in the file and in `add server`.

    A check opens a connection; a failed one is repeated quickly, so that a dead copy is out within half a second. Until
    then its requests are sent to other copies. Where requests go by prefix, the server has an id of its own: without it
    HAProxy 2.6 gives all servers that are added while it runs the same places, and some get no requests at all.
    """
    host = f"[{server.host}]" if ":" in server.host else server.host
    return (
        f"{host}:{server.port} weight {server.weight} maxconn {server.most_open} maxqueue 512 "
        "check inter 2s fastinter 200ms downinter 500ms fall 2 rise 1"
        + (f" id {crc32(server.name.encode()) % 2**31 or 1}" if balance_of(int(backend[3:])) is Balance.PREFIX else "")
    )


def render_limit(limit: ServiceLimit) -> str:
    """Returns a limit as the map holds it; the backends split it."""
    share, most = round(limit.shed_share * 1_000_000), limit.queue_limit or 2_000_000_000
    return f"{share}:{most}:{limit.retry_after_seconds}:{int(limit.by_copy)}"


def render_limits(limits: Mapping[str, ServiceLimit]) -> str:
    """Returns the map file of each service's limit."""
    return "".join(f"{service} {render_limit(limits[service])}\n" for service in sorted(limits))


def list_copies(desired: Desired) -> dict[str, str]:
    """Returns the copies with their weights and limits, for each service whose requests go by tokens in flight.

    A service of very many copies is left out: its requests go by open requests.
    """
    found: dict[str, str] = {}
    servers_by_slot = desired.group_by_slot()
    for service, slot in desired.slots.items():
        if balance_of(slot) is Balance.LEAST_TOKENS:
            servers = servers_by_slot.get(slot, {}).values()
            parts = [f"{each.name}={each.weight}={each.most_open}" for each in servers if not each.drained]
            text = ",".join(parts)
            if parts and len(parts) <= MOST_COPIES and len(text) <= LONGEST_LIST:
                found[service] = text
    return found


def render_copies(desired: Desired) -> str:
    """Returns the map file of each service's copies."""
    return "".join(f"{service} {copies}\n" for service, copies in sorted(list_copies(desired).items()))


def render_services(slots: Mapping[str, int]) -> str:
    """Returns the map file of each service's slot."""
    return "".join(f"{service} {backend_name(slots[service])}\n" for service in sorted(slots))
