# Every target creates the virtual environment with pinned versions if needed. Requires only Python 3.11 or 3.12.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
# The tests of `make quick`: files that take seconds. Everything else runs in `make test`.
QUICK  := $(addprefix tests/contract/test_,imports.py source_style.py model_purity.py one_search.py config.py) \
          $(addprefix tests/invariants/test_,attention.py decoding.py experts.py packed.py search.py transformer.py) \
          $(addprefix tests/oracles/test_,torch_transformer.py recurrent_cells.py) \
          $(addprefix tests/text/test_,clean.py segmentation.py subwords.py trees.py) tests/data/test_store.py
ORACLES := $(VENV)/.oracles
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help setup demo paper lint quick test test-all coverage bench wheel clean

help:      ## list the targets
	@grep -hE '^[a-z-]+: .*##|^[a-z-]+:  *##' Makefile | sed -E 's/:[^#]*##/\t/' | expand -t 12

setup: $(READY)      ## create the virtual environment

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@

# Outside implementations that the slow tests compare with. JoeyNMT and PYEVALB are installed without their
# dependencies: JoeyNMT pins an old protobuf, and only its attention module is used; PYEVALB's table writer pins an
# older python-dateutil than matplotlib needs. The others are clients of the server, an API fuzzer, readers of documents,
# and Ray, which bulk jobs run on and which is too large for the dev extra.
PYEVALB_REQUIREMENTS := pytablewriter typepy DataProperty tabledata mbstrdecoder pathvalidate tcolorpy chardet
$(ORACLES): $(READY)
	$(BIN)/python -m pip install --quiet --no-deps joeynmt importlib_metadata zipp
	$(BIN)/python -m pip install --quiet libretranslatepy libretranslate-aio deep-translator deepl schemathesis ray
	$(BIN)/python -m pip install --quiet python-docx odfdo pysubs2
	$(BIN)/python -m pip install --quiet --no-deps PYEVALB $(PYEVALB_REQUIREMENTS)
	@touch $@

demo: $(READY)       ## a translation by the box, if it has a model; then the built-in corpus from data to scores on a CPU: three minutes
	$(BIN)/manyheads demo

paper: $(READY)      ## measure the paper's tables, figures and study questions into paper/, each in under ten minutes
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

quick: lint          ## lint, type checks and the fast tests: under a minute
	$(BIN)/pytest -m 'not heavy and not gpu' --numprocesses 2 $(QUICK)

test: lint           ## what every change must pass
	$(BIN)/pytest -m 'not heavy and not gpu' --numprocesses 2

test-all: lint $(ORACLES)   ## also the slow comparisons, and the GPU tests where there is a GPU
	$(BIN)/pytest --numprocesses 2

coverage: $(READY)   ## the tests of `make test` with the share of lines that they execute
	$(BIN)/pytest -m 'not heavy and not gpu' --numprocesses 2 --cov --cov-report=term:skip-covered

bench: $(READY)      ## compare a training step with torch.nn.Transformer and Hugging Face Marian
	$(BIN)/python bench/train_step.py

wheel: $(READY)      ## build dist/manyheads-*.whl
	$(BIN)/python -m build --wheel

clean:               ## remove everything that the other targets created
	rm -rf $(VENV) manyheads-demo paper dist build .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage
