#!/usr/bin/env bash
# Installs the services that tests start for themselves: Prometheus, for the dashboard's queries; Redis, for the shared
# store; openssl, which makes the certificates of a Redis with TLS; and Chromium, which opens the pages. Does nothing where
# they are there already. Works as root or with sudo, on Debian and Ubuntu.
set -euo pipefail

as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi
}

services=()
command -v prometheus >/dev/null || services+=(prometheus)
command -v redis-server >/dev/null || services+=(redis-server)
packages=("${services[@]}")
command -v openssl >/dev/null || packages+=(openssl)
command -v chromium >/dev/null || packages+=(chromium)
if [ ${#packages[@]} -eq 0 ]; then
    exit 0
fi

as_root apt-get update -qq
as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${packages[@]}"

# The packages start servers of their own; the tests start theirs, on free ports.
for service in "${services[@]}"; do
    if [ -d /run/systemd/system ]; then
        as_root systemctl disable --now --quiet "$service.service"
    elif [ -x "/etc/init.d/$service" ]; then
        as_root "/etc/init.d/$service" stop >/dev/null 2>&1 || true
    fi
done

command -v prometheus >/dev/null
command -v redis-server >/dev/null
command -v openssl >/dev/null
command -v chromium >/dev/null
