#!/bin/bash
# Makes a Debian machine ready for Railbed: Debian packages, the locked Python
# environment, a Docker Engine and the image of the GPU proxies.
#
#   testbed/provision.sh                 as root; does what is missing, prints nothing else
#   testbed/provision.sh --python        installs the Python environment alone; needs no root
#   testbed/provision.sh --python-ready  exit 0 when .venv is what the lock file says
#
#   RAILBED_NO_DOCKER=1        neither install, nor start, nor ask a Docker Engine
#   RAILBED_REQUIRE_DOCKER=1   a missing engine or image is an error, not a warning
#   RAILBED_PROXY_ROOT=FILE    the proxies' image is made of this tar file, built elsewhere
#   RAILBED_REBUILD_IMAGE=1    the proxies' image is built again, from today's packages
#
# All output goes to standard error: standard output belongs to the command that follows.
set -euo pipefail
# Ctrl-C ends it also where a command has not died of that: `timeout` has a process group of its own.
trap 'trap - INT && kill -INT $$' INT

root=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.." && pwd)
python=/usr/bin/python3
stamp=$root/.venv/railbed-lock
image_name_file=$root/.venv/railbed-proxy-image
log=/var/log/railbed-provision.log
user_cache=${XDG_CACHE_HOME-}
[[ $user_cache == /* ]] || user_cache=~/.cache # that of the account without HOME
((EUID == 0)) || log=$user_cache/railbed/provision.log
dockerd_log=/var/log/railbed-dockerd.log
lock_file=/run/railbed-provision.lock
lock_timeout_s=1800
apt_timeout_s=600
engine_timeout_s=60

# The hosts on which the README's commands have been executed (tests/hosts): a line for each command.
proved_hosts=$root/testbed/host/proved_hosts.csv

# Debian's mininet brings mnexec, which the PyPI package does not build. Images are of Debian's packages
# on every host: their keys come from debian-archive-keyring.
packages=(
  ca-certificates debian-archive-keyring ethtool iperf3 iproute2 iputils-ping mininet mmdebstrap mount
  openvswitch-switch procps python3 python3-venv util-linux
)

uv_version=0.13.8
uv_hashes=( # the wheels for x86_64 and aarch64
  --hash=sha256:e18a57b8b352eb7c8feb317b9f6f533c8f0ad9673fd6cf34bbe3cf1a9f6a8984
  --hash=sha256:5337c30bb893b4f9ce0ceb921ba2da0d13f649da644f40ad3bef84083bef0203
)

# The proxy image comes from Debian packages alone: there may be no image registry.
# - python3, not python3-minimal: that one has no json, ctypes, mmap, resource, dataclasses.
# - usr-is-merged instead of usrmerge, which would bring 50 MB of Perl.
# - ping loses its file capability: with all capabilities dropped the kernel would refuse
#   to start it, and it needs none where ICMP datagram sockets are allowed.
# - apt's settings go last: they name this machine's mirror and proxy.
# The suite is that of the virtual machine, too, whatever the host has: the golden measurements and the
# virtual clock's costs are of its kernel and of its Python, and would change with another.
image_suite=bookworm
# shellcheck disable=SC2016,SC2054  # $1 is the hook's, the commas are mmdebstrap's
image_recipe=(
  --variant=essential
  --include=python3,iproute2,iperf3,iputils-ping,usr-is-merged
  --hook-dir=/usr/share/mmdebstrap/hooks/merged-usr
  "--dpkgopt=path-exclude=/usr/share/doc/*"
  "--dpkgopt=path-exclude=/usr/share/info/*"
  "--dpkgopt=path-exclude=/usr/share/locale/*"
  "--dpkgopt=path-exclude=/usr/share/man/*"
  '--customize-hook=cd "$1/usr/bin" && cp ping ping.plain && mv ping.plain ping'
  '--customize-hook=rm -r "$1/etc/apt/sources.list" "$1/etc/apt/apt.conf.d/99mmdebstrap" "$1"/var/cache/debconf/*'
)
image_label=org.railbed.image=1
image_date_label=org.railbed.packages

# Messages are in English, as `remedy` reads them; sorting and letters are the same on every machine.
export LC_ALL=C.UTF-8

# What root installs must be readable by those who run without root.
umask 022

# Where `su` keeps the user's PATH, Debian's system commands are not in it.
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin

say() { echo "railbed: $*" >&2; }
warn() { say "warning: $*"; }
die() {
  say "$*"
  exit 3
}

# in_shell PATH: as a shell reads it, which takes a space for the path's end.
in_shell() { printf %q "$1"; }

# Runs a command whose output matters only when it fails.
logged() {
  local status=0
  ((EUID == 0)) || { mkdir -p "${log%/*}" && : >>"$log"; } 2>/dev/null ||
    die "log: $log cannot be written. Name another folder: 'export XDG_CACHE_HOME=FOLDER'."
  logged_bytes=$(stat -c %s "$log" 2>/dev/null || echo 0)
  "$@" >>"$log" 2>&1 || status=$?
  ((status == 0)) || last_words >&2
  return "$status"
}

# Of that command alone: the log keeps those of others.
logged_bytes=0
last_words() { tail -c "+$((logged_bytes + 1))" "$log" | tail -n 5; }

# remedy OTHERWISE: of the command that failed last, for the cause in its last words.
remedy() {
  case $(last_words) in
    *'No space left on device'* | *'enough free space'*) echo "Free disk space ('df -h' names the full disk)" ;;
    *'Could not get lock'*) echo "End the process that holds apt's lock" ;;
    *'remove is disabled'*)
      echo "It would remove installed packages: agree by running it by hand, or do without Docker (RAILBED_NO_DOCKER=1)"
      ;;
    *) echo "$1" ;;
  esac
}

# Of the clock that nobody can set, unlike bash's own.
uptime_s() { cut -d. -f1 /proc/uptime; }

hash12() { sha256sum | cut -c1-12; }

comma_separated() {
  local IFS=,
  echo "$*"
}

# --- The host ----------------------------------------------------------------

# of_host FIELD: a field of os-release(5).
of_host() { (. /etc/os-release 2>/dev/null && echo "${!1-}") || true; }

host() { echo "$(of_host PRETTY_NAME) on $(uname -m)"; }

elsewhere="use Railbed's container or its virtual machine (docs/guides/installing.md)."

warn_of_unproved_host() {
  command -v apt-get >/dev/null || return 0 # it is refused
  grep -qs "^$(of_host ID),$(of_host VERSION_ID),$(uname -m)," "$proved_hosts" ||
    warn "$(host): not shown to work here. If provisioning fails, $elsewhere"
}

# --- Debian packages ---------------------------------------------------------

wanted_packages() {
  printf '%s\n' "${packages[@]}"
  docker_wanted || return 0
  # Another build of Docker (docker-ce) stays; Debian's would not install beside it.
  command -v dockerd >/dev/null || echo docker.io
  # Docker starts no container on a kernel with AppArmor when its parser is missing.
  grep -qs Y /sys/module/apparmor/parameters/enabled && echo apparmor
  return 0
}

# missing_of PACKAGE...: those of them that are not installed.
missing_of() {
  # shellcheck disable=SC2016  # dpkg-query's own fields
  comm -23 <(printf '%s\n' "$@" | sort) \
    <(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "$@" 2>/dev/null |
      sed -n 's/^installed //p' | sort)
}

missing_packages() {
  local wanted
  mapfile -t wanted < <(wanted_packages)
  missing_of "${wanted[@]}"
}

provision_packages() {
  local wanted
  mapfile -t wanted < <(wanted_packages)
  install_missing "${wanted[@]}"
}

install_missing() {
  local missing
  mapfile -t missing < <(missing_of "$@")
  ((${#missing[@]} == 0)) || install_packages "${missing[@]}"
}

has_systemd() { [[ -d /run/systemd/system ]]; }

install_packages() {
  if has_systemd && [[ " $* " == *" docker.io "* ]]; then
    install_with_docker_masked "$@" || exit
  else
    install_with_apt "$@"
  fi
}

# Debian starts docker.service when it installs it, and at each boot; with a bridge and
# firewall rules of which this machine had none.
install_with_docker_masked() (
  trap 'of_docker unmask --runtime; of_docker disable' EXIT
  of_docker mask --runtime
  install_with_apt "$@"
)

# Units that apt has not installed are none; apt has said why.
of_docker() { logged systemctl "$@" docker.service docker.socket 2>/dev/null || true; }

install_with_apt() {
  command -v apt-get >/dev/null ||
    die "$(host): Railbed installs Debian packages with apt-get, which is not here. Missing: $*. Here, $elsewhere"
  say "installing Debian packages: $*"
  export DEBIAN_FRONTEND=noninteractive
  update_lists ||
    die "Debian packages: 'apt-get update' failed, see $log. $(remedy "Fix the network or /etc/apt"), then run this again."
  # Debian 12 has the engine's client in docker.io, Debian 13 in a package of its own.
  if [[ " $* " == *" docker.io "* ]] && apt-cache show docker-cli >/dev/null 2>&1; then set -- "$@" docker-cli; fi
  apt -y --no-install-recommends --no-upgrade --no-remove -o "DPkg::Lock::Timeout=$apt_timeout_s" \
    -o Dpkg::Options::=--force-confold install "$@" ||
    die "Debian packages: 'apt-get install $*' failed, see $log. $(remedy "Run it by hand"), then run this again."
}

apt() { logged apt-get -q "$@"; }

# DPkg::Lock::Timeout is not of the lists' lock, which a new machine's own updates hold.
update_lists() {
  local deadline=$(($(uptime_s) + apt_timeout_s))
  until apt update 2>/dev/null; do
    [[ $(last_words) == *'Could not get lock'* ]] && (($(uptime_s) < deadline)) || {
      last_words >&2
      return 1
    }
    sleep 1
  done
}

# --- The Python environment --------------------------------------------------

# A new Debian Python makes the environment stale as much as a new lock file does.
environment_hash() {
  { readlink -f "$python" && cat "$root/requirements.lock" "$root/build-constraints.txt"; } | hash12
}

environment_ready() {
  [[ -x $root/.venv/bin/python && -r $stamp && $(<"$stamp") == "$(environment_hash)" ]]
}

# pip trusts its own bundle unless told otherwise; the machine's may hold a company's root.
pip() {
  REQUESTS_CA_BUNDLE=${REQUESTS_CA_BUNDLE:-/etc/ssl/certs/ca-certificates.crt} \
    "$root/.tools/bin/python" -I -m pip --disable-pip-version-check "$@"
}

# uv does not read pip's configuration; where pip has an index of its own, so has uv.
use_index_of_pip() {
  local index
  index=${UV_DEFAULT_INDEX:-${PIP_INDEX_URL:-$(pip config get global.index-url 2>/dev/null || true)}}
  [[ -z $index ]] || export UV_DEFAULT_INDEX=$index
}

uv() { (cd "$root" && UV_PYTHON_DOWNLOADS=never UV_SYSTEM_CERTS=1 .tools/bin/uv --no-progress "$@"); }

# pip, which knows the index, ends with the Python that it was installed for; uv does not.
install_uv() {
  [[ $("$root/.tools/bin/uv" --version 2>/dev/null) == "uv $uv_version"* ]] && pip --version >/dev/null 2>&1 && return
  logged "$python" -I -m venv --clear "$root/.tools" &&
    logged pip install --no-cache-dir --only-binary :all: --require-hashes -r /dev/stdin <<<"uv==$uv_version ${uv_hashes[*]}"
}

# An environment made for the Python that is there is kept and only brought in line. Without a
# stamp its sync has not ended: packages may lack files, and uv takes them for installed.
create_environment() {
  [[ -r $stamp && -x $root/.venv/bin/python && -d $root/.venv/lib/$(basename "$(readlink -f "$python")") ]] ||
    logged uv venv --clear --python "$python" .venv
}

sync_environment() {
  rm -f "$stamp"
  logged uv pip sync --python .venv/bin/python --compile-bytecode --require-hashes \
    --build-constraints build-constraints.txt requirements.lock &&
    environment_hash >"$stamp"
}

# What pyproject.toml has as `requires-python`, and uv's wheels are of.
require_python() {
  local version
  version=$("$python" -I -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  [[ $version == 3.1[1-3] ]] ||
    die "Python environment: $python is Python $version, and Railbed needs 3.11 to 3.13. On $(host), $elsewhere"
  [[ $(uname -m) == @(x86_64|aarch64) ]] ||
    die "Python environment: $(host): packages are locked for x86_64 and aarch64. Here, $elsewhere"
}

# Root and a user may provision one clone at once: both lock its folder.
provision_environment() {
  environment_ready && return
  require_python
  {
    flock --timeout "$lock_timeout_s" 9 || die_of_lock "$root"
    environment_ready || install_environment
  } 9<"$root"
}

install_environment() {
  say "installing the locked Python environment into $root/.venv"
  install_uv ||
    die "Python environment: pip could not install uv $uv_version, see $log. $(remedy "Fix the network or pip's index"), then run this again."
  use_index_of_pip
  create_environment ||
    die "Python environment: 'uv venv' failed in $root, see $log. $(remedy "Remove $root/.venv"), then run this again."
  sync_environment ||
    die "Python environment: 'uv pip sync requirements.lock' failed, see $log. $(remedy "Fix the network or the package index"), then run this again."
}

# --- The Docker Engine -------------------------------------------------------

docker_wanted() { [[ ${RAILBED_NO_DOCKER:-} != 1 ]]; }

# The process of this machine's dockerd: one inside of a container has another PID namespace.
dockerd_process() {
  local process own
  own=$(readlink /proc/self/ns/pid)
  for process in $(pidof dockerd); do
    [[ $(readlink "/proc/$process/ns/pid") != "$own" ]] || { echo "$process" && return; }
  done
  return 1
}

# To ask a socket of systemd would start docker.service.
engine_runs() { dockerd_process >/dev/null || [[ -n ${DOCKER_HOST-} ]]; }

engine_answers() { engine_runs && timeout 10 docker version --format '{{.Server.Version}}' >/dev/null 2>&1; }

# An engine that a signal has stopped answers nobody; the program says so where it needs one.
engine_is_stopped() { grep -qs '^State:.T' "/proc/$(dockerd_process)/status"; }

# Proxies have no Docker network: without bridge and firewall rules, the engine leaves the
# machine's networking alone. It is never docker.service, whose settings are the user's.
engine_command=(dockerd --bridge=none --iptables=false --ip-forward=false)

start_dockerd() {
  say "starting a Docker Engine (log: $dockerd_log)"
  (cd / && exec setsid "${engine_command[@]}") >>"$dockerd_log" 2>&1 </dev/null &
  engine_pid=$!
  disown
}

# Ends with `systemctl stop railbed-docker`, or with the machine.
start_unit_of_systemd() {
  say "starting a Docker Engine (systemd's unit railbed-docker)"
  logged systemctl stop docker.socket || true # it would answer instead; it may not be there
  logged systemd-run --unit=railbed-docker --collect --property=Type=notify \
    --property=Delegate=yes --property=KillMode=process --property=TasksMax=infinity \
    --property=LimitNOFILE=infinity "${engine_command[@]}" &&
    engine_pid=$(dockerd_process)
}

start_engine() {
  if engine_pid=$(dockerd_process); then return; fi # it is just starting
  if has_systemd; then start_unit_of_systemd; else start_dockerd; fi
}

# engine_is_young: false also when the engine has died.
engine_is_young() {
  local age_s
  age_s=$(ps -o etimes= -p "$engine_pid") && ((age_s < engine_timeout_s))
}

# Gives up at once when the engine has died, as its log says why, or has been starting for too long.
wait_for_engine() {
  until engine_answers; do
    sleep 0.1 # `ps` of Debian 12 takes one that has just begun for 130 years old
    engine_is_young || return 1
  done
}

# A Go panic ends in a long stack; the line that says why stands above it.
last_words_of_dockerd() {
  local words
  words=$(grep -sE 'level=fatal|^failed to start daemon|^panic:' "$dockerd_log" | tail -n 1 || true)
  echo "${words:-nothing in $dockerd_log; try 'journalctl -u railbed-docker'}"
}

provision_engine() {
  engine_answers && return
  start_engine && wait_for_engine && return
  warn "Docker: no engine answers. Its last words: $(last_words_of_dockerd)" \
    "(log: $dockerd_log). Start one and run this again, or run scenarios with --proxies process."
  return 1
}

# --- The proxy image ---------------------------------------------------------

image_name() { echo "railbed-proxy:$(printf '%s\n' "$image_suite" "${image_recipe[@]}" | hash12)"; }

image_ready() { [[ ${RAILBED_REBUILD_IMAGE:-} != 1 ]] && image_exists; }

image_exists() { timeout 10 docker image inspect "$(image_name)" >/dev/null 2>&1; }

# Sources of the suite at this machine's own Debian mirrors, in one-line style, without those of others.
debian_sources() {
  local own
  own=$(of_host VERSION_CODENAME)
  # shellcheck disable=SC2016  # apt's own fields
  apt-get indextargets --format 'deb $(REPO_URI) $(RELEASE) $(COMPONENT)' \
    'Created-By: Packages' 'Origin: Debian' | sed -n "s/ ${own:-none}/ $image_suite/p" | sort -u || true
}

# debian_root TARGET OPTION...: a Debian root (folder or tar) by the machine's apt settings.
debian_root() (
  target=$1 apart=()
  shift
  # What mmdebstrap mounts as root goes with its namespace, however it ends.
  ((EUID != 0)) || apart=(unshare --mount)
  sources=$(debian_sources)
  settings=$(mktemp) || exit # for root alone: a proxy's password may be in it
  trap 'rm -f "$settings"' EXIT
  ((EUID == 0)) || chmod a+r "$settings" # another user of mmdebstrap's namespace reads it
  apt-config dump --format '%F "%v";%n' Acquire >"$settings"
  "${apart[@]}" mmdebstrap "$@" --aptopt="$settings" "$image_suite" "$target" ${sources:+-} <<<"$sources"
)

# The packages are as old as the tar file that was made of them.
import_image() {
  docker import --change "LABEL $image_label" \
    --change "LABEL $image_date_label=$(date --utc --reference="$1" +%F)" "$1" "$(image_name)"
}

# A rebuilt image takes the name from the one before, which then has none.
remove_nameless_images() { docker image prune --force --filter "label=$image_label"; }

build_image() (
  folder=$(mktemp -d) || exit
  trap 'rm -rf "$folder"' EXIT
  debian_root "$folder/root.tar" "${image_recipe[@]}" && import_image "$folder/root.tar"
)

provision_image() {
  image_ready && return
  local status=0
  if [[ -n ${RAILBED_PROXY_ROOT-} ]]; then
    logged import_image "$RAILBED_PROXY_ROOT" || status=$?
  else
    say "building the image $(image_name) from Debian packages"
    logged build_image || status=$?
    logged remove_nameless_images || true
  fi
  ((status == 0)) ||
    warn "proxy image: building $(image_name) failed, see $log." \
      "Fix it and run this again, or run scenarios with --proxies process."
  return "$status"
}

provision_docker() {
  docker_wanted || return 0
  { provision_engine && provision_image; } && return
  [[ ${RAILBED_REQUIRE_DOCKER:-} != 1 ]] || die "Docker is not ready and RAILBED_REQUIRE_DOCKER=1 asks for it."
}

# The one place from which the Python side learns the image's name.
publish_image_name() {
  local name
  name=$(image_name)
  [[ -r $image_name_file && $(<"$image_name_file") == "$name" ]] || echo "$name" >"$image_name_file"
}

# --- All of it ---------------------------------------------------------------

docker_ready() { ! docker_wanted || engine_is_stopped || { engine_runs && image_ready; }; }

all_ready() { [[ -z $(missing_packages) ]] && environment_ready && publish_image_name && docker_ready; }

provision() {
  warn_of_unproved_host
  [[ ! -x $python ]] || require_python # before packages are installed for nothing
  provision_packages
  provision_environment
  publish_image_name
  provision_docker
}

die_of_lock() { die "another provisioning has held the lock of $1 for $lock_timeout_s s. End it, then run this again."; }

# Two first runs at once would install twice; --close keeps the lock from daemons.
provision_alone() {
  local status=0
  flock --close --timeout "$lock_timeout_s" --conflict-exit-code 75 "$lock_file" "$0" --locked || status=$?
  ((status != 75)) || die_of_lock "$lock_file"
  return "$status"
}

# Whether this user may renew the environment: what root has installed, or renewed last, is root's.
environment_is_own() {
  local place
  for place in "$root" "$root/.venv" "$stamp" "$root/.tools"; do
    [[ ! -e $place || -w $place ]] || return
  done
}

provision_environment_alone() {
  environment_is_own ||
    die "the Python environment $root/.venv is missing or out of date; who may write there installs it: 'sudo $(in_shell "$root/railbed") doctor'."
  "$python" -I -c 'import ensurepip' 2>/dev/null ||
    die "Python environment: Debian's package python3-venv is not installed: 'sudo apt-get install python3-venv'."
  provision_environment
}

main() {
  case ${1-} in
    --python-ready) environment_ready ;;
    --python) environment_ready || provision_environment_alone ;;
    --locked) provision ;;
    '')
      ((EUID == 0)) || die "provisioning needs root: run 'sudo $(in_shell "$0")'."
      all_ready || provision_alone
      ;;
    *)
      say "provision.sh: unknown argument '$1'; it takes --python, --python-ready or nothing."
      exit 2
      ;;
  esac
}

# Tests source this file for its functions.
if [[ ${BASH_SOURCE[0]} == "$0" ]]; then main "$@"; fi
