"""libc's posix_spawn, called so that the interpreter's other threads go on meanwhile.

os.posix_spawn keeps the interpreter's lock until the program has started; here another thread must run by
then, to put limits on the new process while its exec waits (`warden`). Memory is shared until the exec
(vfork inside), so the cost does not grow with the broker's.

Always true: the path is handed on as the very address of the bytes object that was given, which a filter
may compare; the program leads a session of its own, blocks no signal and ignores none; of our descriptors
it gets those that are named, and lets go of all others before its exec. That exec may wait for an answer of
this process: if it still held the reaper's leash, the frontend's socket or the very descriptor where its
question arrives when this process is killed, nobody would learn of that death, and it would wait for ever.
"""

import ctypes
import os
from collections.abc import Mapping, Sequence
from typing import Final

_libc: Final = ctypes.PyDLL(None)  # these calls are short: it is not worth letting another thread in
_posix_spawn: Final = ctypes.CDLL(None).posix_spawn
_pointer: Final = ctypes.c_void_p
_posix_spawn.argtypes, _posix_spawn.restype = [_pointer] * 6, ctypes.c_int
for _name, _types in {
    "posix_spawnattr_init": [_pointer],
    "posix_spawnattr_setflags": [_pointer, ctypes.c_short],
    "posix_spawnattr_setsigmask": [_pointer, _pointer],
    "posix_spawnattr_setsigdefault": [_pointer, _pointer],
    "posix_spawn_file_actions_init": [_pointer],
    "posix_spawn_file_actions_adddup2": [_pointer, ctypes.c_int, ctypes.c_int],
    "posix_spawn_file_actions_addfchdir_np": [_pointer, ctypes.c_int],
    "posix_spawn_file_actions_addclose": [_pointer, ctypes.c_int],
    "posix_spawn_file_actions_destroy": [_pointer],
}.items():
    _function = getattr(_libc, _name)
    _function.argtypes, _function.restype = _types, ctypes.c_int

# spawn.h of glibc and musl: both structures are smaller (336 and 80 bytes), and sigset_t is 128 bytes
_ROOM: Final = 1024
_SIGNAL_SET: Final = 128
_SETSIGDEF, _SETSIGMASK, _SETSID = 0x04, 0x08, 0x80
_close_from: Final = getattr(_libc, "posix_spawn_file_actions_addclosefrom_np", None)  # glibc 2.34
if _close_from is not None:
    _close_from.argtypes, _close_from.restype = [_pointer, ctypes.c_int], ctypes.c_int


def _checked(error_number: int) -> None:
    if error_number:
        raise OSError(error_number, os.strerror(error_number))


def _attributes() -> ctypes.Array[ctypes.c_char]:
    attributes = ctypes.create_string_buffer(_ROOM)
    _checked(_libc.posix_spawnattr_init(attributes))
    _checked(_libc.posix_spawnattr_setflags(attributes, _SETSIGDEF | _SETSIGMASK | _SETSID))
    none = ctypes.create_string_buffer(_SIGNAL_SET)
    every = ctypes.create_string_buffer(b"\xff" * _SIGNAL_SET, _SIGNAL_SET)
    _checked(_libc.posix_spawnattr_setsigmask(attributes, none))
    _checked(_libc.posix_spawnattr_setsigdefault(attributes, every))
    return attributes


_ATTRIBUTES: Final = _attributes()


Strings = ctypes.Array[ctypes.c_char_p]
"""An argv or environ as the kernel takes it."""


def _strings(words: Sequence[bytes]) -> Strings:
    return (ctypes.c_char_p * (len(words) + 1))(*words, None)


def encoded(environment: Mapping[str, str]) -> Strings:
    """Return `environment` as `spawn` takes it; may be used for many spawns."""
    return _strings([os.fsencode(f"{name}={value}") for name, value in environment.items()])


def _add_closing(actions: ctypes.Array[ctypes.c_char], first_fd: int) -> None:
    """Have the new process close everything from `first_fd` on."""
    if _close_from is not None:
        _checked(_close_from(actions, first_fd))
        return
    for name in os.listdir("/proc/self/fd"):
        if int(name) >= first_fd:
            _checked(_libc.posix_spawn_file_actions_addclose(actions, int(name)))


def spawn(
    path: bytes | ctypes.Array[ctypes.c_char],
    argv: Sequence[str],
    environment: Strings,
    fds: Sequence[int],
    cwd_fd: int,
) -> int:
    """Start the file `path` in the folder `cwd_fd` and return its pid (posix_spawn(3)).

    `fds` become its descriptors 0, 1, 2 ...; no number in it may be one of the new ones, but its own.
    Raises OSError.
    """
    arguments = _strings([os.fsencode(word) for word in argv])
    actions = ctypes.create_string_buffer(_ROOM)
    pid = ctypes.c_int()
    _checked(_libc.posix_spawn_file_actions_init(actions))
    try:
        for new_fd, fd in enumerate(fds):
            _checked(_libc.posix_spawn_file_actions_adddup2(actions, fd, new_fd))
        _checked(_libc.posix_spawn_file_actions_addfchdir_np(actions, cwd_fd))
        _add_closing(actions, len(fds))
        _checked(_posix_spawn(ctypes.byref(pid), path, actions, _ATTRIBUTES, arguments, environment))
    finally:
        _libc.posix_spawn_file_actions_destroy(actions)
    return pid.value
