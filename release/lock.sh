#!/usr/bin/env bash
# Write the lock files: every distribution that constraints.txt pins, with the SHA-256 of each of its files on PyPI.
#
#   requirements.lock           all extras, for contributors: torch as PyPI has it (on Linux with CUDA)
#   release/container-cuda.lock what the CUDA image installs
#   release/container-cpu.lock  what the CPU image installs, without torch
#   release/torch-cpu.lock      torch for the CPU image, from PyTorch's own index; edited by hand
#
# PyPI has no CPU build of torch for Linux. PyTorch's index has it as 2.13.0+cpu, with other files and hashes, so it
# is locked apart. For macOS, PyPI's torch requires no CUDA packages: container-cpu.lock is resolved for that platform,
# with the hashes of all platforms.
set -euo pipefail
cd "$(dirname "$0")/.."
uv=${UV:-.venv-release/bin/uv}
common=(pip compile pyproject.toml --constraint constraints.txt --generate-hashes --python-version 3.11
        --quiet --no-header --default-index https://pypi.org/simple)
container=(--extra serve --extra ctranslate2 --extra formats --extra hub)

"$uv" "${common[@]}" --all-extras --universal --output-file requirements.lock
"$uv" "${common[@]}" "${container[@]}" --python-platform x86_64-manylinux_2_28 --output-file release/container-cuda.lock
MACOSX_DEPLOYMENT_TARGET=14.0 "$uv" "${common[@]}" "${container[@]}" --python-platform aarch64-apple-darwin --no-emit-package torch \
    --output-file release/container-cpu.lock
