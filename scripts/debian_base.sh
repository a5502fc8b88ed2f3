#!/bin/sh
# A minimal Debian as an image for `image build --base`, where no registry of images can be reached:
#   sh scripts/debian_base.sh bookworm    # -> localhost/debian-base:bookworm
set -eu

suite=$1
image=localhost/debian-base:$suite

fail() {
    echo "debian_base.sh: $1" >&2
    exit 1
}

# One at a time: two would install the same packages, or make the same image.
exec 9<"$0"
flock 9

missing=
for tool in buildah debootstrap; do
    command -v "$tool" >/dev/null 2>&1 || missing="$missing $tool"
done
if [ -n "$missing" ]; then
    install="apt-get update && apt-get install -y$missing"
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
        fail "this machine lacks$missing; run \`$install\` as root."
    fi
    DEBIAN_FRONTEND=noninteractive sh -c "$install" >/dev/null || fail "\`$install\` failed."
fi
if buildah inspect --type image "$image" >/dev/null 2>&1; then
    exit 0
fi
[ "$(id -u)" = 0 ] || fail "debootstrap needs root."

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
debootstrap --variant=minbase "$suite" "$folder/root" >"$folder/log" ||
    fail "$(tail -n 1 "$folder/log")"
# Packages as they came and lists of what there is: 60 MB that an image does not need.
rm -rf "$folder"/root/var/cache/apt/archives/*.deb "$folder"/root/var/lib/apt/lists/*
tar -C "$folder/root" -cf "$folder/root.tar" .
container=$(buildah from scratch)
buildah add --quiet "$container" "$folder/root.tar" / >/dev/null
buildah config --cmd bash "$container"
buildah commit --quiet --rm "$container" "$image" >/dev/null
