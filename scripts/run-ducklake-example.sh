#!/bin/sh
# Run Ekko's example: all (default), infrastructure (start S3 and NATS from packages), or example.
set -eu
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}

infrastructure() {
    "$python" -m services start s3
    "$python" -m services start nats
}

example() {
    "$python" examples/ducklake_example.py
}

case "${1:-all}" in
    all) infrastructure; example ;;
    infrastructure) infrastructure ;;
    example) example ;;
    *) echo "usage: $0 [all|infrastructure|example]" >&2; exit 2 ;;
esac
