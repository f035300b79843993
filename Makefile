# Every target sets up what it needs: make demo · make test · make lint · make bench · make docs
PYTHON ?= python3
# Build trees and caches live next to the sources; one environment serves every target.
VENV   := .venv
BIN    := $(VENV)/bin
OLD    := .venv-old
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
# torch's own index, asked for the small CPU build; left out where a GPU is present or the index cannot be reached.
INDEX  := https://download.pytorch.org/whl/cpu
# Test workers: one per core, one thread each.
JOBS   ?= auto

# Tests that run again without the compiler.
PLAIN  := tests/training/test_engine.py tests/networks/test_fast_layer.py tests/networks/test_blocks_dropout.py \
	tests/objectives/test_cross_entropy.py tests/corpus/test_cooccurrences.py tests/text/test_words.py tests/text/test_apart.py

.PHONY: demo test old slow mutants fuzz gpu gpu-check lint format bench docs release-check clean
demo: $(VENV)/.core
	$(BIN)/cloze demo

# Processes that tests start load the bytecode that the first one has written, whatever the environment says of it.
test: export PYTHONDONTWRITEBYTECODE =
test: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --dist worksteal
	OMP_NUM_THREADS=1 CLOZE_NUMBA=off $(BIN)/python -m pytest -n $(JOBS) $(PLAIN)

slow: $(VENV)/.dev
	$(BIN)/python -m pytest -m slow

# Small faults put into copies of the package, one by one: which of them no test notices. Resumes where it stopped.
mutants: $(VENV)/.dev
	$(BIN)/python tests/mutation/mutants.py

# Spoilt inputs of every kind, an hour of them: make fuzz SECONDS=600
SECONDS ?= 3600
fuzz: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python tests/fuzz/fuzz.py --seconds $(SECONDS)

gpu: $(VENV)/.dev
	$(BIN)/python -m pytest -m gpu

# Everything about a GPU that takes one, in at most nine minutes with the installation. Ends with a table to send to us; without a
# GPU: make gpu-check CHECK="--device cpu --tiny"
CHECK ?=
gpu-check:
	@started=$$(date +%s); $(MAKE) --no-print-directory $(VENV)/.gpu \
		&& $(BIN)/python benchmarks/gpu_check.py --started $$started $(CHECK)

# Transformer-XL and NEZHA left transformers with version 5: their parity is tested against 4.57.1, in an environment of its own.
# Compressed folders are opened by both versions.
old: $(VENV)/.dev $(OLD)/.done
	CLOZE_PYTHON_WITH_TRANSFORMERS_4=$(CURDIR)/$(OLD)/bin/python OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) \
		tests/parity/test_memory.py tests/parity/test_nezha.py tests/parity/test_compressed_folders.py

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/mypy
	for scripts in reproductions benchmarks docs/site; do \
		(cd $$scripts && MYPYPATH=$(CURDIR):$(CURDIR)/reproductions $(CURDIR)/$(BIN)/mypy --config-file $(CURDIR)/pyproject.toml \
			--cache-dir $(CURDIR)/.mypy_cache/scripts \
			--ignore-missing-imports --no-warn-unused-ignores *.py) || exit 1; \
	done
	$(BIN)/lint-imports --no-cache

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .

# Speed of data and training against other tools, an hour or more. The other benchmarks: python benchmarks/NAME.py --help
SPEED := text_to_ids corpus_build exercises train_cpu train_family word_vectors fast
bench: $(VENV)/.bench
	@for name in $(SPEED); do echo "== $$name"; $(BIN)/python "benchmarks/$$name.py" || exit 1; done

# Builds the site, with the pages and figures that are not in git: open site/index.html. A broken link or anchor is an error.
docs: $(VENV)/.docs
	$(BIN)/python docs/site/stage.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "open site/index.html"

# Builds the wheel and the source distribution into dist/, checks them, and runs the installed command and the demo, once for
# each interpreter: make release-check PYTHONS="python3.11 python3.13"
PYTHONS ?= python3.11 python3.13
release-check:
	$(PYTHON) tests/release/check.py $(PYTHONS)

clean:
	rm -rf $(VENV) $(OLD) build dist site *.egg-info

# torch goes first and alone: the other packages then find it installed and never choose another build.
$(VENV)/.torch: constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("cloze needs Python 3.11 or later; name one with: make PYTHON=python3.11") if sys.version_info < (3, 11) else None'
	@echo "installing into $(VENV) (once) ..."
	@$(PYTHON) -m venv $(VENV)
	@extra=""; \
	if ! command -v nvidia-smi >/dev/null 2>&1 && $(BIN)/python -c 'import socket; socket.create_connection(("download.pytorch.org", 443), 3)' 2>/dev/null; \
	then extra="--extra-index-url $(INDEX)"; fi; \
	$(PIP) $$extra "$$(grep '^torch==' constraints.txt)"
	@touch $@

$(VENV)/.core: $(VENV)/.torch pyproject.toml
	@$(PIP) --editable '.[baselines]'
	@touch $@

$(VENV)/.dev: $(VENV)/.core
	@$(PIP) --editable '.[dev]'
	@touch $@

# No more than gpu-check needs.
$(VENV)/.gpu: $(VENV)/.torch pyproject.toml
	@$(PIP) --editable . pytest transformers
	@touch $@

$(VENV)/.docs: $(VENV)/.core
	@$(PIP) --editable '.[docs]'
	@touch $@

$(VENV)/.bench: $(VENV)/.core
	@$(PIP) --editable '.[bench]'
	@touch $@

$(OLD)/.done: constraints.txt
	@echo "installing transformers 4.57.1 into $(OLD) (once) ..."
	@$(PYTHON) -m venv $(OLD)
	@$(OLD)/bin/python -m pip install --quiet --disable-pip-version-check "$$(grep '^torch==' constraints.txt)"
	@$(OLD)/bin/python -m pip install --quiet --disable-pip-version-check transformers==4.57.1
	@touch $@
