"""Start states of episodes: at a random gate, a perturbed state of an earlier passage (Swift, Methods)."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gate_racer.sim.physics.plant import P, Q, V
from gate_racer.tracks.track import Track
from gate_racer.vehicle.rotation import Array, from_euler, product

SLOTS = 64  # passages stored per gate (chosen)
SPEED_M_S = 5.0  # m/s, initial speed at a gate without a stored passage (chosen)
CLEAR_M = 0.1  # m, clearance of the body from the gate's frame and from the pad (chosen)


@dataclass(frozen=True)
class Perturbation:
    """Bounds of the uniform perturbation of a start, per axis. Guesses: the paper does not give its perturbations."""

    position_m: float = 0.1
    velocity_m_s: float = 0.5
    attitude_rad: float = 0.1


def turned(phi: Array, q: Array) -> Array:
    """Return attitudes q (N, 4), wxyz, rotated by rotation vectors phi (N, 3), rad, world."""
    angle = np.sqrt((phi**2).sum(1))
    axis = phi * (0.5 * np.sinc(angle / (2 * np.pi)))[:, None]
    return np.stack(product((np.cos(angle / 2), *axis.T), q.T), axis=1)


class StartStates:
    """Buffer of start states (13,), the first blocks of RATES_X, by next gate, and on the pad."""

    def __init__(self, track: Track, radius_m: float, perturbation: Perturbation, slots: int = SLOTS):
        """Fill the buffer with states behind the centre of each gate, level, at SPEED_M_S. `radius_m`: of the body."""
        n = len(track.gates)
        self._perturbation = perturbation
        self.states = np.zeros((n + 1, slots, 13))
        for k, gate in enumerate(track.gates):
            along, yaw = gate.R_wg[:, 0], np.arctan2(gate.R_wg[1, 0], gate.R_wg[0, 0])
            behind = max(gate.depth_m, gate.tunnel_m) / 2 + radius_m + CLEAR_M
            first = self.states[(k + 1) % n]
            first[:, P], first[:, Q] = gate.p_wg + behind * along, from_euler(0.0, 0.0, yaw)
            first[:, V] = SPEED_M_S * along
        pad = track.start.p_wb - (radius_m + CLEAR_M) * np.array([0.0, 0.0, 1.0])
        self.states[n][:, P], self.states[n][:, Q] = pad, track.start.q_wb
        self._places = np.arange(0 if track.closed else 1, n + 1)  # an open course has no gate after its last

    def keep(self, following: NDArray[np.int64], x: Array, rng: np.random.Generator) -> None:
        """Store states x (k, 13) of gate passages by the gates (k,) that follow, each in place of a random older one."""
        self.states[following, rng.integers(self.states.shape[1], size=len(x))] = x

    def draw(self, n: int, rng: np.random.Generator) -> tuple[Array, NDArray[np.int64]]:
        """Draw n perturbed states (n, 13), and the next gate (n,) of each."""
        place = self._places[rng.integers(len(self._places), size=n)]
        x, by = self.states[place, rng.integers(self.states.shape[1], size=n)], self._perturbation
        x[:, P] += rng.uniform(-by.position_m, by.position_m, (n, 3))
        x[:, V] += rng.uniform(-by.velocity_m_s, by.velocity_m_s, (n, 3))
        x[:, Q] = turned(rng.uniform(-by.attitude_rad, by.attitude_rad, (n, 3)), x[:, Q])
        return x, place % (len(self.states) - 1)
