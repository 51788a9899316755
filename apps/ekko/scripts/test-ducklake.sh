#!/bin/sh
# Run the tests of Ekko's service: all (default), unit, integration, or minio: those of integration that use an S3 server.
# What follows is passed to pytest: apps/ekko/scripts/test-ducklake.sh unit -k networks
set -eu
cd "$(dirname "$0")/../../.."
python=${PYTHON:-.venv/bin/python}

which=${1:-all}
[ $# -eq 0 ] || shift
# files are named, not folders, of which pytest would take a sample
case "$which" in
    all) "$python" -m pytest -q tests/unit/test_*.py tests/integration/test_*.py "$@" ;;
    unit) "$python" -m pytest -q tests/unit/test_*.py "$@" ;;
    integration) "$python" -m pytest -q tests/integration/test_*.py "$@" ;;
    minio) "$python" -m pytest -q -m s3 tests/integration/test_*.py "$@" ;;
    *) echo "usage: $0 [all|unit|integration|minio] [options of pytest]" >&2; exit 2 ;;
esac
