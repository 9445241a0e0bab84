"""Network namespaces: netlink, sockets, counters."""
