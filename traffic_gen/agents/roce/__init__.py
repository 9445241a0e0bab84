"""The transport of RoCEv2 in user space: packets, queue pairs, congestion control."""
