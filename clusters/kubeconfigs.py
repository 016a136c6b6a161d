"""Finds the cluster that a kubeconfig names and connects to it; faults name the file and never repeat its text."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import httpx2
import msgspec
import yaml
from lightkube.config.client_adapter import Client, ConnectionParams
from lightkube.config.kubeconfig import DEFAULT_KUBECONFIG, SERVICE_ACCOUNT, KubeConfig, SingleConfig
from lightkube.config.models import User
from lightkube.core.exceptions import ConfigError

from clusters.addresses import AddressRefused, check_address
from clusters.plugin_tokens import PluginToken, is_token

REQUEST_SECONDS = 60.0
CONNECT_SECONDS = 10.0
IN_POD = "KUBERNETES_SERVICE_HOST"  # a variable of every pod


class ClusterUnreachable(Exception):
    """Nothing of the cluster can be read; the message says why and what to do."""


def choose_cluster(context: str | None, kubeconfig: str | None, environment: Mapping[str, str]) -> SingleConfig:
    """Returns the cluster of the context in the kubeconfig, else of the pod that this process runs in."""
    named = kubeconfig or environment.get("KUBECONFIG") or ""
    paths = [kubeconfig] if kubeconfig else [path for path in named.split(os.pathsep) if path] or [DEFAULT_KUBECONFIG]
    files = [path for path in map(str, paths) if _is_file(path)]
    if kubeconfig and not files:
        raise ClusterUnreachable(f"there is no kubeconfig {kubeconfig}")
    is_in_pod = IN_POD in environment and Path(SERVICE_ACCOUNT).is_dir()
    if not files and is_in_pod and not context:
        try:
            return _read_single(KubeConfig.from_service_account(), "default", SERVICE_ACCOUNT)
        except (ConfigError, OSError, LookupError, ValueError):
            raise ClusterUnreachable(f"the service account in {SERVICE_ACCOUNT} cannot be used") from None
    if not files:
        raise ClusterUnreachable(
            f"there is no kubeconfig ({', '.join(map(str, paths))}), and this process runs in no pod of a cluster; "
            "give one with --kubeconfig, or objects with -f"
        )
    merged = _merge([_load(path) for path in files])
    name, where = context or merged.current_context, ", ".join(files)
    if isinstance(name, str) and name in merged.contexts:
        return _read_single(merged, name, where)
    wanted = f"no context {name!r}" if name and isinstance(name, str) else "no current context"
    raise ClusterUnreachable(f"{where} has {wanted}; it has {', '.join(sorted(merged.contexts)) or 'none'}")


def _merge(configs: Sequence[KubeConfig]) -> KubeConfig:
    """Returns one of several files, as kubectl reads them: the first entry of a name counts."""
    first, *others = configs
    for other in others:
        first.clusters = {**other.clusters, **first.clusters}
        first.contexts = {**other.contexts, **first.contexts}
        first.users = {**other.users, **first.users}
        first.current_context = first.current_context or other.current_context
    return first


def _is_file(path: str) -> bool:
    try:
        return Path(path).expanduser().is_file()
    except (OSError, RuntimeError):  # its name is too long, or begins with a home that nobody has
        return False


def _load(file: str) -> KubeConfig:
    """Returns what a file has; relative paths in it are from its folder."""
    try:
        config = KubeConfig.from_file(file)
        for cluster in config.clusters.values():
            cluster.certificate_auth = _make_absolute(file, cluster.certificate_auth)
        for user in config.users.values():
            user.client_cert = _make_absolute(file, user.client_cert)
            user.client_key = _make_absolute(file, user.client_key)
            user.token_file = _make_absolute(file, user.token_file)
            if user.exec and os.sep in user.exec.command:
                user.exec.command = _make_absolute(file, user.exec.command) or ""
        return config
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise ClusterUnreachable(f"the kubeconfig {file} is not YAML{place}") from None
    except OSError as error:
        raise ClusterUnreachable(f"the kubeconfig {file} cannot be read: {error.strerror}") from None
    except msgspec.ValidationError as error:
        raise ClusterUnreachable(f"the kubeconfig {file} has an entry of another shape: {error}") from None
    except (ConfigError, yaml.YAMLError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        shape = "lists of clusters, contexts and users, each entry with its name"
        raise ClusterUnreachable(f"the kubeconfig {file} cannot be used: it needs {shape}") from None


def _make_absolute(file: str, path: str | None) -> str | None:
    return str(Path(file).expanduser().absolute().parent / path) if path else path


def _read_single(config: KubeConfig, name: str, file: str) -> SingleConfig:
    """Returns the cluster of a context; whatever it names is there."""
    chosen = config.contexts[name]
    for kind, entry, known in (("cluster", chosen.cluster, config.clusters), ("user", chosen.user, config.users)):
        if entry and entry not in known:
            raise ClusterUnreachable(f"the context {name} of {file} names the {kind} {entry!r}, which {file} lacks")
    found = config.get(name)
    if found is None:
        raise ClusterUnreachable(f"the context {name} of {file} names no cluster")
    user = found.user or User()
    try:
        check_address(found.cluster.server)
    except AddressRefused as refused:
        raise ClusterUnreachable(f"the cluster {chosen.cluster} of {file} has no usable server: {refused}") from None
    for path in filter(None, (found.cluster.certificate_auth, user.client_cert, user.client_key, user.token_file)):
        if not Path(path).is_file():
            raise ClusterUnreachable(f"{file} names the file {path}, which does not exist")
    if user.token and not user.token_file and not is_token(user.token):  # the file comes first
        raise ClusterUnreachable(f"the token of the user {chosen.user} of {file} is not a line of ASCII without spaces")
    return found._replace(user=user)


def connect(config: SingleConfig) -> httpx2.Client:
    """Returns a client that sends what the cluster's user has."""
    where = config.fname or SERVICE_ACCOUNT
    try:
        timeout = httpx2.Timeout(REQUEST_SECONDS, connect=CONNECT_SECONDS)
        client = Client(config, ConnectionParams(timeout=timeout))
    except ConfigError as error:
        raise ClusterUnreachable(f"the kubeconfig {where} cannot be used: {error}") from None
    except (OSError, ValueError, TypeError):
        raise ClusterUnreachable(f"the certificates that {where} names cannot be used") from None
    except httpx2.InvalidURL:
        raise ClusterUnreachable(f"the server of {where}, or a proxy of the environment, is no URL") from None
    user = config.user or User()
    if user.exec and not user.token and not user.token_file:
        client.auth = PluginToken(user.exec)
    return client
