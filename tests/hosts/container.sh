#!/bin/bash
# Executed in a Debian root of its own by tests.hosts: builds Railbed's container with a Docker Engine
# of that root, and does what the guide on installing says, as its user. No registry is asked: the
# image debian:13 is made of the root itself.
#
#   container.sh ROOT_TAR
set -euo pipefail
clone=/railbed

# step COMMAND...: what a user types, what it says, and how it ended.
step() {
  local status=0
  printf '$ '
  printf '%q ' "$@"
  echo
  "$@" || status=$?
  printf '[exit code %d]\n\n' "$status"
  return "$status"
}

# refused WORDS COMMAND...: the command must end with exit code 3, and say the words.
refused() {
  local words=$1 status=0 said
  shift
  said=$(step "$@" 2>&1) || status=$?
  echo "$said"
  [[ $status == 3 && $said == *"$words"* ]] || exit 1
}

state() { ip -brief link; ip netns; ps -eo args --no-headers | grep -E 'ovs|controller|agents' | grep -v grep || true; }

apt-get -qq update
apt-get -qq --yes install --no-install-recommends docker.io docker-cli docker-buildx iproute2 procps >/dev/null
dockerd --bridge=none --iptables=false --ip-forward=false >/var/log/dockerd.log 2>&1 &
until docker version >/dev/null 2>&1; do sleep 0.1; done
docker import "$1" debian:13 >/dev/null

# Without a bridge of Docker's, the build takes this root's own network.
step docker build --quiet --network host -t railbed "$clone"
useradd --create-home somebody
install -d -o somebody /home/somebody/experiment
cd /home/somebody/experiment
before=$(state)
run=(docker run --rm -v "$PWD:/work" railbed)
privileged=(docker run --rm --privileged -v "$PWD:/work" railbed)
step "${run[@]}" check quickstart
refused 'use `--proxies process`' "${privileged[@]}" demo
refused 'docker run --privileged' "${run[@]}" demo --proxies process
refused 'datapath' "${privileged[@]}" verify quickstart --proxies process --datapath kernel
step "${privileged[@]}" demo --proxies process
# What is left: runs of their user, and nothing else.
[[ $(find . ! -user somebody | wc -l) == 0 && $(find runs -name result.json | wc -l) == 1 ]]
[[ $(state) == "$before" && -z $(docker ps --all --quiet) ]]
