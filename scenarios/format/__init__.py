"""The files that users write: scenarios, networks, training configurations, prices."""
