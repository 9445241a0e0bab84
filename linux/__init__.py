"""Access to the kernel, for all packages: namespaces, netlink, sockets, processes, /proc."""
