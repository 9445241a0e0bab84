"""The program that captures frames at the upper ends of links into pcap files.

    python -m testbed.instruments.capture_program FOLDER MOST_BYTES LINK=INTERFACE...

It runs in the switches' network namespace until SIGTERM, and then writes a summary of the capture
to `FOLDER/capture.json`. `LINK.up.pcap` has the frames that arrive at the upper end,
`LINK.down.pcap` those that leave it, each at the moment at which it passes the interface, behind
the shaper. Moments are of the wall clock at the capture's begin plus the elapsed time: a later
change of that clock does not move them.
"""

import json
import selectors
import signal
import socket
import struct
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from linux.files.user_files import cleared, write_text
from linux.machine.clocks import Timestamps
from linux.network.socket_options import (
    ETH_P_ALL,
    PACKET_OUTGOING,
    SO_RCVBUFFORCE,
    SO_TIMESTAMPNS,
    dropped_frames,
)

# The capture file format of libpcap with nanoseconds (draft-ietf-opsawg-pcap, sections 4 and 5).
MAGIC, MAJOR, MINOR, ETHERNET = 0xA1B23C4D, 2, 4, 1
FILE_HEADER, RECORD_HEADER = struct.Struct("=IHHiIII"), struct.Struct("=IIII")
# Bytes kept of each frame: the headers, and the begin of the payload.
SNAPSHOT_BYTES = 128
BUFFER_BYTES = 16 * 2**20
SECOND_NS = 1_000_000_000
TIMESTAMP = struct.Struct("@qq")
# Python repeats select(2) after a signal, which is therefore noticed up to this much later.
END_SEEN_S = 0.1


@dataclass
class PcapFile:
    """A file that grows to at most `most_bytes`; frames beyond that are counted."""

    place: Path
    most_bytes: int
    frames: int = 0
    left_out: int = 0

    def __post_init__(self) -> None:
        self._file: BinaryIO = cleared(self.place).open("xb")
        header = FILE_HEADER.pack(MAGIC, MAJOR, MINOR, 0, 0, SNAPSHOT_BYTES, ETHERNET)
        self._bytes = self._file.write(header)
        self._file.flush()

    def add(self, frame: memoryview, length: int, moment_ns: int) -> None:
        """Append the beginning of a frame of `length` bytes."""
        record = RECORD_HEADER.pack(*divmod(moment_ns, SECOND_NS), len(frame), length)
        if self._bytes + len(record) + len(frame) > self.most_bytes:
            self.left_out += 1
            return
        self._bytes += self._file.write(record) + self._file.write(frame)
        self.frames += 1

    def close(self) -> dict[str, Any]:
        """Close the file; return the numbers of kept and left-out frames."""
        self._file.close()
        return {"file": self.place.name, "frames": self.frames, "left_out": self.left_out}


class LinkCapture:
    """A socket at the upper end of a link, and a file for each direction."""

    def __init__(self, link: str, interface: str, folder: Path, most_bytes: int) -> None:
        self.link = link
        self.up = PcapFile(folder / f"{link}.up.pcap", most_bytes)
        self.down = PcapFile(folder / f"{link}.down.pcap", most_bytes)
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        self.socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
        self.socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self.socket.setblocking(False)
        self.socket.bind((interface, ETH_P_ALL))
        self._buffer = bytearray(SNAPSHOT_BYTES)

    def read(self, timestamps: Timestamps) -> None:
        """Write all frames that wait at the socket."""
        room = socket.CMSG_SPACE(TIMESTAMP.size)
        while True:
            try:
                # MSG_TRUNC: the whole length of the frame is returned (recv(2)).
                length, ancillary, _, address = self.socket.recvmsg_into(
                    [self._buffer], room, socket.MSG_TRUNC
                )
            except BlockingIOError:
                return
            except OSError:  # the interface went down: reported once by the kernel (packet(7))
                continue
            file = self.down if address[2] == PACKET_OUTGOING else self.up
            second, nanosecond = TIMESTAMP.unpack(ancillary[0][2])
            moment_ns = timestamps.wall_ns(second * SECOND_NS + nanosecond)
            file.add(memoryview(self._buffer)[: min(length, SNAPSHOT_BYTES)], length, moment_ns)

    def close(self, timestamps: Timestamps) -> dict[str, Any]:
        """Read waiting frames, and close; return what was captured, and what was dropped."""
        self.read(timestamps)
        dropped = dropped_frames(self.socket)
        self.socket.close()
        return {
            "link": self.link,
            "up": self.up.close(),
            "down": self.down.close(),
            "dropped_by_kernel": dropped,
        }


def main(folder: str, most_bytes: str, *named: str) -> None:
    """Capture until SIGTERM."""
    ended: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: ended.append(number))
    pairs = (name.partition("=") for name in named)
    captures = [LinkCapture(link, at, Path(folder), int(most_bytes)) for link, _, at in pairs]
    selector = selectors.DefaultSelector()
    for capture in captures:
        selector.register(capture.socket, selectors.EVENT_READ, capture)
    timestamps = Timestamps()
    print("capturing", flush=True)
    while not ended:
        ready = selector.select(END_SEEN_S)
        timestamps.renew()
        for key, _ in ready:
            key.data.read(timestamps)
    timestamps.renew()
    links = [capture.close(timestamps) for capture in captures]
    content = {"realtime_minus_monotonic_ns": timestamps.ahead_at_first_ns, "links": links}
    write_text(Path(folder, "capture.json"), json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
