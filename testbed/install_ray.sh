#!/bin/bash
# Installs Ray, for sweeps on many machines, from ray.lock; needs no root.
#
# It is installed beside the environment's own packages, which the virtual machine has a copy of.
set -euo pipefail

# shellcheck source=testbed/provision.sh
. "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/provision.sh"

environment_ready || provision_environment_alone
use_index_of_pip
say "installing Ray into $root/.venv/ray"
logged uv pip install --python .venv/bin/python --target .venv/ray --require-hashes -r ray.lock ||
  die "Ray: 'uv pip install -r ray.lock' failed, see $log. $(remedy "Fix the network or the package index"), then run this again."
