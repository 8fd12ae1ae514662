"""Which loader an ELF program asks for: the kernel opens that file for execution as well, so it needs the right to.

Always true: reads at most the headers; a file that is no ELF file, or a damaged one, has no loader.
"""

import os
import struct
from typing import Final

# elf.h: Elf64_Ehdr up to e_shstrndx, Elf64_Phdr
_HEADER: Final = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT: Final = struct.Struct("<IIQQQQQQ")
_PT_INTERP: Final = 3
_SEGMENTS_AT_MOST: Final = 256
_PATH_BYTES_AT_MOST: Final = 4096


def loader_of(path: str | bytes) -> str | None:
    """Return the path in PT_INTERP of the 64-bit little-endian ELF file at `path`, None if it has none
    (elf(5)).
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return _loader(fd)
    except (struct.error, OverflowError, OSError):
        return None
    finally:
        os.close(fd)


def _loader(fd: int) -> str | None:
    header = os.pread(fd, _HEADER.size, 0)
    if header[:6] != b"\x7fELF\x02\x01":
        return None
    fields = _HEADER.unpack(header)
    table_at, size, count = fields[5], fields[9], fields[10]
    for place in range(min(count, _SEGMENTS_AT_MOST)):
        segment = _SEGMENT.unpack(os.pread(fd, _SEGMENT.size, table_at + place * size))
        if segment[0] == _PT_INTERP:
            text = os.pread(fd, min(segment[5], _PATH_BYTES_AT_MOST), segment[2])
            return os.fsdecode(text.split(b"\0", 1)[0])
    return None
