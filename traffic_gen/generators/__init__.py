"""Generators beside the agents: iperf3, and packets that scapy crafts."""
