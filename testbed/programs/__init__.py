"""Unmodified programs in the network namespaces of the GPU proxies."""
