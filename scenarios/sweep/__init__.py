"""Many runs: axes, points, who runs them."""
