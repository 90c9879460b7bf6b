# The repository with the environment of requirements.lock. profiles/README.md
FROM python:3.11-slim-bookworm
# gcc and libc6-dev: Triton compiles a part of the GPU's renderer with them.
RUN apt-get update && apt-get install --yes --no-install-recommends git make gcc libc6-dev && rm -rf /var/lib/apt/lists/*
WORKDIR /diagvib
# First what the environment is made from: an image is built again in seconds after a change of anything else.
COPY Makefile pyproject.toml requirements.lock requirements-workflow.lock README.md LICENSE ./
COPY src src
COPY config config
RUN make .venv/installed
COPY . .
ENV PATH="/diagvib/.venv/bin:$PATH"
CMD ["make", "demo"]
