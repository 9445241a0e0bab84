"""How verdicts look at a terminal."""

VERDICT_STYLES = {"pass": "green", "warn": "yellow", "fail": "red"}
