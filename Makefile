# `make test` is what CI runs, `make demo` what a newcomer runs. Cheapest checks first.
PYTHON ?= python3
VENV := .venv
OLD_VENV := .venv-old
SUITE_VENV := .venv-jax-suite
CUDA_VENV := .venv-cuda
STAMP := $(VENV)/.requirements
OLD_STAMP := $(OLD_VENV)/.requirements
SUITE_STAMP := $(SUITE_VENV)/.requirements
CUDA_STAMP := $(CUDA_VENV)/.requirements
PIP := $(VENV)/bin/pip --disable-pip-version-check -q
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
# Expanded by each recipe, because a clean checkout has no venv when this file is read.
export SALUS_TEST_SITE_PACKAGES = $(shell echo $(CURDIR)/$(VENV)/lib/python3*/site-packages)
export SALUS_TEST_OLD_VENV = $(CURDIR)/$(OLD_VENV)

.PHONY: all build attacker standin venv venv-old wheel lint deny test-rust test-e2e test-standin test attack fuzz jax-suite test-cuda demo bench clean

all: build

build:
	cargo build --release --locked -p salus-adaptor -p salus-child -p salus-cli

# Hostile clients, for development: not in the wheel.
attacker:
	cargo build --release --locked -p salus-attack

# A plugin that behaves like CUDA's, over the CPU plugin, for tests: not in the wheel.
standin:
	cargo build --release --locked -p salus-standin

# Python with pinned versions: the newest JAX we support, and one about a year older.
venv: $(STAMP)
$(STAMP): python/requirements-dev.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) install -r $<
	touch $@

venv-old: $(OLD_STAMP)
$(OLD_STAMP): python/requirements-old.txt
	$(PYTHON) -m venv $(OLD_VENV)
	$(OLD_VENV)/bin/pip --disable-pip-version-check -q install -r $<
	touch $@

# One wheel for every Python, installed into .venv as a user would.
wheel: build $(STAMP)
	rm -rf dist
	$(VENV)/bin/python -m build -q --wheel --no-isolation --outdir dist python
	$(PIP) install --force-reinstall --no-deps dist/*.whl

# Needs the venv: ruff is in it.
lint: $(STAMP)
	$(VENV)/bin/ruff check -q . && $(VENV)/bin/ruff format -q --check .
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc -q --workspace --no-deps --locked
	cargo xtask tidy

# Licenses and sources of the dependencies. Not part of `make test`: building cargo-deny takes minutes.
#   cargo install cargo-deny --locked
deny:
	cargo deny --offline check licenses bans sources

# Needs the venv: the header and the plugin that the tests compare with come from its wheels.
test-rust: $(STAMP)
	cargo test --workspace --locked

test-e2e: wheel attacker standin venv-old
	$(VENV)/bin/python -m pytest -q --durations 10 tests/e2e
	$(VENV)/bin/python -m pytest -q --device standin $(STANDIN_SHORT)

# The suites that a GPU would see, on the stand-in for CUDA; `make test` has the short ones.
STANDIN_SUITES = $(addprefix tests/e2e/test_,scripts.py memory.py isolation.py policies.py kill.py)
STANDIN_SHORT = $(addprefix tests/e2e/test_,scripts.py memory.py isolation.py kill.py) \
  -k "donation or memories or do_not_fit_together or while_arrays_are_paged or (host_is_replaced and steps)"
test-standin: wheel standin
	$(VENV)/bin/python -m pytest -q --durations 10 --device standin $(STANDIN_SUITES)

test: lint test-rust test-e2e

# Five JAX jobs train while everything else attacks their service for two minutes: the jobs must end with
# the bits of an undisturbed run. `make test` has a short version of it.
#   make attack ARGS="--seconds 600 --seed 7"
ATTACK = target/release/salus-attack --salus $(VENV)/bin/salus --python $(VENV)/bin/python
attack: wheel attacker
	$(ATTACK) all $(ARGS)

# Long runs of each attack by itself; what is found is printed with its seed. About an hour on two cores.
#   make fuzz SEED=7 COUNT=20000
SEED ?= 1
COUNT ?= 2000
# The C library's heap can check itself, ours cannot.
CHECKED = target/c-heap/release/salus
CHECK_HEAP = target/release/salus-attack --salus $(CHECKED) --python $(VENV)/bin/python --check-heap
fuzz: wheel attacker
	cargo build --release --locked -p salus-cli --no-default-features --target-dir target/c-heap
	$(ATTACK) corpus
	$(ATTACK) frames --seed $(SEED) --count $$(($(COUNT) * 50))
	for attack in generated programs options tokens; do \
	  $(CHECK_HEAP) $$attack --seed $(SEED) --count $(COUNT) || exit 1; done
	$(CHECK_HEAP) generated --small --seed $(SEED) --count $(COUNT)
	$(ATTACK) scribble --seed $(SEED) --seconds 120
	$(ATTACK) churn --seed $(SEED) --seconds 600
	SALUS_FUZZ_COUNT=$$(($(COUNT) * 500)) SALUS_SEED=$(SEED) cargo test --locked -p salus-formats -p salus-wire --test fuzz --test messages
	SALUS_FUZZ_COUNT=$$(($(COUNT) * 50)) SALUS_SEED=$(SEED) cargo test --locked -p salus-adaptor --test fuzz

# JAX's own tests, from a checkout, on JAX's CPU backend and through Salus: takes an hour or two.
#   make jax-suite TESTS=~/src/jax ARGS="linalg_test --every 1"
jax-suite: wheel $(SUITE_STAMP)
	@test -n "$(TESTS)" || { echo "error: TESTS=DIR names a checkout of JAX"; exit 2; }
	$(SUITE_VENV)/bin/pip --disable-pip-version-check -q install --force-reinstall --no-deps dist/*.whl
	$(SUITE_VENV)/bin/python tests/jax_suite/compare.py --tests $(TESTS) $(ARGS)

$(SUITE_STAMP): tests/jax_suite/requirements.txt
	$(PYTHON) -m venv $(SUITE_VENV)
	$(SUITE_VENV)/bin/pip --disable-pip-version-check -q install -r $<
	touch $@

# The real CUDA compiler, on a machine without a driver: compiles for GPUs that are not there. The wheels
# are 214 MB, so it is not part of `make test`.
test-cuda: $(STAMP) $(CUDA_STAMP)
	$(CUDA_VENV)/bin/python tests/cuda/lower.py target/cuda-programs
	SALUS_TEST_CUDA_PROGRAMS=$(CURDIR)/target/cuda-programs \
	  SALUS_TEST_CUDA_SITE_PACKAGES=$$(echo $(CURDIR)/$(CUDA_VENV)/lib/python3*/site-packages) \
	  cargo test --locked -p salus-device -p salus-child --test cuda -- --ignored

$(CUDA_STAMP): tests/cuda/requirements.txt
	$(PYTHON) -m venv $(CUDA_VENV)
	$(CUDA_VENV)/bin/pip --disable-pip-version-check -q install -r $<
	touch $@

demo: wheel
	$(VENV)/bin/python python/demo.py

bench: wheel
	$(VENV)/bin/salus bench overhead

clean:
	rm -rf target dist $(VENV) $(OLD_VENV) $(SUITE_VENV) $(CUDA_VENV)
