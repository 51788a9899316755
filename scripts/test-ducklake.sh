#!/usr/bin/env bash
# What the same script of Ekko's package does, from the root of the repository.
exec "$(dirname "$0")/../apps/ekko/scripts/test-ducklake.sh" "$@"
