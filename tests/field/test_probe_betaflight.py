"""A flight controller is read at rest, compared with a profile, and left alone where it may be dangerous."""

from dataclasses import replace

import pytest

import gate_racer.field.probe.cli
from gate_racer.common.errors import UserError
from gate_racer.link.msp.messages import Channels, Code, DisableFlag, StatusEx
from gate_racer.link.msp.preflight import require_safe
from gate_racer.link.msp.profile import load_betaflight
from gate_racer.link.sockets import LinkError
from tests.preflights import running

BF = load_betaflight("betaflight")
OWN = replace(BF, rates=replace(BF.rates, roll=replace(BF.rates.roll, rc_rate=60)))


def probe(*arguments):
    return gate_racer.field.probe.cli.run(gate_racer.field.probe.cli.parser().parse_args(arguments))


def test_differences_from_the_profile_are_reported_and_written(tmp_path, capsys):
    out = tmp_path / "own.yaml"
    with running(OWN) as name:
        assert probe("--set", f"link.msp={name}", "seconds=1.5", "--out", str(out)) == 1
    told = capsys.readouterr().out
    assert "BTFL 4.4.3, MSP 1.45, board STM32H743" in told and "with 40 Hz of sticks:" in told
    verdicts = {line.split()[0] + " " + line.split()[3] for line in told.splitlines() if "rates of " in line}
    assert verdicts == {"differs roll", "pass pitch", "pass yaw"}
    assert load_betaflight(str(out)).rates == OWN.rates
    assert load_betaflight(str(out)) == replace(OWN, name="own", source=load_betaflight(str(out)).source)


class Told:
    """A line on which these messages are answered."""

    def __init__(self, armed=False, aux5=1000, silent=False):
        status = StatusEx(125, 0, 33, int(armed), 0, 0, 4, 0, DisableFlag(0))
        self._messages = {} if silent else {Code.STATUS_EX: status, Code.RC: Channels((1500,) * 8 + (aux5,))}

    def ask(self, code, timeout_s):
        return self._messages.get(code)


@pytest.mark.parametrize(
    "told, words",
    [(Told(armed=True), "is armed"), (Told(aux5=1900), "override is on"), (Told(silent=True), "does not report")],
)
def test_an_armed_or_handed_over_aircraft_is_not_probed(told, words):
    require_safe(Told(), BF)
    with pytest.raises(UserError, match=words):
        require_safe(told, BF)


def test_a_real_port_wants_the_page_to_have_been_read():
    with pytest.raises(
        LinkError, match=r"may be a real aircraft: read docs/safety\.md, then add --set link\.i_have_read="
    ):
        probe("--set", "link.msp=/dev/ttyTHS1")
