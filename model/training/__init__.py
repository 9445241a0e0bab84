"""Training of transformers: parameters, FLOPs, memory, traffic, iteration time, best strategy.

Bytes and seconds are of one GPU where nothing else is said. Arguments named after a parallel
degree may be numpy arrays: then all strategies are evaluated at once.
"""
