# What `make help` lists is supported; a target it does not list is private.
#
# Everything is set up in the checkout: an environment .venv-* per Python version, results in build/.
# What setting up means is in .ci/prepare.

# The interpreter to make the environment from.
PYTHON ?= python3
# The modules for make mirror; all of them when empty.
MODULES ?=
# A folder of wheels for make zipapp: requests, PyYAML, tomli and what these need. No index is asked.
WHEELS ?=
# What make interop and interop-ci try; all when empty.
SERVERS ?=
# More arguments for pytest, for instance: make test PYTEST="tests/wire -k frame"
PYTEST ?=

export PYTHONPATH := $(CURDIR)

# $(call prepared,KIND): set $$python, for the rest of the recipe, to the interpreter for KIND.
prepared = python=$$(./.ci/prepare $(1) "$(PYTHON)")
SUITE = -m pytest -c tests/pytest.ini --rootdir=.

.DEFAULT_GOAL := help

.PHONY: help
help:
	@echo 'make demo          set up, then show the parts at work; needs no model and no network'
	@echo 'make test          set up, then the whole suite, sandbox required'
	@echo 'make test-fast     what needs no sandbox and is no campaign'
	@echo 'make rules         the rules of the source tree: layers, edges, imports, grammar'
	@echo 'make walks         the stories through public names, one line for each'
	@echo 'make soak          the campaigns at full count (make test runs a tenth)'
	@echo 'make py39          the whole suite on the oldest Python found'
	@echo 'make coverage      the whole suite with branch coverage and its floor'
	@echo 'make mirror        coverage of each module by its own test file'
	@echo 'make check         rules, test and mirror: before handing in'
	@echo 'make interop       other people'\''s conformance suite, servers and programs, in build/interop'
	@echo 'make interop-ci    the part of it that fits into eight minutes'
	@echo 'make bench         figures as ratios, with floors and peers measured in the same run'
	@echo 'make zipapp        build/latch.pyz, then run it on each Python found'
	@echo 'make vendor-check  the package copied under other names, at work'
	@echo 'make clean         remove what these made'
	@echo
	@echo 'Variables: PYTHON=python3.9 chooses the interpreter, PYTEST="tests/wire -k frame" the tests,'
	@echo 'MODULES=latch/errors.py what mirror measures, WHEELS=DIR the libraries for zipapp,'
	@echo 'SERVERS="conformance git" what interop tries, of what tests/interop/peers.toml names,'
	@echo 'LATCH_TEST_SLOW=3 a machine three times as slow.'

.PHONY: demo
demo:
	@$(call prepared,demo) && exec "$$python" bin/latch demo

# --- tests: one environment, several choices of tests ---------------------------------------------

.PHONY: test
test:
	@$(call prepared,test) && LATCH_REQUIRE_SANDBOX=1 exec "$$python" $(SUITE) $(or $(PYTEST),tests)

.PHONY: test-fast
test-fast:
	@$(call prepared,packages) && exec "$$python" $(SUITE) -m 'not sandbox and not soak' $(or $(PYTEST),tests)

.PHONY: rules
rules:
	@$(call prepared,packages) && exec "$$python" $(SUITE) $(or $(PYTEST),tests/rules)

.PHONY: walks
walks:
	@$(call prepared,test) && LATCH_REQUIRE_SANDBOX=1 exec "$$python" $(SUITE) -v $(or $(PYTEST),tests/walks)

.PHONY: soak
soak:
	@$(call prepared,test) && export LATCH_SOAK=1 LATCH_REQUIRE_SANDBOX=1 && \
	    exec "$$python" $(SUITE) -m soak $(or $(PYTEST),tests)

.PHONY: py39
py39:
	@oldest=$$(./.ci/prepare oldest) && exec $(MAKE) --no-print-directory test PYTHON="$$oldest"

.PHONY: check
check: rules test mirror

# --- measurements ----------------------------------------------------------------------------------

.PHONY: bench
bench:
	@$(call prepared,test) && ./.ci/prepare peers "$$python" && exec "$$python" tests/bench.py

.PHONY: coverage
coverage:
	@rm -rf build/coverage && mkdir -p build/coverage
	@$(call prepared,test) && export LATCH_REQUIRE_SANDBOX=1 COVERAGE_RCFILE=$(CURDIR)/tests/coverage.ini && \
	    "$$python" -m coverage run $(SUITE) $(or $(PYTEST),tests) && \
	    "$$python" -m coverage combine -q && \
	    "$$python" -m coverage report

.PHONY: mirror
mirror:
	@$(call prepared,test) && LATCH_REQUIRE_SANDBOX=1 exec "$$python" tests/mirror.py $(MODULES)

# --- against other people's programs ----------------------------------------------------------------

.PHONY: interop
interop:
	@$(call prepared,test) && exec "$$python" tests/interop/run.py $(SERVERS)

.PHONY: interop-ci
interop-ci:
	@$(call prepared,test) && exec "$$python" tests/interop/run.py --ci $(SERVERS)

# --- other ways to ship it --------------------------------------------------------------------------

.PHONY: zipapp
zipapp:
	@$(call prepared,packages) && "$$python" .ci/zipapp $(if $(WHEELS),--wheels "$(WHEELS)")
	@./.ci/prepare every | while read -r python; do \
	    echo "== $$python" && \
	        "$$python" build/latch.pyz --version </dev/null && \
	        "$$python" build/latch.pyz demo </dev/null || exit 1; \
	done

.PHONY: vendor-check
vendor-check:
	@$(call prepared,test) && export LATCH_REQUIRE_SANDBOX=1 && \
	    exec "$$python" $(SUITE) -v $(or $(PYTEST),tests/walks/test_vendored.py)

.PHONY: clean
clean:
	@rm -rf .venv-* build dist *.egg-info
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
