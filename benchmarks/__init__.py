"""Comparisons of settings, methods and peers: each script prints a table, with `--json` for results/.

results/*.json -> tables.py -> the tables of README.md and benchmarks/README.md
"""
