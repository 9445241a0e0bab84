"""Figures for a paper, as SVG and PNG: labelled axes with units, legible in print without colour.

Importing matplotlib takes a second: commands import this package only when they draw.
"""

import logging

# Where nobody may write in the home folder, matplotlib makes a temporary one, and removes it.
logging.getLogger("matplotlib").setLevel(logging.ERROR)
