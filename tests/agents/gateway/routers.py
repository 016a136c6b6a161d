"""The rules by which the routers of Triton, vLLM and SGLang find control paths, as their public source states them.

Triton matches the path as it came against expressions; vLLM and SGLang decode it and match it against routes, also
without a slash at the end. Each is taken to be laxer than it is: no method counts, and both readings of a path do.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes


@dataclass(frozen=True)
class Router:
    """A server's name, its control paths in an ordinary spelling, and an expression of all that is one of them."""

    template: str
    controls: tuple[str, ...]
    pattern: re.Pattern[bytes]

    def controls_by(self, head: bytes) -> bool:
        """Returns whether this request would reach a control path."""
        target = head.partition(b"\r\n")[0].split(b" ")[1]
        path = re.sub(rb"^[a-z]+://[^/]*", b"", target).partition(b"?")[0].partition(b"#")[0]
        readings = {path, unquote_to_bytes(path), unquote_to_bytes(unquote_to_bytes(path))}
        return any(self.pattern.fullmatch(reading) for reading in readings)


# Its http_server.cc: the repository, shared memory, trace settings and logging. Statistics only tell.
TRITON = Router(
    "triton",
    (
        "/v2/repository/index",
        "/v2/repository/models/m/load",
        "/v2/repository/models/m/unload",
        "/v2/repository/r/models/m/load",
        "/v2/systemsharedmemory/status",
        "/v2/systemsharedmemory/region/r/register",
        "/v2/systemsharedmemory/region/r/unregister",
        "/v2/systemsharedmemory/unregister",
        "/v2/cudasharedmemory/status",
        "/v2/cudasharedmemory/region/r/register",
        "/v2/cudasharedmemory/region/r/unregister",
        "/v2/trace/setting",
        "/v2/models/m/trace/setting",
        "/v2/models/m/versions/1/trace/setting",
        "/v2/models/m/config",
        "/v2/logging",
    ),
    re.compile(
        rb"/v2/repository(?:/[^/]+)?/(?:index|models/[^/]+/(?:load|unload))"
        rb"|/v2/(?:system|cuda)sharedmemory(?:/region/[^/]+)?/(?:status|register|unregister)"
        rb"|/v2/trace/setting|/v2/logging|/v2/models/[^/]+(?:/versions/[0-9]+)?/(?:trace/setting|config)"
    ),
)
# What SGLang 0.5.23 marks as an administrator's, and what else tells of the server or changes it.
_OF_SGLANG = """
    /abort_request /add_external_corpus /begin_weight_update /configure_logging /continue_generation
    /destroy_weights_update_group /dump_expert_distribution_record /dumper/start /end_weight_update /flush_cache
    /freeze_gc /get_hicache_l3_cache_layout /get_remote_instance_transfer_engine_info /get_server_info
    /get_weights_by_name /hicache/storage-backend /hicache/storage-backend/clear
    /init_weights_send_group_for_remote_instance /init_weights_update_group /list_external_corpora /load_lora_adapter
    /load_lora_adapter_from_tensors /metrics /open_session /close_session /pause_generation /pd_role_switch
    /release_memory_occupation /remote_instance_transfer_engine_info /remove_external_corpus
    /resume_memory_occupation /send_weights_to_remote_instance /server_info /set_internal_state /set_trace_level
    /slow_down /start_expert_distribution_record /start_profile /stop_expert_distribution_record /stop_profile
    /unload_lora_adapter /update_weight_version /update_weights_from_disk /update_weights_from_distributed
    /update_weights_from_ipc /update_weights_from_tensor /v1/loads /weights_checker
"""
# What vLLM 0.33.0 does for everybody, then in its development mode or with a profiler.
_OF_VLLM = """
    /fault_tolerance/apply /inference/v1/abort_requests /is_scaling_elastic_ep /scale_elastic_ep /metrics
    /v1/load_lora_adapter /v1/unload_lora_adapter /abort_requests /collective_rpc /finish_weight_update
    /init_weight_transfer_engine /release_kv_cache_memory /reset_encoder_cache /reset_mm_cache
    /reset_prefix_cache /server_info /shutdown_weight_transfer_engine /sleep /start_draft_weight_update
    /start_profile /start_weight_update /stop_profile /update_weight_version /update_weights /wake_up
    /weight_checker /weight_info
"""


def _routes(template: str, paths: str) -> Router:
    routes = b"|".join(re.escape(path.encode()) for path in paths.split())
    return Router(template, tuple(paths.split()), re.compile(rb"(?:" + routes + rb"|/metrics/.*|/dumper/[^/]+)/?"))


SGLANG, VLLM = _routes("sglang", _OF_SGLANG), _routes("vllm", _OF_VLLM)
ROUTERS = (TRITON, VLLM, SGLANG)
