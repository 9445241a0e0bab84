"""The machine: clocks, processor time, modules of the kernel, limited resources."""
