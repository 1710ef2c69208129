# Every target makes its own virtual environment with pinned versions; nothing else is needed but Python 3.11 or 3.12.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
JUDGES := $(VENV)/.judges
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help setup demo paper lint test test-all bench wheel clean

help:      ## this list
	@grep -hE '^[a-z-]+: .*##|^[a-z-]+:  *##' Makefile | sed -E 's/:[^#]*##/\t/' | expand -t 12

setup: $(READY)      ## the virtual environment alone

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@

# JoeyNMT pins an old protobuf that nothing here needs: its attention module is judged alone. PYEVALB's tables
# want an older python-dateutil than matplotlib has, and do with the newer.
OF_PYEVALB := pytablewriter typepy DataProperty tabledata mbstrdecoder pathvalidate tcolorpy chardet
# The others are clients of the server, schemathesis, which tries all that its description allows, and a scorer
# of trees.
$(JUDGES): $(READY)
	$(BIN)/python -m pip install --quiet --no-deps joeynmt importlib_metadata zipp
	$(BIN)/python -m pip install --quiet libretranslatepy libretranslate-aio deep-translator schemathesis
	$(BIN)/python -m pip install --quiet --no-deps PYEVALB $(OF_PYEVALB)
	@touch $@

demo: $(READY)       ## prepare, train, translate, score: the built-in English-Korean corpus on this CPU, three minutes
	$(BIN)/manyheads demo

paper: $(READY)      ## the paper's tables, figures and notes, measured on the built-in corpus: paper/, each in under ten minutes
	$(BIN)/manyheads paper table1 --out paper
	$(BIN)/manyheads paper table2 --out paper
	$(BIN)/manyheads paper table3 --out paper
	$(BIN)/manyheads paper table4 --out paper
	test -d manyheads-demo/run/model || $(BIN)/manyheads demo
	$(BIN)/manyheads paper figures manyheads-demo/run/model --out paper
	$(BIN)/manyheads paper notes --out paper

lint: $(READY)       ## ruff and mypy
	$(BIN)/ruff check src tests bench examples
	$(BIN)/ruff format --check src tests bench examples
	$(BIN)/mypy

test: lint           ## what every change must pass
	$(BIN)/pytest -m 'not heavy and not gpu' --numprocesses 2

test-all: lint $(JUDGES)   ## the same with slow comparisons, and the GPU where there is one
	$(BIN)/pytest --numprocesses 2

bench: $(READY)      ## one training step against torch.nn.Transformer and Hugging Face Marian
	$(BIN)/python bench/train_step.py

wheel: $(READY)      ## dist/manyheads-*.whl
	$(BIN)/python -m build --wheel

clean:               ## everything that the other targets made
	rm -rf $(VENV) manyheads-demo paper dist build .mypy_cache .pytest_cache .ruff_cache .hypothesis
