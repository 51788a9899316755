"""Blocks of messages as a server of NATS sends them, taken apart."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quacklake.connectors.nats.protocol import StoredMessages, delivered

TIME = 1_700_000_000_000_000_000
BODIES = st.one_of(
    st.binary(max_size=40),
    st.sampled_from(
        [
            b"",
            b"\r\n",
            b'{\n  "id": 1\n}',
            b"\nMSG s.1 1 $JS.ACK.s.c.1.1.1.1.0 5\r\n",
            b"\nHMSG s.1 1 $JS.ACK.s.c.1.1.1.1.0 x y\r\n",
            b"\nMSG ",
            b"MSG a b\r\n" * 3,
        ]
    ),
)
HEADERS = st.sampled_from([b"", b"", b"NATS/1.0\r\nNats-Msg-Id: 7\r\n\r\n", b"NATS/1.0\r\nA: MSG x\r\nB: 1\r\n\r\n"])
FORMS = ("$JS.ACK.{rest}", "$JS.ACK._.hash.{rest}", "$JS.ACK.hub.hash.{rest}.token")


def command(subject: str, number: int, headers: bytes, body: bytes, pending: int, form: str = FORMS[0]) -> bytes:
    reply = form.format(rest=f"s.c.1.{number * 2}.{number}.{TIME + number}.{pending}")
    if headers:
        sizes = f"{len(headers)} {len(headers) + len(body)}"
        return f"HMSG {subject} 1 {reply} {sizes}\r\n".encode() + headers + body + b"\r\n"
    return f"MSG {subject} 1 {reply} {len(body)}\r\n".encode() + body + b"\r\n"


def take(buffer: bytes, place: int = 0) -> tuple[StoredMessages, list[int], bool, int]:
    """Take blocks until nothing more is whole."""
    parts, numbers, pending = [], list[int](), True
    while True:
        block, place = delivered(buffer, place)
        if block is None:
            return StoredMessages.join(parts), numbers, pending, place
        parts.append(block.messages)
        numbers += block.numbers.tolist()
        pending = block.pending


@given(
    st.lists(st.tuples(HEADERS, BODIES), max_size=30),
    st.sampled_from(FORMS),
    st.integers(0, 200),
    st.binary(max_size=9),
)
def test_every_whole_message_is_taken_and_the_rest_is_left(
    contents: list[tuple[bytes, bytes]], form: str, cut: int, before: bytes
) -> None:
    count = len(contents)
    commands = [
        command(f"s.{number}", number, *content, count - number, form) for number, content in enumerate(contents, 1)
    ]
    whole = b"".join(commands)
    received = before + whole[: max(0, len(whole) - cut)]
    messages, numbers, pending, place = take(received, len(before))
    kept = len(numbers)
    assert place == len(before) + len(b"".join(commands[:kept]))
    assert kept == count or len(received) < len(before) + len(b"".join(commands[: kept + 1]))
    assert numbers == list(range(1, kept + 1))
    assert messages.sequences.tolist() == [2 * number for number in numbers]
    assert messages.times.tolist() == [TIME + number for number in numbers]
    assert messages.subjects.to_pylist() == [f"s.{number}".encode() for number in numbers]
    assert list(zip(messages.headers.to_pylist(), messages.data.to_pylist(), strict=True)) == contents[:kept]
    assert pending is (kept < count or not count)


@pytest.mark.parametrize(
    "line",
    [b"PING\r\n", b"HMSG _INBOX.a.1 1 28 28\r\nNATS/1.0 404 No Messages\r\n\r\n\r\n", b"MSG _INBOX.a.1 1 2\r\n{}\r\n"],
)
def test_a_status_or_command_between_messages_is_left_in_its_place(line: bytes) -> None:
    first, second = command("s.x", 1, b"", b"one", 1), command("s.x", 2, b"", b"two", 0)
    messages, _, _, place = take(first + line + second)
    assert messages.data.to_pylist() == [b"one"]
    assert place == len(first)
    messages, numbers, pending, place = take(first + line + second, len(first + line))
    assert (messages.data.to_pylist(), numbers, pending) == ([b"two"], [2], False)
