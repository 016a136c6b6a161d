#!/usr/bin/env bash
# plugins.sh: Compose v2 and Buildx for Debian 12's docker.io, which come first with Debian 13; they run on 12 as well.
# They are put into Docker's folder of the user who runs this; apt's own settings and lists stay as they are.
set -euo pipefail
to=${DOCKER_CONFIG:-$HOME/.docker}/cli-plugins
mirror=$("$(dirname "$0")/mirror.sh" bookworm)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir -p "$folder/lists/partial" "$folder/archives/partial" "$to"
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror trixie main" \
  >"$folder/trixie.list"
apart=(-qq -o "Dir::Etc::sourcelist=$folder/trixie.list" -o Dir::Etc::sourceparts=- -o "Dir::State::lists=$folder/lists"
  -o "Dir::Cache=$folder" -o APT::Sandbox::User=root)
apt-get "${apart[@]}" update
(cd "$folder" && apt-get "${apart[@]}" download docker-compose docker-buildx)
for package in "$folder"/*.deb; do dpkg-deb -x "$package" "$folder/files"; done
cp "$folder"/files/usr/libexec/docker/cli-plugins/* "$to/"
docker compose version
