#!/usr/bin/env bash
# mirror.sh SUITE: prints where apt's sources here have a suite of Debian; Debian's own server where none of them has it.
set -euo pipefail
listed=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' "Release: $1" 2>/dev/null) || listed=
case $1 in *-security) archive=debian-security ;; *) archive=debian ;; esac
mirror=${listed:-http://deb.debian.org/$archive}
echo "${mirror%%$'\n'*}"
