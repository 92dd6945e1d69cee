# pflsim: `make help` lists the targets. Works with GNU make 3.81 and later.

PYTHON ?= python3
RUN ?= launch/runs/start-here.toml
BIN := .venv/bin
INSTALLED := .venv/installed

overrides = $(if $(N),--set "run.clients=$(N)") $(if $(DATA),--set "data.name=$(DATA)") \
            $(if $(MODEL),--set "model.name=$(MODEL)") $(if $(ROUNDS),--set "run.rounds=$(ROUNDS)") \
            $(if $(SEED),--set "run.seed=$(SEED)") $(if $(ALGORITHM),--algorithm "$(ALGORITHM)") \
            $(if $(HOSTS),--hosts "$(HOSTS)") $(if $(OUT),--out "$(OUT)")

.PHONY: help setup sim test check bench fidelity data clean

help:
	@echo "make setup                 make .venv and install pflsim in it (the others do it when needed)"
	@echo "make sim N=40              run a study; also ALGORITHM= DATA= MODEL= ROUNDS= SEED= RUN=file.toml HOSTS=file.toml"
	@echo "                           (over the machines that it names) OUT=folder"
	@echo "make test                  run the tests; SLOW=1 also those that take long; PYTEST=tests/test_x.py only these"
	@echo "make check                 formatting, lint, types and import layers"
	@echo "make bench                 measure speed and memory beside their floors"
	@echo "make fidelity              compare the virtual clock with real networks of this machine's own (Linux, root)"
	@echo "make data DATA=mnist       download a data set; DIR=folder, default data/"
	@echo "make clean                 remove .venv and caches; results stay"

setup: $(INSTALLED)

$(INSTALLED): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "pflsim needs Python 3.11 or later; '$(PYTHON)' is older. Try make PYTHON=python3.12"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "installing pflsim and what it needs into .venv (torch is large; the README tells how to get a small one)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX) torch torchvision,wheel)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $(INSTALLED)

sim: $(INSTALLED)
	@$(BIN)/pflsim run "$(RUN)" $(overrides)

test: $(INSTALLED)
	$(BIN)/pytest -n logical --maxprocesses 8 --dist worksteal $(if $(SLOW),,-m "not slow") $(PYTEST)
	@$(if $(SLOW),:,echo "the tests that take long were left out; with them: make test SLOW=1")

check: $(INSTALLED)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(INSTALLED)
	@$(BIN)/python -m launch.bench $(BENCH)
	@$(BIN)/python -m launch.bench.simulated

fidelity: $(INSTALLED)
	@$(BIN)/python -m launch.fidelity

data: $(INSTALLED)
	@test -n "$(DATA)" || { echo "which one? make data DATA=mnist (or fashion-mnist, cifar10, svhn, emnist, har)"; exit 2; }
	@$(BIN)/python -m pflsim.data.download "$(DATA)" "$(or $(DIR),data)"

clean:
	rm -rf .venv build *.egg-info .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
