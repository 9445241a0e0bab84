"""Colours of verdicts in the terminal."""

VERDICT_STYLES = {"pass": "green", "warn": "yellow", "fail": "red"}
