# Every target brings the environment that it needs: `make run` or `make test` may be the first one.
#
#   PYTHON=python3.11   the Python for .venv (default: the .venv's own, else a supported one)
#   CONFIG=my.yaml      what `make run` runs
#   ARGS="-k window"    more arguments for the command behind run, test, test-fast or bench

CONFIG ?= examples/taxi/pipeline.yaml
ARGS ?=
PAGES := README.md CONTRIBUTING.md CHANGELOG.md SECURITY.md docs .github
BIN := .venv/bin
TWO = -n 2 --dist loadgroup --no-loadscope-reorder
LOCK = uv pip compile --quiet --universal --custom-compile-command "make lock" ../../pyproject.toml --extra pipeline --extra s3 --extra mlflow --extra dev pyproject.toml -o lock.txt
# What an image holds of it: without tools, for one Python, and with hashes.
LOCK_IMAGE = uv pip compile --quiet --format pylock.toml --constraint lock.txt ../../pyproject.toml --extra pipeline --extra s3 pyproject.toml -o pylock.toml
PIN_FILES = ../../$(BIN)/python ../../scripts/pin_files.py pylock.toml >image.txt && rm pylock.toml
# The NVIDIA libraries that TensorFlow names as its extra `and-cuda`, for `image build --cuda`.
LOCK_CUDA = uv pip compile --quiet --generate-hashes --no-annotate --custom-compile-command "make lock" --constraint lock.txt - -o cuda.txt
# The server that `make test-mlflow` starts, in an environment apart: it has many packages.
LOCK_MLFLOW = uv pip compile --quiet --universal --custom-compile-command "make lock" --python-version 3.10 - -o mlflow-server.txt
ONLY_NVIDIA = sed -i -n '/^\#/p; /^nvidia-/,/[^\\]$$/p' cuda.txt

export PYTHON

.DEFAULT_GOAL := help
.PHONY: help setup run test test-fast test-flink test-gpu test-distributed test-cluster test-image test-browser test-mlflow test-install test-pipelines test-1.21 golden lint docs bench lock clean

help:  ## list these commands
	@sed -n 's/^\([a-z0-9.-]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{printf "%-18s %s\n", $$1, $$2}'

setup:  ## sync .venv with the lock file (under 1 s if it is up to date)
	@sh scripts/setup.sh

run: setup  ## train, evaluate and push the taxi model (or CONFIG=my.yaml)
	@if [ -f $(dir $(CONFIG))write_data.py ]; then $(BIN)/python $(dir $(CONFIG))write_data.py; fi
	@$(BIN)/python -m pipeline run --config $(CONFIG) $(ARGS)

test: setup  ## every test, in two processes
	@$(BIN)/python -m pytest $(TWO) --durations=15 $(ARGS)

test-fast: setup  ## the tests that take seconds
	@$(BIN)/python -m pytest $(TWO) -m "not slow and not flink and not gpu and not distributed and not cluster and not image and not browser and not mlflow and not install and not pipelines" $(ARGS)

test-flink: setup  ## the tests that start a Flink cluster (needs Java and Maven)
	@$(BIN)/python -m pytest -m flink tests/pipeline/engines $(ARGS)

test-distributed: setup  ## the tests that train on several processes (no -n: these share the cores)
	@$(BIN)/python -m pytest -m distributed tests/distributed --durations=10 $(ARGS)

test-gpu: setup  ## the tests on a GPU (needs NVIDIA's driver and TensorFlow's CUDA libraries)
	@$(BIN)/python -m pytest -m gpu tests/gpu $(ARGS)

test-cluster: setup  ## the tests that replay pipelines compiled for Kubeflow and Vertex
	@$(BIN)/python -m pytest -m cluster tests/cluster --durations=5 $(ARGS)

test-image: setup  ## the tests that build images of both stacks and run in them (needs root)
	@sh scripts/debian_base.sh bookworm && sh scripts/debian_base.sh trixie
	@$(BIN)/python -m pytest -m image tests/image --durations=8 $(ARGS)

test-browser: setup  ## the tests of a run's page in Chromium (needs root where Chromium is missing)
	@sh scripts/chromium.sh
	@$(BIN)/python -m pytest -m browser tests/browser $(ARGS)

test-mlflow: setup  ## the tests that export runs to an MLflow server
	@sh scripts/mlflow_server.sh
	@$(BIN)/python -m pytest -m mlflow tests/pipeline/tracking --durations=5 $(ARGS)

test-install: setup  ## the tests that install the project, from the package index
	@$(BIN)/python -m pytest -m install tests/setup tests/packaging --durations=5 $(ARGS)

test-pipelines: setup  ## the tests that run whole pipelines besides the taxi's: a stranger's CSV, pictures, TFX's own
	@$(BIN)/python -m pytest -m pipelines tests --durations=5 $(ARGS)

test-1.21: setup  ## the quick tests with TFX 1.21, in an image of that stack
	@sh scripts/debian_base.sh trixie
	@sh scripts/test_in_image.sh 1.21 trixie $(ARGS)

golden: setup  ## rewrite the golden files of compiled pipelines; review the change
	@WRITE_GOLDEN=1 $(BIN)/python -m pytest -q -k golden tests/pipeline/targets

lint: setup  ## ruff, pyright, and the words of the pages and the code
	@failed=0; rm -rf build/dist; for check in "ruff check ." "ruff format --check ." codespell "codespell --dictionary - $(PAGES)" pyright "python scripts/size_budget.py" \
		"uv build --quiet --no-build-isolation --python $(BIN)/python --out-dir build/dist" "twine check --strict build/dist/*"; do \
		echo "== $$check"; $(BIN)/$$check || failed=1; \
	done; exit $$failed

docs: setup  ## the documentation as a site in build/site, looked at in Chromium; a dead link ends it
	@sh scripts/chromium.sh
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict && $(BIN)/python docs/site_check.py && echo "open build/site/index.html"

bench: setup  ## every benchmark (ARGS="step_time": that one) -> docs/benchmarks.md
	@$(BIN)/python -m benchmarks $(ARGS)

lock: setup  ## resolve both stacks again, keeping pins that still fit (ARGS=--upgrade: the newest)
	cd requirements/stack-1.16 && ../../$(BIN)/$(LOCK) --python-version 3.10 $(ARGS)
	cd requirements/stack-1.16 && ../../$(BIN)/$(LOCK_IMAGE) --python-version 3.11.2 --python-platform x86_64-manylinux_2_36 && $(PIN_FILES)
	cd requirements/stack-1.16 && echo 'tensorflow[and-cuda]' | ../../$(BIN)/$(LOCK_CUDA) --python-version 3.11.2 --python-platform x86_64-manylinux_2_36 $(ARGS) && $(ONLY_NVIDIA)
	cd requirements/stack-1.21 && ../../$(BIN)/$(LOCK) --python-version 3.11 $(ARGS)
	cd requirements/stack-1.21 && ../../$(BIN)/$(LOCK_IMAGE) --python-version 3.13.5 --python-platform x86_64-manylinux_2_40 && $(PIN_FILES)
	cd requirements/stack-1.21 && echo 'tensorflow[and-cuda]' | ../../$(BIN)/$(LOCK_CUDA) --python-version 3.13.5 --python-platform x86_64-manylinux_2_40 $(ARGS) && $(ONLY_NVIDIA)
	cd requirements && echo 'mlflow>=3.1,<4' | ../$(BIN)/$(LOCK_MLFLOW) $(ARGS)

clean:  ## remove .venv, caches and builds; models in output/ stay
	rm -rf .venv build dist .pytest_cache .ruff_cache .hypothesis *.egg-info
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
