"""The running fabric: Mininet, shaped links, switches and GPU proxies."""
