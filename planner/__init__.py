"""`plan-track`: the time-optimal trajectory through the gates, and the certificate that it can be flown."""
