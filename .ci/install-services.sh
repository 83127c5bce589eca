#!/usr/bin/env bash
# Installs the services that slow tests start for themselves: Prometheus, for the dashboard's queries.
# Does nothing where it is there already. Works as root or with sudo, on Debian and Ubuntu.
set -euo pipefail

if command -v prometheus >/dev/null; then
    exit 0
fi

as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi
}

as_root apt-get update -qq
as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends prometheus

# The package starts a server of its own; the tests start theirs, on a free port.
if [ -d /run/systemd/system ]; then
    as_root systemctl disable --now --quiet prometheus.service
elif [ -x /etc/init.d/prometheus ]; then
    as_root /etc/init.d/prometheus stop >/dev/null 2>&1 || true
fi

command -v prometheus >/dev/null
