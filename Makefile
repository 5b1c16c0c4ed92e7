# Every goal works on a fresh clone: it first makes what it needs (.venv, the packages, the extensions).
# A second run does nothing of that again unless setup.py, pyproject.toml or the sources changed.

# The first Python that is new enough; `make PYTHON=/path/to/python3 test` names another one.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo "$$p" && break; done)
CC ?= cc
JAVA := $(if $(JAVA_HOME),$(JAVA_HOME)/bin/)java
JDK := $(shell $(JAVA) -version 2>&1 | awk -F'[".]' '/version/ && $$2 >= 17 {print "yes"; exit}')
GET_PACKAGES := sudo apt install python3-venv python3-dev gcc make
GET_JDK := sudo apt install openjdk-17-jdk-headless maven

BIN := .venv/bin
PIP := $(BIN)/python -m pip install -q --disable-pip-version-check
# "compat" puts this folder on the module path, where Spark looks for pyspark_kts; import hooks it does not ask.
EDITABLE := --no-build-isolation --config-settings editable_mode=compat -e
comma := ,
EXTRAS := $(if $(JDK),spark$(comma))plot,test,bench
INSTALLED := .venv/.installed-$(if $(JDK),with,without)-spark
BUILT := .venv/.built
SOURCES := setup.py $(wildcard kts/*.pyx kts/*.pxd kts/avro/*.pyx kts/proposals/options/*.pyx kts/tables/*.pyx kts/native/*.[ch])

# What `make sanitize` leaves out besides Java: other processes and libraries, and memory as it is without a sanitizer.
SANITIZE_SKIPS := tests/spark tests/cli tests/meta tests/testing tests/dataset/test_memory.py \
	$(addprefix tests/test_,lint.py packaging.py readme.py stubs.py)
# Which tests are quick is told by their marks: tests/support/selection/marks.py, and `slow` in the tests.
QUICK := not java and not scaled and not crash and not slow and not meta
# Three processes on two cores: tests that wait for a broker or for Spark leave a core free.
PYTEST_ARGS ?= -n 3 --dist loadfile --no-loadscope-reorder --max-worker-restart 1 --timeout 600 --instafail
BENCH_ARGS ?=

SECONDS ?= 60
JOBS ?= 1
FUZZ_ARGS ?=

.PHONY: help ready run check quick test test-all test-pythons soak bench lint docs sanitize fuzz clean
.DELETE_ON_ERROR:

help:
	@echo "make run       a tour over real Kafka data"
	@echo "make check     lint and the quick tests, in 90 seconds: no Java, no crashes, nothing random and long"
	@echo "make test      lint and all tests, in 25 minutes; random tests are short (KTS_SEED=n for other cases)"
	@echo "make test-all  lint and all tests at full length, with fresh random cases (KTS_SEED=n replays them), and make test-pythons"
	@echo "make test-pythons  lint and the quick tests under each other Python that is found, and those of Debian (PYTHONS='python3.13 ...' DEBIANS='sid')"
	@echo "make soak      fuzzing and fresh random cases for hours, and kills of streams, reported in bench/soak.txt and streams.txt (SECONDS=10800)"
	@echo "make bench     kts against its peers and against the machine, in bench/results.md (BENCH_ARGS='--mib 4' is quicker)"
	@echo "make lint      ruff and mypy"
	@echo "make docs      the documentation as a site, in build/site"
	@echo "make sanitize  the codec's and the indexes' tests under AddressSanitizer and UBSan"
	@echo "make fuzz      coverage-guided fuzzing of the codec, the indexes and Avro values (SECONDS=60 JOBS=1; FUZZ_ARGS=--help)"
	@echo "make clean     remove .venv, build and everything else that was made"

.venv/.made:
	@test -n "$(PYTHON)" || { echo "No Python 3.11 or newer found. Next: $(GET_PACKAGES)"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or newer is needed, $(PYTHON) is older. Next: make PYTHON=python3.11, or $(GET_PACKAGES)"; exit 1; }
	@$(CC) --version >/dev/null 2>&1 || { echo "No C compiler '$(CC)' found. Next: $(GET_PACKAGES)"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
		{ echo "This Python cannot make environments. Next: $(GET_PACKAGES)"; exit 1; }
	@$(PYTHON) -c 'import os, sys, sysconfig as s; sys.exit(not os.path.exists(s.get_path("include") + "/Python.h"))' || \
		{ echo "Python's headers (Python.h) are missing. Next: $(GET_PACKAGES)"; exit 1; }
	@echo "== environment: .venv with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv .venv
	@touch $@

$(INSTALLED): .venv/.made pyproject.toml
ifndef JDK
	@echo "== no JDK 17 or newer: pyspark (about 450 MB) is left out, Spark and Kafka tests will be skipped."
	@echo "   To have them: $(GET_JDK)"
endif
	@echo "== packages, and the extensions (a few minutes the first time)"
	@$(PIP) 'setuptools>=77' 'Cython>=3.1'
	@$(PIP) $(EDITABLE) '.[$(EXTRAS)]'
	@touch $@ $(BUILT)

$(BUILT): $(INSTALLED) $(SOURCES)
	@echo "== build: the extensions"
	@$(BIN)/python setup.py -q build_ext --inplace
	@touch $@

ready: $(INSTALLED) $(BUILT)

run: ready
	@$(BIN)/python examples/tour.py

lint: ready
	@echo "== lint: ruff, mypy"
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy --no-error-summary

# The tools are the extra `docs`; kts itself is there already.
DOCS_TOOLS := import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["docs"])

.venv/.docs: $(INSTALLED) pyproject.toml
	@echo "== packages for the documentation"
	@$(PIP) $$($(BIN)/python -c '$(DOCS_TOOLS)')
	@touch $@

docs: ready .venv/.docs
	@echo "== documentation: build/site/index.html"
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

check: lint quick

quick: ready
	@echo "== quick tests"
	@$(BIN)/python -m pytest $(PYTEST_ARGS) -m "$(QUICK)"

test: lint
	@echo "== tests"
	@$(BIN)/python -m pytest $(PYTEST_ARGS)

test-all: lint
	@echo "== tests at full length"
	@KTS_LENGTH=full $(BIN)/python -m pytest $(PYTEST_ARGS)
	@sh tests/pythons.sh

test-pythons: ready
	@sh tests/pythons.sh

soak: SECONDS = 10800
soak: ready
	@BIN="$(BIN)" PYTEST_ARGS="$(PYTEST_ARGS)" sh tests/soak.sh $(SECONDS)

bench: ready
	@$(BIN)/python -m bench $(BENCH_ARGS)

sanitize: ready
	@echo "== build: the extensions with AddressSanitizer and UBSan, in build/sanitize"
	@KTS_SANITIZE=1 CC=$(CC) $(BIN)/python setup.py -q build --build-base build/sanitize --build-lib build/sanitize/lib
	@echo "== tests of the codec, the indexes and the storage"
	@LD_PRELOAD=$$($(CC) -print-file-name=libasan.so) ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 \
		PYTHONMALLOC=malloc PYTHONPATH=build/sanitize/lib \
		$(BIN)/pytest $(PYTEST_ARGS) -m "not java" $(SANITIZE_SKIPS:%=--ignore=%)

fuzz: ready
	@echo "== build: the extensions with sanitizers and coverage, in build/fuzz"
	@KTS_FUZZ=1 CC=$(CC) $(BIN)/python setup.py -q build --build-base build/fuzz --build-lib build/fuzz/lib
	@$(CC) -O2 -Wall -Wextra -shared -fPIC -o build/fuzz/trace.so tests/fuzz/trace.c
	@LD_PRELOAD=$$($(CC) -print-file-name=libasan.so) ASAN_OPTIONS=detect_leaks=0 PYTHONPATH=build/fuzz/lib:tests \
		$(BIN)/python -P -m fuzz --seconds $(SECONDS) --jobs $(JOBS) $(FUZZ_ARGS)

clean:
	rm -rf .venv build dist *.egg-info kts/*.so .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
