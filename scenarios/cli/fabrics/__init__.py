"""Commands that bring a fabric up."""
