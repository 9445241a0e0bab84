"""OpenFlow messages and sessions, host routes over netlink."""
