#!/bin/bash
# Builds what goes into the virtual machine from Debian packages, as root or as a user. Prints
# nothing; all output goes to the log of provisioning.
#
#   image.sh system FOLDER    stock Debian 12, its own kernel, and what Railbed runs on: makes
#                             FOLDER/kernel and FOLDER/system.cpio
#   image.sh proxies FOLDER   the root of the GPU proxies' image: makes FOLDER/root.tar
set -euo pipefail

here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
# shellcheck source=testbed/provision.sh
. "$here/../provision.sh"

# uidmap: for mmdebstrap without root.
host_packages=(cpio libarchive-tools mmdebstrap qemu-system-x86 uidmap)
# What provisioning in the guest would ask for, and the kernel.
guest_packages=(apparmor docker.io kmod linux-image-amd64)
# The whole system is in the guest's memory: drivers that it has no use for stay outside.
unused=(boot "usr/lib/modules/*/kernel/drivers/gpu" "usr/lib/modules/*/kernel/drivers/media"
  "usr/lib/modules/*/kernel/drivers/scsi" "usr/lib/modules/*/kernel/drivers/infiniband")
# Files get this date, so that the same packages make the same system.
export SOURCE_DATE_EPOCH=0

# mmdebstrap's own settings name this machine's mirror and proxy: provisioning in the guest
# goes through the same.
build_root() {
  logged debian_root "$1" --variant=minbase --format=tar \
    "--include=$(comma_separated "${packages[@]}" "${guest_packages[@]}")" \
    "--dpkgopt=path-exclude=/usr/share/doc/*" "--dpkgopt=path-exclude=/usr/share/locale/*" \
    "--dpkgopt=path-exclude=/usr/share/man/*"
}

# A RAM disk (the kernel's driver-api/early-userspace): no disk is waited for while time is counted.
pack() {
  local without=() name
  for name in "${unused[@]}"; do without+=(--exclude "./$name"); done
  bsdtar --format=newc "${without[@]}" -cf "$2" "@$1"
}

take_kernel() { tar --extract --to-stdout --wildcards --file "$1" './boot/vmlinuz-*' >"$2"; }

build_system() {
  local folder=$1 status=0
  { build_root "$folder/system.tar" && take_kernel "$folder/system.tar" "$folder/kernel" &&
    pack "$folder/system.tar" "$folder/system.cpio"; } || status=$?
  rm -f "$folder/system.tar"
  return "$status"
}

build_proxies() { logged debian_root "$1/root.tar" "${image_recipe[@]}"; }

require_host_packages() {
  local missing
  mapfile -t missing < <(missing_of "${host_packages[@]}")
  ((${#missing[@]} == 0)) ||
    die "virtual machine: without root, Debian's packages ${missing[*]} have to be there: 'sudo apt-get install ${missing[*]}'."
}

if [[ ${BASH_SOURCE[0]} == "$0" ]]; then
  if ((EUID == 0)); then install_missing "${host_packages[@]}"; else require_host_packages; fi
  "build_$1" "$2" || die "virtual machine: building its $1 failed, see $log. Mend it and run this again."
fi
