"""GPU proxies, the Docker Engine, Open vSwitch, the controller's process."""
