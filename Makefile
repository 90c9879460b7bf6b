# Every target is a command or two that you can also type yourself once the environment exists.
PYTHON ?= python3
BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder

.PHONY: demo demo-shortcuts playground claims test test-integrations lint bench docs schema published lock clean

demo: .venv/workflow
	$(BIN)/snakemake --cores all --configfile config/demo.yaml

demo-shortcuts: .venv/workflow
	$(BIN)/snakemake --cores all --configfile config/demo_shortcuts.yaml

# Trains the networks of docs/playground.html and renews the page.
playground: .venv/workflow
	$(BIN)/snakemake --cores all --configfile config/playground.yaml
	cp outputs/playground/results/explorer/playground.html docs/

claims: .venv/installed
	$(BIN)/python benchmarks/claims.py

test: .venv/installed
	$(PYTEST) -m "not integration"

# With an environment, a service or a program of their own: the wheel in an empty folder, the site, Chromium, Slurm, remotes,
# other projects' loaders.
test-integrations: .venv/installed
	$(PYTEST) -m integration

lint: .venv/installed
	$(BIN)/ruff check src tests benchmarks docs
	$(BIN)/ruff format --check src tests benchmarks docs
	$(BIN)/snakefmt --check Snakefile rules workflow/Snakefile
	$(BIN)/reuse lint --quiet

bench: .venv/installed
	$(BIN)/python benchmarks/render.py

docs: .venv/installed
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build
	@echo "Open outputs/site/index.html"

schema: .venv/installed
	$(BIN)/python -m diagvib.settings.schemas

# Make what this version of the code makes otherwise of the roots in published/, and publish them anew (CONTRIBUTING.md).
published: .venv/installed
	$(BIN)/diagvib pull
	set -e; for root in $(patsubst %/dvc.lock,%,$(wildcard published/*/dvc.lock)); do \
		$(BIN)/snakemake --cores all --configfile $$root/config.yaml; $(BIN)/diagvib publish --root $$root; done

# Of each package the version stays that the file has, unless pyproject.toml rules it out; `--upgrade` moves all. Needs uv.
COMPILE := uv pip compile pyproject.toml --quiet --universal --python-version 3.11 --generate-hashes --no-annotate
lock:
	$(COMPILE) --all-extras --output-file requirements.lock
	$(COMPILE) --extra workflow --constraint requirements.lock --output-file requirements-workflow.lock

# What `diagvib run` needs; .venv/installed has the rest, too.
.venv/workflow: pyproject.toml requirements-workflow.lock
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "diagvib needs Python 3.11 or newer; try make PYTHON=python3.12")'
	@# Of immutables, which Snakemake needs, there is no wheel for Python 3.14.
	@$(PYTHON) -c 'import shutil, sys; sys.exit(sys.version_info >= (3, 14) and not shutil.which("gcc") and "with Python 3.14, a package is compiled: install gcc and python3-dev, or try make PYTHON=python3.13")'
	$(PYTHON) -m venv .venv
	@echo "Installing into .venv; PyTorch alone is a download of a few GB"
	$(BIN)/python -m pip install --require-hashes --requirement requirements-workflow.lock
	$(BIN)/python -m pip install --quiet --no-deps --editable .
	touch $@

.venv/installed: .venv/workflow requirements.lock
	$(BIN)/python -m pip install --require-hashes --requirement requirements.lock
	touch $@

# Of .snakemake only the logs are removed: the rest records what data/ and results/ were made from, and what is unfinished.
# Of outputs, only what can be made again in minutes.
clean:
	rm -rf .venv .snakemake/log outputs/demo outputs/demo_shortcuts outputs/playground outputs/*_demo outputs/ci outputs/site
