#!/bin/bash
# Builds what goes into the virtual machine from Debian packages, as root or as a user. Prints
# nothing; all output goes to the log of provisioning.
#
#   image.sh system FOLDER SUITE   stock Debian, its own kernel, and what Railbed runs on: makes
#                                  FOLDER/kernel, system.cpio, docker.cpio and the folder python
#   image.sh proxies FOLDER        the root of the GPU proxies' image: makes FOLDER/root.tar
set -euo pipefail

here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
# shellcheck source=testbed/provision.sh
. "$here/../provision.sh"

# uidmap: for mmdebstrap without root.
host_packages=(cpio libarchive-tools mmdebstrap qemu-system-x86 uidmap)
# What provisioning in the guest would ask for, and the kernel.
guest_packages=(apparmor docker.io kmod linux-image-amd64)
# The whole system is in the guest's memory, and is copied there at each start: drivers, file systems
# and programs that it has no use for stay outside.
modules="usr/lib/modules/*/kernel"
unused=(boot usr/lib/udev/hwdb.bin usr/lib/udev/hwdb.d
  "$modules"/drivers/{ata,comedi,gpu,hid,hwmon,iio,infiniband,input,md,media,mmc,mtd,nvme,platform}
  "$modules"/drivers/{scsi,staging,target,usb,video} "$modules"/drivers/net/{ethernet,phy,usb,wireless}
  "$modules"/fs/{btrfs,ext4,f2fs,nfs,nfsd,ocfs2,smb,xfs} "$modules"/{sound,arch/x86/kvm,lib/test_bpf.ko}
  "$modules"/net/{bluetooth,mac80211,sunrpc,wireless}
  usr/bin/{ctr,dnet,containerd-shim,containerd-shim-runc-v1} usr/sbin/ovrouter)
# The locked Python environment, made by the system's own Python: the host's may be another.
environment=railbed/.venv
of_environment=(requirements.lock build-constraints.txt testbed/provision.sh)
# What would make the image of another host another one; compiled modules come late or not at all,
# depending on mmdebstrap.
of_this_host=(etc/apt/sources.list etc/apt/apt.conf.d/{99host,99mmdebstrap} etc/environment etc/pip.conf root/.cache 'var/log/*'
  'usr/local/share/ca-certificates/*' 'usr/lib/python3/dist-packages/*/__pycache__'
  'usr/lib/python3/dist-packages/*/*/__pycache__')
# That Python, which compiles the program's modules outside of the machine.
interpreter=(usr/bin/'python3*' usr/lib/'python3*' usr/lib/x86_64-linux-gnu)
# What a Docker Engine runs has an archive of its own, for machines that shall have one.
engine=(usr/sbin/{dockerd,docker-proxy,runc} usr/bin/{containerd,containerd-shim-runc-v2})
# Files get this date, so that the same packages make the same system.
export SOURCE_DATE_EPOCH=0

# The user of an unprivileged build may not read this folder: mmdebstrap copies what goes in.
build_root() {
  local handed=$1/railbed
  mkdir "$handed" && (cd "$root" && cp --parents "${of_environment[@]}" "$handed") &&
    "$here/mirrors.sh" "$image_suite" >"$handed/ways" || return
  logged debian_root "$1/system.tar" --variant=minbase --format=tar \
    "--include=$(comma_separated "${packages[@]}" "${guest_packages[@]}")" \
    "--dpkgopt=path-exclude=/usr/share/doc/*" "--dpkgopt=path-exclude=/usr/share/locale/*" \
    "--dpkgopt=path-exclude=/usr/share/man/*" \
    "--customize-hook=copy-in '$handed' /" '--customize-hook=chroot "$1" bash /railbed/ways' \
    '--customize-hook=HOME=/root XDG_CACHE_HOME= chroot "$1" /railbed/testbed/provision.sh --python' \
    "--customize-hook=cd \"\$1\" && rm -rf ${of_this_host[*]}" \
    '--customize-hook=chroot "$1" update-ca-certificates --fresh'
}

# A RAM disk (the kernel's driver-api/early-userspace): no disk is waited for while time is counted.
pack() {
  local tar=$1 cpio=$2 choice=$3 names=()
  shift 3
  for name in "$@"; do names+=("$choice" "./$name"); done
  bsdtar --format=newc "${names[@]}" -cf "$cpio" "@$tar"
}

extract() {
  local tar=$1 target=$2
  shift 2
  mkdir "$target"
  tar --extract --no-same-owner --wildcards --file "$tar" --directory "$target" "${@/#/./}"
}

take_kernel() { tar --extract --to-stdout --wildcards --file "$1" './boot/vmlinuz-*' >"$2"; }

build_system() {
  local folder=$1 status=0
  { build_root "$folder" && take_kernel "$folder/system.tar" "$folder/kernel" &&
    pack "$folder/system.tar" "$folder/system.cpio" --exclude "${unused[@]}" "${engine[@]}" railbed &&
    pack "$folder/system.tar" "$folder/docker.cpio" --include "${engine[@]}" &&
    logged extract "$folder/system.tar" "$folder/python" "$environment" "${interpreter[@]}"; } || status=$?
  rm -rf "$folder/system.tar" "$folder/railbed"
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
  image_suite=${3:-$image_suite}
  # Debian 13 has the engine's client in a package of its own.
  [[ $image_suite == bookworm ]] || guest_packages+=(docker-cli)
  "build_$1" "$2" || die "virtual machine: building its $1 failed, see $log. Fix it and run this again."
fi
