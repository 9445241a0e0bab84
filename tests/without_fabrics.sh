#!/bin/bash
# All checks that bring no fabric up; arguments are of pytest. Fabrics are timed: these yield to them,
# and to all else (sched(7)). Two pytests at once need a --basetemp each: they clean up the default one.
set -euo pipefail
cd "$(dirname "$0")/.."
python=.venv/bin/python

echo 19 2>/dev/null >/proc/self/autogroup || true # the kernel may have no autogroups
chrt --idle --pid 0 $$

"$python" -m mypy
# The longest files come first: a machine of two cores is then busy to the end.
exec "$python" -m pytest -n 2 --dist loadfile --no-loadscope-reorder --timeout 600 \
  -m "not integration" tests/system tests/unit "$@"
