"""The smallest problem for acados, which compiles in a second where a controller's takes five: a number is led to zero."""

from pathlib import Path
from types import ModuleType
from typing import Any

import casadi as ca
import numpy as np

from gate_racer.mpc.solvers.acados import load_generated, with_tick


def formulate(template: ModuleType, folder: Path) -> Any:
    ocp, model = template.AcadosOcp(), template.AcadosModel()
    x, u, p = (ca.SX.sym(name) for name in "xup")
    model.name, model.x, model.u, model.p, model.disc_dyn_expr = "tiny", x, u, p, x + p * u
    ocp.model, ocp.parameter_values, options = model, np.ones(1), ocp.solver_options
    options.tf = 1.0
    model.cost_y_expr, model.cost_y_expr_e = ca.vertcat(x, u), x
    ocp.cost.cost_type = ocp.cost.cost_type_e = "NONLINEAR_LS"
    ocp.cost.W, ocp.cost.W_e, ocp.cost.yref, ocp.cost.yref_e = np.eye(2), np.eye(1), np.zeros(2), np.zeros(1)
    ocp.constraints.x0 = np.zeros(1)
    options.nlp_solver_type, options.hessian_approx, options.integrator_type = "SQP_RTI", "GAUSS_NEWTON", "DISCRETE"
    return with_tick(ocp, 2, folder)


def load() -> None:
    """Generate, compile and load it, as controllers are."""
    load_generated("tiny", formulate, ["tiny"])
