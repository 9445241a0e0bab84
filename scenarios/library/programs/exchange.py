"""Exchange bytes between all ranks over plain sockets; needs Python's standard library alone.

    sudo ./railbed exec quickstart -- python3 scenarios/library/programs/exchange.py [BYTES]

Each rank listens at its address, sends BYTES to every other rank, and checks what comes from each.
"""

import os
import socket
import sys
import threading
import time

DEADLINE_S = 60.0
RETRY_S = 0.02


def content(sender: int, size: int) -> bytes:
    """Return the bytes of a rank: its number, repeated."""
    return bytes([sender % 256]) * size


def send(place: tuple[str, int], rank: int, size: int) -> None:
    """Send this rank's number and bytes, once its peer listens."""
    with connected(place) as peer:
        peer.sendall(rank.to_bytes(4, "big") + content(rank, size))


def connected(place: tuple[str, int]) -> socket.socket:
    """Connect to a peer; raises `ConnectionRefusedError` if it does not listen in time."""
    end_s = time.monotonic() + DEADLINE_S
    while True:
        try:
            return socket.create_connection(place, timeout=DEADLINE_S)
        except ConnectionRefusedError:
            if time.monotonic() > end_s:
                raise
        time.sleep(RETRY_S)


def receive(listener: socket.socket, size: int) -> tuple[int, str]:
    """Return the sender of all bytes of the next connection, and its address."""
    peer, (address, _) = listener.accept()
    with peer, peer.makefile("rb") as stream:
        sender = int.from_bytes(stream.read(4), "big")
        if stream.read() != content(sender, size):
            raise SystemExit(f"rank {sender} sent other bytes")
    return sender, address


def main(size: int) -> None:
    """Send and receive side by side; each address must be that of its rank."""
    rank, port = int(os.environ["RANK"]), int(os.environ["MASTER_PORT"])
    addresses = dict(enumerate(os.environ["RAILBED_ADDRESSES"].split(",")))
    del addresses[rank]
    with socket.create_server(("0.0.0.0", port), backlog=len(addresses)) as listener:
        places = [(address, port) for address in addresses.values()]
        senders = [threading.Thread(target=send, args=(place, rank, size)) for place in places]
        for sender in senders:
            sender.start()
        received = dict(receive(listener, size) for _ in addresses)
        for sender in senders:
            sender.join()
    if received != addresses:
        raise SystemExit(f"ranks came from other addresses: {received}")
    print(f"{len(received)} ranks sent {size} bytes each")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
