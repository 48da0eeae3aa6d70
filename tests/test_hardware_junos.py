"""Rules on a Junos router: over NETCONF, all of it or nothing, whatever goes wrong."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import fake_junos
import paramiko
import pytest
from fake_junos import Refusal, Router, Server

from cctoolkit.errors import ParameterError
from hardware.common.command import run_app
from hardware.router import junos
from hardware.router.junos import JunosError, JunosGoneError, JunosLockedError, JunosRouter

ROOT = Path(__file__).parents[1]
OLD = ["system host-name r1", "firewall family inet filter cct-flows term flow-100 then accept"]
RULES = """\
set class-of-service schedulers cct-0 priority low
# a comment

set firewall family inet filter cct-flows term flow-101 then accept
delete firewall family inet filter cct-flows term flow-100
"""
NEW = [
    OLD[0],
    "class-of-service schedulers cct-0 priority low",
    "firewall family inet filter cct-flows term flow-101 then accept",
]
ALL = ["lock", "load", "get-configuration", "check", "confirmed", "confirm", "discard-changes", "unlock"]


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No agent and no keys of whoever runs the tests; and ncclient looks more often what it may send."""
    monkeypatch.setattr("ncclient.transport.session.TICK", 0.005)
    for name in ("SSH_AUTH_SOCK", "JUNOS_USER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("JUNOS_USER", "lab")
    monkeypatch.setenv("JUNOS_PASSWORD", "secret")


@pytest.fixture
def device() -> Router:
    return Router(*OLD)


@pytest.fixture(params=["1.0", "1.1"])
def server(request: pytest.FixtureRequest, device: Router) -> Iterator[Server]:
    with fake_junos.serving(device, version=request.param) as server:
        yield server


one_version = pytest.mark.parametrize("server", ["1.0"], indirect=True)


@pytest.fixture
def connect(server: Server, tmp_path: Path) -> Iterator[Callable[..., JunosRouter]]:
    made = []
    known = server.write_known_hosts(tmp_path / "known_hosts")

    def connecting(**options: object) -> JunosRouter:
        made.append(JunosRouter("127.0.0.1", server.port, **{"known_hosts": known, **options}))  # type: ignore[arg-type]
        return made[-1]

    yield connecting
    for router in made:
        router.close()


def settled(device: Router, *config: str) -> None:
    """Nobody has the lock, nothing waits in the candidate, nothing for a confirmation."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        with device.state:
            if device.owner is None and not device.unconfirmed:
                break
        time.sleep(0.01)
    with device.state:
        assert device.owner is None and not device.unconfirmed
        assert device.running == list(config)
        assert device.candidate == device.running


# ---- when all goes well


def test_lines_are_loaded_checked_committed_and_confirmed(
    connect: Callable[..., JunosRouter], device: Router
) -> None:
    with connect() as router:
        done = router.apply(RULES)
        settled(device, *NEW)
    assert device.requests == [*ALL, "close-session"]
    assert (done.lines, done.committed, done.warnings) == (3, True, ())
    assert done.diff.splitlines() == [f"-{OLD[1]}", f"+{NEW[1]}", f"+{NEW[2]}"]


@one_version
def test_what_is_there_already_is_not_committed(connect: Callable[..., JunosRouter], device: Router) -> None:
    with connect() as router:
        router.apply(RULES)
        done = router.apply(RULES)
        assert (done.diff, done.committed) == ("", False)
        # the term is not there any more: a warning, no error
        assert done.warnings == ("statement not found: flow-100",)
        device.requests.clear()
        assert router.apply("\n# nothing\n") == junos.Applied(0, "", (), False)
        assert device.requests == []
    settled(device, *NEW)


@one_version
def test_comparing_changes_nothing(connect: Callable[..., JunosRouter], device: Router) -> None:
    with connect() as router:
        done = router.compare(RULES.splitlines())
        assert f"+{NEW[1]}" in done.diff and not done.committed
        settled(device, *OLD)
        assert device.requests == ["lock", "load", "get-configuration", "check", "discard-changes", "unlock"]
        with pytest.raises(JunosError, match=r"commit check: .*impossible"):
            router.compare("set impossible")
        settled(device, *OLD)


@pytest.mark.parametrize(
    "line",
    ["load merge x", "set", "request system reboot", "rollback 3", "set a\x00b", "settle x", "set a\x1b[2J"],
)
def test_only_set_and_delete_are_let_through(line: str) -> None:
    with pytest.raises(ParameterError, match=r"line 2: .* must be a set or delete statement"):
        junos._parse_rules(f"set ok then\n{line}\nset more then")
    with pytest.raises(ParameterError, match=r"line 1"):
        junos._parse_rules(["set ok\nrun something"])


# ---- when something does not


@pytest.mark.slow
@pytest.mark.parametrize("failing", ["lock", "load", "get-configuration", "check", "confirmed"])
def test_what_is_refused_leaves_the_old_configuration(
    failing: str, connect: Callable[..., JunosRouter], device: Router
) -> None:
    with connect() as router:
        device.refuse[failing] = Refusal("no room\n  for this", word="flow-101", path="[edit firewall]")
        with pytest.raises(JunosError, match=r"\[edit firewall\]: no room for this: flow-101") as error:
            router.apply(RULES)
        assert "\n" not in str(error.value) and not isinstance(error.value, JunosGoneError)
        settled(device, *OLD)
        # and the same connection is good for another try
        device.refuse.clear()
        assert router.apply(RULES).committed
    settled(device, *NEW)


@one_version
def test_a_lock_of_somebody_else(connect: Callable[..., JunosRouter], device: Router) -> None:
    with connect() as router:
        device.owner = "operator"
        with pytest.raises(JunosLockedError, match="lock: configuration database locked by: operator p0"):
            router.apply(RULES)
        assert device.owner == "operator" and device.running == OLD
        device.owner = None
        device.candidate.append("system half-done")  # and an edit that somebody left
        with pytest.raises(JunosLockedError, match="configuration database modified"):
            router.apply(RULES)
        assert device.candidate[-1] == "system half-done"


@one_version
@pytest.mark.parametrize("bad", [0, 1, 6, 12])
def test_a_load_error_names_the_line(bad: int, connect: Callable[..., JunosRouter], device: Router) -> None:
    lines = [f"set system location floor {i}" for i in range(13)]
    lines[bad] = "set nonsense here"
    with (
        connect() as router,
        pytest.raises(
            JunosError,
            match=rf"load: syntax error: nonsense \(line {bad + 1}: set nonsense here\)",
        ),
    ):
        router.apply(lines)
    settled(device, *OLD)


@one_version
def test_errors_behind_warnings_are_seen(connect: Callable[..., JunosRouter], device: Router) -> None:
    with connect() as router, pytest.raises(JunosError, match=r"syntax error: nonsense \(line 2"):
        router.apply("delete firewall no-such\nset nonsense\nset nonsense more")
    settled(device, *OLD)


@one_version
def test_a_commit_check_that_fails(connect: Callable[..., JunosRouter], device: Router) -> None:
    message = r"commit check: \[edit class-of-service\]: configuration check-out failed: impossible"
    with connect() as router, pytest.raises(JunosError, match=message):
        router.apply("set class-of-service impossible")
    settled(device, *OLD)


@one_version
def test_a_confirmation_that_is_refused_is_taken_back_at_once(
    connect: Callable[..., JunosRouter], device: Router
) -> None:
    device.refuse["confirm"] = Refusal("commit failed")
    with connect() as router:
        # the commit of the old configuration would be a confirmation, too; it is let through
        named = device._named

        def once(request: object) -> tuple[str, Callable[[object, object], str]]:
            name, do = named(request)  # type: ignore[arg-type]
            if name == "confirm" and device.candidate == OLD:
                return "back", device._commit
            return name, do

        device._named = once  # type: ignore[method-assign,assignment]
        with pytest.raises(JunosError, match=r"confirm: commit failed$"):
            router.apply(RULES)
        settled(device, *OLD)
    assert device.requests[-6:] == [
        "confirm",
        "rollback",
        "back",
        "discard-changes",
        "unlock",
        "close-session",
    ]


@pytest.mark.slow
@one_version
def test_a_device_that_refuses_the_way_back_too_takes_it_by_itself(
    connect: Callable[..., JunosRouter], device: Router
) -> None:
    device.minute_s = 1.5
    device.refuse["confirm"] = Refusal("commit failed")
    with (
        connect(confirm_minutes=2) as router,
        pytest.raises(JunosError, match="confirm: commit failed; the device rolls it back within 2 min"),
    ):
        router.apply(RULES)
    assert device.running == NEW
    settled(device, *OLD)


@pytest.mark.slow
@pytest.mark.parametrize("when", ["cut_before", "cut_after"])
@pytest.mark.parametrize("request_", ALL[1:6])
@pytest.mark.parametrize("rfc_6241", [False, True])
@one_version
def test_a_connection_that_is_cut(
    request_: str, when: str, rfc_6241: bool, connect: Callable[..., JunosRouter], device: Router
) -> None:
    """At every request, before or after it was done: the old configuration, or the new one and all of it."""
    device.rfc_6241, device.minute_s = rfc_6241, 0.5
    getattr(device, when).add(request_)
    with connect(confirm_minutes=1, timeout_s=20) as router:
        with pytest.raises(JunosGoneError, match=f"127.0.0.1:{router.port}: .*the connection ended") as error:
            router.apply(RULES)
        confirmed = (request_, when) == ("confirm", "cut_after")
        if request_ in ("confirmed", "confirm"):
            assert "the device rolls it back within 1 min" in str(error.value)
        else:
            assert "takes it back" not in str(error.value)
        assert "\n" not in str(error.value)
        settled(device, *(NEW if confirmed else OLD))
        # the next call connects again
        done = router.apply(RULES)
        assert done.committed
        settled(device, *NEW)


@pytest.mark.slow
@one_version
def test_what_was_committed_and_not_confirmed_is_confirmed_by_the_next_call(
    connect: Callable[..., JunosRouter], device: Router
) -> None:
    """Else the device, where nothing is new, would take it back later and nobody would know."""
    device.minute_s = 1.0
    device.cut_before.add("confirm")
    with connect(confirm_minutes=1) as router:
        with pytest.raises(JunosGoneError):
            router.apply(RULES)
        done = router.apply(RULES)
        assert done.committed and done.diff == ""
        time.sleep(1.5)
        settled(device, *NEW)


@pytest.mark.slow
@one_version
def test_an_answer_that_does_not_come(connect: Callable[..., JunosRouter], device: Router) -> None:
    device.slow_s["load"] = 2.0
    with connect(timeout_s=0.5) as router, pytest.raises(JunosGoneError, match=r"load: .*timed out"):
        router.apply(RULES)
    settled(device, *OLD)


@one_version
@pytest.mark.parametrize("where", ["_load", "_compare", "_commit"])
def test_an_interruption_leaves_the_old_configuration(
    where: str, connect: Callable[..., JunosRouter], device: Router, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = getattr(JunosRouter, where)

    def interrupted(self: JunosRouter, *arguments: object) -> None:
        if where != "_commit":
            done(self, *arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(JunosRouter, where, interrupted)
    with connect() as router, pytest.raises(KeyboardInterrupt):
        router.apply(RULES)
    settled(device, *OLD)


@one_version
def test_an_interruption_between_commit_and_confirmation_takes_it_back(
    connect: Callable[..., JunosRouter], device: Router, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = JunosRouter._request

    def interrupted(self: JunosRouter, what: str, *rest: object, **more: object) -> object:
        if what == "confirm":
            raise KeyboardInterrupt
        return ask(self, what, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(JunosRouter, "_request", interrupted)
    with connect() as router, pytest.raises(KeyboardInterrupt):
        router.apply(RULES)
    settled(device, *OLD)


# ---- as a controller's function


@one_version
def test_a_controller_goes_on_while_the_router_is_away(
    connect: Callable[..., JunosRouter], server: Server, device: Router, caplog: pytest.LogCaptureFixture
) -> None:
    first, second, third = RULES.split("\n", 1)[0], "set a then", "set b then"
    with connect() as router:
        assert router(first).committed  # type: ignore[union-attr]
        assert router("") == junos.Applied(0, "", (), False)
        server.drop()  # noticed, and connected again
        assert router(second).committed  # type: ignore[union-attr]
        device.cut_before.add("load")
        with caplog.at_level(logging.WARNING, "hardware"):
            assert router(third) is None
            device.owner = "operator"
            assert router("") is None
        assert [m.count("\n") for m in caplog.messages] == [0, 0]
        assert all(m.endswith("; 1 lines are waiting") for m in caplog.messages)
        device.owner = None
        done = router("delete a")
        assert done is not None and done.lines == 2
        settled(device, *OLD, "class-of-service schedulers cct-0 priority low", "b then")
        with pytest.raises(JunosError, match="nonsense"):
            router("set nonsense")
        assert router("set c then").lines == 1  # type: ignore[union-attr]


# ---- who is talked to


@one_version
def test_the_host_key_is_checked(
    connect: Callable[..., JunosRouter], server: Server, device: Router, tmp_path: Path
) -> None:
    other = server.write_known_hosts(tmp_path / "other", paramiko.ECDSAKey.generate())
    with pytest.raises(JunosError, match="does not match known_hosts"):
        connect(known_hosts=other)
    (tmp_path / "empty").touch()
    with pytest.raises(JunosError, match=r"its host key is not in .*empty"):
        connect(known_hosts=tmp_path / "empty")
    with pytest.raises(JunosError, match="does not match known_hosts"):
        connect(known_hosts=None)  # ~/.ssh/known_hosts, which is not there
    assert device.requests == []
    connect(known_hosts=tmp_path / "empty", check_host_key=False)
    (tmp_path / ".ssh").mkdir()
    server.write_known_hosts(tmp_path / ".ssh" / "known_hosts")
    connect(known_hosts=None)


@one_version
def test_credentials(
    connect: Callable[..., JunosRouter], server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(JunosError, match="refuses the user root"):
        connect(user="root")
    monkeypatch.setenv("JUNOS_PASSWORD", "wrong")
    with pytest.raises(JunosError, match=r"refuses the user lab: .*\$JUNOS_PASSWORD"):
        connect()
    monkeypatch.delenv("JUNOS_PASSWORD")
    with pytest.raises(JunosError, match="refuses the user lab"):
        connect()
    server.user_key = paramiko.ECDSAKey.generate()
    server.user_key.write_private_key_file(str(tmp_path / "id"))
    connect(key=tmp_path / "id")
    (tmp_path / ".ssh").mkdir()
    server.user_key.write_private_key_file(str(tmp_path / ".ssh" / "id_ecdsa"))
    connect()


def test_nobody_there_or_no_netconf(device: Router, tmp_path: Path) -> None:
    with fake_junos.serving(device, netconf=False) as server:
        known = server.write_known_hosts(tmp_path / "known_hosts")
        with pytest.raises(JunosGoneError, match=r"no NETCONF server answers \("):
            JunosRouter("127.0.0.1", server.port, known_hosts=known, timeout_s=5)
    with pytest.raises(JunosGoneError, match=r"no NETCONF server answers .*Could not open socket"):
        JunosRouter("127.0.0.1", server.port, known_hosts=known)
    with pytest.raises(JunosGoneError, match="no NETCONF server answers"):
        JunosRouter("no-such-host.invalid", check_host_key=False)


def test_a_minute_at_least() -> None:
    with pytest.raises(ParameterError, match="confirm_minutes: 0"):
        JunosRouter("127.0.0.1", confirm_minutes=0)


# ---- the command


def ended(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as status:
        run_app(junos.app, "junos", "hardware.router.junos", list(args))
    out = capsys.readouterr()
    return int(status.value.code or 0), out.out, out.err


@pytest.fixture
def rules(tmp_path: Path) -> str:
    (tmp_path / "rules.set").write_text(RULES)
    return str(tmp_path / "rules.set")


def test_without_apply_the_lines_are_printed(rules: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = ended(capsys, rules, "--host", "192.0.2.1")
    assert status == 0 and out.splitlines() == [
        x for x in RULES.splitlines() if x.startswith(("set", "delete"))
    ]
    assert "3 lines; nothing was changed" in err


@one_version
def test_the_command_compares_and_applies(
    rules: str, server: Server, device: Router, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    known = str(server.write_known_hosts(tmp_path / "known_hosts"))
    where = ["--host", "127.0.0.1", "--port", str(server.port), "--known-hosts", known]
    status, out, err = ended(capsys, rules, *where, "--compare")
    assert status == 0 and f"+{NEW[1]}\n" in out and err == "127.0.0.1: 3 lines, nothing was changed\n"
    settled(device, *OLD)
    status, out, err = ended(capsys, rules, *where, "--apply")
    assert status == 0 and f"+{NEW[1]}\n" in out and err == "127.0.0.1: 3 lines, committed\n"
    settled(device, *NEW)
    status, out, err = ended(capsys, rules, *where, "--apply")
    message = "junos: warning: statement not found: flow-100\n127.0.0.1: 3 lines, nothing to change\n"
    assert (status, out, err) == (0, "", message)


@one_version
def test_the_command_s_errors_are_one_line(
    rules: str,
    server: Server,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = str(server.write_known_hosts(tmp_path / "known_hosts"))
    where = ["--host", "127.0.0.1", "--port", str(server.port), "--known-hosts", known]
    monkeypatch.setenv("JUNOS_PASSWORD", "wrong")
    message = f"junos: 127.0.0.1:{server.port}: refuses the user lab: check the keys or $JUNOS_PASSWORD\n"
    assert ended(capsys, rules, *where, "--apply") == (1, "", message)
    server.close()
    status, out, err = ended(capsys, rules, *where, "--apply")
    assert status == 1 and out == "" and err.count("\n") == 1 and "no NETCONF server answers" in err
    status, out, err = ended(capsys, str(tmp_path / "no.set"))
    assert status == 1 and err.endswith("no.set: No such file or directory\n")
    (tmp_path / "bad.set").write_text("request system reboot\n")
    status, out, err = ended(capsys, str(tmp_path / "bad.set"))
    assert status == 1 and err.startswith("junos: line 1: 'request system reboot' must be")
    assert ended(capsys, rules, "--apply")[0] == 2
    assert ended(capsys, rules, *where, "--apply", "--compare")[0] == 2


@pytest.mark.slow
@one_version
def test_the_command_from_a_shell_says_one_line_and_no_more(
    rules: str, server: Server, tmp_path: Path
) -> None:
    """Neither paramiko's nor ncclient's own words about it."""
    known = str(server.write_known_hosts(tmp_path / "known_hosts"))
    server.router.cut_before.add("load")
    where = ["--host", "127.0.0.1", "--port", str(server.port), "--known-hosts", known]
    done = subprocess.run(
        [sys.executable, "-m", "hardware.router.junos", rules, *where, "--apply"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1 and "load: the connection ended" in done.stderr, done.stderr
    settled(server.router, *OLD)
