#!/bin/sh
# Run the tests of Ekko's service: all (default), unit, integration, or minio (the same as integration, on an S3 server).
# What follows is passed to pytest: scripts/test-ducklake.sh unit -k networks
set -eu
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}

which=${1:-all}
[ $# -eq 0 ] || shift
case "$which" in
    all) "$python" -m pytest -q tests/unit tests/integration "$@" ;;
    unit) "$python" -m pytest -q tests/unit "$@" ;;
    integration | minio) "$python" -m pytest -q tests/integration "$@" ;;
    *) echo "usage: $0 [all|unit|integration|minio] [options of pytest]" >&2; exit 2 ;;
esac
