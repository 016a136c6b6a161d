#!/usr/bin/env bash
# base.sh: makes the image gpuwright-testbed-debian:12, of Debian's packages alone, where no image registry can be reached,
# and notes how builds reach pip's and apt's servers (settings.sh). The image is what `debian:12-slim` is: a minimal
# Debian 12 without documentation. Needs root, debootstrap and a Docker Engine.
set -euo pipefail
here=$(dirname "$0")
"$here/settings.sh"
mirror=$("$here/mirror.sh" bookworm)
security=$("$here/mirror.sh" bookworm-security)
folder=$(mktemp -d)
trap 'rm -rf "$folder" "$folder.log"' EXIT
debootstrap --variant=minbase --include=ca-certificates bookworm "$folder" "$mirror" >"$folder.log" 2>&1 ||
  { tail -20 "$folder.log"; exit 1; }
if ! grep -q security "$folder/etc/apt/sources.list"; then
  echo "deb $security bookworm-security main" >>"$folder/etc/apt/sources.list"
fi
for kind in doc man locale info; do # packages that come later bring none either
  echo "path-exclude=/usr/share/$kind/*"
done >"$folder/etc/dpkg/dpkg.cfg.d/without-documentation"
bare=(usr/share/doc usr/share/man usr/share/locale usr/share/info var/lib/apt/lists var/cache/apt var/log dev)
excluded=("${bare[@]/#/--exclude=./}")
tar -C "$folder" "${excluded[@]/%//*}" -c . | # the folders themselves stay: packages write there
  docker import --change 'CMD ["bash"]' - gpuwright-testbed-debian:12
