"""Failures: blackouts of pairs, and hours of faults and kills."""
