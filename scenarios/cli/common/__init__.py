"""What commands share: options, output, the choice of the clock."""
