# make demo      the main job: raw text to a pre-trained, fine-tuned model and runs/demo/report.html
# make test      the tests          make check   format, lint, types, import directions
# make docs      the documentation as a site: docs/_build/html/index.html       make prose   what the pages' style lacks
# Each makes the virtual environment .venv when it is missing, and is quick the second time.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
CORPUS ?=
MINUTES ?= 7.5

.DEFAULT_GOAL := help
.PHONY: help demo test check docs prose format clean

help:
	@sed -n '1,4s/^# //p' Makefile

demo: $(VENV)/.installed
	$(BIN)/bertie demo -o runs/demo --minutes $(MINUTES) $(if $(CORPUS),--corpus '$(CORPUS)')

# Files of tests are dealt to as many processes as there are processors, each with one thread.
test: $(VENV)/.installed-dev
	$(BIN)/python -m pytest --numprocesses logical --maxprocesses 8 --dist loadfile

# A report: how sentences are written, and what Korean pages lack. It never stops a change.
prose: $(VENV)/.installed-dev
	-$(BIN)/python -m pytest -m prose --tb=line tests/docs

# No network; a warning, such as a link that leads nowhere, is an error.
docs: $(VENV)/.installed-docs
	$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

check: $(VENV)/.installed-dev
	$(BIN)/ruff format --check src tests benchmarks conftest.py docs/*.py
	$(BIN)/ruff check src tests benchmarks conftest.py docs/*.py
	$(BIN)/mypy
	$(BIN)/python -m pytest tests/unit/test_import_directions.py

format: $(VENV)/.installed-dev
	$(BIN)/ruff format src tests benchmarks conftest.py docs/*.py
	$(BIN)/ruff check --fix src tests benchmarks conftest.py docs/*.py

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

$(VENV)/.installed-docs: pyproject.toml constraints.txt | $(VENV)/.installed
	@echo "installing the tools of bertie[docs] into $(VENV)"
	$(PIP) --editable '.[docs]'
	@touch $@

# Some systems ship Python without ensurepip; their own pip then puts pip into the environment.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Bertie needs Python 3.11 or newer; name one: make PYTHON=python3.12 ..." >&2; exit 2; }
	@$(PYTHON) -m venv $(VENV) 2>/dev/null || \
	  { $(PYTHON) -m venv --clear --without-pip $(VENV) && $(PYTHON) -m pip --python $(BIN)/python install --quiet pip; } || \
	  { rm -rf $(VENV); exit 1; }
