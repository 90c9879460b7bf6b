"""Thrift's compact protocol, in which a Parquet file's footer is written: enough of it to read a
footer and to write the same bytes again.

A structure is a dictionary: number of a field -> (type, value). A list is (type of its items,
items).
"""

_TRUE, _FALSE, _BYTE, _DOUBLE, _TEXT, LIST, SET, STRUCT = 1, 2, 3, 7, 8, 9, 10, 12
_INTEGERS = 4, 5, 6
_LONG_LIST = 15  # items from which on their count follows, and the largest step between fields


def read_structure(buffer: bytes, position: int = 0) -> tuple[dict, int]:
    """The structure that starts at a position of a buffer, and where it ends."""
    fields, number = {}, 0
    while header := buffer[position]:
        kind, step, position = header & 15, header >> 4, position + 1
        if step:
            number += step
        else:
            number, position = _read_integer(buffer, position)
        value, position = _READ[kind](buffer, position)
        fields[number] = kind, value
    return fields, position + 1


def _read_list(buffer: bytes, position: int) -> tuple[tuple, int]:
    kind, count, items = buffer[position] & 15, buffer[position] >> 4, []
    position += 1
    if count == _LONG_LIST:
        count, position = _read_varint(buffer, position)
    read = _READ[_BYTE if kind in (_TRUE, _FALSE) else kind]
    for _ in range(count):
        item, position = read(buffer, position)
        items.append(item)
    return (kind, items), position


def _read_varint(buffer: bytes, position: int) -> tuple[int, int]:
    number, shift = 0, 0
    while (byte := buffer[position]) > 127:
        number |= (byte & 127) << shift
        shift += 7
        position += 1
    return number | byte << shift, position + 1


def _read_integer(buffer: bytes, position: int) -> tuple[int, int]:
    number = buffer[position]
    if number > 127:
        number, position = _read_varint(buffer, position)
    else:
        position += 1
    return number >> 1 ^ -(number & 1), position


def _read_text(buffer: bytes, position: int) -> tuple[bytes, int]:
    length, position = _read_varint(buffer, position)
    return buffer[position : position + length], position + length


_READ = {
    **dict.fromkeys((_TRUE, _FALSE), lambda buffer, position: (None, position)),
    _BYTE: lambda buffer, position: (buffer[position : position + 1], position + 1),
    _DOUBLE: lambda buffer, position: (buffer[position : position + 8], position + 8),
    **dict.fromkeys(_INTEGERS, _read_integer),
    _TEXT: _read_text,
    **dict.fromkeys((LIST, SET), _read_list),
    STRUCT: read_structure,
}


def write_structure(out: bytearray, fields: dict[int, tuple[int, object]]) -> None:
    """Append a structure to a buffer. fields: in the order of their numbers."""
    previous = 0
    for number, (kind, value) in fields.items():
        if 0 < number - previous < 16:
            out.append(number - previous << 4 | kind)
        else:
            out.append(kind)
            _write_integer(out, number)
        _write_value(out, kind, value)
        previous = number
    out.append(0)


def _write_value(out: bytearray, kind: int, value: object) -> None:
    if kind in _INTEGERS:
        _write_integer(out, value)
    elif kind == STRUCT:
        write_structure(out, value)
    elif kind in (LIST, SET):
        item_kind, items = value
        out.append(min(len(items), _LONG_LIST) << 4 | item_kind)
        if len(items) >= _LONG_LIST:
            _write_varint(out, len(items))
        if item_kind in (_TRUE, _FALSE):
            item_kind = _BYTE
        for item in items:
            _write_value(out, item_kind, item)
    elif value is not None:
        if kind == _TEXT:
            _write_varint(out, len(value))
        out += value


def _write_varint(out: bytearray, number: int) -> None:
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)


def _write_integer(out: bytearray, number: int) -> None:
    _write_varint(out, number << 1 ^ number >> 63)
