"""The program in each GPU proxy, and its client outside."""
