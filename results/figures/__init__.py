"""Figures for a paper, as SVG and PNG: labelled axes with units, legible in print without colour.

Importing matplotlib takes a second: commands import this package only when they draw.
"""
