"""The path of every packet in any health, for the controller and the prediction alike."""
