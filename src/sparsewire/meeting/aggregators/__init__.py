"""Dedicated aggregators as processes: serving, relaying, being watched."""
