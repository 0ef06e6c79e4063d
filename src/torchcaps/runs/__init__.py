"""Runs: their configuration and recipes, their folders, what is kept in them, and how they are opened again."""
