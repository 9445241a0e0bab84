#!/bin/bash
# Builds an image of Debian packages for `railbed exec --image`, and prints its name.
#
#   sudo testbed/program_image.sh python3-torch python3-numpy
#
# The same packages make the same name; an image that exists is not built again.
set -euo pipefail

# shellcheck source=testbed/provision.sh
. "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/provision.sh"

(($# > 0)) || die "no packages: name those that the program needs, such as python3-torch."
((EUID == 0)) || die "building an image needs root: run 'sudo $(in_shell "$0") $*'."
mapfile -t wanted < <(printf '%s\n' "$@" | sort -u)
image=railbed-program:$(printf '%s\n' "$image_suite" "${image_recipe[@]}" "${wanted[@]}" | hash12)

build_program_image() (
  folder=$(mktemp -d) || exit
  trap 'rm -rf "$folder"' EXIT
  debian_root "$folder/root.tar" "${image_recipe[@]}" "--include=$(comma_separated "${wanted[@]}")" &&
    docker import --change "LABEL org.railbed.program=1" "$folder/root.tar" "$image"
)

provision_engine || die "the image needs a Docker Engine."
if ! timeout 10 docker image inspect "$image" >/dev/null 2>&1; then
  say "building the image $image from Debian packages: ${wanted[*]}"
  logged build_program_image ||
    die "building $image failed, see $log. Is each of these a package of Debian $image_suite: ${wanted[*]}?"
fi
echo "$image"
