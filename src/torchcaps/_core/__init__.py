"""Shared foundations without capsule logic: types, errors, files, devices."""
