# The server in a container, as a user without rights and with a read-only file system.
#
#   docker build --tag manyheads:cpu .
#   docker build --tag manyheads:cuda --target cuda .
#   docker run --read-only --tmpfs /tmp -p 127.0.0.1:5000:5000 -v ./models:/models:ro manyheads:cpu
#
# Every distribution is installed with the hashes of a lock file (release/lock.sh). release/replay_dockerfile.py runs
# the same steps where there is no container engine.
ARG PYTHON_IMAGE=python:3.11-slim-bookworm

FROM ${PYTHON_IMAGE} AS wheel
WORKDIR /source
RUN python3 -m venv /opt/build && /opt/build/bin/pip install --no-cache-dir build==1.6.1 hatchling==1.33.0
COPY pyproject.toml README.md LICENSE /source/
COPY src /source/src
RUN /opt/build/bin/python -m build --wheel --no-isolation --outdir /wheels

FROM ${PYTHON_IMAGE} AS cpu-environment
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
COPY release/container-cpu.lock release/torch-cpu.lock /locks/
RUN python3 -m venv /opt/manyheads \
    && /opt/manyheads/bin/pip install --no-cache-dir --require-hashes --no-deps --only-binary :all: \
        --requirement /locks/container-cpu.lock \
    && /opt/manyheads/bin/pip install --no-cache-dir --require-hashes --no-deps --only-binary :all: \
        --index-url "${TORCH_INDEX}" --requirement /locks/torch-cpu.lock
COPY --from=wheel /wheels /wheels
RUN /opt/manyheads/bin/pip install --no-cache-dir --no-deps --no-index /wheels/*.whl \
    && /opt/manyheads/bin/pip check

FROM ${PYTHON_IMAGE} AS cuda-environment
COPY release/container-cuda.lock /locks/
RUN python3 -m venv /opt/manyheads \
    && /opt/manyheads/bin/pip install --no-cache-dir --require-hashes --no-deps --only-binary :all: \
        --requirement /locks/container-cuda.lock
COPY --from=wheel /wheels /wheels
RUN /opt/manyheads/bin/pip install --no-cache-dir --no-deps --no-index /wheels/*.whl \
    && /opt/manyheads/bin/pip check

FROM ${PYTHON_IMAGE} AS runtime
RUN useradd --uid 10001 --no-create-home --home-dir /tmp --shell /usr/sbin/nologin manyheads \
    && mkdir /models
ENV PATH=/opt/manyheads/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    HOME=/tmp \
    XDG_CACHE_HOME=/tmp/cache \
    MANYHEADS_MODELS=/models \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
WORKDIR /models
USER 10001:10001
EXPOSE 5000
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python3", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:5000/health', timeout=4)"]
ENTRYPOINT ["manyheads"]
CMD ["serve", "--host", "0.0.0.0", "--port", "5000"]

# Triton compiles its launchers with a C compiler when a kernel is first used.
FROM runtime AS cuda
USER 0
# hadolint ignore=DL3008
RUN apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
COPY --from=cuda-environment /opt/manyheads /opt/manyheads
ENV NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility \
    TRITON_CACHE_DIR=/tmp/triton
USER 10001:10001

FROM runtime AS cpu
COPY --from=cpu-environment /opt/manyheads /opt/manyheads
