"""The machine: clocks, processor time, limited resources."""
