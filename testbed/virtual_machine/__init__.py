"""A virtual machine with Debian's own kernel, for the virtual clock and for tests."""
