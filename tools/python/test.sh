#!/usr/bin/env bash
# Builds the binding into a virtual environment, compares the types that it declares with it, and runs its tests.
# `FORESHORE_PROGRAM` may name the program `foreshore`, with which the tests compare encodings.
set -euo pipefail
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python=${PYTHON:-python3}
"$python" -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet 'maturin>=1.7,<2' pytest hypothesis 'mypy>=1.18'
"$work/venv/bin/maturin" build --quiet --profile "${PROFILE:-release}" --interpreter "$work/venv/bin/python" --out "$work/wheels"
"$work/venv/bin/pip" install --quiet "$work"/wheels/*.whl
# The installed package, not the sources beside the tests.
cp -r tests "$work/tests"
export FORESHORE_README=$PWD/README.md
cd "$work"
venv/bin/python -m mypy.stubtest foreshore
venv/bin/python -m mypy --strict --package foreshore
venv/bin/python -m mypy tests
venv/bin/python -m pytest --quiet -p no:cacheprovider tests
