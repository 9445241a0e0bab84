"""Commands about stored runs."""
