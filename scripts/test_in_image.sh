#!/bin/sh
# The quick tests in an image of a stack: its own dependencies, and the tools of the lock file beside.
#   sh scripts/test_in_image.sh 1.21 trixie -k window
set -eu

stack=$1 suite=$2
shift 2
cd "$(dirname "$0")/.."
python=.venv/bin/python
image=localhost/tfx-largebatch-nodes:$stack

$python -m pipeline image build --stack "$stack" --tag "$image" \
    --base "localhost/debian-base:$suite"
container=$(buildah from --pull=never "$image")
folder=$(mktemp -d)
trap 'buildah rm "$container" >/dev/null; rm -rf "$folder"' EXIT

# What git has or would add.
git ls-files -z --cached --others --exclude-standard |
    xargs -0 sh -c 'for f; do [ ! -e "$f" ] || printf "%s\0" "$f"; done' sh |
    tar --null --files-from=- --create --file="$folder/checkout.tar"
$python -c 'import sys; from pathlib import Path; from pipeline.image.build import write_secrets; s = write_secrets(Path(sys.argv[1])).get("certificates"); Path(sys.argv[1], "certificates").write_bytes(s.read_bytes() if s else b"")' "$folder"
[ -e "$folder/settings" ] || : >"$folder/settings"
buildah add --quiet "$container" "$folder/checkout.tar" /home/tfx/checkout >/dev/null
inside="buildah run --isolation=chroot --network=host"
$inside --user=0 --volume "$folder/settings:/run/secrets/settings:ro" \
    --volume "$folder/certificates:/run/secrets/certificates:ro" "$container" -- sh -euc '
    . /run/secrets/settings
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -qq --yes --no-install-recommends \
        g++ git make python3-dev python3-venv >/dev/null
    cd /home/tfx/checkout
    /usr/bin/python3 -m venv /opt/uv && /opt/uv/bin/pip install --quiet \
        "$(grep -oE "^uv==[^ ;]+" requirements/stack-'"$stack"'/lock.txt)"
    /opt/uv/bin/uv pip install --quiet --no-cache --python /opt/venv --no-deps --compile-bytecode \
        --build-constraint requirements/stack-'"$stack"'/lock.txt \
        --requirement requirements/stack-'"$stack"'/lock.txt
    git init --quiet && git add --all
    # What README.md says to a newcomer, on a Debian without anything of this project.
    python -m pytest -m install tests/packaging/test_install.py -k "not table"'
# As root: tests fill a disk that they mount. Left out are pages, benchmarks, and rooms of the
# trainer module whose parts the tests of step, loop and tfx use too.
set -- --ignore=tests/docs --ignore=tests/benchmarks --ignore=tests/setup --ignore=tests/pipeline/page \
    --ignore=tests/trainer_module/test_docs.py "$@"
for room in baselines checks gradients losses memory profiling stages tuning window; do
    set -- "--ignore=tests/trainer_module/$room" "$@"
done
$inside --user=0 --cap-add=CAP_SYS_ADMIN --workingdir /home/tfx/checkout --env "CI=${CI:-}" "$container" -- \
    python -m pytest -n 2 --dist loadgroup --no-loadscope-reorder \
    -m "not slow and not flink and not gpu and not distributed and not cluster and not image and not browser and not mlflow and not install and not pipelines" "$@"
