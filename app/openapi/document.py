"""Builds the OpenAPI 3.1 document: FastAPI's routes with the full schemas, problems and media types of manifests."""

from __future__ import annotations

from functools import cache

from fastapi import FastAPI
from fastapi.routing import APIRoute

from app.api import replies
from app.manifests.model import STORED, Kind
from app.openapi import examples
from app.openapi import schemas as known
from app.openapi.schemas import Schema
from app.problem import TITLES
from app.wire import spell_camel

OPEN_PATHS = {"/healthz", "/readyz", "/api/v1/join", "/api/v1/people", "/openapi.json"}
ALWAYS = (
    "bad-request",
    "unauthorized",
    "request-timeout",
    "too-large",
    "rate-limited",
    "head-too-large",
    "internal",
    "unavailable",
)
# Routes that answer with something other than JSON.
PLAIN = {"/metrics": "text/plain", "/api/v1/watch": "text/event-stream"}
FIGURE = {"type": ["number", "string", "null"]}  # of a report
GONE_PATHS = {  # they read what is kept for a while only
    "/api/v1/watch",
    "/api/v1/plans/{generation}/record",
    "/api/v1/explain/services/{tenant}/{name}",
    "/api/v1/explain/jobs/{tenant}/{name}",
    "/api/v1/explain/instances/{instance}",
}
OF_METHOD = {
    "get": ("forbidden", "not-found", "invalid"),
    "put": ("forbidden", "not-found", "conflict", "precondition-failed", "unsupported-media-type", "invalid"),
    "patch": (
        "forbidden",
        "not-found",
        "conflict",
        "precondition-failed",
        "unsupported-media-type",
        "invalid",
    ),
    "post": ("forbidden", "not-found", "conflict", "unsupported-media-type", "invalid"),
    "delete": ("forbidden", "not-found", "conflict", "precondition-failed", "invalid"),
}
IDEMPOTENCY_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "The same key and request give the same answer; the effect happens once",
    "schema": {"type": "string", "pattern": r"^[!-~]{1,200}$"},
}
IF_NONE_MATCH = {
    "name": "If-None-Match",
    "in": "header",
    "required": False,
    "description": "The ETag that the caller has: 304 while it is the object's",
    "schema": {"type": "string", "maxLength": 2000},
}
ONLY_NEW = IF_NONE_MATCH | {
    "description": "* creates the object, and is answered 412 if there is one",
    "schema": {"type": "string", "pattern": r"^\*$"},
}
DESCRIPTION = """\
Control plane of a GPU fleet: declared objects, plans, events, money. Errors are problems (RFC 9457) that name every
fault; lists are paged by `metadata.next`; writes take an Idempotency-Key."""
YAML = {"type": "string", "format": "binary", "description": "Manifests as YAML"}  # sent as it is, not as a JSON string
IF_MATCH = {
    "name": "If-Match",
    "in": "header",
    "required": False,
    "description": "The ETag the object must still have, or * for any, else 412",
    "schema": {"type": "string", "pattern": r'^(\*|"[0-9]{1,18}")$'},
}


def install(app: FastAPI) -> None:
    """Serve the whole document at /openapi.json."""
    plain = app.openapi

    @cache
    def whole() -> dict[str, object]:
        return complete(plain())

    app.openapi = whole  # type: ignore[method-assign]


def complete(document: Schema) -> Schema:
    """FastAPI's document with what it cannot know: bodies that we read ourselves, problems, security."""
    components = document.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    schemas.pop("HTTPValidationError", None)
    schemas.pop("ValidationError", None)
    for kind in STORED:
        schemas.update(known.make_kind_schemas(kind))
    schemas |= {**known.SHARED, **replies.schemas()}
    schemas["ReportItem"]["additionalProperties"] = FIGURE  # which no type of a dictionary can say
    components["responses"] = _problems()
    components["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer", "bearerFormat": "gw_<id>_<secret>"}}
    document["security"] = [{"bearer": []}]
    document["info"]["description"] = DESCRIPTION
    document["servers"] = [{"url": "/", "description": "The server that gives this document"}]
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            _complete_operation(path, method, operation)
            _add_examples(operation)
    document["tags"] = [{"name": name, "description": about} for name, about in examples.TAGS.items()]
    return document


def _add_examples(operation: Schema) -> None:
    """Adds an example to each body that the operation takes."""
    for media, content in operation.get("requestBody", {}).get("content", {}).items():
        content["example"] = examples.YAML if media == "application/yaml" else _example(content["schema"])


def _example(schema: Schema) -> object:
    """Returns the example of a schema; of several that are allowed, that of a Service's manifest."""
    names = {part["$ref"].rpartition("/")[2] for part in (schema, *schema.get("anyOf", ())) if "$ref" in part}
    return examples.BODIES[names.pop() if len(names) == 1 else f"{Kind.SERVICE}Manifest"]


def _complete_operation(path: str, method: str, operation: Schema) -> None:
    if path in OPEN_PATHS:
        operation["security"] = []
    responses = operation.setdefault("responses", {})
    responses.pop("422", None)
    for slug in (*ALWAYS, *OF_METHOD[method]):
        responses[str(TITLES[slug][0])] = _problem(slug)
    if path in PLAIN:
        responses["200"] = {"description": "Done", "content": {PLAIN[path]: {"schema": {"type": "string"}}}}
    if path in GONE_PATHS:
        responses["410"] = _problem("gone")
    kind = next((k for k in STORED if path.startswith(f"/api/v1/{k.plural}")), None)
    names = path.count("{")
    ours = kind is not None and names == (0 if path.endswith(kind.plural) else 1 + kind.tenanted)
    ours = ours and (not names or path.endswith("}"))  # not /nodes/{name}/report and the like
    if kind is not None and ours and (names or method == "get"):
        _complete_object_route(kind, method, bool(names), operation)
    elif path == "/api/v1/apply":
        operation["requestBody"] = _manifest_body()
    elif path == "/api/v1/whatif":
        operation["requestBody"] = {**_manifest_body(), "required": False}
    if (
        method != "get"
        and path not in OPEN_PATHS
        and not path.endswith(("/report", "/{name}/token", "/counts", "/profiling"))
    ):
        operation.setdefault("parameters", []).append(IDEMPOTENCY_KEY)


def _problem(slug: str) -> dict[str, object]:
    return {"$ref": f"#/components/responses/{_response_name(slug)}"}


def _response_name(slug: str) -> str:
    return "".join(word.capitalize() for word in slug.split("-"))


def _problems() -> dict[str, object]:
    """Returns the answers of refused requests, which operations refer to."""
    content = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {_response_name(slug): {"description": title, "content": content} for slug, (_, title) in TITLES.items()}


def _complete_object_route(kind: Kind, method: str, one: bool, operation: Schema) -> None:
    _returns(operation, 200, str(kind) if one else f"{kind}List")
    if method == "put":
        operation["requestBody"] = _body(
            {
                "application/json": {"$ref": f"#/components/schemas/{kind}Manifest"},
                "application/yaml": YAML,
            }
        )
        _returns(operation, 201, str(kind))
    if method == "patch":
        operation["requestBody"] = _body({"application/merge-patch+json": {"$ref": "#/components/schemas/MergePatch"}})
    operation.setdefault("parameters", []).extend(_conditions(method, one))
    if one and method == "get":
        operation["responses"]["304"] = {"description": "The caller has this version already"}
    if one:
        for status in ("200", "201"):
            if status in operation["responses"]:
                operation["responses"][status]["headers"] = {
                    "ETag": {"description": "The resource version, quoted", "schema": {"type": "string"}}
                }


def _conditions(method: str, one: bool) -> list[dict[str, object]]:
    """Returns the headers that make a request depend on the object's version."""
    if method == "get":
        return [IF_NONE_MATCH] if one else []
    return [IF_MATCH, ONLY_NEW] if method == "put" else [IF_MATCH]


def name_operation(route: APIRoute) -> str:
    """Returns the name of an operation in generated clients: that of its function, in camel case."""
    return spell_camel(route.name)


def _returns(operation: Schema, status: int, schema: str) -> None:
    operation["responses"][str(status)] = {
        "description": "Created" if status == 201 else "Done",
        "content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}},
    }


def _body(media: dict[str, object]) -> dict[str, object]:
    return {"required": True, "content": {name: {"schema": schema} for name, schema in media.items()}}


def _manifest_body() -> dict[str, object]:
    # An array of manifests is not in the schema: generated clients cannot tell its type from that of a single object.
    body = _body(
        {
            "application/yaml": YAML,
            "application/json": {"anyOf": [{"$ref": f"#/components/schemas/{kind}Manifest"} for kind in STORED]},
            "application/vnd.gpuwright.files+json": {"$ref": "#/components/schemas/Files"},
        }
    )
    return {"description": "A manifest, or several: as YAML documents, as files, or as a JSON array of them", **body}
