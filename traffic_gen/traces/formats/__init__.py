"""The formats of traces, read and written."""
