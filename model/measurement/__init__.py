"""What was measured, as values: transfers, pauses, links, CPU windows."""
