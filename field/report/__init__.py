"""`fly-report`: one flight, or several compared, on one page that opens from disk."""
