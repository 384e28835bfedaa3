"""`fly-report`: one flight, or a comparison of several, as a self-contained HTML page."""
