"""The training configurations that come with Railbed, and those of a user's own."""
