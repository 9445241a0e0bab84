"""Containers of a user's image for the ranks of a program, in the networks of the GPU proxies."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

import docker
from docker.errors import ImageNotFound

from linux.processes.run_lock import RUN_LABEL, RunLock
from linux.processes.threads import in_threads
from model.errors import NotReady
from testbed.nodes.docker_engine import answering, docker_client
from testbed.nodes.engine_processes import container_name
from testbed.nodes.gpu_proxies import NOBODY

# More than agents have: a program loads its libraries.
LIMITS = {"mem_limit": "4g", "memswap_limit": "4g", "pids_limit": 512}
TMPFS = {"/tmp": "size=256m,nosuid,nodev"}


def require_image(image: str) -> None:
    """Raise `NotReady` if the engine has no such image."""
    with closing(docker_client()) as client, answering():
        try:
            client.images.get(image)
        except ImageNotFound:
            raise NotReady(
                f"image {image}: not found in the Docker Engine; "
                "`testbed/program_image.sh PACKAGE...` builds one of Debian packages"
            ) from None


def create_containers(
    image: str,
    lock: RunLock,
    folder: Path,
    arguments: Sequence[str],
    environments: Mapping[str, Mapping[str, str]],
    check: Callable[[], None],
) -> dict[str, list[str]]:
    """Create a container for each GPU that has an environment; return the commands that start them.

    Each executes `arguments` as `nobody`, without capabilities; `folder` is mounted read-only under
    the same path. By the label with the run's id, the containers are removed when the run ends.
    `check` is called meanwhile, and raises an error if the engine hangs.
    """
    with closing(docker_client()) as client, answering():
        create = partial(_create, client, image, lock, folder, arguments)
        commands = in_threads(create, environments.items(), check)
        return dict(zip(environments, commands, strict=True))


def _create(
    client: docker.DockerClient,
    image: str,
    lock: RunLock,
    folder: Path,
    arguments: Sequence[str],
    of_gpu: tuple[str, Mapping[str, str]],
) -> list[str]:
    gpu, environment = of_gpu
    proxy = container_name(lock.run_id, gpu)
    container = client.containers.create(
        image,
        list(arguments),
        name=f"{proxy}-program",
        user=f"{NOBODY}:{NOBODY}",
        labels={RUN_LABEL: lock.run_id},
        network_mode=f"container:{proxy}",
        cap_drop=["ALL"],
        security_opt=["no-new-privileges"],
        read_only=True,
        auto_remove=True,
        tmpfs=TMPFS,
        volumes={str(folder): {"bind": str(folder), "mode": "ro"}},
        working_dir=str(folder),
        environment={"HOME": "/tmp", **environment},
        **LIMITS,
    )
    # The engine's own client passes on both outputs and the exit code.
    return ["docker", "start", "--attach", str(container.name)]
