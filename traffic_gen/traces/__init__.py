"""Traces that other tools wrote: their formats, and their replay on a fabric."""
