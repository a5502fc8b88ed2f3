#!/bin/sh
# build/mlflow-server: the MLflow that `make test-mlflow` starts as a server, in an environment apart
# from .venv. Does nothing if it is up to date.
set -eu
cd "$(dirname "$0")/.."
place=build/mlflow-server lock=requirements/mlflow-server.txt
wanted=$(.venv/bin/python --version && cat $lock | sha256sum)
[ "$(cat $place/complete 2>/dev/null)" != "$wanted" ] || exit 0
setting() { .venv/bin/python -m pip config list | sed -n "s/^[^=]*\.$1='\(.*\)'\$/\1/p" | tail -n 1; } # uv reads none
UV_DEFAULT_INDEX=${UV_DEFAULT_INDEX:-$(setting index-url)} SSL_CERT_FILE=${SSL_CERT_FILE:-$(setting cert)}
[ -z "$UV_DEFAULT_INDEX" ] || export UV_DEFAULT_INDEX
[ -z "$SSL_CERT_FILE" ] || export SSL_CERT_FILE
.venv/bin/uv venv --quiet --clear --python .venv/bin/python $place
.venv/bin/uv pip sync --quiet --python $place/bin/python $lock
echo "$wanted" >$place/complete
