#!/usr/bin/env bash
# settings.sh: notes how pip and apt reach their servers from here, for builds of images: proxies, indexes, certificates.
# base.sh calls it. compose.yaml hands these files to the builder as secrets, of which no image keeps anything.
set -euo pipefail
umask 077
to=$(dirname "$0")/settings
mkdir -p "$to"

{ # a variable counts more than a file, and pip lists it first
  echo "[global]"
  { python3 -m pip config list 2>/dev/null || pip config list 2>/dev/null || true; } |
    sed -nE "s/^[^=]*\.(index-url|extra-index-url|trusted-host|proxy|timeout|default-timeout|retries)='(.*)'$/\1 = \2/p"
  proxy=${HTTPS_PROXY:-${https_proxy:-}}
  [ -z "$proxy" ] || echo "proxy = $proxy"
} | sed 's/\\n/ /g' | awk '!seen[$1]++' >"$to/pip.conf"

certificates=${PIP_CERT:-${REQUESTS_CA_BUNDLE:-${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}}}
cat "$certificates" >"$to/ca.pem" 2>/dev/null || true # without them pip trusts those that it brings

{
  apt-config dump 2>/dev/null |
    grep -E '^Acquire::((https?|ftp)::(.*::)?Proxy|Check-|Retries|ForceIPv)[^ ]* "[^"]' || true
  [ -z "${http_proxy:-}" ] || echo "Acquire::http::Proxy \"$http_proxy\";"
} >"$to/apt.conf"
