#!/bin/sh
# `make setup`: syncs .venv with the lock file of the newest stack that runs on this machine, by the
# uv that the lock file pins. Does nothing if .venv is up to date.
set -eu
cd "$(dirname "$0")/.."
stamp=.venv/setup-complete # written last: without it, the next setup starts over
stacks='TFX 1.21 needs Python 3.11 to 3.13 and glibc 2.39, TFX 1.16 Python 3.10 or 3.11 and glibc 2.28'

fail() { echo "make setup: $1" >&2 && exit 1; }
need() { # what, its package on Debian, on Red Hat
    missing="${missing:+$missing, }$1" debian="${debian:-} $2" redhat="${redhat:-} $3"
}
refuse_if_missing() {
    [ -n "${missing:-}" ] || return 0
    [ "$(id -u)" = 0 ] && sudo='' || sudo='sudo '
    install="${sudo}apt-get update && ${sudo}apt-get install -y$debian"
    ! command -v dnf >/dev/null || install="${sudo}dnf install -y$redhat"
    fail "this machine lacks $missing${stack:+ for TFX $stack}; run \`$install\`, then \`make setup\` again."
}

# The last is the Python itself, of which the one of a .venv is a link.
probe='import importlib.util as u, os, sys, sysconfig as s; print("%d.%d" % sys.version_info[:2],
all(map(u.find_spec, ("venv", "ensurepip"))), os.path.exists(s.get_path("include") + "/Python.h"),
os.path.realpath(getattr(sys, "_base_executable", sys.executable)))'

glibc=$(getconf GNU_LIBC_VERSION 2>/dev/null | sed -n 's/^glibc 2\.//p') || true
[ "$(uname -m)" = x86_64 ] && [ "${glibc:-0}" -ge 28 ] ||
    fail "this machine has glibc ${glibc:+2.}${glibc:-none} on $(uname -m), but $stacks, on x86_64. Run it in a container: \`docker run --rm -it -v \"\$PWD\":/src -w /src python:3.11-bookworm make setup\`."

if [ -n "${PYTHON:-}" ]; then set -- "$PYTHON"; else
    set -- .venv/bin/python python3 python3.13 python3.12 python3.11 python3.10
fi
for python; do
    read -r version has_venv has_header base <<END
$("$python" -c "$probe" 2>/dev/null || true)
END
    found="${found:-}${version:+, $python is $version}"
    case $version-$((glibc >= 39)) in
    3.11-1 | 3.12-1 | 3.13-1) stack=1.21 && break ;;
    3.10-? | 3.11-0) stack=1.16 && break ;;
    esac
done
if [ -z "${stack:-}" ]; then
    [ -n "${found:-}" ] || [ -n "${PYTHON:-}" ] || need 'a python3' 'python3 python3-venv python3-dev g++' 'python3.11 python3.11-devel gcc-c++'
    refuse_if_missing
    fail "no supported Python${PYTHON:+: PYTHON=$PYTHON}${found:-, none runs}. With glibc 2.$glibc, $stacks. Name one, as in \`make setup PYTHON=python3.11\`; \`uv python install 3.11\` installs one, and \`uv python find 3.11\` prints its path."
fi
lock=requirements/stack-$stack/lock.txt
wanted="$version $PWD $(cat $lock pyproject.toml scripts/setup.sh | sha256sum)"
is_complete() { [ -x .venv/bin/python ] && [ "$(cat $stamp 2>/dev/null)" = "$wanted" ]; }
! is_complete || exit 0
exec 9<scripts/setup.sh && flock 9 # a second `make` waits, and then has nothing to do
! is_complete || exit 0
[ ! -L .venv ] || fail '.venv is a link to an environment of another checkout; remove it first.'
[ "$has_venv" = True ] || need "Python's venv and ensurepip" "python$version-venv" "python$version"
echo '#include <string>' | ${CXX:-c++} -x c++ -fsyntax-only - >/dev/null 2>&1 ||
    need 'a C++ compiler (to build pyfarmhash, which has no wheel)' g++ gcc-c++
[ "$has_header" = True ] ||
    need 'Python.h (to build pyfarmhash)' "python$version-dev" "python$version-devel"
refuse_if_missing

echo "make setup: TFX $stack for Python $version (takes minutes on a new machine) ..."
case $(cat $stamp 2>/dev/null) in
"$version $PWD "*) rm $stamp ;;
*) rm -rf .venv && "$base" -m venv .venv || fail '.venv was not created; the reason is above.' ;;
esac
pip() { .venv/bin/python -m pip --disable-pip-version-check "$@"; }
setting() { pip config list | sed -n "s/^[^=]*\.$1='\(.*\)'\$/\1/p" | tail -n 1; } # uv reads none
UV_DEFAULT_INDEX=${UV_DEFAULT_INDEX:-$(setting index-url)} SSL_CERT_FILE=${SSL_CERT_FILE:-$(setting cert)}
[ -z "$UV_DEFAULT_INDEX" ] || export UV_DEFAULT_INDEX
[ -z "$SSL_CERT_FILE" ] || export SSL_CERT_FILE
uv=$(sed -n 's/^\(uv==[^ ;]*\).*/\1/p' $lock)
[ -t 2 ] && quiet='' || quiet=--quiet
pip install --quiet --retries 2 "$uv" &&
    .venv/bin/uv pip sync $quiet --python .venv/bin/python --compile-bytecode --build-constraint $lock $lock &&
    .venv/bin/uv pip install --quiet --python .venv/bin/python --no-deps --no-build-isolation --editable . ||
    fail "not installed; the reason is above. If it is the network: connect, or name a mirror with \`PIP_INDEX_URL=https://... make setup\`. Then run \`make setup\` again."
echo "$wanted" >$stamp
echo 'make setup: done.'
