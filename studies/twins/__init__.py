"""Emulated twins of the paper's figures: small enough to be measured."""
