/* All stages of the horizon in one call from Python, compiled into the generated solver NAME (acados's custom update).
   Preparation (linearise, condense) and feedback (embed the state, solve the QP) are apart, as in the real-time iteration. */
#include "acados_c/ocp_nlp_interface.h"
#include "acados_solver_NAME.h"

#if CURRENT  /* acados 0.6; else 0.2 */
#define SET_BOUND(side, value) ocp_nlp_constraints_model_set(config, dims, in, out, 0, side, value)
#define SET_GUESS(stage, field, value) ocp_nlp_out_set(config, dims, out, in, stage, field, value)
#define RESET(c) NAME_acados_reset(c, 1, 0, 0, 0)
#else
#define SET_BOUND(side, value) ocp_nlp_constraints_model_set(config, dims, in, 0, side, value)
#define SET_GUESS(stage, field, value) ocp_nlp_out_set(config, dims, out, stage, field, value)
#define RESET(c) NAME_acados_reset(c, 1)
#endif

int custom_update_init_function(NAME_solver_capsule *capsule) { return 0; }
int custom_update_function(NAME_solver_capsule *capsule, double *data, int data_len) { return 0; }
int custom_update_terminate_function(NAME_solver_capsule *capsule) { return 0; }

static int phase(NAME_solver_capsule *c, int rti_phase)
{
    ocp_nlp_solver_opts_set(NAME_acados_get_nlp_config(c), NAME_acados_get_nlp_opts(c), "rti_phase", &rti_phase);
    return NAME_acados_solve(c);
}

/* p: (N + 1) x NP, row after row */
ACADOS_SYMBOL_EXPORT int tick_prepare(NAME_solver_capsule *c, double *p)
{
    int N = NAME_acados_get_nlp_plan(c)->N;
    for (int k = 0; k <= N; k++) NAME_acados_update_params(c, k, p + k * NAME_NP, NAME_NP);
    return phase(c, 1);
}

/* x0: NX in; x: (N + 1) x NX and u: N x NU out */
ACADOS_SYMBOL_EXPORT int tick_feedback(NAME_solver_capsule *c, double *x0, double *x, double *u)
{
    ocp_nlp_config *config = NAME_acados_get_nlp_config(c);
    ocp_nlp_dims *dims = NAME_acados_get_nlp_dims(c);
    ocp_nlp_in *in = NAME_acados_get_nlp_in(c);
    ocp_nlp_out *out = NAME_acados_get_nlp_out(c);
    int N = NAME_acados_get_nlp_plan(c)->N;
    SET_BOUND("lbx", x0);
    SET_BOUND("ubx", x0);
    int status = phase(c, 2);
    for (int k = 0; k <= N; k++) ocp_nlp_out_get(config, dims, out, k, "x", x + k * NAME_NX);
    for (int k = 0; k < N; k++) ocp_nlp_out_get(config, dims, out, k, "u", u + k * NAME_NU);
    return status;
}

/* the guess from which the next preparation starts; forgets what the last QP left behind */
ACADOS_SYMBOL_EXPORT void tick_start(NAME_solver_capsule *c, double *x, double *u)
{
    ocp_nlp_config *config = NAME_acados_get_nlp_config(c);
    ocp_nlp_dims *dims = NAME_acados_get_nlp_dims(c);
    ocp_nlp_in *in = NAME_acados_get_nlp_in(c);
    ocp_nlp_out *out = NAME_acados_get_nlp_out(c);
    int N = NAME_acados_get_nlp_plan(c)->N;
    (void)in;  /* of acados 0.6 only */
    RESET(c);
    for (int k = 0; k <= N; k++) SET_GUESS(k, "x", x + k * NAME_NX);
    for (int k = 0; k < N; k++) SET_GUESS(k, "u", u + k * NAME_NU);
}
