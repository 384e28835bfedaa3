# make race   sets everything up, plans VQ1, flies it in the built-in simulator
# make test   sets everything up and checks it
# make soak   flies through a hostile network, and races for a quarter of an hour
# make dist   builds what an index takes, source distribution and wheel, into dist/
# make fuzz   throws 20 000 mutants of files and datagrams at all that reads them, within 40 minutes
PYTHON ?= python3
VENV ?= .venv
TRACK ?= tracks/vq1.yaml
ACADOS_WHEEL = comma-deps-acados==0.2.2.post92
BIN = $(VENV)/bin
READY = $(VENV)/.ready
# Links to all rooms within one package, for tools that resolve names without importing: mypy and editors.
NAMES = $(VENV)/names/gate_racer
ROOMS = $(filter-out gate_racer tests tools,$(patsubst %/__init__.py,%,$(wildcard */__init__.py)))
export OMP_NUM_THREADS = 1
export OPENBLAS_NUM_THREADS = 1

.PHONY: race test soak dist setup plan check compiled solvers fuzz fuzz-plans clean
race: setup plan
	$(BIN)/run-mpc $(TRACK)

plan: plans/$(notdir $(basename $(TRACK))).csv

plans/%.csv: tracks/%.yaml vehicle/dcl.yaml $(wildcard planner/*.py planner/*/*.py) | $(READY)
	$(BIN)/plan-track $<

# Every process that a test starts would compile the same files anew where bytecode is not kept.
test: setup
	$(MAKE) --no-print-directory -j 2 --output-sync check compiled solvers
	env -u PYTHONDONTWRITEBYTECODE $(BIN)/pytest -n 2 --dist loadfile

soak: setup
	$(BIN)/pytest -m soak -v -s tests/soak tests/pilot tests/peer tests/bootcamp tests/link tests/planner tests/test_unknown_simulator.py

dist: setup
	rm -rf dist
	$(BIN)/python -m build --no-isolation
	$(BIN)/twine check --strict dist/*

fuzz: setup
	$(BIN)/python -m tests.fuzz --mutants 870 --seconds 2400 $(FUZZ)

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# What is compiled at its first use, on the core that the checks leave.
compiled: setup
	$(BIN)/python -m tools.compile functions

solvers: setup
	$(BIN)/python -m tools.compile solvers

# Random courses, planned, and flown where certified: about 10 s of CPU each.
fuzz-plans: setup
	$(BIN)/python benchmarks/planner.py fuzz --courses $(or $(COURSES),200)

setup: $(READY)

# The wheel brings a slim CasADi that would shadow the full one, so it goes into a folder of its own without it.
$(READY): pyproject.toml Makefile tools/system-packages.sh
	@$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 10))" || { echo "Python 3.10 or newer is needed (PYTHON=python3.x make ...)"; exit 2; }
	tools/system-packages.sh $(PYTHON)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --editable ".[dev]"
	rm -rf $(VENV)/acados-wheel
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --target $(VENV)/acados-wheel $(ACADOS_WHEEL)
	rm -rf $(VENV)/acados-wheel/casadi*
	rm -rf $(NAMES) && mkdir -p $(NAMES)
	for room in gate_racer/* $(ROOMS); do ln -s "$(CURDIR)/$$room" $(NAMES); done
	touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info plans logs
