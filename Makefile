# Every target creates the virtual environment with pinned versions if needed. Requires only Python 3.11 to 3.13.
PYTHON ?= python3
# With TORCH=2.11.0, an environment of its own with another torch, and with the Triton that it requires.
TORCH  ?=
VENV   ?= .venv$(if $(TORCH),-torch-$(TORCH))
CONSTRAINTS := $(if $(TORCH),build/constraints-torch-$(TORCH).txt,constraints.txt)
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
# The tests of `make quick`: files that take seconds. Everything else runs in `make test`.
QUICK  := $(addprefix tests/contract/test_,imports.py source_style.py model_purity.py one_search.py config.py) \
          $(addprefix tests/invariants/test_,attention.py decoding.py experts.py packed.py search.py transformer.py) \
          $(addprefix tests/oracles/test_,torch_transformer.py recurrent_cells.py) \
          $(addprefix tests/text/test_,clean.py segmentation.py subwords.py trees.py) tests/data/test_store.py
ORACLES := $(VENV)/.oracles
TOOLS   := .venv-release
CORE    := .venv-core
CHECKED := src tests bench examples release website runs
export PIP_CONSTRAINT := $(CURDIR)/$(CONSTRAINTS)
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help setup demo paper lint quick test test-all test-browser coverage bench soak docs reference dist smoke licenses sbom \
        lock lint-deployment replay release-check clean

help:      ## list the targets
	@grep -hE '^[a-z-]+: .*##|^[a-z-]+:  *##' Makefile | sed -E 's/:[^#]*##/\t/' | expand -t 12

setup: $(READY)      ## create the virtual environment

build/constraints-torch-%.txt: constraints.txt
	mkdir -p build
	sed -E '/^(torch|triton)==/d' constraints.txt > $@
	echo 'torch==$*' >> $@

$(READY): pyproject.toml $(CONSTRAINTS)
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
	$(BIN)/ruff check $(CHECKED)
	$(BIN)/ruff format --check $(CHECKED)
	$(BIN)/mypy

quick: lint          ## lint, type checks and the fast tests: under a minute
	$(BIN)/pytest -m 'not heavy and not gpu' --numprocesses 2 $(QUICK)

test: lint           ## what every change must pass
	$(BIN)/pytest -m 'not heavy and not gpu' --numprocesses 2

test-all: lint $(ORACLES)   ## also the slow comparisons, and the GPU tests where there is a GPU
	$(BIN)/pytest --numprocesses 2

test-browser: $(READY)      ## the tests of the pages in headless Chromium
	$(BIN)/pytest -m 'not gpu' $$(grep -lr 'support.browser' tests --include='test_*.py')

coverage: $(READY)   ## the tests of `make test` with the share of lines that they execute
	$(BIN)/pytest -m 'not heavy and not gpu' --numprocesses 2 --cov --cov-report=term:skip-covered

bench: $(READY)      ## compare a training step with torch.nn.Transformer and Hugging Face Marian
	$(BIN)/python bench/train_step.py

soak: $(READY)       ## an hour of mixed traffic while processes are killed and disks are full
	test -d manyheads-demo/run/model || $(BIN)/manyheads demo
	$(BIN)/python bench/soak.py manyheads-demo/run/model manyheads-demo/test.en

# Tools of a release have an environment of their own: none of them is a dependency of the package.
$(TOOLS)/.ready: release/tools.txt
	$(PYTHON) -m venv $(TOOLS)
	PIP_CONSTRAINT= $(TOOLS)/bin/python -m pip install --quiet --requirement release/tools.txt
	@touch $@

# The widgets of the book run the model of the demo, unless BOOK_MODEL is another folder. Without it, the demo trains one.
BOOK_MODEL ?= manyheads-demo/run/model
docs: $(READY)       ## the documents and the book as web pages in build/docs; trains the demo's model if there is none
	test -d $(BOOK_MODEL) || $(BIN)/manyheads demo
	MANYHEADS_BOOK_MODEL=$(BOOK_MODEL) NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

reference: $(READY)  ## write the reference pages from the code: docs/configuration.md, configuration.ko.md, api.md
	$(BIN)/python release/reference.py

dist: $(TOOLS)/.ready       ## build and check the wheel and the source distribution in dist/
	rm -rf dist
	$(TOOLS)/bin/python -m build --no-isolation
	$(TOOLS)/bin/twine check --strict dist/*

$(CORE)/.ready: dist
	$(PYTHON) release/smoke.py dist/*.whl --keep $(CORE)
	@touch $@

smoke: $(CORE)/.ready       ## install the wheel into an empty environment, and run README's first commands there

licenses: $(CORE)/.ready    ## write docs/licenses.md
	$(TOOLS)/bin/python release/licenses.py $(CORE)/bin/python

sbom: $(CORE)/.ready        ## write build/sbom.json (CycloneDX) of the core, and report its size and import times
	mkdir -p build
	$(TOOLS)/bin/cyclonedx-py environment --pyproject pyproject.toml --mc-type library --output-reproducible \
	    --output-file build/sbom.json $(CORE)/bin/python
	$(TOOLS)/bin/python release/measure_install.py $(CORE)/bin/python

lock: $(TOOLS)/.ready       ## write the lock files with hashes from constraints.txt
	UV=$(TOOLS)/bin/uv release/lock.sh

lint-deployment: $(TOOLS)/.ready    ## check Dockerfile, compose file, workflows and CITATION.cff
	$(TOOLS)/bin/hadolint Dockerfile
	$(TOOLS)/bin/check-jsonschema --builtin-schema vendor.compose-spec deploy/compose.yaml
	$(TOOLS)/bin/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(TOOLS)/bin/check-jsonschema --builtin-schema vendor.github-issue-forms .github/ISSUE_TEMPLATE/[bp]*.yml
	$(TOOLS)/bin/check-jsonschema --builtin-schema vendor.citation-file-format CITATION.cff
	$(TOOLS)/bin/zizmor --offline --no-progress --quiet .github/workflows
	$(TOOLS)/bin/yamllint --strict deploy .github

replay:              ## run the steps of the Dockerfile without a container engine (root, debootstrap)
	$(PYTHON) release/replay_dockerfile.py --work build/replay $(if $(MODELS),--models $(MODELS))

release-check:       ## what is missing before a tag
	$(PYTHON) release/check_release.py

clean:               ## remove everything that the other targets created
	rm -rf $(VENV) $(TOOLS) $(CORE) manyheads-demo paper dist build .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage
