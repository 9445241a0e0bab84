"""The virtual clock: commands that a virtual machine executes, whose clock counts instructions."""
