"""Campaigns, `race-bench`: choice.py (axes) -> case.py -> flight.py -> case.py (file) -> tables.py, compare.py, report.py."""
