"""A router that speaks NETCONF over ssh like Junos, in a thread on 127.0.0.1, with what can go wrong on request.

Its configuration is a list of the words behind ``set``. The candidate is shared, as on a router; the lock, the
candidate of a session that ends, and a confirmed commit's end are as RFC 6241 and Junos' documentation have them.
"""

from __future__ import annotations

import contextlib
import difflib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import paramiko
from lxml import etree

BASE = "urn:ietf:params:xml:ns:netconf:base:1.0"
CAPABILITIES = (
    "urn:ietf:params:netconf:base:1.0",
    "urn:ietf:params:netconf:capability:candidate:1.0",
    "urn:ietf:params:netconf:capability:confirmed-commit:1.0",
    "urn:ietf:params:netconf:capability:validate:1.0",
    "http://xml.juniper.net/netconf/junos/1.0",
)
OK = "<ok/>"


class Refusal(Exception):
    def __init__(
        self, message: str, *, tag: str = "operation-failed", word: str = "", path: str = ""
    ) -> None:
        super().__init__(message)
        self.tag, self.word, self.path = tag, word, path


def error(refusal: Refusal, severity: str = "error") -> str:
    word = f"<error-info><bad-element>{refusal.word}</bad-element></error-info>" if refusal.word else ""
    path = f"<error-path>{refusal.path}</error-path>" if refusal.path else ""
    return (
        f"<rpc-error><error-type>protocol</error-type><error-tag>{refusal.tag}</error-tag>"
        f"<error-severity>{severity}</error-severity>{path}"
        f"<error-message>\n{refusal}\n</error-message>{word}</rpc-error>"
    )


class Router:
    """The device behind the server.

    Attributes
    ----------
    running, candidate : list of str
    requests : list of str
        What was asked, in order.
    refuse : dict of str to Refusal
        What is refused, by its name in `requests`.
    cut_before, cut_after : set of str
        At which requests the connection ends: before they are done, or after, before the answer.
    slow_s : dict of str to float
    minute_s : float
        How long a minute is here.
    rfc_6241 : bool
        A confirmed commit ends with its session, too; else with its time only.
    """

    def __init__(self, *running: str) -> None:
        self.running = list(running)
        self.candidate = list(running)
        self.history: list[list[str]] = []
        self.requests: list[str] = []
        self.refuse: dict[str, Refusal] = {}
        self.cut_before: set[str] = set()
        self.cut_after: set[str] = set()
        self.slow_s: dict[str, float] = {}
        self.minute_s = 60.0
        self.rfc_6241 = False
        self.owner: object = None
        self.state = threading.RLock()
        self._unconfirmed: tuple[threading.Timer, list[str], object] | None = None

    # -- what is asked

    def answer(self, request: etree._Element, session: object) -> str:
        name, do = self._named(request)
        with self.state:
            self.requests.append(name)
        time.sleep(self.slow_s.get(name, 0))
        with self.state:
            if name in self.cut_before:
                self.cut_before.discard(name)
                raise ConnectionAbortedError
            if name in self.refuse:
                raise self.refuse[name]
            reply = do(request, session)
            if name in self.cut_after:
                self.cut_after.discard(name)
                raise ConnectionAbortedError
            return reply

    def _named(self, request: etree._Element) -> tuple[str, Callable[[Any, object], str]]:
        tag = etree.QName(request).localname
        children = {etree.QName(x).localname for x in request}
        if tag == "load-configuration":
            return ("rollback", self._rollback) if "rollback" in request.attrib else ("load", self._load)
        if tag == "commit-configuration":
            if "check" in children:
                return "check", self._check
            if "confirmed" in children:
                return "confirmed", self._confirmed
            return ("confirm" if self._unconfirmed else "commit"), self._commit
        known = {
            "lock": self._lock,
            "unlock": self._unlock,
            "discard-changes": self._discard,
            "get-configuration": self._compare,
            "close-session": lambda *_: OK,
        }
        if tag not in known:
            raise Refusal("syntax error", tag="unknown-element", word=tag)
        return tag, known[tag]

    def _mine(self, session: object) -> None:
        if self.owner not in (None, session):
            raise Refusal("configuration database locked by:\n  operator p0 (pid 7)", tag="lock-denied")

    def _lock(self, _: Any, session: object) -> str:
        self._mine(session)
        if self.candidate != self.running:
            raise Refusal("configuration database modified", tag="lock-denied")
        self.owner = session
        return OK

    def _unlock(self, _: Any, session: object) -> str:
        self._mine(session)
        self.owner = None
        return OK

    def _load(self, request: Any, session: object) -> str:
        self._mine(session)
        assert request.attrib["action"] == "set" and request.attrib["format"] == "text"
        reply, failed = "", 0
        for line in (request.findtext("{*}configuration-set") or "").splitlines():
            verb, _, path = line.strip().partition(" ")
            if "nonsense" in line:  # the other lines are loaded all the same, as Junos does
                reply += error(Refusal("syntax error", word="nonsense"))
                failed += 1
            elif verb == "set" and path not in self.candidate:
                self.candidate.append(path)
            elif verb == "delete":
                kept = [x for x in self.candidate if x != path and not x.startswith(path + " ")]
                if kept == self.candidate:
                    reply += error(Refusal("statement not found", word=path.split()[-1]), "warning")
                self.candidate = kept
        count = f"<load-error-count>{failed}</load-error-count>" if failed else OK
        return f"<load-configuration-results>{reply}{count}</load-configuration-results>"

    def _rollback(self, request: Any, session: object) -> str:
        self._mine(session)
        back = int(request.attrib["rollback"])
        self.candidate = list(self.history[-back] if back else self.running)
        return f"<load-configuration-results>{OK}</load-configuration-results>"

    def _compare(self, request: Any, session: object) -> str:
        assert request.attrib["compare"] == "rollback" and request.attrib["rollback"] == "0"
        diff = difflib.unified_diff(self.running, self.candidate, lineterm="", n=0)
        text = "\n".join(line for line in diff if line[:2] not in ("--", "++", "@@"))
        body = (
            f"<configuration-output>\n{text}\n</configuration-output>" if text else "<configuration-output/>"
        )
        return f"<configuration-information>{body}</configuration-information>"

    def _check(self, *_: Any) -> str:
        if any("impossible" in line for line in self.candidate):
            raise Refusal("configuration check-out failed", path="[edit class-of-service]", word="impossible")
        engine = "<routing-engine><name>re0</name><commit-check-success/></routing-engine>"
        return f"<commit-results>{engine}</commit-results>{OK}"

    def _take(self, config: list[str]) -> None:
        self.history.append(self.running)
        self.running = list(config)

    def _confirmed(self, request: Any, session: object) -> str:
        self._mine(session)
        self._check()
        minutes = int(request.findtext("{*}confirm-timeout") or "10")
        before = self._unconfirmed[1] if self._unconfirmed else self.running
        if self._unconfirmed:
            self._unconfirmed[0].cancel()
        timer = threading.Timer(minutes * self.minute_s, self._expire)
        timer.daemon = True
        self._unconfirmed = (timer, before, session)
        self._take(self.candidate)
        timer.start()
        return OK

    def _commit(self, _: Any, session: object) -> str:
        self._mine(session)
        self._check()
        if self._unconfirmed:
            self._unconfirmed[0].cancel()
            self._unconfirmed = None
        if self.candidate != self.running:
            self._take(self.candidate)
        return OK

    def _discard(self, _: Any, session: object) -> str:
        self._mine(session)
        self.candidate = list(self.running)
        return OK

    # -- what happens by itself

    def _expire(self) -> None:
        with self.state:
            if self._unconfirmed:
                self._unconfirmed[0].cancel()
                unchanged = self.candidate == self.running
                self._take(self._unconfirmed[1])
                if unchanged:
                    self.candidate = list(self.running)
                self._unconfirmed = None

    def ended(self, session: object) -> None:
        with self.state:
            if self.owner is session:
                self.owner = None
                self.candidate = list(self.running)
            if self.rfc_6241 and self._unconfirmed and self._unconfirmed[2] is session:
                self._expire()

    @property
    def unconfirmed(self) -> bool:
        return self._unconfirmed is not None


class _Door(paramiko.ServerInterface):
    """Who may in, and what for."""

    def __init__(self, password: str | None, key: paramiko.PKey | None, netconf: bool) -> None:
        self.password, self.key, self.netconf = password, key, netconf
        self.opened = threading.Event()

    def get_allowed_auths(self, username: str) -> str:
        return "password,publickey"

    def check_auth_password(self, username: str, password: str) -> int:
        fits = username == "lab" and password == self.password
        return paramiko.AUTH_SUCCESSFUL if fits else paramiko.AUTH_FAILED

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        fits = username == "lab" and self.key is not None and key.asbytes() == self.key.asbytes()
        return paramiko.AUTH_SUCCESSFUL if fits else paramiko.AUTH_FAILED

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return paramiko.OPEN_SUCCEEDED

    def check_channel_subsystem_request(self, channel: paramiko.Channel, name: str) -> bool:
        if name == "netconf" and self.netconf:
            self.opened.set()
            return True
        return False


class Server:
    """NETCONF over ssh.

    Attributes
    ----------
    key : PKey
        Of the host.
    """

    def __init__(
        self,
        router: Router,
        *,
        password: str | None = "secret",
        user_key: paramiko.PKey | None = None,
        version: str = "1.0",
        netconf: bool = True,
    ) -> None:
        self.router, self.password, self.user_key = router, password, user_key
        self.version, self.netconf = version, netconf
        self.key = paramiko.ECDSAKey.generate()
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.transports: list[paramiko.Transport] = []
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def write_known_hosts(self, file: Path, key: paramiko.PKey | None = None) -> Path:
        key = key or self.key
        file.write_text(f"[127.0.0.1]:{self.port} {key.get_name()} {key.get_base64()}\n")
        return file

    def drop(self) -> None:
        """End all connections, and take new ones."""
        transports, self.transports = self.transports, []
        for transport in transports:
            transport.close()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)  # wakes who waits in accept
        self.socket.close()
        self.drop()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        transport = paramiko.Transport(connection)
        self.transports.append(transport)
        transport.add_server_key(self.key)
        door = _Door(self.password, self.user_key, self.netconf)
        session = object()
        try:
            transport.start_server(server=door)
            channel = transport.accept(20)
            if channel is not None and door.opened.wait(5):
                self._talk(channel, session)
        except (paramiko.SSHException, EOFError, OSError):
            pass
        finally:
            self.router.ended(session)
            transport.close()

    def _talk(self, channel: paramiko.Channel, session: object) -> None:
        wire = _Wire(channel)
        extra = ("urn:ietf:params:netconf:base:1.1",) if self.version == "1.1" else ()
        listed = "".join(f"<capability>{c}</capability>" for c in (*CAPABILITIES, *extra))
        wire.send(
            f'<hello xmlns="{BASE}"><capabilities>{listed}</capabilities><session-id>1</session-id></hello>'
        )
        hello = etree.fromstring(wire.receive())
        wire.chunked = bool(extra) and extra[0] in [x.text for x in hello.iter("{*}capability")]
        assert wire.chunked == (self.version == "1.1")
        while True:
            rpc = etree.fromstring(wire.receive())
            request = next(iter(rpc))
            try:
                body = self.router.answer(request, session)
            except Refusal as no:
                body = error(no)
            wire.send(
                f'<rpc-reply xmlns="{BASE}" xmlns:junos="http://xml.juniper.net/junos/23.2R1/junos" '
                f'message-id="{rpc.attrib["message-id"]}">{body}</rpc-reply>'
            )
            if etree.QName(request).localname == "close-session":
                return


class _Wire:
    """Messages by the end mark of NETCONF 1.0 or in the chunks of 1.1 (RFC 6242)."""

    def __init__(self, channel: paramiko.Channel) -> None:
        self._channel, self._rest, self.chunked = channel, b"", False

    def send(self, text: str) -> None:
        data = text.encode()
        if self.chunked:  # in two chunks, the first of three bytes
            parts = [data[:3], data[3:]]
            self._channel.sendall(b"".join(b"\n#%d\n%s" % (len(p), p) for p in parts) + b"\n##\n")
        else:
            self._channel.sendall(data + b"]]>]]>")

    def _more(self) -> None:
        data = self._channel.recv(65536)
        if not data:
            raise EOFError
        self._rest += data

    def _until(self, mark: bytes) -> bytes:
        while mark not in self._rest:
            self._more()
        found, _, self._rest = self._rest.partition(mark)
        return found

    def receive(self) -> bytes:
        if not self.chunked:
            return self._until(b"]]>]]>").strip()
        message = b""
        while True:
            assert self._until(b"\n#") == b""
            size = self._until(b"\n")
            if size == b"#":
                return message
            while len(self._rest) < int(size):
                self._more()
            message, self._rest = message + self._rest[: int(size)], self._rest[int(size) :]


@contextlib.contextmanager
def serving(router: Router, **options: Any) -> Iterator[Server]:
    server = Server(router, **options)
    try:
        yield server
    finally:
        server.close()
