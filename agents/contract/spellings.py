"""The variables and paths that a manifest may name: plain values, for the control plane as for nodes and gateways."""

from __future__ import annotations

import re

VARIABLE_PATTERN = r"[A-Za-z_][A-Za-z0-9_]{0,127}"

# Variables that change which code a program runs, where it sends its requests, or which limits hold for it. A prefix
# ends with *; upper and lower case are the same here.
DANGEROUS_VARIABLES = (
    "LD_*", "PYTHON*", "CUDA_*", "NVIDIA_*", "GPUWRIGHT_*", "PATH", "HOME", "SHELL", "IFS", "ENV", "BASH_*", "PS4",
    "PROMPT_COMMAND", "SHELLOPTS", "BASHOPTS", "PERL*", "RUBY*", "NODE_*", "NPM_*", "LUA_*", "JAVA_*", "_JAVA_*",
    "JDK_JAVA_*", "CLASSPATH", "DOTNET_*", "CORECLR_*", "COMPLUS_*", "GCONV_PATH", "GLIBC_TUNABLES", "MALLOC_*",
    "LOCPATH", "NLSPATH", "HOSTALIASES", "RES_OPTIONS", "LOCALDOMAIN", "RESOLV_*", "TZDIR", "TMPDIR", "GIT_*", "SSH_*",
    "SSL_*", "OPENSSL_*", "CURL_*", "REQUESTS_CA_BUNDLE", "*_PROXY", "DOCKER_*", "KUBECONFIG", "KUBERNETES_*", "MPS_*",
    "NCCL_NET_PLUGIN", "NCCL_TUNER_PLUGIN", "NCCL_PROFILER_PLUGIN", "OPENCL_*", "OCL_*", "VK_*", "UCX_MODULE_*",
    "LLVM_*", "TORCH_EXTENSIONS_*", "TRITON_*", "AWS_*", "GOOGLE_*", "AZURE_*", "OMP_TOOL*", "OMPI_*", "PMIX_*",
    "PRTE_*", "I_MPI_*", "FI_PROVIDER_PATH", "JULIA_*", "R_HOME", "R_LIBS*", "R_PROFILE*", "R_ENVIRON*", "PHPRC",
    "PHP_INI_*", "TCLLIBPATH", "ERL_*", "GST_*", "GIO_*", "GTK_*", "GI_TYPELIB_PATH", "GDK_PIXBUF_*", "QT_*",
    "MAGICK_*", "HDF5_PLUGIN_PATH", "GDAL_DRIVER_PATH", "ORT_DYLIB_PATH", "VLLM_PLUGINS", "VLLM_SERVER_DEV_MODE",
    "VLLM_ALLOW_*", "HF_ENDPOINT", "HF_MODULES_CACHE", "RAY_*", "XLA_FLAGS", "NUMBA_CACHE_DIR", "TORCHINDUCTOR_*",
    "PIP_*", "UV_*", "CONDA_*", "MAKEFLAGS", "PAGER", "EDITOR", "VISUAL", "BROWSER",
)  # fmt: skip
_DANGEROUS = re.compile("|".join(re.escape(name).replace(r"\*", ".*") for name in DANGEROUS_VARIABLES), re.IGNORECASE)

# A method, or `*` for any, and a path with holes: agents/contract/paths.py says what they mean.
_SIGN, _HOLE = "[-A-Za-z0-9._~$&'()+,=:@]", r"\{[A-Za-z][A-Za-z0-9]{0,30}\}"
SEGMENT = f"(?:{_SIGN}+(?:{_HOLE}{_SIGN}*)?|{_HOLE}{_SIGN}*)"  # with one hole at most: several take long to compare
RULE = rf"(?:\*|[A-Z]{{1,20}}) /(?:{SEGMENT}/)*(?:{SEGMENT}|\*\*)?"
MOST_RULES, LONGEST_RULE = 64, 300


def is_dangerous(variable: str) -> bool:
    """Returns whether a variable can never be set by a manifest, whatever a node's allow-list says."""
    return _DANGEROUS.fullmatch(variable) is not None
