"""Programs to start with `railbed exec`: they know nothing of Railbed."""
