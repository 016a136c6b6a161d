"""Hooks that rent from Karpenter: a NodeClaim for each order, named by its key.

An API server has one object of a name, so that a repeated call rents nothing more, from any planner. A NodePool with
`replicas` could not do this: Karpenter chooses which of its machines go when there shall be fewer.
"""

from __future__ import annotations

import http.client
import json
import ssl
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from app.control.rent.calls import HookOrder, make_plain
from app.control.rent.states import HookAnswer
from app.control.rent.trusted import HooksRefused
from app.http.outgoing import exchange
from app.http.posting import explain, is_post_address
from app.world.service_accounts import NAME_LABEL

CLAIMS = "/apis/karpenter.sh/v1/nodeclaims"
ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
POOL_LABEL = "karpenter.sh/nodepool"
KEY_NOTE = "gpuwright.io/order"
CAPACITY = "karpenter.sh/capacity-type"
MOST_BYTES = 1 << 20  # of an answer of the API server
LONGEST_TIMEOUT_SECONDS = 600.0

Json = Mapping[str, Any]


class ClaimUnanswered(Exception):
    """Nothing is known of what was asked; the message says why."""


class ClusterAnswer(NamedTuple):
    status: int
    body: Json

    @property
    def why(self) -> str:
        return f"the API server answered {self.status}: {self.body.get('message', '')}"

    def is_absent(self, name: str) -> bool:
        """Returns whether the API server says that it has no object of this name, and not that it has no such kind."""
        details = self.body.get("details")
        return self.status == 404 and isinstance(details, dict) and details.get("name") == name


class KarpenterHook(
    msgspec.Struct, frozen=True, tag_field="kind", tag="karpenter", forbid_unknown_fields=True, rename="camel"
):
    """Makes and deletes NodeClaims of one sort."""

    spec: dict[str, Any]  # of each NodeClaim; Karpenter's API server says what is wrong in it
    labels: dict[str, str] = {}
    server: str = "https://kubernetes.default.svc"
    token_file: str = f"{ACCOUNT}/token"
    ca_file: str = f"{ACCOUNT}/ca.crt"
    timeout_seconds: Annotated[float, msgspec.Meta(gt=0, le=LONGEST_TIMEOUT_SECONDS)] = 30.0

    def call(self, order: HookOrder) -> HookAnswer:
        ends_at = time.monotonic() + self.timeout_seconds
        try:
            return self._rent(order, ends_at) if order.verb == "rent" else self._give_back(order, ends_at)
        except ClaimUnanswered as error:
            return HookAnswer("failed", make_plain(f"hook {order.hook}: {error}"))

    def _rent(self, order: HookOrder, ends_at: float) -> HookAnswer:
        """Makes the claim unless it is there, and says what Karpenter has made of it."""
        name = name_claim(order)
        made = self._ask("POST", CLAIMS, ends_at, make_claim(order, self.labels, self.spec))
        if made.status == 404:
            return HookAnswer("refused", "this cluster has no NodeClaims (karpenter.sh/v1): is Karpenter installed?")
        found = self._ask("GET", f"{CLAIMS}/{name}", ends_at)
        if made.status not in (201, 409) and found.status != 200:  # a call before this one may have made it
            if not found.is_absent(name):
                raise ClaimUnanswered(made.why)
            return HookAnswer("refused", make_plain(f"NodeClaim {name} was not made: {made.why}"))
        if found.is_absent(name):  # gone with its finalizers, so that nothing of it runs
            why = "it has no capacity, or its node class is not ready"
            return HookAnswer("refused", f"Karpenter has given NodeClaim {name} up: {why}")
        if found.status != 200:
            raise ClaimUnanswered(found.why)
        if read_order(found.body) != order.key:
            return HookAnswer("refused", f"NodeClaim {name} is there already, and of no order of this planner's")
        is_launched, why = read_launched(found.body)
        said = f"NodeClaim {name}: {why}" if is_launched else f"NodeClaim {name} is not launched yet: {why}"
        return HookAnswer("accepted" if is_launched else "pending", make_plain(said))

    def _give_back(self, order: HookOrder, ends_at: float) -> HookAnswer:
        name = name_claim(order)
        found = self._ask("GET", f"{CLAIMS}/{name}", ends_at)
        if found.is_absent(name):
            return HookAnswer("returned", f"there is no NodeClaim {name}")
        if found.status != 200:
            raise ClaimUnanswered(found.why)
        if read_order(found.body) != order.key:
            return HookAnswer("returned", f"NodeClaim {name} is of no order of this planner's")
        gone = self._ask("DELETE", f"{CLAIMS}/{name}", ends_at)
        if gone.status not in (200, 202) and not gone.is_absent(name):
            raise ClaimUnanswered(gone.why)
        # Its finalizer holds it until the machine has ended, which is paid for until then.
        return HookAnswer("pending", f"Karpenter ends the machine of NodeClaim {name}")

    def _ask(self, method: str, target: str, ends_at: float, body: Json | None = None) -> ClusterAnswer:
        parts, left = urlsplit(self.server), ends_at - time.monotonic()
        try:
            if left <= 0:
                raise TimeoutError
            token = Path(self.token_file).read_text(encoding="ascii").strip()  # at each call: it is renewed
            headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
            trusted = ssl.create_default_context(cafile=self.ca_file or None)
            connection = http.client.HTTPSConnection(
                parts.hostname or "", parts.port or 443, timeout=left, context=trusted
            )
            sent = None if body is None else json.dumps(body).encode()
            status, content = exchange(
                connection, method, target, sent, headers, seconds=left, most_bytes=MOST_BYTES
            )  # fmt: skip
            found = {} if status == 404 and not content.startswith(b"{") else msgspec.json.decode(content)
        except FileNotFoundError as error:
            raise ClaimUnanswered(f"{error.filename} is not there") from None
        except (OSError, http.client.HTTPException) as error:
            raise ClaimUnanswered(f"the API server gave no answer: {explain(error, self.timeout_seconds)}") from None
        except (ValueError, RecursionError):  # of the token, or of what is no JSON; both may hold a secret
            raise ClaimUnanswered(
                "the token is no text, or the API server answered with something else than JSON"
            ) from None
        return ClusterAnswer(status, found if isinstance(found, dict) else {})


def name_claim(order: HookOrder) -> str:
    """Returns the name of the order's claim; of a key only the case of a letter is lost, which all keys have."""
    return order.key.lower()


def read_order(claim: Json) -> str:
    """Returns the key of the order that a claim was made for; empty where a planner of ours did not make it."""
    metadata = claim.get("metadata")
    notes = metadata.get("annotations") if isinstance(metadata, dict) else None
    return str(notes.get(KEY_NOTE, "")) if isinstance(notes, dict) else ""


def make_claim(order: HookOrder, labels: Mapping[str, str], spec: Json) -> Json:
    """Returns the NodeClaim of an order; its node joins under the order's name by its label."""
    metadata = {
        "name": name_claim(order),
        "labels": {**labels, NAME_LABEL: order.node},
        "annotations": {KEY_NOTE: order.key},
    }
    wanted = require_purchase(spec, "spot" if order.spec.get("purchase") == "spot" else "on-demand")
    return {"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": metadata, "spec": wanted}


def require_purchase(spec: Json, purchase: str) -> Json:
    """Returns the spec with the pool's way to pay, unless it names its own: left open, Karpenter takes spot first."""
    given = spec.get("requirements", [])
    if not isinstance(given, list) or any(isinstance(one, dict) and one.get("key") == CAPACITY for one in given):
        return spec
    return {**spec, "requirements": [*given, {"key": CAPACITY, "operator": "In", "values": [purchase]}]}


def read_launched(claim: Json) -> tuple[bool, str]:
    """Returns whether Karpenter has launched the claim, and what it says of it."""
    try:
        conditions = claim.get("status", {}).get("conditions", ())
        labels = claim["metadata"].get("labels", {})
        if "deletionTimestamp" in claim["metadata"]:
            return False, "it is being deleted"
        launched: Json = next((one for one in conditions if one["type"] == "Launched"), {})
        if launched.get("status") != "True":
            return False, str(launched.get("message") or "Karpenter has not said anything of it")
    except (AttributeError, KeyError, TypeError):
        raise ClaimUnanswered("the API server answered with something else than a NodeClaim") from None
    where = labels.get("topology.kubernetes.io/zone", "")
    return True, f"{labels.get('node.kubernetes.io/instance-type', 'launched')} {where}".strip()


def check_karpenter(hook: KarpenterHook, where: str) -> None:
    """Raises HooksRefused for what no API server could answer, and for what lets others take its machines."""
    try:
        is_right = is_post_address(hook.server, is_local=False)
    except ValueError:
        is_right = False
    if not is_right or urlsplit(hook.server).path.strip("/"):
        raise HooksRefused(f"{where}: server must be https://HOST[:PORT]")
    if wrong := next((name for name in (POOL_LABEL, NAME_LABEL) if name in hook.labels), ""):
        why = "Karpenter would take its nodes away as it likes" if wrong == POOL_LABEL else "it names the order's node"
        raise HooksRefused(f"{where}: labels must not have {wrong}: {why}")
    for name, file in (("tokenFile", hook.token_file), ("caFile", hook.ca_file)):
        if file and not Path(file).exists():
            why = "the chart mounts it with planner.karpenter: true" if file.startswith(ACCOUNT) else "name one"
            raise HooksRefused(f"{where}: {name} {file} is not there: {why}")
