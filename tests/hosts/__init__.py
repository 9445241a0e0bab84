"""Railbed on other hosts: Debian's releases in roots of their own, a container, a Vagrant box."""
