#!/bin/bash
#   mirrors.sh [SUITE]
#
# Prints a shell script that gives a Debian guest this machine's own ways to packages: its Debian
# mirror and apt settings, pip's indexes, its proxies, and the certificates of its own authorities.
# A mirror, index or proxy at this machine's loopback address, or in its files, is left out: in the guest
# that is another machine. What needs no proxy (no_proxy) is handed over whole.
set -euo pipefail

# shellcheck source=testbed/provision.sh
. "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../provision.sh"
image_suite=${1:-$image_suite}
authorities=/usr/local/share/ca-certificates

# elsewhere: standard input without the lines that name this machine's loopback address or files.
elsewhere() { grep -vE '127\.0\.0\.1|localhost|\[::1\]|file:' || true; }

# guest_file PATH: makes standard input, if there is any, that file of the guest.
guest_file() {
  local content
  content=$(cat)
  [[ -n $content ]] || return 0
  printf "cat >'%s' <<'RAILBED_END'\n%s\nRAILBED_END\n" "$1" "$content"
}

apt_settings() {
  apt-config dump --format '%F "%v";%n' \
    Acquire::http Acquire::https Acquire::Check-Valid-Until Acquire::Check-Date
}

# pip_setting NAME: the line of one of pip's settings, without addresses of this machine.
pip_setting() {
  local variable=PIP_${1^^} addresses
  variable=${variable//-/_}
  addresses=${!variable:-$(python3 -I -m pip config get "global.$1" 2>/dev/null || true)}
  addresses=$(tr -s '[:space:]' '\n' <<<"$addresses" | elsewhere | paste -sd ' ')
  [[ -z $addresses ]] || echo "$1 = $addresses"
}

pip_settings() {
  local settings
  settings=$(pip_setting index-url && pip_setting extra-index-url)
  [[ -z $settings ]] || printf '[global]\n%s\n' "$settings"
}

proxies() { env | elsewhere | grep -iE '^(https?|ftp|all)_proxy=' || true; }

no_proxies() { env | grep -i '^no_proxy=' || true; }

certificates() {
  compgen -G "$authorities/*.crt" >/dev/null || return 0
  echo "base64 -d <<'RAILBED_END' | tar -xz -C $authorities && update-ca-certificates"
  tar -cz -C "$authorities" . | base64
  echo RAILBED_END
}

if command -v apt-get >/dev/null; then
  debian_sources | elsewhere | guest_file /etc/apt/sources.list
  apt_settings | elsewhere | guest_file /etc/apt/apt.conf.d/99host
fi
pip_settings | guest_file /etc/pip.conf
{ proxies && no_proxies; } | guest_file /etc/environment
certificates
