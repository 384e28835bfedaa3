"""`plan-track`: the time-optimal trajectory through the gates, and the certificate that it can be flown.

Track, Vehicle, PlanOptions -> task.py -> course.py -> legs, free space, solids
models.py (thrust, body rates), terms.py (passages, clearances, view, speed, torque) -> problem.py -> nlp.py: the problem
guess.py -> search.py (guesses, meshes) -> plan.py -> Plan
stages.py -> interior.py -> fast.py: the same problem in a tenth of a second, for `fast` and re-planning
Plan -> certificate/ (independent replay, limits with tolerances, passages, clearances) -> Certificate
"""
