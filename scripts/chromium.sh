#!/bin/sh
# Installs Debian's Chromium, which `make test-browser` drives, where neither it nor Chrome is there.
set -eu
for program in chromium google-chrome; do
    ! command -v $program >/dev/null 2>&1 || exit 0
done
install='apt-get update && apt-get install -y --no-install-recommends chromium'
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
    echo "chromium.sh: this machine lacks Chromium; run \`$install\` as root." >&2
    exit 1
fi
DEBIAN_FRONTEND=noninteractive sh -c "$install" >/dev/null || {
    echo "chromium.sh: \`$install\` failed." >&2
    exit 1
}
