# make demo   makes .venv, installs, lifts a shipped model, verifies it and prints the report
# make test   the tests (under five minutes on two cores)
# make lint   ruff and mypy
# make bench  the benchmarks (writes tables and plots beside them)
PYTHON ?= python3
PY := .venv/bin/python
# Without one, Mesa complains on standard error.
export XDG_RUNTIME_DIR ?= /tmp

.PHONY: demo test slow lint bench clean

.venv/.installed: pyproject.toml setup.py $(wildcard runtime/onnxruntime/*.[chi]*)
	@echo "== making .venv and installing looplift with what its tests use"
	$(PYTHON) -m venv .venv
	$(PY) -m pip install --quiet --upgrade pip
	PYTHONWARNINGS=ignore $(PY) -m pip install --quiet --editable '.[dev]'
	@touch $@

demo: .venv/.installed
	@echo "== lifting the loop of examples/time_grid.py, verifying it, running it"
	$(PY) examples/time_grid.py

test: .venv/.installed
	@echo "== running the tests"
	$(PY) -m pytest -n 2

slow: .venv/.installed
	@echo "== running the long tests"
	$(PY) -m pytest -n 2 -m slow

# mypy does not follow the editable install's mapping of rooms, so it reads an installed copy.
lint: .venv/.installed
	@echo "== ruff"
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	@echo "== mypy"
	@rm -rf build/typecheck build/lib build/bdist*
	$(PY) -m pip install --quiet --no-deps --target build/typecheck .
	cd build/typecheck && ../../$(PY) -m mypy --config-file ../../pyproject.toml -p looplift

bench: .venv/.installed
	@echo "== benchmarks"
	for script in benchmarks/[a-z]*.py; do $(PY) $$script || exit 1; done

clean:
	rm -rf .venv build *.egg-info
