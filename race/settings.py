"""Settings of `run-mpc`, `explore` and `excite`, and the options among them; docs/racing.md lists all keys."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from gate_racer.common.errors import UserError
from gate_racer.common.parts import CLASS
from gate_racer.common.settings import key, require_usual
from gate_racer.estimation.registry import DEFAULT, ESTIMATORS, VIO
from gate_racer.link.options import CAMERAS, VIEW_PORT, ConsentSettings, LinkSettings
from gate_racer.link.profile import COMMANDS
from gate_racer.mpc.names import AUTO, SOLVERS
from gate_racer.perception.registry import CLASSICAL, DETECTORS, TAUGHT
from gate_racer.sim.physics.registry import PLANTS
from gate_racer.sim.worlds.world import NOMINAL
from gate_racer.tracks.track import VADR_FRAME, Track

if TYPE_CHECKING:
    from gate_racer.link.msp.profile import BetaflightProfile
    from gate_racer.sim.physics.residual import ObservationModel

WAIT_S = 60.0  # s, default wait for a simulator in another process (chosen)
START_S = 300.0  # s, for the built-in one: it compiles at its first use, on a machine that may be loaded (chosen)
LIMIT_MB = 500.0  # MB of a flight's log: about seven minutes, mostly images
PLANT = f"plant: 1, 2 the controller's model, 3, 4 the grey-box model, {', '.join(PLANTS)}, or {CLASS}"
SURVEY = {"simulator": {"--profile": "link.profile", "--live": "link.live"}}  # options of `explore` and `excite`
RACE = {  # options of `run-mpc`, in groups
    "flight": {
        "--vehicle": "vehicle",
        "--laps": "laps",
        "--controller": "controller.name",
        "--detector": "perception.detector",
    },
    "simulator": {
        "--profile": "link.profile",
        "--live": "link.live",
        "--lockstep": "link.lockstep",
    },
    "built-in simulator": {"--world": "world.file", "--seed": "world.seed", "--camera": "world.camera"},
    "records": {"--log": "record.log", "--view": "record.view"},
}


@dataclass(frozen=True)
class ControllerSettings:
    name: str = key(
        AUTO,
        f"mpcc (auto), tracking (auto with slots), a YAML file of settings, a learned policy (name or .onnx), or {CLASS}",
        "NAME",
    )
    solver: str = key(AUTO, "`casadi` needs no compiler", choices=tuple(SOLVERS))
    command: str = key(AUTO, "kind of set-point; `auto` is the profile's", choices=(AUTO, *COMMANDS))

    @property
    def flies_plan(self) -> bool:
        """Whether a plan is flown; learned policies need none. Raises UserError for a class that cannot be loaded."""
        from gate_racer.mpc.registry import needs_plan

        return needs_plan(self.name)


@dataclass(frozen=True)
class ExploreSettings:
    opening_m: float = key(VADR_FRAME.opening_m, "side length of the openings, m", positive=True)
    room: str = key(
        "",
        "NORTH,EAST,SOUTH,WEST,UP,DOWN: distances from the pad to walls, ceiling and floor, m, inf where there is none;"
        " the nose is north if no ATTITUDE is sent",
    )
    excite: str = key("", "manoeuvres before the first gate, as `excite.manoeuvres`")


@dataclass(frozen=True)
class ExciteSettings:
    manoeuvres: str = key("all", "all, or those that identify-vehicle suggests, such as `0.7,0.8,yaw,speed`")


@dataclass(frozen=True)
class GuidanceSettings:
    retry: bool = key(True, "repeat a missed gate, and search for gates after losing the estimate")


@dataclass(frozen=True)
class PilotLinkSettings(LinkSettings, ConsentSettings):
    live: bool = key(False, "connect to a simulator in another process")
    lockstep: bool = key(
        False, "run the simulator in this process, as fast as possible; with --live connect to race-sim --lockstep"
    )
    msp: str = key("", "a Betaflight on a serial port or `tcp:HOST:PORT`, see docs/betaflight.md")
    preflight: Path | None = key(
        None, "start only if the aircraft matches this file of `preflight`; required for a real port"
    )
    shadow: bool = key(False, "with `link.msp`: run everything except stick output while a person flies")
    sitl: Path | None = key(None, "Betaflight's SITL program as flight controller of the built-in simulator")
    vision: str = key("", "images from RflySim, such as `rflysim://127.0.0.1:20010?config=Config.json`")
    video: str = key(
        "",
        "receive video on this address, HOST:PORT, else port 5600 of `link.listen`; or take the images of a camera, such as"
        " `v4l2:/dev/video0`, see docs/machines.md",
    )
    check: bool = key(True, "refuse to start if the simulator contradicts profile or track")
    timeout_s: float | None = key(
        None, f"time to wait for a simulator, s; else {WAIT_S:g}, for the built-in one {START_S:g}", positive=True
    )

    @property
    def camera(self) -> str:
        """The camera in place of a video stream; empty for the stream."""
        return self.video if self.video.partition(":")[0] in CAMERAS else ""

    @property
    def wait_s(self) -> float:
        return self.timeout_s if self.timeout_s is not None else WAIT_S if self.live else START_S

    def require_kind(self, msp: "BetaflightProfile | None") -> None:
        """Check the keys against the kind of the profile, MAVLink or MSP. Raises UserError where they do not fit."""
        if self.camera and not (self.live and not self.lockstep):
            raise UserError(f"link.video {self.video}: needs --live without --lockstep: a camera waits for nobody")
        if not self.msp:
            require_usual(self, ("preflight", "shadow"), "needs --live and link.msp, a flight controller", "link.")
        if self.sitl is not None and (msp is None or self.live):
            raise UserError("link.sitl: needs --profile betaflight without --live; with --live, give it to race-sim")
        if msp is None:
            self._require_mavlink()
            return
        if bool(self.msp) is not self.live:
            raise UserError(f"--profile {self.profile}: needs both --live and link.msp, or neither for a simulation")
        unfit = f"not available with the MSP profile {self.profile}"
        require_usual(self, ("vision", "peer", "listen", "signing_key"), unfit, "link.")
        if self.live:
            if self.lockstep:
                raise UserError(f"--lockstep: cannot be combined with --live and the MSP profile {self.profile}")
            from gate_racer.link.msp.ports import may_be_aircraft, require_consent

            require_consent(self.msp, self.i_have_read)
            if may_be_aircraft(self.msp) and self.preflight is None and not self.shadow:
                remedy = "run preflight --out FILE, then add --set link.preflight=FILE"
                raise UserError(f"{self.msp} may be a real aircraft: {remedy}")

    def _require_mavlink(self) -> None:
        if self.msp or self.i_have_read:
            raise UserError(f"link.msp: profile {self.profile} is for MAVLink; MSP needs --profile betaflight or alike")
        if not self.live:
            names = "peer", "listen", "video", "signing_key", "vision"
            require_usual(self, names, "needs --live, a simulator in another process", "link.")
        if self.vision and self.video:
            raise UserError("link.vision: cannot be combined with link.video")


@dataclass(frozen=True)
class PerceptionSettings:
    detector: str = key(
        CLASSICAL, "gate detector, or FILE.onnx of train-detector", choices=DETECTORS, suffix=TAUGHT, part=True
    )
    estimator: str = key(DEFAULT, "state estimator", choices=tuple(ESTIMATORS), part=True)
    pose: bool = key(False, "use position and velocity if the simulator sends them")


@dataclass(frozen=True)
class FlownPlanSettings:
    folder: Path = key(Path("plans"), "folder of plans")
    improve: bool = key(False, "update vehicle, map and reserve from the logs of the last runs, and print the reasons")
    replan: bool = key(False, "re-plan in flight if the vehicle performs better than its file, see docs/planning.md")
    uncertified: bool = key(False, "fly a plan without a valid certificate")


@dataclass(frozen=True)
class RivalSettings:
    grid: str = key("", "K/N[:M], with `link.live`: start position K of N, M m apart (1), see race-sim --pilots")
    rivals: str = key(
        "unknown",
        "`told` uses the rivals' states that race-sim sends with `rivals.publish_states`",
        choices=("unknown", "told"),
    )


@dataclass(frozen=True)
class RecordSettings:
    log: Path = key(
        Path("logs"), "log to write (.mcap), with the plot beside it, or a folder for a new one", "FILE|FOLDER"
    )
    view: str = key(
        "",
        f"stream the flight to Foxglove by WebSocket, at 127.0.0.1:{VIEW_PORT} if no address is given",
        "HOST:PORT",
        const=f"127.0.0.1:{VIEW_PORT}",
    )
    limit_mb: float = key(
        LIMIT_MB,
        "maximum size of the log, MB; images stop at 80 % of it; the default is about seven minutes",
        positive=True,
    )


@dataclass(frozen=True)
class WorldSettings:
    file: str = key(
        NOMINAL, "deviations of the simulated world from track and vehicle, see docs/worlds.md", "FILE[:SEED]"
    )
    seed: int = key(0, "random seed of the simulator's noise and scenery", "N", least=0)
    style: str = key("race", "rendering style: name or YAML file")
    vio: str = key("", "errors of a VIO on board, which then sends ODOMETRY: a size of race-bench make-errors", "SIZE")

    def require_vio(self) -> None:
        """Check the errors of the simulated VIO, if there is one. Raises UserError for an unknown size."""
        if self.vio:
            from gate_racer.race.campaign.residuals import sizes

            sizes(self.vio, "world.vio")

    def vio_errors(self, track: Track) -> "ObservationModel | None":
        """Return the errors of the simulated VIO, None if there is none. Raises UserError for an unknown size."""
        if not self.vio:
            return None
        from gate_racer.race.campaign.residuals import errors_along, sizes

        return errors_along(track, sizes(self.vio, "world.vio"))


@dataclass(frozen=True)
class BuiltInSettings(WorldSettings):
    camera: str = key(
        "rendered",
        "rendered, or with --lockstep projected: corners without an image",
        choices=("rendered", "projected"),
    )
    plant: str = key("", f"{PLANT}; else the most detailed that the vehicle has")


@dataclass(frozen=True)
class RunSettings:
    vehicle: str = key("dcl", "name or YAML file", "NAME")
    laps: int = key(1, "number of laps", "N")
    controller: ControllerSettings = field(default_factory=ControllerSettings)
    excite: ExciteSettings = field(default_factory=ExciteSettings)
    explore: ExploreSettings = field(default_factory=ExploreSettings)
    guidance: GuidanceSettings = field(default_factory=GuidanceSettings)
    link: PilotLinkSettings = field(default_factory=PilotLinkSettings)
    perception: PerceptionSettings = field(default_factory=PerceptionSettings)
    plan: FlownPlanSettings = field(default_factory=FlownPlanSettings)
    race: RivalSettings = field(default_factory=RivalSettings)
    record: RecordSettings = field(default_factory=RecordSettings)
    world: BuiltInSettings = field(default_factory=BuiltInSettings)

    def require_consistent(self) -> None:
        """Check that the settings do not contradict each other. Raises UserError where they do."""
        world, link, planless = self.world, self.link, not self.controller.flies_plan
        if not planless and self.controller.name != AUTO:
            from gate_racer.mpc.registry import controller_content

            controller_content(self.controller.name)  # before anything is planned
        if world.camera != "rendered" and (link.live or not link.lockstep):
            raise UserError(f"--camera {world.camera}: needs --lockstep without --live")
        if self.race.grid and not link.live:
            raise UserError("race.grid: needs --live and a simulator started with race-sim --pilots N")
        if self.race.rivals == "told" and not self.race.grid:
            raise UserError("race.rivals=told: needs race.grid=K/N, which decides who gives way")
        for name, given in {"--world": world.file != NOMINAL, "world.vio": bool(world.vio)}.items():
            if given and link.live:
                raise UserError(f"{name}: applies to the built-in simulator only; with --live, give it to race-sim")
        world.require_vio()
        by_vio = f"perception.estimator={VIO}" if self.perception.estimator == VIO else "world.vio" if world.vio else ""
        if by_vio and self.perception.pose:
            raise UserError(
                f"{by_vio}: cannot be combined with perception.pose, which takes ODOMETRY for the true state"
            )
        for name, other in {"link.shadow": link.shadow, "race.grid": self.race.grid}.items():
            if planless and other:
                raise UserError(f"--controller {self.controller.name}: flies without a plan, which {name} needs")
            if self.plan.replan and other:
                raise UserError(f"plan.replan: cannot be combined with {name}")
        if self.plan.replan and planless:
            raise UserError(f"plan.replan: cannot be combined with {self.controller.name}, which flies without a plan")
