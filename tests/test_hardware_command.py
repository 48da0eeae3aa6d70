"""The control planes' common command line: options, errors as one line, the loop through a switch that goes away."""

from __future__ import annotations

import importlib
import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer

from cctoolkit.errors import ParameterError
from hardware.common import bmv2, command
from hardware.common.command import SwitchArgs, Work, connect, main_loop, run
from hardware.common.switch import Switch, SwitchError, SwitchGoneError
from hardware.common.wires import parse_wires

ROOT = Path(__file__).parents[1]


class Flaky(Switch):
    """A switch that is away during some of the calls, counted from 0."""

    target = "bmv2"

    def __init__(self, away: set[int] = frozenset(), refused: int = 0) -> None:  # type: ignore[assignment]
        self.away, self.refused = away, refused
        self.calls = 0
        self.did: list[str] = []

    def write_register(self, name: str, value: Any, index: int | None = None) -> None:
        self.calls += 1
        if self.calls - 1 in self.away:
            self.did.append("lost")
            raise SwitchGoneError("127.0.0.1:9090: BMv2 no longer answers")
        self.did.append(name)

    def reconnect(self, timeout_s: float = 10.0) -> None:
        if self.refused:
            self.refused -= 1
            raise SwitchGoneError("127.0.0.1:9090: BMv2 does not answer")
        self.did.append("reconnect")

    def close(self) -> None:
        self.did.append("close")


for _name in Switch.__abstractmethods__ - {"write_register", "reconnect", "close"}:
    setattr(Flaky, _name, None)
Flaky.__abstractmethods__ = frozenset()  # type: ignore[attr-defined]


def step(switch: Switch) -> None:
    switch.write_register("step", 1)


def set_up(switch: Switch) -> None:
    switch.write_register("set_up", 1)


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "_FIRST_WAIT_S", 0.01)


def ended_after(n: int, doing: Any) -> Any:
    """A step that is interrupted, as by Ctrl-C, in its n-th call."""
    calls = iter(range(1, n + 1))

    def once(switch: Switch) -> None:
        if next(calls) == n:
            raise KeyboardInterrupt
        doing(switch)

    return once


def test_the_loop_sets_up_once_and_ends_at_ctrl_c(caplog: pytest.LogCaptureFixture) -> None:
    switch = Flaky()
    with caplog.at_level(logging.INFO, "hardware"):
        main_loop(switch, ended_after(4, step), 0.001, set_up=set_up)
    assert switch.did == ["set_up", "step", "step", "step"]
    assert caplog.messages == ["stopped"]


def test_a_switch_that_goes_away_is_found_again_and_set_up_again(caplog: pytest.LogCaptureFixture) -> None:
    switch = Flaky(away={2}, refused=3)
    with caplog.at_level(logging.INFO, "hardware"):
        main_loop(switch, ended_after(5, step), 0.001, set_up=set_up)
    assert switch.did == ["set_up", "step", "lost", "reconnect", "set_up", "step", "step"]
    # one line when it goes, one when it is back, however often it was tried
    assert [m.split(";")[0] for m in caplog.messages] == [
        "127.0.0.1:9090: BMv2 no longer answers",
        "the switch is back",
        "stopped",
    ]


def test_the_pauses_between_attempts_double(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(command, "_FIRST_WAIT_S", 0.5)
    monkeypatch.setattr(command.time, "sleep", slept.append)
    main_loop(Flaky(away={0}, refused=8), ended_after(2, step), 0.001)
    assert slept == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]


def test_a_switch_lost_during_the_set_up_is_waited_for_with_growing_pauses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(command.time, "sleep", slept.append)
    switch = Flaky(away={0, 1, 2})
    main_loop(switch, ended_after(1, step), 0.001, set_up=set_up)
    assert switch.did == ["lost", "reconnect", "lost", "reconnect", "lost", "reconnect", "set_up"]
    assert slept == [0.01, 0.02, 0.04]


def test_other_errors_end_the_loop() -> None:
    def refuse(switch: Switch) -> None:
        raise SwitchError("wire: the table is full")

    with pytest.raises(SwitchError, match="full"):
        main_loop(Flaky(), refuse, 0.001)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_the_steps_keep_their_rhythm_and_leave_out_what_they_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(command, "time", clock)
    at: list[float] = []

    def slow_once(switch: Switch) -> None:
        at.append(clock.now - 1000)
        clock.sleep(0.25 if len(at) == 2 else 0.03)  # past the steps at 0.2 and 0.3

    main_loop(Flaky(), slow_once, 0.1, duration_s=0.55)
    assert at == pytest.approx([0.0, 0.1, 0.4, 0.5])


def test_a_period_is_above_0() -> None:
    with pytest.raises(ParameterError, match="period_s"):
        main_loop(Flaky(), step, 0.0)


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("switch:1234", "switch", 1234),
        ("10.0.0.1", "10.0.0.1", 9090),
        ("[2001:db8::1]:99", "2001:db8::1", 99),
        ("2001:db8::1", "2001:db8::1", 9090),
    ],
)
def test_addresses(text: str, host: str, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    monkeypatch.setattr(bmv2, "Bmv2Switch", lambda *a, **k: made.append((*a, k["namespace"])))
    connect(SwitchArgs("codel", bmv2=text, netns="left"))
    assert made == [(host, port, Path("/run/netns/left"))]


@pytest.mark.parametrize(
    "text", ["", ":9090", "switch:", "switch:x", "switch:0", "switch:65536", "switch:-1"]
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ParameterError, match="HOST:PORT"):
        connect(SwitchArgs("codel", bmv2=text))


def control(target_ms: Annotated[float, typer.Option(help="Delay.")] = 5.0) -> Work:
    """Say the target."""
    if target_ms <= 0:
        raise ParameterError(f"target_ms: {target_ms:g} must be above 0")
    return lambda switch: print(f"{switch.target} {target_ms:g}")


def other() -> Work:
    """Say the other."""
    return lambda switch: print("other")


def ended(capsys: pytest.CaptureFixture[str], *args: str, commands: Any = (control,)) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as status:
        run("codel", *commands, args=list(args))
    out = capsys.readouterr()
    return int(status.value.code or 0), out.out, out.err


def test_a_command_gets_the_switch_and_its_own_options(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    switch = Flaky()
    monkeypatch.setattr(bmv2, "Bmv2Switch", lambda *a, **k: switch)
    assert ended(capsys, "--bmv2", "localhost", "--target-ms", "7") == (0, "bmv2 7\n", "")
    assert switch.did == ["close"]
    both = (control, other)
    assert ended(capsys, "other", "--bmv2", "localhost", commands=both) == (0, "other\n", "")


def test_errors_are_one_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    status, out, err = ended(capsys, "--bmv2", "switch:x")
    assert (status, out, err) == (1, "", "codel: --bmv2: 'switch:x' must be HOST:PORT\n")
    status, out, err = ended(capsys, "--bmv2", "127.0.0.1:1")
    assert status == 1 and out == "" and err.startswith("codel: 127.0.0.1:1: ") and err.count("\n") == 1
    status, out, err = ended(capsys, "--bmv2", "127.0.0.1:1", "--bfrt", "127.0.0.1:1")
    assert status == 2 and "--bmv2 HOST:PORT" in err
    status, out, err = ended(capsys, "--target-ms", "1")
    assert status == 2 and "--bmv2 HOST:PORT" in err


def test_wrong_options_are_reported_before_the_switch_is_asked(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "connect", lambda args: pytest.fail("connected"))
    assert ended(capsys, "--bmv2", "localhost", "--target-ms", "0") == (
        1,
        "",
        "codel: target_ms: 0 must be above 0\n",
    )
    for where, option in (("bfrt", "netns"), ("bfrt", "notifications"), ("bmv2", "pipe")):
        status, _, err = ended(capsys, f"--{where}", "localhost", f"--{option}", "1")
        assert status == 2 and f"--{option} can only be used with" in err


@pytest.mark.parametrize(
    ("program", "args", "says"),
    [
        ("abc", ["--wire", "0-1"], "--wire: '0-1' must be IN:OUT"),
        ("abc", ["--wire", "0:1", "--link", "1:20"], "--link: '1:20' must be"),
        ("cbiq", ["--flow", "abc"], "flow: 'abc' is not SRC:PORT-DST:PORT"),
        ("codel", ["--wire", "0-1"], "--wire: '0-1' must be IN:OUT"),
        ("dualpi2", ["--wire", "0:1", "--target-ms", "0"], "target_ms"),
        ("ired", ["--wire", "0:1", "--min-ms", "-1"], "min_ms"),
        ("pi2", ["--wire", "0:1", "--target-ms", "0"], "target_ms"),
        ("rtt_monitor", ["--before", "0", "--rate-mbps", "0"], "rate_mbps"),
    ],
)
def test_every_program_checks_its_options_first(
    program: str, args: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody listens at this port."""
    module = importlib.import_module(f"hardware.programs.{program}.control")
    with pytest.raises(SystemExit) as status:
        run(program, module.control, args=["--bmv2", "127.0.0.1:1", *args])
    err = capsys.readouterr().err
    assert status.value.code == 1 and err.startswith(f"{program}: ") and says in err and err.count("\n") == 1


PROGRAM = """
import logging
from hardware.common import bmv2, command
from tests_command import Flaky, step
bmv2.Bmv2Switch = lambda *a, **k: Flaky()
def work(switch):
    print("ready", flush=True)
    command.main_loop(switch, step, 0.01)
    print("steps", switch.calls > 0, flush=True)
command.run("codel", lambda: work)
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_the_loop_cleanly(number: int, tmp_path: Path) -> None:
    (tmp_path / "tests_command.py").symlink_to(Path(__file__))
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "--bmv2", "localhost"],
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{tmp_path}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    time.sleep(0.2)
    process.send_signal(number)
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (0, "steps True\n")
    assert len(err.splitlines()) == 1 and err.endswith("stopped\n")


def test_wires() -> None:
    assert parse_wires(["0:1", "1:0", "0:1", "511:8"]) == {0: 1, 1: 0, 511: 8}
    for bad in (["0"], ["0:1:2"], ["0:x"], ["0:512"], ["-1:0"], ["0:1", "0:2"]):
        with pytest.raises(ParameterError, match="--wire"):
            parse_wires(bad)
