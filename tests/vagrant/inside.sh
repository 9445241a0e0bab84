#!/bin/bash
# Started by prove.sh in namespaces of its own: turns the root folder with Vagrant into a machine
# (an overlay keeps it as it was), and does what a user of Vagrant does.
#
#   inside.sh SUITE HOST BOX WORK
set -euo pipefail
suite=$1 host=$2 box=$3 work=$4 root=$4/root

enter_host() {
  mount --make-rprivate /
  mkdir "$work/upper" "$work/scratch" "$root"
  mount -t overlay overlay -o "lowerdir=$host,upperdir=$work/upper,workdir=$work/scratch" "$root"
  mount -t proc proc "$root/proc"
  mount -t sysfs sysfs "$root/sys"
  mount --rbind /dev "$root/dev"
  mount -t tmpfs tmpfs "$root/run"
  mkdir -p "$root/railbed" "$root/run/libvirt"
  mount --bind "$work/tree" "$root/railbed"
  touch "$root/box"
  mount --bind "$box" "$root/box"
  # slirp4netns answers names there.
  echo nameserver 10.0.2.3 >"$root/etc/resolv.conf"
}

# This machine's own authorities: the Vagrantfile hands them on.
copy_authorities() {
  mkdir -p "$root/usr/local/share/ca-certificates"
  cp -r /usr/local/share/ca-certificates/. "$root/usr/local/share/ca-certificates"
}

# There is no systemd here, and no control groups: libvirt's guests are processes of root.
start_libvirt() {
  cat >>"$root/etc/libvirt/qemu.conf" <<'END'
user = "root"
group = "root"
security_driver = "none"
cgroup_controllers = []
namespaces = []
stdio_handler = "file"
END
  echo 'auth_unix_rw = "none"' >>"$root/etc/libvirt/libvirtd.conf"
  ip link set lo up
  chroot "$root" libvirtd --daemon
}

in_tree() {
  env -i HOME=/root TERM=dumb LANG=C.UTF-8 PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    "${ways[@]}" chroot "$root" sh -c 'cd /railbed && "$@"' sh "$@"
}

# step COMMAND...: what a user types, what it says, how it ended and after how long.
step() {
  local started=$SECONDS status=0
  printf '$ '
  printf '%q ' "$@"
  echo
  # What a terminal would overwrite is left out.
  in_tree "$@" 2>&1 | sed -u 's/.*\r//' || status=$?
  printf '[exit code %d after %d min %02d s]\n\n' $status $(((SECONDS - started) / 60)) $(((SECONDS - started) % 60))
  return $status
}

mapfile -t ways < <(env | grep -iE '^((https?|no)_proxy|pip_index_url)=' || true)
ways+=("RAILBED_SUITE=$suite")
enter_host
copy_authorities
start_libvirt
until ip -4 addr show tap0 2>/dev/null | grep -q inet; do sleep 0.1; done
in_tree vagrant box add --name "debian/${suite}64" --provider libvirt /box
step vagrant up --provider libvirt
# What the verdict on a slow processor is, is not this proof's to say: 0 and 1 are results.
step vagrant ssh -c 'sudo ./railbed demo' || (($? == 1))
step vagrant destroy --force
