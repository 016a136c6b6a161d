#!/usr/bin/env bash
# base.sh: makes the image gpuwright-testbed-debian:12, of Debian's packages alone, where no image registry can be reached.
# It is what `debian:12-slim` is: a minimal Debian 12 without documentation. Needs root, debootstrap and a Docker Engine.
set -euo pipefail
mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
debootstrap --variant=minbase --include=ca-certificates bookworm "$folder" "$mirror" >"$folder.log" 2>&1 ||
  { tail -20 "$folder.log"; exit 1; }
rm -f "$folder.log"
if ! grep -q security "$folder/etc/apt/sources.list"; then
  echo "deb ${DEBIAN_SECURITY_MIRROR:-http://deb.debian.org/debian-security} bookworm-security main" >>"$folder/etc/apt/sources.list"
fi
bare=(usr/share/doc usr/share/man usr/share/locale usr/share/info var/lib/apt/lists var/cache/apt var/log dev)
excluded=("${bare[@]/#/--exclude=./}")
tar -C "$folder" "${excluded[@]/%//*}" -c . | # the folders themselves stay: packages write there
  docker import --change 'CMD ["bash"]' - gpuwright-testbed-debian:12
