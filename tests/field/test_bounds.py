"""Bounds of fits contain the truth about as often as they promise, whatever the residuals are correlated over."""

from types import SimpleNamespace

import numpy as np
import pytest

from gate_racer.field.identify.regression import Interval, fit_rate, half_widths

SECONDS, STEP_S, RUNS = 60.0, 0.02, 100


def correlated(rng, n, tau_s):
    """Return a unit first-order Markov process of n samples; white for tau_s 0."""
    a = np.exp(-STEP_S / tau_s) if tau_s else 0.0
    x, white = np.zeros(n), rng.normal(0, np.sqrt(1 - a * a), n)
    x[0] = rng.normal()
    for k in range(1, n):
        x[k] = a * x[k - 1] + white[k]
    return x


@pytest.mark.parametrize(("tau_s", "share"), [(0.0, 0.0), (0.2, 1.0), (1.0, 1.0), (1.0, 0.2)])
def test_bounds_hold_in_95_of_100_fits(tau_s, share):
    """Fit an offset and a slowly varying effect, as thrust and drag are; a fifth of the error is correlated at least."""
    t = np.arange(0.0, SECONDS, STEP_S)
    A, true, held = np.column_stack([np.ones(len(t)), np.sin(0.7 * t) + np.sin(2.9 * t)]), np.array([2.0, 0.3]), 0
    for seed in range(RUNS):
        rng = np.random.default_rng(seed)
        error = share * correlated(rng, len(t), tau_s) + (1 - share) * rng.normal(0, 1, len(t))
        x = np.linalg.lstsq(A, A @ true + error, rcond=None)[0]
        held += np.count_nonzero(np.abs(x - true) < half_widths(A, A @ x - A @ true - error, t))
    assert 0.92 < held / (2 * RUNS) <= 0.995


def test_a_log_of_seconds_has_no_bound():
    t = np.arange(0.0, 1.5, STEP_S)
    assert half_widths(np.ones((len(t), 1)), np.ones(len(t)), t) == [np.inf]


@pytest.mark.parametrize(
    ("follows", "gain", "fault"), [(1.0, 1.0, False), (-1.0, None, True), (0.2, None, False), (-0.2, None, False)]
)
def test_rates_that_their_commands_hardly_explain_tell_neither_gain_nor_sign(follows, gain, fault):
    """In a hover the commands answer noise, and what follows them drowns in it."""
    rng = np.random.default_rng(0)
    command = 0.1 * correlated(rng, 3000, 0.1)
    measured = follows * command + 0.03 * correlated(rng, 3000, 0.1)
    log = SimpleNamespace(t=STEP_S * np.arange(3000), valid=np.ones(3000, bool))
    log.omega_cmd, log.omega_b = (np.column_stack([one] * 3) for one in (command, measured))
    rate = fit_rate([log], 0, Interval(0.0, 0.0, 0.01))
    assert (rate.gain and rate.gain.value) == (gain and pytest.approx(gain, abs=0.05)) and bool(rate.fault) == fault
