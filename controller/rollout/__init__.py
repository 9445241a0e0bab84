"""The order in which rules change, so that packets in flight still arrive and never loop.

Paths over transit GPUs are excepted.
"""
