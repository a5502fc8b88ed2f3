#!/bin/sh
# `make setup`: finds a Python and lets setup_environment.py do the work.
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
venv_python=$root/.venv/bin/python

fail() {
    echo "make setup: $1" >&2
    exit 1
}

# Python 3.8 is enough to run the script, which then says what this project itself needs.
runs_the_script() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 8))' >/dev/null 2>&1
}

if [ -n "${PYTHON:-}" ]; then
    runs_the_script "$PYTHON" ||
        fail "PYTHON=$PYTHON is no Python 3.10 to 3.13; name one, as in \`make setup PYTHON=python3.11\`."
    exec "$PYTHON" "$root/scripts/setup_environment.py"
fi

for python in "$venv_python" python3 python3.13 python3.12 python3.11 python3.10; do
    if runs_the_script "$python"; then
        exec "$python" "$root/scripts/setup_environment.py"
    fi
done

as_root=
[ "$(id -u)" = 0 ] || as_root='sudo '
if command -v dnf >/dev/null 2>&1; then
    command="${as_root}dnf install -y python3.11 python3.11-devel gcc-c++"
else
    command="${as_root}apt-get update && ${as_root}apt-get install -y python3 python3-venv python3-dev g++"
fi
fail "this machine has no python3 that is 3.10 to 3.13; run \`$command\`, then \`make setup\` again."
