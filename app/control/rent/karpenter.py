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
MOST_BYTES = 1 << 20  # of an answer of the API server
LOOK_SECONDS = 1.0  # between two looks at a claim
BUSY = frozenset({408, 429})  # the same request may be answered later, as after 500 and above
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
        """Makes the claim unless it is there, and waits until Karpenter has launched it or has given it up."""
        name = name_claim(order)
        made = self._ask("POST", CLAIMS, ends_at, make_claim(order, self.labels, self.spec))
        if made.status not in (201, 409):  # 409: a call before this one has made it
            if made.status in BUSY or made.status >= 500:
                raise ClaimUnanswered(made.why)
            return HookAnswer("refused", make_plain(f"NodeClaim {name} was not made: {made.why}"))
        while True:
            try:
                found = self._ask("GET", f"{CLAIMS}/{name}", ends_at)
            except ClaimUnanswered as error:
                raise ClaimUnanswered(f"NodeClaim {name} is not launched yet: {error}") from None
            if found.is_absent(name):  # gone with its finalizers, so that nothing of it runs
                why = "it has no capacity, or its node class is not ready"
                return HookAnswer("refused", f"Karpenter has given NodeClaim {name} up: {why}")
            if found.status != 200:
                raise ClaimUnanswered(found.why)
            is_launched, why = read_launched(found.body)
            if is_launched:
                return HookAnswer("accepted", make_plain(f"NodeClaim {name}: {why}"))
            if time.monotonic() + LOOK_SECONDS >= ends_at:
                raise ClaimUnanswered(f"NodeClaim {name} is not launched yet: {why}")
            time.sleep(LOOK_SECONDS)

    def _give_back(self, order: HookOrder, ends_at: float) -> HookAnswer:
        name = name_claim(order)
        gone = self._ask("DELETE", f"{CLAIMS}/{name}", ends_at)
        if gone.is_absent(name):
            return HookAnswer("returned", f"there is no NodeClaim {name}")
        if gone.status not in (200, 202):
            raise ClaimUnanswered(gone.why)
        return HookAnswer("returned", f"Karpenter ends the machine of NodeClaim {name}")

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
            found = msgspec.json.decode(content)
        except (OSError, http.client.HTTPException) as error:
            raise ClaimUnanswered(f"the API server gave no answer: {explain(error, self.timeout_seconds)}") from None
        except (ValueError, RecursionError):  # of the token, or of what is no JSON; both may hold what nobody shall see
            raise ClaimUnanswered(
                "the token is no text, or the API server answered with something else than JSON"
            ) from None
        return ClusterAnswer(status, found if isinstance(found, dict) else {})


def name_claim(order: HookOrder) -> str:
    """Returns the name of the order's claim; of a key only the case of a letter is lost, which all keys have."""
    return order.key.lower()


def make_claim(order: HookOrder, labels: Mapping[str, str], spec: Json) -> Json:
    """Returns the NodeClaim of an order; its node joins under the order's name by its label."""
    metadata = {
        "name": name_claim(order),
        "labels": {**labels, NAME_LABEL: order.node},
        "annotations": {KEY_NOTE: order.key},
    }
    return {"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": metadata, "spec": spec}


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
