# make demo      the main job: raw text to a pre-trained, fine-tuned model and runs/demo/report.html
# make test      the tests          make check   format, lint, types, import directions
# Each makes the virtual environment .venv when it is missing, and is quick the second time.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
CORPUS ?=
MINUTES ?= 7.5

.DEFAULT_GOAL := help
.PHONY: help demo test check format clean

help:
	@sed -n '1,3s/^# //p' Makefile

demo: $(VENV)/.installed
	$(BIN)/bertie demo -o runs/demo --minutes $(MINUTES) $(if $(CORPUS),--corpus '$(CORPUS)')

test: $(VENV)/.installed-dev
	$(BIN)/python -m pytest

check: $(VENV)/.installed-dev
	$(BIN)/ruff format --check src tests
	$(BIN)/ruff check src tests
	$(BIN)/mypy
	$(BIN)/python -m pytest tests/unit/test_import_directions.py

format: $(VENV)/.installed-dev
	$(BIN)/ruff format src tests
	$(BIN)/ruff check --fix src tests

clean:
	rm -rf $(VENV)

# The stamps: made once, and again when pyproject.toml or constraints.txt change. torch is large; minutes the first time.
$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing bertie into $(VENV) (the first time takes minutes: PyTorch is large)"
	$(PIP) --editable .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml constraints.txt | $(VENV)/.installed
	@echo "installing the tools of bertie[dev] into $(VENV)"
	$(PIP) --editable '.[dev]'
	@touch $@

# Some systems ship Python without ensurepip; their own pip then puts pip into the environment.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Bertie needs Python 3.11 or newer; name one: make PYTHON=python3.12 ..." >&2; exit 2; }
	@$(PYTHON) -m venv $(VENV) 2>/dev/null || \
	  { $(PYTHON) -m venv --clear --without-pip $(VENV) && $(PYTHON) -m pip --python $(BIN)/python install --quiet pip; } || \
	  { rm -rf $(VENV); exit 1; }
