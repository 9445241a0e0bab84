"""Access to the kernel, for all rooms: namespaces, netlink, sockets, processes, /proc."""
