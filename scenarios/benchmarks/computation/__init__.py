"""What is computed on paper, for many GPUs."""
