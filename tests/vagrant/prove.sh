#!/bin/bash
# Proves on any Debian machine, with or without KVM, what the README promises of Vagrant: `vagrant
# up`, the demo with containers, `vagrant destroy`, from a bare copy of this tree.
#
#   sudo tests/vagrant/prove.sh [SUITE]     SUITE: bookworm or, without it, trixie
#
# Debian's Vagrant and libvirt are in a root folder of their own, and run in namespaces of their own:
# on the machine itself only mmdebstrap and slirp4netns are installed, and nothing is left but the
# cache (RAILBED_CACHE, /var/cache/railbed). Without KVM, `vagrant up` took 24
# minutes and the demo 42.
set -euo pipefail

here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
# shellcheck source=testbed/provision.sh
. "$here/../../testbed/provision.sh"

cache=${RAILBED_CACHE:-/var/cache/railbed}
outside_packages=(e2fsprogs mmdebstrap slirp4netns)
host_packages=(
  dnsmasq-base iproute2 iptables libvirt-daemon-system openssh-client qemu-system-x86 qemu-utils rsync
  vagrant vagrant-libvirt
)

# made NAME COMMAND...: builds $cache/NAME by COMMAND $cache/unfinished-NAME, once.
made() {
  local target=$cache/$1 unfinished=$cache/unfinished-$1
  shift
  [[ -e $target ]] && return
  say "building $target"
  rm -rf "$unfinished"
  logged "$@" "$unfinished" || die "building $target failed, see $log. Fix it and run this again."
  rm -rf "${target%-*}"-*
  mv "$unfinished" "$target"
}

make_host() {
  debian_root "$1" --variant=minbase --format=directory "--include=$(comma_separated "${host_packages[@]}")"
}

# What a clone of this tree would have.
copy_tree() {
  mkdir -p "$1"
  git -C "$root" ls-files -z --cached --others --exclude-standard |
    tar -C "$root" --null --files-from - --ignore-failed-read -c | tar -C "$1" -x
}

# The outside for the namespaces: user-mode networking, so that the machine's own stays as it is.
connect() {
  local inside=$1
  until [[ $(readlink "/proc/$inside/ns/net") != "$(readlink /proc/self/ns/net)" ]]; do sleep 0.1; done
  setpriv --pdeathsig KILL slirp4netns --configure --mtu 65520 "$inside" tap0 >/dev/null 2>&1 &
}

prove() {
  local suite=$1 host=$2 box=$3 work=$4 inside status=0
  rm -rf "$work"
  mkdir -p "$work"
  copy_tree "$work/tree"
  # Whatever becomes of this shell, all that runs inside ends with the namespace's first process.
  setpriv --pdeathsig KILL unshare --net --mount --pid --fork --kill-child \
    "$here/inside.sh" "$suite" "$host" "$box" "$work" &
  inside=$!
  connect "$inside"
  wait "$inside" || status=$?
  rm -rf "$work"
  return "$status"
}

main() {
  ((EUID == 0)) || die "this needs root: run 'sudo $0'."
  mkdir -p "$cache"
  exec 9>"$cache/vagrant.lock"
  flock --nonblock 9 || die "another proof is running; wait for its end."
  install_missing "${outside_packages[@]}"
  local suite=${1:-trixie}
  local host=vagrant-host-$(printf '%s\n' "${host_packages[@]}" | hash12)
  local box=vagrant-box-$suite-$(hash12 <"$here/box.sh")
  made "$host" make_host
  made "$box" "$here/box.sh" "$suite" "$cache/$host"
  prove "$suite" "$cache/$host" "$cache/$box" "$cache/vagrant-work"
}

main "$@"
