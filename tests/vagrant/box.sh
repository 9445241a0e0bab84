#!/bin/bash
# Builds a Vagrant box (libvirt) of stock Debian with its own kernel from Debian's packages, for
# machines that reach no registry of boxes. The box brings its kernel beside its disk: no boot
# loader has to be installed without booting.
#
#   box.sh SUITE HOST BOX     HOST: a root folder with Vagrant and qemu-img; BOX: the file to make
set -euo pipefail

here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
# shellcheck source=testbed/provision.sh
. "$here/../../testbed/provision.sh"

disk_gb=20
# What Debian's own box has: https://wiki.debian.org/Teams/Cloud/VagrantBaseBoxes
box_packages=(ca-certificates dbus isc-dhcp-client linux-image-amd64 openssh-server rsync sudo)

stock_sources() {
  cat <<END
deb http://deb.debian.org/debian $image_suite main
deb http://deb.debian.org/debian $image_suite-updates main
deb http://security.debian.org/debian-security $image_suite-security main
END
}

# The user, key and rights that Vagrant asks of a base box.
add_vagrant_user() {
  local root=$1 key=$2
  chroot "$root" useradd --create-home --shell /bin/bash vagrant
  install -d -m 700 "$root/home/vagrant/.ssh"
  install -m 600 "$key" "$root/home/vagrant/.ssh/authorized_keys"
  chroot "$root" chown -R vagrant:vagrant /home/vagrant/.ssh
  echo 'vagrant ALL=(ALL) NOPASSWD: ALL' >"$root/etc/sudoers.d/vagrant"
}

settle() {
  local root=$1
  echo '/dev/vda / ext4 errors=remount-ro 0 1' >"$root/etc/fstab"
  printf 'auto lo eth0\niface lo inet loopback\niface eth0 inet dhcp\n' >"$root/etc/network/interfaces"
  echo "$image_suite" >"$root/etc/hostname"
  # This machine's mirror and settings stay outside: the Vagrantfile has to bring them.
  rm -f "$root/etc/apt/apt.conf.d/99mmdebstrap" "$root"/etc/apt/sources.list.d/*
  stock_sources >"$root/etc/apt/sources.list"
}

box_files() {
  cat >metadata.json <<END
{"provider": "libvirt", "format": "qcow2", "virtual_size": $disk_gb}
END
  cat >Vagrantfile <<'END'
Vagrant.configure("2") do |config|
  config.vm.provider "libvirt" do |machine|
    machine.kernel = File.join(__dir__, "kernel")
    machine.initrd = File.join(__dir__, "initrd")
    machine.cmd_line = "root=/dev/vda ro net.ifnames=0 console=ttyS0"
  end
end
END
}

build_box() {
  local host=$1 box=$2 work=$3 root=$3/root key
  key=$(find "$host/usr/share" -name vagrant.pub -print -quit)
  debian_root "$root" --variant=important --format=directory \
    "--include=$(comma_separated "${box_packages[@]}")"
  add_vagrant_user "$root" "$key"
  settle "$root"
  cd "$work"
  cp "$root"/boot/vmlinuz-* kernel
  cp "$root"/boot/initrd.img-* initrd
  mke2fs -q -t ext4 -d "$root" "$host/disk.raw" "${disk_gb}G"
  chroot "$host" qemu-img convert -O qcow2 /disk.raw /disk.qcow2
  mv "$host/disk.qcow2" box.img
  rm "$host/disk.raw"
  box_files
  tar -cf "$box" metadata.json Vagrantfile box.img kernel initrd
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
image_suite=$1
build_box "$2" "$3" "$work"
