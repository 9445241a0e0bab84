"""GPU proxies, Open vSwitch, the controller's process."""
