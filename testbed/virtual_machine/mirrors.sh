#!/bin/bash
# Prints a shell script that gives a Debian guest this machine's own ways to packages: its Debian
# mirror and apt settings, pip's index, its proxies, and the certificates of its own authorities.
# What names this machine's loopback address is left out: in the guest that is another machine.
set -euo pipefail

# shellcheck source=testbed/provision.sh
. "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../provision.sh"
authorities=/usr/local/share/ca-certificates

# guest_file PATH: makes standard input, if there is any, that file of the guest.
guest_file() {
  local content
  content=$(grep -vE '127\.0\.0\.1|localhost|\[::1\]') || return 0
  printf "cat >'%s' <<'RAILBED_END'\n%s\nRAILBED_END\n" "$1" "$content"
}

apt_settings() {
  apt-config dump --format '%F "%v";%n' \
    Acquire::http Acquire::https Acquire::Check-Valid-Until Acquire::Check-Date
}

pip_settings() {
  local index
  index=${PIP_INDEX_URL:-$(python3 -I -m pip config get global.index-url 2>/dev/null || true)}
  [[ -z $index ]] || printf '[global]\nindex-url = %s\n' "$index"
}

proxies() { env | grep -iE '^(https?|ftp|all|no)_proxy=' || true; }

certificates() {
  compgen -G "$authorities/*.crt" >/dev/null || return 0
  echo "base64 -d <<'RAILBED_END' | tar -xz -C $authorities && update-ca-certificates"
  tar -cz -C "$authorities" . | base64
  echo RAILBED_END
}

if command -v apt-get >/dev/null; then
  debian_sources | guest_file /etc/apt/sources.list
  apt_settings | guest_file /etc/apt/apt.conf.d/99host
fi
pip_settings | guest_file /etc/pip.conf
proxies | guest_file /etc/environment
certificates
