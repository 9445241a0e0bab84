"""The environments of a program: of a rank, as torchrun sets it; of Open MPI's own mpirun.

mpirun starts a daemon on each host through a launch agent, which stands in for ssh: the agent here
enters the network namespace of the proxy that has the host's address. Every proxy is a host with
one slot. Sources: PyTorch's documentation of torchrun, "Environment Variables"; the man page
mpirun(1) of Open MPI 4.1, and `ompi_info --all`.
"""

import shlex
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path

from model.fabric.addressing import nic_address
from model.fabric.topology import Gpu

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
