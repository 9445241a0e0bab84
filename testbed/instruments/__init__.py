"""Looking at a running fabric: links alone, CPU, pauses, flow counters, memory."""
