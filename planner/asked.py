"""What a plan is asked to do, as planner and certificate both read it: the gates in order, the start, what is kept clear."""

from planner.options import Initial, PlanOptions
from tracks.gate import Gate
from tracks.track import Track
from vehicle.errors import UserError
from vehicle.vehicle import Vehicle


def flown(track: Track, options: PlanOptions) -> tuple[Gate, ...]:
    """The gates of a plan, in order.

    Raises:
        UserError: the course does not allow what the options ask.
    """
    course = track.course(options.laps)
    if options.flying_lap and not track.closed:
        raise UserError(f"{track.name}: the course is not closed, so it has no flying lap")
    first = options.start.next_gate if options.start is not None else 0
    if not 0 <= first < len(course):
        raise UserError(f"{track.name}: next_gate {first}: the course has gates 0 to {len(course) - 1}")
    return course[first:]


def initial(track: Track, options: PlanOptions) -> Initial | None:
    """The state before the first leg; None for a flying lap, which begins as it ends."""
    if options.flying_lap:
        return None
    pad = track.start
    return options.start or Initial(pad.position_m, pitch_deg=pad.pitch_deg, yaw_deg=pad.yaw_deg)


def keep_clear(vehicle: Vehicle, options: PlanOptions) -> float:
    """m, from the vehicle's centre to the edge of an opening. A ball is a window for the centre already."""
    return vehicle.contact_radius_m + options.margin_m


def passage_m(vehicle: Vehicle, options: PlanOptions) -> float:
    """m, before and behind a gate's plane, over which the vehicle flies inside the opening's prism."""
    return max(vehicle.body_m) + options.margin_m


def body_half_m(vehicle: Vehicle) -> float:
    """m, from the vehicle's centre to the walls of that prism: half of its greatest side."""
    return max(vehicle.body_m) / 2
