"""What stands between a run and a network, without a run: tokens, shares, and a gate that lets in who has the key."""

import ast
import socket as sockets
import time
from collections.abc import Iterator

import pytest
import zmq
from hypothesis import given
from hypothesis import strategies as st

from launch.control import said_by_host, seen_from
from launch.shares import Capacity, shares
from launch.token import Token
from nodes.curve import Keys, show
from nodes.gate import MOST_PENDING, Door, Gate
from pflsim.errors import DescriptionError, RunFailed
from tests.launching import ROOT, happens

pytestmark = pytest.mark.timeout(60)

OWN, JOINING = Keys.new(), Keys.new()
TOKEN = Token(("192.168.1.5:5555", "10.0.0.5:5555"), b"8 bytes.", OWN.public, JOINING.secret)


def test_a_token_says_in_one_word_where_the_launcher_is_and_how_to_prove_that_one_may_join() -> None:
    word = str(TOKEN)
    assert Token.read(word) == TOKEN
    assert len(word) < 180
    assert all(letter.isalnum() or letter in "-_" for letter in word)
    plain = Token(TOKEN.addresses, TOKEN.run_id)
    assert Token.read(str(plain)) == plain


@given(st.integers(min_value=0, max_value=len(str(TOKEN)) - 1), st.sampled_from("abcXYZ019-_"))
def test_one_mistyped_letter_is_noticed(position: int, letter: str) -> None:
    word = str(TOKEN)
    mistyped = word[:position] + letter + word[position + 1 :]
    try:
        assert Token.read(mistyped) == TOKEN, "at most the unused bits of the last letter differ"
    except DescriptionError as problem:
        assert problem.key == "--join"
        assert OWN.public.decode() not in str(problem)


@given(st.text(max_size=200))
def test_no_other_text_is_a_token(text: str) -> None:
    with pytest.raises(DescriptionError, match="is no join token"):
        Token.read(text)


def test_hosts_share_clients_by_cores() -> None:
    hosts = {"small": Capacity(2, 10**10), "large": Capacity(6, 10**10)}
    assert shares(hosts, [1] * 8, 1e6) == {"small": 2, "large": 6}
    assert shares(hosts, [1], 1e6) == {"small": 0, "large": 1}


def test_a_host_takes_as_many_clients_as_it_was_told() -> None:
    hosts = {"pc1": Capacity(8, 10**10), "pc2": Capacity(1, 10**10, 6), "pc3": Capacity(8, 10**10)}
    assert shares(hosts, [1] * 10, 1e6) == {"pc1": 2, "pc2": 6, "pc3": 2}
    assert shares(hosts, [2] * 5, 1e6) == {"pc1": 1, "pc2": 3, "pc3": 1}
    with pytest.raises(RunFailed, match=r"pc2: cannot take 6 clients, as 4 share a process"):
        shares(hosts, [4] * 5, 1e6)


def test_nobody_takes_more_than_the_memory_allows() -> None:
    hosts = {"full": Capacity(64, 10 * 10**6), "empty": Capacity(1, 10**9)}
    assert shares(hosts, [1] * 20, 2e6) == {"full": 4, "empty": 16}
    with pytest.raises(RunFailed, match=r"the memory of the hosts does not suffice: of 20 .* of 200 MB each, 4 have"):
        shares(hosts, [1] * 20, 200e6)


def test_hosts_that_were_told_too_many_or_too_few_are_refused() -> None:
    with pytest.raises(RunFailed, match=r"were told to take 9 clients \(pc1 9\) of 8"):
        shares({"pc1": Capacity(1, 1, 9), "pc2": Capacity(1, 1)}, [1] * 8, 1.0)
    with pytest.raises(RunFailed, match=r"were told to take 7 clients \(pc1 3, pc2 4\) of 8"):
        shares({"pc1": Capacity(1, 1, 3), "pc2": Capacity(1, 1, 4)}, [1] * 8, 1.0)


@given(st.binary(max_size=60))
def test_whatever_comes_instead_of_a_map_is_refused_in_words(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"^(it|no host|a host)"):
        said_by_host([data])


def test_an_endpoint_at_all_addresses_is_found_at_the_one_that_is_known() -> None:
    assert seen_from("tcp://0.0.0.0:70", "10.0.0.5") == "tcp://10.0.0.5:70"
    assert seen_from("tcp://10.0.0.7:70", "10.0.0.5") == "tcp://10.0.0.7:70"


class Guarded:
    """A socket behind a gate."""

    def __init__(self) -> None:
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.told: list[str] = []
        self.gate = Gate(self.context, self.told.append)
        self.socket = self.context.socket(zmq.ROUTER)
        self.gate.guard(self.socket, "door", 1000, OWN, JOINING.public)
        self.port = self.socket.bind_to_random_port("tcp://127.0.0.1")
        self.gate.open()

    def visitor(self, keys: Keys | None, theirs: bytes = OWN.public) -> "zmq.Socket[bytes]":
        """Somebody who connects and says something short."""
        socket = self.context.socket(zmq.DEALER)
        socket.linger = 0
        if keys is not None:
            show(socket, keys, theirs)
        socket.connect(f"tcp://127.0.0.1:{self.port}")
        socket.send(b"hello")
        return socket

    def hears(self, within_ms: int) -> bytes | None:
        """What comes through."""
        return self.socket.recv_multipart()[1] if self.socket.poll(within_ms) else None


@pytest.fixture
def guarded() -> Iterator[Guarded]:
    found = Guarded()
    yield found
    found.gate.close()
    found.context.destroy(linger=0)


def test_who_has_the_key_enters_and_nobody_is_told_of(guarded: Guarded) -> None:
    visitor = guarded.visitor(JOINING)
    assert guarded.hears(5000) == b"hello"
    visitor.close()
    assert guarded.gate.close() == []
    assert guarded.told == []


@pytest.mark.parametrize(
    ("keys", "theirs", "words"),
    [
        (Keys.new(), OWN.public, "127.0.0.1 with an unknown key at the door"),
        (JOINING, Keys.new().public, " without a key at the door"),
        (None, b"", " without a key at the door"),
    ],
    ids=["unknown key", "key of another launcher", "no key"],
)
def test_nobody_else_enters_and_it_is_told(keys: Keys | None, theirs: bytes, words: str, guarded: Guarded) -> None:
    visitor = guarded.visitor(keys, theirs)
    assert happens(lambda: any(words in told for told in guarded.told), 5), guarded.told
    assert guarded.hears(100) is None
    visitor.close()


def test_what_is_too_long_never_arrives_and_the_next_one_is_heard(guarded: Guarded) -> None:
    visitor = guarded.visitor(JOINING)
    assert guarded.hears(5000) == b"hello"
    visitor.send(bytes(5000))
    assert guarded.hears(300) is None
    visitor.close()
    other = guarded.visitor(JOINING)
    assert guarded.hears(5000) == b"hello"
    other.close()


def test_of_connections_that_show_no_key_only_so_many_stay_and_the_rest_are_cut_off(guarded: Guarded) -> None:
    crowd = [sockets.create_connection(("127.0.0.1", guarded.port)) for _ in range(MOST_PENDING + 20)]

    def cut_off() -> int:
        return sum(_is_cut_off(connection) for connection in crowd)

    assert happens(lambda: cut_off() == 20, 5), cut_off()
    for connection in crowd:
        connection.close()
    assert happens(lambda: any("(64 so far)" in words for words in guarded.told), 5), guarded.told
    assert len(guarded.told) < 20, "a flood is told in short"


def _is_cut_off(connection: sockets.socket) -> bool:
    """Closed by the other side; what is there of a greeting is read away."""
    connection.setblocking(False)
    try:
        while data := connection.recv(100):
            assert data
    except BlockingIOError:
        return False
    except ConnectionError:
        return True
    return True


def test_a_door_counts_whoever_came_and_never_entered() -> None:
    door = Door("door")

    def see(what: int, value: int = 0, endpoint: bytes = b"tcp://10.0.0.5:70") -> str:
        return door.see(what, value, endpoint, time.monotonic())

    see(zmq.EVENT_LISTENING)
    for descriptor in (1001, 1002, 1003):  # nobody has these open
        see(zmq.EVENT_ACCEPTED, descriptor)
    see(zmq.EVENT_HANDSHAKE_SUCCEEDED)
    assert see(zmq.EVENT_DISCONNECTED, 1003) == "", "it may have been the one that entered"
    see(zmq.EVENT_ACCEPTED, 1004)
    assert see(zmq.EVENT_DISCONNECTED, 1004) == "somebody without a key at the door"
    see(zmq.EVENT_ACCEPTED, 1005)
    see(zmq.EVENT_HANDSHAKE_FAILED_AUTH, 400)
    assert see(zmq.EVENT_DISCONNECTED, 1005) == "", "its key was wrong, which the judge has told"
    for elsewhere in (zmq.EVENT_CONNECTED, zmq.EVENT_HANDSHAKE_SUCCEEDED):
        see(elsewhere, endpoint=b"tcp://10.0.0.6:70")
    assert door.strangers == 2


def test_a_socket_that_connects_to_itself_is_no_stranger_to_itself() -> None:
    door = Door("door")
    events = [zmq.EVENT_LISTENING, zmq.EVENT_ACCEPTED, zmq.EVENT_CONNECTED, *[zmq.EVENT_HANDSHAKE_SUCCEEDED] * 2]
    for what in events:
        door.see(what, 1001, b"tcp://10.0.0.5:70", time.monotonic())
    assert door.strangers == 0


FORBIDDEN_IMPORTS = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "joblib", "yaml", "jsonpickle"}
FORBIDDEN_CALLS = {"eval", "exec", "compile", "recv_pyobj", "send_pyobj", "__import__"}
FORBIDDEN_METHODS = {"recv_pyobj", "send_pyobj", "unpickle"}


def test_nothing_in_the_code_turns_bytes_into_code() -> None:
    """All three packages, so also all that is reached from a network; arrays from files are read without pickles."""
    found = []
    files = [file for room in ("pflsim", "nodes", "launch") for file in (ROOT / room).rglob("*.py")]
    assert len(files) > 200
    for file in files:
        for node in ast.walk(ast.parse(file.read_text())):
            if what := _turns_bytes_into_code(node):
                found.append(f"{file.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}: {what}")
    assert found == []


def _turns_bytes_into_code(node: ast.AST) -> str:
    if isinstance(node, ast.Import):
        return ", ".join(name.name for name in node.names if name.name.split(".")[0] in FORBIDDEN_IMPORTS)
    if isinstance(node, ast.ImportFrom):
        return node.module or "" if (node.module or "").split(".")[0] in FORBIDDEN_IMPORTS else ""
    if not isinstance(node, ast.Call):
        return ""
    if any(word.arg in ("allow_pickle", "object_hook", "ext_hook") for word in node.keywords):
        allowed = all(isinstance(word.value, ast.Constant) and word.value.value is False for word in node.keywords)
        return "" if allowed else "a call that makes objects of bytes"
    called = ast.unparse(node.func)
    if called in FORBIDDEN_CALLS or called == "torch.load" or called.split(".")[-1] in FORBIDDEN_METHODS:
        return called
    return ""


def test_the_search_for_such_code_finds_it() -> None:
    for text in ("import pickle", "from marshal import loads", "eval(x)", "torch.load(f)", "s.recv_pyobj()"):
        assert any(_turns_bytes_into_code(node) for node in ast.walk(ast.parse(text))), text
    assert not any(_turns_bytes_into_code(node) for node in ast.walk(ast.parse("re.compile(x); model.eval()")))
