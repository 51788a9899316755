#!/bin/sh
# Run the tests of Ekko's service: all (default), unit, integration, or minio (the same as integration, on an S3 server).
set -eu
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}

case "${1:-all}" in
    all) "$python" -m pytest -q tests/unit tests/integration ;;
    unit) "$python" -m pytest -q tests/unit ;;
    integration | minio) "$python" -m pytest -q tests/integration ;;
    *) echo "usage: $0 [all|unit|integration|minio]" >&2; exit 2 ;;
esac
