"""Every refusal the API gives, as RFC 9457 problem details."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from app.manifests.faults import ManifestFault

TITLES: Mapping[str, tuple[int, str]] = {
    "bad-request": (400, "The request is malformed"),
    "unauthorized": (401, "The request needs a valid token"),
    "forbidden": (403, "This token may not do that"),
    "not-found": (404, "No such thing"),
    "method-not-allowed": (405, "This method is not allowed here"),
    "request-timeout": (408, "The request took too long to arrive"),
    "conflict": (409, "The request conflicts with the current state"),
    "gone": (410, "The requested data is no longer stored"),
    "precondition-failed": (412, "The object is not as the request requires"),
    "too-large": (413, "The request is too large"),
    "unsupported-media-type": (415, "This media type is not supported"),
    "invalid": (422, "The input is invalid"),
    "rate-limited": (429, "Too many requests"),
    "head-too-large": (431, "The head of the request is too large"),
    "internal": (500, "An internal error occurred in gpuwright"),
    "unavailable": (503, "The service is temporarily unavailable"),
}


class HttpProblem(Exception):
    """A refusal with its status, in words that a caller can act on."""

    def __init__(
        self,
        slug: str,
        detail: str,
        *,
        faults: Sequence[ManifestFault] = (),
        headers: Mapping[str, str] | None = None,
        **extra: object,
    ) -> None:
        super().__init__(detail)
        self.slug = slug
        self.status, self.title = TITLES[slug]
        self.detail = detail
        self.faults = list(faults)
        self.headers = dict(headers or {})
        self.extra = extra

    def body(self, instance: str, request_id: str) -> dict[str, object]:
        """Returns the problem document; `instance` is the requested path."""
        document: dict[str, object] = {
            "type": f"urn:gpuwright:problem:{self.slug}",
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
            "instance": instance,
            "requestId": request_id,
            **self.extra,
        }
        if self.faults:
            document["faults"] = [
                {
                    key: value
                    for key, value in (
                        ("document", fault.document),
                        ("field", fault.field),
                        ("message", fault.message),
                        ("allowed", fault.allowed or None),
                        ("value", fault.value),
                        ("suggestion", fault.suggestion or None),
                    )
                    if value is not None
                }
                for fault in self.faults
            ]
        return document
