#!/bin/bash
# Builds what goes into the virtual machine from Debian packages. Prints nothing; all output goes to
# the log of provisioning.
#
#   image.sh system FOLDER    as root; stock Debian 12, its own kernel, and what Railbed runs on:
#                             makes FOLDER/kernel and FOLDER/system.cpio
#   image.sh proxies FOLDER   as root; the root of the GPU proxies' image: makes FOLDER/root.tar
set -euo pipefail

here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
# shellcheck source=testbed/provision.sh
. "$here/../provision.sh"

host_packages=(cpio mmdebstrap qemu-system-x86)
# What provisioning in the guest would ask for, and the kernel.
guest_packages=(apparmor docker.io kmod linux-image-amd64)
# The whole system is in the guest's memory: drivers that it has no use for stay outside.
unused=(./boot "./usr/lib/modules/*/kernel/drivers/gpu" "./usr/lib/modules/*/kernel/drivers/media"
  "./usr/lib/modules/*/kernel/drivers/scsi" "./usr/lib/modules/*/kernel/drivers/infiniband")

# mmdebstrap's own settings name this machine's mirror and proxy: provisioning in the guest
# goes through the same.
build_root() {
  logged debian_root "$1" --variant=minbase --format=directory \
    "--include=$(comma_separated "${packages[@]}" "${guest_packages[@]}")" \
    "--dpkgopt=path-exclude=/usr/share/doc/*" "--dpkgopt=path-exclude=/usr/share/locale/*" \
    "--dpkgopt=path-exclude=/usr/share/man/*" \
    "--customize-hook=install -m 755 '$here/init' \"\$1/sbin/railbed-init\""
}

# A RAM disk (the kernel's driver-api/early-userspace): no disk is waited for while time is counted.
pack() {
  local without=()
  for name in "${unused[@]}"; do without+=(-o -path "$name"); done
  (cd "$1" && find . -xdev \( -false "${without[@]}" \) -prune -o -print0 |
    LC_ALL=C sort -z | cpio --null --create --format=newc --quiet) >"$2"
}

build_system() {
  local folder=$1 work status=0
  work=$(mktemp -d)
  { build_root "$work/root" && cp "$work"/root/boot/vmlinuz-* "$folder/kernel" &&
    pack "$work/root" "$folder/system.cpio"; } || status=$?
  rm -rf "$work"
  return "$status"
}

build_proxies() { logged debian_root "$1/root.tar" "${image_recipe[@]}"; }

if [[ ${BASH_SOURCE[0]} == "$0" ]]; then
  ((EUID == 0)) || die "building the virtual machine's system needs root."
  install_missing "${host_packages[@]}"
  "build_$1" "$2" || die "virtual machine: building its $1 failed, see $log. Mend it and run this again."
fi
