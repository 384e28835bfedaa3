"""Errors of an odometry learned from flights: realisations are as large as the errors, and change as slowly, at any size."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.optimize import approx_fprime
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from gate_racer.sim.physics import residual as gaussian_process
from gate_racer.sim.physics.residual import Draw, Kernel, ObservationModel, passes
from gate_racer.vehicle.rotation import from_euler, matrix

SIZES = np.repeat([0.01, 0.1, 0.3], 3)  # m, m/s, rad: a column of errors each
SEEDS = 20


def lap(n):
    """A banked circle: its phase, and states along it."""
    s = np.linspace(0, 2 * np.pi, n, endpoint=False)
    x = np.zeros((n, 14))
    x[:, :3] = np.column_stack([20 * np.cos(s), 20 * np.sin(s), -2 + 0 * s])
    x[:, 3:7] = [from_euler(0.6, 0, a) for a in s]
    x[:, 7:10] = np.column_stack([-8 * np.sin(s), 8 * np.cos(s), 0 * s])
    return s, x


def waves(rng, s):
    """Nine errors along a lap, of unit variance in the mean over seeds: the slower, the larger, and a little noise."""
    k, at = np.arange(5)[:, None], s[:, None, None]
    size = np.exp(-((k / 2.0) ** 2) / 2) * np.where(k, 1.0, np.sqrt(0.5))
    a = size / np.sqrt((size**2).sum()) * rng.normal(size=(2, 5, 9))
    return (a[0] * np.sin(k * at) + a[1] * np.cos(k * at)).sum(1) + 0.05 * rng.normal(size=(len(s), 9))


def drawn(model, x):
    return np.array([model.sample(np.random.default_rng(k)).errors(x) for k in range(SEEDS)])


def rms(errors):
    """Return the rms (3,) of the columns grouped by kind."""
    return np.sqrt((errors**2).reshape(-1, 3, 3).mean(axis=(0, 2)))


def correlation(laps, lag):
    """(3,) of errors (..., n, 9) along closed laps, over a share of the lap, columns of one size together."""
    other = np.roll(laps, round(lag * laps.shape[-2]), axis=-2)
    a, b, ab = ((p * q).reshape(-1, 3, 3).mean((0, 2)) for p, q in ((laps, laps), (other, other), (laps, other)))
    return ab / np.sqrt(a * b)


@pytest.fixture(scope="module")
def own():
    s, x = lap(24)
    rng = np.random.default_rng(1)
    errors = np.array([SIZES * waves(rng, s) for _ in range(3)])
    model = ObservationModel.fit(np.tile(x, (3, 1)), errors.reshape(-1, 9), np.repeat(range(3), 24))
    _, between = lap(72)
    return SimpleNamespace(model=model, errors=errors, x=between, draws=drawn(model, between))


@pytest.fixture(scope="module")
def mixed():
    """Three laps with the same errors, and noise of half their size from sample to sample."""
    s, x = lap(24)
    rng = np.random.default_rng(2)
    common = waves(rng, s)
    common *= SIZES / common.std(axis=0)
    errors = np.array([common + 0.5 * SIZES * rng.normal(size=(24, 9)) for _ in range(3)])
    model = ObservationModel.fit(np.tile(x, (3, 1)), errors.reshape(-1, 9), np.repeat(range(3), 24))
    return SimpleNamespace(model=model, errors=errors, common=common, draws=drawn(model, x))


def test_draws_are_as_large_change_as_fast_and_share_as_much_as_the_errors(own, mixed):
    for learned in (own, mixed):
        assert rms(learned.draws) == pytest.approx(rms(learned.errors), rel=0.1)
    for lag in (1 / 24, 1 / 12, 1 / 8):
        assert correlation(own.draws, lag) == pytest.approx(correlation(own.errors, lag), abs=0.25)
    assert correlation(own.draws, 1 / 72).min() > 0.9, "and smoothly between the samples"
    mean = np.sqrt((own.draws.mean(0) ** 2).mean()) / np.sqrt((own.draws**2).mean())
    assert mean < 0.75
    alike = [np.corrcoef(mixed.draws.mean(0)[:, k], mixed.common[:, k])[0, 1] for k in range(9)]
    assert min(alike) > 0.9


def test_noise_is_found_drawn_and_forgotten_over_a_sample(mixed):
    found = np.array([kernel.noise for kernel in mixed.model.kernels])
    assert found == pytest.approx(np.full(9, 0.2), abs=0.12)
    left = mixed.draws - mixed.draws.mean(0)
    assert np.abs(correlation(left, 1 / 24)).max() < 0.45 and np.abs(correlation(left, 1 / 6)).max() < 0.2


def test_a_lap_is_a_pass_of_its_own_as_a_flight_is(own):
    _, x = lap(24)
    for flight in (np.zeros(72, int), np.repeat(range(3), 24), np.repeat([0, 0, 1], 24)):
        assert np.array_equal(passes(np.tile(x, (3, 1)), flight), np.repeat(range(3), 24))
    again = ObservationModel.fit(np.tile(x, (3, 1)), own.errors.reshape(-1, 9))
    assert all(np.array_equal(a, b) for a, b in zip(again.arrays().values(), own.model.arrays().values(), strict=True))


def test_the_gradient_of_the_likelihood_is_its_slope():
    rng = np.random.default_rng(5)
    z, flight, y = rng.normal(size=(30, 3)), np.repeat(range(3), 10), rng.normal(size=30)
    likelihood = gaussian_process._Likelihood(np.array([(c[:, None] - c) ** 2 for c in z.T]), flight[:, None] == flight)
    theta = np.log([1.0, 0.5, 2.0, 0.3, 0.7])
    slope = approx_fprime(theta, lambda at: likelihood(at, y)[0], 1e-6)
    assert likelihood(theta, y)[1] == pytest.approx(slope, rel=1e-3, abs=1e-3)


def test_draws_match_the_posterior_of_scikit_learn():
    s, x = lap(30)
    kernel = Kernel(np.full(15, 2.0), 0.9, 0.0)
    model = ObservationModel(x, np.tile(np.sin(3 * s)[:, None], 9), np.zeros(30, int), [kernel] * 9)
    _, at = lap(7)
    at[:, 2] -= 1.0
    at[:, :2] *= 1.2  # off the data
    z, y = model._scaler(features_of(at)), model._targets(model.errors)[:, 0]
    gp = GaussianProcessRegressor(ConstantKernel(0.9) * RBF(2.0), alpha=0.1, optimizer=None).fit(model._z, y)
    mean, cov = gp.predict(z, return_cov=True)
    draws = np.array([Draw(kernel, model._z, y, model.flight, np.random.default_rng(k))(z) for k in range(300)])
    cov = cov + 0.1 * np.eye(len(z))  # and the noise
    sigma = np.sqrt(np.diag(cov))
    assert np.abs(draws.mean(axis=0) - mean).max() < 5 * sigma.max() / np.sqrt(300)
    assert np.cov(draws.T) == pytest.approx(cov, abs=0.3 * sigma.max() ** 2)


def features_of(x):
    return np.array([[*row[:3], *row[7:10], *matrix(row[3:7]).ravel()] for row in x])


def test_arrays_make_the_same_model_and_others_none(own):
    _, x = lap(5)
    arrays = own.model.arrays()
    again = ObservationModel.from_arrays(**arrays).sample(np.random.default_rng(3)).errors(x)
    assert again == pytest.approx(own.model.sample(np.random.default_rng(3)).errors(x))
    for name, wrong in (("shares", arrays["shares"] + 1), ("flight", arrays["flight"] + 999), ("errors", x)):
        with pytest.raises(ValueError):
            ObservationModel.from_arrays(**arrays | {name: wrong})


def test_errors_of_a_chosen_size_have_it_and_differ_by_flight():
    way_w = np.column_stack([np.linspace(0, 300, 60), np.zeros((60, 2))])
    model, x = ObservationModel.of_size(way_w, (0.5, 0.2, 0.03), 10.0), np.zeros((60, 13))
    x[:, :3], x[:, 3] = way_w, 1.0
    errors = np.array([model.sample(np.random.default_rng(k)).errors(x) for k in range(16)])
    rms = np.sqrt((errors**2).mean(axis=(0, 1)).reshape(3, 3).mean(axis=1))
    assert rms == pytest.approx([0.5, 0.2, 0.03], rel=0.15)
    unit = errors / np.repeat([0.5, 0.2, 0.03], 3)

    for k in (1, 2, 6):
        expected = 0.98 * np.exp(-0.5 * (k * way_w[1, 0] / 10.0) ** 2)
        assert (unit[:, :-k] * unit[:, k:]).mean() == pytest.approx(expected, abs=0.1)
    assert abs((unit[:-1] * unit[1:]).mean()) < 0.15  # of two flights


def test_a_realisation_is_a_function_of_the_state_by_seed(own):
    _, x = lap(7)
    one = own.model.sample(np.random.default_rng(1))
    assert one.errors(x)[3] == pytest.approx(one.errors(x[3:4])[0])
    assert one.errors(x) == pytest.approx(own.model.sample(np.random.default_rng(1)).errors(x))
    assert np.abs(one.errors(x) - own.model.sample(np.random.default_rng(2)).errors(x)).max() > 1e-3
