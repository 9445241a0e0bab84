"""A virtual machine with Debian's own kernel, for tests."""
