#!/bin/bash
#   kvm_works.sh [DEVICE]
#
# Exit code 1 when no guest runs under KVM here, found within seconds; 0 when one does, or when this
# user may not try. /dev/kvm can be there and a guest be so slow that it seems to hang, as on some
# cloud machines that are virtual themselves.
set -euo pipefail
device=${1:-/dev/kvm}
limit_s=5
written=33

[[ -e $device ]] || exit 1
[[ -w $device ]] && command -v qemu-system-x86_64 >/dev/null || exit 0
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
timeout --kill-after=1 "$limit_s" qemu-system-x86_64 -accel kvm -nodefaults -display none \
  -device isa-debug-exit,iobase=0xf4,iosize=4 -drive "file=$sector,format=raw" >/dev/null 2>&1 ||
  status=$?
((status == written))
