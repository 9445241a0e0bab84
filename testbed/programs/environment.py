"""Where a program's ranks run: their environments, as torchrun sets them; mpirun's; containers.

mpirun starts a daemon on each host through a launch agent, which stands in for ssh: the agent here
enters the network namespace of the proxy that has the host's address. Every proxy is a host with
one slot. Sources: PyTorch's documentation of torchrun, "Environment Variables"; the man page
mpirun(1) of Open MPI 4.1, and `ompi_info --all`.
"""

import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from itertools import groupby
from pathlib import Path

from docker.errors import ImageNotFound

from linux.processes.run_lock import RUN_LABEL, RunLock
from linux.processes.threads import in_threads
from model.errors import NotReady
from model.fabric.addressing import nic_address
from model.fabric.topology import Gpu
from testbed.nodes.docker_engine import answering, container_name, docker_client
from testbed.nodes.gpu_proxies import NOBODY

# Hosts are told apart by their names, in a UTS namespace (namespaces(7)) for each.
AGENT = """#!/bin/sh
# Stands in for ssh: HOST COMMAND...
case $1 in
{cases}
*) echo "railbed: no GPU proxy has the address $1" >&2; exit 1 ;;
esac
shift
exec nsenter --net=/proc/$process/ns/net unshare --uts \\
  sh -c "echo $name >/proc/sys/kernel/hostname; $*"
"""
# The port of rank 0 at which ranks meet; torchrun's default.
MASTER_PORT = 29500
NIC_INTERFACE = "nic0"
# More than agents have: a program loads its libraries.
LIMITS = {"mem_limit": "4g", "memswap_limit": "4g", "pids_limit": 512}
TMPFS = {"/tmp": "size=256m,nosuid,nodev"}


def rank_environment(rank: int, gpus: Sequence[Gpu]) -> dict[str, str]:
    """Return the variables of a rank; `gpus` has the GPU of each rank, domain by domain.

    An HB domain stands for a node. The address of a rank is that of its NIC, for everyone.
    """
    nodes = [list(node) for _, node in groupby(gpus, key=lambda gpu: gpu.domain)]
    place = next(number for number, node in enumerate(nodes) if gpus[rank] in node)
    addresses = [str(nic_address(gpu)) for gpu in gpus]
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(len(gpus)),
        "LOCAL_RANK": str(nodes[place].index(gpus[rank])),
        "LOCAL_WORLD_SIZE": str(len(nodes[place])),
        "GROUP_RANK": str(place),
        "GROUP_WORLD_SIZE": str(len(nodes)),
        "MASTER_ADDR": addresses[0],
        "MASTER_PORT": str(MASTER_PORT),
        "RAILBED_ADDRESS": addresses[rank],
        "RAILBED_ADDRESSES": ",".join(addresses),
        # PyTorch's gloo would take the address of the machine's name instead.
        "GLOO_SOCKET_IFNAME": NIC_INTERFACE,
    }


def open_mpi_environment(
    folder: Path, gpus: Sequence[Gpu], process_ids: Mapping[str, int]
) -> dict[str, str]:
    """Write the launch agent and the list of hosts to `folder`; return the variables for mpirun."""
    agent, hosts = folder / "launch-agent", folder / "hosts"
    cases = (
        f"{nic_address(gpu)}) process={process_ids[gpu.name]} name={shlex.quote(gpu.name)} ;;"
        for gpu in gpus
    )
    agent.write_text(AGENT.format(cases="\n".join(cases)))
    agent.chmod(0o755)
    hosts.write_text("".join(f"{nic_address(gpu)} slots=1\n" for gpu in gpus))
    parameters = {
        "plm_rsh_agent": str(agent),
        # The daemons are started by mpirun alone, and stay its children.
        "plm_rsh_no_tree_spawn": "1",
        "orte_leave_session_attached": "1",
        "orte_default_hostfile": str(hosts),
        "orte_tmpdir_base": str(folder),  # files left there are removed with the run
        "orte_tag_output": "1",  # each line begins with the rank that wrote it
        "rmaps_base_oversubscribe": "1",
        "hwloc_base_binding_policy": "none",
        "mpi_yield_when_idle": "1",
        # TCP alone: proxies share a machine, and stand in for GPUs that do not.
        "pml": "ob1",
        "btl": "self,tcp",
        "oob_tcp_if_include": NIC_INTERFACE,
        "btl_tcp_if_include": NIC_INTERFACE,
    }
    return {
        **{f"OMPI_MCA_{name}": value for name, value in parameters.items()},
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }


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

        def create(gpu: str) -> list[str]:
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
                environment={"HOME": "/tmp", **environments[gpu]},
                **LIMITS,
            )
            # The engine's own client passes on both outputs and the exit code.
            return ["docker", "start", "--attach", str(container.name)]

        return dict(zip(environments, in_threads(create, environments, check), strict=True))
