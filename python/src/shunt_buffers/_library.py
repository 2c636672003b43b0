"""The C library: include/shunt_buffers.h says what each function does."""
import ctypes
import os
import pathlib

from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_uint64, c_void_p

_path = os.environ.get("SHUNT_BUFFERS_LIBRARY") or pathlib.Path(__file__).with_name("libshunt_buffers_c.so")
_c = ctypes.CDLL(str(_path))

_ERROR, _SIZE, _TICKET = POINTER(c_int), POINTER(c_size_t), POINTER(c_uint64)
for _name, _result, *_arguments in [
    ("result_text", c_char_p, c_int),
    ("result_word", c_char_p, c_int),
    ("pool_create", c_void_p, c_size_t, c_size_t, c_int, c_int, _ERROR),
    ("pool_release", None, c_void_p),
    ("pool_populate", None, c_void_p),
    ("pool_show", c_int, c_void_p, c_int),
    ("memory_show", c_void_p, c_void_p, c_size_t, c_int, _ERROR),
    ("memory_hide", None, c_void_p),
    ("receive_view", c_int, c_int, c_void_p, c_size_t, c_int, POINTER(c_void_p)),
    ("view_data", c_void_p, c_void_p),
    ("view_length", c_size_t, c_void_p),
    ("view_is_in_place", c_int, c_void_p),
    ("view_give_back", None, c_void_p),
    ("pool_unit", c_size_t, c_void_p),
    ("pool_units", c_size_t, c_void_p),
    ("pool_free_units", c_size_t, c_void_p),
    ("region_allocate", c_void_p, c_void_p, c_size_t, _ERROR),
    ("region_release", None, c_void_p),
    ("region_data", c_void_p, c_void_p),
    ("region_size", c_size_t, c_void_p),
    ("port_connect", c_void_p, c_int, _ERROR),
    ("port_accept", c_void_p, c_int, _ERROR),
    ("port_over", c_void_p, c_int, _ERROR),
    ("port_over_copying", c_void_p, c_int, _ERROR),
    ("port_shares", c_int, c_void_p),
    ("port_close", None, c_void_p),
    ("port_descriptor", c_int, c_void_p),
    ("port_trust", None, c_void_p),
    ("port_offer", c_int, c_void_p, c_void_p),
    ("port_set_quota", c_int, c_void_p, c_size_t),
    ("port_set_largest", None, c_void_p, c_size_t),
    ("port_lent", None, c_void_p, _SIZE, _SIZE),
    ("port_copied", c_uint64, c_void_p, c_int),
    ("send", c_int, c_void_p, c_void_p, c_size_t, c_int, _TICKET),
    ("send_shared", c_int, c_void_p, c_void_p, c_size_t, c_int, _TICKET),
    ("send_region", c_int, c_void_p, c_void_p, c_size_t, c_int, _TICKET),
    ("completed", c_int, c_void_p, c_uint64),
    ("next_length", c_int, c_void_p, _SIZE),
    ("receive", c_int, c_void_p, c_void_p, c_size_t, _SIZE),
    ("receive_reference", c_int, c_void_p, POINTER(c_void_p)),
    ("message_data", c_void_p, c_void_p),
    ("message_length", c_size_t, c_void_p),
    ("message_semantics", c_int, c_void_p),
    ("message_is_in_place", c_int, c_void_p),
    ("give_back", c_int, c_void_p, c_void_p),
    ("forward", c_int, c_void_p, c_void_p, c_void_p),
    ("settle", c_int, c_void_p, c_void_p, _SIZE),
    ("has_message", c_int, c_void_p),
    ("pool_window", c_void_p, c_void_p, c_size_t, _ERROR),
    ("window_release", None, c_void_p),
    ("window_data", c_void_p, c_void_p),
    ("window_length", c_size_t, c_void_p),
    ("window_keep", c_int, c_void_p),
    ("window_is_lent", c_int, c_void_p),
    ("port_alignment", None, c_void_p, c_void_p, c_void_p),
    ("port_set_swap_from", None, c_void_p, c_size_t),
    ("receive_into", c_int, c_void_p, c_void_p, _SIZE),
    ("network_alignment", None, c_void_p, c_void_p),
    ("network_set_swap_from", None, c_void_p, c_size_t),
    ("network_receive_into", c_int, c_void_p, c_void_p, c_int, _SIZE),
    ("network_over", c_void_p, c_int, c_void_p, _ERROR),
    ("network_close", None, c_void_p),
    ("network_offer", c_int, c_void_p, c_void_p),
    ("network_set_quota", None, c_void_p, c_size_t),
    ("network_set_pooled", None, c_void_p, c_size_t),
    ("network_set_outboard", None, c_void_p),
    ("network_set_patience", None, c_void_p, c_int),
    ("network_has_room", c_int, c_void_p, c_size_t),
    ("network_descriptor", c_int, c_void_p),
    ("network_progress", c_int, c_void_p),
    ("network_drain", c_int, c_void_p),
    ("network_send", c_int, c_void_p, c_void_p, c_size_t, c_int, _TICKET),
    ("network_send_shared", c_int, c_void_p, c_void_p, c_size_t, c_int, _TICKET),
    ("network_send_region", c_int, c_void_p, c_void_p, c_size_t, c_int, _TICKET),
    ("network_completed", c_int, c_void_p, c_uint64),
    ("network_has_message", c_int, c_void_p),
    ("network_has_whole_message", c_int, c_void_p),
    ("network_next_length", c_int, c_void_p, _SIZE),
    ("network_receive", c_int, c_void_p, c_void_p, c_size_t, c_int, _SIZE),
    ("network_receive_region", c_int, c_void_p, c_int, POINTER(c_void_p), _SIZE),
]:
    _function = getattr(_c, "shunt_" + _name)
    _function.restype, _function.argtypes = _result, _arguments
    globals()[_name] = _function

LIMIT = -100
TOO_LONG = -3
NO_ROOM, NOT_ARRIVED, NO_MESSAGE = -5, -6, -7


class Error(Exception):
    """A call failed. `word` is its name, as `shunt why` prints it; `result` the library's number."""

    def __init__(self, result):
        super().__init__(result_text(result).decode())
        self.result, self.word = result, result_word(result).decode()


class Gone(Error):
    """The peer has ended, or closed its port."""


class Full(Error):
    """No run of free units in the pool: regions are in use, or still being read."""


class Waited(Error, TimeoutError):
    """What the call waited for was not there in time (NetworkPort.patience). `word` says what: "no-room", and nothing was sent; "not-arrived",
    and it is still under way; "no-message"."""


def error(result):
    if result == -1:
        return Gone(result)
    if NO_MESSAGE <= result <= NO_ROOM:
        return Waited(result)
    return Full(result) if result == LIMIT else Error(result)


def check(result):
    if result < 0:
        raise error(result)
    return result


def made(handle, result):
    if not handle:
        raise error(result.value)
    return handle


def codes():
    """The results of all limits, by their words."""
    found, code = {}, LIMIT
    while (word := result_word(code).decode()).startswith("region-"):
        found[word] = code
        code -= 1
    return found
