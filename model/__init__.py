"""The domain: pure values and functions. No I/O, no root, no clock."""
