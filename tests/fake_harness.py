#!/usr/bin/env python3
"""What the harness of the vendor's model answers, without a chip: for the tests of the driver that talks to it.

Packets come back on the port after theirs. With ``-p`` it logs; a packet's first seven bytes are a digest of type 1.
Commands are kept in ``commands.log`` in the working directory.
"""

import os
import re
import sys


def dump(port: int, frame: bytes) -> None:
    print(f"unexpected packet output on port {port}:")
    for at in range(0, len(frame), 16):
        row = frame[at : at + 16]
        digits = "".join(
            (" " if j == 8 else "") + (f" {row[j]:02x}" if j < len(row) else "   ") for j in range(16)
        )
        shown = "".join(chr(b & 0x7F) if 32 <= b & 0x7F < 127 else "." for b in row)
        print(f"{at:04x} {digits}  {shown}")
    sys.stdout.flush()


def log(frame: bytes) -> None:
    print(":0x1:-:<0,0,->:========== Ingress Pkt from port 0 ==========")
    for last, part in ((47, b"\1"), (46, frame[:2]), (44, frame[2:6]), (40, frame[6:7])):
        digits, first = part.hex(), last - len(part) + 1
        print(
            f"    :0x1:-:<0,0,->:LearningFilter::LQ[{first:2d}..{last:2d}] = {f'0x{digits}':>10}  "
            f"Mask {'0x' + 'f' * len(digits):>10}  PHV word  64  I [some.field]"
        )
    print(":0x1:-:<0,0,->:LearningFilter::learn: filter_id 0 New LQ #1 Total LQs 1")


def main() -> None:
    memory: dict[tuple[str, ...], int] = {}
    waiting: list[tuple[int, bytes]] = []
    places = 0
    for number, line in enumerate(sys.stdin, 1):
        line = re.sub(r"\$(\w+)", lambda m: os.environ.get(m[1], m[0]), line.strip())
        with open("commands.log", "a", encoding="utf-8") as file:
            file.write(line + "\n")

        def complain(what: str, at: int = number) -> None:
            print(f"<stdin>:{at}: {what}", file=sys.stderr, flush=True)

        command, _, rest = line.partition(" ")
        if command == "packet":
            port, digits = rest.split()
            waiting.append((int(port) + 1, bytes.fromhex(digits)))
        elif command == "wait":
            for port, frame in sorted(waiting, key=lambda packet: packet[0]):
                if "-p" in sys.argv:
                    log(frame)
                dump(port, frame)
            waiting.clear()
        elif command == "add":
            if "refused" in rest:
                complain("no action refused in table t")
            if " = " in rest:
                places += 1
                os.environ[rest.rpartition(" = ")[2]] = str(1024 + places)
        elif command == "write_raw_sram":
            where, content = rest.split()
            memory[tuple(where.split(":"))] = int(content, 16)
        elif command == "check_register":
            name, cell = re.fullmatch(r"0:(\S+)\((\d+)\)", rest).groups()
            row, place = divmod(int(cell), 2)
            word = memory.get(("3", "17", str(row)), 0) >> 64 * place
            print(
                f"register {name}(physical {cell}): lo={word % 2**32} hi={(word >> 32) % 2**32}", flush=True
            )
        elif command == "die":
            sys.exit(3)
        elif command not in ("load", "setdefault", "wire"):
            complain(f"Unknown command {command}")


if __name__ == "__main__":
    main()
