#!/bin/bash
# The entry of the container. Files that it makes belong to the owner of the folder that is mounted, as
# those of `sudo` belong to its caller.
SUDO_UID=$(stat -c %u .) SUDO_GID=$(stat -c %g .)
export SUDO_UID SUDO_GID
exec /railbed/railbed "$@"
