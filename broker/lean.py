"""Imports msgspec without the modules that it imports for types of which the broker has none: a third of a start.

Always true: afterwards `sys.modules` holds no stand-in, so that whoever needs one of those modules gets the real one; and
where msgspec cannot be imported so, it is imported as it wants to be. What is missing: values of `uuid.UUID` and
`decimal.Decimal`, JSON Schema and `msgspec.inspect`. Nothing is missing of `typing_extensions`, in whose place msgspec takes
`typing`. Must be imported before anything that imports msgspec; the collector stays off until the broker serves.
"""

import gc
import sys
from types import ModuleType

SWITCH_S = 0.0005
"""How long one thread may keep others from the interpreter during a start, which has several that wait for the kernel."""


_usual_switch_s = sys.getswitchinterval()


def _stand_ins() -> dict[str, ModuleType | None]:
    uuid, decimal = ModuleType("uuid"), ModuleType("decimal")
    uuid.UUID = type("UUID", (), {})  # type: ignore[attr-defined]
    uuid.SafeUUID = type("SafeUUID", (), {"unknown": None})  # type: ignore[attr-defined]
    decimal.Decimal = type("Decimal", (), {})  # type: ignore[attr-defined]
    schema = ModuleType("msgspec._json_schema")
    schema.schema = schema.schema_components = None  # type: ignore[attr-defined]
    names = {
        "typing_extensions": None,  # None: an ImportError, after which msgspec takes `typing`
        "uuid": uuid,
        "decimal": decimal,
        "msgspec.inspect": ModuleType("msgspec.inspect"),
        "msgspec._json_schema": schema,
    }
    return {name: module for name, module in names.items() if name not in sys.modules}


def _import_msgspec() -> None:
    sys.setswitchinterval(SWITCH_S)
    gc.disable()  # imports make next to no garbage, and looking for it takes a tenth of their time
    stand_ins = _stand_ins()
    sys.modules.update(stand_ins)  # type: ignore[arg-type]
    try:
        import msgspec
    except (ImportError, AttributeError):  # a version that wants more: it is imported again, with all
        for name in [name for name in sys.modules if name.partition(".")[0] == "msgspec"]:
            del sys.modules[name]
        return
    finally:
        for name in stand_ins:
            sys.modules.pop(name, None)
    del msgspec.inspect, msgspec.json.schema, msgspec.json.schema_components


if "msgspec" not in sys.modules:
    _import_msgspec()


def end_of_start() -> None:
    """Collect garbage from now on, but never look again at what the start made: it stays. Threads take turns as usual."""
    sys.setswitchinterval(_usual_switch_s)
    gc.freeze()
    gc.enable()
