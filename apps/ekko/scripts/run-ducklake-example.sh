#!/bin/sh
# Run Ekko's example: all (default), infrastructure (start S3 and NATS from packages), or example.
# The example sends its transactions through the NATS and writes them to the S3 of the infrastructure, or of the
# variables NATS_URL, MINIO_ENDPOINT and DUCKLAKE_DATA_PATH; without any, it uses a folder.
# `python -m services stop` ends the infrastructure.
set -eu
cd "$(dirname "$0")/../../.."
python=${PYTHON:-.venv/bin/python}
bucket=${DUCKLAKE_BUCKET_NAME:-ducklake-data}

infrastructure() {
    "$python" -m services start s3
    "$python" -m services start nats
}

example() {
    if [ -z "${MINIO_ENDPOINT:-}${NATS_URL:-}" ] && found=$("$python" -m services environment --bucket "$bucket"); then
        eval "$found"
    fi
    "$python" apps/ekko/examples/ducklake_example.py
}

case "${1:-all}" in
    all) infrastructure; example ;;
    infrastructure) infrastructure ;;
    example) example ;;
    *) echo "usage: $0 [all|infrastructure|example]" >&2; exit 2 ;;
esac
