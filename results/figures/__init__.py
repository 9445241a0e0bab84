"""Figures, legible in print without colour. Importing matplotlib takes a second: only to draw."""
