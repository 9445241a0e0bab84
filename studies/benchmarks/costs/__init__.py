"""What a fabric costs its machine: time, memory, capacity."""
