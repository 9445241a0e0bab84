"""Railbed beside others: plain Mininet, iperf3, other datapaths and shapers."""
