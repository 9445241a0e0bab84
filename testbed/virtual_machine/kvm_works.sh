#!/bin/bash
#   kvm_works.sh [DEVICE [LIMIT]]
#
# Exit code 0 when a guest runs under KVM here, 1 when none does, found within LIMIT seconds. /dev/kvm can be
# there and a guest be so slow that it seems to hang, as on some cloud machines that are virtual
# themselves. Without the right to try, and without sudo, KVM is not used: slow is better than a hang.
set -euo pipefail
device=${1:-/dev/kvm}
limit_s=${2:-5}
written=33

[[ -e $device ]] || exit 1
may_try=()
[[ -w $device ]] || may_try=(sudo --non-interactive)
sector=$(mktemp)
trap 'rm -f "$sector"' EXIT
# A boot sector that counts down from 100 000 000, which a processor does in 0.1 s, writes 16 to port
# 0xf4, where isa-debug-exit ends QEMU with exit code 2 x 16 + 1, and halts.
{
  printf '\x66\xb9\x00\xe1\xf5\x05\x66\x49\x75\xfc'
  printf '\xba\xf4\x00\xb0\x10\xee\xf4\xeb\xfd'
  head -c 491 /dev/zero
  printf '\x55\xaa'
} >"$sector"
status=0
"${may_try[@]}" timeout --kill-after=1 "$limit_s" qemu-system-x86_64 -accel kvm -nodefaults -display none \
  -device isa-debug-exit,iobase=0xf4,iosize=4 -drive "file=$sector,format=raw" >/dev/null 2>&1 ||
  status=$?
((status == written)) && exit
[[ -w $device ]] ||
  echo "railbed: this user may not use $device, so QEMU emulates, slowly: 'sudo adduser $(id -un) kvm', and log in again." >&2
exit 1
