"""The controller: computes the rules and host routes that the fabric needs, and installs them."""
