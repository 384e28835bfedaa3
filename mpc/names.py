"""Names of controllers and their solvers, which command lines offer before either is loaded."""

CONTROLLERS = CONTOURING, TRACKING = "mpcc", "tracking"
AUTO, SOLVERS = "auto", ("auto", "acados", "casadi")
