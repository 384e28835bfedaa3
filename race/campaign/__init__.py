"""Campaigns, `race-bench`: choice.py (axes) -> case.py -> flight.py -> store.py -> tables.py, compare.py, report.py."""
