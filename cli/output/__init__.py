"""Printing: tables, durations, logs."""
