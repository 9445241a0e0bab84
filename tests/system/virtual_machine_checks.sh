#!/bin/bash
# Executed in the virtual machine, in a copy of this tree: each check's output and exit code go to
# files of its name in runs/checks.
mkdir -p runs/checks

check() {
  local name=$1
  shift
  "$@" >"runs/checks/$name.out" 2>"runs/checks/$name.err"
  echo $? >"runs/checks/$name.code"
}

one_small_fabric=(
  --proxies process --json --set fabric.kinds=rail-only --set fabric.domains=2 --set fabric.domain_size=2
)
short=(
  --set repeats=1 --set warmup=0 --set expect.ratio_limit=0.5 --set workloads.0.size_scale=4000
  --set workloads.1.size_scale=40 --set workloads.2.size_scale=40 --set allow_overload=true
  --set check_paths=true
)

# A kernel that lacks what a run needs: modules that are not in use go, and cannot come back.
lacking=(sch_htb cls_u32 tun bridge)
for module in "${lacking[@]}"; do
  modprobe -r "$module"
  echo "install $module /bin/false"
done >/etc/modprobe.d/lacking.conf
RAILBED_DATAPATH=user-space check doctor-lacking ./railbed doctor --proxies process
rm /etc/modprobe.d/lacking.conf

modprobe br_netfilter
# The golden measurements are a run in the kernel's datapath (test_virtual_clock.py).
check run ./railbed run quickstart "${one_small_fabric[@]}" "${short[@]}" --datapath user-space
# In one process, as the start of another takes this machine long.
RAILBED_DATAPATH=kernel check tests .venv/bin/python -m pytest -rA -q -p no:cacheprovider \
  tests/unit/test_processor.py tests/integration/test_impairments.py tests/integration/test_switch_queues.py \
  tests/integration/test_ethertype_socket.py tests/integration/test_bridges.py \
  "tests/integration/test_controller.py::test_a_gray_failure_is_found_by_probes[rail-optimized]"
