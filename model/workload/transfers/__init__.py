"""Transfers as columns, the data that they move, and the proof that they meet a demand."""
