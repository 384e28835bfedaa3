"""`plan-track`: the time-optimal trajectory through the gates, and the certificate that it can be flown.

Track, Vehicle, PlanOptions -> task.py -> course/ -> legs, free space, solids
models.py (thrust, body rates), problem/bounds.py (the track's bounds), problem/terms.py (speed, thrust rate, torque): limits
legs, limits -> problem/problem.py -> search/ (guesses, meshes) -> plan.py -> Plan
Plan -> certificate/ (independent replay, limits with tolerances, passages, clearances) -> Certificate
"""
