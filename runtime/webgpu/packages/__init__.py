"""Kernel packages: reading, rendering in a sandbox, planning, checking."""
