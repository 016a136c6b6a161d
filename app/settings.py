"""All configuration of the control plane, read from the environment once."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from math import inf
from pathlib import Path
from urllib.parse import urlsplit

from agents.contract.addresses import IpNetwork, parse_networks

PREFIX = "GPUWRIGHT_"
UNPREFIXED = {"database_url", "database_listen_url"}
LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
SHORTEST_AUDIT_DAYS = 90
ACCOUNT = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?/[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
RIGHT = re.compile(r"([^=]+)=(viewer|operator|admin|(?:viewer|operator)@[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?)")
MAY_BE_ZERO = {"planner_metrics_port", "port", "scaler_metrics_port", "slow_query_ms"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Each field is read from GPUWRIGHT_<FIELD>, DATABASE_URL and DATABASE_LISTEN_URL from their own names."""

    database_url: str = ""  # Postgres 15 or newer; `up` sets it to its own
    database_listen_url: str = ""  # a direct connection for LISTEN when database_url goes through a pooler
    database_direct: bool = False  # no pooler in between: LISTEN and prepared statements work
    pool_size: int = 10  # connections to the database, for requests
    reserved_pool_size: int = 6  # connections for reports, polls, tokens and housekeeping alone
    host: str = "127.0.0.1"  # address to listen on
    port: int = 8080  # port to listen on; 0 takes any free one
    tls_cert: Path | None = None  # certificate, PEM
    tls_key: Path | None = None  # its key, PEM
    allow_plaintext: bool = False  # listen beyond loopback, and send tokens there, without TLS
    trusted_proxies: str = ""  # proxies' addresses and networks, comma-separated: their X-Forwarded-For is trusted
    copy_networks: str = ""  # networks that copies may listen in, comma-separated; empty: any of a machine
    rate_per_second: float = 100.0  # requests a second of one principal
    rate_burst: int = 300  # requests of one principal at once
    sign_ins_per_hour: float = 60.0  # console sessions that one token may open; ten times as many from one address
    report_rate_per_second: float = 10.0  # node reports a second of one node, in a lane of their own
    body_seconds: float = 20.0  # time for a request to arrive
    write_stall_seconds: float = 30.0  # a reader that takes under 64 KiB of a waiting answer in this time is cut off
    parse_seconds: float = 20.0  # time to parse a large body
    parse_memory_mb: int = 1024  # address space of the process that parses it
    open_metrics: bool = False  # serve /metrics without a token
    change_retention_hours: float = 24.0  # how far back a watch can resume
    idempotency_hours: float = 24.0  # how long the answer to an Idempotency-Key is kept
    telemetry_retention_days: int = 14  # how long the minutes of GPUs and instances are kept
    node_token_days: float = 30.0  # how long a node's token is valid; its agent renews it at half of that
    kubernetes_agents: str = ""  # NAMESPACE/ACCOUNT whose pods join as the nodes that they run on; empty: none may
    oidc_issuer: str = ""  # the provider (OpenID Connect) where people sign in; empty: with tokens alone
    oidc_client_id: str = ""  # what the provider calls this server
    oidc_client_secret_file: Path | None = None  # the secret that it gave; none for a public client
    oidc_command_line_id: str = ""  # the public client of `gpuwright login`; empty: that of the server
    oidc_scopes: str = "openid profile email"  # asked for; some providers tell groups by one more
    oidc_groups_claim: str = "groups"  # the claim that holds a person's groups
    oidc_groups: str = ""  # GROUP=SCOPE or GROUP=SCOPE@TENANT, comma-separated; the first group of a person counts
    oidc_hours: float = 12.0  # how long a person stays signed in
    webhooks_file: Path | None = None  # what gets events and the audit, and where; none: nothing does
    hooks_file: Path | None = None  # the planner's, of root alone: what rents nodes of pools and gives them back
    public_url: str = ""  # the address by which browsers reach this server, such as https://gpus.example.com
    lease_seconds: float = 10.0  # how long a silent leader keeps the lease
    solve_seconds: float = 10.0  # time for the search of a full plan
    solver_cores: int = 1  # cores that the solver's process may use
    planner_metrics_port: int = 0  # the planner's /metrics; 0: none
    planner_metrics_host: str = "127.0.0.1"  # the address of the planner's /metrics, which needs no token
    prometheus_url: str = ""  # where a scaler reads the load of workloads
    prometheus_token_file: Path | None = None  # a bearer token for it
    kube_context: str = ""  # which cluster in the kubeconfig; empty: the current one, else the pod's own
    ray_services: Path | None = None  # a file of deployments of Ray Serve that a scaler adopts, instead of a cluster's
    scale_seconds: float = 30.0  # between two looks of a scaler at the cluster and its load
    scale_step_seconds: float = 120.0  # between two writes to one workload: somebody may see the first
    scale_days: float = 7.0  # of load from which a scaler takes the rates that replicas have shown
    scale_namespaces: str = ""  # namespaces whose workloads a scaler may adopt, comma-separated; empty: all
    scaler_metrics_port: int = 0  # the scaler's /metrics; 0: none
    scaler_metrics_host: str = "127.0.0.1"  # the address of the scaler's /metrics, which needs no token
    plan_retention_days: float = 30.0  # how long decisions and their snapshots are kept
    plan_retention_mb: int = 2048  # the most space that they may take
    currency: str = "EUR"  # currency of all prices, an ISO 4217 code
    audit_retention_days: float = 400.0  # how long the audit is kept; at least 90
    cost_retention_days: float = 3660.0  # how long the costs of days are kept; those of hours: 400 days
    tenant_objects: int = 10_000  # services and jobs that a tenant may have
    tenant_changes: int = 20_000  # changes of objects a day by a tenant; 50 times as many by a token without a tenant
    answers_ready: bool = True  # start the process that answers explain and what-if with the server
    slow_query_ms: float = 200.0  # a statement that takes longer is logged by name
    log_level: str = "INFO"  # DEBUG, INFO, WARNING or ERROR
    otlp_endpoint: str = ""  # where traces are sent; else OTEL_EXPORTER_OTLP_ENDPOINT; else none are

    def __post_init__(self) -> None:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise SettingsError("TLS needs both a certificate and a key")
        if not 0 <= self.port <= 65535:
            raise SettingsError(f"port {self.port} is outside 0..65535")
        if not re.fullmatch("[A-Z]{3}", self.currency):
            raise SettingsError(f"currency {self.currency!r} is not an ISO 4217 code, such as EUR")
        if self.audit_retention_days < SHORTEST_AUDIT_DAYS:
            raise SettingsError(
                f"audit_retention_days {self.audit_retention_days:g} is under {SHORTEST_AUDIT_DAYS}: "
                "the database keeps entries of the audit for as long"
            )
        self.proxies()
        self.copies()
        if self.kubernetes_agents and not ACCOUNT.fullmatch(self.kubernetes_agents):
            raise SettingsError(
                f"kubernetes_agents {self.kubernetes_agents!r} must be NAMESPACE/ACCOUNT, such as gpuwright-nodes/agent"
            )
        self._check_people()
        if self.log_level not in LOG_LEVELS:
            raise SettingsError(f"log_level {self.log_level!r} is not one of {', '.join(LOG_LEVELS)}")
        for name in (field.name for field in fields(self) if field.type in ("int", "float")):
            value = getattr(self, name)
            if not (0 < value < inf or (value == 0 and name in MAY_BE_ZERO)):
                raise SettingsError(
                    f"{name} must be a finite number, {'0 or more' if name in MAY_BE_ZERO else 'over 0'}, not {value}"
                )

    def proxies(self) -> tuple[IpNetwork, ...]:
        """Returns the networks of trusted_proxies."""
        return self._networks("trusted_proxies", self.trusted_proxies)

    def copies(self) -> tuple[IpNetwork, ...]:
        """Returns the networks of copy_networks: gateways send requests to copies there only."""
        return self._networks("copy_networks", self.copy_networks)

    def group_rights(self) -> tuple[GroupRight, ...]:
        """Returns what oidc_groups gives to each group, in order."""
        rights = []
        for entry in filter(None, (part.strip() for part in self.oidc_groups.split(","))):
            match = RIGHT.fullmatch(entry)
            if match is None:
                raise SettingsError(
                    f"oidc_groups: {entry!r} is not GROUP=SCOPE or GROUP=SCOPE@TENANT; scopes: viewer, operator, admin "
                    "(admin without a tenant); such as platform=operator,team-shop=operator@shop"
                )
            scope, _, tenant = match[2].partition("@")
            rights.append(GroupRight(match[1], scope, tenant))
        return tuple(rights)

    def _check_people(self) -> None:
        """Refuses a provider without what signing in needs, and addresses that would send secrets in the clear."""
        rights = self.group_rights()
        if not self.oidc_issuer:
            return
        for name in ("oidc_client_id", "public_url"):
            if not getattr(self, name):
                raise SettingsError(f"oidc_issuer is set, so {name} must be, too")
        if not rights:
            raise SettingsError("oidc_issuer is set, so oidc_groups must say what at least one group may do")
        for name in ("oidc_issuer", "public_url"):
            address = getattr(self, name)
            parts = urlsplit(address)
            is_safe = bool(parts.hostname) and (parts.scheme == "https" or is_plain_loopback(address))
            is_odd = parts.query or parts.fragment or parts.username or not address.isprintable() or " " in address
            if not is_safe or is_odd:
                raise SettingsError(f"{name} {address!r} must be https://HOST[:PORT][/PATH] (http: on loopback only)")
        if self.oidc_client_secret_file and not self.oidc_client_secret_file.is_file():
            raise SettingsError(f"oidc_client_secret_file: the file {self.oidc_client_secret_file} does not exist")

    def secrets(self) -> tuple[str, ...]:
        """Returns what no log may show: addresses with passwords."""
        return tuple(url for url in (self.database_url, self.database_listen_url) if url)

    @staticmethod
    def _networks(name: str, text: str) -> tuple[IpNetwork, ...]:
        try:
            return parse_networks(text)
        except ValueError as error:
            raise SettingsError(
                f"{name}: {error}; allowed: addresses and networks, such as 10.0.0.5,10.1.0.0/16"
            ) from None


@dataclass(frozen=True, slots=True)
class GroupRight:
    """What the people of one group may do."""

    group: str
    scope: str
    tenant: str = ""


def is_plain_loopback(address: str) -> bool:
    """Returns True for plain HTTP that does not leave this machine."""
    parts = urlsplit(address)
    return parts.scheme == "http" and parts.hostname in ("127.0.0.1", "::1", "localhost")


class SettingsError(ValueError):
    """The configuration is wrong; the message names the setting, its value and what is allowed."""


def read_environment(environment: Mapping[str, str] | None = None, **overrides: object) -> Settings:
    """Settings from the environment; `overrides` (from the command line) win."""
    env = os.environ if environment is None else environment
    values: dict[str, object] = {}
    for spec in fields(Settings):
        variable = spec.name.upper() if spec.name in UNPREFIXED else PREFIX + spec.name.upper()
        if variable in env:
            values[spec.name] = _parse(variable, env[variable], str(spec.type))
    values.update({name: value for name, value in overrides.items() if value is not None})
    return Settings(**values)  # type: ignore[arg-type]


def _parse(variable: str, text: str, wanted: str) -> object:
    try:
        match wanted:
            case "bool":
                return {"1": True, "true": True, "0": False, "false": False, "": False}[text.lower()]
            case "int":
                return int(text)
            case "float":
                return float(text)
            case "Path | None":
                return Path(text) if text else None
            case _:
                return text
    except (ValueError, KeyError):
        allowed = {"bool": "0, 1, true or false", "int": "a whole number", "float": "a number"}[wanted]
        raise SettingsError(f"{variable} is {text!r}; allowed: {allowed}") from None
